"""What held a run up: its roof where the run came near it, else the largest part of its time that
the roof does not explain.

The one idea: the roof (`bound_by`) says what no schedule can undercut, and explains the share
`of_bound` of the time. Where matrix engines waited longer than that for one cause, or worked longer
on padding or on the same again, that is what to look at: its column is the answer. Beyond the roof
no cause holds a run for longer than what the roof leaves: arrays that wait nine tenths of the time
for data are held by bandwidth where DRAM takes these nine tenths at its peak.
"""

from __future__ import annotations

from archgen.outcomes.point import Row

_OF_THE_ROOF = "work_products"
"""What outputs take at the peak of all arrays: no loss, and a part of what the roof counts."""
_PARTS = ("stall_", "work_")


def holding_row(row: Row) -> Row:
    """The column of what held up the run in `row`; none where nothing of its time is known."""
    parts = [name for name in row if name.startswith(_PARTS) and name != _OF_THE_ROOF]
    roof = _share(row.get("of_bound"))
    held = max(parts, key=lambda name: _share(row[name]), default="")
    longest = min(_share(row[held]), 1 - roof) if held else 0.0
    if roof and roof >= longest:
        return {"held_by": row["bound_by"]}
    return {"held_by": held} if longest else {}


def held_words(held: str) -> str:
    """The answer as tables of reports head its column: `waits: data`, `products again`."""
    for part, said in zip(_PARTS, ("waits: ", ""), strict=True):
        if held.startswith(part):
            return said + held.removeprefix(part).replace("_", " ")
    return held


def _share(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

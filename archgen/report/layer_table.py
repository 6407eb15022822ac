"""The table of one point's layers.

The one idea: layers of a group run at the same time, so a layer's own time is shared out: its
group's stretch of the run, by the cycles in which engines worked for each of its layers. These
shares add up to the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import archgen.report.sheet as sheets
from archgen.outcomes.columns import STALLS
from archgen.outcomes.frame import Record, grouped, matrix_use, number
from archgen.plots.over_time import stretches
from archgen.report.account import Account
from archgen.report.sheet import Cell, ComputedColumn, Heading, bar, count, values

_LETTERS = 60


def layer_sheet(account: Account) -> sheets.Sheet:
    """Every layer of a run: when, how much, how well, and what it waited for longest."""
    point, amount = account.point, partial(number, default=0.0)
    rows = zip(account.layers, time_shares(account.layers), strict=True)
    items = [row | {"place": n, "share": share} for n, (row, share) in enumerate(rows, 1)]
    per_layer = "from its first instruction to its last; layers overlap"
    use = (
        "MACs over what the matrix engines could do, in the type of these, in the cycles that they "
        "worked for it"
    )
    cause = "idle cycles of all engines whose next instruction was this layer's"
    columns: list[ComputedColumn[Record]] = [
        values("#", "place", key="place", cell=count),
        values("Group", "group", cell=count),
        ComputedColumn(Heading("Node", number=False), lambda r: _node(str(r["node"]))),
        sheets.words("Operator", lambda r: str(r["operator"])),
        values("Start", "start_cycle", "cycle", cell=count),
        values("Cycles", lambda r: amount(r, "end_cycle") - amount(r, "start_cycle"), "", per_layer,
               cell=count),
        values("Turns", "turns", "", "of the outermost loop that it computes in", cell=count),
        values("Turn", "turn_cycles", "cycles", "from one turn of its loop to the next",
               cell=count),
        values("Share of time", "share", key="share", cell=bar),
        values("MACs", "macs", cell=count),
        values("Matrix use", lambda r: matrix_use(r, point.arch), "", use, "use", bar),
        values("DRAM read", lambda r: amount(r, "dram_read_bytes") / 1e3, "KB"),
        values("DRAM write", lambda r: amount(r, "dram_write_bytes") / 1e3, "KB"),
        values("Energy", lambda r: 1e3 * amount(r, "energy_mj"), "µJ",
               "of its own work, leakage left out"),
        ComputedColumn(Heading("Largest wait", number=False, key="wait", title=cause), _wait),
    ]  # fmt: skip
    return sheets.sheet(f"{point.anchor}-table", f"Layers of {point.label}", columns, items)


def time_shares(rows: Sequence[Record]) -> list[float]:
    """Share of the run's time of each row; adds up to 1 where there is time at all."""
    taken = {part.group: part.end - part.start for part in stretches(rows)}
    total = sum(taken.values()) or 1
    members = grouped(rows, lambda row: int(row["group"]))
    shares = []
    for row in rows:
        group = int(row["group"])
        worked = sum(map(_worked, members[group]))
        share = _worked(row) / worked if worked else 1 / len(members[group])
        shares.append(share * taken.get(group, 0) / total)
    return shares


def _worked(row: Record) -> float:
    """Cycles in which any engine worked for a layer."""
    return sum(number(row, name, 0.0) for name in row if name.startswith("busy_"))


def _node(name: str) -> Cell:
    """The node; of long names the end, which tells layers apart."""
    return Cell(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…", name)


def _wait(row: Record) -> Cell:
    waits = {cause: number(row, f"stall_{cause}_cycles", 0.0) for cause in STALLS}
    del waits["no_work"]
    cause = max(waits, key=lambda name: waits[name])
    if not waits[cause] > 0:
        return sheets.word(sheets.NONE)
    return Cell(f"{cause} {sheets.integer_text(waits[cause])}", f"{waits[cause]:.6g}")

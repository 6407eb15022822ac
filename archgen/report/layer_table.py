"""The table of one point's layers.

The one idea: layers of a group run at the same time, so a layer's own time is shared out: its
group's stretch of the run, by the cycles in which engines worked for each of its layers. These
shares add up to the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from archgen.outcomes.columns import STALLS
from archgen.outcomes.frame import Record, number
from archgen.plots.over_time import stretches
from archgen.report.account import Account
from archgen.report.sheet import (
    NONE,
    Cell,
    ComputedColumn,
    Heading,
    Sheet,
    count,
    figure,
    integer_text,
    part,
    sheet,
    word,
)

_LETTERS = 60


@dataclass(frozen=True)
class LayerTableRow:
    """A row of the table."""

    place: int
    row: Record
    share: float
    """Of the run's time."""

    def get(self, column: str) -> float:
        """A number of the row; 0 for what it does not have."""
        value = number(self.row, column)
        return value if math.isfinite(value) else 0.0


def layer_sheet(account: Account) -> Sheet:
    """Every layer of a run: when, how much, how well, and what it waited for longest."""
    point = account.point
    rows = account.layers
    shares = time_shares(rows)
    peak = point.arch.matrix.peak(str(point.row["dtype"]))
    items = [LayerTableRow(i, *each) for i, each in enumerate(zip(rows, shares, strict=True), 1)]
    cause_title = "idle cycles of all engines whose next instruction was this layer's"
    columns: list[ComputedColumn[LayerTableRow]] = [
        ComputedColumn(Heading("#", key="place"), lambda r: count(r.place)),
        ComputedColumn(Heading("Group"), lambda r: count(r.get("group"))),
        ComputedColumn(Heading("Node", number=False), lambda r: _node(str(r.row["node"]))),
        ComputedColumn(Heading("Operator", number=False), lambda r: word(str(r.row["operator"]))),
        ComputedColumn(Heading("Start", "cycle"), lambda r: count(r.get("start_cycle"))),
        ComputedColumn(Heading("Cycles",
            title="from its first instruction to its last; layers overlap"),
             lambda r: count(r.get("end_cycle") - r.get("start_cycle"))),
        ComputedColumn(Heading("Share of time", key="share"), lambda r: part(r.share, bar=True)),
        ComputedColumn(Heading("MACs"), lambda r: count(r.get("macs"))),
        ComputedColumn(Heading("Matrix use", key="use",
            title="MACs over what the matrix engines could do "
                     "in the cycles that they worked for it"),
             lambda r: part(_use(r, peak), bar=True)),
        ComputedColumn(Heading("DRAM read", "KB"),
             lambda r: figure(r.get("dram_read_bytes") / 1e3)),
        ComputedColumn(Heading("DRAM write", "KB"),
             lambda r: figure(r.get("dram_write_bytes") / 1e3)),
        ComputedColumn(Heading("Energy", "µJ", "of its own work, leakage left out"),
             lambda r: figure(1e3 * r.get("energy_mj"))),
        ComputedColumn(Heading("Largest wait", number=False, key="wait", title=cause_title), _wait),
    ]  # fmt: skip
    return sheet(f"{point.anchor}-table", f"Layers of {point.label}", columns, items)


def time_shares(rows: Sequence[Record]) -> list[float]:
    """Share of the run's time of each row; adds up to 1 where there is time at all."""
    taken = {part.group: part.end - part.start for part in stretches(rows)}
    worked = [_worked(row) for row in rows]
    members: dict[int, float] = {}
    sizes: dict[int, int] = {}
    for row, cycles in zip(rows, worked, strict=True):
        group = int(row["group"])
        members[group] = members.get(group, 0.0) + cycles
        sizes[group] = sizes.get(group, 0) + 1
    total = sum(taken.values()) or 1
    found = []
    for row, cycles in zip(rows, worked, strict=True):
        group = int(row["group"])
        own = cycles / members[group] if members[group] else 1 / sizes[group]
        found.append(own * taken.get(group, 0) / total)
    return found


def _worked(row: Record) -> float:
    """Cycles in which any engine worked for a layer."""
    busy = [number(row, name) for name in row if name.startswith("busy_")]
    return sum(cycles for cycles in busy if cycles > 0)


def _use(layer: LayerTableRow, peak: float) -> float:
    busy = layer.get("busy_matrix_cycles") * peak
    return layer.get("macs") / busy if busy > 0 else math.nan


def _node(name: str) -> Cell:
    """The node; of long names the end, which tells layers apart."""
    return Cell(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…", name)


def _wait(layer: LayerTableRow) -> Cell:
    waits = {cause: layer.get(f"stall_{cause}_cycles") for cause in STALLS if cause != "no_work"}
    cause = max(waits, key=lambda name: waits[name])
    if not waits[cause] > 0:
        return word(NONE)
    return Cell(f"{cause} {integer_text(waits[cause])}", f"{waits[cause]:.6g}")

"""A schedule written by hand beside the compiler's own: both executed, checked and timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archgen.outcomes.points import Point
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, MeasuredSchedule


def beside(point: Point) -> tuple[MeasuredSchedule, ...]:
    """What becomes of `point`, whose schedule is given, and of the same with the compiler's own."""
    own = replace(point, scheduling=replace(point.scheduling, tree=None))
    bench = Workbench(STANDARD)
    pairs = (("by hand", point), ("the compiler's own", own))
    return tuple(_measured(name, bench.run(each).row) for name, each in pairs)


def _measured(name: str, row: dict[str, Any]) -> MeasuredSchedule:
    if row["status"] != "ok":
        return MeasuredSchedule(name, None, None, None, None, row["reason"])
    moved = row["dram_read_bytes"] + row["dram_write_bytes"]
    cycles, peak = row["latency_cycles"], row["peak_local_bytes"]
    return MeasuredSchedule(name, cycles, moved, peak, row["verified"], row["note"])

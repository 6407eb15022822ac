"""What a schedule is wanted for: a score of its estimate, the lower the better.

    latency      cycles from the first load to the last store
    throughput   cycles of whatever is busiest: with inputs one after another, the rest overlaps
    memory       bytes on chip at most, cycles second
    energy       a proxy: bytes off chip and the work of the engines, weighted

Scores of groups are added up by the partition, whose sum is to be least. That is right for cycles
and for energy. A peak is no sum: the peak of a network is that of its largest group. So bytes count
with their `PEAK`-th power, where the largest term outweighs all others together as soon as it is a
quarter larger than them, while the sum stays a sum and what lies below the peak still counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from compiler.schedule_ir.schedule import Estimate, Schedule
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Tensor

Objective = Literal["latency", "throughput", "memory", "energy"]

PEAK = 16
"""Power of bytes on chip: 1.25 ** 16 is 35, so a peak outweighs 35 groups of four fifths of it."""
UNIT = 1024.0
"""Bytes that count one before they are raised to it: keeps scores far below infinity."""
TIE = 1e-3
"""Weight of the second criterion, cycles, against the first."""
DRAM_BYTE = 160.0
"""Energy of a byte off chip: 640 pJ per 32-bit word (Horowitz, ISSCC 2014), 160 pJ per byte."""
CYCLE = 5.0
"""Energy of a cycle of an engine: what it reads on chip, 5 pJ per 32-bit word of an 8 KiB SRAM in
the same source; the multiplications (0.2 pJ for 8 bits) are the same for every schedule."""


Score = Callable[[Estimate], float]


def _memory(estimate: Estimate) -> float:
    peak: float = (estimate.need / UNIT) ** PEAK
    return peak * (1 + TIE * math.log1p(estimate.total)) + TIE * estimate.total


SCORES: Mapping[Objective, Score] = MappingProxyType(
    {
        "latency": lambda e: e.total,
        "throughput": lambda e: max(e.matrix, e.vector, e.memory) + TIE * e.total,
        "memory": _memory,
        "energy": lambda e: DRAM_BYTE * e.bytes + CYCLE * (e.matrix + e.vector),
    }
)
"""Objective -> score of an estimate."""

COLUMNS: Mapping[Objective, tuple[str, ...]] = MappingProxyType(
    {
        "latency": ("total",), "throughput": ("total",), "memory": ("need", "total"),
        "energy": ("bytes", "total"),
    }
)  # fmt: skip
"""Objective -> columns of a price by which the candidates for one layer are picked."""


# What a split over cores costs short inputs, in a program for a range of lengths.


def charge(result: Tensor, parts: Sequence[Box], most: float) -> float:
    """Times its cycles that a schedule counts for whose cores take `parts` of `result`: more than
    1 where cores are idle at lengths below the most, on average over all of these, and never above
    1 + `most`."""
    cost = 1.0
    for axis, count in enumerate(result.counts):
        if count is not None:
            longest, among = result.shape[axis], len({part[axis][0] for part in parts})
            # Positions that cores seem to have, each as many as the first, over those that are.
            whole, rest = divmod(longest, among)
            seeming = among * (among * whole * (whole + 1) // 2 + rest * (whole + 1))
            cost *= seeming / math.comb(longest + 1, 2)
    return min(cost, 1 + most)


def charge_of(schedule: Schedule, most: float) -> float:
    """The same of the split of a schedule."""
    group = schedule.group
    return charge(group.tensors[group.results[-1]], schedule.parts, most)

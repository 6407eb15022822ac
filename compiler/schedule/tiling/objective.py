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


def latency(estimate: Estimate) -> float:
    """Cycles in all."""
    return estimate.total


def throughput(estimate: Estimate) -> float:
    """Cycles of the busiest engine or memory."""
    busiest = max(estimate.matrix, estimate.vector, estimate.memory)
    return busiest + TIE * estimate.total


def memory(estimate: Estimate) -> float:
    """Bytes on chip, raised so that the largest group decides; cycles second."""
    peak: float = (estimate.need / UNIT) ** PEAK
    return peak * (1 + TIE * math.log1p(estimate.total)) + TIE * estimate.total


def energy(estimate: Estimate) -> float:
    """Picojoules, roughly: for comparing schedules of one network on one machine only."""
    return DRAM_BYTE * estimate.bytes + CYCLE * (estimate.matrix + estimate.vector)


SCORES: Mapping[Objective, Callable[[Estimate], float]] = MappingProxyType(
    {"latency": latency, "throughput": throughput, "memory": memory, "energy": energy}
)
"""Objective -> score of an estimate."""

COLUMNS: Mapping[Objective, tuple[str, ...]] = MappingProxyType(
    {
        "latency": ("total",),
        "throughput": ("total",),
        "memory": ("need", "total"),
        "energy": ("bytes", "total"),
    }
)
"""Objective -> columns of a price by which the candidates for one layer are picked."""


# What a split over cores costs short inputs, in a program for a range of lengths.


def charge(result: Tensor, parts: Sequence[Box], most: float) -> float:
    """Times its cycles that a schedule counts for whose cores take `parts` of `result`: more than
    1 where cores are idle at lengths below the most, on average over all of these, and never above
    1 + `most`."""
    cost = 1.0
    for axis, count in enumerate(result.counts):
        if count is not None:
            among = len({part[axis][0] for part in parts})
            cost *= _rounded_up(result.shape[axis], among)
    return min(cost, 1 + most)


def charge_of(schedule: Schedule, most: float) -> float:
    """The same of the split of a schedule."""
    group = schedule.group
    return charge(group.tensors[group.results[-1]], schedule.parts, most)


def _rounded_up(most: int, among: int) -> float:
    """Positions that cores seem to have, each as many as the first, over those that there are."""
    whole, rest = divmod(most, among)
    seeming = among * (among * whole * (whole + 1) // 2 + rest * (whole + 1))
    return seeming / math.comb(most + 1, 2)

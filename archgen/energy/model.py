"""Energy of a run, or of an estimate: counts of events times what each costs.

The one idea: components (mac, vector, each memory, link, instruction, leakage) add up to the total,
and so do the layers of a network, less leakage, which belongs to time and not to a layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from archgen.energy.costs import EnergyCosts
from archgen.energy.ranges import UncertainValue, total
from simmodel.arch.element_types import products_made
from simmodel.arch.record import Arch
from simmodel.isa import Instruction, MatrixInstruction, VectorFamily, Window
from simmodel.isa.base import instructions
from simmodel.program.program import Program
from simmodel.trace import Events, Trace


def count_events(program: Program, trace: Trace) -> list[Events]:
    """Events of each of `trace.origins`, in that order."""
    found: dict[int, Events] = {}
    for item, loops in chain.from_iterable(map(instructions, program.cores)):
        if times := math.prod(count for _, count in loops):
            _count_instruction(item, times, found.setdefault(item.origin, Events()))
    events = [found[index] for index in sorted(found)]
    for own, origin in zip(events, trace.origins, strict=True):
        own.read.update(origin.read)
        own.written.update(origin.written)
        own.links.update(origin.links)
        own.instructions = origin.instructions
    return events


def _count_instruction(item: Instruction, times: int, own: Events) -> None:
    if isinstance(item, MatrixInstruction):
        kind, made = products_made(item.rate_type, item.macs())
        own.macs[kind] += times * made
    elif isinstance(item, VectorFamily):
        taps = math.prod(item.kernel) if isinstance(item, Window) else 1
        own.elements[item.cost()] += times * taps * math.prod(item.walked())


_MJ = 1e-9
"""Millijoules of a picojoule."""


@dataclass(frozen=True)
class Energy:
    """mJ of one run."""

    parts: dict[str, UncertainValue]
    """By component: mac, vector, each memory's role, link, instruction, leakage."""
    layers: tuple[float, ...]
    """Of each of the trace's origins, without leakage."""
    seconds: float
    """Length of the run."""
    macs: int
    """Multiply-accumulates of the model."""

    @property
    def total(self) -> UncertainValue:
        """All components."""
        return total(self.parts.values())

    @property
    def average_w(self) -> float:
        """Watts during the run."""
        # Millijoules by seconds are milliwatts.
        return 1e-3 * self.total.value / self.seconds if self.seconds else 0.0

    @property
    def tops_per_w(self) -> float:
        """Tera-operations of the model per joule; a multiply-accumulate counts two."""
        spent = 1e-3 * self.total.value
        return 2e-12 * self.macs / spent if spent else 0.0


def energy_of(trace: Trace, program: Program, arch: Arch, costs: EnergyCosts) -> Energy:
    """Energy of the run in `trace` of `program` on `arch`."""
    return energy_of_events(
        count_events(program, trace), trace.cycles / arch.clock, program.macs, costs
    )


def energy_of_events(
    events: Sequence[Events], seconds: float, macs: int, costs: EnergyCosts
) -> Energy:
    """Energy of the `events` of each layer within `seconds`, for `macs` of the model."""
    parts = dynamic(Events.total(events), costs)
    parts["leakage"] = costs.leakage.times(seconds)  # mW and seconds are millijoules
    layers = tuple(total(dynamic(own, costs).values()).value for own in events)
    return Energy(parts, layers, seconds, macs)


def dynamic(events: Events, costs: EnergyCosts) -> dict[str, UncertainValue]:
    """mJ of `events` by component, all components of the machine present."""
    parts = {"mac": _sum(events.macs, costs.mac), "vector": _sum(events.elements, costs.vector)}
    for role in costs.read:
        read = costs.read[role].times(_MJ * events.read[role])
        parts[role] = total((read, costs.write[role].times(_MJ * events.written[role])))
    if costs.links:
        parts["link"] = _sum(events.links, costs.links)
    parts["instruction"] = costs.instruction.times(_MJ * events.instructions)
    return parts


def _sum(counts: Mapping[str, int], costs: Mapping[str, UncertainValue]) -> UncertainValue:
    return total(costs[name].times(_MJ * count) for name, count in counts.items())

"""Energy of a run: counts of events times what each costs.

The one idea: components (mac, vector, each memory, link, instruction, leakage) add up to the total,
and so do the layers of a network, less leakage, which belongs to time and not to a layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from archgen.energy.costs import Costs
from archgen.energy.events import Events, count_events
from archgen.energy.ranges import Range, total
from simmodel.arch import Arch
from simmodel.program import Program
from simmodel.trace import Trace

_MJ = 1e-9
"""Millijoules of a picojoule."""


@dataclass(frozen=True)
class Energy:
    """mJ of one run."""

    parts: dict[str, Range]
    """By component: mac, vector, each memory's role, link, instruction, leakage."""
    layers: tuple[float, ...]
    """Of each of the trace's origins, without leakage."""
    seconds: float
    """Length of the run."""
    macs: int
    """Multiply-accumulates of the model."""

    @property
    def total(self) -> Range:
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


def energy_of(trace: Trace, program: Program, arch: Arch, costs: Costs) -> Energy:
    """Energy of the run in `trace` of `program` on `arch`."""
    events = count_events(program, trace, arch)
    seconds = trace.cycles / arch.clock
    parts = dynamic(_all(events), costs)
    parts["leakage"] = costs.leakage.times(seconds)  # mW and seconds are millijoules
    layers = tuple(total(dynamic(own, costs).values()).value for own in events)
    return Energy(parts, layers, seconds, program.macs)


def dynamic(events: Events, costs: Costs) -> dict[str, Range]:
    """mJ of `events` by component, all components of the machine present."""
    parts = {
        "mac": _sum(events.macs, costs.mac),
        "vector": _sum(events.elements, costs.vector),
    }
    for role in costs.read:
        read = costs.read[role].times(_MJ * events.read[role])
        parts[role] = total((read, costs.write[role].times(_MJ * events.written[role])))
    if costs.links:
        parts["link"] = _sum(events.links, costs.links)
    parts["instruction"] = costs.instruction.times(_MJ * events.instructions)
    return parts


def _sum(counts: Mapping[str, int], costs: Mapping[str, Range]) -> Range:
    return total(costs[name].times(_MJ * count) for name, count in counts.items())


def _all(events: Iterable[Events]) -> Events:
    """Everything that happened, whatever for."""
    joined = Events(Counter(), Counter(), Counter(), Counter(), Counter())
    for own in events:
        joined.macs.update(own.macs)
        joined.elements.update(own.elements)
        joined.read.update(own.read)
        joined.written.update(own.written)
        joined.links.update(own.links)
        joined.instructions += own.instructions
    return joined

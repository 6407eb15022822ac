"""What each event costs on one architecture: the table at its node, under what its file states.

The one idea: everything about technology is settled here, once for each architecture, so that the
energy of a run is nothing but counts times these costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from archgen.energy.area import Area, area_of, instruction_bytes
from archgen.energy.engines import dense_type, multiplier_share, vector_type
from archgen.energy.ranges import UncertainValue, at_node, energy_of_speed, sum_of
from archgen.energy.sram import MissingSource, Source, Sram, source_of
from archgen.energy.table import Figures, Operation, shipped_table
from archgen.schema.rewritten import changed_to_other, leaf_fields
from archgen.schema.variants import TWICE, elasticity, value_of
from simmodel.arch.base import RateType
from simmodel.arch.element_types import SPARSE
from simmodel.arch.record import Arch

_KINDS = ("simple", "multiply", "divide", "special")


@dataclass(frozen=True)
class EnergyCosts:
    """Energies of events in pJ (bytes: pJ per byte), leakage in mW, and the chip's area."""

    mac: dict[str, UncertainValue]
    """By element type that the matrix engine knows."""
    vector: dict[str, UncertainValue]
    """Of one element, by kind of operation."""
    read: dict[str, UncertainValue]
    """Of a byte, by memory role; DRAM among them."""
    write: dict[str, UncertainValue]
    links: dict[str, UncertainValue]
    instruction: UncertainValue
    leakage: UncertainValue
    area: Area

    @property
    def by_field(self) -> dict[str, UncertainValue]:
        """What each event costs, and leakage, by the field that may state it."""
        ways = (("read", self.read), ("write", self.write))
        return {
            **{f"energy.mac.{name}": cost for name, cost in self.mac.items()},
            **{f"energy.vector.{name}": cost for name, cost in self.vector.items()},
            **{f"energy.memories.{r}.{way}": own[r] for r in self.read for way, own in ways},
            **{f"energy.links.{name}": cost for name, cost in self.links.items()},
            "energy.instruction": self.instruction,
            "energy.leakage": self.leakage,
        }


def event_name(field: str) -> str:
    """`local read` for `energy.memories.local.read`."""
    name = field.removeprefix("energy.").replace("memories.", "").replace("links.", "link ")
    return name.replace(".", " ")


def costs_of(arch: Arch) -> EnergyCosts:
    """Costs of the events of `arch`, whose section `energy` says the node and what is known better
    than the shipped table.

    Raises MissingSource: the architecture asks for a library that is not installed.
    """
    figures, stated = shipped_table(), arch.energy
    source = source_of(stated.source, figures)
    area = area_of(arch, figures, source)
    table = _TableCosts(arch, figures)
    memories = {role: _memory(arch, role, table, source) for role in arch.memories.srams()}
    if arch.memories.dram.on_chip:
        memories["dram"] = memories.pop("shared")
    for role in arch.memories.off_chip().keys() - memories.keys():
        known, kind = stated.memory(role), figures.dram[stated.dram if role == "dram" else role]
        byte = UncertainValue(8 * kind.energy, 8 * kind.low, 8 * kind.high)
        memories[role] = byte.unless(known.read), byte.unless(known.write)
    per_mm2 = figures.leakage
    leakage = UncertainValue.within(per_mm2.density * area.core.value, per_mm2.low, per_mm2.high)
    return EnergyCosts(
        mac={
            name: table.mac(name).unless(stated.mac.get(name))
            for array in arch.arrays.values()
            for name in array.rate
        },
        vector={k: table.vector(k).unless(getattr(stated.vector, k)) for k in _KINDS},
        read={role: ends[0] for role, ends in memories.items()},
        write={role: ends[1] for role, ends in memories.items()},
        links={
            name: table.link(area.core.value / arch.scopes(link.span)).unless(
                stated.links.get(name)
            )
            for name, link in arch.links.items()
        },
        instruction=table.instruction().unless(stated.instruction),
        leakage=leakage.unless(stated.leakage),
        area=area,
    )


def _memory(
    arch: Arch, role: str, table: _TableCosts, source: Source
) -> tuple[UncertainValue, UncertainValue]:
    """Read and write of a byte."""
    stated, fit = arch.energy.memory(role), table.figures.sram
    if stated.read is not None and stated.write is not None:
        return UncertainValue.exact(stated.read), UncertainValue.exact(stated.write)
    made = source(Sram.of(arch.memories.srams()[role], arch.energy.node))
    read, write = (
        UncertainValue.within(each * table.supply, fit.low, fit.high)
        for each in (made.read, made.write)
    )
    return read.unless(stated.read), write.unless(stated.write)


class _TableCosts:
    """What the table says at the node, voltage and clock of one machine, in pJ."""

    def __init__(self, arch: Arch, figures: Figures) -> None:
        self.arch, self.figures, self.node = arch, figures, arch.energy.node
        nominal, given = at_node(figures.voltage.points, self.node), arch.energy.voltage
        self.supply = 1.0 if given is None else (given / nominal) ** 2
        """Dynamic energy over that at the nominal voltage."""
        self.speed = energy_of_speed(arch, figures)

    def _bare(self, dtype: Operation, multiplies: float, adds: float) -> float:
        """Multiplies and adds alone, with the supply."""
        multiply = at_node(self.figures.arithmetic.multiply[dtype], self.node)
        return (multiplies * multiply + adds * self._add(dtype, self.node)) * self.supply

    def _add(self, dtype: Operation, node: float) -> float:
        return at_node(self.figures.arithmetic.add[sum_of(dtype)], node)

    def mac(self, dtype: RateType) -> UncertainValue:
        """A multiply-accumulate of the array; of sparse weights every other one is made."""
        around, share = self.figures.datapath, multiplier_share(dtype)
        adds = share if dtype in SPARSE else 1.0
        spent = self._bare(dense_type(dtype), share, adds) * around.factor
        return UncertainValue.within(spent, around.low, around.high).by(self.speed)

    def vector(self, kind: str) -> UncertainValue:
        """An element of a kind of operation."""
        known, mix = self.figures.vector, getattr(self.figures.vector, kind)
        spent = self._bare(vector_type(self.arch), mix.multiply, mix.add)
        spent *= self.figures.datapath.factor
        return UncertainValue.within(spent, known.low, known.high).by(self.speed)

    def link(self, spanned: float) -> UncertainValue:
        """A byte across the side of the `spanned` mm2: of the chip, a cluster or a core."""
        wire = self.figures.wire
        bit = 1e-3 * at_node(wire.points, self.node) * math.sqrt(spanned)
        return UncertainValue.within(8 * bit * self.supply, wire.low, wire.high)

    def instruction(self) -> UncertainValue:
        """Fetch, decode and issue of an instruction."""
        known = self.figures.instruction
        smaller = self._add("int32", self.node) / self._add("int32", known.node)
        fetch = known.fetch * math.sqrt(instruction_bytes(self.arch) / 4)
        spent = (known.control + fetch) * smaller * self.supply
        return UncertainValue.within(spent, known.low, known.high).by(self.speed)


# What each field of a machine's file costs: the machine is priced again with the field twice as
# large, or by another factor (or otherwise where that is no machine), so whatever it touches shows.


@dataclass(frozen=True)
class Effect:
    """What another value of one field does to costs, as shares of what they were."""

    field: str
    before: Any
    after: Any
    mm2: float
    """Area more, not as a share."""
    area: float
    elasticity: float | None
    """Per cent of area for one per cent of the field; None where that is no amount."""
    leakage: float
    events: dict[str, float]
    """By event, those that change: `local read`, `instruction`."""


def effects(arch: Arch, factor: float = TWICE) -> Iterator[Effect]:
    """Of each field of `arch` that costs depend on, in the order of the file; amounts become
    `factor` times as large, or what is lawful and nearest."""
    base = costs_of(arch)
    for field, value in leaf_fields(arch):
        found = changed_to_other(arch, field, value, factor)
        if found is None:
            continue
        after, changed = found
        try:
            other = costs_of(changed)
        except MissingSource:  # of a library that cannot be used here
            continue
        amounts = [
            amount
            for machine in (arch, changed)
            if isinstance(amount := value_of(machine, field), int | float) and amount
        ]
        times = amounts[1] / amounts[0] if len(amounts) == 2 else math.nan
        effect = _effect_of(base, other, field, value, after, times)
        if effect.mm2 or effect.leakage or effect.events:
            yield effect


def _effect_of(
    base: EnergyCosts, other: EnergyCosts, field: str, before: Any, after: Any, times: float
) -> Effect:
    old, new = base.area.total.value, other.area.total.value
    leakage = _share_of(base.leakage.value, other.leakage.value)
    costs, changed = events_of(base), events_of(other)
    events = {
        name: _share_of(cost, changed[name])
        for name, cost in costs.items()
        if changed.get(name, cost) != cost
    }
    elastic = elasticity(new / old if old else math.nan, times)
    return Effect(field, before, after, new - old, _share_of(old, new), elastic, leakage, events)


def _share_of(old: float, new: float) -> float:
    """How much more `new` is than `old`, as a share of that."""
    return new / old - 1 if old else 0.0


def events_of(costs: EnergyCosts) -> dict[str, float]:
    """pJ of each event, by the name that it is printed with."""
    events = {event_name(field): cost.value for field, cost in costs.by_field.items()}
    del events["leakage"]
    return events

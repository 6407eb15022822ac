"""What constants stay on chip over several groups: those that several layers read.

The steps of a recurrent layer read the same weights one after another; so do layers that share
theirs. A constant that stays from its first use to its last is loaded once, as a whole on every
core that works on it, and takes its bytes at the end of its memory from every group between. It is
hoped for when groups are formed, and comes true where these are expected to be quicker for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from compiler.passes import Amount, Omittable, Share
from compiler.schedule.residency.table import (
    OptimisticPrices,
    Part,
    Placement,
    Prices,
    ResidencyCandidate,
    ResidencyTable,
    Row,
    Slicing,
)
from compiler.schedule_ir.group import Group, Pinned, reserving
from compiler.schedule_ir.layer import Layer
from compiler.target.group_facts import ResidentConstant
from compiler.tensor_ir.nest import HostNode, NestGraph


@dataclass(frozen=True)
class SharedConstant(ResidencyCandidate):
    """A constant that several layers read alike."""

    constant: ResidentConstant
    reader: int
    """Number of the first layer that reads it."""
    lasting: bool = False
    """Whether it is there from an inference before."""

    def groups_beside(self, row: Row, table: ResidencyTable, slicing: Slicing) -> dict[int, Group]:
        """All groups from its first reader to its last."""
        del slicing
        return {
            position: self.beside(
                part, row, table, loads=position == self.first and not self.lasting
            )
            for position in range(self.first, self.last + 1)
            if isinstance(part := table.parts[position], Group)
        }

    def beside(self, group: Group, row: Row, table: ResidencyTable, *, loads: bool) -> Group:
        """A group while the constant lies in `row`; whether it `loads` it, if it reads it."""
        rows = {self.name: self.pinned(row, loads=loads)} if self.name in group.inputs else {}
        return group.beside(rows, table.reserve(row))

    def pinned(self, row: Row, *, loads: bool) -> Pinned:
        """How a group that reads it sees it in `row`."""
        return Pinned(self.constant.role, row.address, self.constant.bytes, loads)


@dataclass(frozen=True)
class PinConstants(Omittable):
    """Decide which constants stay on chip over several groups.

    before:
        {a} loads w    {b} loads w    {c} loads w
    after:
        {a} loads w    {b} finds w    {c} finds w        w in local memory for three groups
    """

    share: Share = 0.5
    """Part of each memory that may be taken."""
    worth: Share = 0.02
    """Of the bytes of constants that layers load, the part that must be saved."""
    inferences: Amount = 1
    """Inferences one after another in a program: of several, all but the first find what stays."""

    def optimistic_costs(
        self, parts: Sequence[Layer | HostNode], graph: NestGraph, prices: Prices
    ) -> Iterator[tuple[Prices, float]]:
        """What groups may be expected to cost when they are formed: with what could stay, if there
        is anything, then without; with each the cycles that those behind it surely take."""
        alone = [p if isinstance(p, HostNode) else Group((p,), ()) for p in parts]
        rows = self.rows(alone, graph, prices)
        if rows:
            table = ResidencyTable([], prices)
            reserved = reserving(*(table.reserve(row) for _, row in rows))

            def hoped(group: Group) -> Group:
                layers, inputs = {layer.index for layer in group.layers}, {*group.inputs}
                pinned = {
                    constant.name: constant.pinned(row, loads=constant.reader in layers)
                    for constant, row in rows
                    if constant.name in inputs
                }
                return group.beside(pinned, reserved)

            again = sum(constant.saved + constant.constant.loaded for constant, _ in rows)
            rate = prices.arch.far_rates[prices.arch.constants]
            yield OptimisticPrices(prices, hoped), again / rate
        yield prices, math.inf

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with the constants that stay marked in their groups: all for which there is room,
        or the first of them that pays by itself."""
        rows = self.rows(parts, graph, prices)
        table = ResidencyTable(list(parts), prices)
        for some in (rows, *([each] for each in rows if len(rows) > 1)):
            place = table.together(partial(_joint_places, some))
            if place is not None and table.try_place(place):
                break
        return tuple(table.parts)

    def rows(
        self, parts: Sequence[Part], graph: NestGraph, prices: Prices
    ) -> list[tuple[SharedConstant, Row]]:
        """Candidates with their rows, those worth most first, as far as there is room."""
        if not self.enabled:
            return []
        table = ResidencyTable([], prices)
        found: list[tuple[SharedConstant, Row]] = []
        for candidate in sorted(
            candidates(parts, graph, prices, self.inferences), key=lambda c: (-c.worth, c.first)
        ):
            memory = prices.arch.memories.on_chip()[candidate.memory]
            row = table.free_row(candidate, int(self.share * memory.size))
            if row is not None:
                table.rows.append(row)
                found.append((candidate, row))
        saved = sum(candidate.saved for candidate, _ in found)
        return found if saved >= self.worth * _constant_load_bytes(parts) else []


def _joint_places(
    rows: Iterable[tuple[SharedConstant, Row]], table: ResidencyTable
) -> Iterator[Placement]:
    return (([row], each.groups_beside(row, table, Slicing())) for each, row in rows)


def _constant_load_bytes(parts: Sequence[Part]) -> int:
    """Bytes of the constants that layers load, each as often as layers read it."""
    groups = (part for part in parts if not isinstance(part, HostNode))
    layers = (layer for group in groups for layer in group.layers)
    tensors = (layer.tensors[name] for layer in layers for name in layer.inputs)
    return sum(tensor.stored for tensor in tensors if tensor.data is not None)


def candidates(
    parts: Sequence[Part], graph: NestGraph, prices: Prices, inferences: int = 1
) -> Iterator[SharedConstant]:
    """Constants that several layers read, all of them laid out in the same way; what several
    inferences read stays from the first part to the last."""
    facts = prices.facts
    readers: dict[str, list[tuple[int, Layer]]] = {}
    for position, part in enumerate(parts):
        for layer in () if isinstance(part, HostNode) else part.layers:
            for name in layer.inputs:
                if graph.tensors[name].data is not None:
                    readers.setdefault(name, []).append((position, layer))
    for name, found in readers.items():
        if len(found) < 2 and inferences < 2:
            continue
        layouts = {
            tuple(c for c in facts.layer(layer).constants if c.key[0] == name)
            for _, layer in found
        }  # fmt: skip
        layout = layouts.pop()
        arch = facts.arch
        if layouts or len(layout) != 1 or arch.copy_engine(arch.constants, layout[0].role) is None:
            continue
        (first, layer), (last, _), [own] = found[0], found[-1], layout
        if lasting := inferences > 1:
            first, last = 0, len(parts) - 1
        saved = own.loaded * (len(found) * inferences - 1) // inferences
        yield SharedConstant(
            name, own.role, 1, own.bytes, first, last, saved, own, layer.index, lasting
        )

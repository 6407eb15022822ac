"""The trees of a group made from those of another one that is like it, so that what equal layers
take is emitted once.

Groups are alike that do the same with other values, at the same places on chip. Their trees differ
in names and numbers, and in where tensors lie in DRAM, also in what parts of one they are:

    step 3, weights at 0x1000            step 16, weights at 0x9000
    load 0x1000 + 64 * v7                load 0x9000 + 64 * v52
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from compiler.codegen.legalize import Names
from compiler.codegen.nodes import LoopSegment, Node, SegmentedLoop, Use, waiting
from compiler.target.loops.cover import Cover, CoverProblem
from simmodel.arch.base import OFF_CHIP
from simmodel.isa import Await, Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Ring, Terms, replace
from simmodel.program.program import TileKind
from simmodel.program.substitute import map_operands

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class GroupSite:
    """Where a group stands in its program, as far as its trees say so. In the lists of groups that
    are alike, what plays the same part has the same place."""

    step: int
    origin: int
    """Index of its first origin."""
    variable: int
    """Number of its first loop variable."""
    tensors: tuple[str, ...]
    buffers: tuple[str, ...]
    """On chip."""
    far: tuple[str, ...]
    """Buffers off chip, packed weights included."""
    places: tuple[tuple[str, int] | None, ...]
    """Memory and address of each of `far`; None: all that is touched of it is on chip."""
    firsts: tuple[int, ...]
    """First bytes of `far` in which its tensors lie."""
    awaited: Callable[[str], Sequence[int]]
    """Steps before it that write a buffer off chip."""

    @property
    def starts(self) -> tuple[tuple[str, int] | None, ...]:
        """Memory and first byte of the tensors in each of `far`."""
        pairs = zip(self.places, self.firsts, strict=True)
        return tuple(place and (place[0], place[1] + first) for place, first in pairs)


@dataclass(frozen=True)
class EmittedGroup:
    """A group's trees, and what was noted while they were made."""

    site: GroupSite
    trees: Sequence[list[Node]]
    """By core."""
    variables: int
    """Loop variables that are theirs alone."""
    works: Sequence[tuple[tuple[int, str], tuple[CoverProblem, Cover]]]
    offers: Sequence[tuple[tuple[str, str], Any]]
    """New ones of what `Names` knows."""

    @classmethod
    def of(
        cls, site: GroupSite, trees: Sequence[list[Node]], names: Names, works: int, offers: int
    ) -> EmittedGroup:
        """What was emitted at `site` since `names` knew so many works and offers."""
        new = _newest(names.works, works), _newest(names.offers, offers)
        return cls(site, trees, names.number - site.variable, *new)

    def at(self, site: GroupSite, names: Names, origins: Mapping[str, str]) -> list[list[Node]]:
        """The trees of the group at `site`, which is like this one; `origins` are the names of the
        model's nodes that make its tensors."""
        moved = _Relocation(self.site, site, self.variables)
        names.number += self.variables
        for (origin, form), work in self.works:
            names.works[origin + moved.origins, form] = work
        for (tensor, kernel), offer in self.offers:
            own = site.tensors[self.site.tensors.index(tensor)]
            names.offers[own, kernel] = replace(offer, tensor=own, origin=origins[own])
        return [[moved.node(node) for node in tree] for tree in self.trees]


def _newest(known: dict[Key, Value], before: int) -> list[tuple[Key, Value]]:
    """What was added to `known` behind the first `before` rows."""
    keys = list(islice(reversed(known), len(known) - before))
    return [(key, known[key]) for key in reversed(keys)]


class _Relocation:
    """Everything in the trees of the group at `old` as that of the one at `new`."""

    def __init__(self, old: GroupSite, new: GroupSite, variables: int) -> None:
        self.origins = new.origin - old.origin
        self._variables = {f"v{old.variable + n}": f"v{new.variable + n}" for n in range(variables)}
        pairs = zip(old.buffers, new.buffers, strict=True)
        self._buffers = {f"{old.step}:{a}": f"{new.step}:{b}" for a, b in pairs}
        self._far = dict(zip(old.far, new.far, strict=True))
        self._awaited = new.awaited
        ends = zip(old.places, old.firsts, new.places, new.firsts, strict=True)
        places = sorted(
            (*a, b[1] + into - a[1] - out) for a, out, b, into in ends if a is not None and b
        )
        self._starts, self._moves = [each[:2] for each in places], [by for *_, by in places]
        self._known: dict[int, Any] = {}
        """What became of a value, by its identity: the old trees keep it."""

    def node(self, node: Node) -> Node:
        if isinstance(node, SegmentedLoop):
            bodies = (tuple(map(self.node, segment.body)) for segment in node.segments)
            counts = (segment.count for segment in node.segments)
            return SegmentedLoop(node.variable, tuple(map(LoopSegment, counts, bodies)))
        items = node.items
        if node.waited:
            items = tuple(item for item in items if not isinstance(item, Await))
        moved = replace(
            node,
            items=tuple(map(self._item, items)),
            uses=tuple(map(self._use, node.uses)),
            origin=node.origin + self.origins,
            reads=frozenset(self._far[name] for name in node.reads),
            writes=frozenset(self._far[name] for name in node.writes),
            tile=node.tile and self._tile(node.tile),
        )
        return waiting(moved, self._awaited) if node.waited else moved

    def _tile(self, tile: TileKind) -> TileKind:
        found: TileKind | None = self._known.get(id(tile))
        if found is None:
            found = self._known[id(tile)] = replace(tile, layer=tile.layer + self.origins)
        return found

    def _use(self, use: Use) -> Use:
        found: Use | None = self._known.get(id(use))
        if found is None:
            found = self._known[id(use)] = use._replace(buffer=self._buffers[use.buffer])
        return found

    def _item(self, item: Item) -> Item:
        if isinstance(item, Loop):
            variable = self._variables.get(item.variable, item.variable)
            return Loop(variable, item.count, tuple(map(self._item, item.body)))
        return replace(map_operands(item, self._operand), origin=item.origin + self.origins)

    def _operand(self, operand: Operand) -> Operand:
        found: Operand | None = self._known.get(id(operand))
        if found is not None:
            return found
        address, ring = operand.address, operand.address.ring
        far = operand.memory in (*OFF_CHIP, "shared")
        if not (far or address.variables or operand.limits):
            return operand
        base, terms = address.base, self._terms(address.terms)
        if far:  # its first element lies in its buffer
            base += self._moves[bisect_right(self._starts, (operand.memory, base)) - 1]
        if ring is not None and ring.terms:
            ring = Ring(ring.slots, ring.pitch, ring.offset, self._terms(ring.terms))
        limits = tuple([Limit(o.axis, o.base, self._terms(o.terms)) for o in operand.limits])
        found = replace(operand, address=Address(base, terms, ring), limits=limits)
        self._known[id(operand)] = found
        return found

    def _terms(self, terms: Terms) -> Terms:
        if not terms:
            return terms
        return tuple([(self._variables.get(name, name), factor) for name, factor in terms])

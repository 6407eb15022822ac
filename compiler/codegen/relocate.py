"""The trees of a group made from those of another one that is like it, and the tree of a core from
that of another one, so that what equal layers and equal cores take is emitted once.

Groups are alike that do the same with other values, at the same places on chip. Their trees differ
in names and numbers, and in where tensors lie in DRAM, also in what parts of one they are:

    step 3, weights at 0x1000            step 16, weights at 0x9000
    load 0x1000 + 64 * v7                load 0x9000 + 64 * v52

Cores of a group are alike whose tiles have the same shapes, and lie alike to each other and to the
ends of tensors: their trees differ in where their parts begin off chip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any, TypeVar
from weakref import ReferenceType

from compiler.codegen.constants import PackedWeights
from compiler.codegen.legalize import Names
from compiler.codegen.nodes import LoopSegment, Node, SegmentedLoop, Use, waiting
from compiler.codegen.tile import Places, far_operand
from compiler.geometry.boxes import Key, Range, keys_of, needs, touched
from compiler.geometry.tile_trace import TileBoxes, TileTrace
from compiler.plan.make_plan import Plan
from compiler.schedule.fusion.partition import Outlines
from compiler.schedule_ir.layer import Layer
from compiler.target.loops.cover import Cover, CoverProblem
from compiler.tensor_ir.bounds import Box, union
from compiler.tensor_ir.nest import Tensor
from simmodel.arch.base import OFF_CHIP
from simmodel.isa import Await, Item, Loop
from simmodel.isa.region import Address, Limit, Operand, Ring, Terms, cached_property, replace
from simmodel.program.program import Program, TileKind
from simmodel.program.substitute import map_operands

Noted = TypeVar("Noted")
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

    @property
    def starts(self) -> tuple[tuple[str, int] | None, ...]:
        """Memory and first byte of the tensors in each of `far`."""
        pairs = zip(self.places, self.firsts, strict=True)
        return tuple(place and (place[0], place[1] + first) for place, first in pairs)

    def beside(self, name: str, place: tuple[str, int]) -> GroupSite:
        """With one more buffer off chip."""
        far, places = (*self.far, name), (*self.places, place)
        return replace(self, far=far, places=places, firsts=(*self.firsts, 0))


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
    moved: dict[GroupSite, list[list[Node]]] = field(default_factory=dict, repr=False)
    """The trees elsewhere, which other programs may have there too."""

    @classmethod
    def of(
        cls, site: GroupSite, trees: Sequence[list[Node]], names: Names, works: int, offers: int
    ) -> EmittedGroup:
        """What was emitted at `site` since `names` knew so many works and offers."""
        new = _newest(names.works, works), _newest(names.offers, offers)
        return cls(site, trees, names.number - site.variable, *new)

    def at(
        self, site: GroupSite, names: Names, origins: Mapping[str, str],
        awaited: Callable[[str], Sequence[int]],
    ) -> list[list[Node]]:  # fmt: skip
        """The trees of the group at `site`, which is like this one; `origins`: nodes of the model
        that make its tensors; `awaited` tells the steps before it that write a buffer off chip."""
        moved = _Relocation(self.site, site, self.variables, awaited)
        names.number += self.variables
        for (origin, form), work in self.works:
            names.works.setdefault((origin + moved.origins, form), work)
        for (tensor, kernel), offer in self.offers:
            own = site.tensors[self.site.tensors.index(tensor)]
            other = replace(offer, tensor=own, origin=origins[own])
            names.offers.setdefault((own, kernel), other)
        if self.site == site and not self.waits:
            return [*self.trees]  # the same group in another program
        trees = None if self.waits else self.moved.get(site)
        if trees is None:
            trees = [[moved.node(node) for node in tree] for tree in self.trees]
            if not self.waits:
                self.moved[site] = trees
        return [*trees]

    @cached_property
    def waits(self) -> bool:
        """Whether instructions wait for other steps."""
        return any(leaf.waited for tree in self.trees for node in tree for leaf in node.leaves)


MOST = 512
"""Groups whose trees are kept: some networks of several schedules."""


@dataclass
class EmittedGroups:
    """Of all groups that are alike the first that was emitted for a machine, in whatever program:
    the latest of these."""

    alike: Outlines = field(default_factory=lambda: Outlines(values=True))
    kept: dict[Hashable, EmittedGroup] = field(default_factory=dict, repr=False)
    streams: list[tuple[ReferenceType[Program], object, dict[str, Any]]] = field(
        default_factory=list, repr=False
    )
    """Of programs that are still there, all that their streams were made of, and these."""

    def put(self, key: Hashable, group: EmittedGroup) -> None:
        if len(self.kept) >= MOST:
            del self.kept[next(iter(self.kept))]
        self.kept[key] = group


def _newest(known: dict[Noted, Value], before: int) -> list[tuple[Noted, Value]]:
    """What was added to `known` behind the first `before` rows."""
    keys = list(islice(reversed(known), len(known) - before))
    return [(key, known[key]) for key in reversed(keys)]


@dataclass(frozen=True)
class CoreParts:
    """The parts of a group that cores compute; all sizes are known."""

    plan: Plan
    packs: Sequence[PackedWeights | None]
    """By layer."""

    @cached_property
    def _stays(self) -> frozenset[Key]:
        """What stays on chip, and is there as a whole whatever tile is computed."""
        return frozenset(b.key for b in self.plan.buffers.values() if b.layer is None and b.key)

    @cached_property
    def _read_apart(self) -> Sequence[bool]:
        """By layer, whether accesses of one buffer move differently: where they read depends on
        where the tile lies, not only on where the buffer does."""
        return tuple(_read_apart(planned.tiled.layer) for planned in self.plan.layers)

    def of(self, core: int, places: Places) -> tuple[Hashable, dict[str, int]]:
        """What the tree of a core depends on but for where its parts lie off chip, and of each
        buffer there a byte that goes with them."""
        plan, tensors = self.plan, self.plan.schedule.group.tensors
        alone = TileBoxes((plan.schedule.parts[core],))
        trace = plan.walked[core] if plan.walked else TileTrace(1, (alone,))
        found = _CorePart(places, [trace.count, trace.repeats, *(trace.strides or {}).items()])
        for name, windows in trace.holds.items():
            there = [w.origin for w in windows.windows if w is not None]
            found.form.append(len(there))
            for first in there[:1]:
                found.form += [w and (_distance(w.origin, first), w.form) for w in windows.windows]
                found.begins(tensors[name], first)
        for name, boxes in trace.out.items():
            filled = [box for box in boxes.boxes if box is not None]
            found.form.append(len(filled))
            for first in map(_start, filled[:1]):
                found.tiles(boxes, first)
                found.begins(tensors[name], first)
        rows = zip(plan.layers, trace.work, self.packs, self._read_apart, strict=True)
        for planned, boxes, pack, apart in rows:
            works, layer = [box for box in boxes.boxes if box is not None], planned.tiled.layer
            if works:
                whole = reduce(union, works)
                steps = (trace.strides or {}).get(layer.result.name, (0,) * len(whole))
                moved = ((trace.repeats - 1) * step for step in steps)
                last = tuple((s + by, n) for (s, n), by in zip(whole, moved, strict=True))
                whole = union(whole, last)
                found.layer(layer, whole, pack, self._stays)
                found.form.append(apart and _start(whole))
                found.tiles(boxes, _start(whole))
            else:
                found.form.append(None)
        return tuple(found.form), found.firsts


Position = tuple[int, ...]


@dataclass
class _CorePart:
    """What one core's tree depends on, as it is found."""

    places: Places
    form: list[Hashable]
    firsts: dict[str, int] = field(default_factory=dict)
    """Buffer off chip -> a byte that goes with the part."""
    starts: dict[str, Position] = field(default_factory=dict)
    """Tensor -> a position that does."""

    def tiles(self, boxes: TileBoxes, first: Position) -> None:
        """Boxes of tiles, told from the position `first` on."""
        self.form += [
            box and (_distance(_start(box), first), tuple([size for _, size in box]))
            for box in boxes.boxes
        ]

    def begins(self, tensor: Tensor, start: Position) -> None:
        """Something is touched of a tensor from `start` on."""
        self.form.append(_distance(start, self.starts.setdefault(tensor.name, start)))
        buffer, places = tensor.storage.buffer, self.places
        if tensor.picked or tensor.placed:  # rows of a list
            near = (places.far.get(each.storage.buffer) for each in tensor.sources)
            self.form.append((start, *near))
        elif buffer in places.far:
            ranges = tuple(Range(position, 1) for position in start)
            self._touch(buffer, far_operand(tensor, ranges, places))

    def _touch(self, buffer: str, operand: Operand) -> None:
        base = operand.address.base
        self.form.append(base - self.firsts.setdefault(buffer, base))

    def layer(
        self, layer: Layer, whole: Box, pack: PackedWeights | None, fixed: frozenset[Key]
    ) -> None:
        """A layer that computes the box `whole`; what is `fixed` is read where it is."""
        self.begins(layer.result, _start(whole))
        need = needs(layer, [Range(*span) for span in whole], {})
        self.form += [tuple(span.size for span in spans) for spans in need.loops]
        self.form += [span.start % layer.head.sparse for span in need.loops[0]]
        for key, region in need.regions.items():
            cut = tuple(zip(region.ranges, region.before, region.after, strict=True))
            start = tuple(span.start - before for span, before, _ in cut)
            # What reaches an end of its tensor lies there on all cores that are alike.
            self.form += [(b or a) and (span.start, b, a) for span, b, a in cut]
            self.begins(layer.tensors[key[0]], start)
            packed = pack if key[2] else None
            if key in fixed or (packed is not None and packed.narrow is not None):
                self.form.append(start)
            if pack is not None and pack.holds_beside(key[0]):
                self._touch(pack.buffer, pack.part_beside(region, self.places))
            if packed is not None and packed.buffer in self.places.far:  # else it is on chip
                along = (*packed.taps, packed.k)
                self.form += [start[axis] for axis in along if axis is not None]
                self._touch(packed.buffer, packed.operand(region, self.places))


def _start(box: Box) -> Position:
    return tuple([start for start, _ in box])


def _distance(one: Position, other: Position) -> Position:
    return tuple([a - b for a, b in zip(one, other, strict=True)])


def _read_apart(layer: Layer) -> bool:
    """Whether accesses of one buffer move differently where another tile of `layer` is computed."""
    tile = [Range(0, 1, ((str(dim), 1),)) for dim in range(len(layer.result.shape))]
    need = needs(layer, tile, {})
    makers = {nest.tensor: loops for nest, loops in zip(layer.nests, need.loops, strict=True)}
    for nest, loops in zip(layer.nests, need.loops, strict=True):
        for access, key in zip(nest.reads, keys_of(nest), strict=True):
            spans = makers.get(access.tensor, need.regions[key].ranges)
            moves = zip(touched(access, loops), spans, strict=False)
            if any(own.terms != span.terms for own, span in moves):
                return True
    return False


class _Relocation:
    """Everything in the trees of the group at `old` as that of the one at `new`."""

    def __init__(
        self, old: GroupSite, new: GroupSite, variables: int,
        awaited: Callable[[str], Sequence[int]],
    ) -> None:  # fmt: skip
        self.origins = new.origin - old.origin
        self._variables = {f"v{old.variable + n}": f"v{new.variable + n}" for n in range(variables)}
        pairs = zip(old.buffers, new.buffers, strict=True)
        self._buffers = {f"{old.step}:{a}": f"{new.step}:{b}" for a, b in pairs}
        self._far = dict(zip(old.far, new.far, strict=True))
        self._awaited = awaited
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

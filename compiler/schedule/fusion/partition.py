"""Partitions of a network into groups: what every strategy is given and has to return.

A strategy decides which layers share tile loops. It knows nothing of machines: a price says what a
group would cost, and infinity where it fits no tile. Prices are dear, so each is asked once, and a
cheap lower bound may answer in its stead.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from compiler.cost.overlap import HOST_CALL, StepCycles, in_turn
from compiler.passes import Count, check_each_once, ensured
from compiler.schedule.fusion.dependence import Dependences, Part, dependences, members
from compiler.schedule.fusion.reorder import least_memory_order
from compiler.schedule.residency.table import Prices
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import Access, HostNode, Nest, NestGraph, RowPlacement, Tensor
from simmodel.arch.base import Latest
from simmodel.isa.region import replace

ALONE = 1e12
"""Cycles that a layer counts that fits no tile even alone: more than any group that fits."""


@dataclass
class PartitionCosts:
    """Prices of sets of layers, each asked at most once."""

    net: Dependences
    prices: Prices
    known: dict[int, float] = field(default_factory=dict)
    bounds: dict[int, float] = field(default_factory=dict)
    edges: dict[int, tuple[float, float]] = field(default_factory=dict)
    _last: tuple[int, Group] | None = None

    def of(self, mask: int) -> float:
        """Cycles of `mask`; infinity where it may not be a group or fits no tile."""
        if mask not in self.known:
            self.known[mask] = self._asked(mask)
        return self.known[mask]

    def below(self, mask: int, limit: float) -> float:
        """Cycles of `mask` if they are below `limit`, else something that is not."""
        if mask in self.known or mask.bit_count() == 1:
            return self.of(mask)
        if not self.net.possible(mask):
            return math.inf
        if self.bounds.get(mask, 0.0) >= limit:
            return self.bounds[mask]
        cost = self.prices.cost_below(self._group(mask), limit)
        found = self.known if cost < limit else self.bounds
        found[mask] = cost
        return cost

    def _asked(self, mask: int) -> float:
        if not self.net.possible(mask):
            return math.inf
        cost = self.prices.price(self._group(mask))
        return min(cost, ALONE) if mask.bit_count() == 1 else cost

    def behind(self, mask: int, before: int) -> float:
        """What `mask` adds to the group `before`, right behind which it runs; 0: to nothing."""
        return self.of(mask) if not before else sum(in_turn([self._step(mask)], self.rest(before)))

    def added(self, steps: Iterable[int]) -> float:
        """Cycles of `steps` one after another; 0: the host, whose calls are not priced."""
        return sum(in_turn(self._step(mask) if mask else HOST_CALL for mask in steps))

    def rest(self, before: int) -> float:
        """At most the cycles that a group overlaps with the one before it; 0: none."""
        return self._overlap_ends(before)[1] if before else 0.0

    def _step(self, mask: int) -> StepCycles:
        return (self.of(mask), *self._overlap_ends(mask))

    def _overlap_ends(self, mask: int) -> tuple[float, float]:
        if mask not in self.edges:
            fits = self.of(mask) < ALONE
            ends = self.prices.overlap_ends
            self.edges[mask] = ends(self._group(mask)) if fits else (0.0, 0.0)
        return self.edges[mask]

    def separate_cost(self, mask: int) -> float:
        """Cycles of the layers of `mask`, each in a group of its own."""
        return sum(self.of(1 << position) for position in members(mask))

    def least(self, mask: int) -> float:
        """What a legal, convex `mask` costs at least."""
        if mask in self.known:
            return self.known[mask]
        if mask not in self.bounds:
            self.bounds[mask] = self.prices.lower_bound(self._group(mask))
        return self.bounds[mask]

    def _group(self, mask: int) -> Group:
        """The same object as long as one set is asked about: what prices know of it goes on."""
        if self._last is None or self._last[0] != mask:
            self._last = mask, self.net.group(mask)
        return self._last[1]


@dataclass(frozen=True)
class PartitionStrategy(ABC):
    """Decides which layers form a group; the fields are its options."""

    max_layers: Count = 1000
    """Layers that a group has at most."""
    alone: bool = False
    """Whether layers alone, with what stays on chip between them, are weighed beside the groups on
    several cores, and each where it is quicker."""

    def apply(
        self, parts: Sequence[Part], graph: NestGraph, prices: Prices
    ) -> tuple[Group | HostNode, ...]:
        """Every layer of `parts` in one group, in an order in which groups and host nodes can run:
        of all, the one that keeps the fewest bytes between them. Prices are infinite where a group
        fits no tile; a layer alone is a group even then."""
        net = dependences(parts, graph)
        ordered = net.sequence(self._covered(PartitionCosts(net, prices)))
        if ordered is None:
            raise AssertionError("groups wait for each other")
        order = least_memory_order(net.steps(ordered)).positions
        return tuple(net.built(ordered[position]) for position in order)

    @ensured
    def _covered(self, costs: PartitionCosts) -> list[int]:
        return self.groups(costs)

    def ensures(self, made: list[int], costs: PartitionCosts) -> None:
        """Every layer is in exactly one group."""
        wanted = members(costs.net.layers)
        found = (position for mask in made for position in members(mask))
        check_each_once(*((f"layer {n}" for n in each) for each in (wanted, found)))

    @abstractmethod
    def groups(self, costs: PartitionCosts) -> list[int]:
        """Disjoint sets of layers that cover all of them and do not wait for each other."""


@dataclass(frozen=True)
class Unfused(PartitionStrategy):
    """Each layer is a group of its own: what passes between layers goes through memory.

    a -> b -> c       {a} {b} {c}
    """

    def groups(self, costs: PartitionCosts) -> list[int]:
        """One set per layer."""
        return [1 << position for position in members(costs.net.layers)]


def pays(costs: PartitionCosts, groups: Sequence[int], group: int, added: int) -> bool:
    """Whether `group` may take in the layers `added`, of no group yet, fits, and does not get
    dearer; the settled `groups` must not end up waiting for each other."""
    joined = group | added
    if not costs.net.possible(joined, groups):
        return False
    return costs.of(joined) <= costs.of(group) + costs.separate_cost(added)


# Groups without their names: what their prices depend on, so that those that are alike share them.

Outline = tuple[Hashable, ...]
"""Of a layer: all that schedules of it depend on."""


@dataclass(frozen=True)
class Outlined:
    """A layer and the first one that was found to be like it."""

    layer: Layer
    first: Layer
    number: int
    """Of their outline."""
    wires: tuple[tuple[str, ...], ...]
    """Its tensors in the order in which it names them, each with the buffer in which it lies, and
    those of its rows."""
    outline: Outline
    """What all layers like it have in common."""
    names: Mapping[str, str]
    """Tensor -> the one that the first layer has in its place."""

    def renamed(self, names: Collection[str]) -> frozenset[str]:
        """Those of the layer's tensors that are among `names`, as the first layer calls them."""
        return frozenset(first for name, first in self.names.items() if name in names)


_WIRED = 1024
"""Groups of which it is remembered how they, or their layers, hang together."""


@dataclass
class Outlines:
    """Outlines of groups; those of layers are worked out once."""

    values: bool = False
    """Whether the values of encodings and clips matter, and how tensors follow lengths: to a
    program they do, to a price it is enough that they are there."""
    bare: bool = False
    """Whether nests lack these values all the same."""
    _firsts: dict[Outline, Outlined] = field(default_factory=dict)
    _numbers: dict[Outline, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbered = Latest(self._numbered, _WIRED)
        """Number of all groups that have the same schedules as one, and its tensors."""
        self.layer = Latest(self._outlined, None)
        """What is known of one layer."""
        self._wired = Latest(self._wires, _WIRED)
        """Of the layers of the latest groups, which stay when something else of one changes."""

    def of(self, group: Group) -> int:
        """Number of all groups that have the same schedules as `group`."""
        return self.numbered(group)[0]

    def _numbered(self, group: Group) -> tuple[int, tuple[str, ...]]:
        outline, names, _ = self.with_names(group)
        return self._numbers.setdefault(outline, len(self._numbers)), names

    def with_names(self, group: Group) -> tuple[Outline, tuple[str, ...], tuple[str, ...]]:
        """What all groups have in common that have the same schedules as `group`, and the tensors
        and the buffers to which its numbers belong."""
        layers, names, buffers = self._wired(group.layers)
        results = tuple(names[name] for name in group.results)
        rows = ((names.get(name, -1), row) for name, row in group.residency.items())
        reserved = tuple(sorted(group.reserved.items()))
        placed = tuple(sorted(rows, key=itemgetter(0)))
        # Where tensors begin in buffers decides what fits only where these are cut into slices.
        sliced = (name for name, home in group.shared.items() if home.slices > 1)
        starts = tuple(group.tensors[name].storage.offset for name in sliced)
        return (*layers, results, reserved, placed, starts), tuple(names), tuple(buffers)

    def _wires(
        self, layers: Sequence[Layer]
    ) -> tuple[Outline, Mapping[str, int], Mapping[str, int]]:
        """The layers by number, and the numbers of their tensors and of the buffers in which these
        lie: each with a number in the order in which it is met."""
        names: dict[str, int] = {}
        buffers: dict[str, int] = {}
        found = []
        for layer in layers:
            outlined = self.layer(layer)
            wires = [
                (
                    names.setdefault(name, len(names)),
                    *[buffers.setdefault(buffer, len(buffers)) for buffer in lies],
                )
                for name, *lies in outlined.wires
            ]
            found.append((outlined.number, *wires))
        return tuple(found), names, buffers

    def _outlined(self, layer: Layer) -> Outlined:
        order: dict[str, int] = {}
        nests = tuple(_anonymous(nest, order) for nest in layer.nests)
        tensors = tuple(layer.tensors[name] for name in order)
        if self.bare or not self.values:
            nests = tuple(map(_without_values, nests))
        outline: Outline = (nests, layer.bindings, tuple(map(_outline_of, tensors)))
        if self.values:
            outline = (*outline, tuple(map(_values_of, tensors)))
        wires = tuple(
            (tensor.name, *dict.fromkeys(each.storage.buffer for each in (tensor, *tensor.sources)))
            for tensor in tensors
        )
        first = self._firsts.get(outline)
        if first is None:
            own = Outlined(layer, layer, len(self._firsts), wires, outline, {n: n for n in order})
            return self._firsts.setdefault(outline, own)
        names = dict(zip(order, first.names, strict=True))
        return Outlined(layer, first.layer, first.number, wires, outline, names)


def _outline_of(tensor: Tensor) -> Outline:
    """Of a constant it matters that it is one, not its values; of a slice not where it begins."""
    storage = tensor.storage
    constant = tensor.data is not None
    narrow = None if tensor.narrow is None else tensor.narrow.outline
    own = tensor.shape, tensor.dtype, storage.strides, constant, narrow, tensor.digits
    rows = tensor.picked or tensor.placed
    if rows is None:
        return own
    kind = type(rows).__name__
    return (*own, kind, rows.axis, _outline_of(rows.table), _outline_of(rows.index))


def _values_of(tensor: Tensor) -> Outline:
    """What only a program depends on, but for where a tensor begins in its buffer."""
    narrow, rows = tensor.narrow, tensor.picked or tensor.placed
    own = tensor.storage.registers, tensor.counts
    encoded = None if narrow is None else (narrow.scale, narrow.zero)
    if rows is None:
        return (*own, encoded)
    block = isinstance(rows, RowPlacement) and rows.block
    return (*own, encoded, block, _values_of(rows.table), _values_of(rows.index))


def _anonymous(nest: Nest, names: dict[str, int]) -> Nest:
    """A nest with numbers for names, in order of first use."""

    def numbered(name: str) -> str:
        return str(names.setdefault(name, len(names)))

    reads = [replace(access, tensor=numbered(access.tensor)) for access in nest.reads]
    tensor = numbered(nest.tensor)
    return replace(nest.with_reads(reads), tensor=tensor, origin="", kind="", composite=None)


def _without_values(nest: Nest) -> Nest:
    """A nest without the values of encodings and clips: it matters that scales and clips are there;
    any zero point may be 0."""

    def bare(access: Access) -> Access:
        return replace(access, scale=(None if access.scale is None else 1.0), zero=0)

    return replace(
        nest.with_reads(map(bare, nest.reads)),
        low=-math.inf if nest.low == -math.inf else 0.0,
        high=math.inf if nest.high == math.inf else 0.0,
        scale=None if nest.scale is None else 1.0,
        zero=0,
    )

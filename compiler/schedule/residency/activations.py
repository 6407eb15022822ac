"""What stays on chip between groups: tensors that need not go through memory at all.

A result that lies in local memory from the group that makes it to the last one that reads it costs
space in every group between, with the smaller tiles that they may have to take, and saves its store
and all loads. Where several cores work, each keeps a slice, and the groups around it are cut so
that no core needs another one's when they run, or cores pass each other what they need.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby

from compiler.cost.multicast import between_cores
from compiler.geometry.boxes import layer_needs
from compiler.geometry.cuts import boxes, channel_axis, channel_grids, cut_axes, grain_of, slices_of
from compiler.geometry.tile_trace import TileTracer, TraceCache, Unwalkable
from compiler.passes import Omittable, Share
from compiler.schedule.residency.table import (
    Part,
    Placement,
    Prices,
    ResidencyCandidate,
    ResidencyTable,
    Row,
    Slicing,
)
from compiler.schedule_ir.group import Group, ResidentTensor, padded
from compiler.schedule_ir.layer import seen_through
from compiler.target.group_facts import Passing, Unholdable
from compiler.tensor_ir.bounds import Box, clipped, raw_value, union
from compiler.tensor_ir.build import starts_in
from compiler.tensor_ir.nest import HostNode, NestGraph, Storage, Tensor, dense, order_of
from compiler.tensor_ir.rewrite import writes_of
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property, replace

# What could stay on chip between groups: buffers that groups alone use, and how they lie there.


@dataclass(frozen=True)
class BufferViews:
    """What lies in one buffer: a tensor that covers all that is made there, and its slices."""

    whole: Tensor
    tensors: Mapping[str, Tensor]
    """All that lies in the buffer."""

    @cached_property
    def starts(self) -> Mapping[str, tuple[int, ...]]:
        """Slices, the whole among them -> where they begin in the whole."""
        found = ((name, starts_in(tensor, self.whole)) for name, tensor in self.tensors.items())
        return {name: start for name, start in found if start is not None}

    def names(self, part: Part) -> tuple[str, ...]:
        """What `part` leaves of it for others, or reads of what others made."""
        if isinstance(part, HostNode):
            return tuple(n for n in (*part.inputs, *part.outputs) if n in self.tensors)
        names = (*part.results, *part.inputs)
        return tuple(dict.fromkeys(name for name in names if name in self.tensors))

    def user(self, part: Part) -> Group | None:
        """`part` with reads of other views as reads of the whole, where an index can say that;
        None: it is a call of the host."""
        if isinstance(part, HostNode):
            return None
        layers = []
        for layer in part.layers:
            for view in layer.inputs:
                if view in self.tensors and view not in self.starts:
                    layer = seen_through(layer, view, self.whole.name) or layer
            layers.append(layer)
        same = all(a is b for a, b in zip(layers, part.layers, strict=True))
        return part if same else replace(part, layers=tuple(layers))


@dataclass(frozen=True)
class KeptBuffer(ResidencyCandidate):
    """A buffer between groups that could stay in the local memory of the cores."""

    joint: BufferViews
    kept: Mapping[str, ResidentTensor]
    """Each of its tensors that groups make or read, but for the address."""
    groups: frozenset[int]
    """Positions of the groups that make and read it."""

    @property
    def form(self) -> Hashable:
        """What its places depend on but for what is around it: the same for equal layers."""
        first, whole = self.first, self.joint.whole
        views = tuple(
            (each.shape, each.storage.strides, each.storage.offset - whole.storage.offset)
            for each in self.joint.tensors.values()
        )
        groups = tuple(sorted(group - first for group in self.groups))
        own = self.bytes, self.saved, self.last - first, groups, self.name in self.kept
        return own, whole.shape, whole.dtype, tuple(self.kept.values()), views

    @property
    def steps(self) -> int:
        """Groups during which it takes its bytes: the first one fills them as it goes."""
        return self.last - self.first

    def slicings(self, table: ResidencyTable) -> list[Slicing]:
        """How cores can keep it for its readers, as these are now."""
        prices = table.prices
        if prices.arch.core_count == 1:
            return [Slicing()]
        passing = between_cores(prices.arch) is not None
        if [*self.kept] != [self.name]:  # slices of a concatenation would be cut twice
            return [*everywhere(self.joint.whole.shape, prices.cores, passing=passing)]
        parts = [table.group(position) for position in sorted(self.groups - {self.first})]
        key = self.name, *map(id, parts)
        if key not in table.slicings:
            readers = [user for user in map(self.joint.user, parts) if user is not None]
            found = slicings(
                self.name, readers, prices.arch, prices.cores, prices.facts.walks, passing=passing
            )
            table.slicings[key] = parts, list(found)
        return table.slicings[key][1]

    def sliced_bytes(self, slicing: Slicing) -> int:
        """Bytes that a core needs."""
        if not slicing.slices or self.name not in self.kept:
            return self.bytes
        cut = replace(self.kept[self.name], cut=slicing.slices)
        return math.prod(cut.padded) * size_of(self.joint.whole.dtype)

    def groups_beside(self, row: Row, table: ResidencyTable, slicing: Slicing) -> dict[int, Group]:
        """All groups from the one that makes it to its last reader."""
        return {
            position: self._beside(part, position, slicing, row, table)
            for position in range(self.first, self.last + 1)
            if isinstance(part := table.parts[position], Group)
        }

    def _beside(
        self, group: Group, position: int, slicing: Slicing, row: Row, table: ResidencyTable
    ) -> Group:
        """The group at `position` while the buffer lies in `row`."""
        names: tuple[str, ...] = ()
        if position in self.groups:
            user = self.joint.user(group)
            assert user is not None
            group, names = user, self.joint.names(user)
        kept = {name: self._at_address(name, slicing, row.address) for name in names}
        return group.beside(kept, table.reserve(row))

    def _at_address(self, name: str, slicing: Slicing, address: int) -> ResidentTensor:
        """A tensor in its place; where cores keep slices, there is room for the largest."""
        kept = replace(self.kept[name], address=address)
        if not slicing.slices:
            return kept
        if all(part == _all_of(self.joint.whole.shape) for part in slicing.slices):
            cut = (_all_of(kept.shape),) * len(slicing.slices)
            return replace(kept, cut=cut, passed=slicing.passed)
        kept = replace(kept, cut=slicing.slices, passed=slicing.passed)
        return replace(kept, room=kept.padded)


def candidates(parts: Sequence[Part], graph: NestGraph, prices: Prices) -> Iterator[KeptBuffer]:
    """Buffers that groups make for later groups, with what their readers expect of them."""
    touching: dict[str, list[int]] = {}
    for position, part in enumerate(parts):
        own = part.outputs if isinstance(part, HostNode) else part.results
        for name in dict.fromkeys((*part.inputs, *own)):
            touching.setdefault(name, []).append(position)
    for joint in _joints(graph):
        near = sorted({p for name in joint.tensors for p in touching.get(name, ())})
        users = {p: joint.user(parts[p]) for p in near}
        groups = {p: group for p, group in users.items() if group is not None}
        if len(groups) < max(2, len(users)):
            continue
        try:
            yield _candidate(joint, groups, prices)
        except Unholdable:
            continue


def _joints(graph: NestGraph) -> Iterator[BufferViews]:
    """Buffers where no port lies, and nothing moves with a length, in the order in which they are
    made, that one tensor covers."""
    ports = {graph.tensors[name].storage.buffer for name in (*graph.inputs, *graph.outputs)}
    moving = {t.storage.buffer for t in graph.tensors.values() if t.storage.registers}
    views: dict[str, dict[str, Tensor]] = {}
    for tensor in graph.tensors.values():
        views.setdefault(tensor.storage.buffer, {})[tensor.name] = tensor
    made: dict[str, dict[str, None]] = {}
    for name in (name for step in graph.steps for name in writes_of(step)):
        made.setdefault(graph.tensors[name].storage.buffer, {})[name] = None
    for buffer, names in made.items():
        whole = _covering(views[buffer], names, graph.buffers[buffer])
        if buffer not in ports | moving and whole is not None:
            yield BufferViews(whole, views[buffer])


def _covering(tensors: Mapping[str, Tensor], made: Iterable[str], size: int) -> Tensor | None:
    """The first and largest of `tensors`, all there is in a buffer of `size`, of which all that are
    `made` are slices; or one that fills the buffer."""
    wholes = sorted(dict.fromkeys((*made, *tensors)), key=lambda name: -tensors[name].elements)
    for name in wholes:
        if all(starts_in(tensors[part], tensors[name]) is not None for part in made):
            return tensors[name]
    return next((tensors[name] for name in wholes if tensors[name].elements == size), None)


def _candidate(joint: BufferViews, groups: Mapping[int, Group], prices: Prices) -> KeptBuffer:
    names = {p: joint.names(group) for p, group in groups.items()}
    own = dict.fromkeys(name for found in names.values() for name in found)
    layers = (layer for group in groups.values() for layer in group.layers)
    together = Group(tuple(layers), tuple(own))
    passing = {name: prices.facts.passing(together, name) for name in own}
    boxes = [name for name in own if name in joint.starts]
    order, border = _buffer_layout(joint.whole, [passing[name] for name in boxes])
    none = (0,) * len(joint.whole.shape)
    reach = [(none, none), *(_border(together, joint, name) for name in boxes)]
    before, after = (tuple(map(max, zip(*side, strict=True))) for side in zip(*reach, strict=True))
    room = padded(joint.whole.shape, before, after)
    raw = 0.0 if border is None else _raw(together, joint.whole, own, border)
    plain = ResidentTensor(
        joint.whole.shape, before, after, order, raw, 0, joint.whole.name, (0,) * len(room), room
    )
    kept = {
        name: _box(joint, name, plain)
        if name in joint.starts
        else _view(joint.tensors[name], joint.whole, plain, passing[name])
        for name in own
    }
    item = size_of(joint.whole.dtype)
    # Stores, and what layers read that their group does not make, as often as they do.
    stores = {p: [n for n in names[p] if n in group.results] for p, group in groups.items()}
    loads = (
        name
        for group in groups.values()
        for layer in group.layers
        for name in layer.inputs
        if name not in group.producer_positions
    )
    moved = (*chain.from_iterable(stores.values()), *loads)
    saved = sum(joint.tensors[name].elements for name in moved if name in own) * item
    makers = [p for p, stored in stores.items() if stored]
    size, ends = math.prod(room) * item, (min(makers), max(groups))
    return KeptBuffer(
        joint.whole.name, "local", 1, size, *ends, saved, joint, kept, frozenset(groups)
    )


def _buffer_layout(
    whole: Tensor, passing: Iterable[Passing]
) -> tuple[tuple[int, ...], float | None]:
    """The order of the axes and the border that suit all who make and read a buffer."""
    innermost = {p.innermost for p in passing if p.innermost}
    borders = {p.border for p in passing if p.border is not None}
    if len(innermost) > 1:
        raise Unholdable(f"{whole.name} is read in two orders")
    if len(borders) > 1:
        raise Unholdable(f"{whole.name} is read with different borders")
    order = order_of(whole.shape, whole.storage.strides)
    last = next(iter(innermost), ())
    return (*(axis for axis in order if axis not in last), *last), next(iter(borders), None)


def _border(group: Group, joint: BufferViews, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How far the readers of a slice reach out of it, in front and behind."""
    shape = joint.tensors[name].shape
    before = after = (0,) * len(shape)
    for layer in group.layers:
        if name in layer.inputs:
            region = clipped(layer_needs(layer, _all_of(layer.result.shape))[name], shape)
            before = tuple(map(max, before, region.before))
            after = tuple(map(max, after, region.after))
    return before, after


def _box(joint: BufferViews, name: str, whole: ResidentTensor) -> ResidentTensor:
    """A slice in the place of the whole; Unholdable where others lie between it and the border."""
    shape = joint.tensors[name].shape
    pairs = zip(shape, whole.shape, whole.before, whole.after, strict=True)
    if any(extent != full and (b or a) for extent, full, b, a in pairs):
        raise Unholdable(f"{name} lies beside other slices where a border is read")
    return replace(whole, shape=shape, start=joint.starts[name])


def _view(tensor: Tensor, whole: Tensor, place: ResidentTensor, passing: Passing) -> ResidentTensor:
    """A view that splits or merges dimensions, in the place of the whole; Unholdable where that is
    not laid out as memory is."""
    strides = tensor.storage.strides
    stored = zip(whole.shape, whole.storage.strides, dense(place.room, place.order), strict=True)
    packed = place.room == whole.shape and all(a == b for n, a, b in stored if n > 1)
    asked = dense(tensor.shape, (*range(len(strides)), *passing.innermost))
    near = all(strides[axis] == asked[axis] for axis in passing.innermost)
    if passing.border is not None or not (packed and near):
        raise Unholdable(f"{tensor.name} is no part of {whole.name} as that lies on chip")
    none = (0,) * len(tensor.shape)
    view = Storage("", tensor.storage.offset - whole.storage.offset, strides)
    return replace(place, shape=tensor.shape, before=none, after=none, start=none, view=view)


def _raw(group: Group, whole: Tensor, names: Iterable[str], border: float) -> float:
    own = set(names)
    accesses = (a for layer in group.layers for nest in layer.nests for a in nest.reads)
    access = next(a for a in accesses if a.tensor in own and a.pad == border)
    return raw_value(border, whole.dtype, access.scale, access.zero)


# Which part of a tensor every core keeps between groups, so that no core needs what others keep.

Slices = tuple[Box, ...]
"""By core, the part of a tensor that it keeps."""


def slicings(
    name: str, readers: Sequence[Group], arch: Arch, cores: int, walks: TraceCache, *,
    passing: bool = False,
) -> Iterator[Slicing]:  # fmt: skip
    """The ways in which several of `cores` can keep the tensor `name` for groups that read it, at
    least one; `passing`: they can pass each other parts of it."""
    shape = readers[0].tensors[name].shape
    whole = _all_of(shape)
    axes = cut_axes(shape) if passing else []
    for grid, shares, wider in _cuts(name, shape, readers, arch, cores, axes, walks):
        if wider != shares and all(kept == whole for kept in wider):
            continue  # that is below
        along = tuple(grid.items())
        if passing and wider != shares:
            yield Slicing(wider, passed=True, grid=along)
        if wider == shares or not _crosses(along, shape):  # else each makes the channels of many
            yield Slicing(wider, grid=along)
    yield from everywhere(shape, cores, passing=passing)


def _crosses(grid: tuple[tuple[int, int], ...], shape: Sequence[object]) -> bool:
    """Whether a grid cuts both the channels of a tensor and another axis."""
    return len(grid) > 1 and channel_axis(len(shape)) in dict(grid)


def everywhere(shape: tuple[int, ...], cores: int, *, passing: bool) -> Iterator[Slicing]:
    """The ways in which each of several cores keeps all of a tensor: it makes all of it, or cores
    pass each other what they make."""
    for passed in (True, False) if passing else (False,):
        yield Slicing((_all_of(shape),) * cores, passed)


def _all_of(shape: tuple[int, ...]) -> Box:
    return tuple((0, extent) for extent in shape)


def _cuts(
    name: str, shape: tuple[int, ...], readers: Sequence[Group], arch: Arch, cores: int,
    axes: Sequence[int], walks: TraceCache,
) -> Iterator[tuple[dict[int, int], Slices, Slices]]:  # fmt: skip
    """Grids, `axes` among those that channels may be cut with; by core, its share of a tensor, and
    with that what it needs beside it."""
    channels = channel_axis(len(shape))
    grain = {} if channels is None else {channels: grain_of(shape, channels, arch)}
    among = () if channels is None else channel_grids(shape, cores, axes, arch)
    for grid in (*slices_of(shape, cores), *among):
        shares = boxes(shape, grid, grain, arch)
        wider = None
        if len(shares) > 1:
            wider = _widened(name, shares, readers, grid, grain, arch, walks)
        if wider is not None:
            yield grid, shares, wider


def _widened(
    name: str, shares: Slices, readers: Sequence[Group], grid: dict[int, int],
    grain: dict[int, int], arch: Arch, walks: TraceCache,
) -> Slices | None:  # fmt: skip
    """`shares` and what each core needs beside its own; None where a reader cannot be cut so."""
    found = list(shares)
    for group in readers:
        last = group.tensors[group.results[-1]].shape
        if any(axis >= len(last) for axis in grid):
            return None
        parts = boxes(last, grid, grain, arch)
        if len(parts) != len(shares):
            return None
        if any(len(kept.slices) < len(parts) for kept in group.residents.values()):
            return None  # what it keeps already lies on fewer cores
        for core, part in enumerate(parts):
            walker = TileTracer(group, frozenset({name}), memory=walks, core=core)
            try:
                (moment,) = walker.walk((), part).moments
            except Unwalkable:
                return None
            if name in moment.holds:
                found[core] = union(found[core], moment.holds[name].box)
    return tuple(found)


@dataclass(frozen=True)
class KeepTensors(Omittable):
    """Decide which tensors stay on chip between groups.

    before:
        {a; b} stores t    {c} loads t    {d; e} loads t
    after:
        {a; b} makes t     {c} reads t    {d; e} reads t         t in local memory for three groups
    """

    share: Share = 0.75
    """Part of local memory that may be kept."""

    def apply(self, parts: Sequence[Part], graph: NestGraph, prices: Prices) -> tuple[Part, ...]:
        """`parts` with what stays on chip marked in their groups."""
        if not self.enabled:
            return tuple(parts)
        table = ResidencyTable.of(parts, prices)
        limit = int(self.share * prices.arch.memories.local.size)
        found = sorted(candidates(parts, graph, prices), key=lambda c: -c.worth)
        known: dict[Hashable, Slicing | None] = {}
        _offer_runs(found, table, limit)
        for _ in range(2):  # some pay beside what is kept only after them
            kept = {row.span.name for row in table.rows}
            left = (candidate for candidate in found if candidate.name not in kept)
            for _, equal in groupby(left, key=lambda c: (c.worth, c.groups)):
                _offer(tuple(equal), table, limit, known)
            if len(table.rows) == len(kept):
                break
        return tuple(table.parts)


Run = list[tuple[KeptBuffer, Slicing]]
"""Candidates, each between the same groups as another one, all cut along one grid."""


def _offer_runs(found: Sequence[KeptBuffer], table: ResidencyTable, limit: int) -> None:
    """Keep what groups one after another make, all cut along one grid, where that is expected to be
    quicker and some is cut along two axes: one such tensor by itself bars its groups from the cuts
    that suit what else they read."""
    ways: dict[Hashable, Run] = {}
    for candidate in sorted(found, key=lambda c: c.first):
        by_grid = {slicing.grid: slicing for slicing in candidate.slicings(table)[::-1]}
        for grid, slicing in by_grid.items():
            ways.setdefault(grid, []).append((candidate, slicing))
    slices = [slicing for run in ways.values() for _, slicing in run]
    if not any(_crosses(slicing.grid, slicing.slices[0]) for slicing in slices if slicing.grid):
        return
    while True:
        places = [
            place
            for own in ways.values()
            for run in _runs(own, table)
            if (place := table.together(partial(_run_places, run, limit))) is not None
        ]
        best = max(places, key=table.saves, default=None)
        if best is None or table.saves(best) <= 0:
            return
        table.commit(best)


def _runs(own: Run, table: ResidencyTable) -> Iterator[Run]:
    """Parts of `own` that are as long as they can be, of what can still be kept so."""
    run, end, placed = Run(), -1, {row.span.name for row in table.rows}
    for candidate, slicing in own:
        around = [table.group(position).residents for position in candidate.groups]
        counts = {len(kept.slices) for residents in around for kept in residents.values()}
        if candidate.name in placed or not counts <= {len(slicing.slices)} or not slicing.grid:
            continue
        if candidate.first > end:
            yield run
            run = []
        run.append((candidate, slicing))
        end = max(end, candidate.last)
    yield run


def _run_places(run: Run, limit: int, table: ResidencyTable) -> Iterator[Placement | None]:
    """Where the candidates of a run can be kept, as far as there is room."""
    for candidate, slicing in run if len(run) > 1 else ():
        yield from candidate.places(table, limit, slicing=slicing)


def _offer(
    equal: Sequence[KeptBuffer], table: ResidencyTable, limit: int,
    known: dict[Hashable, Slicing | None],
) -> None:  # fmt: skip
    """Keep candidates that save as much as each other between the same groups, as the steps of a
    recurrent layer do: all of them if that is expected to be quicker, as prices of long groups are
    dear, else those that are by themselves. What was found for a candidate is `known` for those of
    equal layers."""
    if len(equal) > 1:
        joint = (
            table.together(partial(_joint_places, equal, slicing, limit))
            for slicing in equal[0].slicings(table)
        )
        if table.try_place(*(place for place in joint if place is not None)) is not None:
            return
    for candidate in equal:
        form = candidate.form, table.around(candidate, candidate.joint.tensors)
        if form not in known:
            ways = [
                (slicing, place)
                for slicing in candidate.slicings(table)
                for place in candidate.places(table, limit, slicing=slicing)
            ]
            best = table.try_place(*(place for _, place in ways))
            known[form] = next((slicing for slicing, place in ways if place is best), None)
        elif (chosen := known[form]) is not None:
            for place in candidate.places(table, limit, slicing=chosen):
                table.commit(place)


def _joint_places(
    equal: Iterable[KeptBuffer], slicing: Slicing, limit: int, table: ResidencyTable
) -> Iterator[Placement | None]:
    """Where candidates can be kept, as far as there is room; None where one cannot be cut so."""
    for candidate in equal:
        if slicing not in candidate.slicings(table):
            yield None
        yield from candidate.places(table, limit, slicing=slicing)

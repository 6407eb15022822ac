"""What could stay on chip between groups: buffers that groups alone use, and how they lie there.

A buffer is made by one group or, where tensors are concatenated, slice by slice by several. It
stays as a whole: one tensor fills its place, and whoever makes or reads a slice does it there. So
does who reads a view that splits or merges dimensions (the heads of an attention), if the place is
laid out as memory would be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compiler.bind.facts import Passing, Unholdable
from compiler.geometry.needs import LayerNeeds
from compiler.group import Group, Kept, padded
from compiler.layer import seen_through
from compiler.nest.border import raw_value
from compiler.nest.bounds import clipped
from compiler.nest.ir import HostNode, NestGraph, Storage, Tensor, dense, order_of
from compiler.nest.rewrite import reads_of, writes_of
from compiler.nest.views import starts_in
from compiler.priced import Part, Prices
from simmodel.dtype import size_of


@dataclass(frozen=True)
class Joint:
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
class Candidate:
    """A buffer that could stay."""

    joint: Joint
    first: int
    """Position of the first group that makes any of it."""
    last: int
    """Position of the last group that reads it."""
    kept: Mapping[str, Kept]
    """Each of its tensors that groups make or read, but for the address."""
    bytes: int
    """Space that it takes, border included."""
    saved: int
    """Bytes that need not be moved."""
    groups: frozenset[int]
    """Positions of the groups that make and read it."""

    @property
    def name(self) -> str:
        """The tensor that fills the place."""
        return self.joint.whole.name

    @property
    def worth(self) -> float:
        """Bytes saved for each byte and group that it occupies."""
        return self.saved / (self.bytes * (self.last - self.first))


def candidates(parts: Sequence[Part], graph: NestGraph, fitter: Prices) -> Iterator[Candidate]:
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
            yield _candidate(joint, groups, fitter)
        except Unholdable:
            continue


def _joints(graph: NestGraph) -> Iterator[Joint]:
    """Buffers where no port lies, and nothing moves with a length, in the order in which they are
    made, that one tensor covers."""
    ports = {graph.tensors[name].storage.buffer for name in (*graph.inputs, *graph.outputs)}
    moving = {t.storage.buffer for t in graph.tensors.values() if t.storage.registers}
    made: dict[str, dict[str, None]] = {}
    seen: dict[str, dict[str, Tensor]] = {}
    for step in graph.steps:
        for name in writes_of(step):
            made.setdefault(graph.tensors[name].storage.buffer, {})[name] = None
        for name in (*writes_of(step), *reads_of(step)):
            tensor = graph.tensors[name]
            seen.setdefault(tensor.storage.buffer, {})[name] = tensor
    for buffer, names in made.items():
        whole = _covering(seen[buffer], names)
        if buffer not in ports | moving and whole is not None:
            yield Joint(whole, seen[buffer])


def _covering(tensors: Mapping[str, Tensor], made: Iterable[str]) -> Tensor | None:
    """The first and largest of `tensors` of which all that are `made` are slices."""
    wholes = sorted((*made, *tensors), key=lambda name: -tensors[name].elements)
    for name in dict.fromkeys(wholes):
        if all(starts_in(tensors[part], tensors[name]) is not None for part in made):
            return tensors[name]
    return None


def _candidate(joint: Joint, groups: Mapping[int, Group], fitter: Prices) -> Candidate:
    together = Group(tuple(layer for group in groups.values() for layer in group.layers), ())
    names = {p: joint.names(group) for p, group in groups.items()}
    own = dict.fromkeys(name for found in names.values() for name in found)
    passing = {name: fitter.facts.passing(replace(together, results=(name,)), name) for name in own}
    boxes = [name for name in own if name in joint.starts]
    order, border = _lies(joint.whole, [passing[name] for name in boxes])
    reach = [_border(together, joint, name) for name in boxes]
    before, after = (tuple(map(max, zip(*side, strict=True))) for side in zip(*reach, strict=True))
    room = padded(joint.whole.shape, before, after)
    raw = 0.0 if border is None else _raw(together, joint.whole, own, border)
    plain = Kept(
        joint.whole.shape, before, after, order, raw, 0, joint.whole.name, (0,) * len(room), room
    )
    kept = {
        name: _box(joint, name, plain)
        if name in joint.starts
        else _view(joint.tensors[name], joint.whole, plain, passing[name])
        for name in own
    }
    item = size_of(joint.whole.dtype)
    moved = (n for p, group in groups.items() for n in (*_stores(group, names[p]), *_loads(group)))
    saved = sum(joint.tensors[name].elements for name in moved if name in own) * item
    makers = [p for p, group in groups.items() if _stores(group, names[p])]
    return Candidate(
        joint, min(makers), max(groups), kept, math.prod(room) * item, saved, frozenset(groups)
    )


def _stores(group: Group, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in group.results]


def _loads(group: Group) -> Iterator[str]:
    """What its layers read that it does not make, as often as they do."""
    return (name for layer in group.layers for name in layer.inputs if name not in group.made)


def _lies(whole: Tensor, passing: Iterable[Passing]) -> tuple[tuple[int, ...], float | None]:
    """The order of the axes and the border that suit all who make and read a buffer."""
    innermost = {p.innermost for p in passing if p.innermost is not None}
    borders = {p.border for p in passing if p.border is not None}
    if len(innermost) > 1:
        raise Unholdable(f"{whole.name} is read in two orders")
    if len(borders) > 1:
        raise Unholdable(f"{whole.name} is read with different borders")
    order = order_of(whole.shape, whole.storage.strides)
    last = tuple(innermost)
    return (*(axis for axis in order if axis not in last), *last), next(iter(borders), None)


def _border(group: Group, joint: Joint, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How far the readers of a slice reach out of it, in front and behind."""
    shape = joint.tensors[name].shape
    before = after = (0,) * len(shape)
    for layer in group.layers:
        if name in layer.inputs:
            box = tuple((0, extent) for extent in layer.result.shape)
            region = clipped(LayerNeeds(layer).of(box)[name], shape)
            before = tuple(map(max, before, region.before))
            after = tuple(map(max, after, region.after))
    return before, after


def _box(joint: Joint, name: str, whole: Kept) -> Kept:
    """A slice in the place of the whole; Unholdable where others lie between it and the border."""
    shape = joint.tensors[name].shape
    pairs = zip(shape, whole.shape, whole.before, whole.after, strict=True)
    if any(extent != full and (b or a) for extent, full, b, a in pairs):
        raise Unholdable(f"{name} lies beside other slices where a border is read")
    return replace(whole, shape=shape, start=joint.starts[name])


def _view(tensor: Tensor, whole: Tensor, place: Kept, passing: Passing) -> Kept:
    """A view that splits or merges dimensions, in the place of the whole; Unholdable where that is
    not laid out as memory is."""
    strides = tensor.storage.strides
    stored = zip(whole.shape, whole.storage.strides, dense(place.room, place.order), strict=True)
    packed = place.room == whole.shape and all(a == b for n, a, b in stored if n > 1)
    last = passing.innermost
    if passing.border is not None or not packed or (last is not None and strides[last] != 1):
        raise Unholdable(f"{tensor.name} is no part of {whole.name} as that lies on chip")
    none = (0,) * len(tensor.shape)
    view = Storage("", tensor.storage.offset - whole.storage.offset, strides)
    return replace(place, shape=tensor.shape, before=none, after=none, start=none, view=view)


def _raw(group: Group, whole: Tensor, names: Iterable[str], border: float) -> float:
    own = set(names)
    accesses = (a for layer in group.layers for nest in layer.nests for a in nest.reads)
    access = next(a for a in accesses if a.tensor in own and a.pad == border)
    return raw_value(border, whole.dtype, access.scale, access.zero)

"""Ranges of tensor positions that loops move, and boxes of them.

A range is `start + sum(step * variable)` for `size` positions: the same for all iterations of the
loops, so one instruction serves every tile of a segment. Registers, which hold lengths known at run
time, are variables like those of loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir import bounds
from compiler.tensor_ir.bounds import Box, empty, full, needed, union
from compiler.tensor_ir.nest import Access, Affine, Nest
from compiler.tensor_ir.registers import Count
from simmodel.isa.region import Limit, Terms


class Range(NamedTuple):
    """Positions start .. start + size along one dimension, moved by loops."""

    start: int
    size: int
    terms: Terms = ()
    stop: Count | None = None
    """End of a core's work, if it depends on a length: elements behind it do not exist."""


def limits(
    extents: Sequence[int], counts: Sequence[Count | None], ranges: Sequence[Range]
) -> tuple[Limit, ...]:  # fmt: skip
    """Limits of `ranges` along dimensions whose extents at the upper edge of all registers become
    `counts` at other lengths; None, or none at all: always the extent."""
    found = []
    for axis, span in enumerate(ranges):
        count, stop = counts[axis] if axis < len(counts) else None, span.stop
        ends = [] if count is None else [(extents[axis], count.terms)]
        ends += [] if stop is None else [(stop.base, stop.terms)]
        for end, terms in ends:
            moved = summed(terms, scaled(span.terms, -1))
            found.append(Limit(axis, end - span.start, moved))
    return tuple(found)


@dataclass(frozen=True)
class Region:
    """A box of a tensor, clipped to it, and the border that was cut off."""

    ranges: tuple[Range, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        """Sizes with the border."""
        sides = zip(self.before, self.ranges, self.after, strict=True)
        return tuple(b + r.size + a for b, r, a in sides)

    @property
    def bordered(self) -> bool:
        """Whether anything was cut off."""
        return any(self.before) or any(self.after)


def scaled(terms: Terms, factor: int) -> Terms:
    """`terms`, each step times `factor`."""
    return tuple([(name, step * factor) for name, step in terms]) if terms and factor else ()


def summed(*parts: Terms) -> Terms:
    """Sum of terms: steps of one variable added up, zero sums dropped."""
    if not any(parts):  # most ranges are moved by no loop
        return ()
    total: dict[str, int] = {}
    for terms in parts:
        for name, step in terms:
            total[name] = total.get(name, 0) + step
    return tuple((name, step) for name, step in total.items() if step)


def touched(access: Access, loops: Sequence[Range]) -> tuple[Range, ...]:
    """Positions that `access` reads while the loops run over their ranges."""
    result = []
    for affine in access.index:
        low = affine.constant
        size = 1 + affine.spare
        terms: list[Terms] = []
        for dim, factor in affine.terms:
            loop = loops[dim]
            low += factor * (loop.start if factor > 0 else loop.start + loop.size - 1)
            size += abs(factor) * (loop.size - 1)
            terms.append(scaled(loop.terms, factor))
        result.append(Range(low, size, summed(*terms, affine.registers), _stop(affine, loops)))
    return tuple(result)


def _stop(affine: Affine, loops: Sequence[Range]) -> Count | None:
    """Behind the last position that is touched, where one loop alone says."""
    if len(affine.terms) != 1:
        return None
    ((dim, factor),) = affine.terms
    stop = loops[dim].stop
    if stop is None or factor < 1:
        return None
    base = affine.constant + factor * (stop.base - 1) + 1
    return Count(base, summed(scaled(stop.terms, factor), affine.registers))


def clipped(ranges: tuple[Range, ...], shape: tuple[int, ...]) -> Region:
    """The part inside a tensor of `shape`. A range that loops move is clipped nowhere."""
    inside, before, after = [], [], []
    for span, extent in zip(ranges, shape, strict=True):
        end = span.start + span.size
        high = extent if end > extent and not span.terms else end
        low = min(max(span.start, 0), extent)
        front = min(max(0, -span.start), span.size)
        size = max(0, high - low)
        # Outside altogether: nothing is left, but the border still begins where the range does.
        inside.append(Range(low if size else span.start + front, size, span.terms, span.stop))
        before.append(front)
        after.append(span.size - front - size)
    return Region(tuple(inside), tuple(before), tuple(after))


def range_hull(
    a: tuple[Range, ...], b: tuple[Range, ...], shape: tuple[int, ...]
) -> tuple[Range, ...]:
    """Smallest ranges that contain both; everything, if loops move them differently."""
    result = []
    for one, two, extent in zip(a, b, shape, strict=True):
        if one.terms != two.terms:
            result.append(Range(0, extent))
            continue
        low = min(one.start, two.start)
        high = max(one.start + one.size, two.start + two.size)
        stop = one.stop if one.stop == two.stop else None
        result.append(Range(low, high - low, one.terms, stop))
    return tuple(result)


Key = tuple[str, float | None, bool]
"""A tensor as one buffer holds it: name, value of its border (None: no border), and whether it is
the right operand of a sum of products, which has a memory and an order of its own."""


def keys_of(nest: Nest) -> tuple[Key, ...]:
    """Buffers that the accesses of `nest` read, in the order of `nest.reads`."""
    product = nest.macs > 0
    return tuple(
        (access.tensor, access.pad, product and position == 1)
        for position, access in enumerate(nest.reads)
    )


@dataclass(frozen=True)
class Needs:
    """For one tile of a layer: loop ranges of every nest, and regions of everything read."""

    loops: tuple[tuple[Range, ...], ...]
    """Per nest, ranges of its dims."""
    regions: Mapping[Key, Region]


def needs(layer: Layer, out: Sequence[Range], split: Mapping[int, Range]) -> Needs:
    """Loop ranges and regions that the tile `out` of the layer's result needs; `split`: ranges of
    the head's reduction dims that are not taken whole."""
    wanted: dict[str, tuple[Range, ...]] = {layer.result.name: tuple(out)}
    touches: dict[Key, tuple[Range, ...]] = {}
    loops: list[tuple[Range, ...]] = []
    for nest in reversed(layer.nests):
        cut = split if nest is layer.head else {}
        inner = ((d, nest.dims[d].extent) for d in range(nest.rank, len(nest.dims)))
        ranges = (*wanted[nest.tensor], *(cut.get(d, Range(0, extent)) for d, extent in inner))
        loops.append(ranges)
        for access, key in zip(nest.reads, keys_of(nest), strict=True):
            spans = touched(access, ranges)
            shape = layer.tensors[access.tensor].shape
            touches[key] = range_hull(touches[key], spans, shape) if key in touches else spans
            if access.tensor in layer.inside:
                want, known = clipped(spans, shape).ranges, wanted.get(access.tensor)
                wanted[access.tensor] = want if known is None else range_hull(known, want, shape)
    shapes = layer.tensors
    regions = {key: clipped(spans, shapes[key[0]].shape) for key, spans in touches.items()}
    return Needs(tuple(reversed(loops)), regions)


# The same in plain numbers, as far as boxes of inputs go, borders included.


def layer_needs(layer: Layer, box: Box) -> dict[str, Box]:
    """Boxes of the layer's inputs, borders included, that `box` of its result needs."""
    wants = {layer.result.name: box}
    found: dict[str, Box] = {}
    for nest in reversed(layer.nests):
        loops = full(nest, wants[nest.tensor])
        for access in nest.reads:
            need = needed(access, loops)
            name = access.tensor
            if name in layer.inside:
                need = bounds.clipped(need, layer.tensors[name].shape).box
                wants[name] = union(wants[name], need) if name in wants else need
            else:
                found[name] = union(found[name], need) if name in found else need
    return found


def group_needs(group: Group, made: Mapping[str, Box], *, inside: bool = False) -> dict[str, Box]:
    """Boxes of every tensor that computing `made` of the results touches, results included; with
    borders, or only what is `inside` of the tensors."""
    found = dict(made)
    for layer in reversed(group.layers):
        box = found.get(layer.result.name)
        for name, need in layer_needs(layer, box).items() if box is not None else ():
            touched = bounds.clipped(need, group.tensors[name].shape).box if inside else need
            if not (inside and empty(touched)):
                found[name] = union(found[name], touched) if name in found else touched
    return found

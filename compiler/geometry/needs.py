"""Box of each input that a box of a layer's result needs, borders included.

Index maps are affine, so in most layers the interval needed along an input axis follows from one
loop of the result:

    conv, 3 taps, stride 2      rows 4..7 of the result     rows 2 * 4 - 1 .. 2 * 7 + 1 of the input

These maps are extracted once per layer; a box then costs a few additions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.bounds import Box, clipped, empty, full, needed, union
from compiler.tensor_ir.build import identity
from compiler.tensor_ir.nest import Affine, Nest

Interval = tuple[int, int]
"""(start, size)."""


@dataclass
class LayerNeeds:
    """Needs of one layer, cached by box."""

    layer: Layer
    known: dict[Box, Mapping[str, Box]] = field(default_factory=dict)

    def of(self, box: Box) -> Mapping[str, Box]:
        """Boxes of the inputs that `box` of the result needs."""
        found = self.known.get(box)
        if found is None:
            found = self.known[box] = self._worked_out(box)
        return found

    def _worked_out(self, box: Box) -> Mapping[str, Box]:
        if self._maps is None:
            return layer_needs(self.layer, box)
        found: dict[str, Box] = {}
        for name, axes in self._maps:
            need = tuple([axis(box) for axis in axes])
            found[name] = union(found[name], need) if name in found else need
        return found

    @cached_property
    def _maps(self) -> tuple[tuple[str, tuple[Callable[[Box], Interval], ...]], ...] | None:
        """Per access of an input, one map per axis; None if nests move elements in between."""
        layer = self.layer
        reads = [(nest, access) for nest in layer.nests for access in nest.reads]
        inner = ((nest, access) for nest, access in reads if access.tensor in layer.inside)
        if any(nest.shape != layer.result.shape for nest in layer.nests):
            return None
        if not all(identity(access, nest.rank) for nest, access in inner):
            return None
        return tuple(
            (access.tensor, tuple(_axis_interval(nest, affine) for affine in access.index))
            for nest, access in reads
            if access.tensor not in layer.inside
        )


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
                need = clipped(need, layer.tensors[name].shape).box
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
        for name, need in LayerNeeds(layer).of(box).items() if box is not None else ():
            touched = clipped(need, group.tensors[name].shape).box if inside else need
            if not (inside and empty(touched)):
                found[name] = union(found[name], touched) if name in found else touched
    return found


def _axis_interval(nest: Nest, affine: Affine) -> Callable[[Box], Interval]:
    """The interval along one axis that a box of the result needs."""
    moving = [(dim, factor) for dim, factor in affine.terms if dim < nest.rank]
    low = affine.constant
    more = 1
    for dim, factor in affine.terms:
        if dim >= nest.rank:  # run over everything
            reach = factor * (nest.dims[dim].extent - 1)
            low += min(0, reach)
            more += abs(reach)
    if not moving:
        return lambda _: (low, more)
    dim, factor = moving[0]
    if len(moving) > 1 or factor < 0:
        return lambda box: _several(box, moving, low, more)
    if factor == 1 and (low, more) == (0, 1):
        return lambda box: box[dim]
    return lambda box: (low + factor * box[dim][0], factor * (box[dim][1] - 1) + more)


def _several(box: Box, moving: list[tuple[int, int]], low: int, more: int) -> Interval:
    for dim, factor in moving:
        start, size = box[dim]
        low += factor * (start if factor > 0 else start + size - 1)
        more += abs(factor) * (size - 1)
    return low, more

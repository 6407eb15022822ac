"""Groups without their names: what their prices depend on, so that those that are alike share them.

A network repeats itself: the blocks of a ResNet, the layers of a transformer, the steps of a
recurrent layer, which read one row of a tensor after the other. Two groups have one outline if
their layers compute the same from tensors of the same shapes, types and strides, on the same
engines and wired in the same way; then every schedule of one is a schedule of the other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from compiler.group import Group
from compiler.layer import Layer
from compiler.nest.ir import Access, Nest, Tensor

Outline = tuple[Hashable, ...]


@dataclass(frozen=True)
class Outlined:
    """A layer and the first one that was found to be like it."""

    layer: Layer
    first: Layer
    number: int
    """Of their outline."""
    tensors: tuple[Tensor, ...]
    """In the order in which the layer names them."""
    outline: Outline
    """What all layers like it have in common."""
    names: Mapping[str, str]
    """Tensor -> the one that the first layer has in its place."""

    @cached_property
    def wires(self) -> tuple[tuple[str, str], ...]:
        """Each of its tensors, and the buffer in which that lies."""
        return tuple((tensor.name, tensor.storage.buffer) for tensor in self.tensors)

    def renamed(self, names: Collection[str]) -> frozenset[str]:
        """Those of the layer's tensors that are among `names`, as the first layer calls them."""
        return frozenset(first for name, first in self.names.items() if name in names)


@dataclass
class Outlines:
    """Outlines of groups; those of layers are worked out once."""

    _layers: dict[int, Outlined] = field(default_factory=dict)
    """By identity of a layer, which is kept so that its identity stays its own."""
    _firsts: dict[Outline, Outlined] = field(default_factory=dict)

    def of(self, group: Group) -> Outline:
        """What all groups have in common that have the same schedules as `group`."""
        names: dict[str, int] = {}
        buffers: dict[str, int] = {}
        layers = []
        for layer in group.layers:
            outlined = self.layer(layer)
            wires = [
                (names.setdefault(name, len(names)), buffers.setdefault(buffer, len(buffers)))
                for name, buffer in outlined.wires
            ]
            layers.append((outlined.number, *wires))
        results = tuple(names[name] for name in group.results)
        homes = (group.kept, group.pinned, group.shared)
        placed = (
            tuple(sorted(((names.get(n, -1), home) for n, home in found.items()), key=_first))
            for found in homes
        )
        reserved = tuple(sorted(group.reserved.items()))
        return (*layers, results, reserved, *placed, _starts_in_slices(group))

    def layer(self, layer: Layer) -> Outlined:
        """What is known of one layer."""
        found = self._layers.get(id(layer))
        if found is None:
            found = self._layers[id(layer)] = self._outlined(layer)
        return found

    def _outlined(self, layer: Layer) -> Outlined:
        order: dict[str, int] = {}
        nests = tuple(_anonymous(nest, order) for nest in layer.nests)
        tensors = tuple(layer.tensors[name] for name in order)
        outline = (nests, layer.bindings, tuple(map(_outline_of, tensors)))
        first = self._firsts.get(outline)
        if first is None:
            own = Outlined(layer, layer, len(self._firsts), tensors, outline, {n: n for n in order})
            return self._firsts.setdefault(outline, own)
        names = dict(zip(order, first.names, strict=True))
        return Outlined(layer, first.layer, first.number, tensors, outline, names)


def _first(pair: tuple[int, object]) -> int:
    return pair[0]


def _outline_of(tensor: Tensor) -> Outline:
    """Of a constant it matters that it is one, not its values; of a slice not where it begins."""
    storage = tensor.storage
    constant = tensor.data is not None
    narrow = None if tensor.narrow is None else tensor.narrow.outline
    own = tensor.shape, tensor.dtype, storage.strides, constant, narrow
    rows = tensor.picked or tensor.placed
    if rows is None:
        return own
    kind = type(rows).__name__
    return (*own, kind, rows.axis, _outline_of(rows.table), _outline_of(rows.index))


def _starts_in_slices(group: Group) -> tuple[int, ...]:
    """Where tensors begin in buffers that are cut into slices: only there it decides what fits."""
    return tuple(
        group.tensors[name].storage.offset for name, home in group.shared.items() if home.slices > 1
    )


def _anonymous(nest: Nest, names: dict[str, int]) -> Nest:
    """A nest with numbers for names, in order of first use, and without the values of encodings
    and clips: it matters that they are there."""

    def numbered(name: str) -> str:
        return str(names.setdefault(name, len(names)))

    def read(access: Access) -> Access:
        scale = None if access.scale is None else 1.0
        tensor = numbered(access.tensor)
        return replace(access, tensor=tensor, scale=scale, zero=int(access.zero != 0))

    return replace(
        nest,
        operands=tuple(map(read, nest.operands)),
        bias=None if nest.bias is None else read(nest.bias),
        multiplier=None if nest.multiplier is None else read(nest.multiplier),
        tensor=numbered(nest.tensor),
        low=-math.inf if nest.low == -math.inf else 0.0,
        high=math.inf if nest.high == math.inf else 0.0,
        scale=None if nest.scale is None else 1.0,
        zero=int(nest.zero != 0),
        origin="", kind="", composite=None,
    )  # fmt: skip

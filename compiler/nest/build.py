"""Building a nest graph: tensors with storage, views that move no data, and operators in order.

Layout is a property of storage, not of operators: tensors keep the model's logical dimensions and
only their strides say how they lie. So transposing, slicing, splitting and most reshaping are views
of the same buffer and cost nothing; convolutions write channels last whatever their name order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import ml_dtypes
import numpy as np

from compiler.narrow import Narrow
from compiler.nest.ir import (
    ZERO,
    Access,
    Affine,
    Array,
    Dim,
    HostNode,
    Nest,
    NestGraph,
    Storage,
    Tensor,
    at,
    dense,
    order_of,
    row_major,
)
from simmodel.dtype import NAMES, NUMPY, is_float


@dataclass
class Builder:
    """The graph under construction. Tensor names are the model's value names."""

    name: str
    real: str
    """Element type that stands for the model's floating-point values in memory."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    steps: list[Nest | HostNode] = field(default_factory=list)
    origin: str = ""
    kind: str = ""
    composite: str | None = None

    def stored(self, dtype: np.dtype[np.generic]) -> str:
        """Element type in memory of values of numpy type `dtype`."""
        name = NAMES[dtype]
        return self.real if is_float(name) else name

    def create(
        self, name: str, shape: tuple[int, ...], dtype: str, order: Sequence[int] | None = None
    ) -> Tensor:
        """A tensor in a buffer of its own, axes in `order` (default row-major)."""
        strides = dense(shape, tuple(order)) if order is not None else row_major(shape)
        self.buffers[name] = math.prod(shape)
        tensor = Tensor(name, shape, dtype, Storage(name, 0, strides))
        self.tensors[name] = tensor
        return tensor

    def constant(
        self,
        name: str,
        data: Array,
        dtype: str | None = None,
        uncertain: Array | float = 0.0,
        narrow: Narrow | None = None,
    ) -> Tensor:
        """A constant with `data`, converted to `dtype` (default: as stored in memory); `uncertain`
        and `narrow` as in `Tensor`, the latter where it stands for just these numbers."""
        dtype = dtype or self.stored(data.dtype)
        key = name if dtype == self.stored(data.dtype) else f"{name}:{dtype}"
        if key in self.tensors:
            return self.tensors[key]
        data = np.asarray(data, order="C")
        raw = np.asarray(within(data, dtype), dtype=NUMPY[dtype], order="C")
        self.create(key, raw.shape, dtype)
        exact = data if rounds(data, raw) else None
        if narrow is not None and not np.array_equal(narrow.wide(dtype), raw):
            narrow = None
        self.tensors[key] = replace(
            self.tensors[key], data=raw, exact=exact, uncertain=uncertain, narrow=narrow
        )
        return self.tensors[key]

    def view(self, name: str, shape: tuple[int, ...], storage: Storage, like: Tensor) -> Tensor:
        """Another name and shape for elements of `like`'s buffer."""
        data, exact = (
            None if values is None else _seen(values, shape, storage, like.storage.offset)
            for values in (like.data, like.exact)
        )
        uncertain = like.uncertain
        if isinstance(uncertain, np.ndarray):
            each = np.ascontiguousarray(np.broadcast_to(uncertain, like.shape))
            uncertain = _seen(each, shape, storage, like.storage.offset)
        tensor = Tensor(name, shape, like.dtype, storage, data, exact, uncertain)
        self.tensors[name] = tensor
        return tensor

    def access(
        self, tensor: Tensor, shape: tuple[int, ...], scale: float | None = None, zero: int = 0
    ) -> Access:
        """Read of `tensor` broadcast, numpy's way, over output dims of `shape`."""
        skip = len(shape) - len(tensor.shape)
        index = tuple(
            ZERO if extent == 1 and shape[skip + axis] != 1 else at(skip + axis)
            for axis, extent in enumerate(tensor.shape)
        )
        return Access(tensor.name, index, None, scale, zero)

    def add(self, nest: Nest) -> None:
        """Append an operator that makes something, marked with the node that is being lowered."""
        if 0 in nest.shape:
            return
        self.steps.append(
            replace(nest, origin=self.origin, kind=self.kind, composite=self.composite)
        )

    def elementwise(
        self,
        out: str,
        shape: tuple[int, ...],
        function: str,
        operands: Sequence[Tensor],
        dtype: str | None = None,
        code: tuple[float | None, int] = (None, 0),
        **fields: object,
    ) -> Tensor:
        """out = function(operands), broadcast; laid out like the largest operand.

        `code` is the (scale, zero) with which raw operands become real; `fields` go to the nest.
        """
        like = max(operands, key=lambda t: (t.data is None, t.elements))
        order = order_of(shape, like.storage.strides) if like.shape == shape else None
        target = self.create(out, shape, dtype or self.real, order)
        accesses = tuple(self.access(t, shape, *code) for t in operands)
        self.add(plain(out, shape, function, accesses, **fields))
        return target

    def graph(
        self, inputs: tuple[str, ...], outputs: tuple[str, ...], ports: dict[str, str]
    ) -> NestGraph:
        """The finished graph."""
        return NestGraph(
            self.name, self.tensors, self.buffers, tuple(self.steps), inputs, outputs, ports
        )


def _seen(values: Array, shape: tuple[int, ...], storage: Storage, start: int) -> Array:
    """Elements of `values`, the first of which lies at `start`, through `storage`."""
    offset = (storage.offset - start) * values.itemsize
    steps = tuple(s * values.itemsize for s in storage.strides)
    return np.ndarray(shape, values.dtype, values, offset, steps)


def rounds(data: Array, raw: Array) -> bool:
    """Whether some of the real values `data` are others in `raw`."""
    if not np.issubdtype(data.dtype, np.floating) or raw.dtype == data.dtype:
        return False
    return not np.array_equal(raw.astype(data.dtype), data, equal_nan=True)


def within(data: Array, dtype: str) -> Array:
    """Real values limited to what `dtype` can hold: stand-ins for infinity stay finite."""
    if not is_float(dtype) or not np.issubdtype(data.dtype, np.floating):
        return data
    largest = float(ml_dtypes.finfo(NUMPY[dtype]).max)  # type: ignore[no-untyped-call]
    finite = np.isfinite(data)
    return np.where(finite, np.clip(data, -largest, largest), data)


def plain(
    out: str, shape: tuple[int, ...], function: str, accesses: tuple[Access, ...], **fields: object
) -> Nest:
    """An element-wise nest over `shape`."""
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(shape))
    return replace(Nest(out, dims, len(shape), function, accesses), **fields)  # type: ignore[arg-type]


def reshaped(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the same elements in shape `new`, or None where no strides can say it."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    position = 0
    wanted = [(axis, n) for axis, n in enumerate(new) if n != 1]
    sizes: dict[int, int] = {}
    i = 0
    while i < len(wanted):
        if position >= len(old):
            return None
        have, need, group = old[position][0], wanted[i][1], [wanted[i]]
        chain = [old[position]]
        position += 1
        while have != need:
            if have < need:
                if position >= len(old):
                    return None
                chain.append(old[position])
                have *= old[position][0]
                position += 1
            else:
                i += 1
                if i >= len(wanted):
                    return None
                group.append(wanted[i])
                need *= wanted[i][1]
        if any(s != n * t for (_, s), (n, t) in pairwise(chain)):
            return None
        stride = chain[-1][1]
        for axis, extent in reversed(group):
            sizes[axis] = stride
            stride *= extent
        i += 1
    if position != len(old):
        return None
    return tuple(sizes.get(axis, 1) for axis in range(len(new)))


def identity(access: Access, rank: int) -> bool:
    """Whether `access` reads exactly the output position."""
    return access.index == tuple(Affine(((axis, 1),), 0) for axis in range(rank))

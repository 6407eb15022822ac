"""Building a nest graph: tensors with storage, views that move no data, and operators in order.

Layout is a property of storage, not of operators: tensors keep the model's logical dimensions and
only their strides say how they lie. So transposing, slicing, splitting and most reshaping are views
of the same buffer and cost nothing; convolutions write channels last whatever their name order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter

import numpy as np
from numpy.lib.stride_tricks import as_strided

from compiler.frontend.quantization.narrow_constants import Narrow
from compiler.tensor_ir.nest import (
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
from simmodel.arch.dtype import NAMES, NUMPY, largest
from simmodel.arch.element_types import is_float, per_block
from simmodel.arch.lazy_array import AnyArray, LazyArray, elementwise, transformed
from simmodel.isa.region import replace


@dataclass
class NestGraphBuilder:
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
        return self.real if is_float(name) and per_block(name) == 1 else name

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
        self, name: str, data: AnyArray, dtype: str | None = None, uncertain: Array | float = 0.0,
        narrow: Narrow | None = None,
    ) -> Tensor:  # fmt: skip
        """A constant with `data`, converted to `dtype` (default: as stored in memory); `uncertain`
        and `narrow` as in `Tensor`, the latter where it stands for just these numbers."""
        dtype = dtype or self.stored(data.dtype)
        key = name if dtype == self.stored(data.dtype) else f"{name}:{dtype}"
        if key in self.tensors:
            return self.tensors[key]
        raw = converted(data, dtype)
        made = self.create(key, raw.shape, dtype)
        if narrow is not None and not np.array_equal(narrow.wide(dtype), raw):
            narrow = None
        kind = NAMES[data.dtype]
        real = is_float(kind) and is_float(dtype) and kind != dtype
        self.tensors[key] = replace(
            made, data=raw, exact=data if real else None, uncertain=uncertain, narrow=narrow
        )
        return self.tensors[key]

    def view(self, name: str, like: Tensor, change: Callable[[Array], Array]) -> Tensor:
        """Another name for elements of `like`: those that `change`, which copies nothing, leaves of
        an array that lies as it does, in their order there."""
        storage = like.storage
        base = as_strided(np.empty(0, np.int8), like.shape, storage.strides)  # never touched
        seen = change(base)
        start, end = (each.__array_interface__["data"][0] for each in (base, seen))
        offset = storage.offset + (end - start if seen.size else 0)
        data, exact = (
            None if v is None else transformed(v, change) for v in (like.data, like.exact)
        )
        uncertain = like.uncertain
        if isinstance(uncertain, np.ndarray):
            uncertain = change(np.ascontiguousarray(np.broadcast_to(uncertain, like.shape)))
        storage = replace(storage, offset=offset, strides=seen.strides)
        self.tensors[name] = Tensor(name, seen.shape, like.dtype, storage, data, exact, uncertain)
        return self.tensors[name]

    def copied(self, target: Tensor, source: Tensor) -> Tensor:
        """Append a copy of `source`, broadcast, to `target`."""
        self.add(plain(target.name, target.shape, "move", (self.access(source, target.shape),)))
        return target

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
        """Append an operator that computes something, marked with the node that is being
        lowered."""
        if 0 in nest.shape:
            return
        composite = self.composite
        if _is_dot_products(nest) and is_float(self.tensors[nest.tensor].dtype):
            composite = composite or nest.tensor
            products = f"{nest.tensor}.products"
            shape = tuple(dim.extent for dim in nest.dims)
            each = replace(nest, tensor=products, rank=len(shape), reduce=None)
            self.create(products, shape, self.tensors[nest.tensor].dtype)
            self.steps.append(
                replace(each, origin=self.origin, kind=self.kind, composite=composite)
            )
            read = self.access(self.tensors[products], shape)
            nest = replace(nest, function="move", operands=(read,))
        self.steps.append(replace(nest, origin=self.origin, kind=self.kind, composite=composite))

    def elementwise(
        self, out: str, shape: tuple[int, ...], function: str, operands: Sequence[Tensor],
        dtype: str | None = None, code: tuple[float | None, int] = (None, 0), **fields: object,
    ) -> Tensor:  # fmt: skip
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
        return NestGraph(
            self.name, self.tensors, self.buffers, tuple(self.steps), inputs, outputs, ports
        )


def _is_dot_products(nest: Nest) -> bool:
    """Whether `nest` is dot products of several pairs of vectors: nothing is used twice, so
    instructions for matrix products would take one pair each."""
    free = [d for d, dim in enumerate(nest.shape) if dim > 1]
    pairs = all(access.uses(d) for access in nest.operands for d in free)
    plain = (nest.bias, nest.multiplier, nest.scale) == (None, None, None)
    return nest.contraction and plain and bool(free) and pairs


def converted(data: AnyArray, dtype: str) -> LazyArray:
    """`data` as elements of type `dtype`."""
    kind = NUMPY[dtype]

    def change(each: Array) -> Array:
        return np.asarray(within(each, dtype), kind, order="C")

    return elementwise(data, kind, "converted", change)


def within(data: Array, dtype: str) -> Array:
    """Real values limited to the range of `dtype`: stand-ins for infinity stay finite."""
    if not is_float(dtype) or not np.issubdtype(data.dtype, np.floating):
        return data
    most = largest(dtype)
    if data.size and -most <= data.min() and data.max() <= most:
        return data
    return np.where(np.isfinite(data), np.clip(data, -most, most), data)


def plain(
    out: str, shape: tuple[int, ...], function: str, accesses: tuple[Access, ...], **fields: object
) -> Nest:
    """An element-wise nest over `shape`."""
    dims = tuple(Dim(f"d{axis}", extent) for axis, extent in enumerate(shape))
    return replace(Nest(out, dims, len(shape), function, accesses), **fields)


def reshaped(*shape: int) -> Callable[[Array], Array]:
    """The same elements in `shape`, for a view; raises ValueError if no strides express it."""

    return partial(np.reshape, shape=shape, copy=False)


def along(axis: int, first: int, count: int, step: int = 1) -> Callable[[Array], Array]:
    """`count` positions of one axis, for a view."""
    cut = (*[slice(None)] * axis, slice(first, first + count * step, step))
    return itemgetter(cut)


def identity(access: Access, rank: int) -> bool:
    """Whether `access` reads exactly the output position."""
    return access.index == tuple(Affine(((axis, 1),), 0) for axis in range(rank))


def copies(nest: Nest, tensors: Mapping[str, Tensor]) -> bool:
    """Whether `nest` copies a tensor, position by position, to one of the same shape and type."""
    bare = replace(nest, function="move", reduce=None, bias=None, multiplier=None)
    if nest != bare or (nest.scale, nest.zero) != (None, 0) or not nest.unclipped:
        return False
    (read,) = nest.operands
    source, target = tensors[read.tensor], tensors[nest.tensor]
    same = (source.shape, source.dtype) == (target.shape, target.dtype)
    plain = (read.scale, read.zero, read.pad) == (None, 0, None)
    return same and plain and identity(read, nest.rank)


# Reading a view as what it is a view of: the same elements under the other tensor's index.

Walk = tuple[int, int, int]
"""Of a dimension of the base: dimension of the view that walks it or -1, step, first position."""


def view_dimensions(view: Tensor, base: Tensor) -> tuple[Walk, ...] | None:
    """How `view` walks the dimensions of `base`; None where not each by at most one of its own."""
    if view.storage.buffer != base.storage.buffer or view.dtype != base.dtype:
        return None
    if view.storage.registers != base.storage.registers:
        return None  # it begins elsewhere in the base at another length
    rest = view.storage.offset - base.storage.offset
    if rest < 0:
        return None
    starts = [0] * len(base.shape)
    order = sorted(range(len(base.shape)), key=lambda d: -base.storage.strides[d])
    for d in order:
        if base.shape[d] > 1 and base.storage.strides[d] > 0:
            starts[d] = min(rest // base.storage.strides[d], base.shape[d] - 1)
            rest -= starts[d] * base.storage.strides[d]
    if rest:
        return None
    found = [(-1, 0, start) for start in starts]
    for v, extent in enumerate(view.shape):
        if extent == 1:
            continue
        along = _base_dimension(v, view, base, starts, order)
        if along is None or found[along][0] != -1:
            return None
        step = view.storage.strides[v] // base.storage.strides[along]
        found[along] = (v, step, starts[along])
    return tuple(found)


def _base_dimension(
    v: int, view: Tensor, base: Tensor, starts: list[int], order: list[int]
) -> int | None:
    """The dimension of `base` along which dimension `v` of the view runs."""
    stride, extent = view.storage.strides[v], view.shape[v]
    for d in order:
        unit = base.storage.strides[d]
        if base.shape[d] == 1 or unit <= 0 or stride < unit or stride % unit:
            continue
        last = starts[d] + (extent - 1) * (stride // unit)
        return d if last < base.shape[d] else None
    return None


def through(access: Access, view: Tensor, base: Tensor) -> Access | None:
    """An access to a view as an access to its base; None if there is none."""
    found = view_dimensions(view, base)
    if found is None:
        return None
    if access.pad is not None:
        # What lies outside the view must lie outside the base, on the same side.
        alike = all(
            walk == ((d, 1, 0) if extent > 1 else (-1, 0, 0))
            for d, (walk, extent) in enumerate(zip(found, base.shape, strict=True))
        )
        same = alike and view.shape == base.shape
        return replace(access, tensor=base.name) if same else None
    index = []
    units = _units(view, base, found)
    for d, (v, step, start) in enumerate(found):
        if v < 0:
            # Loops of one turn keep their roles.
            terms = access.index[units[d]].terms if d in units else ()
            index.append(Affine(terms, start))
            continue
        inner = access.index[v]
        terms = tuple((dim, factor * step) for dim, factor in inner.terms)
        registers = tuple((name, factor * step) for name, factor in inner.registers)
        index.append(Affine(terms, inner.constant * step + start, registers))
    return replace(access, tensor=base.name, index=tuple(index))


def _units(view: Tensor, base: Tensor, found: tuple[Walk, ...]) -> dict[int, int]:
    """Dimension of the base that nothing walks -> the view's dimension of extent 1 it stands for.

    In tensors of equal rank that is its namesake; where dimensions of extent 1 were added or left
    out, the first that is free on both sides, and so on.
    """
    single = [v for v, extent in enumerate(view.shape) if extent == 1]
    if len(view.shape) == len(base.shape):
        return {v: v for v in single}
    free = [d for d, (v, _, _) in enumerate(found) if v < 0]
    return dict(zip(free, single, strict=False))


def _loops(access: Access) -> set[int]:
    return {dim for affine in access.index for dim, _ in affine.terms}


def reading(nest: Nest, view: Tensor, base: Tensor) -> Nest | None:
    """`nest` with every read of `view` as one of `base`."""
    if all(access.tensor != view.name for access in nest.reads):
        return nest

    def changed(access: Access) -> Access | None:
        if access.tensor != view.name:
            return access
        found = through(access, view, base)
        if nest.reduce is not None and found is not None and _loops(found) != _loops(access):
            return None  # what a loop of a sum is for shows in who uses it
        return found

    reads = [access for access in map(changed, nest.reads) if access is not None]
    return nest.with_reads(reads) if len(reads) == len(nest.reads) else None


def starts_in(part: Tensor, whole: Tensor) -> tuple[int, ...] | None:
    """Offset of `part`, a box of `whole` in the same buffer; None if it is no box."""
    found = view_dimensions(part, whole)
    if found is None or len(part.shape) != len(whole.shape):
        return None
    along = ((v, step) for v, step, _ in found)
    same = (
        walk == ((axis, 1) if extent > 1 else (-1, 0))
        for axis, (walk, extent) in enumerate(zip(along, part.shape, strict=True))
    )
    return tuple(start for _, _, start in found) if all(same) else None

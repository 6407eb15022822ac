"""Reductions over whole axes and pooling over windows."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from operator import methodcaller

import numpy as np

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.lowering.contraction import (
    Window,
    channels_last,
    padded,
    tap_dims,
    tap_positions,
    window_of,
)
from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.nest import Access, Array, Dim, Nest, Tensor, at, order_of
from simmodel.arch.element_types import is_float

REDUCE = {
    "ReduceMean": "sum", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod",
}  # fmt: skip


def reduction(node: Node) -> None:
    """Sum, mean, largest, smallest or product over axes."""
    x = node.tensor(0)
    axes = _axes(node, len(x.shape))
    mean = node.op == "ReduceMean"
    if x.elements == 0 or (mean and not is_float(node.dtype())):
        raise NoNest(f"{node.op} of {x.elements} elements of {node.dtype()}")
    if not axes:
        node.step("", "move", x)
        return
    scale = 1.0 / math.prod(x.shape[axis] for axis in axes) if mean else None
    keeps = node.attribute("keepdims", 1)
    total = _total(node, x, axes, node.out if keeps else f"{node.out}.kept", scale)
    if not keeps:
        _without_axes(node, total, axes, node.out)


def _total(node: Node, x: Tensor, axes: set[int], name: str, scale: float | None = None) -> Tensor:
    """`x`, scaled, reduced over `axes`, which remain with extent 1; in two steps if the elements of
    one result do not fit in a tile, with about as many partial results as elements in each.

    That is exact for the largest and smallest element; sums are added up in another order.
    """
    reduce, halves = REDUCE[node.op], None
    count = math.prod(x.shape[axis] for axis in axes)
    if count > node.limits.longest and reduce != "prod":
        halves = _halved(node, x, axes, f"{name}.halves")
    if halves is None:
        return _at_once(node, x, axes, name, reduce, scale)
    node.compose()
    parts = _at_once(node, halves.x, halves.inner, f"{name}.parts", reduce, scale)
    if halves.cut is None:
        return _at_once(node, parts, halves.outer, name, reduce)
    whole = _at_once(node, parts, halves.outer, f"{name}.whole", reduce)
    return _without_axes(node, whole, {halves.cut}, name)


@dataclass(frozen=True)
class _Halves:
    """Axes of a reduction in two groups; `cut` is the second part of an axis cut in two."""

    x: Tensor
    outer: set[int]
    inner: set[int]
    cut: int | None = None


def _halved(node: Node, x: Tensor, axes: set[int], name: str) -> _Halves | None:
    """The axes that are far apart in memory, with about as many elements as the others; one axis is
    cut in two if necessary and if its extent has divisors."""
    wanted = math.isqrt(math.prod(x.shape[axis] for axis in axes))
    outer: set[int] = set()
    size = 1
    for axis in sorted(axes, key=lambda axis: -x.storage.strides[axis]):
        extent = x.shape[axis]
        if size * extent > 8 * wanted:  # whole, it would make the two steps too uneven
            # The divisor closest to what is left, as a ratio.
            left, divisors = wanted // size, [d for d in range(1, extent + 1) if extent % d == 0]
            parts = min(divisors, key=lambda d: max(d, left) / min(d, left))
            if parts in (1, extent):
                return _Halves(x, outer, axes - outer) if outer else None
            inner = {other + (other > axis) for other in axes - outer - {axis}} | {axis + 1}
            outer = {other + (other > axis) for other in outer} | {axis}
            return _Halves(node.split_axis(x, axis, parts, name), outer, inner, axis + 1)
        outer.add(axis)
        size *= extent
        if size >= wanted:
            break
    return _Halves(x, outer, axes - outer)


def _at_once(
    node: Node, x: Tensor, axes: set[int], name: str, reduce: str, scale: float | None = None
) -> Tensor:
    rank = len(x.shape)
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    node.build.create(name, shape, node.dtype(), order_of(x.shape, x.storage.strides))
    over = sorted(axes)
    dims = [*(Dim(f"d{axis}", n) for axis, n in enumerate(shape)),
            *(Dim(f"r{axis}", x.shape[axis]) for axis in over)]  # fmt: skip
    index = tuple(at(rank + over.index(axis) if axis in axes else axis) for axis in range(rank))
    read = Access(x.name, index, None, scale)
    node.build.add(Nest(name, tuple(dims), rank, "move", (read,), reduce))
    return node.build.tensors[name]


def _axes(node: Node, rank: int) -> set[int]:
    axes = {int(axis) % rank for axis in node.constant(1).ravel()} if node.has(1) else set[int]()
    return axes if axes or node.attribute("noop_with_empty_axes", 0) else set(range(rank))


def _without_axes(node: Node, x: Tensor, axes: set[int], name: str) -> Tensor:
    """A view of `x` without axes of extent 1."""
    return node.build.view(name, x, methodcaller("squeeze", tuple(axes)))


def pool(node: Node) -> None:
    """Largest or mean value of each window."""
    indices = node.node.outputs[1:]
    if any(value.uses() or value.is_graph_output() for value in indices):
        raise NoNest("MaxPool with indices")
    x = node.tensor(0)
    window = window_of(node, tuple(int(k) for k in node.attribute("kernel_shape")))
    if len(window) not in (1, 2):
        raise NoNest(f"{node.op} in {len(window)} dimensions")
    if node.op == "AveragePool":
        _average(node, x, window)
        return
    _window(node, x, window, node.out, "max", (-math.inf if padded(window) else None, None))


def _window(
    node: Node, x: Tensor, window: Window, name: str, reduce: str,
    access: tuple[float | None, float | None],
) -> Tensor:  # fmt: skip
    first = len(x.shape) - len(window)
    shape = (*x.shape[:first], *node.shape()[-len(window) :])
    rank, kind = len(shape), x.dtype if reduce == "max" else node.dtype()
    out = node.build.create(name, shape, kind, channels_last(rank))
    pad, scale = access
    # With ceil_mode the last windows may hang over the end even without pads.
    sides = zip(window, shape[first:], x.shape[first:], strict=True)
    if pad is None and any(
        (made - 1) * side.stride + (side.kernel - 1) * side.dilation - side.before >= given
        for side, made, given in sides
    ):
        pad = -math.inf if reduce == "max" else 0.0
    index = (*map(at, range(first)), *tap_positions(window, first, rank))
    left = Access(x.name, index, pad, scale)
    names = {3: "ncl", 4: "nchw"}.get(rank, "ncdhw")
    dims = [*(Dim(names[axis], n) for axis, n in enumerate(shape)), *tap_dims(window)]
    node.build.add(Nest(name, tuple(dims), rank, "move", (left,), reduce))
    return out


def _average(node: Node, x: Tensor, window: Window) -> None:
    size = math.prod(side.kernel for side in window)
    if _counted_by_length(node, window):
        _average_of_those_there(node, x, window, 1.0 / size)
        return
    counts = _counts(node, x, window)
    most = float(counts.max(initial=1))  # 1 where there are no windows
    if (counts == most).all():
        _window(node, x, window, node.out, "sum", (0.0 if padded(window) else None, 1.0 / most))
        return
    # At borders there are fewer: the sum over `size`, times `size` over how many there are.
    total = _window(node, x, window, f"{node.out}.sum", "sum", (0.0, 1.0 / size))
    weights = (size / counts).astype(np.float32)[None, None]
    node.step("", "mul", total, node.number("weights", weights))


def _counted_by_length(node: Node, window: Window) -> bool:
    """Whether the number of elements in a mean's window depends on a length."""
    include, ceil = (bool(node.attribute(name, 0)) for name in ("count_include_pad", "ceil_mode"))
    first = len(node.shape()) - len(window)
    sides = (window[axis - first] for axis in open_of(node.value(0)) if axis >= first)
    return any(ceil or (not include and padded((side,))) for side in sides)


def _average_of_those_there(node: Node, x: Tensor, window: Window, share: float) -> None:
    """A mean as the sum over a window divided by a sum of ones over the same window: a divisor that
    depends on a length is no constant."""
    total = _window(node, x, window, f"{node.out}.sum", "sum", (0.0, share))
    extents = x.shape[-len(window) :]
    if node.attribute("count_include_pad", 0):
        sides = zip(extents, window, strict=True)
        extents = tuple(n + side.before + side.behind for n, side in sides)
        window = tuple(side._replace(before=0, behind=0) for side in window)
    ones = node.number("ones", np.ones((1, 1, *extents)), total.dtype)
    counts = _window(node, ones, window, f"{node.out}.counts", "sum", (0.0, share))
    node.step("", "mul", total, node.step("factor", "reciprocal", counts))


def _counts(node: Node, x: Tensor, window: Window) -> Array:
    """Elements in each window of a mean, per output position."""
    include = bool(node.attribute("count_include_pad", 0))
    per_axis = []
    half = len(window)
    for side, given, made in zip(window, x.shape[-half:], node.shape()[-half:], strict=True):
        low, high = (-side.before, given + side.behind) if include else (0, given)
        starts = np.arange(made) * side.stride - side.before
        taps = starts[:, None] + np.arange(side.kernel) * side.dilation
        per_axis.append(((taps >= low) & (taps < high)).sum(1).astype(np.float64))
    counts: Array = functools.reduce(np.multiply.outer, per_axis)
    return np.maximum(counts, 1)


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(REDUCE, reduction), "MaxPool": pool, "AveragePool": pool,
}  # fmt: skip

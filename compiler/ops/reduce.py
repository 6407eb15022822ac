"""Reductions over whole axes and pooling over windows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from compiler.nest.ir import Access, Array, Dim, Nest, Tensor, at, dense, order_of
from compiler.ops.geometry import Geometry
from compiler.ops.node import Lowering, Node, NoNest

REDUCE = {
    "ReduceMean": "sum", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "GlobalAveragePool": "sum", "GlobalMaxPool": "max",
}  # fmt: skip


def reduction(node: Node) -> None:
    """Sum, mean, largest, smallest or product over axes."""
    x = node.tensor(0)
    rank = len(x.shape)
    axes = _axes(node, rank)
    kept_shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    order = order_of(x.shape, x.storage.strides)
    keep = node.op.startswith("Global") or bool(node.attribute("keepdims", 1))
    name = node.out if keep else f"{node.out}.kept"
    out = node.build.create(name, kept_shape, node.dtype(), order)
    count = math.prod(x.shape[axis] for axis in axes)
    mean = node.op in ("ReduceMean", "GlobalAveragePool")
    index = []
    dims = [Dim(f"d{axis}", n) for axis, n in enumerate(kept_shape)]
    for axis in range(rank):
        if axis in axes:
            index.append(at(len(dims)))
            dims.append(Dim(f"r{axis}", x.shape[axis]))
        else:
            index.append(at(axis))
    read = Access(x.name, tuple(index), None, 1.0 / count if mean else None)
    node.build.add(Nest(out.name, tuple(dims), rank, "move", (read,), REDUCE[node.op]))
    if not keep:
        _dropped(node, out, axes)


def _axes(node: Node, rank: int) -> set[int]:
    if node.op.startswith("Global"):
        return set(range(2, rank))
    given = node.data(1) if node.has(1) else node.attribute("axes")
    if node.has(1) and given is None:
        raise NoNest(f"{node.op} over computed axes")
    if given is None or len(np.asarray(given).reshape(-1)) == 0:
        if node.attribute("noop_with_empty_axes", 0):
            raise NoNest(f"{node.op} over no axes")
        return set(range(rank))
    return {int(axis) % rank for axis in np.asarray(given).reshape(-1)}


def _dropped(node: Node, kept: Tensor, axes: set[int]) -> None:
    strides = tuple(s for axis, s in enumerate(kept.storage.strides) if axis not in axes)
    node.build.view(node.out, node.shape(), replace(kept.storage, strides=strides), kept)


def pool(node: Node) -> None:
    """Largest or mean value of each window."""
    if len(node.node.outputs) > 1 and node.node.outputs[1].uses():
        raise NoNest("MaxPool with indices")
    x = node.tensor(0)
    spatial = len(x.shape) - 2
    if spatial not in (1, 2):
        raise NoNest(f"{node.op} in {spatial} dimensions")
    kernel = tuple(int(k) for k in node.attribute("kernel_shape"))
    point = Geometry.of(node, kernel)
    if node.op == "AveragePool":
        _average(node, x, point)
        return
    _window(node, x, point, node.out, "max", (-math.inf if point.padded else None, None))


def _window(
    node: Node,
    x: Tensor,
    point: Geometry,
    name: str,
    reduce: str,
    access: tuple[float | None, float | None],
) -> Tensor:
    shape = node.shape()
    rank = len(shape)
    out = node.build.create(name, shape, x.dtype if reduce == "max" else node.dtype())
    order = (0, *range(2, rank), 1)
    out = replace(out, storage=replace(out.storage, strides=dense(shape, order)))
    node.build.tensors[name] = out
    pad, scale = access
    # With ceil_mode the last windows may hang over the end even without pads.
    last = [
        (n - 1) * s + (k - 1) * d - p + 1
        for n, s, k, d, p in zip(
            shape[2:], point.strides, point.kernel, point.dilations, point.pads, strict=False
        )
    ]
    if pad is None and any(end > n for end, n in zip(last, x.shape[2:], strict=True)):
        pad = -math.inf if reduce == "max" else 0.0
    left = Access(x.name, (at(0), at(1), *point.index(2, rank)), pad, scale)
    names = "nchw" if rank == 4 else "ncl"
    dims = [*(Dim(names[axis], n) for axis, n in enumerate(shape)), *point.dims()]
    node.build.add(Nest(name, tuple(dims), rank, "move", (left,), reduce))
    return out


def _average(node: Node, x: Tensor, point: Geometry) -> None:
    size = math.prod(point.kernel)
    counts = _counts(node, x, point)
    if (counts == counts.flat[0]).all():
        scale = 1.0 / float(counts.flat[0])
        _window(node, x, point, node.out, "sum", (0.0 if point.padded else None, scale))
        return
    total = _window(node, x, point, f"{node.out}.sum", "sum", (0.0, 1.0 / size))
    weights = (size / counts).astype(np.float32)[None, None]
    factor = node.build.constant(f"{node.out}.weights", weights)
    out = node.build.elementwise(node.out, node.shape(), "mul", [total, factor], node.dtype())
    assert out.shape == total.shape


def _counts(node: Node, x: Tensor, point: Geometry) -> Array:
    """Elements that each window's mean is over, per output position."""
    include = bool(node.attribute("count_include_pad", 0))
    per_axis = []
    half = len(point.kernel)
    for axis, extent in enumerate(x.shape[2:]):
        before, after = point.pads[axis], point.pads[half + axis]
        low, high = (-before, extent + after) if include else (0, extent)
        starts = np.arange(node.shape()[2 + axis]) * point.strides[axis] - before
        taps = starts[:, None] + np.arange(point.kernel[axis]) * point.dilations[axis]
        per_axis.append(((taps >= low) & (taps < high)).sum(1).astype(np.float64))
    counts = per_axis[0] if half == 1 else np.outer(*per_axis)
    result: Array = np.maximum(counts, 1)
    return result


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(REDUCE, reduction),
    "MaxPool": pool,
    "AveragePool": pool,
}

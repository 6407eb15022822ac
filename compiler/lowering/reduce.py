"""Reductions over whole axes and pooling over windows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.lowering.contraction import Geometry
from compiler.lowering.node import Lowering, Node, NoNest
from compiler.tensor_ir.nest import Access, Array, Dim, Nest, Tensor, at, dense, order_of
from simmodel.arch.dtype import is_float

REDUCE = {
    "ReduceMean": "sum", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "GlobalAveragePool": "sum", "GlobalMaxPool": "max",
}  # fmt: skip

COMPOSED = {
    "ReduceL1": ("abs", None), "ReduceSumSquare": ("square", None), "ReduceL2": ("square", "sqrt"),
    "ReduceLogSum": (None, "log"),
}  # fmt: skip
"""Sums of a function, and a function of that sum."""


def reduction(node: Node) -> None:
    """Sum, mean, largest, smallest or product over axes."""
    x = node.tensor(0)
    axes = _axes(node, len(x.shape))
    mean = node.op in ("ReduceMean", "GlobalAveragePool")
    if x.elements == 0 or (mean and not is_float(node.dtype())):
        raise NoNest(f"{node.op} of {x.elements} elements of {node.dtype()}")
    if not axes:
        node.build.elementwise(node.out, x.shape, "move", [x], node.dtype())
        return
    count = math.prod(x.shape[axis] for axis in axes)
    scale = 1.0 / count if mean else None
    out = _total(node, x, axes, _kept_name(node), REDUCE[node.op], scale)
    _dropped(node, out, axes)


def composed(node: Node) -> None:
    """The sum of a function of each element, and a function of that."""
    before, after = COMPOSED[node.op]
    x, axes = _input(node, whole=after is None)
    if before is not None:
        x = node.build.elementwise(f"{node.out}.each", x.shape, before, [x], node.dtype())
    name = _kept_name(node)
    total = _total(node, x, axes, name if after is None else f"{node.out}.total", "sum")
    if after is not None:
        total = node.build.elementwise(name, total.shape, after, [total], node.dtype())
    _dropped(node, total, axes)


def log_sum_exp(node: Node) -> None:
    """log(sum(exp(x))), safe from overflow: the largest element is taken out first."""
    x, axes = _input(node, whole=False)
    make, out, kind = node.build.elementwise, node.out, node.dtype()
    top = _total(node, x, axes, f"{out}.top", "max")
    powers = make(f"{out}.below", x.shape, "sub", [x, top], kind)
    powers = make(f"{out}.powers", x.shape, "exp", [powers], kind)
    total = _total(node, powers, axes, f"{out}.total", "sum")
    logarithm = make(f"{out}.log", total.shape, "log", [total], kind)
    result = make(_kept_name(node), total.shape, "add", [logarithm, top], kind)
    _dropped(node, result, axes)


def _input(node: Node, *, whole: bool) -> tuple[Tensor, set[int]]:
    """Operand and axes of a reduction; integers only if its result is an integer, `whole`."""
    x = node.tensor(0)
    if x.elements == 0 or not (whole or is_float(node.dtype())):
        raise NoNest(f"{node.op} of {x.elements} elements of {node.dtype()}")
    node.build.composite = node.build.composite or node.out
    return x, _axes(node, len(x.shape))


def _kept_name(node: Node) -> str:
    """Name of the result with its reduced axes."""
    return node.out if _keeps(node) else f"{node.out}.kept"


def _keeps(node: Node) -> bool:
    return node.op.startswith("Global") or bool(node.attribute("keepdims", 1))


def _total(
    node: Node, x: Tensor, axes: set[int], name: str, reduce: str, scale: float | None = None
) -> Tensor:
    """`x`, scaled, reduced over `axes`, which remain with extent 1; in two steps if the elements of
    one result do not fit in a tile."""
    count = math.prod(x.shape[axis] for axis in axes)
    if count > node.limits.longest and reduce != "prod":
        return _in_parts(node, x, axes, name, reduce, scale)
    return _at_once(node, x, axes, name, reduce, scale)


def _in_parts(
    node: Node, x: Tensor, axes: set[int], name: str, reduce: str, scale: float | None
) -> Tensor:
    """Reduction in two steps, with about as many partial results as elements in each.

    Exact for the largest and smallest element; sums are added up in another order.
    """
    halves = _halved(node, x, axes, f"{name}.halves")
    if halves is None:
        return _at_once(node, x, axes, name, reduce, scale)
    node.build.composite = node.build.composite or node.out
    parts = _at_once(node, halves.x, halves.inner, f"{name}.parts", reduce, scale)
    if halves.cut is None:
        return _at_once(node, parts, halves.outer, name, reduce)
    whole = _at_once(node, parts, halves.outer, f"{name}.whole", reduce)
    kept = [axis for axis in range(len(whole.shape)) if axis != halves.cut]
    strides = tuple(whole.storage.strides[axis] for axis in kept)
    shape = tuple(whole.shape[axis] for axis in kept)
    return node.build.view(name, shape, replace(whole.storage, strides=strides), whole)


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
            return _split_axis_view(
                node, x, axes, outer, axis, _divisor(extent, wanted // size), name
            )
        outer.add(axis)
        size *= extent
        if size >= wanted:
            break
    return _Halves(x, outer, axes - outer)


def _divisor(extent: int, wanted: int) -> int:
    """The divisor of `extent` closest to `wanted`, as a ratio."""
    divisors = (d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0)
    both = {d for small in divisors for d in (small, extent // small)}
    return min(sorted(both), key=lambda d: max(d, wanted) / min(d, wanted))


def _split_axis_view(
    node: Node, x: Tensor, axes: set[int], outer: set[int], axis: int, parts: int, name: str
) -> _Halves | None:
    """`axis` of `x` as `parts` times the rest, by a view."""
    if parts in (1, x.shape[axis]):
        return _Halves(x, outer, axes - outer) if outer else None
    each = x.shape[axis] // parts
    step = x.storage.strides[axis]
    shape = (*x.shape[:axis], parts, each, *x.shape[axis + 1 :])
    strides = (*x.storage.strides[:axis], step * each, step, *x.storage.strides[axis + 1 :])
    view = node.build.view(name, shape, replace(x.storage, strides=strides), x)

    def moved(group: set[int]) -> set[int]:
        return {other + (other > axis) for other in group}

    return _Halves(view, moved(outer) | {axis}, moved(axes - outer - {axis}) | {axis + 1}, axis + 1)


def _at_once(
    node: Node, x: Tensor, axes: set[int], name: str, reduce: str, scale: float | None = None
) -> Tensor:
    rank = len(x.shape)
    kept_shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    out = node.build.create(name, kept_shape, node.dtype(), order_of(x.shape, x.storage.strides))
    index = []
    dims = [Dim(f"d{axis}", n) for axis, n in enumerate(kept_shape)]
    for axis in range(rank):
        if axis in axes:
            index.append(at(len(dims)))
            dims.append(Dim(f"r{axis}", x.shape[axis]))
        else:
            index.append(at(axis))
    read = Access(x.name, tuple(index), None, scale)
    node.build.add(Nest(name, tuple(dims), rank, "move", (read,), reduce))
    return out


def _axes(node: Node, rank: int) -> set[int]:
    if node.op.startswith("Global"):
        return set(range(2, rank))
    given = node.data(1) if node.has(1) else node.attribute("axes")
    if node.has(1) and given is None:
        raise NoNest(f"{node.op} over computed axes")
    if given is None or len(np.asarray(given).reshape(-1)) == 0:
        if node.attribute("noop_with_empty_axes", 0):
            if node.op not in REDUCE:
                raise NoNest(f"{node.op} over no axes")  # whether its function stays is disputed
            return set()
        return set(range(rank))
    return {int(axis) % rank for axis in np.asarray(given).reshape(-1)}


def _dropped(node: Node, kept: Tensor, axes: set[int]) -> None:
    """The result without its reduced axes, if it drops them."""
    if _keeps(node):
        return
    strides = tuple(s for axis, s in enumerate(kept.storage.strides) if axis not in axes)
    node.build.view(node.out, node.shape(), replace(kept.storage, strides=strides), kept)


def pool(node: Node) -> None:
    """Largest or mean value of each window."""
    indices = node.node.outputs[1:]
    if any(value.uses() or value.is_graph_output() for value in indices):
        raise NoNest("MaxPool with indices")
    x = node.tensor(0)
    kernel = tuple(int(k) for k in node.attribute("kernel_shape"))
    point = Geometry.of(node, kernel).planes
    if len(point.kernel) not in (1, 2):
        raise NoNest(f"{node.op} in {len(point.kernel)} dimensions")
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
    first = len(x.shape) - len(point.kernel)
    shape = (*x.shape[:first], *node.shape()[-len(point.kernel) :])
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
            shape[first:], point.strides, point.kernel, point.dilations, point.pads, strict=False
        )
    ]
    if pad is None and any(end > n for end, n in zip(last, x.shape[first:], strict=True)):
        pad = -math.inf if reduce == "max" else 0.0
    window = (*map(at, range(first)), *point.index(first, rank))
    left = Access(x.name, window, pad, scale)
    names = {3: "ncl", 4: "nchw"}.get(rank, "ncdhw")
    dims = [*(Dim(names[axis], n) for axis, n in enumerate(shape)), *point.dims()]
    node.build.add(Nest(name, tuple(dims), rank, "move", (left,), reduce))
    return out


def _average(node: Node, x: Tensor, point: Geometry) -> None:
    size = math.prod(point.kernel)
    if _counted_by_length(node, point):
        _average_of_those_there(node, x, point)
        return
    counts = _counts(node, x, point)
    most = float(counts.max(initial=1))  # 1 where there are no windows
    if (counts == most).all():
        scale = 1.0 / most
        _window(node, x, point, node.out, "sum", (0.0 if point.padded else None, scale))
        return
    # At borders there are fewer: the sum over `size`, times `size` over how many there are.
    total = _window(node, x, point, f"{node.out}.sum", "sum", (0.0, 1.0 / size))
    weights = (size / counts).astype(np.float32)[None, None]
    factor = node.build.constant(f"{node.out}.weights", weights)
    out = node.build.elementwise(node.out, node.shape(), "mul", [total, factor], node.dtype())
    assert out.shape == total.shape


def _counted_by_length(node: Node, point: Geometry) -> bool:
    """Whether the number of elements in a mean's window depends on a length."""
    include, ceil = (bool(node.attribute(name, 0)) for name in ("count_include_pad", "ceil_mode"))
    first, half = len(node.shape()) - len(point.kernel), len(point.kernel)
    open_ = (axis - first for axis in open_of(node.value(0)) if axis >= first)
    return any(
        ceil or (not include and (point.pads[axis] or point.pads[half + axis])) for axis in open_
    )


def _average_of_those_there(node: Node, x: Tensor, point: Geometry) -> None:
    """A mean as the sum over a window divided by a sum of ones over the same window: a divisor that
    depends on a length is no constant."""
    make, out, share = node.build.elementwise, node.out, 1.0 / math.prod(point.kernel)
    total = _window(node, x, point, f"{out}.sum", "sum", (0.0, share))
    extents, ours = x.shape[-len(point.kernel) :], point
    if node.attribute("count_include_pad", 0):
        half = len(point.kernel)
        sides = zip(point.pads[:half], extents, point.pads[half:], strict=True)
        extents = tuple(map(sum, sides))
        ours = Geometry(point.kernel, point.strides, None, point.dilations)
    ones = node.build.constant(f"{out}.ones", np.ones((1, 1, *extents), np.float32), total.dtype)
    counts = _window(node, ones, ours, f"{out}.counts", "sum", (0.0, share))
    factor = make(f"{out}.factor", counts.shape, "reciprocal", [counts], total.dtype)
    make(out, total.shape, "mul", [total, factor], total.dtype)


def _counts(node: Node, x: Tensor, point: Geometry) -> Array:
    """Elements in each window of a mean, per output position."""
    include = bool(node.attribute("count_include_pad", 0))
    per_axis = []
    half = len(point.kernel)
    for axis, extent in enumerate(x.shape[-half:]):
        before, after = point.pads[axis], point.pads[half + axis]
        low, high = (-before, extent + after) if include else (0, extent)
        starts = np.arange(node.shape()[axis - half]) * point.strides[axis] - before
        taps = starts[:, None] + np.arange(point.kernel[axis]) * point.dilations[axis]
        per_axis.append(((taps >= low) & (taps < high)).sum(1).astype(np.float64))
    counts = per_axis[0] if half == 1 else np.outer(*per_axis)
    result: Array = np.maximum(counts, 1)
    return result


def local_response(node: Node) -> None:
    """y = x / (bias + alpha / size * sum of squares over nearby channels) ** beta.

    The sum is a 1x1 convolution by a band of ones, so that the matrix engine does it.
    """
    x = node.tensor(0)
    size, channels, kind = int(node.attribute("size")), x.shape[1], node.dtype()
    alpha, beta = (float(node.attribute("alpha", 0.0001)), float(node.attribute("beta", 0.75)))
    make, out, rank = node.build.elementwise, node.out, len(x.shape)
    node.build.composite = node.build.composite or out
    # alpha / size goes into the squares, so that the band is of ones, which every type can hold.
    squares = make(f"{out}.squares", x.shape, "square", [x], kind, (math.sqrt(alpha / size), 0))
    distance = np.arange(channels)[None] - np.arange(channels)[:, None]
    band = (distance >= -((size - 1) // 2)) & (distance <= size // 2)
    weights = node.build.constant(f"{out}.band", band.astype(np.float32))
    base = np.full(channels, float(node.attribute("bias", 1.0)), np.float32)
    bias = node.build.constant(f"{out}.base", base, "fp32")
    sums = node.build.create(
        f"{out}.sums", x.shape, kind, order_of(x.shape, squares.storage.strides)
    )
    dims = [*(Dim(f"d{axis}", n) for axis, n in enumerate(x.shape)), Dim("c", channels)]
    left = Access(squares.name, tuple(at(rank if axis == 1 else axis) for axis in range(rank)))
    right = Access(weights.name, (at(1), at(rank)))
    node.build.add(
        Nest(sums.name, tuple(dims), rank, "mul", (left, right), "sum",
             bias=Access(bias.name, (at(1),)))
    )  # fmt: skip
    exponent = node.build.constant(f"{out}.exponent", np.array(-beta, np.float32))
    factors = make(f"{out}.factors", x.shape, "pow", [sums, exponent], kind)
    make(out, x.shape, "mul", [x, factors], kind)


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(REDUCE, reduction),
    **dict.fromkeys(COMPOSED, composed),
    "ReduceLogSumExp": log_sum_exp,
    "LRN": local_response,
    "MaxPool": pool,
    "AveragePool": pool,
}

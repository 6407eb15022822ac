"""Axes, shapes and ranges as explicit non-negative constants, for lowering to read plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.operators.upgrade import REDUCTIONS
from compiler.frontend.quantization.narrow_constants import NARROW, narrow_of
from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    ints_attr,
    is_op,
    required,
    set_attrs,
    static_shape,
    str_attr,
)


@dataclass(frozen=True)
class NormalizeAxes(GraphPass):
    """Write out what ONNX leaves to defaults, negative numbers, 0 and -1.

        r = ReduceMean(x)                      =>   r = ReduceMean <keepdims=1> (x, [0, 1, 2])
        s = Reshape(x, [0, -1])                =>   s = Reshape(x, [2, 12])
        t = Slice(x, [-2], [9999], [-1])       =>   t = Slice(x, [2], [4], [2], [1])

    Also Transpose's perm, Split's sizes, Expand's shape and the axis attribute of Concat, Gather,
    Split, ArgMax, ArgMin, TopK, GatherElements, ScatterElements and Hardmax.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Normalize one node."""
        if node.domain or not node.inputs or node.inputs[0] is None:
            return False
        changed = _normalize_axis(node)
        normalize = NORMALIZERS.get(node.op_type)
        return (normalize is not None and normalize(node)) or changed


AXIS_DEFAULTS = {
    "Hardmax": -1, "TopK": -1, "ArgMax": 0, "ArgMin": 0, "Concat": 0, "Gather": 0,
    "GatherElements": 0, "ScatterElements": 0, "Split": 0,
}  # fmt: skip


def _normalize_axis(node: ir.Node) -> bool:
    default = AXIS_DEFAULTS.get(node.op_type)
    if default is None:
        return False
    rank = max(1, len(static_shape(required(node, 0))))
    return set_attrs(node, {"axis": int_attr(node, "axis", default) % rank})


def _set_constant(node: ir.Node, index: int, numbers: Sequence[int]) -> bool:
    """Let input `index` be the int64 vector `numbers`; whether it was not."""
    wanted = np.asarray(numbers, dtype=np.int64)
    old = const(input_of(node, index))
    if old is not None and old.dtype == wanted.dtype and np.array_equal(old, wanted):
        return False
    if len(node.inputs) <= index:
        node.resize_inputs(index + 1)
    node.replace_input_with(index, Rewriter(node).axes(wanted.tolist()))
    return True


def _reduction(node: ir.Node) -> bool:
    rank = len(static_shape(required(node, 0)))
    given, axes = input_of(node, 1), const(input_of(node, 1))
    if given is not None and axes is None:
        return False
    if axes is None or not axes.size:
        if int_attr(node, "noop_with_empty_axes", 0):
            return False
        chosen = list(range(rank))
    else:
        chosen = sorted(int(axis) % rank for axis in axes.reshape(-1))
    attributes = {"keepdims": int_attr(node, "keepdims", 1), "noop_with_empty_axes": 0}
    return set_attrs(node, attributes) | _set_constant(node, 1, chosen)


def _result_shape(node: ir.Node) -> bool:
    """Reshape and Expand: the shape input is the shape of the result."""
    had = node.attributes.pop("allowzero", None) is not None
    return _set_constant(node, 1, static_shape(node.outputs[0])) or had


def _transpose(node: ir.Node) -> bool:
    rank = len(static_shape(required(node, 0)))
    return set_attrs(node, {"perm": ints_attr(node, "perm") or list(reversed(range(rank)))})


def _normalize_split(node: ir.Node) -> bool:
    axis = int_attr(node, "axis", 0)
    had = node.attributes.pop("num_outputs", None) is not None
    return _set_constant(node, 1, [static_shape(out)[axis] for out in node.outputs]) or had


def _slice(node: ir.Node) -> bool:
    """Clamp to the extents; a range running backwards to the start ends at -(extent + 1)."""
    shape = static_shape(required(node, 0))
    given = [const(input_of(node, index)) for index in range(1, 5)]
    absent = [input_of(node, index) is None for index in range(1, 5)]
    if any(a is None and not gone for a, gone in zip(given, absent, strict=True)):
        return False
    count = 0 if given[0] is None else given[0].size
    defaults = (range(0), range(0), range(count), [1] * count)
    starts, ends, axes, steps = (
        [int(n) for n in (default if array is None else array.reshape(-1))]
        for array, default in zip(given, defaults, strict=True)
    )
    axes = [axis % len(shape) for axis in axes]
    ranges = [
        slice(start, end, step).indices(shape[axis])
        for start, end, step, axis in zip(starts, ends, steps, axes, strict=True)
    ]
    stops = [
        stop if stop >= 0 else -shape[axis] - 1
        for (_, stop, _), axis in zip(ranges, axes, strict=True)
    ]
    firsts = [start for start, _, _ in ranges]
    changes = [
        _set_constant(node, index + 1, numbers)
        for index, numbers in enumerate((firsts, stops, axes, steps))
    ]
    return any(changes)


NORMALIZERS: dict[str, Callable[[ir.Node], bool]] = {
    "Expand": _result_shape,
    "Reshape": _result_shape,
    "Slice": _slice,
    "Split": _normalize_split,
    "Transpose": _transpose,
    **dict.fromkeys(REDUCTIONS, _reduction),
}


# Every window operator with all its attributes written out.


@dataclass(frozen=True)
class NormalizeConv(GraphPass):
    """Explicit kernel_shape, strides, pads, dilations, group; no auto_pad, no output_shape.

        Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (x, w)
     =>
        Conv <kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], dilations=[1, 1], group=1>

    Pools get count_include_pad and ceil_mode too; ceil_mode=1 becomes the end padding that it
    stands for, except where an average would count that padding, or has another one at each length
    of an open axis.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Normalize one Conv, ConvInteger, ConvTranspose or pool of any rank."""
        if is_op(node, "Conv", "ConvInteger"):
            return _normalize(node, _kernel_of(node), {"group": int_attr(node, "group", 1)})
        if is_op(node, "ConvTranspose"):
            return _normalize_transpose(node)
        if is_op(node, "MaxPool", "AveragePool", "LpPool"):
            return _normalize_pool(node)
        return False


def _kernel_of(node: ir.Node) -> list[int]:
    return list(static_shape(required(node, 1))[2:])


def _extents(kernel: list[int], dilations: list[int]) -> list[int]:
    """The window's extent in the input, per dimension."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def _split_padding(total: list[int], upper: bool) -> list[int]:
    """`total` padding per dimension as begins, then ends; the odd one last if `upper`."""
    less = [max(0, t) // 2 for t in total]
    more = [max(0, t) - n for t, n in zip(total, less, strict=True)]
    return [*less, *more] if upper else [*more, *less]


def _same_pads(node: ir.Node, windows: list[int], strides: list[int], upper: bool) -> list[int]:
    """Padding that makes the output ceil(input / stride) wide."""
    extents = static_shape(required(node, 0))[2:]
    total = [
        (-(-n // s) - 1) * s + w - n for n, s, w in zip(extents, strides, windows, strict=True)
    ]
    return _split_padding(total, upper)


def _normalize(node: ir.Node, kernel: list[int], more: dict[str, int]) -> bool:
    rank = len(kernel)
    strides = ints_attr(node, "strides", [1] * rank) or []
    dilations = ints_attr(node, "dilations", [1] * rank) or []
    auto_pad = str_attr(node, "auto_pad", "NOTSET")
    if auto_pad.startswith("SAME"):
        windows = _extents(kernel, dilations)
        pads = _same_pads(node, windows, strides, auto_pad == "SAME_UPPER")
    else:
        pads = (ints_attr(node, "pads") if auto_pad == "NOTSET" else None) or [0] * (2 * rank)
    had = node.attributes.pop("auto_pad", None) is not None
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    return set_attrs(node, {**window, **more}) or had


def _normalize_pool(node: ir.Node) -> bool:
    kernel = ints_attr(node, "kernel_shape") or []
    more = {"ceil_mode": int_attr(node, "ceil_mode", 0)}
    if node.op_type == "AveragePool":
        more["count_include_pad"] = int_attr(node, "count_include_pad", 0)
    if node.op_type == "MaxPool":
        more["storage_order"] = int_attr(node, "storage_order", 0)
    changed = _normalize(node, kernel, more)
    if not more["ceil_mode"] or more.get("count_include_pad") or _by_length(node):
        return changed
    strides, pads = ints_attr(node, "strides") or [], ints_attr(node, "pads") or []
    windows = _extents(kernel, ints_attr(node, "dilations") or [])
    extents = static_shape(required(node, 0))[2:]
    outputs = static_shape(node.outputs[0])[2:]
    rank = len(kernel)
    for i in range(rank):
        reach = (outputs[i] - 1) * strides[i] + windows[i] - extents[i] - pads[i]
        pads[rank + i] = max(pads[rank + i], reach)
    set_attrs(node, {"pads": pads, "ceil_mode": 0})
    return True


def _by_length(node: ir.Node) -> bool:
    """Whether the padding of `ceil_mode` is another one at each length. What LpPool becomes counts
    all of it."""
    return node.op_type != "LpPool" and any(axis > 1 for axis in open_of(required(node, 0)))


def _normalize_transpose(node: ir.Node) -> bool:
    kernel = _kernel_of(node)
    rank = len(kernel)
    strides = ints_attr(node, "strides", [1] * rank) or []
    dilations = ints_attr(node, "dilations", [1] * rank) or []
    extra = ints_attr(node, "output_padding", [0] * rank) or []
    auto_pad = str_attr(node, "auto_pad", "NOTSET")
    wanted = ints_attr(node, "output_shape")
    extents = static_shape(required(node, 0))[2:]
    if wanted is not None or auto_pad.startswith("SAME"):
        target = (wanted or [n * s for n, s in zip(extents, strides, strict=True)])[-rank:]
        windows = _extents(kernel, dilations)
        total = [
            strides[i] * (extents[i] - 1) + extra[i] + windows[i] - target[i] for i in range(rank)
        ]
        pads = _split_padding(total, auto_pad == "SAME_UPPER")
        extra = [n + max(0, -t) for n, t in zip(extra, total, strict=True)]
    else:
        pads = (ints_attr(node, "pads") if auto_pad == "NOTSET" else None) or [0] * (2 * rank)
    had = [node.attributes.pop(name, None) for name in ("auto_pad", "output_shape")]
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    changed = set_attrs(node, {**window, "group": int_attr(node, "group", 1)})
    changed |= set_attrs(node, {"output_padding": extra})
    return changed or any(attr is not None for attr in had)


# Gemm as a MatMul with a [K, N] right operand and an Add.


@dataclass(frozen=True)
class NormalizeGemm(GraphPass):
    """Transpositions and factors move into constants where there are any.

    y = Gemm <alpha=2, transB=1> (a, w, c)     =>     p = MatMul(a, 2 * w.T); y = Add(p, c)
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset({"Gemm"})

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one Gemm."""
        if not is_op(node, "Gemm"):
            return False
        make = Rewriter(node)
        left = _transposed(make, required(node, 0), bool(int_attr(node, "transA", 0)))
        make.replace(product_of(make, left))
        return True


def product_of(make: Rewriter, left: ir.Value) -> ir.Value:
    """The Gemm that `make` stands at as a MatMul and an Add, of `left` in the place of its first
    operand, which may have more axes."""
    node = make.anchor
    right = _transposed(make, required(node, 1), bool(int_attr(node, "transB", 0)))
    alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
    bias = input_of(node, 2)
    if const(right) is not None:
        made = make.op("MatMul", [left, _scaled(make, right, alpha)])
    else:
        made = _scaled(make, make.op("MatMul", [left, right]), alpha)
    if bias is not None and beta != 0:
        made = make.op("Add", [made, _scaled(make, bias, beta)])
    return made


def _transposed(make: Rewriter, value: ir.Value, needed: bool) -> ir.Value:
    if not needed:
        return value
    numbers = const(value)
    if numbers is not None:
        made, narrow = make.constant(numbers.T), narrow_of(value)
        if narrow is not None:
            made.meta[NARROW] = narrow.transposed((1, 0))
        return made
    return make.op("Transpose", [value], {"perm": [1, 0]})


def _scaled(make: Rewriter, value: ir.Value, factor: float) -> ir.Value:
    if factor == 1.0:
        return value
    numbers = const(value)
    if numbers is not None:
        return make.like(numbers * np.asarray(factor, dtype=numbers.dtype), value)
    return make.op("Mul", [value, make.like(np.asarray(factor), value)])

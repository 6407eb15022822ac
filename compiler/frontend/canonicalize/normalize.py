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
    AttrValue,
    GraphPass,
    Rewriter,
    const,
    input_of,
    ints_attr,
    is_const,
    is_op,
    lazy,
    required,
    set_attrs,
    static_shape,
)
from simmodel.arch.lazy_array import transformed


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
        if node.domain or not node.inputs or node.inputs[0] is None:
            return False
        changed, default = False, AXIS_DEFAULTS.get(node.op_type)
        if default is not None:
            rank = max(1, len(static_shape(node.inputs[0])))
            changed = set_attrs(node, {"axis": node.attributes.get_int("axis", default) % rank})
        normalize = NORMALIZERS.get(node.op_type)
        return (normalize is not None and normalize(node)) or changed


AXIS_DEFAULTS = {
    "Hardmax": -1, "TopK": -1, "ArgMax": 0, "ArgMin": 0, "Concat": 0, "Gather": 0,
    "GatherElements": 0, "ScatterElements": 0, "Split": 0,
}  # fmt: skip


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
    if axes is not None and axes.size:
        chosen = sorted(int(axis) % rank for axis in axes.reshape(-1))
    elif node.attributes.get_int("noop_with_empty_axes", 0):
        return False
    else:
        chosen = list(range(rank))
    attributes = {"keepdims": node.attributes.get_int("keepdims", 1), "noop_with_empty_axes": 0}
    return set_attrs(node, attributes) | _set_constant(node, 1, chosen)


def _result_shape(node: ir.Node) -> bool:
    """Reshape and Expand: the shape input is the shape of the result."""
    had = node.attributes.pop("allowzero", None) is not None
    return _set_constant(node, 1, static_shape(node.outputs[0])) or had


def _transpose(node: ir.Node) -> bool:
    rank = len(static_shape(required(node, 0)))
    return set_attrs(node, {"perm": ints_attr(node, "perm") or list(reversed(range(rank)))})


def _normalize_split(node: ir.Node) -> bool:
    axis = node.attributes.get_int("axis", 0)
    had = node.attributes.pop("num_outputs", None) is not None
    return _set_constant(node, 1, [static_shape(out)[axis] for out in node.outputs]) or had


def _slice(node: ir.Node) -> bool:
    """Clamp to the extents; a range running backwards to the start ends at -(extent + 1)."""
    shape = static_shape(required(node, 0))
    given = {i: const(value) for i in range(1, 5) if (value := input_of(node, i)) is not None}
    numbers = {i: array.reshape(-1).tolist() for i, array in given.items() if array is not None}
    if len(numbers) < len(given):
        return False
    count = len(numbers[1])
    columns = (numbers[1], numbers[2], numbers.get(3, range(count)), numbers.get(4, [1] * count))
    cuts = []
    for start, end, axis, step in zip(*columns, strict=True):
        first, stop, _ = slice(start, end, step).indices(shape[axis])
        cuts.append((first, stop if stop >= 0 else -shape[axis] - 1, axis % len(shape), step))
    wanted = enumerate(zip(*cuts, strict=True) if cuts else [()] * 4, 1)
    return sum([_set_constant(node, index, each) for index, each in wanted]) > 0


NORMALIZERS: dict[str, Callable[[ir.Node], bool]] = {
    "Expand": _result_shape,
    "Reshape": _result_shape,
    "Slice": _slice,
    "Split": _normalize_split,
    "Transpose": _transpose,
    **dict.fromkeys(REDUCTIONS, _reduction),
}


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
        if is_op(node, "Conv", "ConvInteger", "ConvTranspose"):
            kernel = list(static_shape(required(node, 1))[2:])
            return _normalize(node, kernel, {"group": node.attributes.get_int("group", 1)})
        if is_op(node, "MaxPool", "AveragePool", "LpPool"):
            return _normalize_pool(node)
        return False


def _windows(kernel: list[int], dilations: list[int]) -> list[int]:
    """The window's extent in the input, per dimension."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def _normalize(node: ir.Node, kernel: list[int], more: dict[str, AttrValue]) -> bool:
    rank, extents = len(kernel), static_shape(required(node, 0))[2:]
    strides, dilations, extra = (
        ints_attr(node, name, [usual] * rank) or []
        for name, usual in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    auto_pad = node.attributes.get_string("auto_pad", "NOTSET")
    target = ints_attr(node, "output_shape")
    transposed, same = is_op(node, "ConvTranspose"), auto_pad.startswith("SAME")
    sides = list(zip(extents, strides, _windows(kernel, dilations), strict=True))
    pads = (ints_attr(node, "pads") if auto_pad == "NOTSET" else None) or [0] * (2 * rank)
    if transposed and (same or target is not None):
        target = (target or [n * s for n, s, _ in sides])[-rank:]
        least = [(n - 1) * s + w for n, s, w in sides]
        total = [n + e - t for n, e, t in zip(least, extra, target, strict=True)]
        extra = [n + max(0, -t) for n, t in zip(extra, total, strict=True)]
        pads = _split_padding(total, auto_pad == "SAME_UPPER")
    elif same:  # the result is ceil(input / stride) wide
        total = [(-(-n // s) - 1) * s + w - n for n, s, w in sides]
        pads = _split_padding(total, auto_pad == "SAME_UPPER")
    gone = [node.attributes.pop(name, None) for name in ("auto_pad", "output_shape")]
    window = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    own = {"output_padding": extra} if transposed else {}
    return set_attrs(node, {**window, **more, **own}) or any(each is not None for each in gone)


def _split_padding(total: list[int], upper: bool) -> list[int]:
    """`total` padding per dimension as begins, then ends; the odd one last if `upper`."""
    less = [max(0, t) // 2 for t in total]
    more = [max(0, t) - n for t, n in zip(total, less, strict=True)]
    return [*less, *more] if upper else [*more, *less]


def _normalize_pool(node: ir.Node) -> bool:
    kernel = ints_attr(node, "kernel_shape") or []
    more: dict[str, AttrValue] = {"ceil_mode": node.attributes.get_int("ceil_mode", 0)}
    own = {"AveragePool": "count_include_pad", "MaxPool": "storage_order"}.get(node.op_type)
    if own is not None:
        more[own] = node.attributes.get_int(own, 0)
    changed = _normalize(node, kernel, more)
    # At each length of an open axis the padding is another one; LpPool becomes what counts it.
    by_length = node.op_type != "LpPool" and any(a > 1 for a in open_of(required(node, 0)))
    if not more["ceil_mode"] or more.get("count_include_pad") or by_length:
        return changed
    strides, pads = ints_attr(node, "strides") or [], ints_attr(node, "pads") or []
    windows = _windows(kernel, ints_attr(node, "dilations") or [])
    extents, outputs = (static_shape(v)[2:] for v in (required(node, 0), node.outputs[0]))
    for i, stride in enumerate(strides):
        reach = (outputs[i] - 1) * stride + windows[i] - extents[i] - pads[i]
        pads[len(kernel) + i] = max(pads[len(kernel) + i], reach)
    set_attrs(node, {"pads": pads, "ceil_mode": 0})
    return True


@dataclass(frozen=True)
class NormalizeGemm(GraphPass):
    """Transpositions and factors move into constants where there are any.

    y = Gemm <alpha=2, transB=1> (a, w, c)     =>     p = MatMul(a, 2 * w.T); y = Add(p, c)
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset({"Gemm"})

    def rewrite(self, node: ir.Node) -> bool:
        if not is_op(node, "Gemm"):
            return False
        make = Rewriter(node)
        left = _transposed(make, required(node, 0), bool(node.attributes.get_int("transA", 0)))
        make.replace(product_of(make, left))
        return True


def product_of(make: Rewriter, left: ir.Value) -> ir.Value:
    """The Gemm that `make` stands at as a MatMul and an Add, of `left` in the place of its first
    operand, which may have more axes."""
    node = make.anchor
    right = _transposed(make, required(node, 1), bool(node.attributes.get_int("transB", 0)))
    alpha, beta = node.attributes.get_float("alpha", 1.0), node.attributes.get_float("beta", 1.0)
    bias, constant = input_of(node, 2), is_const(right)
    made = make.op("MatMul", [left, _scaled(make, right, alpha) if constant else right])
    made = made if constant else _scaled(make, made, alpha)
    if bias is not None and beta != 0:
        made = make.op("Add", [made, _scaled(make, bias, beta)])
    return made


def _transposed(make: Rewriter, value: ir.Value, needed: bool) -> ir.Value:
    if not needed:
        return value
    if not is_const(value) or value.const_value is None:
        return make.op("Transpose", [value], {"perm": [1, 0]})
    made = make.constant(transformed(lazy(value.const_value), np.transpose))
    narrow = narrow_of(value)
    if narrow is not None:
        made.meta[NARROW] = narrow.transposed((1, 0))
    return made


def _scaled(make: Rewriter, value: ir.Value, factor: float) -> ir.Value:
    if factor == 1.0:
        return value
    numbers = const(value)
    if numbers is not None:
        return make.like(numbers * np.asarray(factor, dtype=numbers.dtype), value)
    return make.op("Mul", [value, make.like(np.asarray(factor), value)])

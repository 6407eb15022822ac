"""Windows as simpler windows: three dimensions as two, norms as means.

The one idea: what slides along the depth slides apart from what slides along rows and columns. The
largest of a box is the largest of rows of planes, its mean the mean of means, for each place counts
what it counts along its own axis. A convolution over the depth has a plane's channels and those of
the planes behind it side by side; a transposed one adds up planes that overlap. Depth is part of
the channels of a pool and of the batch of a convolution, so that rows and columns stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    const,
    input_of,
    int_attr,
    ints_attr,
    is_op,
    required,
    static_shape,
)

DEPTH_LAST = [0, 2, 1, 3, 4]
"""Depth and channels change places."""


@dataclass(frozen=True)
class DecomposeWindows(GraphPass):
    """Windows of three dimensions, and LpPool.

       y = MaxPool <kernel_shape=[2, 3, 3]> (x)            # x of [1, 4, 6, 9, 9]
    =>
       a = Reshape(x, [1, 24, 9, 9]); b = MaxPool <kernel_shape=[3, 3]> (a)
       c = Reshape(b, [1, 4, 6, 49]); d = MaxPool <kernel_shape=[2, 1]> (c)
       y = Reshape(d, [1, 4, 5, 7, 7])
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one window operator, whose attributes are all written out."""
        made: tuple[ir.Value, ...] = ()
        make = Rewriter(node, composite=node.name)
        if _in_planes(node):
            return False
        if is_op(node, "MaxPool") and _wanted(node, 1):
            return False  # places in the input as well
        if is_op(node, "MaxPool", "AveragePool") and _spatial(node) == 3:
            made = (_pooled(make, node.op_type, required(node, 0), WindowAttributes.of(node)),)
        elif is_op(node, "LpPool"):
            made = (_norm(node, make),)
        elif is_op(node, "Conv", "ConvTranspose") and _spatial(node) == 3 and _is_weight(node):
            expand = _conv_planes if node.op_type == "Conv" else _conv_transpose
            made = (expand(node, make),)
        if made:
            make.replace(*made)
        return bool(made)


def _in_planes(node: ir.Node) -> bool:
    """Whether nothing slides along the first of three dimensions, and it is open: what it would be
    merged with could not be told from it."""
    if not is_op(node, "Conv", "MaxPool", "AveragePool") or 2 not in open_of(required(node, 0)):
        return False
    window = WindowAttributes.of(node)
    sides = zip(window.kernel, window.strides, window.before, window.behind, strict=True)
    return len(window.kernel) == 3 and next(sides) == (1, 1, 0, 0) and not _wanted(node, 1)


def _spatial(node: ir.Node) -> int:
    return len(static_shape(required(node, 0))) - 2


def _wanted(node: ir.Node, output: int) -> bool:
    return any(out.uses() or out.is_graph_output() for out in node.outputs[output : output + 1])


def _is_weight(node: ir.Node) -> bool:
    """Whether the second input is a constant, or integers that stand for one."""
    weights = required(node, 1)
    maker = weights.producer()
    if is_op(maker, "DequantizeLinear") and maker is not None:
        return const(maker.inputs[0]) is not None
    return const(weights) is not None


@dataclass(frozen=True)
class WindowAttributes:
    """Kernel, strides, dilations, pads before and behind, per dimension; other attributes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]
    more: dict[str, int]

    @classmethod
    def of(cls, node: ir.Node) -> WindowAttributes:
        kernel, strides, dilations, pads = (
            tuple(ints_attr(node, name) or ())
            for name in ("kernel_shape", "strides", "dilations", "pads")
        )
        kept = ("ceil_mode", "count_include_pad", "group")
        return cls(
            kernel, strides, dilations, pads[: len(kernel)], pads[len(kernel) :],
            {name: int_attr(node, name, 0) for name in kept if name in node.attributes},
        )  # fmt: skip

    def along(self, axes: Sequence[int]) -> WindowAttributes:
        """The part of `axes`."""

        def part(field: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(field[axis] for axis in axes)

        return WindowAttributes(
            part(self.kernel), part(self.strides), part(self.dilations),
            part(self.before), part(self.behind), self.more,
        )  # fmt: skip

    def upright(self) -> WindowAttributes:
        """With a second dimension in which nothing slides."""
        return WindowAttributes(
            (*self.kernel, 1), (*self.strides, 1), (*self.dilations, 1),
            (*self.before, 0), (*self.behind, 0), self.more,
        )  # fmt: skip

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "kernel_shape": self.kernel, "strides": self.strides, "dilations": self.dilations,
            "pads": (*self.before, *self.behind), **self.more,
        }  # fmt: skip


def reshaped(make: Rewriter, x: ir.Value, *shape: int) -> ir.Value:
    """`x` in another shape; an extent of 0 is one, and none that is kept from `x`."""
    attributes = {"allowzero": 1} if 0 in shape else {}
    return make.op("Reshape", [x, make.axes(shape)], attributes)


def _pooled(make: Rewriter, op_type: str, x: ir.Value, window: WindowAttributes) -> ir.Value:
    """A pool of any number of dimensions: of three, planes first, then along the depth."""
    if len(window.kernel) < 3:
        return make.op(op_type, [x], window.attributes)
    batch, channels, depth, *plane = static_shape(x)
    planes = reshaped(make, x, batch, channels * depth, *plane)
    pooled = make.op(op_type, [planes], window.along((1, 2)).attributes)
    small = static_shape(pooled)[2:]
    columns = reshaped(make, pooled, batch, channels, depth, prod(small))
    through = make.op(op_type, [columns], window.along((0,)).upright().attributes)
    return reshaped(make, through, batch, channels, static_shape(through)[2], *small)


def _norm(node: ir.Node, make: Rewriter) -> ir.Value:
    """(sum of |x| ** p) ** (1 / p): the mean of powers, with zeros around, times their number."""
    x, window, p = required(node, 0), WindowAttributes.of(node), int_attr(node, "p", 2)
    sizes = make.op("Abs", [x])
    if p == 2:
        sizes = make.op("Mul", [x, x])
    elif p > 2:
        sizes = make.op("Pow", [sizes, make.like(np.asarray(p), x)])
    window.more["count_include_pad"] = 1
    mean = _pooled(make, "AveragePool", sizes, window)
    total = make.op("Mul", [mean, make.like(np.asarray(prod(window.kernel)), x)])
    if p == 1:
        return total
    if p == 2:
        return make.op("Sqrt", [total])
    return make.op("Pow", [total, make.like(np.asarray(1 / p), x)])


def padded(make: Rewriter, x: ir.Value, axis: int, by: tuple[int, int], fill: float) -> ir.Value:
    """`x` with borders of `fill` along `axis`; negative: without so many of its own."""
    if not any(by):
        return x
    rank = len(static_shape(x))
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = by
    value = make.constant(np.asarray(fill), x.dtype)
    return make.op("Pad", [x, make.axes(pads), value], {"mode": "constant"})


def every(make: Rewriter, x: ir.Value, axis: int, first: int, count: int, step: int) -> ir.Value:
    """`count` positions along `axis`, from `first` on, `step` apart."""
    bounds = (first, first + (count - 1) * step + 1, axis, step)
    return make.op("Slice", [x, *(make.axes([bound]) for bound in bounds)])


def _conv_planes(node: ir.Node, make: Rewriter) -> ir.Value:
    """Planes beside those behind them, as more channels of a convolution of planes."""
    x, w, window = required(node, 0), required(node, 1), WindowAttributes.of(node)
    groups, depth = window.more["group"], static_shape(node.outputs[0])[2]
    batch, channels, _, high, wide = static_shape(x)
    across, taps = channels // groups, window.kernel[0]
    planes = make.op("Transpose", [x], {"perm": DEPTH_LAST})
    planes = padded(make, planes, 1, (window.before[0], window.behind[0]), 0)
    behind = [
        every(make, planes, 1, tap * window.dilations[0], depth, window.strides[0])
        for tap in range(taps)
    ]
    shape = (batch, depth, groups, across, high * wide)
    apart = [reshaped(make, one, *shape) for one in behind]
    joined = apart[0] if taps == 1 else make.op("Concat", apart, {"axis": 3})
    images = reshaped(make, joined, batch * depth, groups * taps * across, high, wide)
    made = static_shape(w)[0]
    turned = make.op("Transpose", [w], {"perm": DEPTH_LAST})
    kernel = reshaped(make, turned, made, taps * across, *window.kernel[1:])
    operands = [images, kernel, *node.inputs[2:3]]
    result = make.op("Conv", operands, window.along((1, 2)).attributes)
    return _deep(make, result, batch, depth)


def _deep(make: Rewriter, planes: ir.Value, batch: int, depth: int) -> ir.Value:
    """[batch * depth, channels, ...] as [batch, channels, depth, ...]."""
    apart = reshaped(make, planes, batch, depth, *static_shape(planes)[1:])
    return make.op("Transpose", [apart], {"perm": DEPTH_LAST})


def _conv_transpose(node: ir.Node, make: Rewriter) -> ir.Value:
    """Each plane makes one for each position of the kernel; they are added up where they meet."""
    x, w, window = required(node, 0), required(node, 1), WindowAttributes.of(node)
    batch, channels, depth, high, wide = static_shape(x)
    _, made, deep, rows, columns = node.outputs[0].shape.numpy()  # type: ignore[union-attr]
    taps, step = window.kernel[0], window.strides[0]
    turned = make.op("Transpose", [x], {"perm": DEPTH_LAST})
    images = reshaped(make, turned, batch * depth, channels, high, wide)
    kernel = reshaped(make, w, channels, made // window.more["group"] * taps, *window.kernel[1:])
    extra = (ints_attr(node, "output_padding") or [0, 0, 0])[1:]
    attributes = {**window.along((1, 2)).attributes, "output_padding": extra}
    planes = make.op("ConvTranspose", [images, kernel], attributes)
    split = reshaped(make, planes, batch, depth, made, taps, rows * columns)
    parts = []
    for tap in range(taps):
        first = tap * window.dilations[0] - window.before[0]
        if first + (depth - 1) * step < 0 or first >= deep:
            continue
        part = every(make, split, 3, tap, 1, 1)
        part = reshaped(make, part, batch, depth, 1, made, rows * columns)
        part = padded(make, part, 2, (0, step - 1), 0)
        part = reshaped(make, part, batch, depth * step, made, rows * columns)
        parts.append(padded(make, part, 1, (first, deep - first - depth * step), 0))
    total = reduce(lambda a, b: make.op("Add", [a, b]), parts)
    result = _deep(make, reshaped(make, total, batch * deep, made, rows, columns), batch, deep)
    bias = input_of(node, 2)
    if bias is None:
        return result
    return make.op("Add", [result, reshaped(make, bias, made, 1, 1, 1)])

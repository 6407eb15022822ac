"""Axes, shapes and ranges as explicit non-negative constants, for lowering to read plainly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.rewrite import (
    Rewriter,
    const,
    input_of,
    int_attr,
    ints_attr,
    required,
    set_attrs,
    static_shape,
)
from compiler.graph.upgrade import REDUCTIONS


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
        changed = _axis(node)
        normalize = NORMALIZERS.get(node.op_type)
        return (normalize is not None and normalize(node)) or changed


AXIS_DEFAULTS = {
    "ArgMax": 0,
    "ArgMin": 0,
    "Concat": 0,
    "Gather": 0,
    "GatherElements": 0,
    "Hardmax": -1,
    "ScatterElements": 0,
    "Split": 0,
    "TopK": -1,
}


def _axis(node: ir.Node) -> bool:
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


def _split(node: ir.Node) -> bool:
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
    "Split": _split,
    "Transpose": _transpose,
    **dict.fromkeys(REDUCTIONS, _reduction),
}

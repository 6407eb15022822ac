"""Operators that only move elements: what commutes with a function of single elements.

Quantization and dequantization are such functions, per tensor wherever elements go, per channel
where the axis of the channels is still an axis behind the operator.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from compiler.frontend.rewrite import (
    input_of,
    int_attr,
    ints_attr,
    is_op,
    required,
    scalar,
    static_shape,
    str_attr,
)

MOVERS = frozenset(
    {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "Expand",
     "MaxPool", "DepthToSpace", "SpaceToDepth", "Tile", "Pad", "Resize", "Concat", "Split",
     "TensorScatter"}
)  # fmt: skip
"""Operators whose results are elements of their first input (of all inputs, for Concat; of
the first two, for TensorScatter).

MaxPool is one of them because quantization and dequantization are monotonic."""

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def data_inputs(node: ir.Node) -> int:
    """How many of the first inputs of a mover are data."""
    if is_op(node, "TensorScatter"):
        return 2
    return len(node.inputs) if is_op(node, "Concat") else 1


def works_on_integers(node: ir.Node) -> bool:
    """Whether mover `node` takes integers and then moves the same elements."""
    if is_op(node, "MaxPool"):
        return len(node.outputs) == 1
    if is_op(node, "Resize"):
        return (
            str_attr(node, "mode", "nearest") == "nearest"
            and str_attr(node, "coordinate_transformation_mode", "half_pixel")
            != "tf_crop_and_resize"
        )
    if is_op(node, "Pad"):
        value = input_of(node, 2)
        zero = value is None or scalar(value) == 0
        return zero and str_attr(node, "mode", "constant") == "constant"
    return True


def axis_behind(node: ir.Node, axis: int) -> int | None:
    """Where `axis` of a mover's data is in its results; None where it is moved in parts."""
    if is_op(node, "Transpose"):
        return _permutation(node).index(axis)
    if is_op(node, *_VIEWS):
        return _matching_axis(static_shape(required(node, 0)), static_shape(node.outputs[0]), axis)
    return _untouched(node, axis)


def axis_before(node: ir.Node, axis: int) -> int | None:
    """Where `axis` of a mover's results is in its data; None where it comes from parts."""
    if is_op(node, "Transpose"):
        return _permutation(node)[axis]
    if is_op(node, *_VIEWS):
        return _matching_axis(static_shape(node.outputs[0]), static_shape(required(node, 0)), axis)
    return _untouched(node, axis)


def _permutation(node: ir.Node) -> list[int]:
    backwards = list(reversed(range(len(static_shape(required(node, 0))))))
    return ints_attr(node, "perm") or backwards


def _matching_axis(source: tuple[int, ...], target: tuple[int, ...], axis: int) -> int | None:
    """The axis of `target` that has the extent of `axis` and as many elements before it."""
    before = math.prod(source[:axis])
    for index, extent in enumerate(target):
        if extent == source[axis] and math.prod(target[:index]) == before:
            return index
    return None


def _untouched(node: ir.Node, axis: int) -> int | None:
    """`axis` itself, where the operator joins or cuts another one."""
    if not is_op(node, "Concat", "Split"):
        return None
    rank = len(static_shape(required(node, 0)))
    return None if int_attr(node, "axis", 0) % rank == axis else axis

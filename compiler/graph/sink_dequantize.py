"""Data movement on integers: DequantizeLinear moves below what only rearranges elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.quantized import BYTES, dequantized, quantization_of
from compiler.graph.rewrite import (
    AttrValue,
    Rewriter,
    input_of,
    int_attr,
    ints_attr,
    is_op,
    required,
    scalar,
    sole_consumer,
    str_attr,
)

MOVERS = frozenset(
    {"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "Expand",
     "MaxPool", "DepthToSpace", "SpaceToDepth", "Tile", "Pad", "Resize", "Concat", "Split"}
)  # fmt: skip
"""Operators whose results are elements of their first input (of all inputs, for Concat).

MaxPool is one of them because dequantization is monotonic."""


@dataclass(frozen=True)
class SinkDequantize(GraphPass):
    """Move DequantizeLinear towards the QuantizeLinear that undoes it, and cancel the two.

        a = DequantizeLinear(x, s, z)
        b = Transpose(a)               =>     y = Transpose(x)
        y = QuantizeLinear(b, s, z)

    A QuantizeLinear behind a Concat moves the other way, so that parts with scales of their own are
    requantized one by one and joined as integers:

        y = QuantizeLinear(Concat(a, b), s, z)
                      =>   y = Concat(QuantizeLinear(a, s, z), QuantizeLinear(b, s, z))

    Relu behind a DequantizeLinear whose zero point is the smallest integer does nothing and goes.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one operator that reads dequantized data."""
        if is_op(node, "QuantizeLinear"):
            return _cancel(node) or _hoist(node)
        if is_op(node, "Relu"):
            return _drop_relu(node)
        if is_op(node, *MOVERS):
            return _sink(node)
        return False


def _cancel(node: ir.Node) -> bool:
    source = dequantized(required(node, 0))
    how = quantization_of(node)
    if source is None or how is None or not source[1].same_as(how):
        return False
    Rewriter(node).replace(source[0])
    return True


def _hoist(node: ir.Node) -> bool:
    """Quantize what is concatenated instead of the concatenation."""
    concat, how = required(node, 0).producer(), quantization_of(node)
    if concat is None or not is_op(concat, "Concat") or how is None or not how.per_tensor:
        return False
    if sole_consumer(concat.outputs[0]) is not node or how.dtype not in BYTES:
        return False
    make = Rewriter(concat, (concat, node))
    parts = []
    for value in concat.inputs:
        source = dequantized(value)
        alike = source is not None and source[1].same_as(how)
        again = [value, *node.inputs[1:]]
        attributes = {name: attr.value for name, attr in node.attributes.items()}
        parts.append(
            source[0] if source and alike else make.op("QuantizeLinear", again, attributes)
        )
    after = Rewriter(node, (concat, node))
    after.replace(after.op("Concat", parts, {"axis": int_attr(concat, "axis", 0)}))
    return True


def _drop_relu(node: ir.Node) -> bool:
    source = dequantized(required(node, 0))
    if source is None or not np.all(source[1].zeros == source[1].bounds[0]):
        return False
    Rewriter(node).replace(required(node, 0))
    return True


def _sources(node: ir.Node) -> list[ir.Value] | None:
    """The integers behind every data input of `node`, where all are quantized alike."""
    count = len(node.inputs) if is_op(node, "Concat") else 1
    found = [dequantized(value) for value in node.inputs[:count]]
    alike = (
        [pair for pair in found if pair is not None and pair[1].same_as(found[0][1])]
        if (found[0] is not None)
        else []
    )
    if len(alike) != count or alike[0][1].dtype not in BYTES:
        return None
    return [value for value, _ in alike]


def _sink(node: ir.Node) -> bool:
    sources = _sources(node)
    source = dequantized(node.inputs[0])
    if sources is None or source is None:
        return False
    how, axis = source[1], source[1].axis
    if not how.per_tensor:
        moved = _moved_axis(node, axis)
        if moved is None:
            return False
        axis = moved
    if not _works_on_integers(node):
        return False
    convert = required(node, 0).producer()
    if convert is None:
        return False
    make = Rewriter(node)
    inputs: list[ir.Value | None] = [*sources, *node.inputs[len(sources) :]]
    if is_op(node, "Pad"):
        inputs[2:3] = [make.like(np.asarray(how.zero), sources[0])]
    attributes: dict[str, AttrValue] = {k: attr.value for k, attr in node.attributes.items()}
    inner = make.node(node.op_type, inputs, attributes, outputs=len(node.outputs))
    parameters = convert.inputs[1:]
    make.replace(
        *(make.op("DequantizeLinear", [out, *parameters], {"axis": axis}) for out in inner.outputs)
    )
    return True


def _moved_axis(node: ir.Node, axis: int) -> int | None:
    """Where a per-channel axis goes; only a Transpose says so simply."""
    perm = ints_attr(node, "perm")
    if not is_op(node, "Transpose") or perm is None:
        return None
    return perm.index(axis)


def _works_on_integers(node: ir.Node) -> bool:
    """Whether `node` takes integers and then moves the same elements."""
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

"""Data movement on integers: DequantizeLinear moves below what only rearranges elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.movers import MOVERS, axis_behind, data_inputs, works_on_integers
from compiler.graph.quantized import BYTES, dequantized, quantization_of
from compiler.graph.rewrite import AttrValue, Rewriter, is_op, required
from compiler.options import Omittable


@dataclass(frozen=True)
class SinkDequantize(GraphPass, Omittable):
    """Move DequantizeLinear towards the QuantizeLinear that undoes it, and cancel the two.

        a = DequantizeLinear(x, s, z)
        b = Transpose(a)               =>     y = Transpose(x)
        y = QuantizeLinear(b, s, z)

    What is quantized per channel moves as far as its axis remains one.
    Relu behind a DequantizeLinear whose zero point is the smallest integer does nothing and goes.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one operator that reads dequantized data."""
        if is_op(node, "QuantizeLinear"):
            return _cancel(node)
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


def _drop_relu(node: ir.Node) -> bool:
    source = dequantized(required(node, 0))
    if source is None or not np.all(source[1].zeros == source[1].bounds[0]):
        return False
    Rewriter(node).replace(required(node, 0))
    return True


def _sources(node: ir.Node) -> list[ir.Value] | None:
    """The integers behind every data input of `node`, where all are quantized alike."""
    count = data_inputs(node)
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
        moved = axis_behind(node, axis)
        if moved is None:
            return False
        axis = moved
    if not works_on_integers(node):
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

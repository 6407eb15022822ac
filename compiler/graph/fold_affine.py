"""A constant per channel added to, or multiplied with, the result of a linear operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.linear import Floats, absorb, absorbing_producer, channels_of
from compiler.graph.rewrite import const, is_op, static_shape
from compiler.options import Omittable


@dataclass(frozen=True)
class FoldAffine(GraphPass, Omittable):
    """Fold Add, Sub, Mul and Div by a constant per channel into the operator before it.

    c = Conv(x, w)
    y = Add(c, k)      # k is [1, C, 1, 1]      =>     y = Conv(x, w, k)
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one element-wise node behind a Conv, ConvTranspose or Gemm."""
        if not is_op(node, "Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
            return False
        for position in (0, 1):
            data, other = node.inputs[position], node.inputs[1 - position]
            if data is None or (position and node.op_type == "Div"):
                continue
            linear = absorbing_producer(data)
            operand = None if linear is None else _per_channel(linear, other)
            if linear is None or operand is None:
                continue
            if static_shape(node.outputs[0]) != static_shape(data):
                continue
            absorb(linear, *_affine(node.op_type, operand, position), source=node)
            return True
        return False


def _per_channel(linear: ir.Node, value: ir.Value | None) -> Floats | None:
    """`value` as one number per output channel, None where it varies otherwise."""
    numbers = const(value)
    if numbers is None:
        return None
    channels, rank = channels_of(linear), len(static_shape(linear.outputs[0]))
    shape = (1,) * (rank - numbers.ndim) + numbers.shape
    if len(shape) != rank or any(n != 1 for i, n in enumerate(shape) if i != 1):
        return None
    return np.broadcast_to(numbers.reshape(-1), (channels,)).astype(np.float64)


def _affine(op_type: str, operand: Floats, position: int) -> tuple[Floats, Floats]:
    one, zero = np.ones_like(operand), np.zeros_like(operand)
    if op_type == "Mul":
        return operand, zero
    if op_type == "Div":
        return 1 / operand, zero
    if op_type == "Add":
        return one, operand
    return (-one, operand) if position else (one, -operand)

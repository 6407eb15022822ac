"""How a tensor is quantized, read from the DequantizeLinear or QuantizeLinear at one end of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.frontend.rewrite import const, input_of, int_attr, is_op, required

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
"""The element types that integer operators multiply."""


@dataclass(frozen=True)
class Quantization:
    """real = (integer - zeros) * scales, of one element each or of one per index of `axis`."""

    scales: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.int64]
    dtype: ir.DataType
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one zero point serve the whole tensor."""
        return self.scales.size == 1

    @property
    def scale(self) -> float:
        """The scale of a tensor quantized as a whole."""
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """The zero point of a tensor quantized as a whole."""
        return int(self.zeros[0])

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and largest integer of the element type."""
        return int(self.dtype.min), int(self.dtype.max)

    def quantize(self, real: float) -> int:
        """The integer that stands for `real`, in a tensor quantized as a whole."""
        lo, hi = self.bounds
        steps = float(np.clip(np.float64(real) / self.scale, -1e9, 1e9))
        return int(np.clip(np.rint(steps) + self.zero, lo, hi))

    def same_as(self, other: Quantization) -> bool:
        """Whether the same integers stand for the same numbers in both."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zeros, other.zeros)
            and (self.per_tensor or self.axis == other.axis)
        )


def quantization_of(node: ir.Node | None) -> Quantization | None:
    """The constant parameters of a QuantizeLinear or DequantizeLinear on float32 numbers.

    None for another node, computed parameters, and blocked quantization.
    """
    if node is None or not is_op(node, "QuantizeLinear", "DequantizeLinear"):
        return None
    quantizes = node.op_type == "QuantizeLinear"
    real = required(node, 0) if quantizes else node.outputs[0]
    integers = node.outputs[0] if quantizes else required(node, 0)
    scales, zeros = const(input_of(node, 1)), const(input_of(node, 2))
    if scales is None or (input_of(node, 2) is not None and zeros is None):
        return None
    if real.dtype != ir.DataType.FLOAT or integers.dtype is None or integers.shape is None:
        return None
    if scales.ndim > 1 or int_attr(node, "block_size", 0):
        return None
    axis = int_attr(node, "axis", 1)
    points = np.zeros(scales.size) if zeros is None else zeros
    return Quantization(
        scales.reshape(-1).astype(np.float32),
        points.reshape(-1).astype(np.int64),
        integers.dtype,
        axis % max(1, len(integers.shape)),
    )


def dequantized(value: ir.Value | None) -> tuple[ir.Value, Quantization] | None:
    """The integers that `value` is dequantized from and how; None where it is not."""
    node = None if value is None else value.producer()
    if node is None or not is_op(node, "DequantizeLinear"):
        return None
    how = quantization_of(node)
    return None if how is None else (required(node, 0), how)

"""What a graph computes, by ONNX's reference evaluator and numpy for the archgen operators.

Slow and plain on purpose: tests and `archgen explain` compare graphs before and after a pass.
Integer results are y = clip(rint(float32(accumulator) * float32(x_scale * w_scale / y_scale)) +
y_zero, clip_lo, clip_hi), with an exact accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from compiler.frontend.rewrite import Array

Ints = npt.NDArray[np.int64]


def evaluate(model: ir.Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `model` by name, for inputs by name."""
    run = ReferenceEvaluator(ir.to_proto(model), new_ops=[QConv, QConvTranspose, QMatMul, Silu])
    names = [str(value.name) for value in model.graph.outputs]
    with np.errstate(all="ignore"):
        return dict(zip(names, run.run(names, dict(inputs)), strict=True))


def requantize(
    accumulator: Ints,
    multiplier: npt.NDArray[np.float32],
    y_type: str,
    zero: int,
    bounds: tuple[int, int],
) -> Array:
    """An int32 accumulator as the result type `y_type`: int8, uint8, int32 or float32.

    `multiplier` is x_scale * w_scale, divided by y_scale where the result is quantized.
    """
    if y_type == "int32":
        return accumulator.astype(np.int32)
    scaled = accumulator.astype(np.float32) * multiplier
    if y_type == "float32":
        return scaled
    quantized: Array = np.clip(np.rint(scaled) + zero, *bounds).astype(y_type)
    return quantized


def _multiplier(
    x_scale: float, w_scale: Sequence[float], y_type: str, y_scale: float | None
) -> npt.NDArray[np.float32]:
    scales = np.float32(x_scale) * np.asarray(w_scale, dtype=np.float32)
    if y_type in ("int8", "uint8"):
        scales = scales / np.float32(y_scale)
    return scales.astype(np.float32)


def convolve(x: Ints, w: Ints, strides: Sequence[int], pads: Sequence[int],
             dilations: Sequence[int], group: int) -> Ints:  # fmt: skip
    """The exact convolution of integers [N, C, *in] by [O, C / group, *kernel]."""
    rank = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[i + rank]) for i in range(rank))])
    kernel = w.shape[2:]
    out = [
        (padded.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(rank)
    ]
    groups: Array = padded.reshape(x.shape[0], group, -1, *padded.shape[2:]).astype(np.float64)
    weights: Array = w.reshape(group, -1, *w.shape[1:]).astype(np.float64)
    total: Array = np.zeros((x.shape[0], group, weights.shape[1], *out))
    for tap in product(*(range(k) for k in kernel)):
        window = tuple(
            slice(tap[i] * dilations[i], tap[i] * dilations[i] + (out[i] - 1) * strides[i] + 1,
                  strides[i])
            for i in range(rank)
        )  # fmt: skip
        inside: Any = (..., *window)
        here: Any = (..., *tap)
        total += np.einsum("ngc...,goc->ngo...", groups[inside], weights[here], optimize=True)
    return total.reshape(x.shape[0], -1, *out).astype(np.int64)


class QConv(OpRun):
    """The integer convolution."""

    op_domain = "archgen"

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: object) -> tuple[Array]:
        a = _Attributes(self.onnx_node)
        column = (-1, *(1,) * (w.ndim - 1))
        weights = w.astype(np.int64) - np.asarray(a.integers("w_zero")).reshape(column)
        pads, strides = a.integers("pads"), a.integers("strides")
        data = x.astype(np.int64) - a.integer("x_zero")
        total = convolve(data, weights, strides, pads, a.integers("dilations"), a.integer("group"))
        channel = (-1, *(1,) * (w.ndim - 2))
        if b is not None:
            total = total + b.astype(np.int64).reshape(channel)
        return (a.requantize(total, a.numbers("w_scale"), "x_scale", channel),)


class QConvTranspose(OpRun):
    """The integer convolution, transposed: that of the input with zeros between its elements."""

    op_domain = "archgen"

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: object) -> tuple[Array]:
        a = _Attributes(self.onnx_node)
        rank, group = w.ndim - 2, a.integer("group")
        pads, strides, extra = (
            a.integers("pads"),
            a.integers("strides"),
            a.integers("output_padding"),
        )
        reach = [(k - 1) * d for k, d in zip(w.shape[2:], a.integers("dilations"), strict=True)]
        extents = [(n - 1) * s + 1 for n, s in zip(x.shape[2:], strides, strict=True)]
        data: Ints = np.zeros((*x.shape[:2], *extents), np.int64)
        apart: Any = (..., *(slice(None, None, step) for step in strides))
        data[apart] = x.astype(np.int64) - a.integer("x_zero")
        taps = np.flip(w.astype(np.int64), tuple(range(2, w.ndim)))
        taps = taps.reshape(group, -1, *w.shape[1:]).swapaxes(1, 2)
        taps = taps.reshape(-1, w.shape[0] // group, *w.shape[2:])
        taps = taps - np.asarray(a.integers("w_zero")).reshape(-1, *(1,) * (w.ndim - 1))
        around = [*reach, *(n + more for n, more in zip(reach, extra, strict=True))]
        total = convolve(data, taps, [1] * rank, around, a.integers("dilations"), group)
        ends = [n - pads[rank + i] for i, n in enumerate(total.shape[2:])]
        inside: Any = (..., *(slice(pads[i], ends[i]) for i in range(rank)))
        channel = (-1, *(1,) * rank)
        bias = np.zeros(1, np.int64) if b is None else b.astype(np.int64)
        total = total[inside] + bias.reshape(channel)
        return (a.requantize(total, a.numbers("w_scale"), "x_scale", channel),)


class QMatMul(OpRun):
    """The integer matrix product."""

    op_domain = "archgen"

    def _run(self, a: Array, b: Array, bias: Array | None = None, **_: object) -> tuple[Array]:
        given = _Attributes(self.onnx_node)
        left = a.astype(np.float64) - given.integer("a_zero")
        right = b.astype(np.float64) - np.asarray(given.integers("b_zero"))
        total = np.matmul(left, right).astype(np.int64)
        if bias is not None:
            total = total + bias.astype(np.int64)
        return (given.requantize(total, given.numbers("b_scale"), "a_scale", (-1,)),)


class Silu(OpRun):
    """x * sigmoid(x)."""

    op_domain = "archgen"

    def _run(self, x: Array) -> tuple[Array]:
        wide = x.astype(np.float64)
        return ((wide / (1 + np.exp(-wide))).astype(x.dtype),)


class _Attributes:
    """The attributes of a node, each read as the type it must have."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self.attrs = {attr.name: attr for attr in node.attribute}

    def integer(self, name: str) -> int:
        return int(self.attrs[name].i)

    def number(self, name: str) -> float:
        return float(self.attrs[name].f)

    def integers(self, name: str) -> Sequence[int]:
        return list(self.attrs[name].ints)

    def numbers(self, name: str) -> Sequence[float]:
        return list(self.attrs[name].floats)

    def requantize(
        self, total: Ints, w_scale: Sequence[float], x_scale: str, shape: tuple[int, ...]
    ) -> Array:
        y_type = self.attrs["y_type"].s.decode()
        quantized = y_type in ("int8", "uint8")
        y_scale = self.number("y_scale") if quantized else None
        factor = _multiplier(self.number(x_scale), w_scale, y_type, y_scale).reshape(shape)
        zero = self.integer("y_zero") if quantized else 0
        bounds = (self.integer("clip_lo"), self.integer("clip_hi")) if quantized else (0, 0)
        return requantize(total, factor, y_type, zero, bounds)

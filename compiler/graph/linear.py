"""Absorbing a per-channel factor and offset into the Conv, ConvTranspose or Gemm before it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.graph.rewrite import (
    ORIGIN,
    Array,
    Rewriter,
    const,
    float_attr,
    forget_names,
    input_of,
    int_attr,
    is_op,
    origin_of,
    required,
    sole_consumer,
    static_shape,
    terms_of,
)

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


def absorbing_producer(value: ir.Value) -> ir.Node | None:
    """The linear operator with constant weights that makes `value` for one reader alone."""
    node = value.producer()
    if node is None or not is_op(node, "Conv", "ConvTranspose", "Gemm"):
        return None
    bias = input_of(node, 2)
    if const(input_of(node, 1)) is None or (bias is not None and const(bias) is None):
        return None
    if node.op_type == "Gemm" and (
        float_attr(node, "alpha", 1.0) != 1.0 or float_attr(node, "beta", 1.0) != 1.0
    ):
        return None
    return node if sole_consumer(value) is not None else None


def channels_of(node: ir.Node) -> int:
    """How many output channels (columns, for Gemm) a linear operator has."""
    return static_shape(node.outputs[0])[1]


def absorb(
    linear: ir.Node, factor: Floats, shift: Floats, source: ir.Node, terms: float = 0.0
) -> None:
    """Make `linear` compute what `source`, y * factor + shift per channel, made of its result.

    `factor` and `shift` have one element per output channel. The readers of `source` then read
    `linear`, and `source` is removed. `terms`: magnitude of what `shift` was added up from.
    """
    make = Rewriter(linear, (linear, source))
    weight, bias = required(linear, 1), input_of(linear, 2)
    numbers, offsets = const(weight), const(bias)
    if numbers is None:
        raise ValueError(f"{linear.name}: weights are not constant")
    scaled = _scaled(linear, numbers.astype(np.float32, copy=False), factor)
    old = np.zeros(factor.shape) if offsets is None else offsets.astype(np.float64)
    moved = old * factor + shift
    if bool((factor != 1).any()):
        linear.replace_input_with(1, make.like(scaled, weight))
    linear.resize_inputs(3)
    terms += float(np.abs(old * factor).max(initial=0.0) + np.abs(shift).max(initial=0.0))
    terms += float(np.max(terms_of(bias)) * np.abs(factor).max(initial=0.0))
    linear.replace_input_with(2, make.like(moved, weight, terms))
    linear.metadata_props[ORIGIN] = origin_of(linear, source)
    forget_names(linear.outputs[0])
    after = Rewriter(source, (linear, source))
    after.replace(linear.outputs[0])


def _scaled(linear: ir.Node, weight: Array, factor: Floats) -> Array:
    """`weight` with each output channel multiplied by its factor."""
    scale: Array = factor.astype(np.float32)
    groups = int_attr(linear, "group", 1)
    tail = (1,) * (weight.ndim - 2)
    product: Array
    if linear.op_type == "Gemm":
        product = weight * (scale[:, None] if int_attr(linear, "transB", 0) else scale)
    elif linear.op_type == "Conv":
        product = weight * scale.reshape(-1, 1, *tail)
    else:
        per_group = weight.reshape(groups, -1, *weight.shape[1:])
        product = per_group * scale.reshape(groups, 1, -1, *tail)
    return product.reshape(weight.shape)

"""Convolutions and matrix products between quantized tensors, as the integer operators they are.

QConv(x, w, [b]), QConvTranspose(x, w, [b]) and QMatMul(a, b, [bias]) of domain archgen multiply
int8 or uint8 numbers, add an int32 bias, and give y_type: "int8" or "uint8" (requantized by y_scale
and y_zero, clamped to clip_lo..clip_hi), "float32" (the real numbers) or "int32" (the
accumulators). A Relu or Clip before the quantization is a clamp of the integers, exactly, because
quantization is monotonic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from compiler.frontend.quantization.move_quantize import (
    BYTES,
    Quantization,
    dequantized,
    quantization_of,
)
from compiler.frontend.rewrite import (
    ARCHGEN,
    AttrValue,
    GraphPass,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    is_op,
    required,
    scalar,
    sole_consumer,
    static_shape,
)
from compiler.frontend.shapes import matmul_shape

WINDOW = ("kernel_shape", "strides", "pads", "dilations", "group")


@dataclass(frozen=True)
class IntegerOperators(GraphPass):
    """Conv, ConvTranspose, MatMul and Gemm between DequantizeLinear and QuantizeLinear become
    integer operators.

        a = DequantizeLinear(x, xs, xz)
        k = DequantizeLinear(w, ws, wz)
        c = Conv(a, k)                     =>    y = archgen.QConv(x, w)
        r = Relu(c)
        y = QuantizeLinear(r, ys, yz)

    Without the QuantizeLinear the result is float32. A bias counts if it is int32 and its scale is
    the product of the operands' scales; another one stays an Add of float32 numbers. ConvInteger
    and MatMulInteger give int32.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one Conv, ConvTranspose, MatMul, Gemm, ConvInteger or MatMulInteger."""
        if is_op(node, "Conv"):
            return _rewrite_conv(node, WINDOW, axis=0)
        if is_op(node, "ConvTranspose"):
            return _rewrite_conv(node, (*WINDOW, "output_padding"), axis=1)
        if is_op(node, "MatMul", "Gemm"):
            return _matmul(node)
        if is_op(node, "ConvInteger"):
            return _conv_integer(node)
        if is_op(node, "MatMulInteger"):
            return _matmul_integer(node)
        return False


@dataclass(frozen=True)
class _Operand:
    """A tensor of bytes and how it is quantized."""

    value: ir.Value
    how: Quantization


def _quantized_operand(value: ir.Value | None, axis: int | None = None) -> _Operand | None:
    """`value` if it is dequantized from bytes, per tensor or per index of `axis`."""
    found = dequantized(value)
    if found is None or found[1].dtype not in BYTES:
        return None
    if not found[1].per_tensor and found[1].axis != axis:
        return None
    return _Operand(*found)


def _integer_bias(value: ir.Value | None, x: Quantization, w: Quantization) -> ir.Value | None:
    """The int32 numbers of a bias that counts in units of the accumulator."""
    found = dequantized(value)
    if found is None or found[1].dtype != ir.DataType.INT32 or found[1].zeros.any():
        return None
    unit = x.scales * w.scales
    matches = np.allclose(found[1].scales, unit, rtol=1e-4, atol=0)
    return found[0] if matches and len(static_shape(found[0])) == 1 else None


@dataclass(frozen=True)
class _Tail:
    """What follows the operator and goes into it: `last` is the node that it replaces."""

    last: ir.Node
    nodes: tuple[ir.Node, ...]
    attributes: dict[str, AttrValue]
    dtype: ir.DataType


def _tail(node: ir.Node) -> _Tail:
    """Follow the result of `node` to its quantization, through at most one clamp."""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    nodes = [node]
    follower = sole_consumer(node.outputs[0])
    clamp = _clamp(follower)
    if follower is not None and clamp is not None:
        bounds = clamp
        nodes.append(follower)
        follower = sole_consumer(follower.outputs[0])
    how = quantization_of(follower) if is_op(follower, "QuantizeLinear") else None
    if follower is None or how is None or not how.per_tensor or how.dtype not in BYTES:
        return _Tail(node, (node,), {"y_type": "float32"}, ir.DataType.FLOAT)
    attributes: dict[str, AttrValue] = {
        "y_type": how.dtype.name.lower(),
        "y_scale": how.scale,
        "y_zero": how.zero,
        "clip_lo": how.quantize(bounds[0]),
        "clip_hi": how.quantize(bounds[1]),
    }
    return _Tail(follower, (*nodes, follower), attributes, how.dtype)


def _clamp(node: ir.Node | None) -> tuple[float, float] | None:
    """The bounds of a Relu or of a Clip by constants."""
    if node is None:
        return None
    if is_op(node, "Relu"):
        return 0.0, np.inf
    if not is_op(node, "Clip"):
        return None
    lo, hi = (
        default if value is None else scalar(value)
        for value, default in ((input_of(node, 1), -np.inf), (input_of(node, 2), np.inf))
    )
    return None if lo is None or hi is None or lo > hi else (lo, hi)


def _zeros(how: Quantization) -> list[int]:
    """Zero points as an attribute: one number where all are equal."""
    zeros = [int(zero) for zero in how.zeros]
    return zeros[:1] if len(set(zeros)) == 1 else zeros


def _scales(how: Quantization) -> list[float]:
    return [float(scale) for scale in how.scales]


def _rewrite_conv(node: ir.Node, window: tuple[str, ...], axis: int) -> bool:
    """A convolution whose weights have their output channels on `axis`."""
    x, w = _quantized_operand(node.inputs[0]), _quantized_operand(node.inputs[1], axis)
    bias, groups = input_of(node, 2), int_attr(node, "group", 1)
    if x is None or w is None:
        return False
    if const(w.value) is None and (
        axis or (groups > 1 and not (w.how.per_tensor and bias is None))
    ):
        return False  # weights that are computed become columns of a product of matrices
    how = _by_output(w.how, groups if axis else 1)
    integers = _integer_bias(bias, x.how, how)
    extra = bias if integers is None else None
    tail = _tail(node) if extra is None else _float_tail(node)
    make = Rewriter(tail.last, tail.nodes)
    attributes: dict[str, AttrValue] = {name: node.attributes[name].value for name in window}
    attributes |= {"x_zero": x.how.zero, "x_scale": x.how.scale}
    attributes |= {"w_zero": _zeros(how), "w_scale": _scales(how), **tail.attributes}
    inputs = [x.value, w.value] if integers is None else [x.value, w.value, integers]
    shape = static_shape(node.outputs[0])
    out = (tail.dtype, shape)
    made = make.op(f"Q{node.op_type}", inputs, attributes, domain=ARCHGEN, out=out)
    if extra is not None:
        channel = make.axes([-1, *(1,) * (len(shape) - 2)])
        made = make.op("Add", [made, make.op("Reshape", [extra, channel])])
    make.replace(made)
    return True


def _by_output(how: Quantization, groups: int) -> Quantization:
    """By output channel, where weights have those of one group on their axis."""
    if how.per_tensor:
        return how
    return replace(how, scales=np.tile(how.scales, groups), zeros=np.tile(how.zeros, groups))


def _float_tail(node: ir.Node) -> _Tail:
    return _Tail(node, (node,), {"y_type": "float32"}, ir.DataType.FLOAT)


def _matmul(node: ir.Node) -> bool:
    transposed = bool(int_attr(node, "transB", 0))
    columns = len(static_shape(required(node, 1))) - 1
    a, b = (
        _quantized_operand(node.inputs[0]),
        _quantized_operand(node.inputs[1], 0 if transposed else columns),
    )
    if a is None or b is None or not _is_unscaled_product(node):
        return False
    bias = input_of(node, 2)
    integers = _integer_bias(bias, a.how, b.how)
    extra = bias if integers is None else None
    tail = _tail(node) if extra is None else _float_tail(node)
    make = Rewriter(tail.last, tail.nodes)
    right = make.op("Transpose", [b.value], {"perm": [1, 0]}) if transposed else b.value
    attributes: dict[str, AttrValue] = {"a_zero": a.how.zero, "a_scale": a.how.scale}
    attributes |= {"b_zero": _zeros(b.how), "b_scale": _scales(b.how), **tail.attributes}
    inputs = [a.value, right] if integers is None else [a.value, right, integers]
    shape = static_shape(node.outputs[0])
    made = make.op("QMatMul", inputs, attributes, domain=ARCHGEN, out=(tail.dtype, shape))
    if extra is not None:
        made = make.op("Add", [made, extra])
    make.replace(made)
    return True


def _is_unscaled_product(node: ir.Node) -> bool:
    """Whether a MatMul or Gemm is one product of matrices, unscaled."""
    if min(len(static_shape(required(node, i))) for i in (0, 1)) < 2:
        return False
    return (
        not int_attr(node, "transA", 0)
        and float_attr(node, "alpha", 1.0) == 1.0
        and float_attr(node, "beta", 1.0) == 1.0
    )


def _zero_points(value: ir.Value | None) -> list[int] | None:
    """Constant zero points as an attribute, [0] where the input is absent, None if computed."""
    if value is None:
        return [0]
    numbers = const(value)
    if numbers is None:
        return None
    zeros = [int(zero) for zero in numbers.reshape(-1)]
    return zeros[:1] if len(set(zeros)) == 1 else zeros


def _conv_integer(node: ir.Node) -> bool:
    """ConvInteger; with a zero point known at run time only, by way of float32 numbers."""
    x, w = required(node, 0), required(node, 1)
    x_zero, w_zero = _zero_points(input_of(node, 2)), _zero_points(input_of(node, 3))
    make = Rewriter(node)
    window: dict[str, AttrValue] = {name: node.attributes[name].value for name in WINDOW}
    if x_zero is not None and w_zero is not None and len(x_zero) == 1:
        attributes: dict[str, AttrValue] = {
            **window,
            "x_zero": x_zero[0],
            "x_scale": 1.0,
            "w_zero": w_zero,
            "w_scale": [1.0],
            "y_type": "int32",
        }
        out = (ir.DataType.INT32, static_shape(node.outputs[0]))
        make.replace(make.op("QConv", [x, w], attributes, domain=ARCHGEN, out=out))
        return True
    one = make.constant(np.float32(1))
    real = [
        make.op("DequantizeLinear", [value, one, input_of(node, i + 2)], {"axis": 0})
        for i, value in enumerate((x, w))
    ]
    product = make.op("Conv", real, window)
    make.replace(make.op("Cast", [product], {"to": int(ir.DataType.INT32)}))
    return True


def _matmul_integer(node: ir.Node) -> bool:
    """MatMulInteger; a zero point of `a` known at run time only is multiplied out:

    (a - z) b = a b - z (column sums of b)
    """
    a, b = required(node, 0), required(node, 1)
    a_zero, b_zero = _zero_points(input_of(node, 2)), _zero_points(input_of(node, 3))
    weights = const(b)
    if b_zero is None or len(static_shape(a)) < 2 or len(static_shape(b)) < 2:
        return False
    late = a_zero is None
    if (late and weights is None) or (a_zero is not None and len(a_zero) > 1):
        return False
    make = Rewriter(node)
    attributes: dict[str, AttrValue] = {
        "a_zero": 0 if a_zero is None else a_zero[0],
        "a_scale": 1.0,
        "b_zero": b_zero,
        "b_scale": [1.0],
        "y_type": "int32",
    }
    out = (ir.DataType.INT32, matmul_shape(static_shape(a), static_shape(b)))
    made = make.op("QMatMul", [a, b], attributes, domain=ARCHGEN, out=out)
    if late and weights is not None:
        sums = (weights.astype(np.int32) - np.asarray(b_zero, np.int32)).sum(
            -2, keepdims=True, dtype=np.int32
        )
        zero = make.op("Cast", [required(node, 2)], {"to": int(ir.DataType.INT32)})
        made = make.op("Sub", [made, make.op("Mul", [zero, make.constant(sums)])])
    make.replace(made)
    return True

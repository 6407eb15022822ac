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

WINDOW = ("kernel_shape", "strides", "pads", "dilations", "group", "output_padding")
Attributes = dict[str, AttrValue]


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
        if is_op(node, "Conv", "ConvTranspose", "MatMul", "Gemm"):
            return _between_conversions(node)
        if is_op(node, "ConvInteger"):
            return _conv_integer(node)
        return is_op(node, "MatMulInteger") and _matmul_integer(node)


def _between_conversions(node: ir.Node) -> bool:
    window, groups = _window(node), 1
    if window:
        axis, groups = int(is_op(node, "ConvTranspose")), int_attr(node, "group", 1)
    else:
        columns = len(static_shape(required(node, 1))) - 1
        axis = 0 if int_attr(node, "transB", 0) else columns
    x, w, bias = dequantized(node.inputs[0]), dequantized(node.inputs[1]), input_of(node, 2)
    if not (_are_bytes(x) and _are_bytes(w, axis)) or x is None or w is None:
        return False
    computed, deep = const(w[0]) is None, bool(axis) and len(static_shape(w[0])) > 4
    if computed or deep if window else not _is_unscaled(node):
        return False
    how = w[1]
    if axis and groups > 1 and not how.per_tensor:  # weights have the channels of one group
        how = replace(how, scales=np.tile(how.scales, groups), zeros=np.tile(how.zeros, groups))
    integers = _integer_bias(bias, x[1], how)
    extra = bias if integers is None else None
    nodes, dtype, result = _tail(node) if extra is None else ([node], ir.DataType.FLOAT, _REAL)
    make = Rewriter(nodes[-1], nodes)
    right = w[0]
    if not window and not axis:
        right = make.op("Transpose", [right], {"perm": [1, 0]})
    a, b = "xw" if window else "ab"
    attributes: Attributes = {
        f"{a}_zero": x[1].zero, f"{a}_scale": x[1].scale,
        f"{b}_zero": _shortest(how.zeros.tolist()),
        f"{b}_scale": how.scales.tolist(),
    }  # fmt: skip
    shape = static_shape(node.outputs[0])
    made = make.op(
        f"Q{node.op_type}" if window else "QMatMul",
        [x[0], right] if integers is None else [x[0], right, integers],
        window | attributes | result, domain=ARCHGEN, out=(dtype, shape),
    )  # fmt: skip
    if extra is not None:
        if window:
            extra = make.op("Reshape", [extra, make.axes([-1, *(1,) * (len(shape) - 2)])])
        made = make.op("Add", [made, extra])
    make.replace(made)
    return True


def _window(node: ir.Node) -> Attributes:
    return {name: node.attributes[name].value for name in WINDOW if name in node.attributes}


def _shortest(zeros: list[int]) -> list[int]:
    """Zero points as one number where all are equal."""
    return zeros[:1] if len(set(zeros)) == 1 else zeros


def _are_bytes(found: tuple[ir.Value, Quantization] | None, axis: int | None = None) -> bool:
    """Whether a value is dequantized from bytes, per tensor or per index of `axis`."""
    if found is None or found[1].dtype not in BYTES:
        return False
    return found[1].per_tensor or found[1].axis == axis


def _is_unscaled(node: ir.Node) -> bool:
    """Whether a MatMul or Gemm is one product of matrices, unscaled."""
    if min(len(static_shape(required(node, i))) for i in (0, 1)) < 2:
        return False
    scales = (float_attr(node, name, 1.0) for name in ("alpha", "beta"))
    return not int_attr(node, "transA", 0) and all(scale == 1.0 for scale in scales)


def _integer_bias(value: ir.Value | None, x: Quantization, w: Quantization) -> ir.Value | None:
    """The int32 numbers of a bias that counts in units of the accumulator."""
    found = dequantized(value)
    if found is None or found[1].dtype != ir.DataType.INT32 or found[1].zeros.any():
        return None
    matches = np.allclose(found[1].scales, x.scales * w.scales, rtol=1e-4, atol=0)
    return found[0] if matches and len(static_shape(found[0])) == 1 else None


_REAL: Attributes = {"y_type": "float32"}
"""Of an operator whose result is not quantized."""


def _tail(node: ir.Node) -> tuple[list[ir.Node], ir.DataType, Attributes]:
    """`node` and what goes into it up to the quantization of its result, at most one clamp between;
    type and attributes of what the last of them makes."""
    nodes = [node]
    follower = sole_consumer(node.outputs[0])
    bounds = _clamp(follower)
    if follower is not None and bounds is not None:
        nodes.append(follower)
        follower = sole_consumer(follower.outputs[0])
    how = quantization_of(follower) if is_op(follower, "QuantizeLinear") else None
    if follower is None or how is None or not how.per_tensor or how.dtype not in BYTES:
        return [node], ir.DataType.FLOAT, _REAL
    low, high = map(how.quantize, bounds or (-np.inf, np.inf))
    attributes: Attributes = {
        "y_type": how.dtype.name.lower(), "y_scale": how.scale, "y_zero": how.zero,
        "clip_lo": low, "clip_hi": high,
    }  # fmt: skip
    return [*nodes, follower], how.dtype, attributes


def _clamp(node: ir.Node | None) -> tuple[float, float] | None:
    """The bounds of a Relu or of a Clip by constants."""
    if node is None or not is_op(node, "Relu", "Clip"):
        return None
    if is_op(node, "Relu"):
        return 0.0, np.inf
    lo, hi = (
        default if value is None else scalar(value)
        for value, default in ((input_of(node, 1), -np.inf), (input_of(node, 2), np.inf))
    )
    return None if lo is None or hi is None or lo > hi else (lo, hi)


def _zero_points(value: ir.Value | None) -> list[int] | None:
    """Constant zero points as an attribute, [0] where the input is absent, None if computed."""
    numbers = np.zeros(1) if value is None else const(value)
    return None if numbers is None else _shortest([int(n) for n in numbers.reshape(-1)])


def _conv_integer(node: ir.Node) -> bool:
    """ConvInteger; with weights or a zero point known at run time only, by way of float32."""
    x, w = required(node, 0), required(node, 1)
    x_zero, w_zero = _zero_points(input_of(node, 2)), _zero_points(input_of(node, 3))
    make, window = Rewriter(node), _window(node)
    if const(w) is not None and w_zero is not None and x_zero is not None and len(x_zero) == 1:
        attributes = window | {
            "x_zero": x_zero[0], "x_scale": 1.0, "w_zero": w_zero, "w_scale": [1.0],
            "y_type": "int32",
        }  # fmt: skip
        out = (ir.DataType.INT32, static_shape(node.outputs[0]))
        make.replace(make.op("QConv", [x, w], attributes, domain=ARCHGEN, out=out))
        return True
    one = make.constant(np.float32(1))
    real = [
        make.op("DequantizeLinear", [value, one, input_of(node, i + 2)], {"axis": 0})
        for i, value in enumerate((x, w))
    ]
    make.replace(make.op("Cast", [make.op("Conv", real, window)], {"to": int(ir.DataType.INT32)}))
    return True


def _matmul_integer(node: ir.Node) -> bool:
    """MatMulInteger; a zero point of `a` known at run time only is multiplied out:

    (a - z) b = a b - z (column sums of b)
    """
    a, b = required(node, 0), required(node, 1)
    a_zero, b_zero = _zero_points(input_of(node, 2)), _zero_points(input_of(node, 3))
    weights, late = const(b), a_zero is None
    if b_zero is None or len(static_shape(a)) < 2 or len(static_shape(b)) < 2:
        return False
    if (weights is None) if a_zero is None else len(a_zero) > 1:
        return False
    make = Rewriter(node)
    attributes: Attributes = {
        "a_zero": a_zero[0] if a_zero else 0, "a_scale": 1.0, "b_zero": b_zero, "b_scale": [1.0],
        "y_type": "int32",
    }  # fmt: skip
    out = (ir.DataType.INT32, matmul_shape(static_shape(a), static_shape(b)))
    made = make.op("QMatMul", [a, b], attributes, domain=ARCHGEN, out=out)
    if late and weights is not None:
        zero = make.op("Cast", [required(node, 2)], {"to": int(ir.DataType.INT32)})
        numbers = weights.astype(np.int32) - np.asarray(b_zero, np.int32)
        sums = make.constant(numbers.sum(-2, keepdims=True, dtype=np.int32))
        made = make.op("Sub", [made, make.op("Mul", [zero, sums])])
    make.replace(made)
    return True

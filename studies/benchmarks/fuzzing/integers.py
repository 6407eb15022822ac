"""Operators on integers: quantization by hand, QLinear and Integer products, counting."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from fuzzing.net import Net
from fuzzing.pointwise import float_code


def _code(net: Net, x: str, kind: type = np.uint8) -> tuple[str, str, str] | None:
    """`x` quantized: codes, scale and zero point."""
    top = float(np.abs(net.values[x].astype(np.float32)).max())
    scale = net.const(max(top, 1e-2) / 127, net.real)
    zero = net.const(128 if kind is np.uint8 else net.pick(0, 5), kind)
    made = net.raw("QuantizeLinear", x, scale, zero)
    return (made[0], scale, zero) if made else None


def coded(net: Net, x: str) -> str | None:
    """Quantized and back."""
    made = _code(net, x, net.pick(np.int8, np.uint8))
    return net.op("DequantizeLinear", *made) if made else None


def dynamic(net: Net, x: str) -> str | None:
    """Quantized by its own range, multiplied as integers, scaled back."""
    wide = net.shape(x)[-1]
    made = net.raw("DynamicQuantizeLinear", x, outputs=3)
    if made is None:
        return None
    codes, scale, zero = made
    weights = net.const(net.random.integers(-20, 20, (wide, net.pick(1, 4, 7))), np.int8)
    sums = net.op("MatMulInteger", codes, weights, zero, net.const(0, np.int8))
    real = net.op("Cast", sums, to=float_code(net))
    return net.op("Mul", real, net.op("Mul", scale, net.const(0.01, net.real)))


def conv_integer(net: Net, x: str) -> str | None:
    """ConvInteger, with and without the attributes that may be left away."""
    shape = net.shape(x)
    if len(shape) != 4:
        return None
    made = _code(net, x)
    if made is None:
        return None
    kernel = [net.pick(1, 3), net.pick(1, 2)]
    more = {"kernel_shape": kernel} if net.maybe(0.5) else {}
    if net.maybe(0.4):
        more["strides"] = [2, 1]
    weights = net.const(net.random.integers(-20, 20, (net.pick(1, 4), shape[1], *kernel)), np.int8)
    sums = net.op("ConvInteger", made[0], weights, made[2], **more)
    return net.op("Mul", net.op("Cast", sums, to=float_code(net)), made[1])


def qlinear(net: Net, x: str) -> str | None:
    """QLinearConv or QLinearMatMul between codes."""
    shape = net.shape(x)
    made = _code(net, x, net.pick(np.int8, np.uint8))
    if made is None:
        return None
    codes, scale, zero = made
    step, none = net.const(0.02, net.real), net.const(0, np.int8)
    result, middle = net.const(0.3, net.real), net.const(net.pick(0, 3), net.dtype(codes))
    if len(shape) == 4 and net.maybe(0.7):
        out, kernel = net.pick(1, 4, 5), [net.pick(1, 3), 1]
        weights = net.const(net.random.integers(-60, 60, (out, shape[1], *kernel)), np.int8)
        bias = [net.const(net.random.integers(-500, 500, out), np.int32)] if net.maybe(0.5) else []
        sums = net.op("QLinearConv", codes, scale, zero, weights, step, none, result, middle, *bias)
    else:
        weights = net.const(net.random.integers(-60, 60, (shape[-1], net.pick(1, 6))), np.int8)
        sums = net.op("QLinearMatMul", codes, scale, zero, weights, step, none, result, middle)
    return net.op("DequantizeLinear", sums, result, middle)


def counted(net: Net, x: str) -> str | None:
    """Integer arithmetic between two casts."""
    whole = net.op("Cast", x, to=int(net.pick(TensorProto.INT32, TensorProto.INT64)))
    if whole is None:
        return None
    near = net.const(net.random.integers(1, 5, net.shape(x)[-1:]), net.dtype(whole))
    made = net.op(net.pick("Add", "Mul", "Sub", "Div", "Mod", "Max"), whole, near)
    return net.op("Cast", made, to=float_code(net))

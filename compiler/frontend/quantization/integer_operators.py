"""Convolutions and matrix products between quantized tensors, as the integer operators they are.

QConv(x, w, [b]), QConvTranspose(x, w, [b]) and QMatMul(a, b, [bias]) of domain archgen multiply
int8 or uint8 weights by integers of 8 or 16 bits, add an int32 bias, and give y_type: such an
integer type (requantized by y_scale and y_zero, clamped to clip_lo..clip_hi; 16 bits only of
16 bits), "float32" (the real numbers) or "int32" (the accumulators). A Relu or Clip before the
quantization is a clamp of the integers, exactly, because quantization is monotonic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from compiler.frontend.quantization.move_quantize import (
    BYTES,
    CODES,
    Quantization,
    dequantized,
    quantization_of,
)
from compiler.frontend.rewrite import (
    ARCHGEN,
    Array,
    AttrValue,
    GraphPass,
    Rewriter,
    const,
    input_of,
    ints_attr,
    is_const,
    is_op,
    required,
    scalar,
    sole_consumer,
    static_shape,
)

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
        integers = is_op(node, "ConvInteger", "MatMulInteger")
        return integers and _product_of_integers(node, is_op(node, "ConvInteger"))


def _between_conversions(node: ir.Node) -> bool:
    window, groups = _window(node), 1
    if window:
        axis, groups = int(is_op(node, "ConvTranspose")), node.attributes.get_int("group", 1)
    else:
        columns = len(static_shape(required(node, 1))) - 1
        axis = 0 if node.attributes.get_int("transB", 0) else columns
    x, w, bias = dequantized(node.inputs[0]), dequantized(node.inputs[1]), input_of(node, 2)
    if not (_quantized_to(x, CODES) and _quantized_to(w, BYTES, axis)) or x is None or w is None:
        return False
    how = w[1]
    if window:
        able = is_const(w[0]) or (how.per_tensor and is_op(node, "Conv"))
    else:  # one product of matrices, unscaled
        ranks = [len(static_shape(required(node, i))) for i in (0, 1)]
        scales = {node.attributes.get_float(name, 1.0) for name in ("alpha", "beta")}
        able = min(ranks) > 1 and scales == {1.0} and not node.attributes.get_int("transA", 0)
    if not able:
        return False
    if axis and groups > 1 and not how.per_tensor:  # weights have the channels of one group
        how = replace(how, scales=np.tile(how.scales, groups), zeros=np.tile(how.zeros, groups))
    integers = _integer_bias(bias, x[1], how)
    extra = bias if integers is None else None
    kinds = BYTES if x[1].dtype in BYTES else CODES
    tail = _tail(node, kinds) if extra is None else ([node], _REAL, ir.DataType.FLOAT)
    nodes, result, dtype = tail
    make = Rewriter(nodes[-1], nodes)
    right = w[0]
    if not window and not axis:
        right = make.op("Transpose", [right], {"perm": [1, 0]})
    attributes = _operands(
        "xw" if window else "ab", x[1].zero, how.zeros.tolist(), x[1].scale, how.scales.tolist()
    )
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


def _operands(
    names: str, zero: int, zeros: list[int], scale: float = 1.0, scales: Sequence[float] = (1.0,)
) -> Attributes:
    """How both operands are quantized: zero points as one number where all are equal."""
    x, w = names[0], names[1]
    zeros = zeros[:1] if len(set(zeros)) == 1 else zeros
    return {f"{x}_zero": zero, f"{x}_scale": scale, f"{w}_zero": zeros, f"{w}_scale": [*scales]}


def _quantized_to(
    found: tuple[ir.Value, Quantization] | None, kinds: Sequence[ir.DataType],
    axis: int | None = None,
) -> bool:  # fmt: skip
    """Whether a value is dequantized from one of `kinds`, per tensor or per index of `axis`."""
    if found is None or found[1].dtype not in kinds:
        return False
    return found[1].per_tensor or found[1].axis == axis


def _integer_bias(value: ir.Value | None, x: Quantization, w: Quantization) -> ir.Value | None:
    """The int32 numbers of a bias that counts in units of the accumulator."""
    found = dequantized(value)
    if found is None or found[1].dtype != ir.DataType.INT32 or found[1].zeros.any():
        return None
    matches = np.allclose(found[1].scales, x.scales * w.scales, rtol=1e-4, atol=0)
    return found[0] if matches and len(static_shape(found[0])) == 1 else None


def _tail(
    node: ir.Node, kinds: Sequence[ir.DataType]
) -> tuple[list[ir.Node], Attributes, ir.DataType]:
    """`node`, what follows it to its quantization to one of `kinds`, through at most one clamp, and
    what the last of them makes; floats of `node` alone where no such quantization follows."""
    nodes, bounds = [node], (-np.inf, np.inf)
    follower = sole_consumer(node.outputs[0])
    if follower is not None and (clamp := _clamp(follower)) is not None:
        nodes, bounds = [node, follower], clamp
        follower = sole_consumer(follower.outputs[0])
    how = quantization_of(follower) if is_op(follower, "QuantizeLinear") else None
    if follower is None or how is None or not how.per_tensor or how.dtype not in kinds:
        return [node], _REAL, ir.DataType.FLOAT
    low, high = map(how.quantize, bounds)
    made: Attributes = {
        "y_type": how.dtype.name.lower(), "y_scale": how.scale, "y_zero": how.zero,
        "clip_lo": low, "clip_hi": high,
    }  # fmt: skip
    return [*nodes, follower], made, how.dtype


_REAL: Attributes = {"y_type": "float32"}


def _clamp(node: ir.Node) -> tuple[float, float] | None:
    """The bounds of a Relu or of a Clip by constants."""
    if is_op(node, "Relu"):
        return 0.0, np.inf
    if not is_op(node, "Clip"):
        return None
    ends = zip((input_of(node, 1), input_of(node, 2)), (-np.inf, np.inf), strict=True)
    lo, hi = (default if value is None else scalar(value) for value, default in ends)
    return None if lo is None or hi is None or lo > hi else (lo, hi)


def _zero_points(value: ir.Value | None) -> list[int] | None:
    """Constant zero points as an attribute, [0] where the input is absent, None if computed."""
    numbers = np.zeros(1) if value is None else const(value)
    if numbers is None:
        return None
    zeros = [int(n) for n in numbers.reshape(-1)]
    return zeros[:1] if len(set(zeros)) == 1 else zeros


def _product_of_integers(node: ir.Node, window: bool) -> bool:
    """ConvInteger and MatMulInteger; a zero point of `x` known at run time only is multiplied out:

    (x - z) w = x w - z (sums of w)

    Convolutions with computed weights, or zero points of theirs, go by way of float32.
    """
    x, w = required(node, 0), required(node, 1)
    x_zero, w_zero = _zero_points(input_of(node, 2)), _zero_points(input_of(node, 3))
    weights, ranks = const(w), (len(static_shape(x)), len(static_shape(w)))
    able = w_zero is not None and (weights is not None if x_zero is None else len(x_zero) == 1)
    make = Rewriter(node)
    if not able or w_zero is None or (weights is None if window else min(ranks) < 2):
        return window and _through_reals(make)
    attributes = _operands("xw" if window else "ab", x_zero[0] if x_zero else 0, w_zero)
    made = make.op(
        "QConv" if window else "QMatMul", [x, w],
        _window(node) | attributes | {"y_type": "int32"}, domain=ARCHGEN,
        out=(ir.DataType.INT32, static_shape(node.outputs[0])),
    )  # fmt: skip
    if x_zero is None and weights is not None:
        zero = np.asarray(w_zero, np.int32)
        numbers = weights.astype(np.int32)
        if window:
            sums = _sums_of_weights(node, numbers - zero.reshape(-1, *(1,) * (ranks[1] - 1)))
        else:
            sums = (numbers - zero).sum(-2, keepdims=True)
        late = make.op("Cast", [required(node, 2)], {"to": int(ir.DataType.INT32)})
        less = make.op("Mul", [late, make.constant(sums.astype(np.int32))])
        made = make.op("Sub", [made, less])
    make.replace(made)
    return True


def _through_reals(make: Rewriter) -> bool:
    node, one = make.anchor, make.constant(np.float32(1))
    real = [
        make.op("DequantizeLinear", [node.inputs[i], one, input_of(node, i + 2)], {"axis": 0})
        for i in (0, 1)
    ]
    made = make.op("Conv", real, _window(node))
    make.replace(make.op("Cast", [made], {"to": int(ir.DataType.INT32)}))
    return True


def _sums_of_weights(node: ir.Node, weights: Array) -> Array:
    """What each place of a convolution's result sees of its weights, beyond which is the border:
    [channels, ...]; of extent 1 along axes without a border."""
    extents, made = static_shape(required(node, 0))[2:], static_shape(node.outputs[0])[2:]
    rank, sums = len(extents), np.asarray(weights.sum(1))
    pads, strides, dilations = (
        ints_attr(node, name) or [default] * (2 * rank)
        for name, default in (("pads", 0), ("strides", 1), ("dilations", 1))
    )
    for axis, (extent, count) in enumerate(zip(extents, made, strict=True)):
        taps = np.arange(sums.shape[1]) * dilations[axis] - pads[axis]
        places = np.arange(count)[:, None] * strides[axis] + taps
        inside = (places >= 0) & (places < extent)
        # The axis of taps, the first of those that are left, becomes the last one, of places.
        sums = np.asarray(np.tensordot(sums, inside[:1] if inside.all() else inside, ((1,), (1,))))
    return sums

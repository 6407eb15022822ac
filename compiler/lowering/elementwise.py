"""Element-wise operators: one function over broadcast operands."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeGuard

import ml_dtypes
import numpy as np
import onnx_ir as ir

from compiler.lowering.node import Lowering, Node, NoNest, numpy_type, port_type, uncertain
from compiler.tensor_ir.build import reshaped
from compiler.tensor_ir.nest import Array, Tensor
from simmodel.arch.base import Registry
from simmodel.arch.dtype import NAMES, NUMPY, largest, limits
from simmodel.arch.element_types import is_float

# Conversions to types of a byte or less, which memories and ports hold and no engine computes in.

WHOLE = frozenset({"int2", "uint2", "int4", "uint4"})
REAL = frozenset({"fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz", "fp4e2m1"})
ROUNDED = WHOLE | REAL
"""Types of results that are rounded here."""

_BITS = 23
"""Bits of fp32's significand, without the implicit one."""


def wrapped(node: Node, x: Tensor, name: str) -> None:
    """The low bits of integers, or of real numbers without their fractions."""
    node.compose()
    low, high = limits(name)
    whole = node.step("whole", "trunc" if is_float(x.dtype) else "move", x, dtype="int32")
    mask = node.number(str(high - low), np.int32(high - low))
    bits = node.step("bits", "bitwise_and", whole, mask, dtype="int32")
    if not low:
        node.step("", "move", bits)
        return
    sign = node.number(str(-low), np.int32(-low))
    node.step("", "sub", node.step("turned", "bitwise_xor", bits, sign, dtype="int32"), sign)


def rounded(node: Node, x: Tensor, name: str) -> None:
    """Real numbers rounded to type `name`: to nearest; out of range to the largest, or, if the node
    does not saturate, to its not-a-number."""
    node.compose()
    kind, top = ml_dtypes.finfo(NUMPY[name]), largest(name)  # type: ignore[no-untyped-call]
    saturates = bool(node.attribute("saturate", 1))
    bound = top if saturates else 2 * top

    def step(part: str, function: str, *operands: Tensor | float, **limits: float) -> Tensor:
        read = [
            each if isinstance(each, Tensor) else node.number(str(each), np.float32(each), "fp32")
            for each in operands
        ]
        return node.step(part, function, *read, dtype="fp32", **limits)

    near = step("near", "move", x, low=-bound, high=bound)
    size = step("size", "abs", near, low=float(kind.smallest_normal))
    wide = step("wide", "mul", size, 2.0**_BITS + 1)
    power = step("power", "sub", wide, step("rest", "sub", wide, size))
    above = step("above", "greater", power, size)
    below = step("below", "select", above, step("half", "mul", power, 0.5), power)
    steps = step("steps", "mul", below, 1.5 * 2.0 ** (_BITS - kind.nmant))
    result = step("result", "sub", step("sum", "add", near, steps), steps)
    if not saturates:
        infinite = bool(np.isinf(np.asarray(np.inf, np.float32).astype(NUMPY[name])))
        beyond = np.inf if infinite else np.nan
        for sign, function in ((1, "greater"), (-1, "less")):
            over = step(f"{function}.over", function, result, sign * top)
            result = step(f"{function}.kept", "select", over, sign * beyond, result)
    if name == "fp4e2m1":  # has none for what is no number
        missing = step("missing", "is_nan", near)
        result = step("present", "select", missing, 0.0, result)
    node.step("", "move", result)


UNARY = Registry("operator", {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp",
    "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Neg": "neg", "Abs": "abs",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign", "Sin": "sin",
    "Cos": "cos", "Softplus": "softplus", "Mish": "mish", "HardSwish": "hard_swish",
    "Silu": "silu", "Swish": "silu", "Not": "not", "BitwiseNot": "bitwise_not",
    "IsNaN": "is_nan", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan",
    "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
})  # fmt: skip
BINARY = Registry("operator", {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min",
    "PRelu": "prelu", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
})  # fmt: skip
PARAMETERS = Registry(
    "operator",
    {
        "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
        "Elu": ("elu", (("alpha", 1.0),)),
        "Selu": ("selu", (("alpha", 1.6732632), ("gamma", 1.0507010))),
        "HardSigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
        "IsInf": ("is_inf", (("detect_negative", 1.0), ("detect_positive", 1.0))),
    },
)


def unary(node: Node) -> None:
    """y = f(x), or f(x; constants from attributes)."""
    function, defaults = PARAMETERS.get(node.op) or (UNARY[node.op], ())
    values = tuple(float(node.attribute(name, default)) for name, default in defaults)
    node.step("", function, node.tensor(0), parameters=values)


def gelu(node: Node) -> None:
    """y = x * Phi(x), or its tanh approximation."""
    tanh = node.attribute("approximate", "none") == "tanh"
    node.step("", "gelu_tanh" if tanh else "gelu", node.tensor(0))


def binary(node: Node) -> None:
    """y = f(a, b)."""
    if node.op in ("Mul", "Div") and is_float(node.dtype()) and _by_constant(node):
        return
    node.step("", BINARY[node.op], *_operands(node, 2))


def _by_constant(node: Node) -> bool:
    """Lower a product with a constant, or a quotient by one, to something cheaper; whether that
    succeeded.

    One positive number is a scale of the operand; others are reciprocals, if memory stores them as
    precisely as a division would compute.
    """
    places = (1,) if node.op == "Div" else (1, 0)
    place = next((p for p in places if node.numbers(p) is not None), None)
    if place is None or node.numbers(1 - place) is not None or np.any(uncertain(node.value(place))):
        return False
    x, factors = node.tensor(1 - place), node.constant(place).astype(np.float64)
    if node.op == "Div":
        with np.errstate(all="ignore"):
            factors = 1 / factors
    info = np.finfo(np.float32)
    if not ((np.abs(factors) >= info.tiny) & (np.abs(factors) <= info.max)).all():
        return False
    if _single(factors) and factors.item() > 0 and x.shape == node.shape():
        node.step("", "move", x, code=(factors.item(), 0))
        return True
    with np.errstate(over="ignore"):  # what is too large is not what it was, and said so below
        stored = factors.astype(NUMPY[node.build.real])
    if node.op == "Mul" or (node.build.real != "fp32" and (stored != factors).any()):
        return False
    name = f"{node.value(place).name}.reciprocal"
    node.step("", "mul", x, node.build.constant(name, factors.astype(np.float32)))
    return True


def modulo(node: Node) -> None:
    """y = remainder of a / b: with the sign of b, or with `fmod` with that of a."""
    node.step("", "fmod" if node.attribute("fmod", 0) else "mod", *_operands(node, 2))


def bit_shift(node: Node) -> None:
    """y = the bits of a, shifted left or right by b."""
    node.step("", f"shift_{str(node.attribute('direction')).lower()}", *_operands(node, 2))


def power(node: Node) -> None:
    """y = a to the power of b, some of which are cheaper functions; an integer to a real power is
    truncated."""
    x, exponent = _operands(node, 2)
    real, number = is_float(node.dtype()), node.data(1)
    if not real and is_float(exponent.dtype):
        node.compose()
        node.step("", "trunc", node.step("raised", "pow", x, exponent, dtype=node.build.real))
        return
    function = POWERS.get(float(number.reshape(()))) if _single(number) else None
    cheaper = x.shape == node.shape() and (is_float(x.dtype) or function in ("move", "square"))
    if function is not None and cheaper:
        node.step("", function, x)
    else:
        node.step("", "pow", x, exponent)


def _operands(node: Node, count: int) -> list[Tensor]:
    return [node.tensor(position) for position in range(count)]


POWERS = {0.5: "sqrt", 1.0: "move", 2.0: "square", -1.0: "reciprocal", -0.5: "rsqrt"}
"""Exponents that have functions of their own."""


def _single(array: Array | None) -> TypeGuard[Array]:
    return array is not None and array.size == 1


def where(node: Node) -> None:
    """y = a where chosen, else b."""
    node.step("", "select", *_operands(node, 3))


def clip(node: Node) -> None:
    """y = x limited to [low, high]."""
    x = node.tensor(0)
    low, high = (_limit(node, position) for position in (1, 2))
    if low == math.inf and not node.has(2):  # then ONNX's upper bound is the largest number
        high = float(ml_dtypes.finfo(numpy_type(node.value(0))).max)  # type: ignore[no-untyped-call]
    if isinstance(low, Tensor):
        x, low = node.step("max", "max", x, low), -math.inf
    if isinstance(high, Tensor):  # behind the lower bound: where that is above, this one holds
        if low > -math.inf:
            x = node.step("max", "move", x, low=low)
        node.step("", "min", x, high)
        return
    node.step("", "move", x, low=min(low, high), high=high)


def _limit(node: Node, position: int) -> float | Tensor:
    """A bound of a Clip; infinite if absent."""
    if not node.has(position):
        return math.inf if position == 2 else -math.inf
    data = node.data(position)
    bound = None if data is None else data.reshape(()).item()
    return node.tensor(position) if bound is None or bound != float(bound) else float(bound)


def cast(node: Node) -> None:
    """y = x in another element type; truncated if y is an integer."""
    x, kind, half = node.tensor(0), node.dtype(), _wanted_half(node)
    target = port_type(node.node.outputs[0])
    if node.value(0).dtype != node.node.outputs[0].dtype and target in ROUNDED:
        if target in WHOLE:
            wrapped(node, x, target)
        else:
            rounded(node, x, target)
        return
    if half is not None and node.build.real == "fp32":  # else the user chose the precision
        node.step("", f"round_{half}", x)
        return
    cut_off = is_float(x.dtype) and not is_float(kind) and kind != "bool"
    function = "trunc" if cut_off else "wrap" if _loses_bits(x.dtype, kind) else "move"
    made = node.step("", function, x)
    halves = made.rounded if half is None or cut_off else (half,)
    node.build.tensors[made.name] = replace(made, rounded=halves, converted=cut_off)


def _wanted_half(node: Node) -> str | None:
    """The half-precision type to which the model casts a value that may not be of that type
    already. Casts inside of a composite are as precise as memory."""
    wanted = NAMES[numpy_type(node.node.outputs[0])]
    source = node.value(0).dtype
    small = source in (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL)
    exact = small or source == node.node.outputs[0].dtype
    if wanted not in ("fp16", "bf16") or node.build.composite is not None or exact:
        return None
    return wanted


def _loses_bits(source: str, target: str) -> bool:
    """Whether a conversion between integer types may overflow the second."""
    if is_float(source) or is_float(target) or "bool" in (source, target):
        return False
    given, made = np.iinfo(NUMPY[source]), np.iinfo(NUMPY[target])
    return int(given.min) < int(made.min) or int(given.max) > int(made.max)


def softsign(node: Node) -> None:
    """y = x / (1 + |x|)."""
    x, one = node.tensor(0), node.number("one", 1.0)
    node.compose()
    node.step("", "div", x, node.step("divisor", "add", node.step("size", "abs", x), one))


def quantize(node: Node) -> None:
    """y = saturate(round(x / scale) + zero)."""
    x, real, wanted = node.tensor(0), node.build.real, port_type(node.node.outputs[0])
    code = _code(node) if wanted not in REAL else None
    low, high = limits(wanted) if wanted in WHOLE else (-math.inf, math.inf)
    if code is not None:
        scale, zero = code
        low, high = ((end - zero) * scale for end in (low, high))
        node.step("", "move", x, scale=scale, zero=zero, low=low, high=high)
        return
    node.compose()
    steps = node.step("steps", "div", x, _along_axis(node, 1), dtype=real)
    if wanted in REAL:
        rounded(node, steps, wanted)
        return
    if not node.has(2):
        node.step("", "move", steps, low=low, high=high)
        return
    whole = node.step("whole", "round", steps, dtype=real)
    node.step("", "add", whole, _along_axis(node, 2), low=low, high=high)


def dequantize(node: Node) -> None:
    """y = (x - zero) * scale."""
    x, code = node.tensor(0), _code(node)
    if code is not None:
        node.step("", "move", x, code=code)
        return
    node.compose()
    if node.has(2):
        x = node.step("steps", "sub", x, _along_axis(node, 2), dtype=node.build.real)
    node.step("", "mul", x, _along_axis(node, 1))


def _code(node: Node) -> tuple[float, int] | None:
    """Scale and zero point of the whole tensor, if both are constant."""
    scale, zero = node.data(1), node.data(2)
    if not _single(scale) or (node.has(2) and not _single(zero)):
        return None
    return float(scale.reshape(())), 0 if zero is None else int(zero.reshape(()))


def _along_axis(node: Node, position: int) -> Tensor:
    """Scales or zero points, shaped to broadcast against the data."""
    if node.attribute("block_size", 0):
        raise NoNest(f"{node.op} in blocks")
    values, rank = node.tensor(position), len(node.shape())
    if not values.shape:
        return values
    axis = int(node.attribute("axis", 1)) % rank
    shape = (*[1] * axis, values.elements, *[1] * (rank - axis - 1))
    return node.build.view(f"{node.out}.input{position}", values, reshaped(*shape))


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(UNARY, unary), **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(PARAMETERS, unary), "Gelu": gelu, "Mod": modulo, "BitShift": bit_shift,
    "Pow": power, "Where": where, "Clip": clip, "Cast": cast,
    "Softsign": softsign, "QuantizeLinear": quantize, "DequantizeLinear": dequantize,
}  # fmt: skip

"""Element-wise operators: one function over broadcast operands."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeGuard

import ml_dtypes
import numpy as np
import onnx_ir as ir

from compiler.lowering import elementwise
from compiler.lowering.node import Lowering, Node, NoNest, numpy_type, port_type
from compiler.tensor_ir.nest import Array, Tensor
from simmodel.arch.base import Registry
from simmodel.arch.dtype import NAMES, NUMPY, is_float, largest, limits

# Conversions to types of a byte or less, which memories and ports hold and no engine computes in.

WHOLE = frozenset({"int2", "uint2", "int4", "uint4"})
REAL = frozenset({"fp8e4m3", "fp8e5m2", "fp8e4m3fnuz", "fp8e5m2fnuz", "fp4e2m1"})
ROUNDED = WHOLE | REAL
"""Types of results that are rounded here."""

_BITS = 23
"""Bits of fp32's significand, without the implicit one."""


def wrapped(node: Node, x: Tensor, name: str) -> None:
    """The low bits of integers, or of real numbers without their fractions."""
    make, out, shape = node.build.elementwise, node.out, node.shape()
    node.build.composite = node.build.composite or out
    low, high = limits(name)
    cut = "trunc" if is_float(x.dtype) else "move"
    whole = make(f"{out}.whole", shape, cut, [x], "int32")
    bits = make(
        f"{out}.bits", shape, "bitwise_and", [whole, _integer_constant(node, high - low)], "int32"
    )
    if not low:
        make(out, shape, "move", [bits], node.dtype())
        return
    turned = make(
        f"{out}.turned", shape, "bitwise_xor", [bits, _integer_constant(node, -low)], "int32"
    )
    make(out, shape, "sub", [turned, _integer_constant(node, -low)], node.dtype())


def _integer_constant(node: Node, number: int) -> Tensor:
    return node.build.constant(f"{node.out}.{number}", np.asarray(number, np.int32))


def rounded(node: Node, x: Tensor, name: str, *, saturates: bool = True) -> None:
    """Real numbers rounded to type `name`: to nearest; out of range to the largest, or, if the type
    does not saturate, to its not-a-number."""
    make, out, shape = node.build.elementwise, node.out, node.shape()
    node.build.composite = node.build.composite or out
    kind, top = ml_dtypes.finfo(NUMPY[name]), largest(name)  # type: ignore[no-untyped-call]
    bound = top if saturates else 2 * top

    def step(
        said: str,
        function: str,
        *operands: Tensor | float,
        low: float = -np.inf,
        high: float = np.inf,
    ) -> Tensor:
        read = [each if isinstance(each, Tensor) else _real(node, each) for each in operands]
        return make(f"{out}.{said}", shape, function, read, "fp32", low=low, high=high)

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
    make(out, shape, "move", [result], node.dtype())


def _real(node: Node, number: float) -> Tensor:
    return node.build.constant(f"{node.out}.{number}", np.asarray(number, np.float32), "fp32")


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
    "Sum": "add", "PRelu": "prelu", "Equal": "equal", "Less": "less",
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
    },
)


def unary(node: Node) -> None:
    """y = f(x)."""
    x = node.tensor(0)
    node.build.elementwise(node.out, node.shape(), UNARY[node.op], [x], node.dtype())


def parametric(node: Node) -> None:
    """y = f(x; constants from attributes)."""
    function, defaults = PARAMETERS[node.op]
    values = tuple(float(node.attribute(name, default)) for name, default in defaults)
    x = node.tensor(0)
    node.build.elementwise(node.out, node.shape(), function, [x], node.dtype(), parameters=values)


def gelu(node: Node) -> None:
    """y = x * Phi(x), or its tanh approximation."""
    spelled = node.attribute("approximate", "none")
    function = "gelu_tanh" if spelled == "tanh" else "gelu"
    node.build.elementwise(node.out, node.shape(), function, [node.tensor(0)], node.dtype())


def binary(node: Node) -> None:
    """y = f(a, b); more than two inputs are joined one after another."""
    if node.op in ("Mul", "Div") and is_float(node.dtype()) and _by_constant(node):
        return
    count = len(node.node.inputs)
    total = node.tensor(0)
    if count == 1:
        node.build.elementwise(node.out, node.shape(), "move", [total], node.dtype())
        return
    for position in range(1, count):
        last = position == count - 1
        operands = [total, node.tensor(position)]
        shape = np.broadcast_shapes(*(t.shape for t in operands))
        name = node.out if last else f"{node.out}.{position}"
        total = node.build.elementwise(name, shape, BINARY[node.op], operands, node.dtype())


def _by_constant(node: Node) -> bool:
    """Lower a product with a constant, or a quotient by one, to something cheaper; whether that
    succeeded.

    One positive number is a scale of the operand; others are reciprocals, if memory stores them as
    precisely as a division would compute.
    """
    places = (1,) if node.op == "Div" else (1, 0)
    place = next((p for p in places if node.data(p) is not None), None)
    if place is None or node.data(1 - place) is not None or np.any(node.uncertain(place)):
        return False
    x, factors = node.tensor(1 - place), node.constant(place).astype(np.float64)
    if node.op == "Div":
        with np.errstate(all="ignore"):
            factors = 1 / factors
    make, kind, info = node.build.elementwise, node.dtype(), np.finfo(np.float32)
    if not ((np.abs(factors) >= info.tiny) & (np.abs(factors) <= info.max)).all():
        return False
    if _single(factors) and factors.item() > 0 and x.shape == node.shape():
        make(node.out, x.shape, "move", [x], kind, (factors.item(), 0))
        return True
    with np.errstate(over="ignore"):  # what is too large is not what it was, and said so below
        stored = factors.astype(NUMPY[node.build.real])
    if node.op == "Mul" or (node.build.real != "fp32" and (stored != factors).any()):
        return False
    name = f"{node.value(place).name}.reciprocal"
    reciprocals = node.build.constant(name, factors.astype(np.float32))
    make(node.out, node.shape(), "mul", [x, reciprocals], kind)
    return True


def modulo(node: Node) -> None:
    """y = remainder of a / b: with the sign of b, or with `fmod` with that of a."""
    function = "fmod" if node.attribute("fmod", 0) else "mod"
    node.build.elementwise(node.out, node.shape(), function, _operands(node, 2), node.dtype())


def bit_shift(node: Node) -> None:
    """y = the bits of a, shifted left or right by b."""
    function = f"shift_{str(node.attribute('direction')).lower()}"
    node.build.elementwise(node.out, node.shape(), function, _operands(node, 2), node.dtype())


def is_inf(node: Node) -> None:
    """y = whether x is infinite, in the given direction."""
    asked = [float(node.attribute(f"detect_{sign}", 1)) for sign in ("negative", "positive")]
    make, x = node.build.elementwise, node.tensor(0)
    make(node.out, node.shape(), "is_inf", [x], node.dtype(), parameters=tuple(asked))


def power(node: Node) -> None:
    """y = a to the power of b; an integer to a real power is truncated."""
    operands = _operands(node, 2)
    make, out, shape, kind = node.build.elementwise, node.out, node.shape(), node.dtype()
    if is_float(kind) or not is_float(operands[1].dtype):
        if not _simple_power(node):
            make(out, shape, "pow", operands, kind)
        return
    node.build.composite = node.build.composite or out
    raised = make(f"{out}.raised", shape, "pow", operands)
    make(out, shape, "trunc", [raised], kind)


def _operands(node: Node, count: int) -> list[Tensor]:
    return [node.tensor(position) for position in range(count)]


POWERS = {0.5: "sqrt", 1.0: "move", 2.0: "square", -1.0: "reciprocal", -0.5: "rsqrt"}
"""Exponents that have functions of their own."""


def _simple_power(node: Node) -> bool:
    """Lower x to the power of a constant with a cheaper function; whether that succeeded."""
    exponent = node.data(1)
    function = POWERS.get(float(exponent.reshape(()))) if _single(exponent) else None
    x = node.tensor(0)
    if function is None or x.shape != node.shape():
        return False
    if not is_float(x.dtype) and function not in ("move", "square"):
        return False
    node.build.elementwise(node.out, node.shape(), function, [x], node.dtype())
    return True


def _single(array: Array | None) -> TypeGuard[Array]:
    return array is not None and array.size == 1


def where(node: Node) -> None:
    """y = a where chosen, else b."""
    node.build.elementwise(node.out, node.shape(), "select", _operands(node, 3), node.dtype())


def clip(node: Node) -> None:
    """y = x limited to [low, high]."""
    x, kind = node.tensor(0), node.dtype()
    low, high = (_limit(node, position) for position in (1, 2))
    if low == math.inf and not node.has(2):  # then ONNX's upper bound is the largest number
        high = float(ml_dtypes.finfo(numpy_type(node.value(0))).max)  # type: ignore[no-untyped-call]
    if isinstance(low, Tensor):
        x = node.build.elementwise(f"{node.out}.max", x.shape, "max", [x, low], kind)
        low = -math.inf
    if isinstance(high, Tensor):  # behind the lower bound: where that is above, this one holds
        if low > -math.inf:
            x = node.build.elementwise(f"{node.out}.max", x.shape, "move", [x], kind, low=low)
        node.build.elementwise(node.out, x.shape, "min", [x, high], kind)
        return
    low = min(low, high)
    node.build.elementwise(node.out, x.shape, "move", [x], kind, low=low, high=high)


def _limit(node: Node, position: int) -> float | Tensor:
    """A bound of a Clip; infinite if absent."""
    if not node.has(position):
        return math.inf if position == 2 else -math.inf
    data = node.data(position)
    bound = None if data is None else data.reshape(()).item()
    return node.tensor(position) if bound is None or bound != float(bound) else float(bound)


def cast(node: Node) -> None:
    """y = x in another element type; truncated if y is an integer."""
    x, kind, narrow = node.tensor(0), node.dtype(), _rounding(node)
    target = port_type(node.node.outputs[0])
    if node.value(0).dtype != node.node.outputs[0].dtype and target in elementwise.ROUNDED:
        if target in elementwise.WHOLE:
            elementwise.wrapped(node, x, target)
        else:
            elementwise.rounded(node, x, target, saturates=bool(node.attribute("saturate", 1)))
        return
    if narrow is not None:
        node.build.elementwise(node.out, node.shape(), f"round_{narrow}", [x], kind)
        return
    cut_off = is_float(x.dtype) and not is_float(kind) and kind != "bool"
    function = "trunc" if cut_off else "wrap" if _loses_bits(x.dtype, kind) else "move"
    made = node.build.elementwise(node.out, node.shape(), function, [x], kind)
    wanted = _wanted_half(node)
    rounded = made.rounded if wanted is None or cut_off else (wanted,)
    node.build.tensors[made.name] = replace(made, rounded=rounded, converted=cut_off)


def _rounding(node: Node) -> str | None:
    """The half-precision type that the model rounds to, if memory is wider.

    Casts inside of a composite are as precise as memory; if memory has a half-precision type for
    all real values, that is the user's choice of precision.
    """
    return _wanted_half(node) if node.build.real == "fp32" else None


def _wanted_half(node: Node) -> str | None:
    """The half-precision type to which the model casts a value that may not be of that type
    already."""
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
    x, kind = node.tensor(0), node.dtype()
    make, out = node.build.elementwise, node.out
    node.build.composite = node.build.composite or out
    one = node.build.constant(f"{out}.one", np.ones((), np.float32))
    size = make(f"{out}.size", x.shape, "abs", [x], kind)
    divisor = make(f"{out}.divisor", x.shape, "add", [size, one], kind)
    make(out, x.shape, "div", [x, divisor], kind)


def celu(node: Node) -> None:
    """y = x where positive, else alpha * (exp(x / alpha) - 1): Elu between two scalings."""
    x, kind = node.tensor(0), node.dtype()
    alpha = float(node.attribute("alpha", 1.0))
    make, out = node.build.elementwise, node.out
    node.build.composite = node.build.composite or out
    inner = make(f"{out}.inner", x.shape, "elu", [x], kind, (1 / alpha, 0), parameters=(1.0,))
    make(out, x.shape, "move", [inner], kind, (alpha, 0))


def thresholded_relu(node: Node) -> None:
    """y = x where it exceeds alpha, else 0."""
    x, kind = node.tensor(0), node.dtype()
    make, out = node.build.elementwise, node.out
    node.build.composite = node.build.composite or out
    alpha = np.array(node.attribute("alpha", 1.0), np.float32)
    limit = node.build.constant(f"{out}.alpha", alpha)
    chosen = make(f"{out}.chosen", x.shape, "greater", [x, limit], "bool")
    zero = node.build.constant(f"{out}.zero", np.zeros((), np.float32))
    make(out, x.shape, "select", [chosen, x, zero], kind)


def quantize(node: Node) -> None:
    """y = saturate(round(x / scale) + zero)."""
    x, kind = node.tensor(0), node.dtype()
    make, out, wanted = node.build.elementwise, node.out, port_type(node.node.outputs[0])
    code = _code(node) if wanted not in elementwise.REAL else None
    low, high = limits(wanted) if wanted in elementwise.WHOLE else (-math.inf, math.inf)
    if code is not None:
        ends = ((low - code[1]) * code[0], (high - code[1]) * code[0])
        make(out, node.shape(), "move", [x], kind, scale=code[0], zero=code[1],
             low=ends[0], high=ends[1])  # fmt: skip
        return
    node.build.composite = node.build.composite or out
    steps = make(f"{out}.steps", x.shape, "div", [x, _along_axis(node, 1)])
    if wanted in elementwise.REAL:
        elementwise.rounded(node, steps, wanted, saturates=bool(node.attribute("saturate", 1)))
        return
    if not node.has(2):
        make(out, x.shape, "move", [steps], kind, low=low, high=high)
        return
    whole = make(f"{out}.whole", x.shape, "round", [steps])
    make(out, x.shape, "add", [whole, _along_axis(node, 2)], kind, low=low, high=high)


def dequantize(node: Node) -> None:
    """y = (x - zero) * scale."""
    x, kind = node.tensor(0), node.dtype()
    make, out = node.build.elementwise, node.out
    code = _code(node)
    if code is not None:
        make(out, node.shape(), "move", [x], kind, code=code)
        return
    node.build.composite = node.build.composite or out
    if node.has(2):
        x = make(f"{out}.steps", x.shape, "sub", [x, _along_axis(node, 2)])
    make(out, x.shape, "mul", [x, _along_axis(node, 1)], kind)


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
    shape, strides = [1] * rank, [0] * rank
    shape[axis], strides[axis] = values.elements, values.storage.strides[-1]
    storage = replace(values.storage, strides=tuple(strides))
    return node.build.view(f"{node.out}.input{position}", tuple(shape), storage, values)


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(PARAMETERS, parametric),
    "Gelu": gelu,
    "Mod": modulo,
    "BitShift": bit_shift,
    "IsInf": is_inf,
    "Pow": power,
    "Where": where,
    "Clip": clip,
    "Cast": cast,
    "Softsign": softsign,
    "Celu": celu,
    "ThresholdedRelu": thresholded_relu,
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
}

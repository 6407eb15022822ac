"""Element-wise operators: one function over broadcast operands."""

from __future__ import annotations

import math

import numpy as np

from compiler.ops.node import Lowering, Node, NoNest
from simmodel.dtype import is_float

UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp",
    "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Neg": "neg", "Abs": "abs",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign", "Sin": "sin",
    "Cos": "cos", "Softplus": "softplus", "Mish": "mish", "HardSwish": "hard_swish",
    "Silu": "silu", "Swish": "silu", "Not": "not",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Max": "max", "Min": "min",
    "Sum": "add", "Pow": "pow", "PRelu": "prelu", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "And": "and", "Or": "or", "Xor": "xor",
}  # fmt: skip
PARAMETERS = {
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "Selu": ("selu", (("alpha", 1.6732632), ("gamma", 1.0507010))),
    "HardSigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
}


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
    if not is_float(node.dtype()) and node.op in ("Div", "Pow"):
        raise NoNest(f"{node.op} of integers")
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


def where(node: Node) -> None:
    """y = a where chosen, else b."""
    operands = [node.tensor(position) for position in range(3)]
    node.build.elementwise(node.out, node.shape(), "select", operands, node.dtype())


def clip(node: Node) -> None:
    """y = x limited to [low, high]."""
    limits = [-math.inf, math.inf]
    for position in (1, 2):
        if node.has(position):
            limits[position - 1] = float(node.constant(position).reshape(()))
    node.build.elementwise(
        node.out,
        node.shape(),
        "move",
        [node.tensor(0)],
        node.dtype(),
        low=limits[0],
        high=limits[1],
    )


def cast(node: Node) -> None:
    """y = x in another element type; fractions are cut off towards zero when y is an integer."""
    x = node.tensor(0)
    if is_float(x.dtype) and not is_float(node.dtype()):
        raise NoNest("Cast from real to integer")
    node.build.elementwise(node.out, node.shape(), "move", [x], node.dtype())


def quantize(node: Node) -> None:
    """y = saturate(round(x / scale) + zero)."""
    scale, zero = _code(node)
    node.build.elementwise(
        node.out, node.shape(), "move", [node.tensor(0)], node.dtype(), scale=scale, zero=zero
    )


def dequantize(node: Node) -> None:
    """y = (x - zero) * scale."""
    scale, zero = _code(node)
    node.build.elementwise(
        node.out, node.shape(), "move", [node.tensor(0)], node.dtype(), code=(scale, zero)
    )


def _code(node: Node) -> tuple[float, int]:
    scale = node.constant(1)
    if scale.size != 1:
        raise NoNest(f"{node.op} per channel of a computed tensor")
    zero = node.constant(2).reshape(-1)[0] if node.has(2) else 0
    return float(scale.reshape(-1)[0]), int(zero)


TABLE: dict[str, Lowering] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(PARAMETERS, parametric),
    "Gelu": gelu,
    "Where": where,
    "Clip": clip,
    "Cast": cast,
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
}

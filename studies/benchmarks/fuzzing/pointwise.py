"""Operators that work element by element: activations, arithmetic, comparisons, choices, casts."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from fuzzing.net import Net

UNARY = (
    "Relu", "Relu", "Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Gelu", "HardSwish", "Softplus",
    "Softsign", "Erf", "Mish", "Floor", "Ceil", "Round", "Sign", "Identity", "Sin", "Cos", "Exp",
    "Reciprocal", "Atan", "Sinh", "Dropout",
)  # fmt: skip
SHAPED: dict[str, tuple[str, tuple[float, ...]]] = {
    "LeakyRelu": ("alpha", (0.01, 0.2, 1.5)), "Elu": ("alpha", (1.0, 0.5)),
    "ThresholdedRelu": ("alpha", (0.5, 1.0)), "Celu": ("alpha", (1.0, 2.0)),
    "HardSigmoid": ("alpha", (0.2, 0.1667)), "Selu": ("gamma", (1.05, 2.0)),
    "Shrink": ("lambd", (0.5, 0.1)),
}  # fmt: skip


def unary(net: Net, x: str) -> str | None:
    """One activation or function."""
    if net.maybe(0.25):
        kind = net.pick(*sorted(SHAPED))
        name, values = SHAPED[kind]
        return net.op(kind, x, **({name: net.pick(*values)} if net.maybe(0.7) else {}))
    if net.maybe(0.15):
        positive = net.op("Add", net.op("Abs", x), net.const(net.pick(0.5, 1.0), net.real))
        return net.op(net.pick("Sqrt", "Log", "Reciprocal"), positive)
    kind = net.pick(*UNARY)
    more = {"approximate": net.pick("none", "tanh")} if kind == "Gelu" else {}
    return net.op(kind, x, **more)


def clip(net: Net, x: str) -> str | None:
    """Limits, one of which may be missing."""
    low, high = net.pick((0.0, 6.0), (-1.0, 1.0), (0.5, 0.75), (-3.0, 0.0))
    inputs = [net.const(low, net.real), net.const(high, net.real)]
    if net.maybe(0.3):
        inputs = net.pick([inputs[0]], ["", inputs[1]])
    return net.op("Clip", x, *inputs)


def other(net: Net, x: str) -> str:
    """Another operand for `x`: a value of a shape that broadcasts, or a constant."""
    shape = net.shape(x)
    if net.maybe(0.5):
        near = [
            name for name in list(net.values)[-40:]
            if net.is_real(name) and name[0] != "c" and broadcasts(net.shape(name), shape)
        ]  # fmt: skip
        if near:
            return str(net.pick(*near))
    made = [net.pick(1, extent, extent) for extent in shape][net.rng.randrange(len(shape) + 1) :]
    if net.maybe(0.2):
        return net.const(net.pick(0.5, 2.0, -1.5), net.real)
    return net.weight(*made) if made else net.const(0.75, net.real)


def broadcasts(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    """Whether two shapes have a common one that is not much more than both."""
    pairs = zip(reversed(one), reversed(two), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def binary(net: Net, x: str) -> str | None:
    """Arithmetic with a value that is there, or with a constant, on either side."""
    y = other(net, x)
    kind = net.pick(
        "Add",
        "Add",
        "Mul",
        "Mul",
        "Sub",
        "Sub",
        "Div",
        "Max",
        "Min",
        "Pow",
        "PRelu",
        "Mean",
        "Sum",
        "Mod",
    )
    if kind == "Div":
        positive = net.op("Add", net.op("Abs", y), net.const(1.0, net.real))
        return net.op("Div", x, positive)
    if kind == "Pow":
        return net.op("Pow", x, net.const(net.pick(2.0, 3.0), net.real))
    if kind == "PRelu":
        slopes = [net.shape(x)[1], *[1] * (len(net.shape(x)) - 2)] if len(net.shape(x)) > 1 else [1]
        return net.op("PRelu", x, net.const(net.random.random(slopes), net.real))
    if kind == "Mod":
        return net.op("Mod", x, net.const(net.pick(1.5, 2.0), net.real), fmod=1)
    if kind in ("Max", "Min", "Mean", "Sum") and net.maybe(0.3):
        return net.op(kind, x, y, other(net, x))
    return net.op(kind, *((x, y) if net.maybe(0.6) else (y, x)))


def choice(net: Net, x: str) -> str | None:
    """Values chosen by a comparison, or the comparison as a number."""
    kind = net.pick("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")
    truth = net.op(kind, x, net.const(net.pick(0.0, 0.25), net.real))
    if net.maybe(0.3):
        truth = net.op("Not", truth)
    if net.maybe(0.3):
        more = net.op("Less", x, net.const(1.0, net.real))
        truth = net.op(net.pick("And", "Or", "Xor"), truth, more)
    if truth and net.maybe(0.3):
        return net.op("Cast", truth, to=float_code(net))
    return net.op("Where", truth, x, other(net, x))


def masked(net: Net, x: str) -> str | None:
    """Values chosen by a constant mask."""
    mask = net.const(net.random.random(net.shape(x)) < 0.6, np.bool_)
    return net.op("Where", mask, x, net.const(net.pick(0.0, -5.0), net.real))


def float_code(net: Net) -> int:
    """The graph's own type as ONNX numbers it."""
    return int(TensorProto.FLOAT16 if net.real == np.float16 else TensorProto.FLOAT)


def cast(net: Net, x: str) -> str | None:
    """There and back: through half precision, or through integers, which round down to them."""
    to = net.pick(
        TensorProto.FLOAT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.BOOL,
        TensorProto.DOUBLE,
    )
    return net.op("Cast", net.op("Cast", x, to=int(to)), to=float_code(net))


def isnan(net: Net, x: str) -> str | None:
    """A guard against what is no number."""
    bad = net.op(net.pick("IsNaN", "IsInf"), x)
    return net.op("Where", bad, net.const(0.0, net.real), x)


def affine(net: Net, x: str) -> str | None:
    """A constant factor and a constant term for each channel."""
    if len(net.shape(x)) < 2:
        return None
    one: list[Any] = [net.shape(x)[1], *[1] * (len(net.shape(x)) - 2)]
    scaled = net.op("Mul", x, net.const(net.random.random(one) + 0.5, net.real))
    return net.op("Add", scaled, net.const(net.random.standard_normal(one), net.real))

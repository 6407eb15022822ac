"""The vector engine's arithmetic: each function once, with its numpy meaning and its cost class.

All functions take and give fp32; those with a `whole` meaning compute integers and truth values
among themselves exactly (`exact`). Cost classes are the fields of `simmodel.arch.VectorCost`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from simmodel.arch import VectorCost
from simmodel.dtype import NUMPY
from simmodel.isa.base import Array
from simmodel.isa.terms import Term, term_of
from simmodel.isa.whole import (
    Whole,
    divided,
    modulo,
    power,
    remainder,
    shifted_left,
    shifted_right,
    stands_for_itself,
)
from simmodel.region import Operand
from simmodel.registry import Registry

COSTS = tuple(VectorCost.model_fields)
"""Classes of functions that a machine's file gives cycles for."""


@dataclass(frozen=True)
class Function:
    """An arithmetic function of the vector engine."""

    cost: str
    """A class of `vector.cost` of a machine: one of `COSTS`."""
    apply: Callable[..., Array]
    parameters: tuple[str, ...] = ()
    """Names of its constant parameters, in the order in which `apply` takes them."""
    rounds_to: str | None = None
    """The element type whose numbers it gives; an engine without that type has not the function."""
    whole: Whole | None = None
    """What it makes of whole numbers; None: it computes them in fp32 like all others."""
    wraps: bool = True
    """Whether whole results keep their low bits where they leave their type; else they saturate."""
    bits: bool = False
    """Whether it is about the bits of whole numbers, and means nothing for others."""
    does: tuple[str, ...] = ()
    """The same in other functions (`simmodel.isa.terms`); of several the machine's costs choose."""
    operands: tuple[str, ...] = ("x", "y", "z")
    """What `does` calls them."""
    place: str = ""
    """File and line of one that an extension added (`simmodel.isa.own`)."""

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            known = ", ".join(COSTS)
            raise ValueError(f"no cost class {self.cost!r} of the vector engine; there are {known}")

    @property
    def terms(self) -> tuple[Term, ...]:
        """What it does, in other functions of operands and parameters by name."""
        return tuple(map(term_of, self.does))

    def meaning(self, *, exact: bool) -> Callable[..., Array]:
        """What it computes: with whole numbers where it is `exact`, else with fp32."""
        return self.whole if exact and self.whole is not None else self.apply


def exact(function: Function, *operands: Operand) -> bool:
    """Whether `function` computes exactly between `operands`, its result among them."""
    return function.whole is not None and all(map(stands_for_itself, operands))


def erf(x: Array) -> Array:
    """Error function, fractional error below 1.2e-7 (Chebyshev fit, Numerical Recipes 6.2)."""
    z = np.abs(x.astype(np.float64))
    t = 1.0 / (1.0 + 0.5 * z)
    fit = (
        -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
        0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
    )  # fmt: skip
    series = np.zeros_like(t)
    for coefficient in reversed(fit):
        series = series * t + coefficient
    tail = t * np.exp(-z * z + series)
    return np.where(x >= 0, 1.0 - tail, tail - 1.0).astype(np.float32)


def _sigmoid(x: Array) -> Array:
    half = np.float32(0.5)
    result: Array = half * (np.tanh(half * x) + np.float32(1))
    return result


def _gelu(x: Array) -> Array:
    result: Array = np.float32(0.5) * x * (1 + erf(x * np.float32(math.sqrt(0.5))))
    return result


def _gelu_tanh(x: Array) -> Array:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    result: Array = np.float32(0.5) * x * (1 + np.tanh(inner))
    return result


def _hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    result: Array = np.clip(np.float32(alpha) * x + np.float32(beta), 0, 1)
    return result


def _select(chosen: Array, x: Array, y: Array) -> Array:
    return np.where(chosen != 0, x, y)


def _softplus(x: Array) -> Array:
    result: Array = np.logaddexp(np.float32(0), x)
    return result


def _leaky_relu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, np.float32(alpha) * x)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return np.multiply(np.float32(gamma), _elu(x, alpha))


def _rsqrt(x: Array) -> Array:
    result: Array = 1 / np.sqrt(x)
    return result


def _truth(function: Callable[..., Any], *does: str) -> Function:
    """A function that tells true from false."""
    return Function(
        "simple", lambda *xs: function(*xs).astype(np.float32), whole=function, does=does
    )


def _alike(
    cost: str,
    function: Callable[..., Any],
    exactly: Whole | None = None,
    *,
    wraps: bool = True,
    does: tuple[str, ...] = (),
) -> Function:
    """A function that numpy has for real and whole numbers alike, or `exactly` for the latter."""
    return Function(cost, function, whole=exactly or function, wraps=wraps, does=does)


def _bitwise(function: Callable[..., Any]) -> Function:
    return Function("simple", function, whole=function, bits=True)


def _same(x: Array) -> Array:
    return x


def _is_infinite(x: Array, negative: float, positive: float) -> Array:
    """Whether x is infinite: below, above, as the parameters that are not 0 say."""
    found = (np.isneginf(x) & bool(negative)) | (np.isposinf(x) & bool(positive))
    return found.astype(np.float32)


def _rounded(dtype: str) -> Callable[[Array], Array]:
    return lambda x: x.astype(NUMPY[dtype]).astype(np.float32)


_GELU = f"(x * 0.5) * (erf(x * {math.sqrt(0.5)!r}) + 1)"
_GELU_TANH = f"x * sigmoid({2 * math.sqrt(2 / math.pi)!r} * (x + 0.044715 * (x * square(x))))"
_BELOW = "(exp(min(x, 0)) - 1)"

UNARY: dict[str, Function] = Registry(
    "function of one operand",
    {
        "move": _alike("simple", _same, wraps=False),
        "wrap": _alike("simple", _same),
        "relu": _alike("simple", lambda x: np.maximum(x, 0), does=("max(x, 0)",)),
        "abs": _alike("simple", np.abs, does=("max(x, x * -1)",)),
        "neg": _alike("simple", np.negative, does=("x * -1",)),
        "sign": _alike("simple", np.sign),
        "floor": _alike("simple", np.floor, _same, does=("-ceil(-x)",)),
        "ceil": _alike("simple", np.ceil, _same, does=("-floor(-x)",)),
        "round": _alike("simple", np.rint, _same),
        "trunc": _alike("simple", np.trunc, _same),
        "not": _truth(np.logical_not),
        "bitwise_not": _bitwise(np.bitwise_not),
        "is_nan": Function("simple", lambda x: np.isnan(x).astype(np.float32)),
        "is_inf": Function("simple", _is_infinite, ("negative", "positive")),
        "round_fp16": Function("simple", _rounded("fp16"), rounds_to="fp16"),
        "round_bf16": Function("simple", _rounded("bf16"), rounds_to="bf16"),
        "square": _alike("multiply", np.square, does=("x * x",)),
        "leaky_relu": Function(
            "multiply", _leaky_relu, ("alpha",), does=("max(x, 0) + min(x, 0) * alpha",)
        ),
        "hard_sigmoid": Function(
            "multiply", _hard_sigmoid, ("alpha", "beta"), does=("min(max(x * alpha + beta, 0), 1)",)
        ),
        "hard_swish": Function(
            "multiply",
            lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
            does=("x * min(max(x * (1 / 6) + 0.5, 0), 1)",),
        ),
        "reciprocal": Function("divide", np.reciprocal, does=("1 / x", "square(rsqrt(x))")),
        "sqrt": Function("divide", np.sqrt),
        "rsqrt": Function("divide", _rsqrt, does=("reciprocal(sqrt(x))",)),
        "exp": Function("special", np.exp),
        "log": Function("special", np.log),
        "erf": Function("special", erf),
        "tanh": Function(
            "special", np.tanh, does=("sigmoid(x * 2) * 2 - 1", "1 - 2 / (exp(x * 2) + 1)")
        ),
        "sigmoid": Function(
            "special", _sigmoid, does=("tanh(x * 0.5) * 0.5 + 0.5", "reciprocal(exp(-x) + 1)")
        ),
        "silu": Function("special", lambda x: x * _sigmoid(x), does=("x * sigmoid(x)",)),
        "gelu": Function("special", _gelu, does=(_GELU,)),
        "gelu_tanh": Function("special", _gelu_tanh, does=(_GELU_TANH,)),
        "softplus": Function("special", _softplus, does=("max(x, 0) + log(exp(-abs(x)) + 1)",)),
        "mish": Function(
            "special", lambda x: x * np.tanh(_softplus(x)), does=("x * tanh(softplus(x))",)
        ),
        "elu": Function("special", _elu, ("alpha",), does=(f"max(x, 0) + alpha * {_BELOW}",)),
        "selu": Function(
            "special", _selu, ("alpha", "gamma"), does=(f"gamma * (max(x, 0) + alpha * {_BELOW})",)
        ),
        "sin": Function("special", np.sin, does=(f"cos(x - {math.pi / 2!r})",)),
        "cos": Function("special", np.cos, does=(f"sin(x + {math.pi / 2!r})",)),
        "tan": Function("special", np.tan),
        "asin": Function("special", np.arcsin),
        "acos": Function("special", np.arccos),
        "atan": Function("special", np.arctan),
        "sinh": Function("special", np.sinh),
        "cosh": Function("special", np.cosh),
        "asinh": Function("special", np.arcsinh),
        "acosh": Function("special", np.arccosh),
        "atanh": Function("special", np.arctanh),
    },
)

BINARY: dict[str, Function] = Registry(
    "function of two operands",
    {
        "add": _alike("simple", np.add),
        "sub": _alike("simple", np.subtract, does=("x + y * -1",)),
        "max": _alike("simple", np.maximum, does=("-min(-x, -y)",)),
        "min": _alike("simple", np.minimum, does=("-max(-x, -y)",)),
        "mul": _alike("multiply", np.multiply),
        "div": _alike("divide", np.divide, divided, does=("x * reciprocal(y)",)),
        "mod": _alike("divide", np.mod, modulo),
        "fmod": _alike("divide", np.fmod, remainder),
        "pow": _alike("special", np.power, power),
        "prelu": Function(
            "multiply",
            lambda x, slope: np.where(x >= 0, x, slope * x),
            does=("max(x, 0) + min(x, 0) * y",),
        ),
        "equal": _truth(np.equal),
        "less": _truth(np.less, "greater(y, x)", "not greater_equal(x, y)"),
        "less_equal": _truth(np.less_equal, "greater_equal(y, x)"),
        "greater": _truth(np.greater, "less(y, x)", "not less_equal(x, y)"),
        "greater_equal": _truth(np.greater_equal, "less_equal(y, x)"),
        "and": _truth(np.logical_and),
        "or": _truth(np.logical_or),
        "xor": _truth(np.logical_xor),
        "bitwise_and": _bitwise(np.bitwise_and),
        "bitwise_or": _bitwise(np.bitwise_or),
        "bitwise_xor": _bitwise(np.bitwise_xor),
        "shift_left": _bitwise(shifted_left),
        "shift_right": _bitwise(shifted_right),
    },
)

TERNARY: dict[str, Function] = Registry(
    "function of three operands",
    {
        "select": _alike("simple", _select),
        "fma": _alike("multiply", lambda x, y, z: x * y + z, does=("x * y + z",)),
    },
)

REDUCE: dict[str, Function] = Registry(
    "reduction",
    {
        "sum": _alike("simple", np.sum),
        "max": _alike("simple", np.max),
        "min": _alike("simple", np.min),
        "prod": _alike("multiply", np.prod),
    },
)

JOINS = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}
"""The function of two operands with which pieces of a reduction are joined."""

COMBINE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
"""How a reduction joins its result with an earlier one."""

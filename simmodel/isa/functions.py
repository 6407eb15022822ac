"""The vector engine's arithmetic: each function once, with its numpy meaning and its cost class.

All functions take and give fp32. Cost classes are the fields of `simmodel.arch.VectorCost`.
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

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            known = ", ".join(COSTS)
            raise ValueError(f"no cost class {self.cost!r} of the vector engine; there are {known}")


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


def _truth(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda *xs: function(*xs).astype(np.float32)


def _rounded(dtype: str) -> Callable[[Array], Array]:
    return lambda x: x.astype(NUMPY[dtype]).astype(np.float32)


UNARY: dict[str, Function] = Registry(
    "function of one operand",
    {
        "move": Function("simple", lambda x: x),
        "relu": Function("simple", lambda x: np.maximum(x, 0)),
        "abs": Function("simple", np.abs),
        "neg": Function("simple", np.negative),
        "sign": Function("simple", np.sign),
        "floor": Function("simple", np.floor),
        "ceil": Function("simple", np.ceil),
        "round": Function("simple", np.rint),
        "not": Function("simple", _truth(np.logical_not)),
        "round_fp16": Function("simple", _rounded("fp16"), rounds_to="fp16"),
        "round_bf16": Function("simple", _rounded("bf16"), rounds_to="bf16"),
        "square": Function("multiply", np.square),
        "leaky_relu": Function("multiply", _leaky_relu, ("alpha",)),
        "hard_sigmoid": Function("multiply", _hard_sigmoid, ("alpha", "beta")),
        "hard_swish": Function("multiply", lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5)),
        "reciprocal": Function("divide", np.reciprocal),
        "sqrt": Function("divide", np.sqrt),
        "rsqrt": Function("divide", _rsqrt),
        "exp": Function("special", np.exp),
        "log": Function("special", np.log),
        "erf": Function("special", erf),
        "tanh": Function("special", np.tanh),
        "sigmoid": Function("special", _sigmoid),
        "silu": Function("special", lambda x: x * _sigmoid(x)),
        "gelu": Function("special", _gelu),
        "gelu_tanh": Function("special", _gelu_tanh),
        "softplus": Function("special", _softplus),
        "mish": Function("special", lambda x: x * np.tanh(_softplus(x))),
        "elu": Function("special", _elu, ("alpha",)),
        "selu": Function("special", _selu, ("alpha", "gamma")),
        "sin": Function("special", np.sin),
        "cos": Function("special", np.cos),
    },
)

BINARY: dict[str, Function] = Registry(
    "function of two operands",
    {
        "add": Function("simple", np.add),
        "sub": Function("simple", np.subtract),
        "max": Function("simple", np.maximum),
        "min": Function("simple", np.minimum),
        "mul": Function("multiply", np.multiply),
        "div": Function("divide", np.divide),
        "pow": Function("special", np.power),
        "prelu": Function("multiply", lambda x, slope: np.where(x >= 0, x, slope * x)),
        "equal": Function("simple", _truth(np.equal)),
        "less": Function("simple", _truth(np.less)),
        "less_equal": Function("simple", _truth(np.less_equal)),
        "greater": Function("simple", _truth(np.greater)),
        "greater_equal": Function("simple", _truth(np.greater_equal)),
        "and": Function("simple", _truth(np.logical_and)),
        "or": Function("simple", _truth(np.logical_or)),
        "xor": Function("simple", _truth(np.logical_xor)),
    },
)

TERNARY: dict[str, Function] = Registry(
    "function of three operands",
    {
        "select": Function("simple", _select),
        "fma": Function("multiply", lambda x, y, z: x * y + z),
    },
)

REDUCE: dict[str, Function] = Registry(
    "reduction",
    {
        "sum": Function("simple", np.sum),
        "max": Function("simple", np.max),
        "min": Function("simple", np.min),
        "prod": Function("multiply", np.prod),
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

"""The vector engine's arithmetic: each function once, with its numpy meaning and its cost class.

All functions take and give fp32; those with a `whole` meaning compute integers and truth values
among themselves exactly (`exact`). Cost classes are the fields of
`simmodel.arch.record.VectorCost`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from simmodel.arch.base import ENTRIES, Registry
from simmodel.arch.dtype import NUMPY, Array
from simmodel.arch.element_types import STORED, is_float
from simmodel.arch.record import VectorCost
from simmodel.isa.region import Operand

# What one function of the vector engine does, in others: `x * sigmoid(x)`.

Term = str | float | tuple["Term", ...]
"""An operand or parameter by its name, a number, or a function of terms, its name first."""

SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
"""Functions of two operands that have a sign in Python's grammar."""


@cache
def term_of(text: str) -> Term:
    """The term in `text`; raises ValueError with the reason."""
    try:
        (line,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError) as mistake:
        raise ValueError(f"{text!r} is no expression: {mistake}") from None
    if not isinstance(line, ast.Expr):
        raise ValueError(f"{text!r} is no expression; write what the result is, x * sigmoid(x)")
    return _term(line.value)


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _term(operand)
            return -inner if isinstance(inner, float) else ("neg", inner)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ("not", _term(operand))
        case ast.BinOp(op=op) if type(op) in SIGNS:
            name, left, right = SIGNS[type(op)], _term(node.left), _term(node.right)
            if isinstance(left, float) and isinstance(right, float):
                return float(BINARY[name].apply(left, right))
            return (name, left, right)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return (name, *map(_term, node.args))
    raise ValueError(f"{ast.unparse(node)!r} is no value of an operand, nor a function of such")


def names_in(term: Term) -> set[str]:
    """Operands and parameters in `term`."""
    if isinstance(term, tuple):
        return set[str]().union(*map(names_in, term[1:]))
    return {term} if isinstance(term, str) else set()


def functions_in(term: Term) -> set[tuple[str, int]]:
    """Functions in `term` and their numbers of operands."""
    if not isinstance(term, tuple):
        return set()
    inner = set[tuple[str, int]]().union(*map(functions_in, term[1:]))
    return {(str(term[0]), len(term) - 1)} | inner


def about(text: str, names: Collection[str]) -> Term:
    """The term in `text`, with only these `names`; raises ValueError with the reason."""
    term = term_of(text)
    unknown = sorted(names_in(term) - set(names))
    if unknown:
        known = ", ".join(names)
        raise ValueError(
            f"{text!r} is about {unknown[0]!r}, which is no operand; there are {known}"
        )
    return term


# Whole numbers on the vector engine: functions of integers and truth values, computed exactly.

Whole = Callable[..., Array]
"""A function of arrays of int64 or uint64, all alike, and of its parameters."""


def stands_for_itself(operand: Operand) -> bool:
    """Whether the raw values of `operand` are the integers or booleans themselves."""
    whole = not is_float(operand.dtype) and operand.dtype not in STORED
    return whole and operand.scale is None and operand.zero == 0


def widened(*raw: Array) -> list[Array]:
    """Raw integers and booleans in the type of exact arithmetic."""
    wide = np.uint64 if any(each.dtype == np.uint64 for each in raw) else np.int64
    return [each.astype(wide) for each in raw]


def stored(values: Array, dtype: np.dtype[Any], low: float, high: float, *, wraps: bool) -> Array:
    """Exact `values` as elements of `dtype`, clipped to [low, high].

    Args:
        values: int64, uint64 or bool.
        dtype: of the result: an integer type or bool, of which all but 0 is true.
        low, high: bounds of the result; infinite: none.
        wraps: whether numbers beyond `dtype` keep their low bits, else they saturate.
    """
    if values.dtype == np.bool_ or dtype == np.bool_:
        return values.astype(dtype)
    kept = values.astype(dtype) if wraps else values
    ranges = np.iinfo(dtype), np.iinfo(kept.dtype)
    least = max(int(each.min) for each in ranges)
    most = min(int(each.max) for each in ranges)
    bottom = least if low <= least else min(math.ceil(low), most)
    top = most if high >= most else max(math.floor(high), least)
    clipped: Array = np.clip(kept, bottom, top).astype(dtype, copy=False)
    return clipped


def divided(x: Array, y: Array) -> Array:
    """x / y, truncated."""
    whole = _nonzero(y)
    quotient = x // whole
    towards_zero = (x % whole != 0) & ((x < 0) != (whole < 0))
    return np.where(y == 0, 0, quotient + towards_zero).astype(x.dtype)


def modulo(x: Array, y: Array) -> Array:
    """Remainder of x / y, with the sign of y."""
    return np.where(y == 0, 0, np.mod(x, _nonzero(y))).astype(x.dtype)


def remainder(x: Array, y: Array) -> Array:
    """Remainder of x / y, with the sign of x."""
    return np.where(y == 0, 0, np.fmod(x, _nonzero(y))).astype(x.dtype)


def _nonzero(y: Array) -> Array:
    return np.where(y == 0, 1, y).astype(y.dtype)


def power(x: Array, y: Array) -> Array:
    """x to the power of y; a fraction (negative y) is truncated."""
    raised: Array = np.power(x, np.maximum(y, 0))
    fraction = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    return np.where(y < 0, fraction, raised).astype(x.dtype)


def shifted_left(x: Array, y: Array) -> Array:
    """x shifted left by y bits; 0 if y is negative or beyond the bits."""
    moved = np.left_shift(x, np.clip(y, 0, 63))
    return np.where((y < 0) | (y > 63), 0, moved).astype(x.dtype)


def shifted_right(x: Array, y: Array) -> Array:
    """x shifted right by y bits, filled with its sign; only the sign if y is negative or beyond the
    bits."""
    moved = np.right_shift(x, np.clip(y, 0, 63))
    return np.where((y < 0) | (y > 63), -(x < 0).astype(x.dtype), moved).astype(x.dtype)


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
    """Its exact integer meaning; None: integers are computed in fp32 like all others."""
    wraps: bool = True
    """Whether integer results beyond their type keep their low bits; else they saturate."""
    bits: bool = False
    """Whether it works on the bits of integers, and has no meaning for others."""
    does: tuple[str, ...] = ()
    """The same expressed in other functions; of several the machine's costs decide."""
    operands: tuple[str, ...] = ("x", "y", "z")
    """Names of operands in `does`."""
    place: str = ""
    """File and line of a user's function (`simmodel.isa.extensions`)."""

    def __post_init__(self) -> None:
        if self.cost not in COSTS:
            known = ", ".join(COSTS)
            raise ValueError(f"no cost class {self.cost!r} of the vector engine; there are {known}")

    @property
    def terms(self) -> tuple[Term, ...]:
        """`does`, as terms."""
        return tuple(map(term_of, self.does))

    def meaning(self, *, exact: bool) -> Callable[..., Array]:
        """Its meaning: on integers if it is `exact`, else in fp32."""
        return self.whole if exact and self.whole is not None else self.apply


def exact(function: Function, *operands: Operand) -> bool:
    """Whether `function` is exact for these operands, its result among them."""
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
    result: Array = np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1))
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


def _softplus(x: Array) -> Array:
    result: Array = np.logaddexp(np.float32(0), x)
    return result


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x >= 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def _is_infinite(x: Array, negative: float, positive: float) -> Array:
    """Whether x is infinite: negative, positive, as the nonzero parameters ask."""
    found = (np.isneginf(x) & bool(negative)) | (np.isposinf(x) & bool(positive))
    return found.astype(np.float32)


def _rounded(dtype: str) -> Function:
    return Function("simple", lambda x: x.astype(NUMPY[dtype]).astype(np.float32), rounds_to=dtype)


def _truth(function: Callable[..., Any], *does: str) -> Function:
    return Function(
        "simple", lambda *xs: function(*xs).astype(np.float32), whole=function, does=does
    )


def _real(
    cost: str, function: Callable[..., Any], *does: str, of: tuple[str, ...] = ()
) -> Function:
    """A function of real numbers, with parameters called `of`."""
    return Function(cost, function, of, does=does)


def _number(
    cost: str, function: Callable[..., Any], *does: str, exactly: Whole | None = None,
    wraps: bool = True,
) -> Function:  # fmt: skip
    """A function that numpy has for real numbers and integers alike, or `exactly` for the
    latter."""
    return Function(cost, function, whole=exactly or function, wraps=wraps, does=does)


def looked_up(x: Array, *entries: float) -> Array:
    """The entry of a table for each 8-bit number, by its byte."""
    found: Array = np.asarray(entries, np.int64)[x.astype(np.int64) % ENTRIES]
    return found


def _bitwise(function: Callable[..., Any]) -> Function:
    return Function("simple", function, whole=function, bits=True)


def _same(x: Array) -> Array:
    return x


_GELU = f"(x * 0.5) * (erf(x * {math.sqrt(0.5)!r}) + 1)"
_GELU_TANH = f"x * sigmoid({2 * math.sqrt(2 / math.pi)!r} * (x + 0.044715 * (x * square(x))))"
_BELOW = "(exp(min(x, 0)) - 1)"

UNARY: dict[str, Function] = Registry(
    "function of one operand",
    {
        "move": _number("simple", _same, wraps=False),
        "wrap": _number("simple", _same),
        "relu": _number("simple", lambda x: np.maximum(x, 0), "max(x, 0)"),
        "abs": _number("simple", np.abs, "max(x, x * -1)"),
        "neg": _number("simple", np.negative, "x * -1"),
        "sign": _number("simple", np.sign),
        "floor": _number("simple", np.floor, "-ceil(-x)", exactly=_same),
        "ceil": _number("simple", np.ceil, "-floor(-x)", exactly=_same),
        "round": _number("simple", np.rint, exactly=_same),
        "trunc": _number("simple", np.trunc, exactly=_same),
        "not": _truth(np.logical_not),
        "bitwise_not": _bitwise(np.bitwise_not),
        "lookup": Function(
            "simple", looked_up, ("entry",) * ENTRIES, whole=looked_up, bits=True
        ),
        "is_nan": _real("simple", lambda x: np.isnan(x).astype(np.float32)),
        "is_inf": _real("simple", _is_infinite, of=("negative", "positive")),
        "round_fp16": _rounded("fp16"),
        "round_bf16": _rounded("bf16"),
        "square": _number("multiply", np.square, "x * x"),
        "leaky_relu": _real(
            "multiply", lambda x, alpha: np.where(x >= 0, x, np.float32(alpha) * x),
            "max(x, 0) + min(x, 0) * alpha", of=("alpha",),
        ),
        "hard_sigmoid": _real(
            "multiply", _hard_sigmoid, "min(max(x * alpha + beta, 0), 1)", of=("alpha", "beta")
        ),
        "hard_swish": _real(
            "multiply", lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
            "x * min(max(x * (1 / 6) + 0.5, 0), 1)",
        ),
        "reciprocal": _real("divide", np.reciprocal, "1 / x", "square(rsqrt(x))"),
        "sqrt": _real("divide", np.sqrt),
        "rsqrt": _real("divide", lambda x: 1 / np.sqrt(x), "reciprocal(sqrt(x))"),
        "exp": _real("special", np.exp),
        "log": _real("special", np.log),
        "erf": _real("special", erf),
        "tanh": _real("special", np.tanh, "sigmoid(x * 2) * 2 - 1", "1 - 2 / (exp(x * 2) + 1)"),
        "sigmoid": _real(
            "special", _sigmoid, "tanh(x * 0.5) * 0.5 + 0.5", "reciprocal(exp(-x) + 1)"
        ),
        "silu": _real("special", lambda x: x * _sigmoid(x), "x * sigmoid(x)"),
        "gelu": _real("special", _gelu, _GELU),
        "gelu_tanh": _real("special", _gelu_tanh, _GELU_TANH),
        "softplus": _real("special", _softplus, "max(x, 0) + log(exp(-abs(x)) + 1)"),
        "mish": _real("special", lambda x: x * np.tanh(_softplus(x)), "x * tanh(softplus(x))"),
        "elu": _real("special", _elu, f"max(x, 0) + alpha * {_BELOW}", of=("alpha",)),
        "selu": _real(
            "special", lambda x, alpha, gamma: np.multiply(np.float32(gamma), _elu(x, alpha)),
            f"gamma * (max(x, 0) + alpha * {_BELOW})", of=("alpha", "gamma"),
        ),
        "sin": _real("special", np.sin, f"cos(x - {math.pi / 2!r})"),
        "cos": _real("special", np.cos, f"sin(x + {math.pi / 2!r})"),
        "tan": _real("special", np.tan),
        "asin": _real("special", np.arcsin),
        "acos": _real("special", np.arccos),
        "atan": _real("special", np.arctan),
        "sinh": _real("special", np.sinh),
        "cosh": _real("special", np.cosh),
        "asinh": _real("special", np.arcsinh),
        "acosh": _real("special", np.arccosh),
        "atanh": _real("special", np.arctanh),
    },
)  # fmt: skip

BINARY: dict[str, Function] = Registry(
    "function of two operands",
    {
        "add": _number("simple", np.add),
        "sub": _number("simple", np.subtract, "x + y * -1"),
        "max": _number("simple", np.maximum, "-min(-x, -y)"),
        "min": _number("simple", np.minimum, "-max(-x, -y)"),
        "mul": _number("multiply", np.multiply),
        "div": _number("divide", np.divide, "x * reciprocal(y)", exactly=divided),
        "mod": _number("divide", np.mod, exactly=modulo),
        "fmod": _number("divide", np.fmod, exactly=remainder),
        "pow": _number("special", np.power, exactly=power),
        "prelu": _real(
            "multiply", lambda x, slope: np.where(x >= 0, x, slope * x),
            "max(x, 0) + min(x, 0) * y",
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
)  # fmt: skip

TERNARY: dict[str, Function] = Registry(
    "function of three operands",
    {
        "select": _number("simple", lambda chosen, x, y: np.where(chosen != 0, x, y)),
        "fma": _number("multiply", lambda x, y, z: x * y + z, "x * y + z"),
        "add_add": _real("simple", lambda x, y, z: x + y + z, "x + y + z"),
        "add_mul": _real("multiply", lambda x, y, z: (x + y) * z, "(x + y) * z"),
        "sub_mul": _real("multiply", lambda x, y, z: (x - y) * z, "(x - y) * z"),
        "mul_mul": _real("multiply", lambda x, y, z: x * y * z, "x * y * z"),
    },
)

REDUCE: dict[str, Function] = Registry(
    "reduction",
    {
        "sum": _number("simple", np.sum),
        "max": _number("simple", np.max),
        "min": _number("simple", np.min),
        "prod": _number("multiply", np.prod),
    },
)

BLOCKS = _real("multiply", lambda values, **_: values)
"""Numbers of a block and their scale, in the block type of the result (`to_blocks`): which each
number is to be divided by follows from all, so nothing joins pieces."""

JOINS = {"sum": "add", "max": "max", "min": "min", "prod": "mul"}
"""The function of two operands with which pieces of a reduction are joined."""

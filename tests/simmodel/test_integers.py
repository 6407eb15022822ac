"""Whole numbers on the vector engine: exact in every type, low bits kept, truth values as bytes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from handmade import at, machine
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simmodel.arch.dtype import NUMPY, limits
from simmodel.isa import Binary, Gemm, Instruction, Reduce, Ternary, Unary
from simmodel.isa.region import Operand

Array = NDArray[Any]
KINDS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
COUNT = 64


def numbers(kind: str, seed: int = 0) -> Array:
    """Numbers of a type, small ones, any ones and the ends."""
    rng, (low, high) = np.random.default_rng([seed, *kind.encode()]), limits(kind)
    anything = rng.integers(low, high, COUNT, NUMPY[kind], endpoint=True)
    anything[:16] = rng.integers(max(low, -5), 5, 16, endpoint=True)
    anything[16:20] = [low, low, high, high]
    return rng.permutation(anything)


def result(instruction: Instruction, *values: Array) -> Array:
    """What an instruction makes of `values`, its operands in order."""
    held = dict(zip(map(id, instruction.reads()), values, strict=True))
    (dst,) = instruction.writes()
    out = np.zeros(dst.shape, NUMPY[dst.dtype])
    assert instruction.breaches == ()
    instruction.execute(lambda operand: out if operand is dst else held[id(operand)])
    return out


def box(kind: str, *shape: int, **code: Any) -> Operand:
    return at("local", 0, shape or (COUNT,), kind, **code)


def binary(function: str, kind: str, x: Array, y: Array, to: str | None = None) -> Array:
    a, b = box(kind, *x.shape), box(kind, *x.shape)
    dst = box(to or kind, *x.shape)
    return result(Binary(engine="vector", function=function, a=a, b=b, dst=dst), x, y)


def unary(function: str, kind: str, x: Array, to: str | None = None, **more: Any) -> Array:
    a, dst = box(kind, *x.shape), box(to or kind, *x.shape)
    return result(Unary(engine="vector", function=function, a=a, dst=dst, **more), x)


def in_python(x: Array, y: Array, kind: str, of: Callable[[int, int], int]) -> Array:
    """`of` of Python's numbers without bounds, whose low bits are kept."""
    made = [of(int(a), int(b)) % (1 << 64) for a, b in zip(x, y, strict=True)]
    return np.array(made, np.uint64).astype(NUMPY[kind])


def towards_zero(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": max,
    "min": min,
    "div": towards_zero,
    "mod": lambda a, b: 0 if b == 0 else a % b,
    "fmod": lambda a, b: 0 if b == 0 else a - b * towards_zero(a, b),
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ARITHMETIC)
def test_arithmetic_keeps_the_low_bits(function: str, kind: str) -> None:
    x, y = numbers(kind), numbers(kind, 1)
    expected = in_python(x, y, kind, ARITHMETIC[function])
    np.testing.assert_array_equal(binary(function, kind, x, y), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compare", ["equal", "less", "less_equal", "greater", "greater_equal"])
def test_neighbours_far_beyond_fp32_are_told_apart(compare: str, kind: str) -> None:
    x = numbers(kind)
    y = np.where(np.arange(COUNT) % 2, x, x - (x > limits(kind)[0]).astype(x.dtype))
    found = binary(compare, kind, x, y, "bool")
    np.testing.assert_array_equal(found, getattr(np, compare)(x, y))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to", [*KINDS, "bool"])
def test_conversions_wrap_or_saturate(kind: str, to: str) -> None:
    x = numbers(kind)
    low, high = limits(to)
    wrapped = unary("wrap", kind, x, to)
    np.testing.assert_array_equal(wrapped, x.astype(NUMPY[to]))
    saturated = [bool(v) if to == "bool" else min(max(int(v), low), high) for v in x]
    np.testing.assert_array_equal(unary("move", kind, x, to), np.array(saturated, NUMPY[to]))


@pytest.mark.parametrize("kind", KINDS)
def test_clips_of_large_numbers(kind: str) -> None:
    x, (low, high) = numbers(kind), limits(kind)
    expected = np.clip(x, max(low, -3), 5)
    np.testing.assert_array_equal(unary("move", kind, x, low=-3.5, high=5.5), expected)
    np.testing.assert_array_equal(unary("move", kind, x, low=-1e30, high=1e30), x)
    np.testing.assert_array_equal(unary("move", kind, x, low=1e30), np.full_like(x, high))


@pytest.mark.parametrize("kind", KINDS)
def test_powers(kind: str) -> None:
    x, y = numbers(kind), np.abs(numbers("int8", 1) % 12).astype(NUMPY[kind])
    np.testing.assert_array_equal(binary("pow", kind, x, y), in_python(x, y, kind, pow))


def test_negative_powers_are_cut_off() -> None:
    x = np.array([-2, -1, -1, 0, 1, 2], np.int32)
    y = np.array([-1, -2, -3, -1, -7, -1], np.int32)
    assert binary("pow", "int32", x, y).tolist() == [0, 1, -1, 0, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_shifts_beyond_the_bits_leave_the_sign(kind: str) -> None:
    bits = NUMPY[kind].itemsize * 8
    x = numbers(kind)
    y = np.resize(np.array([0, 1, 3, bits - 1, bits, 100], NUMPY[kind]), COUNT)
    left = in_python(x, y, kind, lambda a, b: a << b)
    right = in_python(x, y, kind, lambda a, b: a >> b)
    np.testing.assert_array_equal(binary("shift_left", kind, x, y), left)
    np.testing.assert_array_equal(binary("shift_right", kind, x, y), right)


def test_shifts_by_less_than_nothing() -> None:
    x, y = np.array([-8, 8], np.int16), np.array([-1, -1], np.int16)
    assert binary("shift_left", "int16", x, y).tolist() == [0, 0]
    assert binary("shift_right", "int16", x, y).tolist() == [-1, 0]


@pytest.mark.parametrize("kind", [*KINDS, "bool"])
def test_selection(kind: str) -> None:
    x, y = (numbers(kind, s) if kind != "bool" else np.arange(COUNT) % 3 == s for s in (0, 1))
    chosen = np.arange(COUNT) % 2 == 0
    made = Ternary(
        engine="vector", function="select", a=box("bool"), b=box(kind), c=box(kind), dst=box(kind)
    )
    np.testing.assert_array_equal(result(made, chosen, x, y), np.where(chosen, x, y))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ["sum", "prod", "max", "min"])
def test_reductions(function: str, kind: str) -> None:
    x = numbers(kind)
    a, dst = box(kind, 4, 16), box(kind, 4, 1)
    found = result(Reduce(engine="vector", function=function, a=a, dst=dst), x.reshape(4, 16))
    with np.errstate(all="ignore"):
        expected = getattr(np, function)(x.reshape(4, 16), axis=1, keepdims=True, dtype=x.dtype) \
            if function in ("sum", "prod") \
            else getattr(np, function)(x.reshape(4, 16), axis=1, keepdims=True)  # fmt: skip
    np.testing.assert_array_equal(found, expected)


def test_a_scale_makes_real_values_of_integers() -> None:
    x = np.array([127, -128], np.int8)
    a, dst = box("int8", 2, scale=0.5), box("int8", 2, scale=0.25)
    made = Binary(engine="vector", function="add", a=a, b=box("int8", 2, scale=0.5), dst=dst)
    assert not made.exact
    assert result(made, x, x).tolist() == [127, -128]


@pytest.mark.parametrize(
    ("kind", "cycles"), [("bool", 4), ("int8", 4), ("int32", 8), ("int64", 16), ("uint64", 16)]
)
def test_eight_bytes_take_two_lanes(kind: str, cycles: int) -> None:
    arch = machine(vector={"lanes": 16, "wide_lanes": 8})
    made = Binary(engine="vector", function="max", a=box(kind), b=box(kind), dst=box(kind))
    assert made.cycles(arch) == cycles


@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_quotient_and_remainder_make_the_dividend(kind: str, seed: int) -> None:
    x, y = numbers(kind, seed), numbers(kind, seed + 1)
    quotient, rest = binary("div", kind, x, y), binary("fmod", kind, x, y)
    with np.errstate(all="ignore"):
        again = quotient * y + rest
    np.testing.assert_array_equal(again[y != 0], x[y != 0])


def test_sums_of_products_are_exact_far_from_a_zero_point() -> None:
    # 519 * -255 * -127 is odd and above 2**24, though 519 * 128 * 128 is below it.
    a, w = box("int8", 1, 1, 1, 519, zero=127), box("int8", 519, 1)
    gemm = Gemm(engine="matrix", a=a, w=w, dst=box("int32", 1, 1, 1, 1))
    given = np.full(a.shape, -128, np.int8), np.full(w.shape, -127, np.int8)
    assert result(gemm, *given).item() == 519 * 255 * 127

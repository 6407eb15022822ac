"""Forward errors: while operands are within their errors, results are within theirs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archgen.check.verify import differences
from compiler.numerics import nest_error
from compiler.numerics.memo import Memo
from compiler.numerics.nest_error import AGAINST_REFERENCE, against_order, forward_error
from compiler.tensor_ir import interpreter
from compiler.tensor_ir.interpreter import run_nest
from compiler.tensor_ir.nest import Access, Array, Dim, Nest, at
from simmodel.arch.dtype import NUMPY, limits
from simmodel.arch.lazy_array import LazyArray
from simmodel.isa.contraction import contraction
from simmodel.isa.functions import BINARY, UNARY

EXACT = against_order("fp32")


def element_wise(function: str, count: int, operands: int, scale: float | None = None) -> Nest:
    reads = tuple(Access(f"x{number}", (at(0),)) for number in range(operands))
    return Nest("y", (Dim("i", count),), 1, function, reads, scale=scale)


def stored(nest: Nest, operands: list[Array], kind: str) -> Array:
    tensors = {f"x{number}": values for number, values in enumerate(operands)}
    tensors["y"] = np.zeros(operands[0].shape, NUMPY[kind])
    run_nest(nest, tensors)
    return tensors["y"]


def excused(nest: Nest, operands: list[Array], errors: list[Array | None], kind: str) -> Array:
    tensors = {f"x{number}": values for number, values in enumerate(operands)}
    tensors["y"] = np.zeros(operands[0].shape, NUMPY[kind])
    found = forward_error(nest, tensors, {f"x{n}": e for n, e in enumerate(errors)}, EXACT)
    return np.zeros(operands[0].shape) if found is None else found


def test_a_sum_that_fp32_rounds_to_a_tie_may_go_either_way() -> None:
    # 1.00048828125 lies halfway between the fp16 numbers 1 and 1 + 2**-10; the one with the even
    # mantissa is 1. The sum is 3/8 of a step of fp32 above it, which fp32 rounds to the tie; with
    # another 2/8 it is not.
    step = np.float32(2**-26)
    one = np.array([1], np.float32)
    a = np.array([0.125 + 2**-11 + 3 * step], np.float32)
    rest = one - np.float32(0.125)
    nest = element_wise("add", 1, 2)
    assert stored(nest, [a, rest], "fp16") == 1
    assert stored(nest, [a + 2 * step, rest], "fp16") == 1 + 2**-10
    assert excused(nest, [a, rest], [2 * step * one, None], "fp16") == 2**-10


def test_columns_of_a_large_product_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    reads = (Access("a", (at(0), at(2))), Access("b", (at(2), at(1))))
    dims = tuple(Dim(name, extent) for name, extent in (("m", 4), ("n", 70), ("k", 33)))
    nest = Nest("y", dims, 2, "mul", reads, "sum", bias=Access("c", (at(1),)), low=-1.0)
    shapes = {"a": (4, 33), "b": (33, 70), "c": (70,), "y": (4, 70)}
    tensors = {n: random.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    errors = {"a": np.abs(tensors["a"]) / 1000, "b": None, "c": np.abs(tensors["c"]) / 100}
    whole = forward_error(nest, tensors, errors, AGAINST_REFERENCE)
    monkeypatch.setattr(nest_error, "_AT_ONCE", 200)
    parts = forward_error(nest, tensors, errors, AGAINST_REFERENCE)
    assert whole is not None and parts is not None
    np.testing.assert_allclose(parts, whole, rtol=1e-4)


@pytest.mark.parametrize("at_once", [1 << 22, 50])
def test_what_a_nest_adds_up_is_made_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    # The sums when it is run, and those of magnitudes for both errors: of 4 rows each on its own.
    monkeypatch.setattr(nest_error, "_AT_ONCE", at_once)
    random, made = np.random.default_rng(0), list[tuple[int, ...]]()
    reads = (Access("a", (at(0), at(2))), Access("b", (at(2), at(1))))
    nest = Nest("y", (Dim("m", 4), Dim("n", 3), Dim("k", 33)), 2, "mul", reads, "sum")
    shapes = {"a": (4, 33), "b": (33, 3), "y": (4, 3)}
    tensors = {n: random.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}
    ways = AGAINST_REFERENCE, against_order("fp16")
    alone = [forward_error(nest, tensors, {}, how) for how in ways]

    def counted(left: Array, *others: Any) -> Array:
        made.append(left.shape)
        return contraction(left, *others)

    monkeypatch.setattr(interpreter, "contraction", counted)
    memo = Memo()
    content = memo.run(nest, tensors)
    found = [memo.error(nest, tensors, {}, how, content) for how in ways]
    np.testing.assert_allclose(found, alone, rtol=1e-4)
    assert made == [(4, 33), *([(4, 33)] if at_once > 50 else 4 * [(1, 33)])]


@pytest.mark.parametrize("loop", [1, 2], ids=["columns", "reduction"])
def test_a_product_takes_some_rows_of_a_large_constant_at_a_time(loop: int) -> None:
    """Which is not made as a whole: the same sums and the same bounds, but for the order in which
    numbers are added up."""
    random, dims = np.random.default_rng(0), (Dim("m", 3), Dim("n", 40), Dim("k", 50))
    weights = Access("w", (at(2), at(1)) if loop == 2 else (at(1), at(2)))
    nest = Nest("y", dims, 2, "mul", (Access("x", (at(0), at(2))), weights), reduce="sum")
    x, w = (
        random.standard_normal(shape, np.float32)
        for shape in ((3, 50), (50, 40) if loop == 2 else (40, 50))
    )
    rows = [slice(first, min(first + 7, len(w))) for first in range(0, len(w), 7)]
    lazy = LazyArray(
        w.shape, w.dtype, lambda: pytest.fail("is made"), lambda: ((cut, w[cut]) for cut in rows)
    )
    one, two = ({"x": x, "w": held, "y": np.zeros((3, 40), np.float32)} for held in (w, lazy))
    assert interpreter.loop_of_rows(nest, "w") == loop
    for tensors in (one, two):
        run_nest(nest, tensors)
    assert np.allclose(one["y"], two["y"], atol=1e-5)
    bounds = [forward_error(nest, tensors, {}, AGAINST_REFERENCE) for tensors in (one, two)]
    assert bounds[0] is not None and np.allclose(*bounds, rtol=1e-5)
    unsure = {"x": np.full(x.shape, 1e-3, np.float32)}  # by how much, all of the weights say
    with pytest.raises(pytest.fail.Exception, match="is made"):
        forward_error(nest, two, unsure, AGAINST_REFERENCE)


def test_errors_of_terms_are_excused_together() -> None:
    # 3 and 4 in quadrature are 5; one and a half times that exceeds what two terms of 5 can do
    # together where they are equal, 5 * sqrt(2).
    terms, bounds = np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)
    read = Access("x0", (at(0), at(1)))
    nest = Nest("y", (Dim("i", 1), Dim("k", 2)), 1, "move", (read,), "sum")
    tensors = {"x0": terms, "y": np.zeros(1, np.float32)}
    found = forward_error(nest, tensors, {"x0": bounds}, EXACT)
    assert found == pytest.approx(5 * 2**0.5, rel=1e-5)


def test_equal_terms_are_off_alike() -> None:
    # Channels with equal weights hold equal values: what one of them is off by, all are. Nine
    # errors of 1/2 are 4.5, where errors of their own would be 1.5 * sqrt(9) / 2 = 2.25; with
    # weights 1 to 9, whose magnitudes sum up to 45, they are 22.5.
    same, bounds = np.full((1, 9), 3, np.float32), np.full((1, 9), 0.5, np.float32)
    read, weights = Access("x0", (at(0), at(1))), Access("x1", (at(1),))
    dims = (Dim("i", 1), Dim("k", 9))
    rising = np.arange(9, dtype=np.float32)
    tensors = {"x0": same, "x1": rising + 1, "y": np.zeros(1, np.float32)}
    added = Nest("y", dims, 1, "move", (read,), "sum")
    product = Nest("y", dims, 1, "mul", (read, weights), "sum")
    for nest, error in ((added, 4.5), (product, 22.5)):
        assert forward_error(nest, tensors, {"x0": bounds}, EXACT) == pytest.approx(error, rel=1e-5)
    tensors["x0"] = same + rising
    found = forward_error(added, tensors, {"x0": bounds}, EXACT)
    assert found == pytest.approx(2.25, rel=1e-4)


@pytest.mark.parametrize(("unsure", "error"), [(3, 3), (8, 8), (9, 1.5 * math.sqrt(9))])
def test_a_few_errors_may_all_be_one_way(unsure: int, error: float) -> None:
    # Of 16 integers some lie at a tie. A handful may be rounded alike, so their errors are added
    # up; many are excused one and a half times their root.
    values, bounds = np.arange(16, dtype=np.int8), np.zeros(16, np.float32)
    bounds[:unsure] = 1
    reads = tuple(Access(name, (at(1),)) for name in ("x0", "x1"))
    nest = Nest("y", (Dim("i", 1), Dim("k", 16)), 1, "mul", reads, "sum")
    minus, y = -np.ones(16, np.int8), np.zeros(1, np.int32)
    tensors: dict[str, Array] = {"x0": values, "x1": minus, "y": y}
    found = forward_error(nest, tensors, {"x0": bounds}, EXACT)
    assert found == math.floor(error)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp16", "int8"])
@settings(max_examples=60)
@given(
    function=st.sampled_from(["add", "sub", "mul", "max", "relu", "abs", "neg", "move"]),
    seed=st.integers(0, 2**32 - 1),
    near=st.booleans(),
)
def test_what_operands_may_be_the_result_may_be(
    kind: str, function: str, seed: int, near: bool
) -> None:
    rng = np.random.default_rng(seed)
    operands = 1 if function in ("relu", "abs", "neg", "move") else 2
    nest = element_wise(function, 256, operands, 0.25 if kind == "int8" else None)
    values = [rng.normal(0, 4, 256).astype(np.float32) for _ in range(operands)]
    if near:  # sums of few bits: many of them are ties
        values = [np.round(v * 16).astype(np.float32) / 16 for v in values]
    errors = [np.abs(v) * np.float32(2**-22) for v in values]
    moved = [
        v + (e * rng.choice([-1, -0.5, 0, 0.5, 1], 256)).astype(np.float32)
        for v, e in zip(values, errors, strict=True)
    ]
    bounds = [np.abs(m - v) for m, v in zip(moved, values, strict=True)]
    change = differences(stored(nest, moved, kind), stored(nest, values, kind))
    assert (change <= excused(nest, values, bounds, kind)).all()


@settings(max_examples=60)
@given(
    function=st.sampled_from(["move", "add", "sub", "mul", "hard_swish"]),
    seed=st.integers(0, 2**32 - 1),
    late=st.sampled_from(["nothing", "bias", "multiplier"]),
)
def test_what_is_a_step_off_is_rounded_anew(function: str, seed: int, late: str) -> None:
    # Dequantized values one step apart are not exactly their scale apart in fp32.
    rng = np.random.default_rng(seed)
    operands = 1 if function in UNARY else 2
    scales = rng.uniform(1e-3, 1, 2)
    reads = tuple(Access(f"x{n}", (at(0),), scale=float(scales[n])) for n in range(operands))
    more = Access("late", (at(0),))
    nest = Nest("y", (Dim("i", 256),), 1, function, reads)
    nest = replace(nest, **{late: more}) if late != "nothing" else nest
    tensors: dict[str, Array] = {
        f"x{n}": rng.integers(-100, 100, 256, np.int8) for n in range(operands)
    }
    tensors |= {"late": rng.normal(0, 4, 256).astype(np.float32), "y": np.zeros(256, np.float32)}
    run_nest(nest, tensors)
    other = {**tensors, "x0": tensors["x0"] + np.int8(1), "y": np.zeros(256, np.float32)}
    run_nest(nest, other)
    bound = forward_error(nest, tensors, {"x0": np.ones(256, np.float32)}, EXACT)
    assert bound is not None
    assert (differences(other["y"], tensors["y"]) <= bound).all()
    if (function, late) == ("move", "nothing"):
        assert (bound <= scales[0] * (1 + 1e-4)).all()


WHOLE = [name for table in (UNARY, BINARY) for name in table if table[name].whole]


@settings(max_examples=300)
@given(
    function=st.sampled_from(sorted(WHOLE)),
    kinds=st.sampled_from([("int8", "int8"), ("int32", "int32"), ("uint8", "uint8"),
                           ("int32", "int8"), ("int16", "bool")]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_whole_numbers_move_with_their_operands(
    function: str, kinds: tuple[str, str], seed: int
) -> None:
    rng, (kind, to) = np.random.default_rng(seed), kinds
    operands = 1 if function in UNARY else 2
    nest = element_wise(function, 256, operands)
    if function == "lookup":
        kind, entries = (
            kinds[0] if kinds[0] in ("int8", "uint8") else "int8",
            rng.integers(0, 100, 256),
        )
        nest = replace(nest, parameters=tuple(map(float, entries)))
    low, high = limits(kind)
    spread = int(rng.choice([4, 200]))
    values = [
        rng.integers(max(low, -spread), min(high, spread), 256, NUMPY[kind], endpoint=True)
        for _ in range(operands)
    ]
    errors: list[Array | None] = [rng.integers(0, 4, 256).astype(np.float32) for _ in values]
    errors[0] = None if operands == 2 and seed % 2 else errors[0]
    steps = [
        np.zeros(256, int) if e is None else np.rint(e * rng.uniform(-1, 1, 256)).astype(int)
        for e in errors
    ]
    moved = [
        np.clip(v + step, low, high).astype(v.dtype)
        for v, step in zip(values, steps, strict=True)
    ]  # fmt: skip
    change = differences(stored(nest, moved, to), stored(nest, values, to))
    assert (change <= excused(nest, values, errors, to)).all()


def test_sums_of_whole_numbers_that_may_wrap_round_may_be_anything() -> None:
    read = Access("x0", (at(0), at(1)))
    nest = Nest("y", (Dim("i", 2), Dim("k", 3)), 1, "move", (read,), "sum")
    tensors = {"x0": np.array([[100, 20, 5], [1, 2, 3]], np.int8), "y": np.zeros(2, np.int8)}
    found = forward_error(nest, tensors, {"x0": np.ones((2, 3), np.float32)}, EXACT)
    assert found is not None and found.tolist() == [np.inf, 3]
    assert forward_error(nest, tensors, {}, AGAINST_REFERENCE) is None


def test_what_is_below_normal_numbers_may_be_lost_in_a_librarys_function() -> None:
    # ONNX Runtime's Softmax makes 0 of exp(-88), which fp32 holds as a subnormal number.
    nest = element_wise("exp", 3, 1)
    tensors = {"x0": np.array([-88, -87, 0], np.float32), "y": np.zeros(3, np.float32)}
    found = forward_error(nest, tensors, {}, AGAINST_REFERENCE)
    assert found is not None
    assert found[0] > math.exp(-88)
    assert found[1] < 1e-5 * math.exp(-87)


@pytest.mark.parametrize("scale", [None, 0.125])
def test_the_largest_is_one_of_the_numbers_to_the_last_bit(scale: float | None) -> None:
    # Where it is looked for among them, as for its place, it is found.
    values = np.arange(-6, 6).reshape(3, 4)
    codes = values.astype(np.float32) if scale is None else values.astype(np.int8)
    read = Access("x0", (at(0), at(1)), scale=scale)
    nest = Nest("y", (Dim("i", 3), Dim("k", 4)), 1, "move", (read,), "max")
    tensors = {"x0": codes, "y": np.zeros(3, np.float32)}
    assert forward_error(nest, tensors, {}, AGAINST_REFERENCE) is None
    added = replace(nest, reduce="sum")
    assert forward_error(added, tensors, {}, AGAINST_REFERENCE) is not None
    run_nest(nest, tensors)
    dims = (Dim("i", 3), Dim("k", 4))
    found = Nest("z", dims, 2, "equal", (read, Access("y", (at(0),))))
    tensors["z"] = np.zeros((3, 4), np.bool_)
    assert forward_error(found, tensors, {}, AGAINST_REFERENCE) is None
    two = replace(read, scale=0.05000000074505806 * 10)  # two scales made one: no fp32 number
    if scale is not None:
        twice = replace(nest, operands=(two,))
        assert forward_error(twice, tensors, {}, AGAINST_REFERENCE) is not None


def test_what_is_picked_of_decoded_numbers_is_one_of_them_to_the_last_bit() -> None:
    # Of numbers without the largest one the next is looked for, as TopK does.
    codes = np.arange(-6, 6, dtype=np.int8)
    hidden, low = Access("gone", (at(0),)), Access("low", ())
    read = Access("x0", (at(0),), scale=0.125)
    nest = Nest("y", (Dim("i", 12),), 1, "select", (hidden, low, read))
    tensors = {"x0": codes, "gone": codes > 4, "low": np.array(-9, np.float32)}
    tensors["y"] = np.zeros(12, np.float32)
    assert forward_error(nest, tensors, {}, AGAINST_REFERENCE) is None
    unsure = {"x0": np.ones(12, np.float32)}
    found = forward_error(nest, tensors, unsure, AGAINST_REFERENCE)
    assert found is not None
    assert found[0] > 0.125
    two = replace(read, scale=0.05000000074505806 * 10)  # two scales made one: no fp32 number
    twice = replace(nest, operands=(hidden, low, two))
    assert forward_error(twice, tensors, {}, AGAINST_REFERENCE) is not None

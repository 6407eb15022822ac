"""The verdict on values: each element within its own bound, and what a comparison proves."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pytest

from archgen.check.verify import Array, Comparison, compare_one, conclusion, deviation, with_stored
from compiler.numerics.expected_values import ExpectedValue, StoredTensorCheck

REFERENCE = np.linspace(-1, 1, 16, dtype=np.float32)


def compare(
    made: Mapping[str, ExpectedValue],
    expected: Mapping[str, Array],
    outputs: Collection[str] | None = None,
) -> Comparison:
    found = {name: compare_one(name, made.get(name), values) for name, values in expected.items()}
    return conclusion(found, expected if outputs is None else outputs)


def verdict(values: Array, error: Array | None, reference: Array = REFERENCE) -> Comparison:
    return compare({"y": ExpectedValue(values, error)}, {"y": reference})


def off_by(error: float, at: int = 3) -> Array:
    actual = REFERENCE.copy()
    actual[at] += error
    return actual


def test_each_element_has_a_bound_of_its_own() -> None:
    error = np.full(16, 1e-6)
    error[3] = 0.1
    assert verdict(off_by(0.09, at=3), error).verified is True
    assert verdict(off_by(0.11, at=3), error).verified is False
    wrong = verdict(off_by(0.09, at=4), error)
    assert wrong.verified is False
    assert wrong.tolerance == pytest.approx(1e-6)
    assert wrong.note.startswith("y: off by 0.09, tolerance 1e-06")


def test_a_masked_neighbour_excuses_nothing() -> None:
    """Scores behind a mask of -1e9: its own element may be off by 100, visible ones by nothing."""
    scores = REFERENCE.copy()
    scores[8:] = -1e9
    error = np.where(scores < -1e8, 100.0, 1e-6)
    moved = scores.copy()
    moved[2] += 0.01
    assert verdict(scores, error, scores).verified is True
    assert verdict(moved, error, scores).verified is False
    unmasked = scores.copy()
    unmasked[9] = 0.3
    assert verdict(unmasked, error, scores).verified is False


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.int64, np.bool_])
def test_without_an_error_values_are_equal(kind: type) -> None:
    values = np.array([0, 1, 1, 0, 1], kind)
    assert verdict(values, None, values).verified is True
    other = values.copy()
    other[2] = 0
    found = verdict(other, None, values)
    assert found.verified is False
    assert found.max_step_error == 1


def test_a_step_is_excused_at_a_tie_alone() -> None:
    reference = np.arange(-8, 8, dtype=np.int8)
    at_tie = np.zeros(16)
    at_tie[5] = 1
    for at, right in ((5, True), (6, False)):
        actual = reference.copy()
        actual[at] += 1
        assert verdict(actual, at_tie, reference).verified is right


def test_infinite_and_undefined_values_equal_their_like_alone() -> None:
    reference = REFERENCE.copy()
    reference[0], reference[1] = np.inf, np.nan
    tight = np.full(16, 1e-6)
    assert verdict(reference, tight, reference).verified is True
    for at, value in ((0, -np.inf), (0, 1.0), (1, 1.0), (5, np.nan), (5, np.inf)):
        actual = reference.copy()
        actual[at] = value
        assert verdict(actual, tight, reference).verified is False


def test_a_value_that_may_be_anything_is_not_checked() -> None:
    random = np.random.default_rng(0).permutation(REFERENCE)
    found = verdict(random, np.full(16, 3.0))
    assert found.verified is None
    assert (found.compared, found.unchecked) == (1, 1)
    assert "not checked" in found.note
    assert verdict(random, np.full(16, 0.01)).verified is False


def test_an_undefined_output_is_not_checked() -> None:
    undefined = np.full(16, np.nan, np.float32)
    found = verdict(undefined, np.full(16, np.inf), undefined)
    stored = deviation(StoredTensorCheck("y", undefined, undefined, np.zeros(16)))
    found = with_stored(found, [("y", stored)])
    assert found.verified is None
    assert found.note == "y: not checked, it is NaN, as the reference is"  # said once


def test_a_value_on_the_way_that_may_be_anything_leaves_the_outputs_checked() -> None:
    made = {
        "y": ExpectedValue(REFERENCE, None),
        "inside": ExpectedValue(REFERENCE, np.full(16, np.inf)),
    }
    found = compare(made, {"y": REFERENCE, "inside": REFERENCE}, outputs=["y"])
    assert found.verified is True
    assert found.unchecked == 1


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_a_uniform_value_within_a_tight_bound_is_proved(value: float) -> None:
    uniform = np.full(16, value, np.float32)
    error = np.full(16, 1e-7) if value else None
    assert verdict(uniform, error, uniform).verified is True


def test_a_reference_is_rounded_to_the_type_that_the_host_stored() -> None:
    """70 000 is infinite in fp16; 2 049 is between 2 048 and 2 050, a tie."""
    reference = np.array([7e4, 2049.0, 1.0], np.float32)
    tiny = np.array([0.01, 0.01, 1e-7])
    for stored, right in (
        ((np.inf, 2048, 1), True), ((np.inf, 2050, 1), True),
        ((65504, 2048, 1), False), ((np.inf, 2048, 1.001), False),
    ):  # fmt: skip
        made = ExpectedValue(np.array(stored, np.float32), tiny, rounded="fp16")
        assert compare({"y": made}, {"y": reference}).verified is right


@pytest.mark.parametrize("made", [{}, {"y": ExpectedValue(np.zeros(4, np.float32), None)}])
def test_missing_outputs_and_other_shapes_are_wrong(made: dict[str, ExpectedValue]) -> None:
    assert compare(made, {"y": REFERENCE}).verified is False


def test_differences_that_are_small_but_everywhere_are_found() -> None:
    random = np.random.default_rng(0)
    expected = random.standard_normal(4000).astype(np.float32)
    error = np.full(4000, 1e-3)
    usual = (random.standard_normal(4000) * 2e-4).astype(np.float32)
    assert deviation(StoredTensorCheck("t", expected + usual, expected, error)).excess < 1
    everywhere = np.full(4000, 8e-4, np.float32)
    assert deviation(StoredTensorCheck("t", expected + everywhere, expected, error)).excess > 1


@pytest.mark.parametrize(("off", "verified"), [(1 / 40, True), (1 / 10, None), (10, False)])
def test_where_roundings_explain_anything_values_prove_themselves(
    off: float, verified: bool | None
) -> None:
    expected = np.tile(np.array([-1, 1], np.float32), 50)
    error = np.full(100, 9.0)
    found = deviation(StoredTensorCheck("t", expected + np.float32(off), expected, error))
    verdict = with_stored(Comparison(verified=True), [("t", found)])
    assert verdict.verified is verified
    assert verdict.note.startswith("t: not checked") is (verified is None)

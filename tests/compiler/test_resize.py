"""Resize in every mode and rule computes, as nests, what ONNX's reference evaluator does."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from one_node import case, ints, lowered, model_of
from onnx.reference import ReferenceEvaluator

from compiler.tensor_ir.interpreter import run

RULES = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_crop_and_resize",
    "half_pixel_symmetric",
)  # fmt: skip
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


@st.composite
def settings_of(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes of a Resize that mean something together."""
    rule = draw(st.sampled_from(RULES))
    mode = draw(st.sampled_from(("nearest", "linear", "cubic")))
    made: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": rule}
    if mode == "nearest":
        return {**made, "nearest_mode": draw(st.sampled_from(ROUNDINGS))}
    if mode == "cubic":
        made["exclude_outside"] = draw(st.integers(0, 1))
        made["cubic_coeff_a"] = draw(st.sampled_from((-0.75, -0.5)))
    if rule == "tf_crop_and_resize":
        return {**made, "extrapolation_value": draw(st.sampled_from((0.0, 3.0)))}
    return {**made, "antialias": draw(st.integers(0, 1))}


# Of one output position pytorch_half_pixel is defined otherwise than the evaluator has it.
SIDES = st.integers(2, 12)


@settings(max_examples=60)
@given(
    attributes=settings_of(),
    given_sides=st.tuples(SIDES, SIDES),
    made=st.tuples(SIDES, SIDES),
    corner=st.tuples(*[st.integers(0, 6)] * 2),
    size=st.tuples(*[st.integers(1, 8)] * 2),
)
def test_every_mode(
    attributes: dict[str, Any],
    given_sides: tuple[int, int],
    made: tuple[int, int],
    corner: tuple[int, int],
    size: tuple[int, int],
) -> None:
    start = np.array(corner, "f4") / 8
    roi = np.array([*start, *start + np.array(size, "f4") / 8], "f4")
    crops = attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    node = case("Resize", (1, 2, *given_sides), roi if crops else None, None, ints(*made),
                axes=[2, 3], **attributes)  # fmt: skip
    model, feeds = model_of(node)
    (got,) = run(lowered(model), feeds).values()
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_ratio_of_the_sides_is_kept() -> None:
    for policy in ("not_larger", "not_smaller"):
        node = case("Resize", (1, 2, 7, 4), None, None, ints(9, 8), axes=[2, 3], mode="linear",
                    keep_aspect_ratio_policy=policy)  # fmt: skip
        model, feeds = model_of(node)
        (got,) = run(lowered(model), feeds).values()
        (want,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

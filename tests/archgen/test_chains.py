"""Samples for calibration: what a network with states makes is fed back to it."""

from __future__ import annotations

import numpy as np
from role_nets import net

from archgen.check.calibration import calibration_sets
from archgen.check.reference import run_reference, sample_sets

COUNTING = """
counting (float[1, 2] x, float[1, 2] state) => (float[1, 2] y, float[1, 2] state_out)
<float half = {0.5}>
{ kept = Mul (state, half)
  state_out = Add (x, kept)
  y = Neg (state_out) }
"""
GROWING = """
growing (float[1, 1, 2] x, float[1, 3, 2] past) => (float[1, 4, 2] present)
{ new = Add (x, x)
  present = Concat <axis = 1> (past, new) }
"""
EXPLODING = """
exploding (float[1, 2] x, float[1, 2] state) => (float[1, 2] state_out)
{ away = Div (x, state)
  state_out = Add (away, state) }
"""
FREE = """
free (float[1, 2] x) => (float[1, 2] y)
{ y = Neg (x) }
"""


def test_a_network_without_states_has_one_sample_of_each_seed() -> None:
    samples, said = calibration_sets(net(FREE), range(4))
    assert said == "4 seeded random samples"
    for sample, expected in zip(samples, sample_sets(net(FREE), range(4)), strict=True):
        np.testing.assert_array_equal(sample["x"], expected["x"])


def test_each_inference_gets_what_the_one_before_has_left() -> None:
    samples, said = calibration_sets(net(COUNTING), range(2))
    assert said.startswith("64 seeded random samples, 32 in a row")
    state = np.zeros((1, 2), np.float32)
    for number, sample in enumerate(samples):
        if number == 32:  # the second chain
            state = np.zeros((1, 2), np.float32)
        np.testing.assert_array_equal(sample["state"], state)
        state = run_reference(net(COUNTING), sample)["state_out"]
    assert len({sample["x"].tobytes() for sample in samples}) == 64


def test_a_cache_that_grows_keeps_its_extent_and_repeats_the_rows_that_there_are() -> None:
    samples, _ = calibration_sets(net(GROWING), range(1))
    made = [2 * sample["x"][0, 0] for sample in samples]
    a, b, c, d = made[:4]
    wanted = [[0 * a] * 3, [a, a, a], [b, a, b], [a, b, c], [b, c, d]]
    for sample, rows in zip(samples, wanted, strict=False):
        np.testing.assert_array_equal(sample["past"][0], np.stack(rows))


def test_where_a_state_becomes_infinite_noise_stands_for_it() -> None:
    samples, said = calibration_sets(net(EXPLODING), range(4))
    assert said == "4 seeded random samples"
    assert all(sample["state"].any() for sample in samples)

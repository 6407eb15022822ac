"""Which few points speak for many: the fastest, one of each plateau, the farthest apart first."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archgen.exploration.sensitivity import enough
from archgen.outcomes.fronts import knee, pareto_front, plateaus, representatives

CLOSE = 0.05
FLAT = [(1.00, 20), (1.01, 18), (1.02, 16), (1.04, 14), (2.0, 8), (4.0, 7), (8.0, 1), (8.1, 30)]
"""ms and mm2: four near-ties at the fast end, three points that are slower and smaller, one that is
nothing."""


def test_a_plateau_of_near_ties_is_run_once_and_the_rest_goes_along_the_front() -> None:
    """After the fastest: the smallest (a factor of 8 and 20 away), then what is farthest from both:
    (4, 7) is log 2 and log 7 from the smallest, (2, 8) log 2 and log 2.5 from the fastest."""
    found = [(FLAT[index], why) for index, why in representatives(FLAT, 5, CLOSE)]
    assert found == [
        ((1.00, 20), "fastest"), ((8.0, 1), "front"), ((4.0, 7), "front"), ((2.0, 8), "front"),
        ((1.04, 14), "front"),
    ]  # fmt: skip


def test_where_the_front_is_used_up_its_plateaus_come_next_then_what_it_dominates() -> None:
    found = [(FLAT[index], why) for index, why in representatives(FLAT, 9, CLOSE)[5:]]
    assert found == [((1.01, 18), "next"), ((1.02, 16), "next"), ((8.1, 30), "next")]


def test_a_chain_of_small_steps_is_several_plateaus() -> None:
    """Each is 4 % slower than the one before: two a plateau, not all of them one."""
    chain = [(1.04**n, 10.0 - n) for n in range(6)]
    assert plateaus(chain, CLOSE) == [1, 3, 5]


@pytest.mark.parametrize("count, taken", [(0, 0), (1, 1), (3, 3), (4, 3)])
def test_equals_are_taken_in_their_order(count: int, taken: int) -> None:
    same = [(1.0, 2.0)] * 3
    assert [index for index, _ in representatives(same, count, CLOSE)] == list(range(taken))


def test_three_costs_have_a_front_too() -> None:
    """Of one time, the one that is small and the one that is frugal speak for themselves."""
    costs = [(1.0, 4.0, 4.0), (1.01, 2.0, 4.0), (1.02, 4.0, 2.0), (1.03, 4.0, 4.0)]
    assert sorted(representatives(costs, 3, CLOSE)) == [(0, "fastest"), (1, "front"), (2, "front")]


def test_what_costs_nothing_has_a_place() -> None:
    assert len(representatives([(0.0, 1.0), (1.0, 0.0), (0.5, 0.5)], 3, CLOSE)) == 3


COSTS = st.lists(st.tuples(*[st.integers(1, 20)] * 2), min_size=1, max_size=30)


@given(COSTS, st.integers(1, 35))
def test_as_many_as_asked_for_each_once_and_the_fastest_first(
    costs: list[tuple[int, int]], count: int
) -> None:
    found = representatives(costs, count, CLOSE)
    assert len({index for index, _ in found}) == len(found) == min(count, len(costs))
    assert costs[found[0][0]] == min(costs)
    assert [why for _, why in found].count("fastest") == 1
    assert {index for index, why in found if why != "next"} <= set(pareto_front(costs))


@given(COSTS)
def test_each_point_of_the_front_is_close_to_one_that_speaks_for_it(
    costs: list[tuple[int, int]],
) -> None:
    said = [costs[index] for index in plateaus(costs, CLOSE)]
    for time, area in (costs[index] for index in pareto_front(costs)):
        assert any(a <= area and t <= time * (1 + CLOSE) for t, a in said)


# How much is enough: knees by hand, and what they promise.


def test_knees_by_hand() -> None:
    assert knee([16, 11, 8, 8]) == 2
    assert knee([16, 11, 8.1, 8]) == 2  # 1 % is within 5 %
    assert knee([16, 11, 9, 8]) is None  # the last still gains
    assert knee([8, 8, 8, 8]) == 0  # the least is enough
    assert knee([8, 9, 10]) == 0
    assert knee([16, 8, 9, 12]) == 1  # rises again
    assert knee([1, 1.9, 2, 2], more=True) == 1
    assert knee([2, 1]) is None


@given(st.lists(st.floats(1, 100), min_size=3, max_size=8))
def test_no_larger_value_is_better_than_a_knee_by_more_than_five_percent(
    values: list[float],
) -> None:
    index = knee(values)
    if index is not None:
        assert min(values[index:]) >= 0.95 * values[index] * (1 - 1e-9)
        assert all(min(values[n:]) < 0.95 * values[n] * (1 + 1e-9) for n in range(index))


# What is enough of a field, from ladders of costs by hand.


@pytest.mark.parametrize(
    ("costs", "less", "value"),
    [
        pytest.param((100, 60, 59), False, "2", id="a memory whose last step gains little"),
        pytest.param((100, 101, 103), False, "1", id="more that makes it a little worse"),
        pytest.param((100, 60, 30), False, None, id="a last step that gains still"),
        pytest.param((50, 51, 90), True, "2", id="a delay"),
        pytest.param((50, 51, 52), True, "3", id="a delay that hardly matters"),
    ],
)
def test_enough_is_where_steps_to_more_gain_little(
    costs: tuple[float, ...], less: bool, value: str | None
) -> None:
    values = [str(number) for number in range(1, len(costs) + 1)]
    assert enough(pd.Series(costs, values), 0.05, less) == value

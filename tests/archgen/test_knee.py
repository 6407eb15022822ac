"""How much is enough: knees by hand, and what they promise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archgen.outcomes.fronts import knee


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

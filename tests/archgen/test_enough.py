"""What is enough of a field, from ladders of costs by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from archgen.exploration.sensitivity import enough


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

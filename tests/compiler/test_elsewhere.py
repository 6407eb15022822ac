"""What products take on another machine: whole folds of the network's own extents."""

from __future__ import annotations

import pytest
from test_attainable import CUBE, convolution
from test_closed_forms import free

from compiler.driver import CompileOptions, compile_model
from compiler.elsewhere import products_on


@pytest.mark.parametrize(
    ("wider", "cycles"),
    [
        ({}, 90),
        ({"cols": 64}, 90),  # 32 filters fill half of the columns
        ({"rows": 20}, 45),  # five blocks of twenty pixels
        ({"depth": 64}, 50),  # nine times 32 channels are five folds of 64
        ({"depth": 288}, 10),
    ],
)
def test_a_larger_array_gains_whole_folds(wider: dict[str, int], cycles: int) -> None:
    """Ten blocks of ten pixels, 32 channels at nine kernel positions, 32 filters."""
    made = compile_model(convolution(32), free(CUBE), CompileOptions(dtype="fp16"))
    found = products_on(made, free(CUBE | wider))
    assert list(found.dense.values()) == [cycles]
    assert found.depthwise == {}

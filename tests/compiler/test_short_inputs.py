"""What a split of the upper edge costs lengths below it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.schedule.tiling.objective import charge
from compiler.tensor_ir.nest import Storage, Tensor, row_major
from compiler.tensor_ir.registers import Count

BATCH = Count(0, (("batch", 1),))


def result(shape: tuple[int, ...], *counts: Count | None) -> Tensor:
    return Tensor("y", shape, "int8", Storage("y", 0, row_major(shape)), counts=counts)


def parts(most: int, among: int, width: int) -> list[tuple[tuple[int, int], ...]]:
    size = -(-most // among)
    starts = range(0, most, size)
    return [((start, min(size, most - start)), (0, width)) for start in starts]


def test_cores_with_a_sample_each_are_idle_at_most_lengths() -> None:
    # Of 1 to 8 samples eight cores could do eight each time: 64 for 36.
    assert charge(result((8, 4), BATCH, None), parts(8, 8, 4), 1.0) == 64 / 36
    assert charge(result((8, 4), BATCH, None), parts(8, 8, 4), 0.05) == 1.05


def test_other_splits_cost_nothing() -> None:
    by_rows = [((0, 8), (start, 1)) for start in range(4)]
    assert charge(result((8, 4), BATCH, None), by_rows, 1.0) == 1
    assert charge(result((8, 4)), parts(8, 8, 4), 1.0) == 1


@given(most=st.integers(1, 600), among=st.integers(1, 32))
def test_the_charge_is_the_mean_over_all_lengths(most: int, among: int) -> None:
    own = parts(most, among, 1)
    cores = len(own)
    seeming = sum(cores * math.ceil(n / cores) for n in range(1, most + 1))
    expected = seeming / sum(range(1, most + 1))
    assert charge(result((most, 1), BATCH, None), own, 99.0) == pytest.approx(expected)

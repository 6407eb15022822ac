"""What held a run up: the roof, or what took longer than the roof explains."""

from __future__ import annotations

import pytest

from archgen.outcomes.bottleneck import bottleneck_row, verdict
from archgen.outcomes.points import Row

NEAR: Row = {
    "bound_by": "bandwidth", "of_bound": 0.6, "work_products": 0.35, "work_padding": 0.1,
    "stall_data": 0.5, "stall_conflict": 0.05, "latency_ms": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "held", "words"),
    [
        ({}, "bandwidth", "DRAM bandwidth"),
        ({"of_bound": 0.5}, "bandwidth", "DRAM bandwidth"),  # it explains as much as the waits
        ({"bound_by": "matrix", "of_bound": 0.19}, "stall_data", "waits for data"),
        ({"bound_by": "matrix", "of_bound": 0.4, "stall_data": 0.1, "stall_conflict": 0.42},
         "stall_conflict", "bank conflicts"),
        ({"of_bound": 0.2, "stall_data": 0.1, "work_products_again": 0.3},
         "work_products_again", "repeated products"),
        ({"of_bound": 0.3, "stall_data": 0.2, "work_products": 0.7}, "bandwidth", "DRAM bandwidth"),
        # That is why they wait.
        ({"of_bound": 0.92, "stall_data": 0.95}, "bandwidth", "DRAM bandwidth"),
        ({"of_bound": 0.3, "stall_data": 0.95}, "stall_data", "waits for data"),
        # What was waited for worked as long.
        ({"of_bound": 0.1, "stall_data": 0.1, "stall_front_end": 0.5, "vector_busy": 0.8},
         "vector_busy", "vector engines"),
        ({"of_bound": 0.4, "moved_again": 0.5, "moved_compulsory": 0.4}, "moved_again",
         "repeated loads"),
        ({"of_bound": 0.4, "stall_data": 0.6, "moved_again": 0.1, "moved_compulsory": 0.4},
         "stall_data", "waits for data"),
        ({"bound_by": None, "of_bound": None}, "stall_data", "waits for data"),  # no bound is known
    ],
)  # fmt: skip
def test_the_longest_share_of_the_time_holds_a_run(more: Row, held: str, words: str) -> None:
    row = NEAR | more
    assert bottleneck_row(row) == {"held_by": held}
    found = verdict(row | {"held_by": held})
    assert found.words == words
    assert found.share == row["of_bound" if held == "bandwidth" else held]


def test_a_program_without_instructions_is_held_by_nothing() -> None:
    assert bottleneck_row({"bound_by": "matrix", "of_bound": 0.0, "stall_data": 0.0}) == {}
    assert bottleneck_row({"latency_ms": 0.0}) == {}

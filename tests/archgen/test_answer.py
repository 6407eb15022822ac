"""What a study answers in five sentences: worked out by hand from rows."""

from __future__ import annotations

from typing import Any

import pytest

from archgen.cli.summary import screenful
from archgen.outcomes.answer import answer
from archgen.outcomes.axes import completed
from archgen.outcomes.frame import results_frame
from archgen.outcomes.points import Outcome, Row
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from simmodel.arch.record import Arch


def machine(banks: int) -> Arch:
    base = load_arch("mcu-npu")
    arch = changed(base, {"memories.local.banks": banks}) or base  # which has 4
    return arch.model_copy(update={"name": f"banks-{banks}"})


def row(banks: int, ms: float, area: float, model: str = "net", **more: Any) -> Row:
    return {
        "arch": f"banks-{banks}", "family": "mcu-npu", "model": model, "batch": 1, "dtype": "int8",
        "status": "ok", "latency_ms": ms, "throughput_ips": 1000 / ms, "area_mm2": area,
        "bound_by": "bandwidth", "held_by": "bandwidth", "of_bound": 0.9, "verified": True,
        "arch.memories.local.banks": banks, **more,
    }  # fmt: skip


def said(*rows: Row) -> list[str]:
    archs = {f"banks-{n}": machine(n) for n in (2, 4, 8)}
    outcomes = [Outcome(str(at), "", each) for at, each in enumerate(rows)]
    return answer(completed(results_frame(outcomes), archs.values()), archs)


def test_the_best_the_smallest_that_is_nearly_as_good_and_what_lies_beyond() -> None:
    assert said(row(2, 4.0, 1.0), row(4, 2.1, 1.5), row(8, 2.0, 3.0)) == [
        "Fastest is banks-8: 2 ms for net, 500 samples/s; the next, banks-4, takes 5 % longer.",
        "The smallest within 10 % of it is banks-4: 1.5 mm2 instead of 3, 5 % longer.",
        "What holds banks-8 up: DRAM traffic takes 90 % of the time.",
        "The best lies at an end of what was tried: local.banks 8; try values beyond.",
    ]


def test_of_equals_the_smallest_is_named_first() -> None:
    first, *_ = said(row(2, 1.0, 3.0), row(4, 1.0, 1.0), row(8, 1.0, 2.0))
    assert (
        first
        == "Fastest is banks-4: 1 ms for net, 1,000 samples/s; the next, banks-8, is as quick."
    )


def test_where_nothing_smaller_comes_near_it_says_what_less_area_costs() -> None:
    held = {"held_by": "work_padding", "work_padding": 0.57}
    assert said(row(2, 8.0, 1.0), row(4, 2.0, 3.0, **held), row(8, 2.0, 3.5)) == [
        "Fastest is banks-4: 2 ms for net, 500 samples/s; the next, banks-8, is as quick.",
        "Less area costs time: banks-2 has 1 mm2 instead of 3 and takes 4 times as long.",
        "What holds banks-4 up: array padding takes 57 % of the matrix engines' time.",
    ]


def test_over_several_networks_machines_that_lack_one_are_left_out() -> None:
    rows = [row(2, 1.0, 1.0), row(2, 4.0, 1.0, "other", of_bound=0.8), row(4, 0.1, 1.0)]
    assert said(*rows) == [
        "banks-2 takes 2 ms, geometric mean of 2 networks.",
        "What holds banks-2 up on other: DRAM traffic takes 80 % of the time.",
    ]


def test_estimates_say_what_they_do_not_know() -> None:
    rows = [row(n, 1.0 / n, 1.0, status="estimated", verified=None) for n in (2, 4)]
    assert said(*rows) == [
        "Fastest is banks-4: 0.25 ms as estimated (-9 to +31 % when run) for net, 4,000 samples/s; "
        "the next, banks-2, takes 2 times as long.",
        "What holds banks-4 up: DRAM traffic takes 90 % of the estimated time.",
        "Estimates leave out waits, and bank conflicts beyond the peak of all banks: runs on "
        "shipped machines took 0.91 to 1.31 times the estimated time and 0.96 to 1.28 times the "
        "estimated energy; --best 5 runs the best.",
        "The best lies at an end of what was tried: local.banks 4; try values beyond.",
    ]
    ran = row(4, 0.3, 1.0, estimated_ms=0.25, energy_mj=2.0, estimated_mj=1.6)
    first, *_, left, _ = said(rows[0] | {"energy_mj": 3.0}, ran)
    assert "0.25 ms as estimated (+20 % when run) for net, 0.3 ms when it was run" in first
    assert "1 of these points was run and took 1.20 times the estimated time and 1.25 times" in left


@pytest.mark.parametrize("more", [{"status": "failed"}, {"verified": False}])
def test_what_has_no_right_result_is_no_answer(more: Row) -> None:
    assert said(row(2, 1.0, 1.0) | more) == []


def test_a_table_of_many_points_shows_the_quickest_of_each_network() -> None:
    times = [5.0, 1.0, 4.0, 2.0, *range(6, 24)]
    rows = [row(2, float(ms), 1.0, model) for model in ("net", "other") for ms in times]
    frame = results_frame([Outcome(str(at), "", each) for at, each in enumerate(rows)])
    shown, left = screenful(frame, everything=False)
    assert left == ["the quickest 20 of 44 points (--all prints every one)"]
    assert shown["model"].tolist() == ["net"] * 10 + ["other"] * 10
    assert shown["latency_ms"].tolist()[:5] == [1.0, 2.0, 4.0, 5.0, 6.0]
    assert screenful(frame, everything=True) == (frame, [])
    first, left = screenful(frame, everything=False, ordered=True)
    assert first["latency_ms"].tolist()[:2] == [5.0, 1.0]
    assert left == ["the first 20 of 44 points (--all prints every one)"]

"""Choosing among the points of a study, and what it says of itself."""

from __future__ import annotations

import pytest

from archgen.outcomes.points import Outcome, Row
from archgen.outcomes.rows import merit_row
from archgen.schema import load_arch
from archgen.studies.design import StudyError
from archgen.studies.results import Study

EDGE = load_arch("soma-edge")
BANKS = "arch.memories.local.banks"


def machine(banks: int) -> object:
    local = EDGE.memories.local.model_copy(update={"banks": banks})
    memories = EDGE.memories.model_copy(update={"local": local})
    return EDGE.model_copy(update={"name": f"edge-banks{banks}", "memories": memories})


def outcome(banks: int, model: str, latency: float, area: float, **more: object) -> Outcome:
    row: Row = {
        "arch": f"edge-banks{banks}", "family": "edge", "model": model, "batch": 1,
        "dtype": "int8", "fusion": "optimal", "halo": "auto", "objective": "latency", "effort": 1,
        BANKS: banks, "status": "ok", "latency_ms": latency, "throughput_ips": 1000 / latency,
        "area_mm2": area, "energy_mj": 2.0, "verified": True,
    } | more  # type: ignore[assignment]  # fmt: skip
    return Outcome(f"{banks} {model}", "", row | merit_row(row))


OUTCOMES = (
    outcome(1, "small", 4.0, 1.0), outcome(2, "small", 2.0, 2.0), outcome(4, "small", 2.5, 4.0),
    outcome(1, "large", 9.0, 1.0), outcome(2, "large", 8.0, 2.0),
    outcome(4, "large", 1.0, 4.0, verified=False),
)  # fmt: skip
STUDY = Study(OUTCOMES, tuple(machine(n) for n in (1, 2, 4)))  # type: ignore[misc]


def test_the_best_of_each_network_is_no_wrong_one() -> None:
    assert STUDY.best()["arch"].tolist() == ["edge-banks2", "edge-banks2"]
    assert STUDY.best("throughput_ips")["latency_ms"].tolist() == [2.0, 8.0]
    small = STUDY.best("throughput_per_mm2")
    assert small["arch"].tolist() == ["edge-banks1", "edge-banks1"], "250 a mm2, then 111"
    with pytest.raises(StudyError, match="did you mean 'latency_ms'"):
        STUDY.best("latncy_ms")


def test_the_best_few_stand_in_the_order_of_networks_the_best_first() -> None:
    assert STUDY.best("latency", n=2)["latency_ms"].tolist() == [2.0, 2.5, 8.0, 9.0]


def test_nothing_beats_what_pareto_gives() -> None:
    """4 banks are slower and larger than 2 on the small network, and wrong on the large one."""
    found = STUDY.pareto()
    assert list(zip(found["model"], found[BANKS], strict=True)) == [
        ("small", 1), ("small", 2), ("large", 1), ("large", 2),
    ]  # fmt: skip
    assert STUDY.pareto("throughput_ips")[BANKS].tolist() == [2, 2]


def test_a_filter_is_a_study_again() -> None:
    found = STUDY.filter("model=small", "arch.memories.local.banks>=2")
    assert found.frame["arch"].tolist() == ["edge-banks2", "edge-banks4"]
    assert sorted(found.by_name) == ["edge-banks2", "edge-banks4"]


def test_a_pivot_names_fields_by_their_last_words() -> None:
    table = STUDY.pivot("local.banks", "model")
    assert table.loc[2].to_dict() == {"large": 8.0, "small": 2.0}
    assert table.loc[4].isna().to_dict() == {"large": True, "small": False}


def test_the_best_may_be_the_most() -> None:
    assert STUDY.best("latency", ascending=False)["latency_ms"].tolist() == [4.0, 9.0]
    assert STUDY.best("throughput", ascending=True)["latency_ms"].tolist() == [4.0, 9.0]


def test_a_pivot_has_every_value_that_there_is() -> None:
    table = STUDY.pivot("banks", "model", "throughput_ips")
    there = STUDY.frame[STUDY.frame["verified"]]
    assert table.notna().to_numpy().sum() == len(there.drop_duplicates([BANKS, "model"]))

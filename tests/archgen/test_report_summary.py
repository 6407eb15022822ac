"""The sentences of a report about which machine is fastest, by hand."""

from __future__ import annotations

import pytest

from archgen.outcomes.points import Outcome
from archgen.report.points import views
from archgen.report.ranking import rank
from archgen.report.sheet import percent
from archgen.report.summary import sentences
from archgen.schema import load_arch
from archgen.studies.results import Study


def fastest(areas: tuple[float, ...] = (), **latencies: float) -> str:
    """What is said of machines that take so many milliseconds, the first the baseline; and have
    such areas, where these are given."""
    base = load_arch("soma-edge")
    archs = tuple(base.model_copy(update={"name": name}) for name in latencies)
    outcomes = tuple(
        Outcome(name, name, {"arch": name, "model": "net", "batch": 1, "dtype": "int8",
                             "status": "ok", "latency_ms": ms, "latency_cycles": 1000}
                | ({"area_mm2": areas[number]} if areas else {}))
        for number, (name, ms) in enumerate(latencies.items())
    )  # fmt: skip
    points = views(Study(outcomes, archs))
    said = sentences(points, rank(points, archs), {}, len(points))
    return next(each for each in said if "fast" in each)


@pytest.mark.parametrize(
    ("latencies", "said"),
    [
        ({"a": 1.0, "b": 1.0}, "a and b are equally fast"),
        ({"a": 1.0, "b": 1.0001, "c": 1.0002}, "a, b and c are equally fast"),
        ({"a": 1.0, "b": 1.0, "c": 3.0}, "a and b are equally fast, 3.00× as fast as c"),
        ({"a": 1.0, "b": 1.005}, "a is fastest, hardly ahead of b"),
        ({"a": 1.0, "b": 0.996, "c": 0.98}, f"c is fastest, {percent(0.996 / 0.98 - 1)} ahead of b "
         f"and {percent(1 / 0.98 - 1)} ahead of the baseline a"),
        ({"a": 1.004, "b": 1.002, "c": 1.0}, "c is fastest, hardly ahead of b and hardly ahead of "
         "the baseline a"),
        ({"a": 4.0, "b": 2.0, "c": 1.0}, "c is fastest, 2.00× as fast as b and 4.00× as fast as "
         "the baseline a"),
    ],
)  # fmt: skip
def test_nothing_is_one_time_as_fast_as_something(latencies: dict[str, float], said: str) -> None:
    assert fastest(**latencies) == f"{said}; on net."


def test_of_equals_the_smallest_is_named_first() -> None:
    said = fastest((3.0, 1.0, 2.0), a=1.0, b=1.0, c=1.0)
    assert said == "b, c and a are equally fast; on net."

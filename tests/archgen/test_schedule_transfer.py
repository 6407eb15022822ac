"""A machine with more hardware takes the schedule of one with less where that is quicker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import rmtree

import pandas as pd
import pytest
from host_only import LOG, invoke, refused, small_model
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_transfer_tools import BY_TABLE, SCHEDULES, SLOWER, TIGHT, machine

from archgen.outcomes.answer import answer, provenance
from archgen.outcomes.points import Outcome, Point
from archgen.scheduling import Scheduling
from archgen.studies.results import open_study
from archgen.studies.schedule_transfer import reported_outcomes, transfer_schedules
from archgen.studies.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")

NAMES = tuple(SCHEDULES)


def run(folder: Path, names: Sequence[str] = NAMES, **options: object) -> pd.DataFrame:
    path = small_model(folder / "small.onnx")
    machines = [machine(name) for name in names]
    made = study(machines, [path], tools=BY_TABLE, **options)  # type: ignore[arg-type]
    return made.frame.set_index("arch")


def test_an_inversion_is_mended_by_the_smaller_machines_schedule(tmp_path: Path) -> None:
    frame = run(tmp_path, ["s64", "s128"])
    assert frame["latency_cycles"].to_dict() == {"s64": 1000, "s128": 1000}
    assert frame["schedule_from"].dropna().to_dict() == {"s128": "s64"}
    assert frame["verified"].all()
    assert not frame["note"].str.contains("slower").any()


def test_isolated_points_keep_their_own(tmp_path: Path) -> None:
    frame = run(tmp_path, isolated=True)
    assert frame["latency_cycles"].to_dict() == SCHEDULES
    assert frame["schedule_from"].isna().all()


def test_a_slow_down_by_hardware_stays_and_is_said(tmp_path: Path) -> None:
    row = run(tmp_path).loc["s512"]
    assert row["latency_cycles"] == SCHEDULES["s512"]
    assert pd.isna(row["schedule_from"])
    taken = SCHEDULES["s256"] + SLOWER["s512"]
    assert f"slower than s256, which has no more: its program takes {taken} cycles" in row["note"]


def test_what_fits_by_a_smaller_machines_schedule_fits(tmp_path: Path) -> None:
    alone = run(tmp_path, [TIGHT], isolated=True).loc[TIGHT]
    row = run(tmp_path, [TIGHT, "s64"]).loc[TIGHT]
    assert (alone["status"], row["status"]) == ("does_not_fit", "ok")
    assert (row["latency_cycles"], row["schedule_from"]) == (1000, "s64")


@pytest.mark.parametrize("name", ["crash", "wrong"])
def test_failures_and_wrong_results_are_not_covered_up(name: str) -> None:
    own = {"status": "failed" if name == "crash" else "ok", "latency_cycles": 9, "verified": False}
    points = [Point(key, machine(key), "net", 1, "int8") for key in ("s64", "s128")]
    good = {"status": "ok", "latency_cycles": 1, "verified": True}
    done = {"s64": Outcome("s64", "", good), "s128": Outcome("s128", "", own)}  # type: ignore[arg-type]
    assert transfer_schedules(points, done, lambda wanted: pytest.fail(str(wanted))) == {}


def test_other_objectives_than_time_lend_nothing(tmp_path: Path) -> None:
    frame = run(tmp_path, objective="memory")
    assert frame["schedule_from"].isna().all()


def test_the_folder_says_the_same_and_nothing_is_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv(LOG, str(log))
    first = run(tmp_path, out=tmp_path / "out", plots=False)
    compiled = log.read_text()
    stored = open_study(tmp_path / "out").frame.set_index("arch")
    again = run(tmp_path, NAMES[::-1], out=tmp_path / "out", plots=False).loc[list(NAMES)]
    assert log.read_text() == compiled
    for other in (stored, again):
        pd.testing.assert_frame_equal(first, other)
    shown = invoke("results", str(tmp_path / "out"))
    assert "s64" in shown.stdout
    invoke("report", str(tmp_path / "out"), "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "Schedule from" in page
    assert f"1 of {len(NAMES)} points runs the schedule of a machine with no more hardware" in page
    rmtree(tmp_path / "out" / "runs")
    told = refused("report", str(tmp_path / "out"), "-o", str(tmp_path / "page.html"))
    assert "no point to report" in told
    assert (tmp_path / "page.html").read_text() == page


def test_the_answer_says_whose_schedule_the_best_ran_and_what_others_did(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(tmp_path, ["s64", "s128"], out=out, plots=False, isolated=True)
    (words,) = provenance((own := open_study(out)).frame, own.about)
    assert words.startswith("Every machine ran its own schedule (--isolated)")
    lent = study([machine("s128")], [small_model(tmp_path / "small.onnx")], tools=BY_TABLE)
    assert not [*provenance(lent.frame, lent.about)]
    frame = lent.frame.assign(schedule_from="s64")
    assert "samples/s, by the schedule of s64." in answer(frame, lent.by_name)[0]


@st.composite
def ladders(draw: st.DrawFn) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Machines in any order, cycles of their schedules, and what they add to those of others."""
    sizes = draw(st.lists(st.integers(4, 12), min_size=2, max_size=6, unique=True))
    names = [f"s{1 << size}" for size in sizes]
    cycles = {name: draw(st.integers(1, 30)) for name in names}
    added = {name: draw(st.sampled_from((0, 0, 5, 40))) for name in names}
    return names, cycles, added


@settings(max_examples=50)
@given(ladders(), st.randoms())
def test_answers_depend_on_no_order_and_only_hardware_is_slower(
    ladder: tuple[list[str], dict[str, int], dict[str, int]], rng: object
) -> None:
    names, cycles, added = ladder

    def points(order: Sequence[str]) -> list[Point]:
        return [Point(name, machine(name), "net", 1, "int8") for name in order]

    def ran(wanted: Sequence[Point]) -> Iterator[Outcome]:
        for point in wanted:
            lender = point.arch if point.schedule_from is None else point.schedule_from
            own = lender.name == point.arch.name
            taken = cycles[lender.name] + (0 if own else added[point.arch.name])
            row = {"status": "ok", "arch": point.arch.name, "latency_cycles": taken}
            yield Outcome(point.key, point.label, row)

    def answers(order: Sequence[str]) -> dict[str, dict[str, object]]:
        wanted = points(order)
        own = {outcome.key: outcome for outcome in ran(wanted)}
        return {
            key: each.row
            for key, each in reported_outcomes(own, transfer_schedules(wanted, own, ran)).items()
        }

    found = answers(names)
    shuffled = list(names)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert answers(shuffled) == found
    for small in names:
        for large in names:
            if int(small[1:]) < int(large[1:]):
                least = cycles[small] + added[large]
                assert found[large]["latency_cycles"] <= least  # type: ignore[operator]
                slower = found[large]["latency_cycles"] > cycles[small]  # type: ignore[operator]
                assert ("note" in found[large]) or not slower


def test_schedules_are_lent_between_points_of_the_same_work() -> None:
    small, large = machine("s64"), machine("s128")
    own = Point("a", small, "net", 1, "int8")
    others = [
        Point("b", large, "net", 2, "int8"),
        Point("c", large, "other", 1, "int8"),
        Point("d", large, "net", 1, "int8", scheduling=Scheduling(effort=0)),
    ]
    row = {"status": "ok", "arch": "x"}
    done = {"a": Outcome("a", "", row | {"latency_cycles": 1})}
    done |= {p.key: Outcome(p.key, "", row | {"latency_cycles": 9}) for p in others}
    assert transfer_schedules([own, *others], done, lambda points: pytest.fail(str(points))) == {}

"""Estimates beside runs: compared like with like, and marked in figures, report and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from host_only import small_model
from lending_tools import BY_SIZE
from lending_tools import machine as of_size
from matplotlib.figure import Figure

import archgen
from archgen.outcomes.axes import axes
from archgen.outcomes.estimated import ESTIMATED, by_merit, like_with_like, run_of, runs
from archgen.outcomes.frame import records
from archgen.outcomes.merit import merit_row
from archgen.outcomes.point import Outcome, Row
from archgen.outcomes.slices import slices
from archgen.plots.saving import overview_figures, quickest
from archgen.plots.style import RUN
from archgen.report import report_html
from archgen.report.page import content
from archgen.schema import load_arch
from archgen.studies.results import Study
from simmodel.arch import Arch

EDGE = load_arch("soma-edge")
SIZE = "arch.memories.local.size"
GUESSES = {64: 4.0, 128: 2.0, 256: 1.0}
"""Milliseconds by KiB of local memory."""


def machine(size: int) -> Arch:
    return of_size(f"s{size}").model_copy(update={"name": f"edge{size}"})


def outcome(size: int, latency: float, **more: object) -> Outcome:
    row: Row = {
        "arch": f"edge{size}", "family": "edge", "model": "small", "batch": 1, "dtype": "int8",
        "fusion": "optimal", "halo": "auto", "objective": "latency", "effort": 1,
        SIZE: size << 10, "status": ESTIMATED, "latency_cycles": round(1e6 * latency),
        "latency_ms": latency, "throughput_ips": 1000 / latency, "area_mm2": size / 64,
    } | more  # type: ignore[assignment]  # fmt: skip
    return Outcome(str(size), "", row | merit_row(row))


def studied(*outcomes: Outcome) -> Study:
    return Study(outcomes, tuple(machine(size) for size in GUESSES))


GUESSED = [outcome(size, latency) for size, latency in GUESSES.items()]
RAN = outcome(
    256, 2.5, status="ok", estimated_ms=1.0, energy_mj=7.0, macs=1000, verified=True,
    matrix_utilization=0.5, efficiency=0.5, dram_read_bytes=9, dram_write_bytes=9,
)  # fmt: skip
"""It took longer than the estimate of a machine with half its memory."""
MIXED = studied(RAN, *GUESSED[:2])


def test_estimates_are_compared_with_estimates_by_hand() -> None:
    """The run of 2.5 ms was estimated at 1 ms: 1000 samples/s, 250 per mm2, not 400 and 100."""
    rows = records(like_with_like(MIXED.frame))
    assert [row["latency_ms"] for row in rows] == [1.0, 4.0, 2.0]
    assert [row["throughput_ips"] for row in rows] == [1000.0, 250.0, 500.0]
    assert [row["throughput_per_mm2"] for row in rows] == [250.0, 250.0, 250.0]
    assert [row["latency_area"] for row in rows] == [4.0, 4.0, 4.0]
    assert "energy_mj" not in rows[0], "no estimate knows it"
    assert rows[0]["status"] == "ok" and rows[0]["verified"]


def test_what_a_run_gave_stands_beside_its_estimate() -> None:
    run, *rest = map(run_of, records(like_with_like(MIXED.frame)))
    assert rest == [None, None]
    assert run is not None
    assert (run["latency_ms"], run["throughput_ips"], run["area_mm2"]) == (2.5, 400.0, 4.0)


@pytest.mark.parametrize("whole", [[RAN], []])
def test_without_estimates_nothing_changes(whole: list[Outcome]) -> None:
    frame = studied(*whole).frame
    assert like_with_like(frame) is frame and runs(frame) is frame
    assert not any(map(run_of, records(frame)))


def test_a_refusal_stays_one() -> None:
    """A machine that was among the best by its estimate, and cannot hold the network."""
    refused = outcome(256, 1.0, status="does_not_fit", estimated_ms=1.0, reason="too small")
    row: Row = {k: v for k, v in refused.row.items() if not k.startswith(("lat", "thr", "tops"))}
    study = studied(Outcome("256", "", row), *GUESSED[:2])
    found = records(like_with_like(study.frame))[0]
    assert found["status"] == "does_not_fit" and run_of(found) is None
    assert found["latency_ms"] != found["latency_ms"]
    assert study.best()["arch"].tolist() == ["edge128"]


def test_choosing_goes_by_estimates_and_shows_what_there_is() -> None:
    best = MIXED.best(n=2)
    assert best["arch"].tolist() == ["edge256", "edge128"]
    assert best["latency_ms"].tolist() == [2.5, 2.0]
    assert len(MIXED.pareto()) == 3, "by their estimates: nobody is beaten in both"
    assert MIXED.pivot("local.size", "model").to_numpy().ravel().tolist() == [4.0, 2.0, 1.0]
    assert MIXED.best("energy_mj")["arch"].tolist() == ["edge256"], "what runs alone know"
    assert "2 ms as estimated on edge128" in repr(studied(*GUESSED[:2]))


def tied(*, ran: dict[int, float]) -> Study:
    """Three machines that are estimated at 0.7 ms each; what runs took, by KiB."""
    found = [
        outcome(size, ran[size], status="ok", estimated_ms=0.7, area_mm2=1.0, verified=True)
        if size in ran
        else outcome(size, 0.7, area_mm2=1.0)
        for size in GUESSES
    ]
    return studied(*found)


def test_of_equal_estimates_runs_decide() -> None:
    """The last one ran, or the better of two that did, whatever the rounding of 2.5 / (2.5 / 0.7).
    A report has the same machine first."""
    for ran, first in (({256: 2.5}, "edge256"), ({128: 2.5, 256: 2.1}, "edge256")):
        study = tied(ran=ran)
        assert study.best()["arch"].tolist() == [first]
        assert study.best("throughput_ips")["arch"].tolist() == [first]
        assert len(study.pareto()) == 3, "nobody beats an equal by rounding"
        assert content(study)["ranking"].standings[0].name == first
        frame = like_with_like(study.frame)
        assert by_merit(frame, "latency_ms")["arch"].tolist()[0] == first


def test_one_place_of_a_line_has_the_point_that_ran() -> None:
    other = outcome(256, 1.0, arch="other")
    study = Study((other, *GUESSED[:2], RAN), (*MIXED.archs, machine(256).model_copy(
        update={"name": "other"})))  # fmt: skip
    frame = like_with_like(study.frame)
    every = axes(frame, study.by_name)
    size = next(axis for axis in every if axis.column == SIZE)
    (line,) = slices(records(frame), [size], [size])
    assert [row["arch"] for row in line.rows] == ["edge64", "edge128", "edge256"]


def test_the_quickest_of_estimates_are_called_so() -> None:
    many = [outcome(64, 0.7, arch=f"m{n}", area_mm2=1.0) for n in range(40)]
    last = outcome(64, 2.5, arch="last", area_mm2=1.0, status="ok", estimated_ms=0.7)
    frame = Study((*many, last), ()).frame
    assert "last" in set(quickest(like_with_like(frame))["arch"])
    archs = {name: machine(64).model_copy(update={"name": name}) for name in frame["arch"]}
    titles = {name: figure.get_suptitle() for name, figure in overview_figures(frame, archs)}
    assert titles["area"] == "Area: the 32 quickest of 41 estimates"
    assert not any("quickest" in titles[name] for name in ("memory", "stalls")), "one ran"


def titles(study: Study) -> dict[str, str]:
    return {name: figure.get_suptitle() for name, figure in figures(study)}


def figures(study: Study) -> Iterator[tuple[str, Figure]]:
    return overview_figures(study.frame, study.by_name)


def test_figures_of_estimates_say_so_and_none_is_of_runs() -> None:
    found = titles(studied(*GUESSED))
    assert found.pop("area") == "Area"
    assert set(found) == {"sweep_local.size", "pareto_area"}
    assert all(title.endswith(": estimated") for title in found.values())


def test_runs_are_stars_beside_estimates() -> None:
    drawn = dict(figures(MIXED))
    assert {"stalls", "memory", "roofline"} <= set(drawn), "of what was run"
    assert not drawn["roofline"].get_suptitle().endswith("estimated")
    (line, *_), pareto = drawn["sweep_local.size"].axes, drawn["pareto_area"].axes[0]
    for panel, place in ((line, (256, 2.5)), (pareto, (2.5, 4.0))):
        (star,) = (each for each in panel.get_lines() if each.get_marker() == RUN["marker"])
        ((x, y),) = star.get_xydata()
        assert (x, y) == place
    assert line.get_lines()[0].get_ydata().tolist() == [4.0, 2.0, 1.0]


def test_a_bar_has_the_estimate_and_the_run_inside() -> None:
    other = outcome(64, 4.0, arch="other", family="other")
    study = Study((RAN, *GUESSED[:2], other), (*MIXED.archs, machine(64).model_copy(
        update={"name": "other"})))  # fmt: skip
    bars = dict(figures(study))["latency"].axes[0]
    widths = [patch.get_width() for patch in bars.patches]
    assert widths == [1.0, 2.5, 4.0, 2.0, 4.0]
    assert "1 (run 2.5)" in [text.get_text() for text in bars.texts]


def test_the_report_says_what_was_estimated_and_how_far_off_that_was() -> None:
    said = content(MIXED)
    assert said["sentences"][1:4] == [
        "2 of 3 points are ESTIMATED layer by layer: nothing of them was compiled, run or checked. "
        "Comparisons here are of estimates, also of points that were run since.",
        "1 point that was run took 2.50× what was estimated.",
        "edge256 is fastest, 2.00× as fast as edge128 and 4.00× as fast as the baseline edge64; "
        "on small.",
    ]
    table = {h.name: n for n, h in enumerate(said["points"].headings)}
    cells = [
        [row[table[name]].text for name in ("status", "estimated", "latency")]
        for row in said["points"].rows
    ]
    assert cells == [
        ["ok", "1.000", "2.500"],
        ["estimated", "4.000", "≈ 4.000"],
        ["estimated", "2.000", "≈ 2.000"],
    ]
    assert [review["standing"].name for review in said["reviews"]] == ["edge256"]
    assert not said["refusals"]
    page = report_html(studied(*GUESSED))
    assert "They are of <strong>estimates</strong>" in page
    assert not re.search(r'id="(review|point)-1"', page)


@pytest.mark.usefixtures("own_cache")
def test_estimates_by_a_call(tmp_path: Path) -> None:
    """The same frame as of a study; the best is run, plots are drawn where there is a folder."""
    network = small_model(tmp_path / "small.onnx")
    machines = [of_size(f"s{size}") for size in GUESSES]
    out = tmp_path / "out"
    found = archgen.estimate(machines, network, best=1, tools=BY_SIZE, effort=0, verify=False,
                             out=out)  # fmt: skip
    assert isinstance(found, archgen.Study)
    assert found.frame["status"].tolist() == ["ok", ESTIMATED, ESTIMATED]
    assert (out / "pareto_area.png").exists()
    assert (
        archgen.open_study(out).frame["latency_ms"].tolist() == found.frame["latency_ms"].tolist()
    )

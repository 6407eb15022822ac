"""Studies by estimates: marked wherever they stand, the best of them replaced by runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from host_only import small_model
from lending_tools import BY_TABLE, machine
from pandas.testing import assert_frame_equal

from archgen.cli.main import cli
from archgen.studies.design import designed
from archgen.studies.options import Running, StudyOptions
from archgen.studies.results import open_study
from archgen.studies.run import ESTIMATED
from archgen.studies.sweep import run_estimated

NETWORK = "squeezenet:image=32"
OPTIONS = StudyOptions(effort=0, verify=False)


def test_estimates_are_marked_in_frame_table_and_folder(tmp_path: Path) -> None:
    words = ["study", "soma-edge", "mcu-npu", "-m", NETWORK, "--estimate", "-j", "1"]
    done = CliRunner().invoke(cli, [*words, "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "2 of 2 points are ESTIMATED layer by layer" in done.output
    assert "verified" not in done.output and "matrix use" not in done.output
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    known = {"latency", "throughput", "area", "pareto_area", "pareto_energy"}
    assert drawn == known, "none of what only runs know"
    assert "ESTIMATED layer by layer" in (tmp_path / "report.html").read_text()
    frame = open_study(tmp_path).frame
    assert list(frame["status"]) == [ESTIMATED] * 2
    energies = [name for name in frame if name.startswith("energy_") and name != "energy_link_mj"]
    assert frame[["latency_ms", "average_w", "tops_per_w", *energies]].notna().all(axis=None)
    assert frame["verified"].isna().all()


@pytest.mark.usefixtures("own_cache")
def test_the_best_is_run_and_takes_the_place_of_its_estimate(tmp_path: Path) -> None:
    design = designed(["mcu-npu", "soma-edge"], [NETWORK], None, None, OPTIONS)
    seen: list[str] = []
    running = Running(out=tmp_path, plots=False)
    study = run_estimated(design, running, lambda outcome, *_: seen.append(outcome.status), best=1)
    rows = {row["arch"]: row for row in (outcome.row for outcome in study.outcomes)}
    assert rows["mcu-npu"]["status"] == ESTIMATED
    assert rows["soma-edge"]["status"] == "ok"  # 16 GB/s beside 0.5
    assert seen == [ESTIMATED, ESTIMATED, "ok"]
    assert list(open_study(tmp_path).frame["status"]) == ["ok", ESTIMATED]
    assert len([*tmp_path.glob("runs/*.layers.parquet")]) == 1, "an estimate has no layers"
    again = run_estimated(design, running, best=1)
    assert again.reused == 2


SWEEP = ("s64", "s128", "s256", "s512")


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_as_many_as_asked_for_are_run_also_by_borrowed_schedules(
    tmp_path: Path, count: int
) -> None:
    """Four machines of one estimate: the first are run, and s128 takes the program of s64."""
    network = small_model(tmp_path / "small.onnx")
    design = designed([machine(name) for name in SWEEP], [network], None, None, OPTIONS)
    out = tmp_path / "out"
    frame = run_estimated(design, Running(out=out, plots=False), best=count, tools=BY_TABLE).frame
    run = min(count, 4)
    assert list(frame["status"]) == ["ok"] * run + [ESTIMATED] * (4 - run)
    assert list(frame["arch"]) == list(SWEEP)
    assert list(frame["schedule_from"].dropna()) == ["s64"] * (run > 1)
    expected = frame["latency_ms"].where(frame["status"] == ESTIMATED, frame["estimated_ms"])
    assert expected.nunique() == 1
    assert_frame_equal(open_study(out).frame, frame)


def test_what_cannot_run_is_refused_without_a_schedule() -> None:
    options = StudyOptions(effort=0, host=False)
    design = designed(["nvdla-2048"], ["vit_tiny:image=32,layers=1"], None, None, options)
    (outcome,) = run_estimated(design).outcomes
    assert outcome.status == "unsupported"


@pytest.mark.usefixtures("own_cache")
def test_after_the_fastest_what_is_run_lies_along_the_front(tmp_path: Path) -> None:
    """Near-ties of the fastest are not run: twice the bandwidth alone makes a machine quicker."""
    sweep = {"memories.dram.bandwidth": ["4 GB/s", "8 GB/s", "16 GB/s"], "cores": [1, 2, 4]}
    study = {
        "archs": [{"extends": "soma-edge", "sweep": sweep, "name": "{bandwidth}-{cores}"}],
        "models": [NETWORK], "compiler": {"effort": 0}, "verify": False,
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    words = ["study", str(path), "--estimate", "--best", "3", "-j", "1", "-o", str(tmp_path / "o")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    said = "3 of 9 points were run: the fastest, 2 along the estimated front of latency and area"
    assert said in done.output
    frame = open_study(tmp_path / "o").frame
    run = frame[frame["status"] == "ok"].set_index("chosen_as")
    assert sorted(run.index) == ["fastest", "front", "front"]
    assert run.loc["fastest", "estimated_ms"] == run["estimated_ms"].min()
    assert run["arch.memories.dram.bandwidth"].nunique() == 3
    assert set(run.loc["front", "arch.cores"]) == {1}
    assert said in re.sub(r"\s+", " ", (tmp_path / "o" / "report.html").read_text())

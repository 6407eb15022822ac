"""Studies by estimates: marked wherever they stand, the best of them replaced by runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from archgen.cli.main import cli
from archgen.studies.design import designed
from archgen.studies.estimate import ESTIMATED
from archgen.studies.options import Running, StudyOptions
from archgen.studies.quick import run_estimated
from archgen.studies.results import open_study

NETWORK = "squeezenet:image=32"
OPTIONS = StudyOptions(effort=0, verify=False)


def test_estimates_are_marked_in_frame_table_and_folder(tmp_path: Path) -> None:
    words = ["study", "soma-edge", "mcu-npu", "-m", NETWORK, "--estimate", "-j", "1"]
    done = CliRunner().invoke(cli, [*words, "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "2 of 2 points are estimated layer by layer" in done.output
    assert not list(tmp_path.glob("*.png")) and not (tmp_path / "report.html").exists()
    frame = open_study(tmp_path).frame
    assert list(frame["status"]) == [ESTIMATED] * 2
    assert frame["latency_ms"].notna().all() and frame["verified"].isna().all()


@pytest.mark.usefixtures("own_cache")
def test_the_best_is_run_and_takes_the_place_of_its_estimate(tmp_path: Path) -> None:
    design = designed(["mcu-npu", "soma-edge"], [NETWORK], None, None, OPTIONS)
    seen: list[str] = []
    study = run_estimated(
        design, Running(out=tmp_path), lambda outcome, *_: seen.append(outcome.status), best=1
    )
    rows = {row["arch"]: row for row in (outcome.row for outcome in study.outcomes)}
    assert rows["mcu-npu"]["status"] == ESTIMATED
    assert rows["soma-edge"]["status"] == "ok"  # 16 GB/s beside 0.5
    assert seen == [ESTIMATED, ESTIMATED, "ok"]
    assert list(open_study(tmp_path).frame["status"]) == [ESTIMATED, "ok"]
    again = run_estimated(design, Running(out=tmp_path), best=1)
    assert again.reused == 2


def test_what_cannot_run_is_refused_without_a_schedule() -> None:
    options = StudyOptions(effort=0, host=False)
    design = designed(["nvdla-2048"], ["vit_tiny:image=32,layers=1"], None, None, options)
    (outcome,) = run_estimated(design).outcomes
    assert outcome.status == "unsupported"

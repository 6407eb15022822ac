"""What changed over time, by hand: results of one point in a row, and an index of real folders."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from host_only import HOST_ONLY, small_model

from archgen.cli.history import Since
from archgen.cli.main import cli
from archgen.files import read_sealed, write_sealed
from archgen.process.git import git, revision
from archgen.studies.design import StudyError
from archgen.studies.history import Run, runs_of, steps
from archgen.studies.sweep import study

ROW = {"arch": "edge", "model": "net", "batch": 1, "status": "ok"}


def run(day: int, ms: float, machine: str = "m", network: str = "n", code: str = "c",
        point: str = "p", **fields: Any) -> Run:  # fmt: skip
    made = f"2026-11-{day:02}T12:00:00+0000"
    figures = {**ROW, "latency_ms": ms}
    return Run("out", made, "0.1.0", code, "", machine, network, point, figures, fields)


def test_a_result_stands_beside_the_one_before_it() -> None:
    """A wider machine on the 3rd, another network on the 5th, then both archgen and machine."""
    line = [
        run(9, 3.0, "m3", "n2", "c2"),
        run(1, 4.0, memories={"local": {"size": 64}}, name="edge"),
        run(3, 2.0, "m2", memories={"local": {"size": 128}}, name="edge-b"),
        run(5, 2.5, "m2", "n2"),
        run(2, 9.0, point="another"),
    ]
    found = steps(line)
    assert [(step.run.when.day, step.causes, step.ratio) for step in found] == [
        (1, (), None),
        (2, (), None),
        (3, ("machine",), 0.5),
        (5, ("network",), 1.25),
        (9, ("machine", "archgen"), 1.2),
    ]
    assert found[2].fields == ("memories.local.size 64 B -> 128 B",)
    late = steps(line, datetime.fromisoformat("2026-11-04T00:00:00+00:00"))
    assert [step.before.when.day for step in late if step.before is not None] == [3, 5]


def test_of_results_of_one_state_the_quickest_counts_from_the_first_on() -> None:
    """A borrowed schedule, and a result that is run again, are no change."""
    [only] = steps([run(1, 4.0), run(2, 3.0), run(3, 4.0)])
    assert (only.run.when.day, only.run.figures["latency_ms"]) == (1, 3.0)


def test_of_three_causes_at_once_those_are_known_that_some_result_has_alone() -> None:
    """On the 9th machine, network and archgen are others: 4 ms became 6. Of the old network on the
    new machine with the old archgen there is a result of 2 ms, so the machine alone is x 0.5; the
    new machine and network with the old archgen take 5 ms, so archgen alone is x 1.2."""
    both = [run(1, 4.0), run(9, 6.0, "m2", "n2", "c2")]
    [_, at_once] = steps(both)
    assert at_once.causes == ("machine", "network", "archgen")
    assert (at_once.alone, at_once.ratio) == ({}, 1.5)
    late = [run(10, 2.0, "m2"), run(11, 5.0, "m2", "n2")]
    [_, known, back, again] = steps([*both, *late])
    assert known.alone == {"machine": 0.5, "archgen": 1.2}
    assert [step.causes for step in (back, again)] == [("network", "archgen"), ("network",)]
    assert back.alone == {"network": pytest.approx(2 / 5), "archgen": pytest.approx(5 / 6)}
    assert again.alone == {}
    assert steps([run(1, 4.0, "", "n", "c"), run(2, 5.0, "m", "n2", "c2")])[1].alone == {}


def test_the_verb_tells_three_causes_apart_and_how_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(day: int, ms: float, *made: str) -> Run:
        return replace(run(day, ms, *made), point="{}")

    monkeypatch.setenv("COLUMNS", "400")
    line = [replace(of(1, 4.0), git="1a2b3c4+"), of(9, 6.0, "m2", "n2", "c2")]
    monkeypatch.setattr("archgen.cli.history.runs_of", lambda folders, index: line)
    told = CliRunner().invoke(cli, ["history", "out"]).output
    assert "machine, network and archgen" in told
    assert (
        "edge net since 2026-11-09: machine, network and archgen changed at once; a result with "
        "one of them as it was, in any of the folders, tells them apart: archgen compare "
        "edge.yaml@1a2b3c4 edge.yaml --model net\n" in told
    )
    assert "2 results of 1 points; 1 changes: 1 by the machine, the network and archgen" in told
    line += [of(10, 2.0, "m2"), of(11, 5.0, "m2", "n2")]
    told = CliRunner().invoke(cli, ["history", "out", "--json"]).output
    assert json.loads(told)[0]["machine_ratio"] == 0.5
    told = CliRunner().invoke(cli, ["history", "out"]).output
    assert "machine (x 0.500), network and archgen (x 1.200)" in told
    assert "at once" not in told


def test_what_was_not_kept_is_unknown() -> None:
    old, new = steps([run(1, 4.0, "", "", ""), run(2, 5.0)])
    assert new.causes == ("unknown",)
    assert old.causes == ()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study that was run on a machine, and again when that had more memory."""
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model = small_model(tmp_path / "small.onnx")
    for size in ("1 MiB", "2 MiB"):
        text = f"extends: soma-edge\nname: edge\nmemories: {{local: {{size: {size}}}}}\n"
        Path("edge.yaml").write_text(text)
        study("edge.yaml", str(model), out="nightly/edge", plots=False, tools=HOST_ONLY)
    return tmp_path / "nightly"


def test_folders_are_read_once_and_say_which_field_changed(folder: Path) -> None:
    index = Path("index.sqlite")
    runs = runs_of([folder], index)
    [first, second] = steps(runs)
    assert first.before is None
    assert second.causes == ("machine",)
    assert second.fields == ("memories.local.size 1 MiB -> 2 MiB",)
    assert second.run.git == revision(Path.cwd()) == ""
    for path in (folder / "edge" / "runs").glob("*.json"):
        kept = path.stat()
        path.write_bytes(b"x" * kept.st_size)  # the index has what stood there
        os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert runs_of([folder], index) == runs
    for path in (folder / "edge" / "runs").glob("*.json"):
        path.unlink()
    assert runs_of([folder], index) == []


def test_a_result_knows_the_last_commit_of_its_machine_and_what_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file is committed later, so the revision of the folder is another one."""
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    model, file = small_model(tmp_path / "small.onnx"), Path("archs/edge.yaml")
    file.parent.mkdir()
    for command in (["init", "-q"], ["config", "user.email", "a@b"], ["config", "user.name", "x"]):
        git(tmp_path, *command)

    def committed(path: Path, text: str) -> str:
        path.write_text(text)
        git(tmp_path, "add", str(path))
        git(tmp_path, "commit", "-q", "-m", "step")
        return git(tmp_path, "rev-parse", "--short=12", "HEAD").decode().strip()

    first = committed(file, "extends: soma-edge\nname: edge\n")
    committed(Path("readme"), "of the folder")
    study(str(file), str(model), out="out", plots=False, tools=HOST_ONLY)
    file.write_text("extends: soma-edge\nname: edge\nmemories: {local: {size: 2 MiB}}\n")
    study(str(file), str(model), out="out", plots=False, tools=HOST_ONLY)
    study("mcu-npu", str(model), out="out", plots=False, tools=HOST_ONLY)
    Path("new.yaml").write_text("extends: soma-edge\nname: new\n")
    study("new.yaml", str(model), out="out", plots=False, tools=HOST_ONLY)
    told = CliRunner().invoke(cli, ["history", "out", "--all", "--json"])
    rows = json.loads(told.stdout)
    at = [row["file_at"] for row in rows if row["arch"] == "edge"]
    assert at == [first, f"{first}+"]
    assert not any(row["git"].startswith(first) for row in rows)
    assert [row["file_at"] for row in rows if row["arch"] == "new"] == [""], "unknown to git"
    shown = CliRunner().invoke(cli, ["history", "out"], env={"COLUMNS": "200"}).output
    assert "file at" in shown and f"{first}+" in shown


def test_files_of_older_versions_are_read_as_far_as_they_say(folder: Path) -> None:
    for path in (folder / "edge" / "runs").glob("*.json"):
        content = json.loads(read_sealed(path) or b"")
        del content["made"]
        write_sealed(path, json.dumps(content, indent=1).encode())
    runs = runs_of([folder], Path("index.sqlite"))
    assert sorted(bool(run.machine) for run in runs) == [False, True]
    assert [step.causes for step in steps(runs)][1:] == [("unknown",)]


def test_the_verb_says_what_it_was(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["history", str(folder), "--all", "--csv", "all.csv"])
    assert result.exit_code == 0, result.output
    assert "memories.local.size 1 MiB -> 2 MiB" in result.output
    assert "2 results of 1 points; 1 changes: 1 by the machine" in result.output
    assert "machine" in Path("all.csv").read_text()
    assert "no result" in str(
        CliRunner().invoke(cli, ["history", str(folder), "--machine", "egde"]).exception
    )
    later = CliRunner().invoke(cli, ["history", str(folder), "--since", "2999-01-01", "--json"])
    assert json.loads(later.stdout) == []


def test_wrong_folders_and_dates_are_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as told:
        runs_of([tmp_path / "no", tmp_path], tmp_path / "index.sqlite")
    assert len(told.value.mistakes) == 2
    (tmp_path / "study.json").write_text("{}")
    (tmp_path / "index.sqlite").write_text("no database, though of some length " * 9)
    with pytest.raises(StudyError, match="the index cannot be used"):
        runs_of([tmp_path], tmp_path / "index.sqlite")
    result = CliRunner().invoke(cli, ["history", str(tmp_path), "--since", "tuesdya"])
    assert result.exit_code == 2
    assert "did you mean 'tuesday'?" in result.output


def test_days_are_those_of_the_last_week() -> None:
    now = datetime.now().astimezone()
    for number, name in enumerate(("monday", "tuesday", "wednesday", "thursday", "friday")):
        since = Since().convert(name, None, None)
        assert since.weekday() == number
        assert 0 <= (now - since).total_seconds() < 7.1 * 24 * 3600

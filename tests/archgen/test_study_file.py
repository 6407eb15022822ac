"""The format of study files: its JSON Schema, and what is written is what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from host_only import small_model

from archgen.cli.main import cli
from archgen.exploration.plan import load_exploration
from archgen.knobs import options
from archgen.studies.design import StudyError
from archgen.studies.file import StudyFile, read_study, study_schema
from compiler.stages import Stages

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))
FULL: dict[str, Any] = {
    "name": "full",
    "description": "every field",
    "archs": [
        "soma-edge",
        {"extends": "tpu-v1", "name": "t-{cores}", "set": {"clock": "1 GHz"},
         "sweep": {"cores": [1, 2]}, "cases": [{"memories.local.size": "1 MiB"}]},
    ],
    "models": ["resnet50", {"model": "n.onnx", "batches": [1], "dims": {"n": 2}}],
    "batches": [1, 2],
    "dtypes": ["int8"],
    "compiler": {"fusion": ["none"], "effort": [0], "passes": {"keep.share": 0.5}},
    "only": [{"batch": 1}],
    "skip": [{"arch": "t*"}],
    "verify": False,
    "host": False,
    "dims": {"n": 1},
    "calibration": "samples.npz",
    "timeout": 10,
}  # fmt: skip


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text(yaml.safe_dump(FULL), encoding="utf-8")
    first, _, mistakes = read_study(path, "full.yaml")
    assert first is not None, mistakes
    path.write_text(yaml.safe_dump(json.loads(first.model_dump_json(exclude_unset=True))))
    second, _, _ = read_study(path, "full.yaml")
    assert second == first


def test_the_json_schema_has_every_field_and_says_what_it_is() -> None:
    printed = CliRunner().invoke(cli, ["schema", "--study"])
    assert printed.exit_code == 0
    schema = json.loads(printed.output)
    assert schema == study_schema()
    assert set(schema["properties"]) == set(StudyFile.model_fields)
    assert schema["required"] == ["archs", "models"]
    assert "Seconds that a point may take" in schema["properties"]["timeout"]["description"]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_shipped_studies_are_right(path: Path) -> None:
    found, _, mistakes = read_study(path, path.name)
    assert found is not None, mistakes


def test_explain_lists_options_of_passes_with_their_values() -> None:
    printed = CliRunner().invoke(cli, ["explain", "passes"])
    assert printed.exit_code == 0
    text = " ".join(printed.output.split())
    for name, option in options(Stages()).items():
        shown = "null" if option.value is None else str(option.value).lower()
        assert f"{name} [{option.takes}; default {shown}] " in text


def dry_run(folder: Path, text: str, name: str = "study.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["study", str(folder / name), "--dry-run"])
    assert isinstance(result.exception, StudyError), result.output
    return str(result.exception)


def test_an_enormous_sweep_is_refused_before_its_machines_are_made(tmp_path: Path) -> None:
    values = str(list(range(1, 101)))
    swept = f"{{matrix.rows: {values}, matrix.cols: {values}, cores: {values}}}"
    text = f"archs: {{extends: mcu-npu, sweep: {swept}}}\nmodels: squeezenet\n"
    assert "study.archs.sweep: 1,000,000 machines are more than" in dry_run(tmp_path, text)


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", ".."])
def test_the_name_of_a_study_stays_below_its_folder(tmp_path: Path, name: str) -> None:
    text = f"name: {name}\narchs: mcu-npu\nmodels: squeezenet\n"
    assert f"1:7: study.name: {name!r} cannot name the folder" in dry_run(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "said"), [("", "is empty"), ("archs: [", "not valid YAML"), ("\0", "is a binary file")]
)
def test_a_file_that_cannot_be_read_as_a_study_says_why(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in dry_run(tmp_path, text)


def test_a_study_that_names_nothing_by_its_right_key_is_still_read_as_one(tmp_path: Path) -> None:
    said = dry_run(tmp_path, "architectures: [mcu-npu]\nnetworks: [squeezenet]\n")
    assert "1:1: study: unknown key 'architectures'; did you mean 'archs'?" in said
    assert "2:1: study: unknown key 'networks'; did you mean 'models'?" in said


def test_samples_are_missing_where_they_are_named(tmp_path: Path) -> None:
    """In the file, or on the command line, which has no place in it."""
    text = "archs: mcu-npu\nmodels: squeezenet\ncalibration: none.npz\n"
    assert "3:14: study.calibration: calibration" in dry_run(tmp_path, text)
    made = tmp_path / "right.yaml"
    made.write_text("archs: mcu-npu\nmodels: squeezenet:image=32\n")
    result = CliRunner().invoke(cli, ["study", str(made), "--calibration", "other.npz"])
    assert str(result.exception) == "calibration other.npz: no such file"


def test_a_study_file_that_is_not_there_is_missing() -> None:
    result = CliRunner().invoke(cli, ["study", "nowhere.yaml"])
    assert "nowhere.yaml: no such file" in str(result.exception)


def test_a_deadline_is_a_number() -> None:
    result = CliRunner().invoke(cli, ["study", "mcu-npu", "-m", "squeezenet", "--timeout", "nan"])
    assert result.exit_code == 2
    assert "nan is not a number" in result.output


def test_keys_that_are_none_hide_no_mistake_of_the_section(tmp_path: Path) -> None:
    small_model(tmp_path / "small.onnx")
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "archs: cocco-simba-1c\n"
        "models: [small.onnx, nosuch.onnx]\n"
        "batchs: 2\n"
        "explore:\n"
        "  parameters: {memories.locl.size: [64 KiB]}\n"
        "  trials: -3\n",
        encoding="utf-8",
    )
    with pytest.raises(StudyError) as caught:
        load_exploration(path)
    said = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert said == [
        "wrong.yaml:2:22: study.models[1]: nosuch.onnx does not exist",
        "wrong.yaml:3:1: study: unknown key 'batchs'; did you mean 'batches'?",
        "wrong.yaml:5:37: arch.memories: unknown key 'locl'; did you mean 'local'?",
        "wrong.yaml:6:11: study.explore.trials: expected a positive whole number, got -3",
    ]
    path.write_text("archs: soma-egde\nmodels: small.onnx\nexplore: {parameters: 3}\n")
    with pytest.raises(StudyError) as caught:
        load_exploration(path)
    said = [each.partition("study.")[2] for each in caught.value.mistakes]
    assert [each.partition(":")[0] for each in said] == ["archs", "explore.parameters"]

"""The format of study files: its JSON Schema, and what is written is what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from archgen.cli.main import cli
from archgen.studies.design import StudyError
from archgen.studies.file import StudyFile, read_study, study_schema

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


def dry_run(folder: Path, text: str, name: str = "study.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["study", str(folder / name), "--dry-run"])
    assert isinstance(result.exception, StudyError), result.output
    return str(result.exception)


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", ".."])
def test_the_name_of_a_study_stays_below_its_folder(tmp_path: Path, name: str) -> None:
    text = f"name: {name}\narchs: mcu-npu\nmodels: squeezenet\n"
    assert f"1:7: study.name: {name!r} cannot name the folder" in dry_run(tmp_path, text)

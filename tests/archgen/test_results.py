"""`archgen results`: filters, order, columns and files of the points that are finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from host_only import HOST_ONLY, small_model

from archgen.cli.main import cli
from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.frame import typed_frame
from archgen.process.files import DamagedFile, write_sealed
from archgen.schema import load_arch
from archgen.studies.design import StudyError
from archgen.studies.query import where
from archgen.studies.results import MANIFEST, open_study
from archgen.studies.store import StoreError
from archgen.studies.sweep import study
from simmodel.arch.record import Arch

ROWS = [
    {"arch": "tpu-v1", "batch": 1, "latency_ms": 5.0, "status": "ok", "verified": True},
    {"arch": "edge", "batch": 4, "latency_ms": 2.0, "status": "ok", "verified": False},
    {"arch": "tpu-v4", "batch": 2, "status": "does_not_fit"},
]
ROWS[0] |= {"peak_local_bytes": 1 << 20, "efficiency": 0.5}
ROWS[1] |= {"peak_local_bytes": 1 << 10, "efficiency": 0.05}


@pytest.fixture
def frame() -> pd.DataFrame:
    return typed_frame(ROWS, COLUMNS)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("latency_ms<=5", ["tpu-v1", "edge"]),
        ("latency_ms < 5 ms", ["edge"]),
        ("latency_ms < 5000us", ["edge"]),
        ("latency_ms!=2", ["tpu-v1", "tpu-v4"]),
        ("arch=tpu*", ["tpu-v1", "tpu-v4"]),
        ("arch==edge", ["edge"]),
        ("batch=1,2", ["tpu-v1", "tpu-v4"]),
        ("status!=ok", ["tpu-v4"]),
        ("verified=false", ["edge"]),
        ("peak_local_bytes>512KiB", ["tpu-v1"]),
        ("efficiency>=50%", ["tpu-v1"]),
    ],
)
def test_conditions(frame: pd.DataFrame, condition: str, kept: list[str]) -> None:
    assert where(frame, [condition], {})["arch"].tolist() == kept


def test_conditions_all_hold(frame: pd.DataFrame) -> None:
    assert where(frame, ["arch=tpu*", "latency_ms>0"], {})["arch"].tolist() == ["tpu-v1"]


FIELDS = {
    "memories.dram.bandwidth": {"edge": 16e9, "tpu-v1": 32e9},
    "memories.local.size": {"edge": 2.0**19, "tpu-v1": 2.0**21},
    "memories.dram.latency": {"edge": 1e-7, "tpu-v1": 2e-7},
    "vector.lanes": {"edge": 16, "tpu-v1": 64},
}


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("dram.bandwidth>16 GB/s", ["tpu-v1"]),
        ("dram.bandwidth<=16000 MB/s", ["edge"]),
        ("dram.bandwidth=16e9", ["edge"]),  # a bare number is what the column holds
        ("local.size>=2MiB", ["tpu-v1"]),
        ("local.size<1 MiB", ["edge"]),
        ("local.size=524288", ["edge"]),
        ("dram.latency<=100 ns", ["edge"]),
        ("vector.lanes>16", ["tpu-v1"]),
    ],
)
def test_fields_are_compared_in_their_own_units(condition: str, kept: list[str]) -> None:
    names = ("edge", "tpu-v1")
    values = {f"arch.{field}": [held[n] for n in names] for field, held in FIELDS.items()}
    found = where(pd.DataFrame({"arch": names, **values}), [condition], _machines(names))
    assert found["arch"].tolist() == kept


def _machines(names: Sequence[str]) -> dict[str, Arch]:
    """Machines whose DRAM has its bandwidth and latency in seconds."""
    dram = {"bandwidth": "16 GB/s", "latency": "100 ns"}
    over = {"memories": {"dram": {"size": "1 GiB", "burst": 64, **dram}}}
    said = load_arch("soma-edge").model_dump(by_alias=True, exclude_unset=True)
    local = {"local": said["memories"]["local"]}
    made = {**said, "memories": {**over["memories"], **local}}
    return {name: Arch.model_validate({**made, "name": name}) for name in names}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    models = [small_model(tmp_path / f"{name}.onnx") for name in ("small", "huge")]
    study(["soma-edge", "gemmini-16"], models, out=tmp_path / "out", plots=False, tools=HOST_ONLY)
    return tmp_path / "out"


def listed(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["results", str(folder), *arguments])


def test_a_slow_clock_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    slow = tmp_path / "slow.yaml"
    slow.write_text("name: slow\nextends: mcu-npu\nclock: 1 Hz\n")
    model = small_model(tmp_path / "small.onnx")
    study([slow], [model], out=tmp_path / "out", plots=False, tools=HOST_ONLY)
    opened = open_study(tmp_path / "out")
    assert [(arch.name, arch.clock) for arch in opened.archs] == [("slow", 1.0)]
    assert len(opened.outcomes) == 1


def test_a_machine_that_cannot_be_read_hides_no_other(folder: Path) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    content["archs"][0]["clock"] = 1.0
    del content["seal"]
    write_sealed(folder / MANIFEST, json.dumps(content, indent=1).encode())
    with pytest.warns(DamagedFile, match="machine 'soma-edge' cannot be read.*clock"):
        result = listed(folder)
    assert result.exit_code == 0
    assert f"2 of 4 points are finished in {folder}" in result.stdout


def test_files_hold_what_is_shown(folder: Path, tmp_path: Path) -> None:
    csv, parquet = tmp_path / "a.csv", tmp_path / "a.parquet"
    result = listed(
        folder, "--where", "status=ok", "--sort", "-arch", "--columns", "arch,batch",
        "--csv", str(csv), "--parquet", str(parquet),
    )  # fmt: skip
    assert result.exit_code == 0
    assert csv.read_text().splitlines() == ["arch,batch", "soma-edge,1", "gemmini-16,1"]
    assert pd.read_parquet(parquet)["arch"].tolist() == ["soma-edge", "gemmini-16"]
    assert "2 shown; 4 of 4" in result.stdout
    nowhere = tmp_path / "none" / "a.csv"
    with pytest.raises(StoreError, match=f"{nowhere}: .*: there is no such folder"):
        raise listed(folder, "--csv", str(nowhere)).exception or AssertionError


def test_json_is_what_a_program_reads(folder: Path) -> None:
    rows = json.loads(listed(folder, "--json", "--where", "status!=ok").stdout)
    assert [row["status"] for row in rows] == ["does_not_fit"] * 2
    assert rows[0]["latency_ms"] is None


def test_no_study_is_an_error_with_those_nearby(folder: Path) -> None:
    with pytest.raises(StudyError, match=r"holds no study.*there are studies in .*out"):
        CliRunner().invoke(cli, ["results", str(folder.parent)], catch_exceptions=False)

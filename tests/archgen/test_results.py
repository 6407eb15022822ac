"""`archgen results`: filters, order, columns and files of the points that are finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from host_only import HOST_ONLY, invoke, small_model

from archgen.cli.main import cli
from archgen.outcomes.columns import COLUMNS, STALLS, column, ordered
from archgen.outcomes.frame import save_frame, typed_frame
from archgen.outcomes.points import Outcome, Row
from archgen.outcomes.rows import merit_row
from archgen.process.files import write_sealed
from archgen.process.start import DamagedFile
from archgen.schema import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.design import StudyError
from archgen.studies.query import where
from archgen.studies.results import MANIFEST, Study, open_study
from archgen.studies.store import StoreError
from archgen.studies.sweep import study
from simmodel.arch.record import Arch
from simmodel.trace import CAUSES

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
    return invoke("results", str(folder), *arguments)


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


def test_what_is_wrong_with_conditions_order_and_columns_is_said_at_once(folder: Path) -> None:
    asked = ("--where", "latencyms<=5", "--sort", "-energie", "--columns", "arch,verify")
    with pytest.raises(StudyError) as wrong:
        raise listed(folder, *asked).exception or AssertionError
    named = [mistake.split(":")[0] for mistake in wrong.value.mistakes]
    assert named == ["column 'latencyms'", "column 'energie'", "column 'verify'"]


def test_json_is_what_a_program_reads(folder: Path) -> None:
    rows = json.loads(listed(folder, "--json", "--where", "status!=ok").stdout)
    assert [row["status"] for row in rows] == ["does_not_fit"] * 2
    assert rows[0]["latency_ms"] is None


def test_no_study_is_an_error_with_those_nearby(folder: Path) -> None:
    with pytest.raises(StudyError, match=r"holds no study.*there are studies in .*out"):
        CliRunner().invoke(cli, ["results", str(folder.parent)], catch_exceptions=False)


# Columns and frames: names, order and types.


def test_names_are_unique_and_described() -> None:
    names = [known.name for known in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(
        known.meaning and known.kind in ("text", "whole", "real", "truth", "any")
        for known in COLUMNS
    )


def test_families_match_their_members_alone() -> None:
    found = column("stall_front_end")
    assert found is not None
    assert found.name == "stall_<cause>"
    assert column("peak_local_bytes") is not column("stall_data")
    assert column("nonsense") is None


def test_columns_come_in_the_order_of_their_definitions() -> None:
    names = ordered(["stall_store", "stall_data", "arch"])
    assert names[0] == "arch"
    assert names.index("stall_data") == names.index("stall_store") + 1
    assert "latency_cycles" in names
    assert "peak_<memory>_bytes" not in names
    with pytest.raises(KeyError, match="nonsense"):
        ordered(["nonsense"])


def test_missing_values_keep_types(tmp_path: Path) -> None:
    rows = [{"arch": "a", "latency_cycles": 2**53 + 1, "verified": True}, {"arch": "b"}]
    frame = typed_frame(rows, COLUMNS)
    assert frame["latency_cycles"][0] == 2**53 + 1
    assert frame["latency_cycles"].isna().tolist() == [False, True]
    save_frame(frame, tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "results.parquet"), frame)


def test_every_cause_of_stalls_is_explained() -> None:
    assert tuple(STALLS) == CAUSES


# Choosing among the points of a study, and what it says of itself.

EDGE = load_arch("soma-edge")
BANKS = "arch.memories.local.banks"


def machine(banks: int) -> object:
    arch = changed(EDGE, {"memories.local.banks": banks}) or EDGE
    return arch.model_copy(update={"name": f"edge-banks{banks}"})


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

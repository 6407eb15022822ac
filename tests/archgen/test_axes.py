"""What a study has varied: axes with values, units and scales; no hole in a swept column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from networks import model
from onnx import helper

from archgen.cli.summary import reasons
from archgen.outcomes.axes import StudyAxis, axes, with_swept, workload
from archgen.outcomes.frame import Frame, records, results_frame
from archgen.outcomes.points import Outcome, Row
from archgen.studies.design import Content, Design, points
from archgen.studies.plan import load_study
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Compiled, Request

TWO_SWEEPS = """
archs:
  - mcu-npu
  - extends: mcu-npu
    sweep:
      memories.local.size: [64 KiB, 128 KiB, 256 KiB]
      memories.dram.bandwidth: [0.25 GB/s, 2.5 B/cycle]
  - {extends: mcu-npu, sweep: {vector.lanes: [8, 12, 16]}}
models: ["resnet18:image=64", "resnet18:image=128", "bert_base:layers=1"]
batches: [1, 2]
"""


def drawn(text: str, folder: Path) -> tuple[Frame, Design]:
    """The frame of a study that nothing was run of."""
    path = folder / "study.yaml"
    path.write_text(text)
    design = load_study(path)
    contents = {
        (load, batch): Content(f"{load.model} {load.dims}", batch or 1)
        for load in design.workloads
        for batch in load.batches or (None,)
    }
    rows = [point.identity() for point in points(design, contents)]
    outcomes = [Outcome(str(n), "", row | {"status": "ok"}) for n, row in enumerate(rows)]
    return with_swept(results_frame(outcomes), design.archs), design


def found(text: str, folder: Path) -> dict[str, StudyAxis]:
    frame, design = drawn(text, folder)
    return {axis.label: axis for axis in axes(frame, {arch.name: arch for arch in design.archs})}


def test_every_swept_field_is_an_axis_with_its_unit_and_scale(tmp_path: Path) -> None:
    swept = found(TWO_SWEEPS, tmp_path)
    assert list(swept) == ["local.size", "dram.bandwidth", "vector.lanes", "image", "batch"]
    size = swept["local.size"]
    assert (size.title, size.scale) == ("local.size [KiB]", "log")
    # 384 KiB is the machine's own; 64, 128, 256 of the sweep grow by factors.
    assert [size.shown(value) for value in size.values] == [
        "64 KiB", "128 KiB", "256 KiB", "384 KiB",
    ]  # fmt: skip
    assert [size.number(value) for value in size.values] == [64, 128, 256, 384]
    assert swept["vector.lanes"].values == (4, 8, 12, 16)
    assert swept["vector.lanes"].scale == "linear"
    assert swept["image"].column == "model.image"


def test_a_bandwidth_by_cycle_and_one_by_second_lie_on_one_axis(tmp_path: Path) -> None:
    # 2.5 B/cycle at 400 MHz is 1 GB/s; the machine's own is 0.5 GB/s.
    axis = found(TWO_SWEEPS, tmp_path)["dram.bandwidth"]
    assert [axis.shown(value) for value in axis.values] == ["0.25 GB/s", "0.5 GB/s", "1 GB/s"]


def test_a_swept_column_has_no_holes(tmp_path: Path) -> None:
    frame, _ = drawn(TWO_SWEEPS, tmp_path)
    assert frame["arch.vector.lanes"].tolist()[:4] == [4, 4, 4, 4]
    assert frame["arch.memories.local.size"].notna().all()
    assert frame["family"].unique().tolist() == ["mcu-npu"]
    # BERT has no image.
    assert sorted(frame["model.image"].dropna().unique()) == [64, 128]
    assert frame.groupby("arch.vector.lanes").size()[4.0] == 6 * 7


def test_what_entries_set_differently_tells_machines_apart(tmp_path: Path) -> None:
    text = """
archs:
  - {extends: mcu-npu, set: {clock: 200 MHz, vector.lanes: 8}, name: "slow-{banks}",
     sweep: {memories.local.banks: [2, 4]}}
  - {extends: mcu-npu, set: {clock: 500 MHz, vector.lanes: 8}, name: "quick-{banks}",
     sweep: {memories.local.banks: [2, 4]}}
models: resnet18
"""
    swept = found(text, tmp_path)
    assert list(swept) == ["local.banks", "clock"]  # all have eight lanes
    assert [swept["clock"].shown(value) for value in swept["clock"].values] == [
        "0.2 GHz", "0.5 GHz",
    ]  # fmt: skip


def test_sizes_of_one_dimension_are_one_column(tmp_path: Path) -> None:
    text = """
archs: mcu-npu
models:
  - {model: bert_base, dims: {sequence: [32, 64]}}
  - "bert_base:sequence=128"
  - bert_large
"""
    frame, design = drawn(text, tmp_path)
    assert frame["dim.sequence"].tolist() == [32, 64, 128, 128]
    (axis,) = axes(frame, {arch.name: arch for arch in design.archs})
    assert (axis.label, axis.unit, axis.scale) == ("sequence", "", "log")
    names = [workload(row, [axis]) for row in records(frame)]
    assert names == ["bert_base", "bert_base", "bert_base", "bert_large"]
    assert workload(records(frame)[2]) == "bert_base:sequence=128"


def test_a_filter_sees_the_value_of_a_machine_that_was_not_swept(tmp_path: Path) -> None:
    text = """
archs: [mcu-npu, {extends: mcu-npu, sweep: {vector.lanes: [8, 16]}}]
models: resnet18
"""
    frame, _ = drawn(text + "skip: [{arch.vector.lanes: 4}]", tmp_path)
    assert frame["arch"].tolist() == ["mcu-npu-lanes8", "mcu-npu-lanes16"]


def test_sections_are_told_by_the_fields_in_which_they_differ(tmp_path: Path) -> None:
    text = """
archs:
  - extends: mcu-npu
    sweep: {front_end: [{issue_width: 1, queue_depth: 4}, {issue_width: 2, queue_depth: 4}]}
models: "resnet18:image=64"
"""
    axis = found(text, tmp_path)["front_end"]
    assert all(str(value).startswith("{") for value in axis.values)
    assert [axis.shown(value) for value in axis.values] == ["issue_width 1", "issue_width 2"]


# Rows of points whose programs are for ranges: what is printed names the range, and says once what


def row(size: int, status: str, **more: object) -> Row:
    return {
        "arch": "edge", "family": "edge", "model": "net", "batch": 1, "dtype": "fp16",
        "dim.rows": size, "bucket.rows": "1..4", "status": status,
        "verified": None, "note": None, "schedule_from": None, **more,
    }  # fmt: skip


def said(rows: list[Row]) -> list[str]:
    outcomes = [Outcome(str(number), str(number), row) for number, row in enumerate(rows)]
    return list(reasons(results_frame(outcomes), {}))


def test_what_refuses_some_lengths_names_them() -> None:
    assert said([row(1, "ok"), row(2, "failed", reason="lost"), row(4, "ok")]) == [
        "edge net rows 2 of 1..4 batch 1 fp16: failed: lost"
    ]
    both = [row(1, "failed", reason="lost"), row(4, "failed", reason="found")]
    assert [line.split(" fp16")[0] for line in said(both)] == [
        "edge net rows 1 of 1..4 batch 1",
        "edge net rows 4 of 1..4 batch 1",
    ]


def windows_over_time(path: Path) -> Path:
    """Windows in three dimensions that a border shortens: no program for a range has them."""
    pool = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[3, 2, 2], pads=[1, 0, 0, 1, 0, 0]
    )
    shapes = {"x": [1, 4, "time", 3, 3]}, {"y": [1, 4, "time", 2, 2]}
    onnx.save(model([pool], *shapes), path)
    return path


@pytest.mark.usefixtures("own_cache")
def test_a_range_that_is_refused_is_tried_once_and_says_what_to_do(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def compiled(request: Request) -> Compiled:
        with tries.open("a") as log:
            log.write("x")
        return STANDARD.compile(request)

    net = windows_over_time(tmp_path / "net.onnx")
    found = study(
        "stcp920", net, dims={"time": "1..4"}, effort=0, plots=False, out=tmp_path / "out",
        tools=replace(STANDARD, compile=compiled),
    )  # fmt: skip
    (line,) = reasons(found.frame, found.by_name)
    assert found.frame["status"].tolist() == ["unsupported"] * 3
    assert "net.onnx time 1..4 fp16: unsupported: net: not one program for time=1..4; " in line
    assert "compile each length by itself (--dim time=4):\n    node 'AveragePool_0'" in line
    assert tries.read_text() == "x"

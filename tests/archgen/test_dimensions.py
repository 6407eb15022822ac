"""Free input dimensions of a study: several sizes of each are compared and can be told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from host_only import HOST_ONLY, invoke
from networks import model
from onnx import helper, numpy_helper, parser

import archgen
from archgen.cli.summary import reasons
from archgen.comparison.comparison import compare
from archgen.models.binding import derived
from archgen.models.constants import file_and_values, with_values
from archgen.models.errors import ModelError
from archgen.models.extents import SizeRange, extents
from archgen.models.load import open_model
from archgen.models.source_family import open_family
from archgen.outcomes.axes import StudyAxis, axes, with_swept, workload
from archgen.outcomes.frame import Frame, records, results_frame
from archgen.outcomes.points import Outcome, Row
from archgen.plots.saving import point_folder
from archgen.studies.design import Content, Design, StudyError, points
from archgen.studies.plan import load_study
from archgen.studies.query import where
from archgen.studies.results import open_study
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Compiled, Request

pytestmark = pytest.mark.usefixtures("own_cache")


def free_net(path: Path) -> Path:
    """`y = relu(x)` over two free dimensions, one of them with a name that no identifier has."""
    shape = ["n", "seq", "old + new", 2]
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, {"y": shape}), path)
    return path


def test_every_combination_of_sizes_is_a_point_that_frames_names_and_figures_tell_apart(
    tmp_path: Path,
) -> None:
    net, out = free_net(tmp_path / "net.onnx"), tmp_path / "out"
    asked = {"out": out, "plots": False, "tools": HOST_ONLY, "effort": 0}
    first = study("ascend-310-like", net, dims={"seq": [4, 2], "old + new": 3}, **asked)
    both = study("ascend-310-like", net, dims={"seq": [2, 4], "old + new": [3, 5]}, **asked)
    sizes = [(2, 3), (4, 3), (2, 5), (4, 5)]
    assert first.reused == 0 and both.reused == 2
    assert [*zip(both.frame["dim.seq"], both.frame["dim.old + new"], strict=True)] == sorted(
        sizes, key=lambda pair: pair[1]
    )
    assert pd.read_csv(out / "results.csv")["dim.seq"].tolist() == [2, 4, 2, 4]
    rows = [both.frame.iloc[[index]] for index in range(4)]
    assert workload(both.frame.iloc[3].to_dict()) == "net, old + new 5, seq 4"
    assert len({outcome.label for outcome in both.outcomes}) == len(both.outcomes) == 4
    assert len({point_folder(row) for row in rows}) == 4
    assert len(where(both.frame, ["dim.seq=2"], {})) == 2
    (found,) = compare(first, both).against
    assert len(found.pairs) == 2 and not found.only_before
    assert sorted(key["dim.old + new"] for key in found.only_after) == [5, 5]


def test_a_study_file_sweeps_sizes_filters_them_and_yields_to_the_command_line(
    tmp_path: Path,
) -> None:
    free_net(tmp_path / "net.onnx")
    path = tmp_path / "s.yaml"
    path.write_text(
        "archs: mcu-npu\nmodels: [{model: net.onnx, dims: {seq: [2, 4]}}]\n"
        "dims: {old + new: [3, 5]}\nskip: [{dim.seq: 4, dim.old + new: 3}]\n"
    )
    assert [dict(load.dims)["seq"] for load in load_study(path).workloads] == [2, 4, 2, 4]
    listed = invoke("study", str(path), "--dry-run")
    assert "3 points" in listed.output and "old + new" in listed.output
    changed = invoke("study", str(path), "--dim", "seq=7", "--dry-run")
    assert "2 points" in changed.output


@pytest.mark.parametrize(
    "given", ["", "4,x", "4,,5", "-1", "1.5", "²", "9" * 5000, (), [1, "2"], True]
)
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as 128"):
        extents(given)  # type: ignore[arg-type]


def test_a_program_has_one_size() -> None:
    result = invoke("compile", "mcu-npu", "-m", "n.onnx", "--dim", "n=1,2")
    assert result.exit_code == 2
    assert "--dim n=1,2: these are several sizes; give one here, such as n=1" in result.output


def test_all_that_is_wrong_with_the_options_of_a_study_is_said_at_once(tmp_path: Path) -> None:
    """Some could not be read, some about what only one network has."""
    net = str(free_net(tmp_path / "net.onnx"))
    given = [
        "study", "soma-edgy", "mcu-npu", "-m", net, "-m", "squeezenet", "--dim", "seq=4",
        "--dim", "n=x", "--role", "z=data", "--role", "w", "--set", "q=1", "--effort", "9",
        "--jobs", "no", "--best", "2", "--budget", "none.yaml", "--calibration", "none.npz",
    ]  # fmt: skip
    refused = invoke(*given).exception
    assert isinstance(refused, StudyError)
    said = "\n".join(refused.mistakes)
    for part in (
        "'--dim': n='x': expected a size", "'--role': 'w': expected name=role", "'--jobs': 'no'",
        "--best K", "none.yaml: cannot be read", "did you mean 'soma-edge'", "effort 9: must be",
        "calibration none.npz: no such file", "--dim seq=4: squeezenet has no such free",
        "--role z=data: there is no such input", "--set q=1: squeezenet has no option 'q'",
        "value 'q=1': no input is called so",
    ):  # fmt: skip
        assert part in said, part
    assert "unknown size" not in said
    unknown = invoke(*given, "--image", "32")
    for part in ("No such option '--image'", "-m resnet50:image=32", "'--role': 'w'", "'--jobs'"):
        assert part in unknown.output
    short = invoke("study", "-z", "--jobs", "no").output
    assert "No such option '-z'" in short and "'--jobs'" in short


# Inputs of a file that are given a value.

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 4] x, float rate, int64[2] size, bool on) => (float[a, b] y)
<float zero = {0}>
{ many = Range (zero, rate, rate)
  z = Reshape (x, size)
  r = Relu (z)
  y = Add (r, many) }
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    proto = parser.parse_model(NET)
    onnx.save(proto, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_a_value_is_a_constant_of_the_network(net: str) -> None:
    made = open_model(f"{net}:rate=0.25,size=[2,2],on=true")
    assert made.name == "net"
    assert [port.name for port in made.proto.graph.input] == ["x"]
    held = {t.name: numpy_helper.to_array(t) for t in made.proto.graph.initializer}
    assert held["rate"] == np.float32(0.25) and held["rate"].dtype == np.float32
    assert held["size"].tolist() == [2, 2] and held["size"].dtype == np.int64
    assert held["on"].dtype == np.bool_
    other = open_model(f"{net}:rate=0.5,size=[2,2],on=true")
    assert made.content_key != other.content_key
    assert numpy_helper.to_array(open_model(f"{net}:size=2").proto.graph.initializer[-1]).size == 2


def test_values_stand_behind_the_path() -> None:
    assert with_values("a.onnx", ["x=1", "y=2"]) == "a.onnx:x=1,y=2"
    assert with_values("a.onnx:x=1", ["y=2"]) == "a.onnx:x=1,y=2"
    assert with_values("resnet50:image=64", ["y=2"]) == "resnet50:image=64,y=2"
    assert file_and_values("C:/a.onnx:x=1") == ("C:/a.onnx", "x=1")
    assert file_and_values("C:/a.onnx") == ("C:/a.onnx", "")


def test_study_and_compile_take_values(net: str, tmp_path: Path) -> None:
    given = ["-m", net, "--set", "rate=0.25", "--set", "size=[2,2]", "--set", "on=true"]
    refused = invoke("compile", "tpu-v3-like", *given[:4], "--effort", "0")
    assert refused.exit_code != 0
    ran = invoke("compile", "tpu-v3-like", *given, "--effort", "0")
    assert ran.exit_code == 0, ran.output
    out = tmp_path / "out"
    asked = ["study", "tpu-v3-like", *given, "--effort", "0", "--no-plots", "--out", str(out)]
    assert invoke(*asked, "--jobs", "1").exit_code == 0
    [row] = open_study(out).frame.to_dict("records")
    assert (row["model"], row["status"]) == (f"{net}:rate=0.25,size=[2,2],on=true", "ok")
    assert row["verified"]


def test_a_study_file_names_values_behind_its_file(net: str, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text('archs: mcu-npu\nmodels: ["net.onnx:rate=0.25,size=[2,2],on=true"]\n')
    [load] = load_study(file).workloads
    assert load.model == f"{net}:rate=0.25,size=[2,2],on=true"
    wrong = invoke("study", str(file), "--set", "rate=1")
    assert "--set goes with -m" in str(wrong.exception)


# Dimensions that a file calls by what they follow from, and sizes that cannot be together.


def growing(path: Path) -> Path:
    """A cache of `past` rows and `seq` new ones, and a mask over all."""
    nodes = [
        helper.make_node("Concat", ["cache", "x"], ["all"], axis=0),
        helper.make_node("Mul", ["all", "mask"], ["y"]),
    ]
    shapes = {"x": ["seq", 8], "cache": ["past", 8], "mask": ["past + seq", 1]}
    onnx.save(model(nodes, shapes, {"y": ["past + seq", 8]}), path)
    return path


def mistakes(path: Path, **dims: int) -> list[str]:
    with pytest.raises(ModelError) as wrong:
        open_model(path, dims={name.replace("__", ":"): size for name, size in dims.items()})
    return [line.replace(str(path), "net") for line in wrong.value.mistakes]


def test_expressions_are_computed_and_names_are_not() -> None:
    sizes = {"past": 5, "seq": 2}
    known = {"past + seq": 7, "2*seq": 4, "(past - 1) // seq": 2, "past+1": 6}
    names = ["seq", "past + other", "past seq", "past ** seq", "past // 0", "a-b", "(" * 500, ""]
    assert derived([*known, *names], sizes) == known


def test_what_follows_need_not_be_said(tmp_path: Path) -> None:
    net = growing(tmp_path / "net.onnx")
    mask = open_model(net, dims={"past": 3, "seq": 2}).proto.graph.input[2]
    assert mask.type.tensor_type.shape.dim[0].dim_value == 5
    (said,) = mistakes(net, seq=2)
    assert said.endswith("here: --dim past=<size>") and "mask" not in said


def test_a_program_for_ranges_has_what_follows_from_them(tmp_path: Path) -> None:
    arch = archgen.load_arch("stcp920")
    family = archgen.load_family(growing(tmp_path / "net.onnx"), dims={"past": (1, 9), "seq": 2})
    program = archgen.compile_model(family, arch, effort=0)
    x, cache, mask = np.ones((2, 8), "f4"), np.ones((3, 8), "f4"), np.arange(5, dtype="f4")
    given = {"x": x, "cache": cache, "mask": mask[:, None]}
    found = archgen.execute(program, given, arch)["y"]
    np.testing.assert_array_equal(found, np.repeat(mask[:, None], 8, axis=1))


def test_sizes_that_contradict_each_other_are_said_all_at_once(tmp_path: Path) -> None:
    net = growing(tmp_path / "net.onnx")
    assert mistakes(net, seq=2, past=3, x__0=4, mask__0=7) == [
        "--dim seq=2 and --dim x:0=4: net has one dimension there, 'seq'; give it one size",
        "--dim mask:0=7: in net it follows from seq=2, past=3, which make it 5; leave it out",
    ]
    assert open_model(net, dims={"seq": 2, "past": 3, "mask:0": 5})


def test_what_follows_from_ranges_is_no_range_of_its_own(tmp_path: Path) -> None:
    ranges = {name: SizeRange(1, 2) for name in ("seq", "past")} | {"mask:0": SizeRange(2, 4)}
    with pytest.raises(
        ModelError, match=r"mask:0=2\.\.4: .* follows from seq=1\.\.2, past=1\.\.2;"
    ):
        open_family(growing(tmp_path / "net.onnx"), None, {}, ranges, {})


# What a study has varied: axes with values, units and scales; no hole in a swept column.

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

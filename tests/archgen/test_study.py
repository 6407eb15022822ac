"""Studies with a compiler that leaves everything to the host: points, store, failures, workers."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast, get_type_hints

import pandas as pd
import pytest
import yaml
from host_only import HOST_ONLY, invoke, prints, python, refused, small_model
from role_nets import LEFT_OVER, STREAMING, net, saved

import archgen
from archgen.cli.summary import reasons
from archgen.models.extents import SizeRange
from archgen.outcomes.columns import COLUMNS, LAYER_COLUMNS, column
from archgen.outcomes.frame import records
from archgen.outcomes.points import Outcome, Point
from archgen.process.steps import ProcessStep
from archgen.scheduling import Choices, Scheduling
from archgen.schema import load_arch
from archgen.studies.design import StudyError
from archgen.studies.file import StudyFile, read_study, study_schema
from archgen.studies.options import Running, StudyOptions
from archgen.studies.results import Study
from archgen.studies.store import Store
from archgen.studies.sweep import study
from archgen.studies.workers import run_points
from simmodel.errors import UserError

FP16, INT8 = "ascend-310-like", "soma-edge"


pytestmark = pytest.mark.usefixtures("own_cache")


def model(folder: Path, name: str = "small") -> Path:
    return small_model(folder / f"{name}.onnx")


def compiled(folder: Path) -> int:
    """How many points were compiled so far."""
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def one(folder: Path, name: str, **options: object) -> pd.Series:
    frame = study([FP16], [model(folder, name)], tools=HOST_ONLY, **options).frame  # type: ignore[arg-type]
    assert len(frame) == 1
    return frame.iloc[0]


def test_a_float_model_is_run_checked_and_measured(tmp_path: Path) -> None:
    row = one(tmp_path, "small")
    arch = load_arch(FP16)
    assert (row["status"], row["verified"], row["dtype"]) == ("ok", True, "fp16")
    assert row["latency_ms"] == pytest.approx(row["latency_cycles"] / arch.clock * 1e3)
    assert row["host_ops"] == 1
    assert row["max_abs_error"] <= row["tolerance"]
    assert pd.isna(row["quantization_error"])
    shares = [row[name] for name in row.index if name.startswith("stall_")]
    assert row["matrix_busy"] + sum(shares) == pytest.approx(1)


def test_int8_is_quantized_and_says_from_what(tmp_path: Path) -> None:
    row = study([INT8], [model(tmp_path)], tools=HOST_ONLY).frame.iloc[0]
    assert (row["dtype"], row["status"], row["verified"]) == ("int8", "ok", True)
    assert "seeded random samples" in row["note"]
    assert 0.001 < row["quantization_error"] < 0.1


def test_wrong_outputs_are_found(tmp_path: Path) -> None:
    result = study([FP16, INT8], [model(tmp_path, "wrong")], tools=HOST_ONLY)
    assert result.frame["verified"].tolist() == [False, False]
    assert not result.good
    said = list(reasons(result.frame, result.by_name))
    assert len(said) == 2, "what is said of a wrong point is not said again"
    for line, row in zip(said, records(result.frame), strict=True):
        assert re.search("outputs are wrong( by .* excuses)?: y: (off by|is) ", line)
        assert row["note"].startswith("y: ")


@pytest.mark.parametrize(
    ("name", "status", "reason", "good"),
    [
        ("huge", "does_not_fit", "needs 2 KiB, has 1 KiB", True),
        ("odd", "unsupported", "operator Odd", True),
        ("crash", "failed", "RuntimeError: something broke", False),
    ],
)
def test_what_goes_wrong_is_a_row(
    tmp_path: Path, name: str, status: str, reason: str, good: bool
) -> None:
    result = study([FP16], [model(tmp_path, name), model(tmp_path)], tools=HOST_ONLY)
    assert result.frame["status"].tolist() == [status, "ok"]
    assert reason in result.frame["reason"][0]
    assert pd.isna(result.frame["latency_cycles"][0])
    assert result.good is good


def test_a_batch_that_a_model_cannot_have_is_an_answer(tmp_path: Path) -> None:
    fixed = saved(net(LEFT_OVER.replace("float[1,", "float[4,")), tmp_path, "fixed")
    result = study([FP16], [fixed, model(tmp_path)], [1, 4], tools=HOST_ONLY)
    assert result.frame["status"].tolist() == ["unsupported", "ok", "ok", "ok"]
    assert "Run it as it is (--batch 4)" in result.frame["reason"][0]
    assert result.good


def test_roles_reach_the_run_and_are_part_of_what_a_point_is(tmp_path: Path) -> None:
    path = saved(net(STREAMING), tmp_path)
    out = tmp_path / "out"
    made = [
        study([FP16], [path], roles=roles, out=out, plots=False, tools=HOST_ONLY).outcomes[0]
        for roles in ({}, {"conv_cache": "parameter"}, {"conv_cache": "parameter"})
    ]
    assert [outcome.row["verified"] for outcome in made] == [True] * 3
    assert [outcome.reused for outcome in made] == [False, False, True]
    assert made[0].key != made[1].key == made[2].key
    batched = study([FP16], [path], [2], roles={"conv_cache": "state:none"}, tools=HOST_ONLY)
    assert "'frame' at 1; it cannot run at batch 2" in batched.frame["reason"][0]


def test_a_type_that_one_machine_lacks_is_an_answer(tmp_path: Path) -> None:
    frame = study([FP16, INT8], [model(tmp_path)], dtype="fp16", tools=HOST_ONLY).frame
    assert frame["status"].tolist() == ["ok", "unsupported"]


def test_several_types_are_a_point_each(tmp_path: Path) -> None:
    archs, types = [FP16, INT8], ["fp16", "int8", "fp16"]
    frame = study(archs, [model(tmp_path)], dtype=types, tools=HOST_ONLY).frame
    assert frame["dtype"].tolist() == ["fp16", "int8"] * 2
    assert frame["status"].tolist() == ["ok", "ok", "unsupported", "ok"]
    asked = ("study", *archs, "-m", model(tmp_path), "--dry-run", "--dtype")
    shown = invoke(*asked, "int8,fp16").output
    assert "4 points" in shown and " small.onnx " in shown and str(tmp_path) not in shown
    assert "dtype fp8: none of these" in refused(*asked, "int8,fp8")


def test_a_format_of_weights_that_no_product_reads_is_said(tmp_path: Path) -> None:
    spec = f"{model(tmp_path)}:weights=mxfp6"
    notes = study([FP16, "cloud-ai-100-like"], [spec], tools=HOST_ONLY).frame["note"]
    said = "weights=mxfp6 only rounds weights, which are read as those of fp16"
    assert f"{said}: matrix.rate of {FP16} has no fp16_mxfp6 or bf16_mxfp6" in notes[0]
    assert "reads mxfp6 in networks of fp16, in whole blocks of 32" in notes[1]


def test_every_column_is_defined_and_every_plain_definition_is_a_column(tmp_path: Path) -> None:
    result = study([FP16, INT8], [model(tmp_path)], tools=HOST_ONLY)
    for frame, columns in ((result.frame, COLUMNS), (result.layers, LAYER_COLUMNS)):
        assert all(column(name, columns) for name in frame)
        matched = {known.name for name in frame for known in columns if known.matches(name)}
        # No sweep, no links, no sizes or ranges of dimensions, no network of the zoo, no flash.
        absent = {
            "pass.<option>",
            "arch.<field>",
            "model.<option>",
            "link_<name>_bytes",
            "link_<name>_busiest",
        }
        absent |= {"dim.<dimension>", "bucket.<dimension>", "flash_moved_<part>"}
        absent |= {"bank_gap_<memory>_bytes"}  # no banks that are ranges of addresses
        assert matched == {known.name for known in columns} - absent


def test_a_second_run_takes_the_stored_points(tmp_path: Path) -> None:
    out, archs, models = tmp_path / "out", [FP16, INT8], [model(tmp_path)]
    first = study(archs, models, out=out, tools=HOST_ONLY, plots=False)
    assert (first.reused, compiled(tmp_path)) == (0, 2)
    second = study(archs, models, out=out, tools=HOST_ONLY, plots=False)
    assert (second.reused, compiled(tmp_path)) == (2, 2)
    pd.testing.assert_frame_equal(first.frame, second.frame)
    pd.testing.assert_frame_equal(first.layers, second.layers)
    study(archs, models, out=out, fresh=True, tools=HOST_ONLY, plots=False)
    assert compiled(tmp_path) == 4


def test_changed_weights_or_options_are_other_points(tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "small.onnx"
    small_model(path)
    study([FP16], [path], out=out, tools=HOST_ONLY, plots=False)
    small_model(path, weights=2.0)
    assert study([FP16], [path], out=out, tools=HOST_ONLY, plots=False).reused == 0
    assert study([FP16], [path], [1, 2], out=out, tools=HOST_ONLY, plots=False).reused == 1
    assert study([FP16], [path], verify=False, out=out, tools=HOST_ONLY, plots=False).reused == 0


def test_failed_points_are_run_again(tmp_path: Path) -> None:
    out, path = tmp_path / "out", model(tmp_path, "crash")
    study([FP16], [path], out=out, tools=HOST_ONLY, plots=False)
    assert study([FP16], [path], out=out, tools=HOST_ONLY, plots=False).reused == 0
    details = next((out / "runs").glob("*.json")).read_text()
    assert "Traceback" in json.loads(details)["details"]["traceback"]


def test_an_internal_error_has_a_file_to_attach_and_the_study_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    frame = study(
        [FP16], [model(tmp_path, "crash"), model(tmp_path)], out=out, tools=HOST_ONLY, plots=False
    ).frame
    assert frame["status"].tolist() == ["failed", "ok"]
    (path,) = (out / "runs").glob("*.error.txt")
    reason = frame["reason"][0]
    assert reason.startswith("internal error in archgen/")
    assert reason.endswith(f"RuntimeError: something broke; please report it with {path}")
    text = path.read_text()
    assert text.startswith("internal error in archgen/")
    for part in ("model: ", "crash.onnx", "dtype: fp16", "python: 3.", "Traceback", "_mishap"):
        assert part in text


def test_the_folder_holds_frames_plots_and_details(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = study([FP16], [model(tmp_path)], out=out, tools=HOST_ONLY)
    names = {path.name for path in out.iterdir()}
    assert names >= {"latency.png", "throughput.png", "roofline.png", "memory.png", "stalls.png"}
    rest = {name for name in names if not name.endswith(".png")}
    assert rest == {"results.csv", "results.parquet", "runs", "study.json", "plots.json"}
    pd.testing.assert_frame_equal(pd.read_parquet(out / "results.parquet"), result.frame)
    assert list(pd.read_csv(out / "results.csv")) == list(result.frame)
    layers = pd.read_parquet(next((out / "runs").glob("*.layers.parquet")))
    pd.testing.assert_frame_equal(layers, result.layers)


def test_a_file_of_another_point_is_not_taken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(Outcome("a" * 64, "edge net", {"status": "ok"}))
    assert store.load("edge net", "a" * 64) is not None
    assert store.load("edge net", "a" * 63 + "b") is None


def test_a_folder_that_cannot_be_written_is_found_before_anything_runs(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.touch()
    with pytest.raises(StudyError, match="results cannot be written"):
        study([FP16], [model(tmp_path)], out=taken / "results", tools=HOST_ONLY)
    for place in ("/proc/x", "/proc/version"):  # whatever root may do
        assert "cannot be written: " in refused("compile", FP16, "-m", "lstm_kws", "-o", place)


def test_a_cache_that_cannot_be_written_is_found_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "file"
    taken.touch()
    monkeypatch.setenv("ARCHGEN_CACHE", str(taken))
    with pytest.raises(StudyError, match=r"file: the cache \(.*\) cannot be written: "):
        study([FP16], [model(tmp_path)], out=tmp_path / "out", tools=HOST_ONLY)


def test_workers_give_the_same_frame_and_survive_a_death(tmp_path: Path) -> None:
    names = ["small", "kill", "huge"]
    result = study([FP16], [model(tmp_path, n) for n in names], tools=HOST_ONLY, jobs=2)
    assert result.frame["status"].tolist() == ["ok", "failed", "does_not_fit"]
    assert "worker process died" in result.frame["reason"][1]
    alone = one(tmp_path, "small")
    assert result.frame["latency_cycles"][0] == alone["latency_cycles"]


def test_an_interrupted_study_keeps_what_is_finished(tmp_path: Path) -> None:
    # A shell that runs tests in the background has its children ignore interrupts.
    script = f"""
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from host_only import HOST_ONLY
from archgen.studies.sweep import study
def observe(outcome, done, total):
    print("finished", flush=True)
    time.sleep(60)
study([{FP16!r}, {INT8!r}], [{str(model(tmp_path))!r}], out={str(tmp_path / "out")!r},
      tools=HOST_ONLY, observe=observe, plots=False)
"""
    process = python("-c", script)
    assert prints(process) == "finished\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    assert len(pd.read_parquet(tmp_path / "out/results.parquet")) == 1
    again = study(
        [FP16, INT8], [model(tmp_path)], out=tmp_path / "out", tools=HOST_ONLY, plots=False
    )
    assert (again.reused, len(again.frame)) == (1, 2)


def test_points_are_observed_as_they_finish(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    study(
        [FP16, INT8],
        [model(tmp_path)],
        tools=HOST_ONLY,
        verify=False,
        observe=lambda outcome, done, total: seen.append((outcome.status, done, total)),
    )
    assert seen == [("ok", 1, 2), ("ok", 2, 2)]


def test_a_single_value_needs_no_list(tmp_path: Path) -> None:
    path, tools = model(tmp_path), HOST_ONLY
    alone = study(FP16, path, 2, tools=tools, effort=0, fusion="none")
    listed = study([FP16], [path], [2], tools=tools, effort=[0], fusion=["none"])
    columns = ["arch", "model", "batch", "effort", "fusion", "latency_cycles"]
    pd.testing.assert_frame_equal(alone.frame[columns], listed.frame[columns])


def test_an_empty_study_has_a_frame() -> None:
    assert Study((), ()).frame.empty


def test_the_shipped_toolchain_computes_what_the_reference_computes(tmp_path: Path) -> None:
    result = study([INT8], [model(tmp_path)], batches=[1, 2])
    assert result.frame["status"].tolist() == ["ok", "ok"]
    assert result.frame["verified"].tolist() == [True, True]
    assert result.frame["macs"].tolist() == [8 * 16, 2 * 8 * 16]
    assert result.layers["executed_macs"].sum() >= 3 * 8 * 16


# Options and ways of running, as records and by name.

ARCH = "ascend-310-like"
SPACE = {
    "archs": ARCH,
    "models": "squeezenet:image=32",
    "explore": {"parameters": {"memories.dram.bandwidth": ["8 GB/s", "32 GB/s"]}},
}


def test_choices_of_schedules_are_keywords_of_their_types() -> None:
    assert get_type_hints(Choices).items() <= get_type_hints(Scheduling).items()


def test_keywords_overrule_records(tmp_path: Path) -> None:
    net, out = small_model(tmp_path / "small.onnx"), tmp_path / "out"
    options, running = StudyOptions(effort=0, fusion="none"), Running(out=out, plots=False)
    first = study(ARCH, net, options=options, running=running, tools=HOST_ONLY)
    same = study(ARCH, net, effort=0, fusion="none", out=out, plots=False, tools=HOST_ONLY)
    other = study(ARCH, net, options=options, running=running, fusion="line", tools=HOST_ONLY)
    assert (first.reused, same.reused, other.reused) == (0, 1, 0)
    assert [*first.frame["fusion"], *other.frame["fusion"]] == ["none", "line"]
    assert (
        study(ARCH, net, options=options, running=running, fresh=True, tools=HOST_ONLY).reused == 0
    )


def test_a_keyword_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match="'efort'; did you mean 'effort'"):
        archgen.study(ARCH, "squeezenet:image=32", efort=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'job'; did you mean 'jobs'"):
        archgen.explore(SPACE, job=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'effort'"):
        archgen.explore(SPACE, effort=0)  # type: ignore[call-arg]


def test_a_name_in_place_of_what_was_loaded_is_refused_with_how_to_load_it() -> None:
    machine, net, named = load_arch(FP16), archgen.load_model("lstm_kws"), cast(Any, FP16)
    program, wrong = archgen.compile_model(net, machine, effort=0), cast(Any, {"name": "x"})
    trace, api = archgen.simulate(program, machine), archgen
    calls: dict[str, tuple[Callable[[], object], ...]] = {
        r"^arch: expected .* load_arch\(.*, not 'ascend": (
            lambda: api.compile_model(net, named), lambda: api.simulate(program, named),
            lambda: api.measure(trace, program, named), lambda: api.commands(program, named),
            lambda: api.execute(program, {}, named), lambda: api.save("x.npu", program, named),
        ),
        r"^model: expected .* load_model\(.*, not 'ascend": (
            lambda: api.compile_model(named, machine), lambda: api.states(named),
        ),
        r"^program: expected .* compile_model\(.*, not 'ascend": (
            lambda: api.simulate(named, machine), lambda: api.execute(named, {}, machine),
            lambda: api.commands(named), lambda: api.write_assembly(named, "x.asm"),
        ),
        r"^batch(es)?: expected a whole number, not 'ascend": (
            lambda: api.load_model("lstm_kws", batch=named),
            lambda: api.study(FP16, "lstm_kws", batches=named),
        ),
        r"^\w+: expected a file or the name of .*, not (dict|SourceModel)": (
            lambda: load_arch(wrong), lambda: api.load_model(wrong),
            lambda: api.study(wrong, "lstm_kws"), lambda: api.study(FP16, [cast(Any, net)]),
        ),
    }  # fmt: skip
    for said, call in ((said, call) for said, own in calls.items() for call in own):
        with pytest.raises(UserError, match=said):
            call()


# Study files: what is written is what is read, and every mistake at once.

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
    printed = invoke("schema", "--study")
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


# Which point is begun next: the program of a range is made by one worker, and kept in use.

SMALL = load_arch("mcu-npu")


def bucket(name: str, *sizes: int) -> list[Point]:
    """Points of one range."""
    span = (("rows", SizeRange(1, 9)),)
    return [
        Point(f"{name}{size}", SMALL, name, size, "int8", (("rows", size),), span) for size in sizes
    ]


class Benches:
    """Workers of a test: of the points that are under way, the one begun first is done first."""

    def __init__(self, count: int) -> None:
        self.has: list[Point | None] = [None] * count
        self.jobs = count
        self.under: dict[Future[Outcome], tuple[int, Point]] = {}
        self.begun: list[str] = []

    def at_hand(self) -> list[Point]:
        busy = {number for number, _ in self.under.values()}
        return [has for n, has in enumerate(self.has) if n not in busy and has is not None]

    def submit(self, point: Point) -> Future[Outcome]:
        busy = {number for number, _ in self.under.values()}
        free = [n for n in range(len(self.has)) if n not in busy]
        number = min(free, key=lambda n: self.has[n] != point.range_point)
        made = "+" if self.has[number] != point.range_point else ""
        self.begun.append(f"{point.key}{made}")
        self.has[number] = point.range_point
        future: Future[Outcome] = Future()
        self.under[future] = number, point
        return future

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        if future is next(iter(self.under)):
            _, point = self.under.pop(future)
            future.set_result(Outcome(point.key, point.key, {"status": "ok"}))
        return None

    def abandon(self, future: Future[Outcome]) -> None:
        raise AssertionError(future)

    def close(self) -> None:
        """Nothing is open."""


def begun(points: list[Point], count: int) -> str:
    """The points as they were begun; + where a worker had to make the program."""
    benches = Benches(count)
    outcomes = list(run_points(points, benches))
    assert sorted(each.key for each in outcomes) == sorted(point.key for point in points)
    return " ".join(benches.begun)


def test_one_worker_makes_the_program_of_a_range() -> None:
    points = bucket("a", 1, 2, 3) + bucket("b", 1, 2)
    assert begun(points, 2) == "a1+ b1+ a2 b2 a3"


def test_one_worker_alone_goes_from_range_to_range() -> None:
    mixed = [*bucket("a", 1), *bucket("b", 1), *bucket("a", 2), *bucket("b", 2)]
    assert begun(mixed, 1) == "a1+ a2 b1+ b2"


def test_others_wait_for_the_first_point_of_a_range_and_then_help() -> None:
    assert begun(bucket("a", 1, 2, 3, 4), 3) == "a1+ a2 a3 a4+"


def test_points_without_ranges_keep_their_order() -> None:
    alone = [Point(name, SMALL, name, 1, "int8") for name in "xyz"]
    assert begun(alone, 2) == "x y z"
    assert begun([*alone, *bucket("a", 1, 2)], 2) == "x y z a1+ a2"

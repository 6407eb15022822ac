"""What a machine's file assumes: the range of a run's time, and the fit to measured times."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from host_only import invoke

import archgen
from archgen.cli.main import cli, is_user_error
from archgen.exploration.calibrate import calibrate, read_measurements
from archgen.outcomes.rows import assumed_row
from archgen.schema.rewritten import changed
from compiler import api
from simmodel.arch.assumed import place_of, value_at
from simmodel.arch.record import Arch
from simmodel.program.program import Program

ASSUMED = {"memories.dram.latency": "60 ns .. 300 ns", "matrix.sustained": "0.8 .. 1.0"}


def assuming(**more: str) -> Arch:
    found = changed(archgen.load_arch("soma-edge"), {"assumed": {**ASSUMED, **more}})
    assert found is not None
    return found


def test_a_range_has_each_assumption_at_its_ends_and_all_at_their_best_and_worst() -> None:
    arch = assuming()  # 1 GHz; 100 ns and 1.0 are stated

    def cycles(machine: Arch) -> int:
        return round(machine.dram_latency * 10 + 1000 / machine.matrix.sustained)

    assert cycles(arch) == 2000
    row = assumed_row(arch, 2000, cycles)
    # At best 60 ns and 1.0: 600 + 1000; at worst 300 ns and 0.8: 3000 + 1250.
    assert row["latency_low_ms"] == pytest.approx(1600e-6)
    assert row["latency_high_ms"] == pytest.approx(4250e-6)
    assert row["assumed_most"] == "memories.dram.latency"
    assert row["assumed_share"] == pytest.approx(2400 / (2400 + 250))


def test_what_is_stated_over_an_assumption_is_assumed_no_more(tmp_path: Path) -> None:
    """By a file that extends another and by a point of a sweep, out of the range too."""
    path = tmp_path / "known.yaml"
    known = "extends: gemmini-16\nname: known\nmemories: {dram: {latency: 500 ns}}\n"
    path.write_text(known)
    assert archgen.load_arch(path).assumed == {}
    path.write_text(known + "assumed: {matrix.sustained: 0.9 .. 1.0}\n")
    assert set(archgen.load_arch(path).assumed) == {"matrix.sustained"}
    point = changed(assuming(), {"memories.dram.latency": "1 us"})
    assert point is not None
    assert set(point.assumed) == {"matrix.sustained"}


def test_a_machine_that_assumes_nothing_has_no_range_and_runs_nothing_again() -> None:
    assert assumed_row(archgen.load_arch("soma-edge"), 2000, lambda _: pytest.fail("ran")) == {}


def test_a_place_in_a_range_is_a_value_as_a_file_spells_it() -> None:
    arch = assuming(**{"memories.dram.bandwidth": "8 GB/s .. 24 GB/s"})
    assert value_at(arch, "memories.dram.latency", 0.5) == "180 ns"
    assert value_at(arch, "memories.dram.bandwidth", 0.25) == "12 GB/s"
    assert value_at(arch, "matrix.sustained", 1) == 1.0
    hosted = assuming(**{"host.compute": "5 GOPS .. 25 GOPS"})
    assert value_at(hosted, "host.compute", 0) == "5 GOPS"
    assert place_of(hosted, "host.compute") == pytest.approx(5 / 20)  # 10 GOPS
    assert place_of(arch, "memories.dram.bandwidth") == 0.5
    assert place_of(arch, "memories.dram.latency") == pytest.approx(40 / 240)


def test_a_study_says_the_range_and_what_it_comes_from(tmp_path: Path) -> None:
    found = archgen.study(
        [assuming()], ["gemm:m=64,n=64,k=64"], out=tmp_path, plots=False, effort=0
    )
    (row,) = found.frame.to_dict("records")
    assert row["latency_low_ms"] < row["latency_ms"] < row["latency_high_ms"]
    assert row["assumed_most"] in ASSUMED
    assert f"% of it by {row['assumed_most']})" in str(found)


POINTS = """model,ms,kind
"gemm:m=64,n=64,k=64",1,
"gemm:m=256,n=128,k=512",1,
"conv:channels=16,image=16",1,window
"conv:channels=32,image=32",1,window
"""


def test_measured_times_say_what_was_assumed_wrongly(tmp_path: Path) -> None:
    arch, file = assuming(), tmp_path / "points.csv"
    file.write_text(POINTS)
    points, _ = read_measurements(file)
    assert [point.kind for point in points] == ["gemm", "gemm", "window", "window"]
    programs: dict[str, Program] = {
        point.model: archgen.compile_model(archgen.load_model(point.model), arch, effort=0)
        for point in points
    }
    true = changed(arch, {"memories.dram.latency": "210 ns", "matrix.sustained": 0.85})
    assert true is not None
    lines = [
        f'"{name}",{1e3 * archgen.simulate(program, true).cycles / arch.clock}'
        for name, program in programs.items()
    ]
    file.write_text("\n".join(["model,ms", *lines]))
    points, wrong = read_measurements(file)
    assert wrong == []
    found = calibrate(arch, points, lambda point: programs[point.model])
    assert max(found.errors(found.before)) > 0.15
    assert max(found.errors(found.after)) < 0.02
    assert max(found.errors(found.held_out)) < 0.1
    fitted = changed(arch, found.fields)
    assert fitted is not None
    assert fitted.memories.dram.latency.cycles(arch.clock) == pytest.approx(210, rel=0.1)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("", ["holds no rows; expected a line of columns such as model,ms"]),
        ("network,ms\na,1\n", ["1: no column 'model'", "1: unknown column 'network'; there are"]),
        ("model,ms,tree\na,1,none.tree\n", ["2: tree 'none.tree': expected a file"]),
        ("model,ms\na,fast\nb,-1\n,2\n", ["2: ms 'fast'", "3: ms '-1'", "4: model ''"]),
        ("model,ms,batch\na,1,1.5\n", ["2: batch '1.5': expected a whole number above 0"]),
        ("model,ms\ngemm:m=1,n=2,k=3,1\n", ["2: 2 values more than columns; quote a network"]),
    ],
)
def test_every_mistake_of_measured_times_is_told(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    file = tmp_path / "points.csv"
    file.write_text(text)
    _, told = read_measurements(file)
    assert len(told) == len(mistakes)
    for said, mistake in zip(told, mistakes, strict=True):
        assert mistake in said


def test_a_fitted_machine_is_a_file_that_extends_the_first(tmp_path: Path) -> None:
    base, points = tmp_path / "guessed.yaml", tmp_path / "points.csv"
    base.write_text(
        "extends: soma-edge\nname: guessed\nassumed: {memories.dram.latency: 60 ns .. 200 ns}\n"
    )
    points.write_text('model,ms\n"gemm:m=64,n=64,k=64",1.0\n')
    target = tmp_path / "out" / "fitted.yaml"
    target.parent.mkdir()
    line = ["calibrate", str(base), str(points), "--effort", "0", "--out", str(target)]
    done = CliRunner().invoke(cli, line, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    fitted = archgen.load_arch(target)
    assert fitted.name == "guessed-calibrated"
    assert str(fitted.memories.dram.latency) == "200 ns", "as slow as it may be"
    assert "200 ns (assumed 60 ns .. 200 ns; the end of it" in done.output


def test_what_cannot_be_calibrated_is_said(tmp_path: Path) -> None:
    base, points, tree = (tmp_path / name for name in ("guessed.yaml", "p.csv", "wrong.tree"))
    base.write_text("extends: soma-edge\nname: guessed\nassumed: {matrix.sustained: 0.5 .. 1.0}\n")
    tree.write_text("no schedule\n")
    points.write_text(f'model,ms,tree\n"gemm:m=64,n=64,k=64",0.0031,{tree}\n')
    with pytest.raises(api.TreeError) as told:
        CliRunner().invoke(cli, ["calibrate", str(base), str(points)], catch_exceptions=False)
    assert is_user_error(told.value)
    (tmp_path / "other.yaml").write_text("extends: soma-edge\nname: other\n")
    done = invoke("calibrate", str(tmp_path / "*.yaml"), str(points))
    assert done.exit_code == 2
    assert "stands for 2 machines, expected one" in done.output


def test_a_machine_that_assumes_nothing_cannot_be_calibrated(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text(POINTS)
    done = invoke("calibrate", "soma-edge", str(file))
    assert done.exit_code == 2
    assert "soma-edge assumes nothing to fit" in done.output


def test_what_speaks_against_a_fit_is_told_and_what_no_time_depends_on_stays_assumed(
    tmp_path: Path,
) -> None:
    base, points = tmp_path / "guessed.yaml", tmp_path / "points.csv"
    ranges = "{host.latency: 1 us .. 100 us, memories.dram.latency: 60 ns .. 200 ns}"
    base.write_text(f"extends: soma-edge\nname: guessed\nassumed: {ranges}\n")
    points.write_text('model,ms\n"gemm:m=64,n=64,k=64",1000\n"gemm:m=64,n=64,k=64",9\n')
    line = ["calibrate", str(base), str(points), "--effort", "0", "--out"]
    done = CliRunner().invoke(cli, [*line, str(tmp_path / "fitted.yaml")], catch_exceptions=False)
    assert "host.latency: 10000 ns (assumed 1 us .. 100 us; no time depends on it" in done.output
    assert f"warning: {points}:2, {points}:3: one network, 9 to 1000 ms" in done.output
    assert "warning: half of the times are met by no value in the ranges" in done.output
    fitted = archgen.load_arch(tmp_path / "fitted.yaml")
    assert list(fitted.assumed) == ["host.latency"]


@pytest.mark.parametrize("name", ["guessed.yaml", "points.csv", "first.yaml"])
def test_a_fit_overwrites_nothing_that_it_reads(tmp_path: Path, name: str) -> None:
    base, points = tmp_path / "guessed.yaml", tmp_path / "points.csv"
    (tmp_path / "first.yaml").write_text("extends: soma-edge\nname: first\ncores: 1\n")
    base.write_text("extends: first.yaml\nname: guessed\nassumed: {matrix.sustained: 0.5 .. 1.0}\n")
    points.write_text('model,ms\n"gemm:q=3",1\nnone.onnx,2\n')
    line = ["calibrate", str(base), str(points), "--out", str(tmp_path / name)]
    done = invoke(*line)
    assert done.exit_code == 2
    for said in ("is what is read", "points.csv:2: ", "points.csv:3: "):
        assert said in done.output

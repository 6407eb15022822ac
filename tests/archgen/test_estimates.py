"""Estimates beside runs: compared like with like, marked wherever they stand, and the best of them
replaced by runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from host_only import invoke, small_model
from pandas.testing import assert_frame_equal
from schedule_transfer_tools import BY_SIZE, BY_TABLE
from schedule_transfer_tools import machine as of_size

import archgen
from archgen.cli.summary import next_command
from archgen.outcomes.answer import answer
from archgen.outcomes.bottleneck import verdict
from archgen.outcomes.estimated import ESTIMATED, comparable, run_figures, simulated
from archgen.outcomes.frame import records
from archgen.outcomes.points import Outcome, Row, StudyMetadata
from archgen.outcomes.rows import merit_row
from archgen.studies.design import designed
from archgen.studies.options import Running, StudyOptions
from archgen.studies.results import Study, open_study
from archgen.studies.sweep import run_estimated
from simmodel.arch.record import Arch

SIZE = "arch.memories.local.size"
GUESSES = {64: 4.0, 128: 2.0, 256: 1.0}
"""Milliseconds by KiB of local memory."""


def machine(size: int) -> Arch:
    return of_size(f"s{size}").model_copy(update={"name": f"edge{size}"})


def outcome(size: int, latency: float, **more: object) -> Outcome:
    row: Row = {
        "arch": f"edge{size}", "family": "edge", "model": "small", "batch": 1, "dtype": "int8",
        "fusion": "optimal", "halo": "auto", "objective": "latency", "effort": 1,
        SIZE: size << 10, "status": ESTIMATED, "latency_cycles": round(1e6 * latency),
        "latency_ms": latency, "throughput_ips": 1000 / latency, "area_mm2": size / 64,
    } | more  # type: ignore[assignment]  # fmt: skip
    return Outcome(str(size), "", row | merit_row(row))


def studied(*outcomes: Outcome) -> Study:
    return Study(outcomes, tuple(machine(size) for size in GUESSES))


GUESSED = [outcome(size, latency) for size, latency in GUESSES.items()]
RAN = outcome(
    256, 2.5, status="ok", estimated_ms=1.0, energy_mj=7.0, macs=1000, verified=True,
    matrix_utilization=0.5, efficiency=0.5, dram_read_bytes=9, dram_write_bytes=9,
)  # fmt: skip
"""It took longer than the estimate of a machine with half its memory."""
MIXED = studied(RAN, *GUESSED[:2])


def test_estimates_are_compared_with_estimates_by_hand() -> None:
    """The run of 2.5 ms was estimated at 1 ms: 1000 samples/s, 250 per mm2, not 400 and 100."""
    rows = records(comparable(MIXED.frame))
    assert [row["latency_ms"] for row in rows] == [1.0, 4.0, 2.0]
    assert [row["throughput_ips"] for row in rows] == [1000.0, 250.0, 500.0]
    assert [row["throughput_per_mm2"] for row in rows] == [250.0, 250.0, 250.0]
    assert [row["latency_area"] for row in rows] == [4.0, 4.0, 4.0]
    assert "energy_mj" not in rows[0], "none of these estimates knows it"
    assert rows[0]["status"] == "ok" and rows[0]["verified"]


def test_what_a_run_gave_stands_beside_its_estimate() -> None:
    run, *rest = map(run_figures, records(comparable(MIXED.frame)))
    assert rest == [None, None]
    assert run is not None
    assert (run["latency_ms"], run["throughput_ips"], run["area_mm2"]) == (2.5, 400.0, 4.0)


def test_energies_and_powers_are_compared_as_estimated_by_hand() -> None:
    """The run took 2.5 times the estimated time and 1.75 times the energy; prices are of runs."""
    row = RAN.row | {"usd_per_million": 3.0, "estimated_mj": 4.0, "energy_dram_mj": 3.5,
                     "average_w": 2.8, "tops_per_w": 4.0}  # fmt: skip
    known: Row = {"energy_mj": 8.0, "energy_dram_mj": 1.0, "average_w": 2.0, "tops_per_w": 1.0}
    study = studied(Outcome("256", "", row), outcome(128, 2.0, usd_per_million=1.0, **known))
    first, other = records(comparable(study.frame))
    assert study.best("usd_per_million")["arch"].tolist() == ["edge256"]
    found = [first[name] for name in known]
    assert found == pytest.approx([4.0, 2.0, 2.8 * 2.5 / 1.75, 7.0])
    assert [other[name] for name in known] == [*known.values()]
    run = run_figures(first)
    assert run is not None and [run[name] for name in known] == [7.0, 3.5, 2.8, 4.0]


def test_beside_estimates_a_run_says_what_holds_it_up() -> None:
    row = {"held_by": "stall_fill", "stall_fill": 0.7, "bound_by": "matrix", "of_bound": 0.04}
    study = studied(Outcome("256", "", RAN.row | row), outcome(128, 2.0, of_bound=0.5))
    said = "waiting for the first operands takes 70 % of the matrix engines' time"
    assert f"What holds edge256 up: {said}." in answer(study.frame, study.by_name)
    # Compared with estimates it has the bound, as they know no waits.
    held = verdict(records(comparable(study.frame))[0])
    assert (held.cause, held.estimated) == ("matrix", True)


SLOW = outcome(64, 2.6, status="ok", verified=True)
TYPED = "archgen study edge256.yaml -m small --estimate"


@pytest.mark.parametrize(
    ("shown", "command", "said"),
    [
        (GUESSED, TYPED, f"{TYPED} --best 5"),
        (GUESSED, f"{TYPED} --best 2", ""),
        ([RAN, SLOW], "archgen study x.yaml", "archgen compare out:edge64 out:edge256"),
        ([RAN], "archgen study edge256.yaml -m small",
         "archgen compile edge256.yaml -m small --report"),
        ([RAN], "archgen study edge256.yaml -m small --role x=state", ""),
        ([RAN], "", ""),
    ],
)  # fmt: skip
def test_the_next_command_asks_about_what_the_answer_names(
    shown: list[Outcome], command: str, said: str
) -> None:
    """It is whole: what no row tells of a program stands in no command."""
    about = StudyMetadata(command=command, files={"edge256": "edge256.yaml"})
    study = Study(tuple(shown), tuple(machine(size) for size in GUESSES), about)
    found = list(next_command(study.frame, study, Path("out")))
    assert found == ([f"Next: {said}"] if said else [])


@pytest.mark.parametrize("whole", [[RAN], []])
def test_without_estimates_nothing_changes(whole: list[Outcome]) -> None:
    frame = studied(*whole).frame
    assert comparable(frame) is frame and simulated(frame) is frame
    assert not any(map(run_figures, records(frame)))


def test_a_refusal_stays_one() -> None:
    """A machine that was among the best by its estimate, and cannot hold the network."""
    refused = outcome(256, 1.0, status="does_not_fit", estimated_ms=1.0, reason="too small")
    row: Row = {k: v for k, v in refused.row.items() if not k.startswith(("lat", "thr", "tops"))}
    study = studied(Outcome("256", "", row), *GUESSED[:2])
    found = records(comparable(study.frame))[0]
    assert found["status"] == "does_not_fit" and run_figures(found) is None
    assert found["latency_ms"] != found["latency_ms"]
    assert study.best()["arch"].tolist() == ["edge128"]
    nothing = study.filter("arch=edge1")
    assert nothing.best().empty and nothing.pareto().empty, "and no KeyError"


def test_choosing_goes_by_estimates_and_shows_what_there_is() -> None:
    best = MIXED.best(n=2)
    assert best["arch"].tolist() == ["edge256", "edge128"]
    assert best["latency_ms"].tolist() == [2.5, 2.0]
    assert len(MIXED.pareto()) == 3, "by their estimates: nobody is beaten in both"
    assert MIXED.pivot("local.size", "model").to_numpy().ravel().tolist() == [4.0, 2.0, 1.0]
    assert MIXED.best("energy_mj")["arch"].tolist() == ["edge256"], "what runs alone know"
    assert "Fastest is edge128: 2 ms as estimated" in repr(studied(*GUESSED[:2]))


@pytest.mark.usefixtures("own_cache")
def test_estimates_by_a_call(tmp_path: Path) -> None:
    """The same frame as of a study; the best is run, plots are drawn where there is a folder."""
    network = small_model(tmp_path / "small.onnx")
    machines = [of_size(f"s{size}") for size in GUESSES]
    out = tmp_path / "out"
    found = archgen.estimate(machines, network, best=1, tools=BY_SIZE, effort=0, verify=False,
                             out=out)  # fmt: skip
    assert isinstance(found, archgen.Study)
    assert found.frame["status"].tolist() == ["ok", ESTIMATED, ESTIMATED]
    assert (out / "pareto_area.png").exists()
    assert (
        archgen.open_study(out).frame["latency_ms"].tolist() == found.frame["latency_ms"].tolist()
    )


NETWORK = "squeezenet:image=32"
OPTIONS = StudyOptions(effort=0, verify=False)


def test_estimates_are_marked_in_frame_table_and_folder(tmp_path: Path) -> None:
    words = ["study", "soma-edge", "mcu-npu", "-m", NETWORK, "--estimate", "-j", "1"]
    done = invoke(*words, "-o", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "2 of 2 points are ESTIMATED layer by layer" in done.output
    assert "verified" not in done.output and "matrix use" not in done.output
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    known = {"latency", "throughput", "area", "pareto_area", "pareto_energy"}
    assert drawn == known, "none of what only runs know"
    assert "ESTIMATED layer by layer" in (tmp_path / "report.html").read_text()
    frame = open_study(tmp_path).frame
    assert list(frame["status"]) == [ESTIMATED] * 2
    energies = [name for name in frame if name.startswith("energy_") and name != "energy_link_mj"]
    assert frame[["latency_ms", "average_w", "tops_per_w", *energies]].notna().all(axis=None)
    assert frame["verified"].isna().all()


@pytest.mark.usefixtures("own_cache")
def test_the_best_is_run_and_takes_the_place_of_its_estimate(tmp_path: Path) -> None:
    design = designed(["mcu-npu", "soma-edge"], [NETWORK], None, None, OPTIONS)
    seen: list[str] = []
    running = Running(out=tmp_path, plots=False)
    study = run_estimated(design, running, lambda outcome, *_: seen.append(outcome.status), best=1)
    rows = {row["arch"]: row for row in (outcome.row for outcome in study.outcomes)}
    assert rows["mcu-npu"]["status"] == ESTIMATED
    assert rows["soma-edge"]["status"] == "ok"  # 16 GB/s beside 0.5
    assert seen == [ESTIMATED, ESTIMATED, "ok"]
    assert list(open_study(tmp_path).frame["status"]) == ["ok", ESTIMATED]
    assert len([*tmp_path.glob("runs/*.layers.parquet")]) == 1, "an estimate has no layers"
    again = run_estimated(design, running, best=1)
    assert again.reused == 2


SWEEP = ("s64", "s128", "s256", "s512")


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_as_many_as_asked_for_are_run_also_by_borrowed_schedules(
    tmp_path: Path, count: int
) -> None:
    """Four machines of one estimate: the first are run, and s128 takes the program of s64."""
    network = small_model(tmp_path / "small.onnx")
    design = designed([of_size(name) for name in SWEEP], [network], None, None, OPTIONS)
    out = tmp_path / "out"
    frame = run_estimated(design, Running(out=out, plots=False), best=count, tools=BY_TABLE).frame
    run = min(count, 4)
    assert list(frame["status"]) == ["ok"] * run + [ESTIMATED] * (4 - run)
    assert list(frame["arch"]) == list(SWEEP)
    assert list(frame["schedule_from"].dropna()) == ["s64"] * (run > 1)
    expected = frame["latency_ms"].where(frame["status"] == ESTIMATED, frame["estimated_ms"])
    assert expected.nunique() == 1
    assert_frame_equal(open_study(out).frame, frame)


def test_what_cannot_run_is_refused_without_a_schedule() -> None:
    options = StudyOptions(effort=0, host=False)
    design = designed(["nvdla-2048"], ["vit_tiny:image=32,layers=1"], None, None, options)
    (outcome,) = run_estimated(design).outcomes
    assert outcome.status == "unsupported"


@pytest.mark.usefixtures("own_cache")
def test_after_the_fastest_what_is_run_lies_along_the_front(tmp_path: Path) -> None:
    """Near-ties of the fastest are not run: twice the bandwidth alone makes a of_size quicker."""
    sweep = {"memories.dram.bandwidth": ["4 GB/s", "8 GB/s", "16 GB/s"], "cores": [1, 2, 4]}
    study = {
        "archs": [{"extends": "soma-edge", "sweep": sweep, "name": "{bandwidth}-{cores}"}],
        "models": [NETWORK], "compiler": {"effort": 0}, "verify": False,
    }  # fmt: skip
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    words = ["study", str(path), "--estimate", "--best", "3", "-j", "1", "-o", str(tmp_path / "o")]
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    said = "3 of 9 points were run: the fastest, 2 along the estimated front of latency and area"
    assert said in done.output
    frame = open_study(tmp_path / "o").frame
    run = frame[frame["status"] == "ok"].set_index("chosen_as")
    assert sorted(run.index) == ["fastest", "front", "front"]
    assert run.loc["fastest", "estimated_ms"] == run["estimated_ms"].min()
    assert run["arch.memories.dram.bandwidth"].nunique() == 3
    assert set(run.loc["front", "arch.cores"]) == {1}
    assert said in re.sub(r"\s+", " ", (tmp_path / "o" / "report.html").read_text())

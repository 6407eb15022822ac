"""Estimates beside runs: compared like with like, and marked in figures, report and words."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_only import small_model
from lending_tools import BY_SIZE
from lending_tools import machine as of_size

import archgen
from archgen.cli.summary import next_command
from archgen.outcomes.answer import answer
from archgen.outcomes.bottleneck import verdict
from archgen.outcomes.estimated import ESTIMATED, like_with_like, run_of, runs
from archgen.outcomes.frame import records
from archgen.outcomes.points import Outcome, Row, StudyMetadata
from archgen.outcomes.rows import merit_row
from archgen.studies.results import Study
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
    rows = records(like_with_like(MIXED.frame))
    assert [row["latency_ms"] for row in rows] == [1.0, 4.0, 2.0]
    assert [row["throughput_ips"] for row in rows] == [1000.0, 250.0, 500.0]
    assert [row["throughput_per_mm2"] for row in rows] == [250.0, 250.0, 250.0]
    assert [row["latency_area"] for row in rows] == [4.0, 4.0, 4.0]
    assert "energy_mj" not in rows[0], "none of these estimates knows it"
    assert rows[0]["status"] == "ok" and rows[0]["verified"]


def test_what_a_run_gave_stands_beside_its_estimate() -> None:
    run, *rest = map(run_of, records(like_with_like(MIXED.frame)))
    assert rest == [None, None]
    assert run is not None
    assert (run["latency_ms"], run["throughput_ips"], run["area_mm2"]) == (2.5, 400.0, 4.0)


def test_energies_and_powers_are_compared_as_estimated_by_hand() -> None:
    """The run took 2.5 times the estimated time and 1.75 times the energy; prices are of runs."""
    row = RAN.row | {"usd_per_million": 3.0, "estimated_mj": 4.0, "energy_dram_mj": 3.5,
                     "average_w": 2.8, "tops_per_w": 4.0}  # fmt: skip
    known: Row = {"energy_mj": 8.0, "energy_dram_mj": 1.0, "average_w": 2.0, "tops_per_w": 1.0}
    study = studied(Outcome("256", "", row), outcome(128, 2.0, usd_per_million=1.0, **known))
    first, other = records(like_with_like(study.frame))
    assert study.best("usd_per_million")["arch"].tolist() == ["edge256"]
    found = [first[name] for name in known]
    assert found == pytest.approx([4.0, 2.0, 2.8 * 2.5 / 1.75, 7.0])
    assert [other[name] for name in known] == [*known.values()]
    run = run_of(first)
    assert run is not None and [run[name] for name in known] == [7.0, 3.5, 2.8, 4.0]


def test_beside_estimates_a_run_says_what_holds_it_up() -> None:
    row = {"held_by": "stall_fill", "stall_fill": 0.7, "bound_by": "matrix", "of_bound": 0.04}
    study = studied(Outcome("256", "", RAN.row | row), outcome(128, 2.0, of_bound=0.5))
    said = "waiting for the first operands takes 70 % of the matrix engines' time"
    assert f"What holds edge256 up: {said}." in answer(study.frame, study.by_name)
    # Compared with estimates it has the bound, as they know no waits.
    held = verdict(records(like_with_like(study.frame))[0])
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
    assert like_with_like(frame) is frame and runs(frame) is frame
    assert not any(map(run_of, records(frame)))


def test_a_refusal_stays_one() -> None:
    """A machine that was among the best by its estimate, and cannot hold the network."""
    refused = outcome(256, 1.0, status="does_not_fit", estimated_ms=1.0, reason="too small")
    row: Row = {k: v for k, v in refused.row.items() if not k.startswith(("lat", "thr", "tops"))}
    study = studied(Outcome("256", "", row), *GUESSED[:2])
    found = records(like_with_like(study.frame))[0]
    assert found["status"] == "does_not_fit" and run_of(found) is None
    assert found["latency_ms"] != found["latency_ms"]
    assert study.best()["arch"].tolist() == ["edge128"]


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

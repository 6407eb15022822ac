"""Swept fields that change nothing: which, where, and what binds instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from host_only import invoke

from archgen.outcomes.bottleneck import bottleneck_row, flat_notes, verdict
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.frame import results_frame
from archgen.outcomes.points import Outcome, Row

CORES, BANKS, DRAM = "arch.cores", "arch.memories.local.banks", "arch.memories.dram.bandwidth"
GB = 1e9
LEAST = 0.1
"""ms of DRAM traffic at 16 GB/s."""


def outcome(cores: int, banks: int, bandwidth: float, latency: float, **more: object) -> Outcome:
    row: Row = {
        "arch": f"{cores}-{banks}-{bandwidth:g}", "family": "edge", "model": "small", "batch": 1,
        "dtype": "int8", "fusion": "optimal", "halo": "auto", "objective": "latency", "effort": 1,
        CORES: cores, BANKS: banks, DRAM: bandwidth * GB, "status": ESTIMATED,
        "latency_ms": latency, "bound_by": "bandwidth",
        "of_bound": LEAST * 16 / bandwidth / latency,
    } | more  # type: ignore[assignment]  # fmt: skip
    return Outcome(str(row["arch"]), "", row)


def notes(outcomes: Iterable[Outcome]) -> list[str]:
    return flat_notes(results_frame(list(outcomes)), {})


@pytest.mark.parametrize("last, flat", [(0.1009, True), (0.102, False)])
def test_flat_is_within_a_hundredth(last: float, flat: bool) -> None:
    times = zip((1, 2, 4), (0.1, 0.1, last), strict=True)
    assert bool(notes(outcome(cores, 4, 16, latency) for cores, latency in times)) == flat


def test_what_held_runs_up_is_named_with_what_would_help() -> None:
    ran = {"status": "ok", "held_by": "stall_front_end", "stall_front_end": 0.6}
    found = [outcome(cores, 4, 16, 0.3, **ran) for cores in (1, 2, 4)]
    (note,) = notes(found)
    assert note.startswith(
        "cores 1 to 4 changes nothing (latency within 1 %): waiting for instructions to be issued "
        "takes 60 % of it; coarser instructions (matrix.granularity)"
    )
    padded = [outcome(c, 4, 16, 0.3, **ran | {"held_by": "work_padding", "work_padding": 0.5})
              for c in (1, 2)]  # fmt: skip
    assert notes(padded)[0].endswith(
        "array padding takes 50 % of it; sweep matrix.rows or matrix.cols"
    )
    # Calls of a host that is quick enough cost their latency.
    called = [outcome(c, 4, 16, 0.3, bound_by="host", of_bound=0.9) for c in (1, 2)]
    assert "sweep host.latency, " in notes(called)[0]


def test_what_failed_or_is_unknown_says_nothing() -> None:
    failed = [outcome(c, 4, 16, 0.1, status="failed") for c in (1, 2)]
    unknown = [outcome(c, 4, 16, 0.1, bound_by=None, status="ok") for c in (1, 2)]
    assert notes(failed) == notes(unknown) == []


def test_a_study_of_estimates_says_it_and_so_do_its_results_and_report(tmp_path: Path) -> None:
    machines = {
        "extends": "soma-edge", "set": {"memories.dram.bandwidth": "1 GB/s"},
        "sweep": {"cores": [1, 2, 4]},
    }  # fmt: skip
    path, out = tmp_path / "flat.yaml", tmp_path / "out"
    path.write_text(json.dumps({"archs": [machines], "models": ["squeezenet:image=32"]}))
    said = re.compile(
        r"note: cores 1 to 4 changes nothing \(latency within 1 %\): DRAM traffic takes "
        r"9\d(?: to 9\d)? % of it; sweep memories.dram.bandwidth"
    )
    for words in (["study", str(path), "--estimate", "-j", "1", "-o", str(out)],
                  ["results", str(out)]):  # fmt: skip
        done = invoke(*words)
        assert done.exit_code == 0, done.output
        assert said.search(done.output), done.output
        assert "of bound" in done.output
    assert "cores 1 to 4 changes nothing" in (out / "report.html").read_text()


# What held a run up: the roof, or what took longer than the roof explains.

NEAR: Row = {
    "bound_by": "bandwidth", "of_bound": 0.6, "work_products": 0.35, "work_padding": 0.1,
    "stall_data": 0.5, "stall_conflict": 0.05, "latency_ms": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "held", "words"),
    [
        ({}, "bandwidth", "DRAM bandwidth"),
        ({"of_bound": 0.5}, "bandwidth", "DRAM bandwidth"),  # it explains as much as the waits
        ({"bound_by": "matrix", "of_bound": 0.19}, "stall_data", "waits for data"),
        ({"bound_by": "matrix", "of_bound": 0.4, "stall_data": 0.1, "stall_conflict": 0.42},
         "stall_conflict", "bank conflicts"),
        ({"of_bound": 0.2, "stall_data": 0.1, "work_products_again": 0.3},
         "work_products_again", "repeated products"),
        ({"of_bound": 0.3, "stall_data": 0.2, "work_products": 0.7}, "bandwidth", "DRAM bandwidth"),
        # That is why they wait.
        ({"of_bound": 0.92, "stall_data": 0.95}, "bandwidth", "DRAM bandwidth"),
        ({"of_bound": 0.3, "stall_data": 0.95}, "stall_data", "waits for data"),
        # What was waited for worked as long.
        ({"of_bound": 0.1, "stall_data": 0.1, "stall_front_end": 0.5, "vector_busy": 0.8},
         "vector_busy", "vector engines"),
        ({"of_bound": 0.4, "moved_again": 0.5, "moved_compulsory": 0.4}, "moved_again",
         "repeated loads"),
        ({"of_bound": 0.4, "stall_data": 0.6, "moved_again": 0.1, "moved_compulsory": 0.4},
         "stall_data", "waits for data"),
        ({"bound_by": None, "of_bound": None}, "stall_data", "waits for data"),  # no bound is known
    ],
)  # fmt: skip
def test_the_longest_share_of_the_time_holds_a_run(more: Row, held: str, words: str) -> None:
    row = NEAR | more
    assert bottleneck_row(row) == {"held_by": held}
    found = verdict(row | {"held_by": held})
    assert found.words == words
    assert found.share == row["of_bound" if held == "bandwidth" else held]


def test_a_resource_has_its_own_share_of_the_bound() -> None:
    # The host prepares for half of the time, then arrays take a fifth at least.
    row = NEAR | {"bound_by": "host", "held_by": "host", "of_bound": 0.7, "bound_share": 0.5}
    assert "takes 50 % of the time" in verdict(row).sentence


def test_a_program_without_instructions_is_held_by_nothing() -> None:
    assert bottleneck_row({"bound_by": "matrix", "of_bound": 0.0, "stall_data": 0.0}) == {}
    assert bottleneck_row({"latency_ms": 0.0}) == {}

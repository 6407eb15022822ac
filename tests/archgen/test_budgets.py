"""Budgets of figures: files in words, what they say of points, JUnit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from host_only import HOST_ONLY, invoke, small_model
from junitparser import JUnitXml

from archgen.cli.terminal import ExitCode
from archgen.comparison.budgets import Check, check_budgets, read_budgets
from archgen.outcomes.points import Outcome
from archgen.studies.sweep import study

SHIPPED = Path(__file__).parents[2] / "studies" / "ci" / "budgets.yaml"


def point(arch: str = "edge-a", model: str = "net", **more: Any) -> Outcome:
    row = {"arch": arch, "model": model, "batch": 1, "dtype": "int8", "status": "ok"}
    row |= {"latency_ms": 6.2, "energy_mj": 2.0, "peak_local_bytes": 1024, "verified": True}
    return Outcome(f"{arch} {model}", f"{arch} {model} b1 int8", row | more)


def checks(path: Path, text: str, *outcomes: Outcome) -> Sequence[Check]:
    path.write_text(text)
    return check_budgets(read_budgets([path]), outcomes)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("budgets.yaml")


def test_what_is_broken_says_where_by_how_much(path: Path) -> None:
    text = """budgets:
  - latency_ms <= 5 on net
  - latency <= 0.0062 s on other, n* for edge-*
  - {limit: peak_local_bytes <= 0.5 KiB, on: {batch: [1, 2]}}
  - energy >= 2.5 mJ
  - tops_per_mm2 >= 900 GOPS/mm2
"""
    assert list(map(str, checks(path, text, point(tops_per_mm2=0.6)))) == [
        "budgets.yaml:2: edge-a net b1 int8: latency_ms 6.2 ms, limit 5 ms: 24 % over",
        "budgets.yaml:3: edge-a net b1 int8: latency_ms 6.2 ms, limit 6.2 ms",
        "budgets.yaml:4: edge-a net b1 int8: peak_local_bytes 1,024 bytes, limit 512 bytes: "
        "100 % over",
        "budgets.yaml:5: edge-a net b1 int8: energy_mj 2 mJ, limit 2.5 mJ: 20 % under",
        "budgets.yaml:6: edge-a net b1 int8: tops_per_mm2 0.6 TOPS/mm2, limit 0.9 TOPS/mm2: "
        "33.3 % under",
    ]


@pytest.mark.parametrize(
    ("more", "verdict", "said"),
    [
        ({"latency_ms": 4.0}, "kept", "latency_ms 4 ms, limit 5 ms"),
        ({"latency_ms": 4.0, "verified": None}, "unverified", "its outputs were not checked"),
        ({"latency_ms": 4.0, "verified": False}, "broken", "its outputs are wrong"),
        ({"latency_ms": None}, "broken", "it has no latency_ms"),
        ({"status": "does_not_fit", "reason": "needs 2\nx"}, "broken", "does_not_fit: needs 2"),
    ],
)
def test_a_figure_counts_where_its_outputs_are_right(
    path: Path, more: dict[str, Any], verdict: str, said: str
) -> None:
    [check] = checks(path, "budgets: [latency_ms <= 5]", point(**more))
    assert (check.verdict, said in check.said) == (verdict, True)
    [lax] = checks(path, "verified: false\nbudgets: [latency_ms <= 5]", point(**more))
    assert lax.verdict == ("kept" if verdict == "unverified" else verdict)


def test_the_shipped_example_reads() -> None:
    assert [budget.optional for budget in read_budgets([SHIPPED])] == [False, False, False, True]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("budgets: [latency <= 1 s]", 0, "1 of 1 checks of budgets are kept"),
        ("budgets: [latency <= 1 ns]", 4, "budget broken: budgets.yaml:1: soma-edge"),
        ("budgets: [latency <= 1 s on x]", 5, "budget about nothing: budgets.yaml:1"),
        ("budgets: [latency <= 1 s on x, latency <= 1 ns]", 4, "about nothing"),
        ("budgets: [latency <= 1]\n", 0, "kept"),
    ],
)
def test_budgets_end_with_codes_of_their_own(
    path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int, said: str
) -> None:
    monkeypatch.setenv("ARCHGEN_CACHE", "cache")
    study("soma-edge", str(small_model(Path("s.onnx"))), out="out", plots=False, tools=HOST_ONLY)
    path.write_text(text)
    given = ["results", "out", "--budget", "budgets.yaml", "--junit", "junit.xml"]
    result = invoke(*given)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert JUnitXml.fromfile("junit.xml").tests == 1 + text.count("<=")


# The script of studies/ci, with an archgen that ends as it is told to.

SCRIPT = Path(__file__).parents[2] / "studies" / "ci" / "gate.sh"
ARCHGEN = """#!/bin/sh
echo "$1" >> verbs
case $1 in check) exit $CHECK ;; study) exit $STUDY ;; compare) exit $COMPARE ;; esac
"""


def ends(
    folder: Path, study: int, compare: int, *baseline: str, check: int = 0
) -> tuple[int, list[str]]:
    """The exit code of the script, and the verbs that it ran."""
    fake = folder / "bin" / "archgen"
    fake.parent.mkdir()
    fake.write_text(ARCHGEN)
    fake.chmod(0o755)
    codes = {"CHECK": check, "STUDY": study, "COMPARE": compare}
    environment = {name: str(int(code)) for name, code in codes.items()}
    environment["PATH"] = f"{fake.parent}:{os.environ['PATH']}"
    done = subprocess.run(["sh", SCRIPT, *baseline], cwd=folder, env=environment, check=False)
    return done.returncode, (folder / "verbs").read_text().split()


@pytest.mark.parametrize(
    ("study", "compare", "code"),
    [
        (ExitCode.GOOD, ExitCode.GOOD, ExitCode.GOOD),
        (ExitCode.GOOD, ExitCode.WORSE, ExitCode.WORSE),
        (ExitCode.BROKEN_BUDGET, ExitCode.GOOD, ExitCode.BROKEN_BUDGET),
        (ExitCode.BROKEN_BUDGET, ExitCode.WORSE, ExitCode.WORSE),
        (ExitCode.BAD, ExitCode.WORSE, ExitCode.BAD),
        (ExitCode.BROKEN_BUDGET, ExitCode.NOTHING_JUDGED, ExitCode.BROKEN_BUDGET),
    ],
)
def test_both_gates_are_asked_and_the_first_code_of_the_list_is_given(
    tmp_path: Path, study: ExitCode, compare: ExitCode, code: ExitCode
) -> None:
    assert ends(tmp_path, study, compare, "accepted") == (code, ["check", "study", "compare"])


@pytest.mark.parametrize("study", [ExitCode.WRONG_INPUT, ExitCode.INTERRUPTED])
def test_what_did_not_run_is_not_compared(tmp_path: Path, study: ExitCode) -> None:
    assert ends(tmp_path, study, ExitCode.GOOD, "accepted") == (study, ["check", "study"])


@pytest.mark.parametrize("baseline", [(), ("",)])
def test_without_a_baseline_budgets_alone_are_checked(
    tmp_path: Path, baseline: tuple[str, ...]
) -> None:
    assert ends(tmp_path, ExitCode.UNVERIFIED, ExitCode.WORSE, *baseline) == (
        ExitCode.UNVERIFIED, ["check", "study"]
    )  # fmt: skip


@pytest.mark.parametrize("check", [ExitCode.BAD, ExitCode.WRONG_INPUT])
def test_a_machine_that_nobody_builds_is_not_run(tmp_path: Path, check: ExitCode) -> None:
    assert ends(tmp_path, ExitCode.GOOD, ExitCode.GOOD, "accepted", check=check) == (
        check,
        ["check"],
    )

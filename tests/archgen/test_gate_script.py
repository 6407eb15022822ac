"""The script of studies/ci, with an archgen that ends as it is told to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from archgen.cli.terminal import ExitCode

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

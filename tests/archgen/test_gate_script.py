"""The script of studies/ci, with an archgen that ends as it is told to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from archgen.cli.codes import Code

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
        (Code.GOOD, Code.GOOD, Code.GOOD),
        (Code.GOOD, Code.WORSE, Code.WORSE),
        (Code.BROKEN_BUDGET, Code.GOOD, Code.BROKEN_BUDGET),
        (Code.BROKEN_BUDGET, Code.WORSE, Code.WORSE),
        (Code.BAD, Code.WORSE, Code.BAD),
        (Code.BROKEN_BUDGET, Code.NOTHING_JUDGED, Code.BROKEN_BUDGET),
    ],
)
def test_both_gates_are_asked_and_the_first_code_of_the_list_is_given(
    tmp_path: Path, study: Code, compare: Code, code: Code
) -> None:
    assert ends(tmp_path, study, compare, "accepted") == (code, ["check", "study", "compare"])


@pytest.mark.parametrize("study", [Code.WRONG_INPUT, Code.INTERRUPTED])
def test_what_did_not_run_is_not_compared(tmp_path: Path, study: Code) -> None:
    assert ends(tmp_path, study, Code.GOOD, "accepted") == (study, ["check", "study"])


@pytest.mark.parametrize("baseline", [(), ("",)])
def test_without_a_baseline_budgets_alone_are_checked(
    tmp_path: Path, baseline: tuple[str, ...]
) -> None:
    assert ends(tmp_path, Code.UNVERIFIED, Code.WORSE, *baseline) == (
        Code.UNVERIFIED, ["check", "study"]
    )  # fmt: skip


@pytest.mark.parametrize("check", [Code.BAD, Code.WRONG_INPUT])
def test_a_machine_that_nobody_builds_is_not_run(tmp_path: Path, check: Code) -> None:
    assert ends(tmp_path, Code.GOOD, Code.GOOD, "accepted", check=check) == (check, ["check"])

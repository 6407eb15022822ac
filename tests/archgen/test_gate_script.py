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
if [ "$1" = study ]; then exit $STUDY; fi
exit $COMPARE
"""


def ends(folder: Path, study: int, compare: int, *baseline: str) -> tuple[int, list[str]]:
    """The exit code of the script, and the verbs that it ran."""
    fake = folder / "bin" / "archgen"
    fake.parent.mkdir()
    fake.write_text(ARCHGEN)
    fake.chmod(0o755)
    told = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "STUDY": study, "COMPARE": compare}
    environment = {name: str(value) for name, value in told.items()}
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
    assert ends(tmp_path, study, compare, "accepted") == (code, ["study", "compare"])


@pytest.mark.parametrize("study", [Code.WRONG_INPUT, Code.INTERRUPTED])
def test_what_did_not_run_is_not_compared(tmp_path: Path, study: Code) -> None:
    assert ends(tmp_path, study, Code.GOOD, "accepted") == (study, ["study"])


@pytest.mark.parametrize("baseline", [(), ("",)])
def test_without_a_baseline_budgets_alone_are_checked(
    tmp_path: Path, baseline: tuple[str, ...]
) -> None:
    assert ends(tmp_path, Code.UNVERIFIED, Code.WORSE, *baseline) == (Code.UNVERIFIED, ["study"])

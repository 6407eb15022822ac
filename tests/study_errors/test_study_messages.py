"""Golden error messages: what a user reads when a study file is wrong.

Each `NAME.yaml` has its printed text in `NAME.expect`, with the folder of the tests left out.
ARCHGEN_UPDATE=1 rewrites them.
"""

import os
import re
from pathlib import Path

import pytest

from archgen.studies.design import StudyError, points
from archgen.studies.plan import load_study

HERE = Path(__file__).parent
CASES = {path.stem: path for path in HERE.glob("*.yaml")}
UPDATE = os.environ.get("ARCHGEN_UPDATE") == "1"


def printed(path: Path) -> str:
    with pytest.raises(StudyError) as caught:
        points(load_study(path))
    return str(caught.value).replace(f"{HERE}{os.sep}", "") + "\n"


@pytest.mark.parametrize("name", sorted(CASES))
def test_message(name: str) -> None:
    golden = HERE / f"{name}.expect"
    text = printed(CASES[name])
    if UPDATE:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_expectation_has_its_file() -> None:
    assert {path.stem for path in HERE.glob("*.expect")} == set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_lines_point_into_the_file(name: str) -> None:
    lines = CASES[name].read_text(encoding="utf-8").splitlines()
    for line, column in re.findall(rf"^{name}\.yaml:(\d+):(\d+):", printed(CASES[name]), re.M):
        assert int(column) <= len(lines[int(line) - 1]) + 1

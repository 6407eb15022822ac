"""Golden error messages: what a user reads when an architecture, a study or budgets are wrong.

Each `NAME.yaml` (or folder with a `main.yaml`), here, in `study_errors` and in `budget_errors`, has
its printed text in `NAME.expect`, with the folder of the tests left out. ARCHGEN_UPDATE=1 rewrites
them.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from archgen.comparison.budgets import read_budgets
from archgen.schema import ArchError, load_arch
from archgen.studies.design import StudyError, points
from archgen.studies.plan import load_study

HERE = Path(__file__).parent
READERS: dict[Path, Callable[[Path], object]] = {
    HERE: load_arch,
    HERE.with_name("study_errors"): lambda path: points(load_study(path)),
    HERE.with_name("budget_errors"): lambda path: read_budgets([path, Path("missing.yaml")]),
}
CASES = sorted([*HERE.glob("*/main.yaml"), *(p for each in READERS for p in each.glob("*.yaml"))])
UPDATE = os.environ.get("ARCHGEN_UPDATE") == "1"
MANY = 5


def golden(path: Path) -> Path:
    whole = path.parent if path.name == "main.yaml" else path
    return whole.with_suffix(".expect")


def printed(path: Path) -> str:
    with pytest.raises((ArchError, StudyError)) as caught:
        READERS[golden(path).parent](path)
    return str(caught.value).replace(f"{golden(path).parent}{os.sep}", "") + "\n"


@pytest.mark.parametrize("path", CASES, ids=lambda path: golden(path).stem)
def test_message(path: Path) -> None:
    text = printed(path)
    if UPDATE:
        golden(path).write_text(text, encoding="utf-8")
    assert text == golden(path).read_text(encoding="utf-8")
    for name, line, column in re.findall(r"^([^\s:]+):(\d+):(\d+): ", text, re.MULTILINE):
        lines = (golden(path).parent / name).read_bytes().split(b"\n")
        assert int(column) <= len(lines[int(line) - 1]) + 1, "it points into the file"


def test_every_expectation_has_its_file() -> None:
    assert {p for each in READERS for p in each.glob("*.expect")} == set(map(golden, CASES))


def test_all_mistakes_come_at_once_and_in_order() -> None:
    with pytest.raises(ArchError) as caught:
        load_arch(HERE / "everything_at_once.yaml")
    mistakes = caught.value.mistakes
    assert len(mistakes) > MANY
    assert mistakes == sorted(mistakes)


def test_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text("name: edge\n")
    with pytest.raises(ArchError, match=r"no such file; did you mean '.*edge\.yaml'\?"):
        load_arch(tmp_path / "egde.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    with pytest.raises(ArchError, match=r"loop\.yaml: is a link that leads nowhere"):
        load_arch(tmp_path / "loop.yaml")

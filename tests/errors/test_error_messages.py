"""Golden error messages: what a user reads when an architecture file is wrong.

Each `NAME.yaml` (or folder with a `main.yaml`) has its printed text in `NAME.expect`, with the
folder of the tests left out. ARCHGEN_UPDATE=1 rewrites them.
"""

import os
from pathlib import Path

import pytest

from archgen.schema import ArchError, Mistake, load_arch

HERE = Path(__file__).parent
FOLDERS = [path for path in HERE.iterdir() if (path / "main.yaml").is_file()]
CASES = {path.stem: path for path in HERE.glob("*.yaml")} | {
    path.name: path / "main.yaml" for path in FOLDERS
}
UPDATE = os.environ.get("ARCHGEN_UPDATE") == "1"
MANY = 5


def printed(path: Path) -> str:
    with pytest.raises(ArchError) as caught:
        load_arch(path)
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


def test_lines_point_into_the_file() -> None:
    for name, path in CASES.items():
        for mistake in _mistakes(path):
            file = Path(mistake.at.file)
            if not mistake.at.line or not file.is_file():
                continue
            lines = file.read_bytes().split(b"\n")
            assert mistake.at.line <= len(lines), name
            assert mistake.at.column <= len(lines[mistake.at.line - 1]) + 1, name


def _mistakes(path: Path) -> list[Mistake]:
    with pytest.raises(ArchError) as caught:
        load_arch(path)
    return caught.value.mistakes


def test_all_mistakes_come_at_once_and_in_order() -> None:
    mistakes = _mistakes(CASES["everything_at_once"])
    assert len(mistakes) > MANY
    assert mistakes == sorted(mistakes)


def test_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "edge.yaml").write_text("name: edge\n")
    with pytest.raises(ArchError, match=r"no such file; did you mean '.*edge\.yaml'\?"):
        load_arch(tmp_path / "egde.yaml")

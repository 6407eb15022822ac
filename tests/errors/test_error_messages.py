"""Golden error messages: what a user reads when an architecture file is wrong.

Each `NAME.yaml` (or folder with a `main.yaml`) has its printed text in `NAME.expect`, with the
folder of the tests left out. ARCHGEN_UPDATE=1 rewrites them.
"""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from archgen.cli.check import check
from archgen.schema import ArchError, Mistake, load_arch, shipped_names

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


def test_unreadable_names_are_guessed() -> None:
    with pytest.raises(ArchError, match="no shipped architecture; did you mean 'gemmini-16'"):
        load_arch("gemini-16")


def test_check_prints_good_files_and_all_bad_ones() -> None:
    bad = [str(CASES["unknown_key"]), str(CASES["zero_cores"])]
    result = CliRunner().invoke(check, [bad[0], "tpu-v1", bad[1]])
    assert result.exit_code == 2
    assert "tpu-v1" in result.stdout
    assert all(path in result.stderr for path in bad)


def test_check_is_content_with_shipped_files() -> None:
    result = CliRunner().invoke(check, shipped_names())
    assert result.exit_code == 0
    assert all(name in result.stdout for name in shipped_names())
    assert "…" not in result.stdout, "nothing is cut off"

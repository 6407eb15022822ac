"""Architecture files as they were at a revision of git, with what they extend."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from archgen.cli import compare_sides
from archgen.cli.history import Since
from archgen.cli.main import cli
from archgen.process.git import revision
from archgen.schema import load_arch
from archgen.studies.design import Design, StudyError
from archgen.studies.options import Running
from archgen.studies.results import Study
from archgen.studies.revisions import arch_file, laid_out

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose base has 1 MiB at first, then 2 MiB; before that there was none."""
    root = tmp_path / "repository"
    (root / "archs").mkdir(parents=True)
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(root)
    git("init", "-q", "-b", "main")
    (root / "readme").write_text("nothing yet")
    commit("empty")
    (root / "archs/edge.yaml").write_text("extends: base.yaml\nname: edge\n")
    for size in ("1 MiB", "2 MiB"):
        text = f"extends: soma-edge\nname: base\nmemories: {{local: {{size: {size}}}}}\n"
        (root / "archs/base.yaml").write_text(text)
        commit(size)
    return root


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def commit(message: str) -> None:
    git("add", "-A")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    git(*who, "commit", "-q", "-m", message)


def size_at(text: str, folder: Path) -> int:
    file = arch_file(text)
    assert file is not None
    arch = load_arch(laid_out(file, folder)[0])
    assert arch.memories.local is not None
    return arch.memories.local.size


def test_a_file_is_read_with_what_it_extends_as_of_then(repository: Path, tmp_path: Path) -> None:
    sizes = [size_at(f"archs/edge.yaml{at}", tmp_path) for at in ("@HEAD~1", "@main", "@HEAD", "")]
    assert sizes == [1 << 20, 2 << 20, 2 << 20, 2 << 20]
    (repository / "archs/base.yaml").write_text("extends: soma-edge\nname: base\n")
    assert size_at("archs/edge.yaml@HEAD", tmp_path) == 2 << 20
    assert size_at("archs/edge.yaml", tmp_path) == 8 << 20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("archs/edge.yaml@maim", "there is no revision 'maim'; did you mean 'main'?"),
        ("archs/edge.yaml@HEAD~2", "HEAD~2 has no file 'archs/edge.yaml'"),
        ("archs/edgy.yaml@HEAD", "has no file 'archs/edgy.yaml'; did you mean 'archs/edge.yaml'?"),
        ("../edge.yaml@HEAD", "is not in the repository"),
        ("archs/edge.yaml@--all", "there is no revision '--all'"),
        ("archs/none.yaml", "there is no such file"),
    ],
)
def test_what_is_not_there_is_refused_in_words(
    repository: Path, tmp_path: Path, text: str, said: str
) -> None:
    file = arch_file(text)
    assert file is not None
    with pytest.raises(StudyError) as told:
        laid_out(file, tmp_path)
    assert said in str(told.value)


def test_without_a_repository_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = arch_file("edge.yaml@HEAD")
    assert file is not None
    with pytest.raises(StudyError, match="not a git repository"):
        laid_out(file, tmp_path)
    assert arch_file("out:edge") is None


def test_history_goes_back_to_a_revision_and_explains_others(repository: Path) -> None:
    when = Since().convert("@main~1", None, None)
    assert when.tzinfo is not None and when <= Since().convert("@HEAD", None, None)
    (repository / "out").mkdir()
    asked = ["out@main~1", "archs/edge.yaml", "archs/edge.yaml@main~1"]
    told = str(CliRunner().invoke(cli, ["history", *asked]).exception).splitlines()
    assert told == [
        "out@main~1: results have dates, not revisions; since then: --since @main~1",
        "archs/edge.yaml: history is of results, in folders (--machine edge); machines as they "
        "were: archgen compare archs/edge.yaml@HEAD~1 archs/edge.yaml --model NAME",
        "archs/edge.yaml@main~1: history is of results, in folders (--machine edge; since then: "
        "--since @main~1); machines as they were: archgen compare archs/edge.yaml@main~1 "
        "archs/edge.yaml --model NAME",
    ]
    unknown = CliRunner().invoke(cli, ["history", "out", "--since", "@mian"])
    assert unknown.exit_code == 2
    assert "there is no revision 'mian'; did you mean 'main'?" in unknown.output


def test_a_revision_says_where_files_were_changed(repository: Path) -> None:
    clean = revision(repository)
    assert len(clean) == 12
    (repository / "readme").write_text("more")
    revision.cache_clear()
    assert revision(repository) == f"{clean}+"


def test_revisions_are_run_and_compared(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[int, str]] = []

    def run(design: Design, running: Running, seen: object) -> Study:
        [arch] = design.archs
        assert arch.memories.local is not None
        ran.append((arch.memories.local.size, Path(str(running.out)).name.split("@")[0]))
        return Study((), design.archs)

    monkeypatch.setattr(compare_sides, "run_study", run)
    given = ["archs/edge.yaml@HEAD~1", "archs/edge.yaml", "-m", "squeezenet:image=32"]
    result = CliRunner().invoke(cli, ["compare", *given, "--fail-if-worse"])
    assert ran == [(1 << 20, "edge"), (2 << 20, "edge")]
    assert result.exit_code == 5, result.output
    assert CliRunner().invoke(cli, ["compare", *given[:2]]).exit_code == 2
    wrong = CliRunner().invoke(cli, ["compare", "archs/edge.yaml@no", "nofolder", *given[2:]])
    assert isinstance(wrong.exception, StudyError)
    assert len(wrong.exception.mistakes) == 2

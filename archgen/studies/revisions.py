"""Architecture files as they were: `archs/edge.yaml@HEAD~3`.

The one idea: all YAML files of the revision are laid out in a folder, so that what the file extends
is of the same revision; shipped machines are those of this archgen.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from archgen.process.git import GitError, git
from archgen.schema.mistakes import guess
from archgen.studies.design import StudyError

_FORM = re.compile(r"(.+?\.ya?ml)(?:@(.+))?")
_YAML = ":(glob)**/*.y*ml"
_LETTERS = 12
"""Of a commit."""


@dataclass(frozen=True)
class ArchFile:
    """An architecture file, at a revision or as it lies there."""

    text: str
    """As it was given."""
    path: Path
    revision: str | None


def arch_file(text: str) -> ArchFile | None:
    """What `text` names, where it is the name of a YAML file."""
    form = _FORM.fullmatch(text)
    if form is None or Path(text).is_dir():
        return None
    if Path(text).exists():
        return ArchFile(text, Path(text), None)
    return ArchFile(text, Path(form[1]), form[2])


def laid_out(file: ArchFile, folder: Path) -> tuple[Path, str]:
    """Where the file lies, and a word that says which one it is; one of a revision is laid out in
    `folder`. Raises StudyError: there is no such file, repository or revision."""
    if file.revision is None:
        if not file.path.is_file():
            raise StudyError([f"{file.text}: there is no such file"])
        return file.path, file.path.stem
    try:
        return _laid_out(file, file.revision, folder)
    except GitError as mistake:
        raise StudyError([f"{file.text}: {mistake}"]) from None


def committed(revision: str) -> datetime:
    """When `revision` of the repository here was committed. Raises StudyError."""
    try:
        commit = _commit(Path.cwd(), revision)
        said = git(Path.cwd(), "show", "--no-patch", "--format=%cI", commit).decode()
    except GitError as mistake:
        raise StudyError([f"@{revision}: {mistake}"]) from None
    return datetime.fromisoformat(said.strip())


def _laid_out(file: ArchFile, revision: str, folder: Path) -> tuple[Path, str]:
    root = Path(git(Path.cwd(), "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    path = file.path.resolve()
    if not path.is_relative_to(root):
        raise GitError(f"{file.path} is not in the repository {root}")
    inside = path.relative_to(root).as_posix()
    commit = _commit(root, revision)
    listed = git(root, "ls-tree", "-r", "-z", "--name-only", commit).decode(errors="replace")
    known = [name for name in listed.split("\0") if name.endswith((".yaml", ".yml"))]
    if inside not in known:
        raise GitError(f"{revision} has no file {inside!r}{guess(inside, known)}")
    target = folder / commit
    if not target.is_dir():
        archive = git(root, "archive", "--format=tar", commit, "--", _YAML)
        _unpack(archive, target)
    return target / inside, f"{file.path.stem}@{commit[:_LETTERS]}"


def _unpack(archive: bytes, target: Path) -> None:
    """The files of `archive` as the folder `target`, which appears whole; another process may do
    the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent) as place:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(Path(place, "tree"), filter="data")
        with suppress(OSError):  # the other one was quicker
            os.replace(Path(place, "tree"), target)


def _commit(root: Path, revision: str) -> str:
    try:
        found = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options",
                    f"{revision}^{{commit}}")  # fmt: skip
    except GitError:
        names = git(root, "for-each-ref", "--format=%(refname:short)").decode().split()
        hint = guess(revision, ["HEAD", *names])
        raise GitError(f"there is no revision {revision!r}{hint}") from None
    return found.decode().strip()

"""What git knows of a folder: its revision, of a file when it was last changed, and files as they
were.

The one idea: git is asked as a program, and a folder without it is a folder like any other.
"""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

_SECONDS = 20.0
_LETTERS = 12
"""Of a revision."""


class GitError(ValueError):
    """What git cannot do, in its words."""


def git(folder: Path, *arguments: str) -> bytes:
    """What `git` prints in `folder`. Raises GitError."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise GitError("git is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as mistake:
        raise GitError(f"git gives no answer: {mistake}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise GitError(said.removeprefix("fatal: ") or f"git ended with {done.returncode}")
    return done.stdout


@lru_cache(maxsize=8)
def revision(folder: Path) -> str:
    """The commit that `folder` is at, with `+` behind it where files that git knows were changed;
    empty where there is none."""
    try:
        commit = git(folder, "rev-parse", f"--short={_LETTERS}", "HEAD").decode().strip()
        changed = git(folder, "status", "--porcelain", "--untracked-files=no")
    except GitError:
        return ""
    return f"{commit}+" if changed.strip() else commit


def last_commit(file: Path) -> str:
    """The last commit that changed `file`, with `+` behind it where that is not how it stands now;
    empty where git does not know it."""
    try:
        return _last_commit(file, file.stat().st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=1024)
def _last_commit(file: Path, written: int) -> str:
    """`written`: when; a file that was written since is asked for again."""
    folder, name = file.parent, file.name
    try:
        form = f"--abbrev={_LETTERS}"
        commit = git(folder, "log", "-1", "--format=%h", form, "--", name).decode().strip()
        changed = git(folder, "status", "--porcelain", "--", name)
    except GitError:
        return ""
    return f"{commit}+" if commit and changed.strip() else commit

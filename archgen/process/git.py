"""What git knows of a folder: its revision, and files as they were.

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

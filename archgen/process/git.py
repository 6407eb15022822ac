"""The git revision of a folder; a folder without git is a folder like any other."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

_SECONDS = 20.0


@lru_cache(maxsize=8)
def revision(folder: Path) -> str:
    """The commit that `folder` is at, with `+` behind it where files that git knows were changed;
    empty where there is none."""
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else ""
    return f"{commit}+" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    """What `git` prints in `folder`; empty where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace").strip()

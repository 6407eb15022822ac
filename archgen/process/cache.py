"""Keys by content, and where what has such a key is kept.

The one idea: a key is a hash of architecture, model, options and the sources that decide a result,
so what is found under it is exactly what a run would give.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import archgen
import compiler
import simmodel

Value = TypeVar("Value")
_DRAWN = ("cli", "exploration", "plots")
"""Folders of archgen that decide which results there are and how they look, not what they are."""


def cache_dir() -> Path:
    """Where quantized models and references are kept: $ARCHGEN_CACHE or ~/.cache/archgen."""
    given = os.environ.get("ARCHGEN_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archgen"


@lru_cache(maxsize=1)
def code_version() -> str:
    """SHA-256 (hex) of the names and contents of all sources of the three packages, and of the
    tables of energies and of networks."""
    digest = hashlib.sha256()
    for package in (archgen, compiler, simmodel):
        root = Path(next(iter(package.__path__)))
        data = (*root.glob("energy/*.yaml"), *root.glob("zoo/*.yaml"))
        for path in sorted([*root.rglob("*.py"), *data]):
            if path.relative_to(root).parts[0] in _DRAWN:
                continue
            digest.update(f"{package.__name__}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


_GIT_SECONDS = 20.0


@lru_cache(maxsize=8)
def revision(folder: Path) -> str:
    """The commit of git that `folder` is at, with `+` behind it where files that git knows were
    changed; empty where there is none."""
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else ""
    return f"{commit}+" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    """What `git` prints in `folder`; empty where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, check=False, timeout=_GIT_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace").strip()


def content_hash(parts: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of `parts`, which JSON can express, whatever their order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Recent(Generic[Value]):
    """The values that were asked for last, up to `most` of them."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made where it is not at hand."""
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]

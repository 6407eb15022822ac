"""Files that appear whole or not at all, whoever else is writing and whatever interrupts.

The one idea: a file is written under a name of its own, ending in `.part`, and then moved to its
place; what a killed process leaves is removed later.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

_OLD = 3600.0
"""Seconds after which a file that nobody finished writing is nobody's."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path and moves the result to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{secrets.token_hex(6)}.part")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """`content` as the file `path`."""
    write_atomically(path, lambda target: target.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """`text` as the file `path`, in UTF-8."""
    write_atomically(path, lambda target: target.write_text(text, encoding="utf-8"))


def tidy(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in `folder`."""
    for path in folder.glob("*.part"):
        try:
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()
        except OSError:
            continue  # somebody else's: gone already, or not to be touched

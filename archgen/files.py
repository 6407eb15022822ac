"""Files that appear whole or not at all, whoever else is writing and whatever interrupts.

The one idea: a file is written under a name of its own, ending in `.part`, and then moved to its
place; `archgen.store.tidy` removes what a killed process leaves.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


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

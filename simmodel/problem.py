"""What is wrong with a machine: a field that contradicts others, and a guess at what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """A field (by its path in files) that contradicts others, and which others."""

    path: Path
    message: str
    about: tuple[Path, ...] = ()


def near(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'copy'?`, or nothing where none of the known is spelled alike."""
    found = difflib.get_close_matches(word, tuple(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""

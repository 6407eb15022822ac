"""A mistake in a file, with its place, and the error that carries all of them.

Everything that reads files reports through these, so that one run shows every mistake, sorted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_START = 4
"""Letters by which words begin alike."""
_PLACE = re.compile(r"(.+?):(\d+):(\d+): ")
Path = tuple[str | int, ...]
"""Keys and list indices from the top of a file to one of its values."""


@dataclass(frozen=True, order=True)
class Position:
    """A place in a file; line and column count from 1, line 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Mistake:
    """One thing that is wrong in a file: where, at which path, and what was expected."""

    at: Position
    path: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.at), self.path, self.message) if part)


class ArchError(ValueError):
    """Architecture files that cannot be used; `mistakes` is sorted by file, line and column."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: list[Mistake] = sorted(set(mistakes))
        super().__init__("\n".join(map(str, self.mistakes)))


def in_order(said: Iterable[str]) -> list[str]:
    """Mistakes in words, each once: of each file by their places, those without a place last."""

    def place(text: str) -> tuple[str, int, int]:
        form = _PLACE.match(text)
        return (form[1], int(form[2]), int(form[3])) if form else ("\U0010ffff", 0, 0)

    return sorted(dict.fromkeys(said), key=place)


def dotted(path: Path, root: str = "arch") -> str:
    """`arch.copy.load.to[1]` for `('copy', 'load', 'to', 1)`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in path]
    return root + "".join(parts)


def guess(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'banks'?`, or nothing when no known word is near: spelled much like it, or
    the only one that begins like it (`architectures`, `archs`)."""
    by_folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    if not near and len(word) >= _START:
        alike = [name for name in by_folded if name.startswith(word.lower()[:_START])]
        near = alike if len(alike) == 1 else []
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def listed(words: Iterable[object], conjunction: str = "or") -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [repr(word) for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {conjunction} {quoted[-1]}"

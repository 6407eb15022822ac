"""Errors that are archgen's own: what is said of one, and what is written for its report.

The one idea: a user can do nothing about such an error but hand it on, so the one line says where
it happened and to what, and a file holds everything that somebody who mends it needs.
"""

from __future__ import annotations

import platform
import re
import traceback
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from compiler.api import PassFailed

_PACKAGES = ("archgen", "compiler", "simmodel")
_ROOT = Path(__file__).parents[2]
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def error_line(mistake: BaseException) -> str:
    """`internal error in pass fold-bias on node 'conv_1' (Conv): KeyError: 'z'`, on one line."""
    if isinstance(mistake, PassFailed):
        return _line(f"internal error in pass {mistake}")
    where = " ".join([_innermost_own_frame(mistake), *error_context(mistake)])
    return _line(f"internal error in {where}: {type(mistake).__name__}: {mistake}")


def written(mistake: BaseException, about: Mapping[str, Any]) -> str:
    """The text of a file to attach to a report: what was done (`about`), versions, traceback."""
    facts = {**about, "archgen": version("archgen"), "python": platform.python_version()}
    head = "\n".join(f"{name}: {value}" for name, value in facts.items() if value is not None)
    return f"{error_line(mistake)}\n\n{head}\n\n{''.join(traceback.format_exception(mistake))}"


def saved(mistake: BaseException, about: Mapping[str, Any]) -> Path:
    """The file that `written` goes to where no study has a folder: a new one for temporary files.

    Raises OSError where none can be written.
    """
    with NamedTemporaryFile(prefix="archgen-error-", suffix=".txt", delete=False) as file:
        file.write(written(mistake, about).encode(errors="backslashreplace"))
    return Path(file.name)


def error_context(mistake: BaseException) -> Iterator[str]:
    """What was added to `mistake` and its causes on their way: `on node 'a' (Add)`."""
    for each in exception_chain(mistake):
        notes: list[str] = getattr(each, "__notes__", [])
        yield from (note for note in notes if note.startswith("on "))


def exception_chain(mistake: BaseException | None) -> Iterator[BaseException]:
    """`mistake`, what it was raised from, and so on."""
    while mistake is not None:
        yield mistake
        mistake = mistake.__cause__


def _innermost_own_frame(mistake: BaseException) -> str:
    """File and line of the innermost frame that is ours, also in what another process told."""
    told = "".join(traceback.format_exception(mistake))
    frames = ((Path(file), line) for file, line in _FRAME.findall(told))
    ours = [
        f"{file.relative_to(_ROOT).as_posix()}:{line}"
        for file, line in frames
        if any(file.is_relative_to(_ROOT / package) for package in _PACKAGES)
    ]
    return ours[-1] if ours else "archgen"


def _line(text: str) -> str:
    return " ".join(text.split())

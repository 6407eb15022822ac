"""What every process of archgen does first.

It imports nothing slow, as `archgen --help` waits for it.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

_ALLOCATIONS = 200_000
"""Between collections; a compiled program is tens of thousands of small objects without cycles."""


class DamagedFile(UserWarning):
    """A file is not what was written, and is not used."""


def single_threaded() -> None:
    """Ask for single-threaded arithmetic in this process, if numpy is not loaded yet, and in those
    that it starts; what the user has set stays."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def collect_rarely() -> None:
    """Let Python look for unreachable cycles less often: a fifth of the time of compiling and
    simulating goes into looking at objects that are all alive."""
    gc.set_threshold(_ALLOCATIONS, 50, 50)


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """The same meanwhile."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)


def configure_messages() -> None:
    """Let warnings of damaged files be one line each on standard error, however often they are
    found, and names that a terminal has no letters for be spelled out."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    others, said = warnings.formatwarning, set[str]()

    def text(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        if not issubclass(category, DamagedFile):
            return others(message, category, *place, **more)
        line = f"warning: {message}\n"
        found = "" if line in said else line
        said.add(line)
        return found

    warnings.formatwarning = text

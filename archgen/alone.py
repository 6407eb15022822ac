"""One process at a time makes a file of the cache; the others wait and read what it made.

The one idea: a file under way is a locked byte of one other file, at the place that its name says;
the system gives the byte free when the process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this system: each process makes its own there
    fcntl = None  # type: ignore[assignment]

_BYTES = 7
"""Of a name's hash, which say where its byte is: below 2 to the 56th."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within, no other process is within for the same `path`; threads of one process may be."""
    if fcntl is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    place = int.from_bytes(hashlib.sha256(path.name.encode()).digest()[:_BYTES])
    handle = os.open(path.parent / ".making", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with suppress(OSError):  # a file system without locks: each process makes its own
            fcntl.lockf(handle, fcntl.LOCK_EX, 1, place)
        yield
    finally:
        os.close(handle)

"""Work that one process at a time may be at, whoever else shares the folder.

The one idea: what somebody is at is a locked byte of one file, at the place that its name says; the
system gives the byte free when that process ends, however it ends. Where the system or the file
system knows no locks, everybody may be at everything.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not on this system
    fcntl = None  # type: ignore[assignment]

_BYTES = 7
"""Of a name's hash, which say where its byte is: below 2 to the 56th."""


class Locks:
    """The locks that this process has, of those in one file; threads of a process share them."""

    def __init__(self, path: Path) -> None:
        """`path`: the file, made with its folder when the first lock is taken."""
        self._path = path
        self._handle: int | None = None

    def take(self, name: str, wait: bool = False) -> bool:
        """Take the lock `name`; False while another process has it, unless told to `wait`. Raises
        OSError when the file cannot be made."""
        if fcntl is None:
            return True
        if self._handle is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.lockf(self._handle, how, 1, _place(name))
        except OSError as mistake:
            return mistake.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def release(self, name: str) -> None:
        """Give the lock `name` free."""
        if fcntl is not None and self._handle is not None:
            fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, _place(name))

    def close(self) -> None:
        """Give all locks free."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _place(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:_BYTES])


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within, no other process is within for the same `path`: one makes a file of the cache, the
    others wait and read what it made."""
    locks = Locks(path.parent / ".making")
    try:
        locks.take(path.name, wait=True)
        yield
    finally:
        locks.close()

"""Work that one process at a time may be at, whoever else shares the folder.

The one idea: what somebody is at is a file of its own that the system has locked, named by a hash;
the system gives it free when that process ends, however it ends, on Linux, macOS and Windows alike.
The files stay: removing one that others wait for would let two of them in. Where the file system
knows no locks, everybody may be at everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

FOLDER = ".locks"
"""Beside what is worked on."""
_LETTERS = 24
"""Of a name's hash."""


class Locks:
    """The locks that this process has, of those in one folder; its threads share them."""

    def __init__(self, folder: Path) -> None:
        """`folder`: made when the first lock is taken."""
        self._folder = folder
        self._held: dict[str, FileLock] = {}

    def take(self, name: str, wait: bool = False) -> bool:
        """Take the lock `name`; False while another process has it, unless told to `wait`. Raises
        OSError when the file cannot be made."""
        if name in self._held:
            return True
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:_LETTERS]}.lock"
        path.touch()
        lock = FileLock(path, thread_local=False)
        try:
            lock.acquire(blocking=wait)
        except Timeout:
            return False
        except (OSError, NotImplementedError):  # no locks here
            return True
        self._held[name] = lock
        return True

    def release(self, name: str) -> None:
        """Give the lock `name` free."""
        lock = self._held.pop(name, None)
        if lock is not None:
            lock.release(force=True)

    def close(self) -> None:
        """Give all locks free."""
        for name in list(self._held):
            self.release(name)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within, no other process is within for the same `path`: one makes a file of the cache, the
    others wait and read what it made."""
    locks = Locks(path.parent / FOLDER)
    try:
        locks.take(path.name, wait=True)
        yield
    finally:
        locks.close()

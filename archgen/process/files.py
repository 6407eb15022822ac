"""Files that appear whole or not at all, and are read as they were written or not at all.

The one idea: a file is written under a name of its own, ending in `.part`, and then moved to its
place; what a killed process leaves is removed later. What is read again to save work ends in a
*seal*, a hash of its name and content: a file that was damaged, edited or renamed is not used, and
that is said.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from archgen.process.start import DamagedFile

_OLD = 3600.0
"""Seconds after which a file that nobody finished writing is nobody's."""
_SEAL = 32
"""Characters of a seal."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path and moves the result to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{secrets.token_hex(6)}.part")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def unwritable(option: str, path: Path | None) -> list[str]:
    """Why the file that `option` names cannot be written, found out without touching it."""
    if path is None:
        return []
    folder = path.parent
    if path.is_dir():
        return [f"{option} {path}: is a folder"]
    if not folder.is_dir():
        return [f"{option} {path}: there is no folder {folder}"]
    if not os.access(path if path.exists() else folder, os.W_OK):
        return [f"{option} {path}: may not be written"]
    return []


def write_bytes(path: Path, content: bytes) -> None:
    """`content` as the file `path`."""
    write_atomically(path, lambda target: target.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """`text` as the file `path`, in UTF-8."""
    write_atomically(path, lambda target: target.write_text(text, encoding="utf-8"))


def seal_of(path: Path, content: bytes) -> str:
    """What tells `content` under the name of `path` from anything else."""
    digest = hashlib.blake2b(content, digest_size=_SEAL // 2)
    digest.update(path.name.encode())
    return digest.hexdigest()


def write_sealed(path: Path, content: bytes) -> None:
    """`content` as the file `path`, with its seal: for `.json`, whose object spans lines, as its
    last key, otherwise behind it."""
    end, before, after = _form(path)
    if not content.endswith(end):
        raise ValueError(f"{path}: not an object that spans lines")
    body = content[: len(content) - len(end)]
    write_bytes(path, b"".join((body, before, seal_of(path, content).encode(), after)))


def read_sealed(path: Path) -> bytes | None:
    """What `write_sealed` wrote; None where there is no such file, or where it is damaged, for
    which a `DamagedFile` is warned of."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as mistake:
        warn_damaged(path, mistake.strerror or str(mistake))
        return None
    end, before, after = _form(path)
    at = len(stored) - len(after) - _SEAL
    content = stored[: max(0, at - len(before))] + end
    seal = stored[max(0, at) : len(stored) - len(after)].decode(errors="replace")
    framed = stored.endswith(after) and stored[:at].endswith(before)
    if not framed or seal != seal_of(path, content):
        warn_damaged(path, "it is not what was written")
        return None
    return content


def _form(path: Path) -> tuple[bytes, bytes, bytes]:
    """What the content ends in that stands behind the seal in the file; what is before the seal;
    what is behind it."""
    if path.suffix == ".json":
        return b"\n}", b',\n "seal": "', b'"\n}'
    return b"", b"\nseal ", b""


def warn_damaged(path: Path, why: str) -> None:
    """Say that the file is made again."""
    warnings.warn(f"{path} is damaged and is not used: {why}", DamagedFile, stacklevel=3)


def remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left in `folder`."""
    for path in folder.glob("*.part"):
        try:
            if time.time() - path.stat().st_mtime > _OLD:
                path.unlink()
        except OSError:
            continue  # somebody else's: gone already, or not to be touched


# Work that one process at a time may be at, whoever else shares the folder.

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
def exclusive(path: Path) -> Iterator[None]:
    """Within, no other process is within for the same `path`: one makes a file of the cache, the
    others wait and read what it made."""
    locks = Locks(path.parent / FOLDER)
    try:
        locks.take(path.name, wait=True)
        yield
    finally:
        locks.close()


def cached_file(path: Path, make: Callable[[], bytes]) -> bytes:
    """What is sealed in the file `path`, made by one process where it is not there."""
    stored = read_sealed(path)
    if stored is None:
        with exclusive(path):
            stored = read_sealed(path)
            if stored is None:
                stored = make()
                write_sealed(path, stored)
    return stored

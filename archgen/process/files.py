"""Files that appear whole or not at all, and are read as they were written or not at all.

The one idea: a file is written under a name of its own, ending in `.part`, and then moved to its
place; what a killed process leaves is removed later. What is read again to save work ends in a
*seal*, a hash of its name and content: a file that was damaged, edited or renamed is not used, and
that is said.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile, gettempdir
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout

import archgen
import compiler
import simmodel
from archgen.process.start import DamagedFile

_OLD = 3600.0
"""Seconds after which a file that nobody finished writing is nobody's."""
_SEAL = 32
"""Characters of a seal."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path and moves the result to `path`; links, devices and pipes
    stay what they are, and the result is written through them."""
    through = path.is_symlink() or (path.exists() and not path.is_file())
    folder = Path(gettempdir()) if through else path.parent
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{path.stem}.{secrets.token_hex(6)}.part"
    try:
        write(temporary)
        if through:
            with temporary.open("rb") as made, path.open("wb") as target:
                copyfileobj(made, target)
        else:
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def unwritable(option: str, path: Path | None) -> list[str]:
    """Why the file that `option` names cannot be written, found out without changing it."""
    if path is None:
        return []
    folder = path.parent
    if path.is_dir():
        return [f"{option} {path}: is a folder"]
    if not folder.is_dir():
        return [f"{option} {path}: there is no folder {folder}"]
    try:
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():
            make_writable(folder)
    except OSError as mistake:
        return [f"{option} {path}: cannot be written: {mistake.strerror}"]
    return []


def make_writable(folder: Path) -> None:
    """Make `folder` where there is none. OSError where that, or a file in it, cannot be made; its
    permissions alone do not tell: root has all of them, and yet makes no file in /proc."""
    folder.mkdir(parents=True, exist_ok=True)
    TemporaryFile(dir=folder).close()


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
    content, why = _unsealed(path)
    if why:
        warn_damaged(path, why)
    return content


def _unsealed(path: Path) -> tuple[bytes | None, str]:
    """The same, and in words what is damaged."""
    try:
        stored = path.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as mistake:
        return None, mistake.strerror or str(mistake)
    end, before, after = _form(path)
    at = len(stored) - len(after) - _SEAL
    content = stored[: max(0, at - len(before))] + end
    seal = stored[max(0, at) : len(stored) - len(after)].decode(errors="replace")
    framed = stored.endswith(after) and stored[:at].endswith(before)
    if not framed or seal != seal_of(path, content):
        return None, "it is not what was written"
    return content, ""


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
    stored, _ = _unsealed(path)
    if stored is None:
        with exclusive(path):  # who makes it good says that it was damaged, nobody else
            stored = read_sealed(path)
            if stored is None:
                stored = make()
                write_sealed(path, stored)
    return stored


# Keys by content, and where what has such a key is kept: a key is a hash of architecture, model,
# options and the sources that decide a result, so what is under it is what a run would give.

Value = TypeVar("Value")
_DRAWN = ("cli", "exploration", "plots")
"""Folders of archgen that decide which results there are and how they look, not what they are."""


def cache_dir() -> Path:
    """Where quantized models and references are kept: $ARCHGEN_CACHE or ~/.cache/archgen."""
    given = os.environ.get("ARCHGEN_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "archgen"


@lru_cache(maxsize=1)
def code_version() -> str:
    """SHA-256 (hex) of the names and contents of all sources of the three packages, and of the
    tables of energies and of networks."""
    digest = hashlib.sha256()
    for package in (archgen, compiler, simmodel):
        root = Path(next(iter(package.__path__)))
        data = (*root.glob("energy/*.yaml"), *root.glob("zoo/*.yaml"))
        for path in sorted([*root.rglob("*.py"), *data]):
            if path.relative_to(root).parts[0] in _DRAWN:
                continue
            digest.update(f"{package.__name__}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


_GIT_SECONDS = 20.0


@lru_cache(maxsize=8)
def revision(folder: Path) -> str:
    """The commit of git that `folder` is at, with `+` behind it where files that git knows were
    changed; empty where there is none."""
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no") if commit else ""
    return f"{commit}+" if changed else commit


def _git(folder: Path, *arguments: str) -> str:
    """What `git` prints in `folder`; empty where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, check=False, timeout=_GIT_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace").strip()


def content_hash(parts: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of `parts`, which JSON can express, whatever their order."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Recent(Generic[Value]):
    """The values that were asked for last, up to `most` of them."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]

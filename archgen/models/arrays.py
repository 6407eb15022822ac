"""Arrays by name in .npz files: samples, inputs, outputs.

The one idea: what an array is stands before its numbers, so whoever knows what he expects can turn
a file away by shapes and types, before a few megabytes of it become gigabytes here.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from archgen.models.errors import ModelError

Array = NDArray[Any]
_SUFFIX = ".npy"
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True, eq=False)
class StoredArrays(Mapping[str, Array]):
    """Arrays of a file, each of which is read when it is first asked for. Raises ModelError then
    where it is damaged."""

    path: Path
    what: str
    outlines: Mapping[str, Array]
    """Arrays of their shapes and types, which have no numbers and take no memory."""
    _read: dict[str, Array] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Array:
        if name in self.outlines and name not in self._read:
            with _opened(self.path, self.what) as file, file.open(f"{name}{_SUFFIX}") as member:
                self._read[name] = _native(npy.read_array(member, allow_pickle=False))
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outlines)

    def __len__(self) -> int:
        return len(self.outlines)


def arrays_in(path: str | Path, what: str) -> StoredArrays:
    """Arrays of an .npz file by name; `what` they are starts each message.

    Raises:
        ModelError: there is no such file, or it holds something else.
    """
    with _opened(Path(path), what) as file:
        found = {}
        for name in file.namelist():
            with file.open(name) as member:
                found[name.removesuffix(_SUFFIX)] = _outline(name, member)
    return StoredArrays(Path(path), what, found)


def outlines(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Arrays of the shapes and types of `arrays`, for which none is read from its file."""
    return arrays.outlines if isinstance(arrays, StoredArrays) else arrays


def load_calibration(path: str | Path | None) -> StoredArrays | None:
    """Arrays of an .npz file by input name; None for no path. Raises ModelError."""
    return None if path is None else arrays_in(path, "calibration")


@contextmanager
def _opened(path: Path, what: str) -> Iterator[zipfile.ZipFile]:
    """The file at `path`; within, what is wrong with it is a ModelError."""
    try:
        with path.open("rb") as file:
            if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                said = "one array (.npy), expected arrays by name"
                raise ModelError(f"{what} {path}: {said}, as np.savez(path, name=array) writes")
            if not zipfile.is_zipfile(file):
                raise ModelError(f"{what} {path}: not an .npz file of arrays")
            with zipfile.ZipFile(file) as archive:
                yield archive
    except FileNotFoundError:
        raise ModelError(f"{what} {path}: no such file") from None
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as wrong:
        # What numpy says of files that are none of its own is how to load them unsafely.
        reason = "" if "pickle" in str(wrong) else f": {wrong}"
        raise ModelError(f"{what} {path}: not an .npz file of arrays{reason}") from None


def _outline(name: str, member: IO[bytes]) -> Array:
    """An array of the shape and type that `member` has; raises ValueError where it is no array of
    numbers."""
    read = _HEADERS.get(npy.read_magic(member))
    if not name.endswith(_SUFFIX) or read is None:
        raise ValueError(f"{name!r} is no array")
    shape, _, kind = read(member)
    if kind.hasobject:
        raise ValueError(f"{name!r} holds objects of Python")
    try:
        return np.broadcast_to(np.empty((), kind.newbyteorder("=")), shape)
    except ValueError:
        raise ValueError(f"no array has the shape {list(shape)} of {name!r}") from None


def _native(array: Array) -> Array:
    """`array` with its bytes in the order of this machine."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)

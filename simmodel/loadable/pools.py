"""What words refer to by number: strings, floating-point numbers, and bytes.

The one idea: what does not fit a whole number stands in the file once, in a table of its own; a
word is its place there.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simmodel.dtype import NAMES, NUMPY
from simmodel.loadable.copies import Expanded, squeezed
from simmodel.loadable.wire import LoadableError

ALIGNMENT = 64
"""Bytes: arrays and byte strings begin at a multiple of it."""
_DOUBLE, _WHOLE = 0, 1
_NUMBER = struct.Struct("<Bd"), struct.Struct("<Bq")
"""A tag, and a number as a double or, where it was given as a whole one, as such."""
LARGEST = 2**48
"""Extents of arrays are smaller."""


class Pools:
    """Tables that fill while a program is written."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._data = bytearray()

    def text(self, text: str) -> int:
        """The place of a string."""
        return self._texts.setdefault(text, len(self._texts))

    def number(self, number: float) -> int:
        """The place of a number."""
        whole = isinstance(number, int | np.integer)
        try:
            entry = _NUMBER[whole].pack(whole, int(number) if whole else float(number))
        except struct.error:
            raise LoadableError(None, f"{number} has more than 64 bits") from None
        return self._numbers.setdefault(entry, len(self._numbers))

    def data(self, data: bytes | memoryview) -> int:
        """The offset of bytes."""
        self._data += bytes(-len(self._data) % ALIGNMENT)
        self._data += data
        return len(self._data) - len(data)

    def sections(self) -> dict[str, bytes]:
        """The tables as they stand in the file."""
        texts = [text.encode("utf-8", "surrogatepass") for text in self._texts]
        lengths = np.array([len(text) for text in texts], "<u4").tobytes()
        return {
            "strings": squeezed(struct.pack("<I", len(texts)) + lengths + b"".join(texts)),
            "numbers": b"".join(self._numbers),
            "data": bytes(self._data),
        }


class Tables:
    """The same, as they are read."""

    def __init__(self, texts: list[str], numbers: list[float], data: memoryview) -> None:
        self.texts, self.numbers, self._data = texts, numbers, data

    def text(self, place: int) -> str:
        """The string at a place. Raises LookupError, in words."""
        if not 0 <= place < len(self.texts):
            raise LookupError(f"expected one of {len(self.texts)} strings, found number {place}")
        return self.texts[place]

    def number(self, place: int) -> float:
        """The number at a place. Raises LookupError, in words."""
        if not 0 <= place < len(self.numbers):
            raise LookupError(f"expected one of {len(self.numbers)} numbers, found number {place}")
        return self.numbers[place]

    def bytes(self, offset: int, size: int) -> memoryview:
        """The bytes at `offset`. Raises LookupError, in words."""
        if offset < 0 or size < 0 or offset + size > len(self._data):
            there = f"{len(self._data)} bytes of data"
            raise LookupError(f"expected some of {there}, found {offset} .. {offset + size}")
        return self._data[offset : offset + size]

    def array(self, dtype: str, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
        """The array at `offset`, a view of the file. Raises LookupError, in words."""
        if dtype not in NUMPY:
            raise LookupError(f"expected an element type, found {dtype!r}")
        if any(not 0 <= extent < LARGEST for extent in shape):
            raise LookupError(f"expected extents below {LARGEST}, found {shape}")
        size = NUMPY[dtype].itemsize
        for extent in shape:
            size *= extent
        raw = np.frombuffer(self.bytes(offset, size), np.uint8)
        try:
            return raw.view(NUMPY[dtype]).reshape(shape)
        except ValueError as mistake:
            raise LookupError(f"expected an array of {dtype}{list(shape)}: {mistake}") from None


def type_of(array: NDArray[Any]) -> str:
    """Name of an array's element type. Raises LoadableError."""
    name = NAMES.get(np.dtype(array.dtype))
    if name is None:
        raise LoadableError(None, f"a loadable holds no elements of {array.dtype}")
    return name


def strings(section: memoryview, start: int) -> list[str]:
    """The table of strings that stands at byte `start` of the file. Raises LoadableError."""
    table = Expanded(section, start, "strings")
    data = bytes(table.data)

    def wrong(at: int, message: str) -> LoadableError:
        return LoadableError(int(table.places(np.array([at]))[0]), f"strings: {message}")

    if len(data) < 4:
        raise wrong(0, f"expected a count of 4 bytes, found {len(data)}")
    (count,) = struct.unpack_from("<I", data)
    if 4 + 4 * count > len(data):
        there = f"{(len(data) - 4) // 4} lengths"
        raise wrong(0, f"expected {count} lengths, there is room for {there}")
    ends = 4 + 4 * count + np.cumsum(np.frombuffer(data, "<u4", count, 4), dtype=np.int64)
    end = int(ends[-1]) if count else 4
    if end != len(data):
        raise wrong(0, f"expected {end} bytes, found {len(data)}")
    found, at = [], 4 + 4 * count
    for stop in ends.tolist():
        try:
            found.append(str(data[at:stop], "utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise wrong(at, "expected UTF-8") from None
        at = stop
    return found


def numbers(data: memoryview, start: int) -> list[float]:
    """The table of numbers that stands at byte `start` of the file. Raises LoadableError."""
    size = _NUMBER[0].size
    if len(data) % size:
        raise LoadableError(start, f"numbers: expected {size} bytes for each, found {len(data)}")
    found: list[float] = []
    for at in range(0, len(data), size):
        if data[at] > _WHOLE:
            raise LoadableError(start + at, f"numbers: expected a tag of 0 or 1, found {data[at]}")
        found.append(_NUMBER[data[at]].unpack_from(data, at)[1])
    return found

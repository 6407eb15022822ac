"""Numbers as bytes: varints, seven bits to a byte, the low ones first; signed ones in zigzag.

The one idea: a section of numbers is read all at once, so that whoever reads them meets a list that
is as long as its bytes warrant, and knows of every number where it stands in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

LIMIT = 2**62
"""Numbers lie strictly between -LIMIT and LIMIT, so differences have 64 bits."""
LONGEST = 10
"""Most bytes of a number."""
Ints = NDArray[np.int64]
Bytes = bytes | bytearray | memoryview
Places = Callable[[Ints], Ints]
"""Where in the file bytes are from."""


class LoadableError(ValueError):
    """Bytes that are no loadable, or a program that is none; says where and what was expected."""

    def __init__(self, offset: int | None, reason: str, file: str = "") -> None:
        self.offset, self.reason = offset, reason
        place = "" if offset is None else f"byte {offset}"
        super().__init__(": ".join(part for part in (file, place, reason) if part))

    def __reduce__(self) -> tuple[type[LoadableError], tuple[int | None, str]]:
        """As pickles take it to another process; the place is part of the text there."""
        return LoadableError, (None, str(self))


def zigzag(number: int) -> int:
    """0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """The number whose zigzag form `number` is."""
    return number >> 1 if not number & 1 else -((number + 1) >> 1)


def written(numbers: Iterable[int]) -> bytes:
    """Numbers from 0 on as varints."""
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


class Numbers:
    """The varints of a section, and which is next."""

    def __init__(self, data: Bytes, what: str, size: int, places: Places) -> None:
        """`data` is what `size` bytes of the file stand for, as `what` they hold; `places` says
        where in the file some of it is from.

        Raises:
            LoadableError: a number is cut off or has more than 64 bits.
        """
        self.what, self.at, self.size = what, 0, size
        self.values, begins = _read(data, what, places)
        self._places = places(begins)

    @property
    def left(self) -> int:
        """Numbers that have not been read."""
        return len(self.values) - self.at

    @property
    def here(self) -> int:
        """Where in the file the next number stands."""
        return int(self._places[self.at])

    def next(self, expected: str) -> int:
        """The next number, which should be what is `expected`."""
        if self.at >= len(self.values):
            raise self.error(f"expected {expected}, found the end of the section")
        self.at += 1
        return self.values[self.at - 1]

    def below(self, limit: int, expected: str) -> int:
        """The next number, which has to be below `limit`."""
        number = self.next(expected)
        if number >= limit:
            self.at -= 1
            raise self.error(f"expected {expected} below {limit}, found {number}")
        return number

    def take(self, count: int, expected: str) -> list[int]:
        """The next `count` numbers."""
        if count > self.left:
            raise self.error(f"expected {count} {expected}, {self.left} numbers are left")
        self.at += count
        return self.values[self.at - count : self.at]

    def finish(self) -> None:
        """Nothing may be left.

        Raises:
            LoadableError: there is another number.
        """
        if self.left:
            raise self.error(f"expected the end of the section, {self.left} numbers are left")

    def error(self, message: str) -> LoadableError:
        """What to raise about the number that is next."""
        return LoadableError(self.here, f"{self.what}: {message}")


def _read(data: Bytes, what: str, places: Places) -> tuple[list[int], Ints]:
    """All varints of `data`, and where in it each begins, the end behind them."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 128) + 1
    begins = np.concatenate([np.zeros(1, np.int64), ends])
    if len(raw) and begins[-1] != len(raw):
        at = int(places(begins[-1:])[0])
        raise LoadableError(at, f"{what}: expected a number, it is cut off")
    sizes = np.diff(begins)
    last = raw[ends - 1]
    wrong = (sizes > LONGEST) | ((sizes == LONGEST) & (last > 1))
    if wrong.any():
        at = int(places(begins[:-1][wrong])[0])
        raise LoadableError(at, f"{what}: expected a number of 64 bits, it is longer")
    if not len(raw):
        return [], begins
    shifts = 7 * (np.arange(len(raw)) - np.repeat(begins[:-1], sizes))
    parts = (raw & np.uint8(127)).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(parts, begins[:-1]).tolist(), begins

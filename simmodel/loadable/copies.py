"""Repeated bodies: bytes of a section that are a copy of earlier ones.

    section  = size item* zeros
    item     = head [more] [more] literal* [distance]
    head     = 16 * literals + copied; 15 of either: `more`, a number, is added

The one idea: rows are steps, so the same bytes at another place are the same commands at other
addresses. A decoder holds the last 8 KiB; a copy may reach into what it writes itself, so that a
body of one row stands for any number of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simmodel.loadable.wire import Ints, LoadableError, Numbers, written

WINDOW = 8192
"""Longest distance of a copy, in bytes."""
EXPANDS = 64
"""Bytes that each byte of a section may stand for at most."""
_NIBBLE = 15
_KEY = 3
"""Fewest bytes that are looked for."""
_TRIED, _ENOUGH = 64, 256
"""Places that are compared, and bytes at which the search ends."""


def squeezed(data: bytes, least: int = 0) -> bytes:
    """A section that stands for `data`, of `least` bytes or more."""
    out = bytearray(written([len(data)]))
    done = 0
    for at, length, distance in _found(data):
        _item(out, data[done:at], length, distance)
        done = at + length
    if done < len(data):
        _item(out, data[done:], 0, 0)
    needed = max(least, -(-len(data) // EXPANDS))
    return bytes(out) + bytes(max(0, needed - len(out)))


def numbers_of(section: memoryview, start: int, what: str) -> Numbers:
    """The numbers that a section at byte `start` of the file stands for. Raises LoadableError."""
    expanded = Expanded(section, start, what)
    return Numbers(expanded.data, what, len(section), expanded.places)


def _item(out: bytearray, literals: bytes, length: int, distance: int) -> None:
    counts = len(literals), length
    out.append(min(counts[0], _NIBBLE) << 4 | min(counts[1], _NIBBLE))
    out += written(count - _NIBBLE for count in counts if count >= _NIBBLE)
    out += literals
    if length:
        out += written([distance])


def _found(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Copies that are shorter than what they stand for: where, how long, and how far back."""
    places: dict[bytes, list[int]] = {}
    at = known = 0
    while at < len(data):
        while known < at:
            places.setdefault(data[known : known + _KEY], []).append(known)
            known += 1
        best = gain = distance = 0
        for place in reversed(places.get(data[at : at + _KEY], ())[-_TRIED:]):
            if at - place > WINDOW or best >= _ENOUGH or at + best == len(data):
                break
            if data[place + best] != data[at + best]:  # no longer than the best
                continue
            length = _alike(data, place, at)
            won = length - (2 if at - place < 128 else 3)
            if won > gain:
                best, gain, distance = length, won, at - place
        if best:
            yield at, best, distance
        at += best or 1


def _alike(data: bytes, one: int, other: int) -> int:
    """How many bytes from both places on are the same."""
    length, step = 0, 16
    while data[one + length : one + length + step] == data[other + length : other + length + step]:
        length += step
        if other + length >= len(data):
            return len(data) - other
        step *= 2
    while step > 1:
        step //= 2
        a = data[one + length : one + length + step]
        if a == data[other + length : other + length + step]:
            length += step
    return min(length, len(data) - other)


class Expanded:
    """The bytes that a section stands for."""

    def __init__(self, section: memoryview, start: int, what: str) -> None:
        """`section` stands at byte `start` of the file.

        Raises:
            LoadableError: a copy of what is not there, more bytes than the section warrants, or
                bytes behind them.
        """
        self._section, self._start, self._what, self._at = section, start, what, 0
        self.size = len(section)
        """Bytes of the section."""
        size = self._number("a size")
        if size > EXPANDS * self.size:
            raise self._wrong(f"{self.size} bytes stand for more than {EXPANDS} each")
        self.data = bytearray()
        self._edges: list[tuple[int, int, bool]] = []
        """Where bytes begin that stand in the file, or are copied; and where in the file."""
        while len(self.data) < size:
            self._item(size)
        rest = bytes(section[self._at :])
        if rest.strip(b"\0"):
            self._at += len(rest) - len(rest.lstrip(b"\0"))
            raise self._wrong(f"expected padding, found {section[self._at]}")

    def places(self, at: Ints) -> Ints:
        """Where in the file bytes come from."""
        if not self._edges:
            return at + self._start
        begins, places, literal = np.array(self._edges, np.int64).T
        which = np.searchsorted(begins, at, "right") - 1
        found: Ints = self._start + places[which] + (at - begins[which]) * literal[which]
        return found

    def _item(self, size: int) -> None:
        head_at = self._at
        if head_at >= self.size:
            raise self._wrong(f"expected {size} bytes, found {len(self.data)}")
        head = self._section[head_at]
        self._at += 1
        literals, length = (
            count + (self._number("how many more") if count == _NIBBLE else 0)
            for count in (head >> 4, head & _NIBBLE)
        )
        if not literals and not length:
            raise self._wrong("expected bytes or a copy, found neither")
        if literals + length > size - len(self.data):
            raise self._wrong(f"expected {size} bytes, found more")
        if literals:
            if self._at + literals > self.size:
                raise self._wrong(f"expected {literals} bytes, {self.size - self._at} are left")
            self._edges.append((len(self.data), self._at, True))
            self.data += self._section[self._at : self._at + literals]
            self._at += literals
        if length:
            self._edges.append((len(self.data), head_at, False))
            self._copy(length, self._number("a distance"))

    def _copy(self, length: int, distance: int) -> None:
        if not 0 < distance <= min(WINDOW, len(self.data)):
            most = min(WINDOW, len(self.data))
            raise self._wrong(f"expected a distance of 1 .. {most}, found {distance}")
        body = bytes(self.data[-distance:])
        self.data += (body * (length // distance + 1))[:length]

    def _number(self, expected: str) -> int:
        found = shift = 0
        while shift < 64 and self._at < self.size:
            byte = self._section[self._at]
            self._at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
        raise self._wrong(f"expected {expected}, it is cut off or too long")

    def _wrong(self, message: str) -> LoadableError:
        return LoadableError(self._start + self._at, f"{self._what}: {message}")

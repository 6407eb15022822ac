"""Tracks, slices, counters and arrows as the packets of a Perfetto trace.

The one idea: what is said often (names, categories, texts of instructions) is interned: sent once
with a number, and by its number from then on. Field numbers are those of Perfetto's public schema
(`protos/perfetto/trace`), which the tests hold every packet against. A message of protocol buffers
is the concatenation of its fields, so parts that many messages share are encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from struct import pack

# Trace, TracePacket
_PACKET = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS, _TRACK = 8, 10, 11, 12, 13, 60
_CLEARED, _INCREMENTAL = 1, 2
# TrackDescriptor, ProcessDescriptor, ThreadDescriptor, CounterDescriptor
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER, _ORDERING, _RANK = 1, 2, 3, 4, 5, 8, 11, 12
_PID, _PROCESS_NAME = 1, 6
_THREAD_PID, _TID, _THREAD_NAME = 1, 2, 5
_UNIT_NAME = 6
_EXPLICIT = 3
# TrackEvent
_CATEGORY, _ARGUMENT, _TYPE, _EVENT_NAME, _TRACK_UUID, _VALUE = 3, 4, 9, 10, 11, 44
_FLOW, _FLOW_END = 47, 48
_BEGIN, _END, _SAMPLE = 1, 2, 4
# DebugAnnotation
_ARGUMENT_NAME, _WHOLE, _TEXT = 1, 3, 17


_SHORT = tuple(bytes([value]) for value in range(128))


def _varint(value: int) -> bytes:
    """A whole number that is not negative, seven bits a byte, lowest first."""
    if value < 128:
        return _SHORT[value]
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    """A whole number that is not negative, as `uint64`, `int64` or an enumeration."""
    return _varint(field << 3) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    """A whole number below 2 to the 64th, as `fixed64`."""
    return _varint(field << 3 | 1) + pack("<Q", value)


def _real(field: int, value: float) -> bytes:
    """A `double`."""
    return _varint(field << 3 | 1) + pack("<d", value)


def _content(field: int, value: bytes) -> bytes:
    """A message, or bytes."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    """A `string`."""
    return _content(field, value.encode())


class Interned(IntEnum):
    """Fields of InternedData: what can be sent by number."""

    CATEGORY = 1
    NAME = 2
    ARGUMENT = 3
    TEXT = 29


@dataclass(frozen=True)
class Track:
    """A track, by its number."""

    uuid: int

    @property
    def event(self) -> bytes:
        """What its events say."""
        return _number(_TRACK_UUID, self.uuid)


class Packets:
    """A trace that is being written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._known: dict[tuple[Interned, str], int] = {}
        self._tracks = 0
        self._processes = 0
        self._threads = 0
        self._packet(_number(_FLAGS, _CLEARED))

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def _packet(self, body: bytes) -> None:
        self._parts.append(_content(_PACKET, _number(_SEQUENCE, 1) + body))

    def process(self, name: str) -> tuple[Track, int]:
        """A process and its number; shown in the order in which they are made."""
        self._processes += 1
        pid = self._processes
        body = _content(_PROCESS, _number(_PID, pid) + _text(_PROCESS_NAME, name))
        return self._track(body + _number(_ORDERING, _EXPLICIT)), pid

    def thread(self, pid: int, name: str) -> Track:
        """A thread of process `pid`."""
        self._threads += 1
        tid = 1000 + self._threads
        body = _number(_THREAD_PID, pid) + _number(_TID, tid) + _text(_THREAD_NAME, name)
        return self._track(_content(_THREAD, body))

    def folder(self, parent: Track, name: str) -> Track:
        """A track without events of its own, for others to be below it."""
        return self._track(_text(_NAME, name) + _number(_PARENT, parent.uuid))

    def counter(self, parent: Track, name: str, unit: str) -> Track:
        """A value over time."""
        body = _text(_NAME, name) + _number(_PARENT, parent.uuid)
        return self._track(body + _content(_COUNTER, _text(_UNIT_NAME, unit)))

    def _track(self, body: bytes) -> Track:
        self._tracks += 1
        track = Track(self._tracks)
        rank = _number(_RANK, track.uuid)
        self._packet(_content(_TRACK, _number(_UUID, track.uuid) + body + rank))
        return track

    def intern(self, kind: Interned, value: str) -> int:
        """The number of `value`, which is sent when it is new."""
        found = self._known.get((kind, value))
        if found is None:
            found = self._known[kind, value] = len(self._known) + 1
            entry = _content(kind, _number(1, found) + _text(2, value))
            self._packet(_content(_INTERNED, entry) + _number(_FLAGS, _INCREMENTAL))
        return found

    def heading(self, name: str, category: str) -> bytes:
        """Name and category of a slice."""
        return _number(_EVENT_NAME, self.intern(Interned.NAME, name)) + _number(
            _CATEGORY, self.intern(Interned.CATEGORY, category)
        )

    def interned_argument(self, name: str, value: str) -> bytes:
        """An argument of a slice that many slices have."""
        what = _number(_ARGUMENT_NAME, self.intern(Interned.ARGUMENT, name))
        return _content(_ARGUMENT, what + _number(_TEXT, self.intern(Interned.TEXT, value)))

    def counted(self, name: str, value: int) -> bytes:
        """An argument of a slice that is a whole number."""
        what = _number(_ARGUMENT_NAME, self.intern(Interned.ARGUMENT, name))
        return _content(_ARGUMENT, what + _number(_WHOLE, value))

    def slice(self, track: bytes, start: int, end: int, body: bytes) -> None:
        """From `start` to `end`, in nanoseconds, on `track` (`Track.event`); those of one track
        one after another in order of time."""
        self._event(start, _number(_TYPE, _BEGIN) + track + body)
        self._event(end, _number(_TYPE, _END) + track)

    def sample(self, track: bytes, time: int, value: float) -> None:
        """The value of a counter from `time`, in nanoseconds, on."""
        self._event(time, _number(_TYPE, _SAMPLE) + track + _real(_VALUE, value))

    def _event(self, time: int, body: bytes) -> None:
        self._packet(
            _number(_TIMESTAMP, time) + _content(_TRACK_EVENT, body) + _number(_FLAGS, _INCREMENTAL)
        )


def arrows(leaving: Iterable[int], arriving: Iterable[int]) -> bytes:
    """The arrows, by number, that leave a slice and those that end at it."""
    return b"".join(
        [
            *(_fixed(_FLOW, each) for each in leaving),
            *(_fixed(_FLOW_END, each) for each in arriving),
        ]
    )

"""The file around its sections: magic, version, table with checksums.

    header     magic (8 bytes), version, lowest version of a reader, sections (4 bytes each),
               checksum of the table (4), bytes of the file (8)
    table      for each section: name (16 bytes, zeros behind it), number (4), checksum (4),
               offset (8), bytes (8)
    sections   in the order of the table, each at the next multiple of 64, zeros in between

Everything is little-endian; checksums are CRC-32 as zlib computes it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

from simmodel.loadable.wire import LoadableError

MAGIC = b"\x89NPU\r\n\x1a\n"
VERSION, OLDEST = 2, 2
"""What is written, and the lowest version of a reader that understands it."""
ALIGNMENT = 64
_HEADER, _ENTRY = struct.Struct("<8sIIIIQ"), struct.Struct("<16sIIQQ")
Name = tuple[str, int]
"""Name and number of a section: `code` has one for each core."""
Section = tuple[int, memoryview]
"""Offset in the file, and bytes."""


def packed(sections: Mapping[Name, bytes]) -> bytes:
    """A file of these sections."""
    at = _HEADER.size + _ENTRY.size * len(sections)
    table, body = bytearray(), bytearray()
    for (name, number), content in sections.items():
        gap = -at % ALIGNMENT
        body += bytes(gap) + content
        at += gap
        checksum = zlib.crc32(content)
        table += _ENTRY.pack(name.encode("ascii"), number, checksum, at, len(content))
        at += len(content)
    header = _HEADER.pack(MAGIC, VERSION, OLDEST, len(sections), zlib.crc32(table), at)
    return header + bytes(table) + bytes(body)


def unpacked(data: bytes) -> dict[Name, Section]:
    """The sections of a file.

    Raises:
        LoadableError: it is none, is for newer readers, is cut off or damaged.
    """
    count, checksum = _header(data)
    end = _HEADER.size + _ENTRY.size * count
    if end > len(data):
        there = (len(data) - _HEADER.size) // _ENTRY.size
        raise LoadableError(
            16, f"expected {count} sections, there is room for {there} in the table"
        )
    table = memoryview(data)[_HEADER.size : end]
    if zlib.crc32(table) != checksum:
        raise LoadableError(_HEADER.size, "the table of sections is damaged: another checksum")
    found: dict[Name, Section] = {}
    for index in range(count):
        at = _HEADER.size + index * _ENTRY.size
        name, section, end = _section(data, at, end)
        if name in found:
            raise LoadableError(at, f"expected different sections, {_said(name)} is there twice")
        found[name] = section
    if end != len(data):
        raise LoadableError(end, f"expected the end of the file, found {len(data) - end} bytes")
    return found


def _header(data: bytes) -> tuple[int, int]:
    """Number of sections, and checksum of their table."""
    if data[: len(MAGIC)] != MAGIC:
        found = data[: len(MAGIC)].hex(" ") or "nothing"
        raise LoadableError(0, f"no loadable: expected {MAGIC.hex(' ')}, found {found}")
    if len(data) < _HEADER.size:
        raise LoadableError(len(data), f"expected a header of {_HEADER.size} bytes, it is cut off")
    _, version, oldest, count, checksum, size = _HEADER.unpack_from(data)
    if oldest > VERSION:
        said = f"format {version}, for readers of format {oldest} on; this one reads {VERSION}"
        raise LoadableError(12, f"{said}: use a newer archgen")
    if version < OLDEST:
        said = f"format {version}; this reader knows {OLDEST} .. {VERSION}"
        raise LoadableError(8, f"{said}: compile the network again")
    if size != len(data):
        raise LoadableError(24, f"expected {size} bytes, the file has {len(data)}")
    return count, checksum


def _section(data: bytes, at: int, end: int) -> tuple[Name, Section, int]:
    """The section whose entry is at `at`; the one before it ends at `end`, it at the last value."""
    raw, number, checksum, offset, size = _ENTRY.unpack_from(data, at)
    text = raw.rstrip(b"\0").decode("ascii", "replace")
    if not (text.isascii() and text.isidentifier()):
        raise LoadableError(at, f"expected the name of a section, found {raw!r}")
    name = text, number
    start = end + -end % ALIGNMENT
    if offset != start:
        raise LoadableError(at + 24, f"expected {_said(name)} at {start}, found {offset}")
    if offset + size > len(data):
        said = f"{size} bytes of {_said(name)}, {max(0, len(data) - offset)} are left"
        raise LoadableError(at + 32, f"expected at most what is left, found {said}")
    if any(data[end:start]):
        raise LoadableError(end, f"expected zeros before {_said(name)}")
    content = memoryview(data)[offset : offset + size]
    if zlib.crc32(content) != checksum:
        raise LoadableError(offset, f"{_said(name)} is damaged: another checksum")
    return name, (offset, content), offset + size


def _said(name: Name) -> str:
    return f"section {name[0]} {name[1]}" if name[1] else f"section {name[0]}"

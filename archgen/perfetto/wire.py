"""Protocol buffers' wire format, as far as a trace needs it: fields to bytes.

The one idea: a message is the concatenation of its fields, so every function returns bytes and
messages are built by adding them up. Parts that many messages share are encoded once.
"""

from __future__ import annotations

from struct import pack

_SHORT = tuple(bytes([value]) for value in range(128))


def varint(value: int) -> bytes:
    """A whole number that is not negative, seven bits a byte, lowest first."""
    if value < 128:
        return _SHORT[value]
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """A whole number that is not negative, as `uint64`, `int64` or an enumeration."""
    return varint(field << 3) + varint(value)


def fixed(field: int, value: int) -> bytes:
    """A whole number below 2 to the 64th, as `fixed64`."""
    return varint(field << 3 | 1) + pack("<Q", value)


def real(field: int, value: float) -> bytes:
    """A `double`."""
    return varint(field << 3 | 1) + pack("<d", value)


def content(field: int, value: bytes) -> bytes:
    """A message, or bytes."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A `string`."""
    return content(field, value.encode())

"""Where tensors lie between groups, in DRAM or in shared memory.

Constants and ports lie in DRAM for good, the rest for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GRAIN = 64
"""Every buffer starts at a multiple of this many bytes."""


@dataclass(frozen=True)
class Span:
    """A buffer's size and the steps in which it is alive, both ends included."""

    name: str
    size: int
    first: int
    last: int


def place(spans: Sequence[Span], start: int = 0) -> tuple[dict[str, int], int]:
    """First-fit addresses, largest first, for spans that overlap in time; and the end of all.

    Args:
        spans: what to place, in bytes.
        start: lowest address that is free.
    """
    placed: list[tuple[int, Span]] = []
    addresses: dict[str, int] = {}
    end = start
    for span in sorted(spans, key=lambda s: (-s.size, s.first, s.name)):
        address = lowest(span, placed, start=start)
        placed.append((address, span))
        addresses[span.name] = address
        end = max(end, address + span.size)
    return addresses, end


def lowest(
    span: Span, placed: Sequence[tuple[int, Span]], grain: int = GRAIN, start: int = 0
) -> int:
    """The lowest address that is free of all that is `placed` while `span` lives.

    Args:
        span: what to place.
        placed: addresses in bytes, and what lies there.
        grain: the address is a multiple of this many bytes, if `start` is one.
        start: lowest address that may be used.
    """
    busy = sorted(
        (address, address + other.size)
        for address, other in placed
        if other.first <= span.last and span.first <= other.last
    )
    address = start
    for low, high in busy:
        if address + span.size <= low:
            break
        address = max(address, -(-high // grain) * grain)
    return address

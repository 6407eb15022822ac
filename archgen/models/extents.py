"""Extents of a free input dimension as they are asked for: `128`, several that are compared, or a
range `1..512` of which each is one, known only when the program runs.

The one idea: options, study files and calls all have them read here, so what is a way of asking for
extents is said once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

_DIGITS = 18
"""More of them than any extent has, and few enough for every library's integers."""
Bound: TypeAlias = tuple[tuple[str, int], ...]
"""One extent for each dimension, sorted by name."""
Ranges: TypeAlias = tuple[tuple[str, "SizeRange"], ...]
"""Some dimensions, sorted by name, with the range that each is in."""


@dataclass(frozen=True)
class SizeRange:
    """Extents from `low` to `high`, for which there is one program."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True)
class Extents:
    """The extents that one dimension is asked for at, at least one, each once."""

    values: tuple[int, ...]
    ranges: tuple[SizeRange, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, (*self.values, *self.ranges)))

    @property
    def only(self) -> int | SizeRange | None:
        """The extent or range where there is one; None where several are compared."""
        every: tuple[int | SizeRange, ...] = (*self.values, *self.ranges)
        return every[0] if len(every) == 1 else None


def extents(given: Extents | int | str | Sequence[int], ranges: bool = False) -> Extents:
    """What `128`, `"128,512"`, `[128, 512]` or, with `ranges`, `"1..512"` ask for.

    Ranges may lie inside each other, as 1..128 in 1..512 (what does the wider one cost?), but not
    overlap in part. Raises ValueError: it is none of these, or they do.
    """
    if isinstance(given, Extents):
        return given
    found: Sequence[object]
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        found = [(_range(part) if ranges else None) or _parse_size(part) for part in parts]
    else:
        found = given if isinstance(given, Sequence) else (given,)
    spans = [each for each in found if isinstance(each, SizeRange)]
    whole = [each for each in found if isinstance(each, int) and not isinstance(each, bool)]
    if not found or len(whole) + len(spans) < len(found):
        more = f", or a rising range from 1 on such as {_mended(given)}" if ranges else ""
        raise ValueError(
            f"{given!r}: expected a size such as 128, or several such as 128,512{more}"
        )
    _check_overlaps(spans)
    return Extents(tuple(dict.fromkeys(whole)), tuple(dict.fromkeys(spans)))


def _mended(given: object) -> str:
    """An example of ranges: those of `given`, each rising, and from 1 on."""
    parts = given.split(",") if isinstance(given, str) else ()
    found = [str(span) for span in map(_risen, parts) if span is not None]
    return ",".join(found) or "1..512"


def _risen(part: str) -> SizeRange | None:
    ends = [_parse_size(end.strip()) for end in part.split("..")]
    known = sorted(max(1, end) for end in ends if end is not None)
    return SizeRange(*known) if len(known) == len(ends) == 2 else None


def _check_overlaps(spans: Sequence[SizeRange]) -> None:
    """Raises ValueError where ranges share a part of each: a typing error, mostly."""
    rising = sorted(set(spans), key=lambda span: (span.low, -span.high))
    for index, one in enumerate(rising):
        for other in rising[index + 1 :]:
            if one.low < other.low <= one.high < other.high:
                apart, all_ = SizeRange(one.high + 1, other.high), SizeRange(one.low, other.high)
                raise ValueError(
                    f"{one} and {other} overlap in {SizeRange(other.low, one.high)}; side by side "
                    f"they are {one},{apart}, and as one {all_}"
                )


def _parse_size(text: str) -> int | None:
    good = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return int(text) if good else None


def _range(text: str) -> SizeRange | None:
    """`1..512`."""
    low, dots, high = text.partition("..")
    first, last = _parse_size(low.strip()), _parse_size(high.strip())
    if not dots or first is None or last is None or not 0 < first <= last:
        return None
    return SizeRange(first, last)


@dataclass(frozen=True)
class Shape:
    """One extent for each dimension, and the ranges for which the program is that runs there."""

    dims: Bound
    ranges: Ranges = ()


def shapes(dims: Mapping[str, Extents]) -> Iterator[Shape]:
    """Every combination of extents, the last dimension by name running fastest; of a range its
    ends and the powers of two between them."""
    names = sorted(dims)
    for chosen in product(*(_each(dims[name]) for name in names)):
        sizes = tuple((name, size) for name, (size, _) in zip(names, chosen, strict=True))
        spans = ((name, span) for name, (_, span) in zip(names, chosen, strict=True))
        yield Shape(sizes, tuple((name, span) for name, span in spans if span is not None))


def asked(shape: Shape) -> dict[str, Extents]:
    """What asks for one shape and for its ranges."""
    held = {name: Extents((size,)) for name, size in shape.dims}
    return held | {name: Extents((), (span,)) for name, span in shape.ranges}


def _each(given: Extents) -> Iterator[tuple[int, SizeRange | None]]:
    for value in given.values:
        yield value, None
    for span in given.ranges:
        powers = (1 << n for n in range(span.high.bit_length()))
        inside = {span.low, *(p for p in powers if span.low < p < span.high), span.high}
        yield from ((size, span) for size in sorted(inside))

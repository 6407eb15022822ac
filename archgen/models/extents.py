"""Extents of a free input dimension as they are asked for: `128`, several that are compared, or a
range `1..512` of which each is one, known only when the program runs.

The one idea: options, study files and calls all have them read here, so what is a way of asking for
extents is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from numpy.typing import NDArray

from archgen.models.load import SourceModel, open_model, without_weights
from compiler.api import constant_values
from simmodel.isa.region import Register

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
    spans: list[SizeRange] = []
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        spans = [span for part in parts if ranges and (span := _range(part)) is not None]
        plain = [part for part in parts if not ranges or _range(part) is None]
        values: Sequence[object] = [_parse_size(part) for part in plain]
    else:
        values = given if isinstance(given, Sequence) else (given,)
    whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if not (whole or spans) or len(whole) < len(values):
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


def left_out(spans: Iterable[SizeRange]) -> list[SizeRange]:
    """What lies between `spans` and is in none of them."""
    found: list[SizeRange] = []
    end: int | None = None
    for span in sorted(set(spans), key=lambda span: span.low):
        if end is not None and span.low > end + 1:
            found.append(SizeRange(end + 1, span.low - 1))
        end = span.high if end is None else max(end, span.high)
    return found


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


# A network at all lengths of some free dimensions: opened at any of them.

Array = NDArray[Any]


@dataclass(frozen=True)
class SourceFamily:
    """A network as the user gave it, with ranges for some of its dimensions."""

    spec: str | Path
    batch: int | None
    dims: Mapping[str, int]
    ranges: Mapping[str, SizeRange]
    roles: Mapping[str, str]

    @property
    def name(self) -> str:
        """The network's."""
        return self.edge.name

    @property
    def registers(self) -> tuple[Register, ...]:
        """Lengths that are known only when a program runs."""
        return tuple(Register(name, r.low, r.high) for name, r in self.ranges.items())

    @cached_property
    def edge(self) -> SourceModel:
        """The network at the upper edge of all ranges."""
        return self._open({name: r.high for name, r in self.ranges.items()})

    def at(self, lengths: Mapping[str, int]) -> SourceModel:
        """The network at one length of each range, or beyond; ModelError where there is none. That
        at the upper edge alone is kept: each has all weights of its own."""
        edge = all(lengths[name] == r.high for name, r in self.ranges.items())
        return self.edge if edge else self._open(lengths)

    def _open(self, lengths: Mapping[str, int]) -> SourceModel:
        dims = {**self.dims, **lengths}
        return open_model(self.spec, self.batch, dims, roles=self.roles, ranges=self.ranges)

    def inside(self, lengths: Mapping[str, int]) -> bool:
        """Whether all lengths are within their ranges."""
        return all(r.low <= lengths[name] <= r.high for name, r in self.ranges.items())

    def constants(
        self,
        names: Collection[str],
        lengths: Mapping[str, int],
        compute: Callable[[onnx.ModelProto], Array | None] | None = None,
    ) -> dict[str, Array]:
        """Values that follow from constants and lengths alone; to the last bit as ``compute``
        says, where that is given."""
        return constant_values(self.shapes(lengths), names, self._initializers.get, compute)

    def shapes(self, lengths: Mapping[str, int]) -> onnx.ModelProto:
        """The network at one length of each range; initializers may be without data."""
        return without_weights(self.spec, self.batch, {**self.dims, **lengths}, self.roles)

    @cached_property
    def _initializers(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self.edge.proto.graph.initializer}


def open_family(
    spec: str | Path,
    batch: int | None,
    dims: Mapping[str, int],
    ranges: Mapping[str, SizeRange],
    roles: Mapping[str, str],
) -> SourceFamily:
    """Opens ``spec`` for all lengths of ``ranges``; the rest as of `open_model`.

    Raises ``ModelError`` with every mistake; also where there is no such network at the lower end.
    """
    family = SourceFamily(spec, batch, dict(dims), dict(ranges), dict(roles))
    family.at({name: span.low for name, span in ranges.items()})
    _ = family.edge
    return family

"""Extents of a free input dimension as they are asked for: `128`, or several that are compared.

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


@dataclass(frozen=True)
class Extents:
    """The extents that one dimension is asked for at, at least one, each once."""

    values: tuple[int, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    @property
    def only(self) -> int | None:
        """The extent where there is one; None where several are compared."""
        return self.values[0] if len(self.values) == 1 else None


def extents(given: Extents | int | str | Sequence[int]) -> Extents:
    """What `128`, `"128,512"` or `[128, 512]` ask for.

    Raises ValueError: it is none of these.
    """
    if isinstance(given, Extents):
        return given
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        known = [part.isascii() and part.isdigit() and len(part) <= _DIGITS for part in parts]
        values: Sequence[object] = [int(part) for part in parts] if all(known) else ()
    else:
        values = given if isinstance(given, Sequence) else (given,)
    whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool)]
    if not whole or len(whole) < len(values):
        raise ValueError(f"{given!r}: expected a size such as 128, or several such as 128,512")
    return Extents(tuple(dict.fromkeys(whole)))


def shapes(dims: Mapping[str, Extents]) -> Iterator[Bound]:
    """Every combination of extents, the last dimension by name running fastest."""
    names = sorted(dims)
    for chosen in product(*(dims[name].values for name in names)):
        yield tuple(zip(names, chosen, strict=True))

"""An array whose numbers are made when somebody asks for them, and kept by nobody.

The one idea: weights are large and rarely looked at. A schedule needs their shapes and types, a
program their size; so a constant is a shape, a type and a function, and what is made of it (a
conversion, another order of its axes, tiles one behind the other) is another function around that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simmodel.arch.dtype import Array


@dataclass(frozen=True, eq=False)
class LazyArray:
    """Numbers of a known shape and type; `np.asarray` makes them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    make: Callable[[], Array] = field(repr=False)
    pieces: Callable[[], Pieces] | None = field(default=None, repr=False)
    """Makes the same by rows of the first axis, some at a time, where that takes less memory."""
    key: str = ""
    """What tells the numbers from others; empty: nothing shorter than they are."""

    @property
    def ndim(self) -> int:
        """As of an array, like `size` and `nbytes`."""
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        made = np.asarray(self.make())
        return made if dtype is None else made.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Array]]:
        return np.asarray, (self.make(),)  # functions do not travel to other processes


AnyArray = Array | LazyArray
"""The numbers of a constant. Both kinds have a shape, a type and a size."""


Pieces = Iterator[tuple[slice, Array]]
"""Positions along the first axis, and the numbers there: each position once, in any order."""


def in_pieces(given: AnyArray) -> Pieces:
    """The numbers of `given`, as few at a time as it can make."""
    if isinstance(given, LazyArray) and given.pieces is not None:
        return given.pieces()
    whole = np.asarray(given)
    return iter([(slice(0, len(whole) if whole.ndim else 1), whole)])


def elementwise(
    given: AnyArray, dtype: np.dtype[Any], told: str, change: Callable[[Array], Array]
) -> LazyArray:
    """What `change`, which has a name and a type, makes of each number by itself."""

    if not isinstance(given, LazyArray) or given.pieces is None:
        return LazyArray(given.shape, dtype, lambda: change(np.asarray(given)))

    def make() -> Array:
        made = np.empty(given.shape, dtype)
        for cut, piece in in_pieces(given):
            made[cut] = change(piece)
        return made

    def pieces() -> Pieces:
        return ((cut, change(piece)) for cut, piece in in_pieces(given))

    return LazyArray(given.shape, dtype, make, pieces, given.key and f"{given.key} {told} {dtype}")


def cast(given: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """`given` as another type."""
    if given.dtype == dtype:
        return given
    return elementwise(given, dtype, "cast", lambda each: each.astype(dtype))


def transformed(given: AnyArray, change: Callable[[Array], Array]) -> LazyArray:
    """What `change` makes of `given`: other axes, or a part of it, in the same type."""
    outline = change(np.broadcast_to(np.empty((), given.dtype), given.shape))
    return LazyArray(outline.shape, given.dtype, lambda: change(np.asarray(given)))

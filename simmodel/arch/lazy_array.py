"""An array whose numbers are made when somebody asks for them, and kept by nobody.

The one idea: weights are large and rarely looked at. A schedule needs their shapes and types, a
program their size; so a constant is a shape, a type and a function, and what is made of it (a
conversion, another order of its axes, tiles one behind the other) is another function around that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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
    parts: Callable[[], Iterable[Array]] | None = field(default=None, repr=False)
    """The same one after another, of any shapes, where they need not all be there at once."""

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


def write(given: AnyArray, out: Array) -> None:
    """Write numbers to `out`, as many elements in a row of their type, with as few as may be there
    besides."""
    lazy, end = given.parts if isinstance(given, LazyArray) else None, 0
    parts = (np.asarray(given),) if lazy is None else lazy()
    for part in parts:
        start, end = end, end + part.size
        out[start:end].reshape(part.shape)[...] = part
    assert end == out.size


def in_parts(
    shape: tuple[int, ...], dtype: np.dtype[Any], parts: Callable[[], Iterable[Array]]
) -> LazyArray:
    """Numbers that are made one part after another."""

    def make() -> Array:
        made = np.empty(shape, dtype)
        write(LazyArray(shape, dtype, make, parts), made.reshape(-1))
        return made

    return LazyArray(shape, dtype, make, parts)


def cast(given: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """`given` as another type."""
    if given.dtype == dtype:
        return given
    return LazyArray(given.shape, dtype, lambda: np.asarray(given).astype(dtype))


def transformed(given: AnyArray, change: Callable[[Array], Array]) -> LazyArray:
    """What `change` makes of `given`: other axes, or a part of it, in the same type."""
    outline = change(np.broadcast_to(np.empty((), given.dtype), given.shape))
    return LazyArray(outline.shape, given.dtype, lambda: change(np.asarray(given)))

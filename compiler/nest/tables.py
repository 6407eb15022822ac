"""Constants that depend on a length: rows of a table that has one for each.

    cosines of position p, for past=p of 1..512    ->    table[512, 1, 64], row past - 1

What an exporter computes from the length of a cache is a constant once that length is known, such
as the embedding of the next position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from compiler.nest.build import within
from compiler.nest.ir import Array, NestGraph, Storage, Tensor, row_major
from compiler.nest.registers import Point, edge_of
from simmodel.dtype import NUMPY
from simmodel.region import Register

Constants = Callable[[Collection[str], Mapping[str, int]], Mapping[str, Array]]
"""Values of some constants of a network, by name, at one length of each register; without those
that nobody knows."""

_LARGEST = 1 << 26
"""Elements of a table."""
_MOST_ROWS = 1 << 12
"""Of a table for several lengths, each of which the network is looked at for."""


def no_constants(names: Collection[str], values: Mapping[str, int]) -> Mapping[str, Array]:
    """Where nobody knows any."""
    del names, values
    return {}


@dataclass(frozen=True)
class Row:
    """A table, and where the constant lies in it."""

    table: Tensor
    row: Storage


def tables_of(
    varying: Mapping[str, Mapping[Point, Tensor]],
    edge: NestGraph,
    registers: Sequence[Register],
    constants: Constants,
) -> dict[str, Row | str]:
    """For each constant of `varying`, which are known at some points, its table; or why there is
    none, in words."""
    found: dict[str, Row | str] = {}
    wanted: dict[tuple[Register, ...], list[str]] = {}
    for name, seen in varying.items():
        on = _depends(seen, registers)
        why = _refusal(seen, edge, on)
        if why is None:
            wanted.setdefault(on, []).append(name)
        else:
            found[name] = why
    for on, names in wanted.items():
        rows = _rows(names, on, registers, constants)
        for name in names:
            found[name] = _table(varying[name], rows[name], on, registers)
    return found


def _depends(seen: Mapping[Point, Tensor], registers: Sequence[Register]) -> tuple[Register, ...]:
    """The registers for which a constant is not just the beginning of what it is at the edge."""
    edge = edge_of(registers)
    whole = seen[edge]
    return tuple(
        register
        for position, register in enumerate(registers)
        if any(
            not begins_alike(tensor.data, whole.data)
            for point, tensor in seen.items()
            if all((point[i] == edge[i]) != (i == position) for i in range(len(point)))
        )
    )


def _refusal(seen: Mapping[Point, Tensor], edge: NestGraph, on: Sequence[Register]) -> str | None:
    """Why a constant has no row for each length."""
    tensor = next(iter(seen.values()))
    names = " and ".join(register.name for register in on)
    if not on:
        return "depends on several lengths at once"
    shared = [t for t in edge.tensors.values() if t.storage.buffer == tensor.storage.buffer]
    if len(shared) > 1:
        return f"has other values for another {names}, and views"
    rows = math.prod(register.high - register.low + 1 for register in on)
    size = tensor.elements * rows
    if size > _LARGEST or (len(on) > 1 and rows > _MOST_ROWS):
        return f"has other values for each {names}, which are {size} in {rows} rows"
    return None


def _rows(
    names: Sequence[str], on: Sequence[Register], registers: Sequence[Register],
    constants: Constants,
) -> dict[str, list[Array | None]]:  # fmt: skip
    """Values of each constant at each length of `on`, the last of which changes first."""
    edge = {each.name: each.high for each in registers}
    found: dict[str, list[Array | None]] = {name: [] for name in names}
    for lengths in product(*(range(each.low, each.high + 1) for each in on)):
        at = dict(zip((each.name for each in on), lengths, strict=True))
        made = constants(names, edge | at)
        for name in names:
            found[name].append(made.get(name))
    return found


def _table(
    seen: Mapping[Point, Tensor], rows: Sequence[Array | None], on: Sequence[Register],
    registers: Sequence[Register],
) -> Row | str:  # fmt: skip
    """The table of one constant, if it has what is known of it."""
    tensor = seen[edge_of(registers)]
    lengths = " and ".join(register.name for register in on)
    other = f"has other values for another {lengths}, not just fewer"
    given = [_as_at_edge(row, tensor.shape) for row in rows]
    whole = [row for row in given if row is not None]
    if len(whole) < len(rows):
        return other
    spans = tuple(register.high - register.low + 1 for register in on)
    exact = np.stack(whole).reshape(*spans, *tensor.shape)
    data = np.asarray(within(exact, tensor.dtype), NUMPY[tensor.dtype])
    places = [list(registers).index(register) for register in on]
    for point, each in seen.items():
        row = tuple(point[place] - registers[place].low for place in places)
        known = all(0 <= index < span for index, span in zip(row, spans, strict=True))
        fits = all(n <= m for n, m in zip(each.shape, tensor.shape, strict=True))
        if known and fits and _beginning(data[row], each.shape) != _bytes(each):
            return other
    name = f"{tensor.name}@{'@'.join(register.name for register in on)}"
    strides = row_major(data.shape)
    table = Tensor(
        name, data.shape, tensor.dtype, Storage(name, 0, strides), data,
        None if tensor.exact is None else exact,
    )  # fmt: skip
    start = sum((span - 1) * step for span, step in zip(spans, strides, strict=False))
    terms = tuple((each.name, step) for each, step in zip(on, strides, strict=False))
    return Row(table, Storage(name, start, row_major(tensor.shape), terms))


def _as_at_edge(row: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Values in the shape that they have at the upper edge, behind which there is nothing; None
    where there are none of such a shape."""
    if row is None or row.size == math.prod(shape):
        return None if row is None else row.reshape(shape)
    if row.ndim != len(shape) or any(n > m for n, m in zip(row.shape, shape, strict=True)):
        return None
    return np.pad(row, [(0, m - n) for n, m in zip(row.shape, shape, strict=True)])


def begins_alike(ours: Array | None, right: Array | None) -> bool:
    """Whether two constants of one rank are the same as far as both go: one is the beginning of the
    other."""
    if ours is None or right is None:
        return ours is right
    both = tuple(slice(0, min(n, m)) for n, m in zip(ours.shape, right.shape, strict=True))
    return ours.dtype == right.dtype and ours[both].tobytes() == right[both].tobytes()


def _beginning(values: Array | None, shape: tuple[int, ...]) -> bytes:
    """The bytes of as many positions along each axis."""
    return b"" if values is None else values[tuple(slice(0, n) for n in shape)].tobytes()


def _bytes(tensor: Tensor) -> bytes:
    return b"" if tensor.data is None else tensor.data.tobytes()

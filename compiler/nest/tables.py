"""Constants that depend on a length: rows of a table that has one for each.

    cosines of position p, for past=p of 1..512    ->    table[512, 1, 64], row past - 1

What an exporter computes from the length of a cache is a constant once that length is known, such
as the embedding of the next position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

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
    wanted: dict[Register, list[str]] = {}
    for name, seen in varying.items():
        on = _depends(seen, registers)
        why = _refusal(seen, edge, on)
        if why is None:
            wanted.setdefault(on[0], []).append(name)
        else:
            found[name] = why
    for register, names in wanted.items():
        rows = _rows(names, register, registers, constants)
        position = list(registers).index(register)
        for name in names:
            found[name] = _table(varying[name], rows[name], position, register, registers)
    return found


def _depends(seen: Mapping[Point, Tensor], registers: Sequence[Register]) -> list[Register]:
    """The registers that a constant varies with where they alone are off the edge."""
    edge = edge_of(registers)
    found = []
    for position, register in enumerate(registers):
        alone = [
            p for p in seen if all((p[i] == edge[i]) != (i == position) for i in range(len(p)))
        ]
        if any(_bytes(seen[p]) != _bytes(seen[edge]) for p in alone):
            found.append(register)
    return found


def _refusal(seen: Mapping[Point, Tensor], edge: NestGraph, on: Sequence[Register]) -> str | None:
    """Why a constant has no row for each length."""
    tensor = next(iter(seen.values()))
    names = " and ".join(register.name for register in on) or "several lengths at once"
    if len(on) != 1:
        return f"depends on {names}"
    if len({each.shape for each in seen.values()}) > 1:
        return f"has other values and another shape for another {names}, not just fewer"
    shared = [t for t in edge.tensors.values() if t.storage.buffer == tensor.storage.buffer]
    if len(shared) > 1:
        return f"has other values for another {names}, and views"
    size = tensor.elements * (on[0].high - on[0].low + 1)
    if size > _LARGEST:
        return f"has other values for each {names}, which are {size} together"
    return None


def _rows(
    names: Sequence[str], register: Register, registers: Sequence[Register], constants: Constants
) -> dict[str, list[Array | None]]:
    """Values of each constant at each length of `register`."""
    edge = {each.name: each.high for each in registers}
    found: dict[str, list[Array | None]] = {name: [] for name in names}
    for length in range(register.low, register.high + 1):
        made = constants(names, {**edge, register.name: length})
        for name in names:
            found[name].append(made.get(name))
    return found


def _table(
    seen: Mapping[Point, Tensor], rows: Sequence[Array | None], position: int, register: Register,
    registers: Sequence[Register],
) -> Row | str:  # fmt: skip
    """The table of one constant, if it has what is known of it."""
    tensor = seen[edge_of(registers)]
    other = f"has other values for another {register.name}, not just fewer"
    given = [row for row in rows if row is not None and row.size == tensor.elements]
    if len(given) < len(rows):
        return other
    flat = within(np.stack([row.reshape(-1) for row in given]), tensor.dtype)
    data = np.asarray(flat, NUMPY[tensor.dtype]).reshape(-1, *tensor.shape)
    for point, each in seen.items():
        row = point[position] - register.low
        if 0 <= row < len(data) and data[row].tobytes() != _bytes(each):
            return other
    name = f"{tensor.name}@{register.name}"
    exact = None
    if tensor.exact is not None:
        exact = np.stack([row.reshape(-1) for row in given]).reshape(data.shape)
    table = Tensor(
        name, data.shape, tensor.dtype, Storage(name, 0, row_major(data.shape)), data, exact
    )
    start, size = (register.high - register.low) * tensor.elements, tensor.elements
    terms = ((register.name, size),)
    return Row(table, Storage(name, start, row_major(tensor.shape), terms))


def _bytes(tensor: Tensor) -> bytes:
    return b"" if tensor.data is None else tensor.data.tobytes()

"""Which axes of a network's values are open: as long as lengths say that are known only when it
runs.

The one idea: as whatever follows from a length, that shows where the network at one length is
compared with itself at another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import NamedTuple

import onnx_ir as ir

from compiler.frontend.rewrite import static_shape

OpenAxes = Mapping[str, frozenset[int]]
"""By the names that values have behind `load`; values all of whose axes are fixed are not there."""

_OPEN = "archgen.open"


def open_axes(model: ir.Model, others: Iterable[ir.Model]) -> OpenAxes:
    """The axes along which values of `model` have another extent in some of `others`, the same
    network at other lengths; all as `load` makes them."""
    shapes = {str(value.name): static_shape(value) for value in _model_values(model)}
    found: dict[str, frozenset[int]] = {}
    for other in others:
        for value in _model_values(other):
            name = str(value.name)
            ours, theirs = shapes.get(name, ()), static_shape(value)
            pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ()
            differ = {axis for axis, (a, b) in enumerate(pairs) if a != b}
            if differ:
                found[name] = found.get(name, frozenset()) | differ
    return found


def mark_open(model: ir.Model, axes: OpenAxes) -> None:
    """Say of each value of `model`, as `load` makes it, which of its axes are open."""
    for value in _model_values(model):
        if str(value.name) in axes:
            say_open(value, axes[str(value.name)])


def say_open(value: ir.Value, axes: Iterable[int]) -> None:
    """Say which axes of `value` are open."""
    value.meta[_OPEN] = frozenset(axes)


def open_of(value: ir.Value) -> frozenset[int]:
    """The open axes of `value`; none where nobody has said so."""
    found: frozenset[int] = value.meta.get(_OPEN, frozenset())
    return found


def _model_values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph:
        yield from (value for value in node.outputs if value.name)


# Reshapes that merge axes of which several are open, as what they merge.


class Piece(NamedTuple):
    """An axis before it is merged with others."""

    extent: int
    open: bool


Pieces = tuple[Piece, ...]
"""What one axis is made of, slowest first."""


def pieces_of(shape: Sequence[int], open_axes: Collection[int]) -> Pieces:
    """The axes of a value, each as a piece."""
    return tuple(Piece(extent, axis in open_axes) for axis, extent in enumerate(shape))


def extents(axes: Iterable[Pieces]) -> tuple[int, ...]:
    """The shape of a value whose axes are not merged."""
    return tuple(piece.extent for piece in chain.from_iterable(axes))


def has_gaps(pieces: Pieces) -> bool:
    """Whether a buffer has no single axis for `pieces`: one is open behind another one."""
    first = next((i for i, piece in enumerate(pieces) if piece.open or piece.extent > 1), 0)
    return any(piece.open for piece in pieces[first + 1 :])


def merged(source: Pieces, target: Pieces) -> tuple[Pieces, ...] | None:
    """What each axis of a Reshape is made of; axes that have gaps of several pieces, others of
    themselves alone. None: what becomes of open axes cannot be told."""
    if not all(piece.extent for piece in (*source, *target)):
        return None
    found: list[Pieces] = []
    for before, behind in _stretches(source, target):
        apart = _runs(before, behind) if has_gaps(before) else []
        if apart is None:
            return None
        found += apart if any(map(has_gaps, apart)) else [(piece,) for piece in behind]
    return tuple(found)


def _stretches(source: Pieces, target: Pieces) -> Iterator[tuple[Pieces, Pieces]]:
    """The least stretches of axes that have as many elements in the source as in the target."""
    i = j = 0
    while i < len(source) or j < len(target):
        first, start = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while (ours := prod(extents([source[first:i]]))) != (
            theirs := prod(extents([target[start:j]]))
        ):
            i, j = (i + 1, j) if ours < theirs else (i, j + 1)
        yield source[first:i], target[start:j]


def _runs(source: Pieces, target: Pieces) -> list[Pieces] | None:
    """What each axis of one stretch is made of, where a fixed axis may be cut in two."""
    left = list(source)
    runs: list[Pieces] = []
    for axis in reversed(target):
        wanted, run = axis.extent, [axis] if axis.extent == 1 else []
        while wanted > 1:
            piece = left.pop()
            if wanted % piece.extent == 0:
                wanted //= piece.extent
            elif piece.extent % wanted == 0 and not piece.open:
                left.append(Piece(piece.extent // wanted, False))
                piece, wanted = Piece(wanted, False), 1
            else:
                return None
            run.insert(0, piece)
        runs.insert(0, tuple(run))
    return [(*left, *runs[0]), *runs[1:]] if runs else None

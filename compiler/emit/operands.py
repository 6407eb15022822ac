"""An instruction as its loops: dimensions taken off every operand at once, merged, put in order.

The one idea: an instruction stands for a nest of loops, one for each dimension of its operands, so
whatever is done to loops is done to all operands alike: an operand loses a dimension, its address
gains a term. What remains is an instruction again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from compiler.loops.collapse import Groups, groups
from compiler.loops.walk import Axis
from simmodel.isa import Instruction, Reduce
from simmodel.region import Limit, Operand
from simmodel.turns import operands_of

Made = TypeVar("Made", bound=Instruction)


def taken(
    instruction: Made, axis: int, variable: str, start: int, size: int, *, keep: bool = False
) -> Made:
    """`instruction` on positions start + size * variable .. of dimension `axis`.

    With `size` 1 the dimension disappears unless `keep`, else it has that extent.
    """
    changes = {}
    for name, operand in operands_of(instruction).items():
        part = operand.cut(axis, variable, start, size)
        rest = [a for a in range(len(operand.shape)) if a != axis]
        changes[name] = part.along(rest) if size == 1 and not keep else part
    return replace(instruction, **changes)  # type: ignore[arg-type]


def axes_of(operands: Sequence[Operand]) -> list[Axis]:
    """Their dimensions; along one where it has extent 1 an operand stands still."""
    shapes = zip(*(operand.shape for operand in operands), strict=True)
    return [_axis(operands, number, max(column)) for number, column in enumerate(shapes)]


def _axis(operands: Sequence[Operand], number: int, extent: int) -> Axis:
    steps = [o.strides[number] if o.shape[number] > 1 else 0 for o in operands]
    shared = (o.per_byte for o, step in zip(operands, steps, strict=True) if step % o.per_byte)
    short = any(number in operand.limited for operand in operands)
    return Axis(extent, tuple(steps), max(shared, default=1), short)


def merged(instruction: Made) -> Made:
    """`instruction` with neighbouring dimensions merged where every operand walks them as one."""
    lists = list(operands_of(instruction).values())
    if len({len(operand.shape) for operand in lists}) != 1:
        return instruction
    axes = axes_of(lists)
    return grouped(instruction, groups(axes, [n for n, a in enumerate(axes) if a.extent > 1]))


def grouped(instruction: Made, found: Groups) -> Made:
    """`instruction` with one dimension for each group of `found`."""
    changes = {name: _grouped(o, found) for name, o in operands_of(instruction).items()}
    return replace(instruction, **changes)  # type: ignore[arg-type]


def _grouped(operand: Operand, found: Groups) -> Operand:
    if not found:
        return replace(operand.along([]), shape=(1,), strides=(operand.itemsize,))
    shape, limits = [], operand.along([group[-1] for group in found]).limits
    for group in found:
        extent = 1
        for axis in group:
            inner, extent = extent, extent * operand.shape[axis]
        shape.append(extent)
        limits = tuple(scaled(limit, inner, len(shape) - 1) for limit in limits)
    dims = ((group[0], extent) for group, extent in zip(found, shape, strict=True))
    strides = (0 if operand.shape[a] == 1 < extent else operand.strides[a] for a, extent in dims)
    return replace(operand, shape=tuple(shape), strides=tuple(strides), limits=limits)


def scaled(limit: Limit, inner: int, axis: int) -> Limit:
    """`limit` where each position of dimension `axis` has become `inner` of them."""
    if limit.axis != axis or inner == 1:
        return limit
    terms = tuple((name, factor * inner) for name, factor in limit.terms)
    return Limit(axis, limit.base * inner, terms)


def reduces(instruction: Instruction, axis: int) -> bool:
    """Whether `instruction` reduces over dimension `axis`."""
    if not isinstance(instruction, Reduce):
        return False
    return instruction.dst.shape[axis] == 1 and instruction.a.shape[axis] > 1


def joining(whole: Made, piece: Made, axis: int, start: int) -> Made:
    """`piece` of `whole`, which joins what earlier pieces of a reduction left."""
    if not start or not reduces(whole, axis) or not isinstance(piece, Reduce):
        return piece
    return replace(piece, partial=piece.dst)

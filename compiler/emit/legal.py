"""Making instructions fit the machine's ranks and extents by wrapping hardware loops around them.

A loop dimension is taken off every operand at once: the operand loses the dimension, its address
gains a term. What remains is exactly the instruction that the engine has, and the loops cost what
they cost on a machine with such instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

from simmodel.arch import Arch
from simmodel.isa import Copy, Fill, Instruction, Item, Loop, Reduce, VectorFamily, Window
from simmodel.region import Operand, walk


@dataclass
class Names:
    """Fresh loop variables within one program, and which kernels were compared for it."""

    def __post_init__(self) -> None:
        self._numbers = count()
        self.offers: dict[tuple[str, str], Any] = {}
        """By the operator's result and the kernel: an `Offer` for its largest tile."""

    def fresh(self) -> str:
        """A variable that nothing else uses."""
        return f"v{next(self._numbers)}"


def _operands(instruction: Instruction) -> dict[str, Operand]:
    values = ((f.name, getattr(instruction, f.name)) for f in fields(instruction))
    return {name: value for name, value in values if isinstance(value, Operand)}


def _with_axes(operand: Operand, axes: Sequence[int]) -> Operand:
    """The operand with only `axes`, in that order."""
    shape = tuple(operand.shape[a] for a in axes)
    return replace(operand, shape=shape, strides=tuple(operand.strides[a] for a in axes))


def taken(
    instruction: Instruction, axis: int, variable: str, start: int, size: int, *, keep: bool = False
) -> Instruction:
    """`instruction` on positions start + size * variable .. of dimension `axis`.

    With `size` 1 the dimension disappears unless `keep`, else it has that extent.
    """
    changes = {}
    for name, operand in _operands(instruction).items():
        moves = operand.shape[axis] > 1 and operand.strides[axis] != 0
        address = operand.address.plus(operand.offset(axis, start) if moves else 0)
        if moves and variable:
            address = replace(
                address, terms=(*address.terms, (variable, operand.offset(axis, size)))
            )
        if size == 1 and not keep:
            rest = [a for a in range(len(operand.shape)) if a != axis]
            changes[name] = replace(_with_axes(operand, rest), address=address)
        else:
            extent = size if operand.shape[axis] > 1 else 1
            shape = (*operand.shape[:axis], extent, *operand.shape[axis + 1 :])
            changes[name] = replace(operand, address=address, shape=shape)
    return replace(instruction, **changes)  # type: ignore[arg-type]


def merged(instruction: Instruction) -> Instruction:
    """`instruction` with neighbouring dimensions merged where every operand walks them as one."""
    operands = _operands(instruction)
    if len({len(o.shape) for o in operands.values()}) != 1:
        return instruction
    lists = list(operands.values())
    extents = [max(column) for column in zip(*(o.shape for o in lists), strict=True)]
    groups: list[list[int]] = []
    for axis in range(len(extents) - 1, -1, -1):
        if extents[axis] == 1:
            continue
        if groups and _continues(lists, axis, groups[-1]):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    groups.reverse()
    return replace(instruction, **{n: _merge(o, groups) for n, o in operands.items()})  # type: ignore[arg-type]


def _continues(operands: list[Operand], axis: int, inner: list[int]) -> bool:
    for operand in operands:
        uniform = all((operand.shape[a] == 1) == (operand.shape[axis] == 1) for a in inner)
        size = 1
        for a in inner:
            size *= operand.shape[a]
        if not uniform:
            return False
        if operand.shape[axis] > 1 and operand.strides[axis] != size * operand.strides[inner[0]]:
            return False
    return True


def _merge(operand: Operand, groups: list[list[int]]) -> Operand:
    shape, strides = [], []
    for group in groups:
        extent = 1
        for axis in group:
            extent *= operand.shape[axis]
        shape.append(extent)
        strides.append(operand.strides[group[0]])
    if not groups:
        return replace(operand, shape=(1,), strides=(operand.itemsize,))
    return replace(operand, shape=tuple(shape), strides=tuple(strides))


def legal_vector(instruction: VectorFamily, arch: Arch, names: Names) -> list[Item]:
    """The same work in instructions of the vector engine's rank and extent.

    A reduction in several pieces joins each to what the ones before it left in the result.
    """
    rank, limit = arch.reach(instruction.form)
    if isinstance(instruction, Window):
        return _peeled(instruction, Window.RANK, limit, names)
    whole = _sorted_axes(instruction)
    return _peeled(merged(whole), rank, limit, names)


def _sorted_axes(instruction: VectorFamily) -> Instruction:
    """Dimensions in the order of the result's strides, reduced ones innermost."""
    dst = instruction.dst
    source = next(iter(instruction.reads()), dst)
    reduced = [
        isinstance(instruction, Reduce) and n == 1 and m > 1
        for n, m in zip(dst.shape, source.shape, strict=True)
    ]

    def rank(axis: int) -> tuple[int, int]:
        stride = source.strides[axis] if reduced[axis] else dst.strides[axis]
        return int(reduced[axis]), -stride if source.shape[axis] > 1 or dst.shape[axis] > 1 else 0

    order = sorted(range(len(dst.shape)), key=rank)
    operands = _operands(instruction)
    return replace(instruction, **{n: _with_axes(o, order) for n, o in operands.items()})  # type: ignore[arg-type]


def _peeled(instruction: Instruction, rank: int, limit: int | None, names: Names) -> list[Item]:
    """Loops over the outermost dimensions until `rank` are left."""
    lists = list(_operands(instruction).values())
    depth = len(lists[0].shape)
    if depth < rank:
        return _folded(instruction, limit, names)
    if depth == rank and not _worth_peeling(instruction, limit):
        return _chunked(instruction, _innermost(instruction), limit, names)
    extent = max(operand.shape[0] for operand in lists)

    def piece(variable: str, start: int) -> list[Item]:
        inner = _joining(instruction, taken(instruction, 0, variable, start, 1), 0, start)
        return _peeled(inner, rank, limit, names)

    if not _reduces(instruction, 0):
        variable = names.fresh()
        return [Loop(variable, extent, tuple(piece(variable, 0)))]
    variable = names.fresh() if extent > 2 else ""
    rest = piece(variable, 1)
    return [*piece("", 0), *([Loop(variable, extent - 1, tuple(rest))] if variable else rest)]


def _worth_peeling(instruction: Instruction, limit: int | None) -> bool:
    """Whether its rows are so long and so few that each is better an instruction, or two, in which
    the engine walks pieces of the row as rows."""
    extents, axis = [max(column) for column in _extents(instruction)], _innermost(instruction)
    if limit is None or axis == 0 or isinstance(instruction, Window | Reduce):
        return False
    whole, rest = divmod(extents[axis], limit)
    return whole > 1 and extents[0] * (1 + bool(rest)) < whole + bool(rest)


def _folded(instruction: Instruction, limit: int | None, names: Names) -> list[Item]:
    """A row that is too long, as one instruction whose rows are as long as can be, and the rest."""
    axis = _innermost(instruction)
    extent = max(_extents(instruction)[axis])
    if limit is None or extent < 2 * limit or isinstance(instruction, Window | Reduce):
        return _chunked(instruction, axis, limit, names)
    most = extent // limit * limit
    items: list[Item] = [taken(instruction, axis, "", 0, most, keep=True)]
    if rest := extent - most:
        # A rest of one position leaves another dimension innermost.
        items += _folded(taken(instruction, axis, "", most, rest, keep=True), limit, names)
    return items


def _innermost(instruction: Instruction) -> int:
    """The dimension that the engine walks fastest: of a window always its channels."""
    if isinstance(instruction, Window):
        return len(instruction.dst.shape) - 1
    lead = instruction.a if isinstance(instruction, Reduce) else instruction.writes()[0]
    extents = [max(column) for column in _extents(instruction)]
    moving = [axis for axis, extent in enumerate(extents) if extent > 1]
    fastest = min(moving, key=lambda axis: (abs(lead.strides[axis]), -axis), default=None)
    return len(extents) - 1 if fastest is None else fastest


def _extents(instruction: Instruction) -> list[tuple[int, ...]]:
    shapes = (operand.shape for operand in _operands(instruction).values())
    return list(zip(*shapes, strict=True))


def _reduces(instruction: Instruction, axis: int) -> bool:
    """Whether `instruction` reduces over dimension `axis`."""
    if not isinstance(instruction, Reduce):
        return False
    return instruction.dst.shape[axis] == 1 and instruction.a.shape[axis] > 1


def _joining(whole: Instruction, piece: Instruction, axis: int, start: int) -> Instruction:
    """`piece` of `whole`, which joins what earlier pieces of a reduction left."""
    if not start or not _reduces(whole, axis) or not isinstance(piece, Reduce):
        return piece
    return replace(piece, partial=piece.dst)


def _chunked(instruction: Instruction, axis: int, limit: int | None, names: Names) -> list[Item]:
    """Chunks of at most `limit` positions along `axis`, and along what is innermost then."""
    extent = max(_extents(instruction)[axis])
    if limit is None or extent <= limit:
        return [instruction]

    def piece(variable: str, start: int, size: int) -> list[Item]:
        part = taken(instruction, axis, variable, start, size, keep=True)
        part = _joining(instruction, part, axis, start)
        # A chunk of one position leaves another dimension innermost.
        again = size == 1 and not isinstance(part, Window)
        return _chunked(part, _innermost(part), limit, names) if again else [part]

    whole, rest = divmod(extent, limit)
    items: list[Item] = []
    first = 1 if _reduces(instruction, axis) else 0
    if first:
        items += piece("", 0, limit)
    if whole - first > 1:
        variable = names.fresh()
        body = piece(variable, first * limit, limit)
        items.append(Loop(variable, whole - first, tuple(body)))
    elif whole > first:
        items += piece("", first * limit, limit)
    if rest:
        items += piece("", whole * limit, rest)
    return items


def legal_copy(instruction: Copy, arch: Arch, names: Names) -> list[Item]:
    """The same transfer within what the copy engine can: its rank, and borders if it fills them.

    A border that cannot be filled on the way is filled first, with the whole target.
    """
    engine = arch.copy_[instruction.engine]
    src, dst = instruction.src, instruction.dst
    bordered = src.shape != dst.shape
    whole = src.elements and (engine.pad or not bordered)
    if whole and len(walk((dst, src))) <= engine.rank:
        return [instruction]
    if bordered:
        fill = Fill(
            engine=instruction.engine, origin=instruction.origin, dst=dst, value=instruction.fill
        )
        if not src.elements:
            return _ranked(fill, engine.rank, names)  # the tile lies in the border
        offset = sum(b * s for b, s in zip(instruction.before, dst.strides, strict=True))
        inside = replace(dst, address=dst.address.plus(offset), shape=src.shape)
        plain = replace(instruction, dst=inside, before=(), fill=0.0)
        return [*_ranked(fill, engine.rank, names), *legal_copy(plain, arch, names)]
    return _ranked(instruction, engine.rank, names)


def _ranked(instruction: Copy | Fill, rank: int, names: Names) -> list[Item]:
    """Loops over the slowest dimensions until at most `rank` are left."""
    dst = instruction.dst
    operands = tuple(_operands(instruction).values())
    if len(walk((dst, *operands))) <= rank:
        return [instruction]
    moving = [axis for axis, extent in enumerate(dst.shape) if extent > 1]
    axis = max(moving, key=lambda a: abs(dst.strides[a]))
    variable = names.fresh()
    inner = taken(instruction, axis, variable, 0, 1)
    assert isinstance(inner, Copy | Fill)
    return [Loop(variable, dst.shape[axis], tuple(_ranked(inner, rank, names)))]

"""Making instructions fit the machine's ranks and extents by wrapping hardware loops around them.

Which of its loops an instruction walks, which are hardware loops around it and how rows are cut is
chosen from all ways by what they cost (`compiler.target.loops.cover`); the instruction is rewritten
accordingly (`compiler.codegen.legalize`). The loops cost what they cost on a machine with such
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import compiler.target.loops.split as split
from compiler.target.loops.cover import (
    Cover,
    CoverProblem,
    ReductionKind,
    StoredOperand,
    Unit,
    cheapest,
    unit_of,
)
from simmodel.arch.record import Arch
from simmodel.isa import Copy, Fill, Instruction, Item, Loop, Product, Reduce, VectorFamily, Window
from simmodel.isa.region import Limit, Operand, replace, walk
from simmodel.program.substitute import operands_of

# An instruction as its loops: dimensions taken off every operand at once, merged, put in order.

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
    return replace(instruction, **changes)


def axes_of(operands: Sequence[Operand]) -> list[split.StridedLoop]:
    """Their dimensions; along one where it has extent 1 an operand stands still."""
    shapes = zip(*(operand.shape for operand in operands), strict=True)
    return [_strided_loop(operands, number, max(column)) for number, column in enumerate(shapes)]


def _extents(instruction: Instruction) -> list[int]:
    shapes = (operand.shape for operand in operands_of(instruction).values())
    return [max(column) for column in zip(*shapes, strict=True)]


def _strided_loop(operands: Sequence[Operand], number: int, extent: int) -> split.StridedLoop:
    steps = [o.strides[number] if o.shape[number] > 1 else 0 for o in operands]
    shared = (o.per_item for o, step in zip(operands, steps, strict=True) if step % o.per_item)
    short = any(number in operand.limited for operand in operands)
    return split.StridedLoop(extent, tuple(steps), max(shared, default=1), short)


def merged(instruction: Made) -> Made:
    """`instruction` with neighbouring dimensions merged where every operand walks them as one."""
    lists = list(operands_of(instruction).values())
    if len({len(operand.shape) for operand in lists}) != 1:
        return instruction
    axes = axes_of(lists)
    return grouped(instruction, split.groups(axes, [n for n, a in enumerate(axes) if a.extent > 1]))


def grouped(instruction: Made, found: split.Groups) -> Made:
    """`instruction` with one dimension for each group of `found`."""
    changes = {name: grouped_operand(o, found) for name, o in operands_of(instruction).items()}
    return replace(instruction, **changes)


def grouped_operand(operand: Operand, found: split.Groups) -> Operand:
    """`operand` with one dimension for each group of `found`."""
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


@dataclass
class Names:
    """Fresh loop variables within one program, and what was compared for it."""

    def __post_init__(self) -> None:
        self.number = 0
        """Of the next variable."""
        self.offers: dict[tuple[str, str], Any] = {}
        """By the operator's result and the kernel: an `Offer` for its largest tile."""
        self.works: dict[tuple[int, str], tuple[CoverProblem, Cover]] = {}
        """By origin and form: the loops of its longest work, and how they were covered."""
        self.units: dict[tuple[object, ...], Unit] = {}
        """By form, engine and operands."""

    def note(self, instruction: VectorFamily, work: CoverProblem, cover: Cover) -> None:
        """Remember the longest work of each form and origin."""
        key = instruction.origin, instruction.form
        known = self.works.get(key)
        if known is None or known[1].cycles < cover.cycles:
            self.works[key] = work, cover

    def fresh(self) -> str:
        """A variable that nothing else uses."""
        self.number += 1
        return f"v{self.number - 1}"


def legal_vector(
    instruction: VectorFamily, arch: Arch, names: Names, *, joins: bool = True
) -> list[Item]:
    """The same work in instructions of the engine's rank and extent, the quickest there are;
    `joins`: a reduction may be cut, where each piece joins what the ones before it left in the
    result."""
    if isinstance(instruction, Window):
        return _windows(instruction, arch.reach(instruction.form)[1], names)
    lead = int(isinstance(instruction, Reduce))
    walked = (instruction.dst, *instruction.reads())
    axes = axes_of(walked)
    found = split.groups(axes, split.ordered(axes, lead))
    engine = instruction.engine
    held = [StoredOperand(operand.memory, operand.itemsize) for operand in walked]
    form = instruction.form, instruction.cost()
    if (key := (form, engine, *held)) not in names.units:
        names.units[key] = unit_of(arch, form, held, engine, len(arch.units(engine)))
    unit = names.units[key]
    work = CoverProblem(unit, split.collapse(axes, lead), ReductionKind(bool(lead), joins))
    cover = cheapest(*work)
    names.note(instruction, work, cover)
    return _covered(grouped(instruction, found), cover, names)


Turn = tuple[int, int, int]
"""A dimension, the positions that one turn of its loop takes, turns."""


def _covered(instruction: VectorFamily, cover: Cover, names: Names) -> list[Item]:
    """Loops around what `cover` says that an instruction walks, then what its cut leaves."""
    extents = _extents(instruction)
    last = cover.inside[-1] if cover.inside else None
    turns = [
        (axis, cover.size, extent // cover.size) if axis == last else (axis, 1, extent)
        for axis, extent in enumerate(extents)
        if axis == last or axis not in cover.inside
    ]
    items = _looped(instruction, [turn for turn in turns if turn[1] < extents[turn[0]]], names)
    if cover.rest is None or last is None:
        return items
    start = extents[last] // cover.size * cover.size
    rest = taken(instruction, last, "", start, extents[last] - start, keep=True)
    return [*items, *_covered(joining(instruction, rest, last, start), cover.rest, names)]


def _looped(instruction: VectorFamily, turns: Sequence[Turn], names: Names) -> list[Item]:
    """Loops for `turns`, slowest first; of a reduced dimension all turns but the first join what is
    there."""
    if not turns:
        return [_drop_unit_axes(instruction)]
    (axis, size, count), rest = turns[0], turns[1:]

    def turn(variable: str, start: int) -> list[Item]:
        part = taken(instruction, axis, variable, start, size, keep=True)
        return _looped(joining(instruction, part, axis, start), rest, names)

    if count == 1:
        return turn("", 0)
    if not reduces(instruction, axis):
        variable = names.fresh()
        return [Loop(variable, count, tuple(turn(variable, 0)))]
    variable = names.fresh() if count > 2 else ""
    again = turn(variable, size)
    return [*turn("", 0), *([Loop(variable, count - 1, tuple(again))] if variable else again)]


def _drop_unit_axes(instruction: VectorFamily) -> VectorFamily:
    """Without the dimensions that loops have taken."""
    extents = _extents(instruction)
    if min(extents, default=1) > 1:
        return instruction
    return grouped(instruction, tuple((n,) for n, extent in enumerate(extents) if extent > 1))


def _windows(instruction: Window, limit: int | None, names: Names) -> list[Item]:
    """A window for each position of what lies beyond rows and channels, its channels cut."""
    shape = instruction.dst.shape
    if len(shape) > Window.RANK:
        variable = names.fresh() if shape[0] > 1 else ""
        body = _windows(taken(instruction, 0, variable, 0, 1), limit, names)
        return [Loop(variable, shape[0], tuple(body))] if variable else body
    channel, channels = len(shape) - 1, shape[-1]
    if limit is None or channels <= limit:
        return [instruction]
    return in_pieces(instruction, channel, limit, names)


def in_pieces(item: VectorFamily | Product, axis: int, size: int, names: Names) -> list[Item]:
    """`item` in pieces of at most `size` positions along a dimension, those alike in a loop."""
    extent = axes_of(list(operands_of(item).values()))[axis].extent

    def piece(variable: str, run: split.PieceRun) -> list[Item]:
        return [taken(item, axis, variable, run.start, run.size, keep=True)]

    return in_runs(split.runs(extent, size), names, piece)


def in_runs(
    found: Iterable[split.PieceRun],
    names: Names,
    body: Callable[[str, split.PieceRun], Sequence[Item]],
) -> list[Item]:
    """What `body` makes of each run of pieces, every item in a loop of its own where there are
    several: the iterations are independent, and a loop around a single instruction is one burst
    for the machine."""
    items: list[Item] = []
    for run in found:
        variable = names.fresh() if run.times > 1 else ""
        made = body(variable, run)
        items += each_looped(made, [(variable, run.times)] if variable else [])
    return items


def each_looped(items: Iterable[Item], counts: Sequence[tuple[str, int]]) -> list[Item]:
    """Every item in loops of its own, outermost first."""
    made = list(items)
    for variable, times in reversed(counts):
        made = [Loop(variable, times, (item,)) for item in made]
    return made


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
    operands = tuple(operands_of(instruction).values())
    if len(walk((dst, *operands))) <= rank:
        return [instruction]
    moving = [axis for axis, extent in enumerate(dst.shape) if extent > 1]
    axis = max(moving, key=lambda a: abs(dst.strides[a]))
    variable = names.fresh()
    inner = taken(instruction, axis, variable, 0, 1)
    assert isinstance(inner, Copy | Fill)
    return [Loop(variable, dst.shape[axis], tuple(_ranked(inner, rank, names)))]

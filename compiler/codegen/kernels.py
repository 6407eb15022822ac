"""Kernels: what somebody wrote by hand for one operator's tile, beside what the compiler emits.

    @kernel("vector.reduce.sum")
    def in_halves(dst, a): ...             # gives assembly; the operands' places stand in the text

The one idea: a kernel is one more candidate for a leaf, found by the form that the compiler would
emit. It is asked with the operands of each tile, checked to stay within them, and the cheaper text
of the two is emitted.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from textwrap import dedent
from typing import Any

from compiler.codegen.legalize import Names, axes_of, grouped_operand
from compiler.cost.transfer import Flows
from compiler.errors import CompilerError
from compiler.frontend.operators.body import Declined
from compiler.target.loops.split import Groups, groups
from simmodel.arch.base import Registry
from simmodel.arch.record import Arch
from simmodel.isa import Item, Loop
from simmodel.isa.forms import absent, forms
from simmodel.isa.region import Operand, Terms
from simmodel.program.assembly import ParseError, parse_items, print_item, print_operand

_TERM = re.compile(r"(?:(\d+)\s*\*\s*)?([A-Za-z_]\w*)|(\d+)")
Position = int | str | slice | tuple[int | str, int]


@dataclass(frozen=True)
class Part:
    """An operand of a tile, as a kernel sees it: in a text it is its place, type and shape."""

    operand: Operand

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each loop of the operator; the result has those of its own only."""
        return self.operand.shape

    @property
    def dtype(self) -> str:
        return self.operand.dtype

    def __str__(self) -> str:
        return print_operand(self.operand)

    def __getitem__(self, at: Position | tuple[Position, ...]) -> Part:
        """A part: for each dimension a position (2, "i", "4*i + 1"), which takes it away, a slice
        of numbers, or a position and an extent; what is not said stays."""
        # A position and its extent are one place.
        one = not isinstance(at, tuple) or (len(at) == 2 and list(map(type, at)) == [str, int])
        places: list[Position] = [at] if one else list(at)  # type: ignore[arg-type, list-item]
        if len(places) > len(self.shape):
            raise ValueError(f"{len(places)} positions in {len(self.shape)} dimensions")
        places += [slice(None)] * (len(self.shape) - len(places))
        address, kept = self.operand.address, []
        for axis, place in enumerate(places):
            start, size = self._range(axis, place)
            for name, factor in _parse_position(start):
                offset = self.operand.offset(axis, factor)
                address = address.plus(offset) if not name else replace(
                    address, terms=(*address.terms, (name, offset))
                )  # fmt: skip
            if size is not None:
                kept.append((size, self.operand.strides[axis]))
        shape, strides = (tuple(each) for each in zip(*kept, strict=True)) if kept else ((), ())
        return Part(replace(self.operand, address=address, shape=shape, strides=strides))

    def _range(self, axis: int, place: Position) -> tuple[int | str, int | None]:
        extent = self.shape[axis]
        if isinstance(place, slice):
            start, stop, step = place.indices(extent)
            if step != 1:
                raise ValueError(f"steps of {step} along dimension {axis}; use a loop")
            return start, stop - start
        if isinstance(place, tuple):
            return place
        if isinstance(place, int) and not -extent <= place < extent:
            raise ValueError(f"position {place} of {extent} along dimension {axis}")
        return (place % extent if isinstance(place, int) else place), None

    def merge_dimensions(self, outer: int, inner: int) -> Part:
        """Two dimensions along which it moves alike (rows and the positions of a window) as one,
        in the place of `outer`: what all of them read."""
        strides, shape = [*self.operand.strides], [*self.shape]
        if strides[outer] != strides[inner]:
            raise ValueError(f"dimensions {outer} and {inner} move by {strides[outer]} and "
                             f"{strides[inner]} bytes")  # fmt: skip
        shape[outer] += shape[inner] - 1
        del shape[inner], strides[inner]
        return Part(replace(self.operand, shape=tuple(shape), strides=tuple(strides)))


def _parse_position(position: int | str) -> Iterator[tuple[str, int]]:
    """Loop variables and their factors; the constant has no name."""
    if isinstance(position, int):
        yield "", position
        return
    for part in position.split("+"):
        found = _TERM.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{position!r} is no position; write 3, i or 4*i + 1")
        factor, name, number = found.groups()
        yield (name, int(factor or 1)) if name else ("", int(number))


Function = Callable[..., str]


@dataclass(frozen=True)
class Kernel:
    """Assembly for the tiles of an operator."""

    name: str
    form: str
    """Of the vector engine: the one that does most of what it stands for."""
    function: Function
    operands: int
    """How many there are beside the result."""
    numbers: tuple[str, ...]
    """Of `low` and `high` and the form's parameters, those that it takes."""

    @property
    def place(self) -> str:
        code = self.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


KERNELS: dict[str, Kernel] = Registry("kernel", {})
"""By name."""


@dataclass(frozen=True)
class Offer:
    """A kernel for one operator's tile, beside what the compiler emits for it."""

    kernel: str
    place: str
    tensor: str
    """The operator's result."""
    origin: str
    shape: tuple[int, ...]
    """Of the tile."""
    cycles: int
    instead: int
    """Cycles of what the compiler emits."""

    @property
    def taken(self) -> bool:
        return self.cycles < self.instead


def kernel(form: str, *, replace: bool = False) -> Callable[[Function], Function]:
    """Decorator: register a function that gives assembly for tiles of operators.

    Args:
        form: of the vector engine (`archgen isa`): operators for which the compiler would emit it,
            without a bias or a multiplier behind it.
        replace: take the place of a kernel of that name.

    The function gets the result and the operands as `Part`, by position, and what it names behind
    a `*`: `low` and `high`, the bounds of the result, and the form's parameters; operators with
    such bounds or parameters that it does not ask for are not its. Operands have a dimension for
    each loop of the tile, those of the result first; loops of one turn are left out, and those that
    all walk as one are one. It raises Declined for a tile that it does not suit. The text is as of
    `archgen compile`, one instruction or loop a line; it may write the result and read all. Raises
    ValueError where it can be no kernel.
    """

    def register(function: Function) -> Function:
        given = inspect.signature(function).parameters.values()
        inputs = [p for p in given if p.kind == p.POSITIONAL_OR_KEYWORD]
        numbers = tuple(p.name for p in given if p.kind == p.KEYWORD_ONLY)
        known = forms()
        name = function.__name__
        if form not in known or known[form].engine != "vector" or known[form].function is None:
            raise ValueError(f"kernel {name!r}: no form of the vector engine is called {form!r}; "
                             "archgen isa lists all")  # fmt: skip
        if len(inputs) < 2:
            raise ValueError(f"kernel {name!r}: takes the result and its operands: (dst, a)")
        if name in KERNELS and not replace:
            raise ValueError(f"kernel {name!r} is defined already, at {KERNELS[name].place}; "
                             "'replace=True' takes its place")  # fmt: skip
        KERNELS[name] = Kernel(name, form, function, len(inputs) - 1, numbers)
        return function

    return register


@dataclass(frozen=True)
class KernelRequest:
    """What is to be emitted: one operator's tile on one engine."""

    form: str
    engine: str
    dst: Operand
    reads: tuple[Operand, ...]
    numbers: Mapping[str, float]
    """Bounds that are finite, and parameters."""
    origin: int


def walked(leaf: KernelRequest) -> KernelRequest:
    """`leaf` without loops of one turn, and with one loop for those that all operands walk as
    one."""
    rank, every = len(leaf.dst.shape), len(leaf.reads[0].shape)
    outer = _loops_as_one((leaf.dst, *leaf.reads), range(rank)) or ((0,),)
    inner = _loops_as_one(leaf.reads, range(rank, every))
    reads = tuple(grouped_operand(each, (*outer, *inner)) for each in leaf.reads)
    return replace(leaf, dst=grouped_operand(leaf.dst, outer), reads=reads)


def _loops_as_one(operands: Sequence[Operand], loops: range) -> Groups:
    """Those of `loops` that have several turns, together where all operands walk them as one."""
    axes = axes_of([operand.along(loops) for operand in operands])
    found = groups(axes, [number for number, axis in enumerate(axes) if axis.extent > 1])
    return tuple(tuple(loops[number] for number in group) for group in found)


def offered(leaf: KernelRequest, arch: Arch, names: Names) -> Iterator[tuple[Kernel, list[Item]]]:
    """Kernels for a leaf, and their instructions; raises CompilerError for one that is wrong."""
    leaf = walked(leaf)
    for each in KERNELS.values():
        if each.form != leaf.form or not leaf.numbers.keys() <= {*each.numbers}:
            continue
        if each.operands != len(leaf.reads):
            raise _kernel_error(
                each, f"takes {each.operands} operands, {leaf.form} has {len(leaf.reads)}"
            )
        bounds = {"low": -math.inf, "high": math.inf, **leaf.numbers}
        if missing := [name for name in each.numbers if name not in bounds]:
            raise _kernel_error(each, f"{leaf.form} has no parameter {missing[0]!r}")
        numbers = {name: bounds[name] for name in each.numbers}
        try:
            text = each.function(Part(leaf.dst), *map(Part, leaf.reads), **numbers)
            made = _items(each, text, leaf, arch, names)
        except (CompilerError, MemoryError):
            raise
        except Declined:
            continue
        except Exception as mistake:  # whatever a user's function does
            raise _kernel_error(each, f"{type(mistake).__name__}: {mistake}") from mistake
        yield each, made


def _kernel_error(kernel: Kernel, what: str) -> CompilerError:
    return CompilerError(f"kernel {kernel.name} ({kernel.place}): {what}")


def _items(
    kernel: Kernel, text: object, leaf: KernelRequest, arch: Arch, names: Names
) -> list[Item]:
    """The instructions in `text`, which stay within the leaf."""
    if not isinstance(text, str):
        raise _kernel_error(kernel, f"its function gives {type(text).__name__!r}, expected a text")
    try:
        items = parse_items(dedent(text).strip("\n") + "\n")
    except ParseError as mistake:
        raise _kernel_error(kernel, f"line {mistake}") from None
    made = [_rename_loops(item, leaf, names, {}) for item in items]
    for item in made:
        _check_item(kernel, item, leaf, arch, {})
    return made


def _rename_loops(item: Item, leaf: KernelRequest, names: Names, known: Mapping[str, str]) -> Item:
    """`item` with loop variables of the program's, on the leaf's engine."""
    if isinstance(item, Loop):
        inner = {**known, item.variable: names.fresh()}
        body = tuple(_rename_loops(each, leaf, names, inner) for each in item.body)
        return Loop(inner[item.variable], item.count, body)
    changes: dict[str, Any] = {"engine": leaf.engine, "origin": leaf.origin}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Operand):
            terms = tuple((known.get(name, name), factor) for name, factor in value.address.terms)
            changes[field.name] = replace(value, address=replace(value.address, terms=terms))
    return replace(item, **changes)


def _check_item(
    kernel: Kernel, item: Item, leaf: KernelRequest, arch: Arch, loops: Mapping[str, int]
) -> None:
    """Raise CompilerError for what the machine cannot do, or what is outside of the leaf, Declined
    for a form that its file takes away."""
    if isinstance(item, Loop):
        for each in item.body:
            _check_item(kernel, each, leaf, arch, {**loops, item.variable: item.count})
        return
    kind = forms().get(item.form)
    said = f"'{print_item(item)}'"
    if kind is None or kind.engine != "vector":
        raise _kernel_error(kernel, f"{said} is not of the vector engine")
    if item.waits or item.signals or item.notifies:
        raise _kernel_error(kernel, f"{said}: tokens are placed by the compiler")
    if not arch.isa.has(item.form):
        raise Declined(f"{arch.name} has no {item.form}")
    broken = next((message for _, message in item.breaches), None)
    if (why := broken or absent(kind, arch) or item.unencodable(arch)) is not None:
        raise _kernel_error(kernel, f"{said}: {why}")
    for word, operands, allowed in (
        ("reads", item.reads(), (leaf.dst, *leaf.reads)), ("writes", item.writes(), (leaf.dst,)),
    ):  # fmt: skip
        for operand in operands:
            if not any(_is_within(operand, whole, loops) for whole in allowed):
                where = "the result" if word == "writes" else "its operands"
                raise _kernel_error(
                    kernel, f"{said} {word} outside of {where}: {print_operand(operand)}"
                )


def _is_within(part: Operand, whole: Operand, loops: Mapping[str, int]) -> bool:
    """Whether all bytes of `part`, in all turns of `loops`, are among those that `whole` spans."""
    own: Terms = tuple(term for term in part.address.terms if term[0] in loops)
    outer = tuple(term for term in part.address.terms if term[0] not in loops)
    same = (part.memory, outer, part.address.ring) == (
        whole.memory, whole.address.terms, whole.address.ring,
    )  # fmt: skip
    if not same:
        return False
    low, high = part.span
    for name, factor in own:
        way = factor * (loops[name] - 1)
        low, high = low + min(0, way), high + max(0, way)
    start = part.address.base - whole.address.base
    return whole.span[0] <= start + low and start + high <= whole.span[1]


def cycles_of(items: Sequence[Item], arch: Arch) -> int:
    """Cycles of the engine for `items` one after another, with all memory to itself."""
    cycles = 0
    for item in items:
        if isinstance(item, Loop):
            cycles += item.count * cycles_of(item.body, arch)
            continue
        flows = Flows(arch)
        for write, operands in ((False, item.reads()), (True, item.writes())):
            for operand in operands:
                flows.add(operand.memory, operand.distinct, operand.run, write=write)
        moved = math.ceil(float(flows.longest()))
        cycles += item.startup(arch) + max(item.cycles(arch), moved)
    return cycles

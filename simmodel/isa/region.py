"""Where an operand lies: a strided box of elements in one memory, at an address that loops move.

An address is affine in the enclosing loop variables plus, for multi-buffering, a *ring*: slot
number modulo the number of slots, times the slot's pitch. So one instruction inside a hardware
loop stands for all its iterations and nothing is unrolled.

    address = base + sum(bytes * variable) + pitch * ((offset + sum(steps * variable)) mod slots)

A variable may also be a *register*, which holds a length that is known when the program runs
(`simmodel.program.sizes`). An operand's *limits* then say how many positions of it there are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from simmodel.arch.element_types import grain_of, per_item, size_of

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """As in `functools`, where finding most values takes less time than its lock does up to
        Python 3.11."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.attrname] = self.func(instance)
            return found


Record = TypeVar("Record")


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def replace(record: Record, **changes: Any) -> Record:
    """As `dataclasses.replace`, several times as quick, for records that do no more with their
    fields than keep them: the compiler makes some hundred thousand for equal cores."""
    kind: Any = type(record)
    made: Record = object.__new__(kind)
    own, names = record.__dict__, _field_names(kind)
    if len(own) > len(names):  # without what follows from the fields
        own = {name: own[name] for name in names}
    made.__dict__.update(own, **changes)
    return made


Terms = tuple[tuple[str, int], ...]
"""Name of a loop's variable or of a register, and its factor, in loop order."""


def _dot(terms: Terms, values: Mapping[str, Any]) -> Any:
    return sum(factor * values[name] for name, factor in terms if name in values)


@dataclass(frozen=True)
class Ring:
    """A slot number that counts up with the loops and wraps around."""

    slots: int
    pitch: int
    """Bytes from slot to slot."""
    offset: int = 0
    terms: Terms = ()

    def at(self, values: Mapping[str, Any]) -> Any:
        """Byte offset of the slot for the loop variables' `values`."""
        return self.pitch * ((self.offset + _dot(self.terms, values)) % self.slots)


@dataclass(frozen=True)
class Address:
    """A byte address as a function of the enclosing loops."""

    base: int
    terms: Terms = ()
    ring: Ring | None = None

    def at(self, values: Mapping[str, Any]) -> Any:
        """The byte address for the loop variables' `values`, numbers or arrays; 0 for others."""
        ring = self.ring.at(values) if self.ring else 0
        return self.base + _dot(self.terms, values) + ring

    def plus(self, offset: int) -> Address:
        """The same address, `offset` bytes further."""
        return replace(self, base=self.base + offset) if offset else self

    @property
    def variables(self) -> list[str]:
        """Names of all that moves it, the ring included."""
        return [name for name, _ in (*self.terms, *(self.ring.terms if self.ring else ()))]

    def step(self, variable: str) -> int:
        """Bytes by which one iteration of `variable` moves the address, the ring aside."""
        return sum([factor for name, factor in self.terms if name == variable])

    def after(self, variable: str, turns: int) -> int | None:
        """Bytes by which so many iterations move it; None where the ring makes that depend."""
        ring = self.ring
        if ring is not None:
            slots = sum(factor for name, factor in ring.terms if name == variable)
            if slots * turns % ring.slots:
                return None
        return self.step(variable) * turns


@dataclass(frozen=True)
class Register:
    """A length known at run time, or the ceiling of a sum of lengths divided by a number of
    parts."""

    name: str
    low: int
    high: int
    """The maximum, for which the program is compiled."""
    parts: int = 1
    base: int = 0
    terms: Terms = ()
    """Of lengths, in the number of positions: base + sum(factor * length). None: it is a length."""

    def share(self, lengths: Mapping[str, int]) -> int:
        """The most that one of the parts has."""
        return -int(-(self.base + _dot(self.terms, lengths)) // self.parts)


@dataclass(frozen=True)
class Limit:
    """Number of existing positions of a box: those below `base + sum(factor * variable)`."""

    axis: int | None
    """Dimension of the operand; None: one of extent 1 that was removed, so the operand exists or
    not."""
    base: int
    terms: Terms
    """Of registers and loops."""


@dataclass(frozen=True)
class Operand:
    """A strided box of elements that an instruction reads or writes.

    `shape` counts elements, `strides` are in bytes (0 repeats an element: broadcast on reading). Of
    types of which several elements lie together, such as those below a byte, they are in elements,
    and whole multiples of these but for the one of 1, along which they do: rows begin at a byte.
    A quantized operand stands for the real values `(raw - zero) * scale`; `scale` None means that
    the raw values are the values.
    """

    memory: str
    """Role of the memory: dram, flash, shared, local, weights or accumulators."""
    address: Address
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero: int = 0
    cores: tuple[int, ...] = ()
    """Cores whose memory it is, if not the issuing core's; several: broadcast."""
    limits: tuple[Limit, ...] = ()
    """Limits of `shape`, which is the maximum."""

    @cached_property
    def prototype(self) -> Operand:
        """The operand at address 0, one object for all that differ in nothing else: what does not
        depend on where they lie is worked out once for all of them."""
        ring = self.address.ring
        key = (
            self.memory, self.shape, self.strides, self.dtype, self.scale, self.zero,
            self.cores, self.limits, ring and (ring.slots, ring.pitch),
        )  # fmt: skip
        found: Operand | None = _PROTOTYPES.get(key)
        if found is None:
            address = Address(0, (), ring and Ring(ring.slots, ring.pitch))
            found = _PROTOTYPES[key] = replace(self, address=address)
        return found

    @cached_property
    def limited(self) -> frozenset[int]:
        """Dimensions that may be shorter than `shape`."""
        return frozenset(limit.axis for limit in self.limits if limit.axis is not None)

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element, or of those that lie together."""
        return size_of(self.dtype)

    @cached_property
    def per_item(self) -> int:
        """Elements that lie together; where these are several strides are in elements."""
        return per_item(self.dtype)

    @cached_property
    def unit(self) -> int:
        """The stride of elements without gaps."""
        return self.itemsize if self.per_item == 1 else 1

    @cached_property
    def grain(self) -> int:
        """Bytes that its address is a multiple of."""
        return grain_of(self.dtype) if self.per_item == 1 else 1

    @cached_property
    def bytewise(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides of its bytes, each `itemsize` long: what lies together is one."""
        size, item = self.itemsize, self.per_item
        if item == 1:
            return self.shape, self.strides
        dims = zip(self.shape, self.strides, strict=True)
        whole = [
            (-(-n // item), size) if s == 1 and n > 1 else (n, s // item * size) for n, s in dims
        ]
        return tuple(n for n, _ in whole), tuple(s for _, s in whole)

    def offset(self, axis: int, positions: int) -> int:
        """Bytes from one element to that `positions` further along `axis`; raises ValueError where
        that does not begin at a whole byte."""
        return in_bytes(self.strides[axis] * positions, self.dtype)

    def along(self, axes: Sequence[int | None]) -> Operand:
        """The operand with only `axes`, in that order, at the first position of the others; None
        stands for a dimension of extent 1."""
        limits = tuple(
            replace(limit, axis=axes.index(limit.axis) if limit.axis in axes else None)
            if limit.axis is not None
            else limit
            for limit in self.limits
        )
        shape = tuple([1 if a is None else self.shape[a] for a in axes])
        strides = tuple([self.unit if a is None else self.strides[a] for a in axes])
        return replace(self, shape=shape, strides=strides, limits=limits)

    def cut(self, axis: int, variable: str, start: int, size: int) -> Operand:
        """Positions start + size * variable .. of one dimension."""
        if self.shape[axis] == 1:
            return self
        address = self.address.plus(self.offset(axis, start))
        if variable and self.strides[axis]:
            step = self.offset(axis, size)
            address = replace(address, terms=(*address.terms, (variable, step)))
        terms = ((variable, -size),) if variable else ()
        limits = tuple(
            replace(limit, base=limit.base - start, terms=(*limit.terms, *terms))
            if limit.axis == axis
            else limit
            for limit in self.limits
        )
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        return replace(self, address=address, shape=shape, limits=limits)

    @cached_property
    def elements(self) -> int:
        """Elements walked, repetitions included."""
        return math.prod(self.shape)

    @cached_property
    def bytes(self) -> int:
        """Bytes walked, repetitions included."""
        return -(-self.elements * self.itemsize // self.per_item)

    @cached_property
    def collapsed(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of the dimensions that remain when contiguous neighbours merge.

        Largest stride first, so the order of the walk does not matter; dimensions of extent 1 and
        repetitions (stride 0) are dropped. What may be shorter is followed by nothing.
        """
        return _collapsed_box(self.shape, self.strides, self.limited)

    @cached_property
    def run(self) -> int:
        """Bytes of each contiguous run."""
        dims = self.collapsed
        if not dims or dims[-1][1] != self.unit:
            return self.itemsize
        return -(-dims[-1][0] * self.itemsize // self.per_item)

    @cached_property
    def distinct(self) -> int:
        """Bytes touched, each once if the box does not overlap itself."""
        dims = self.collapsed
        inside = bool(dims) and dims[-1][1] == self.unit
        return math.prod(extent for extent, _ in (dims[:-1] if inside else dims)) * self.run

    @property
    def runs(self) -> int:
        """How many of these contiguous runs there are."""
        return self.distinct // self.run

    @cached_property
    def span(self) -> tuple[int, int]:
        """Lowest and one past highest byte touched, relative to the address."""
        return _spanned(*self.bytewise, self.itemsize)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Lowest and one past highest byte touched where no loop and no ring moves it."""
        low, high = self.prototype.span
        return self.address.base + low, self.address.base + high

    def reach(self, counts: Mapping[str, int]) -> tuple[int, int]:
        """The same over all turns of loops with these `counts`; other variables move nothing."""
        names = dict.fromkeys(name for name, _ in self.address.terms)
        steps = [self.address.step(name) * (counts.get(name, 1) - 1) for name in names]
        if self.address.ring is not None:
            steps.append(self.address.ring.pitch * (self.address.ring.slots - 1))
        low, high = self.bounds
        return low + sum(min(0, step) for step in steps), high + sum(max(0, s) for s in steps)

    def traffic(self, granule: int) -> int:
        """Bytes that the memory moves when each run takes whole granules of `granule` bytes."""
        return self.runs * -(-self.run // granule) * granule


def in_bytes(distance: int, name: str) -> int:
    """Bytes of a distance in units of the strides of type `name`; raises ValueError where it ends
    between elements that lie together."""
    if per_item(name) == 1:
        return distance
    whole, rest = divmod(distance, per_item(name))
    if rest:
        inside = "a byte" if size_of(name) == 1 else "a block"
        raise ValueError(f"element {distance} of a row of {name} begins inside {inside}")
    return whole * size_of(name)


_PROTOTYPES: WeakValueDictionary[object, Operand] = WeakValueDictionary()


def contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Row-major strides, in bytes, of `shape`."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def walk(operands: tuple[Operand, ...]) -> tuple[int, ...]:
    """Extents of the joint walk over `operands` of one rank, innermost last.

    The walk goes along the first operand's strides, largest first, whatever order its dimensions
    are named in. Dimensions that every operand walks as one are merged; those of extent 1 are
    dropped. Along a dimension where it has extent 1 and others more, an operand stands still,
    whatever its stride.
    """
    apart = frozenset().union(*[operand.limited for operand in operands])
    boxes = tuple([(operand.shape, operand.strides) for operand in operands])
    return _collapse_dimensions(boxes, apart)


@lru_cache(maxsize=1 << 14)
def _collapse_dimensions(
    boxes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], apart: frozenset[int]
) -> tuple[int, ...]:
    """The same for shapes and strides: many operands, above all of different cores, share them.
    A dimension of `apart` may be shorter, so those outside of it do not follow on."""
    extents = [max(column) for column in zip(*(shape for shape, _ in boxes), strict=True)]
    lead = boxes[0][1]
    dims = (
        (
            extents[axis],
            tuple(strides[axis] if shape[axis] > 1 else 0 for shape, strides in boxes),
            axis in apart,
        )
        for axis in sorted(range(len(lead) - 1, -1, -1), key=lambda axis: abs(lead[axis]))
    )
    return tuple([extent for extent, _ in merge_dimensions(dims)]) or (1,)


# Asked of operands whose shapes are few: those of equal cores have the same.


@lru_cache(maxsize=1 << 14)
def _collapsed_box(
    shape: tuple[int, ...], strides: tuple[int, ...], limited: frozenset[int]
) -> tuple[tuple[int, int], ...]:
    dims = enumerate(zip(shape, strides, strict=True))
    moving = [(n, (s,), axis in limited) for axis, (n, s) in dims if s]
    merged = merge_dimensions(sorted(moving, key=lambda dim: abs(dim[1][0])))
    return tuple([(extent, stride) for extent, (stride,) in merged])


@lru_cache(maxsize=1 << 14)
def _spanned(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int]:
    moves = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(m for m in moves if m < 0), sum(m for m in moves if m > 0) + size


def merge_dimensions(
    dims: Iterable[tuple[int, tuple[int, ...], bool]],
) -> list[tuple[int, tuple[int, ...]]]:
    """Extent and strides of a walk's dimensions, innermost last, without those of extent 1, merged
    where every operand follows on.

    Args:
        dims: innermost first: extent, stride of each operand, and whether it may be shorter, so
            that the dimension outside of it does not follow on.
    """
    merged: list[tuple[int, tuple[int, ...]]] = []
    ends = False
    for extent, steps, shorter in dims:
        if extent == 1:
            continue
        if merged and not ends and steps == tuple([merged[-1][0] * s for s in merged[-1][1]]):
            merged[-1] = (merged[-1][0] * extent, merged[-1][1])
        else:
            merged.append((extent, steps))
        ends = shorter
    merged.reverse()
    return merged

"""Filling a buffer with weights that memory holds narrow: loads, then the vector engine's work.

load    w's narrow numbers to the end of its place, its scales behind them
vector  unit after unit of rows: numbers * scales, to the front of the place
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.bind.keep_narrow import row_of
from compiler.emit.constants import Packed
from compiler.emit.legal import Names, legal_copy, legal_vector
from compiler.emit.nodes import Use
from compiler.emit.operands import taken
from compiler.emit.tile import Places
from compiler.geometry.ranges import Range, Region
from compiler.hold.buffer import Buffer
from compiler.narrow import Narrow
from compiler.nest.ir import Nest, dense
from simmodel.arch import Arch
from simmodel.dtype import bytes_for, per_byte, size_of
from simmodel.isa import Binary, Copy, Item, Loop, Unary
from simmodel.isa.copy import joint_runs
from simmodel.region import Operand


@dataclass(frozen=True)
class Widening:
    """One tile of a product's weights on its way from memory."""

    arch: Arch
    names: Names
    places: Places
    packed: Packed
    head: Nest
    buffer: Buffer
    target: Operand
    """Where its wide numbers go."""
    region: Region
    origin: int

    @property
    def narrow(self) -> Narrow:
        """What memory holds."""
        assert self.packed.narrow is not None
        return self.packed.narrow

    @property
    def row(self) -> int:
        """The axis along which the product reduces."""
        return row_of(self.head)

    @property
    def begins(self) -> tuple[int, int, int]:
        """Bytes of the place at which narrow numbers, scales and zero points begin."""
        item = size_of(self.target.dtype)
        found = self.narrow.places(self.buffer.shape, self.row, item)
        return int(found[0]), int(found[1]), int(found[2])

    def loads(self, engine: str) -> Iterator[tuple[list[Item], tuple[int, int]]]:
        """Each load's instructions, and where in the place it begins and ends."""
        wholes = [(self._numbers(), self.packed.values.operand(self.region, self.places))]
        region, narrow = self._scaled(self.region), self.narrow
        if narrow.scale is None:
            source = self.packed.parameters("scales", narrow.scale_type)
            wholes.append((self._scales(), source.operand(region, self.places)))
        if narrow.zeros is not None:
            source = self.packed.parameters("zeros", narrow.zero_type)
            wholes.append((self._zeros(), source.operand(region, self.places)))
        for target, source_ in wholes:
            copy = Copy(engine=engine, origin=self.origin, dst=target, src=source_)
            base = target.address.base - self.target.address.base
            span = base + target.span[0], base + target.span[1]
            yield legal_copy(in_bytes(copy), self.arch, self.names), span

    def _numbers(self) -> Operand:
        """The narrow numbers, in the order of the wide ones."""
        target, kind = self.target, self.narrow.landing or self.narrow.dtype
        item, unit = size_of(target.dtype), size_of(kind)
        strides = tuple(s // item * unit for s in target.strides)
        address = target.address.plus(self.begins[0])
        return replace(target, address=address, strides=strides, dtype=kind)

    def _scales(self) -> Operand:
        return self._dense(self.begins[1], self.narrow.scale_type)

    def _zeros(self) -> Operand:
        return self._dense(self.begins[2], self.narrow.zero_type)

    def _dense(self, begin: int, dtype: str) -> Operand:
        """One value for each block of the tile, without gaps."""
        shape = tuple(self.narrow.scaled(self.target.shape))
        strides = tuple(size_of(dtype) * s for s in dense(shape, self.packed.order))
        address = self.target.address.plus(begin)
        return replace(self.target, address=address, shape=shape, strides=strides, dtype=dtype)

    def _scaled(self, region: Region) -> Region:
        """The scales of a region that begins and ends with a block."""
        ranges = []
        pairs = zip(region.ranges, self.narrow.blocks, self.narrow.scales.shape, strict=True)
        for span, block, count in pairs:
            if count == 1:
                ranges.append(Range(0, 1))
                continue
            terms = tuple((name, factor // block) for name, factor in span.terms)
            ranges.append(Range(span.start // block, -(-span.size // block), terms))
        none = (0,) * len(ranges)
        return Region(tuple(ranges), none, none)

    def widens(self) -> list[Item]:
        """The vector engine's instructions, first rows first."""
        narrow, row = self.narrow, self.row
        block = min(narrow.blocks[row], self.target.shape[row])
        wide = self._split(self.target, block, each=True)
        numbers = replace(self._split(self._numbers(), block, each=True), zero=narrow.zero)
        fields = {"engine": "vector", "origin": self.origin, "dst": wide}
        steps: list[Binary | Unary] = []
        if narrow.zeros is not None:
            zeros = self._split(self._zeros(), block, each=False)
            steps.append(Binary(**fields, function="sub", a=numbers, b=zeros))  # type: ignore[arg-type]
            numbers = wide
        if narrow.scale is not None:
            scaled = replace(numbers, scale=narrow.scale)
            steps.append(Unary(**fields, function="move", a=scaled))  # type: ignore[arg-type]
        else:
            scales = self._split(self._scales(), block, each=False)
            steps.append(Binary(**fields, function="mul", a=numbers, b=scales))  # type: ignore[arg-type]
        return self._units(steps, block)

    def _split(self, operand: Operand, block: int, *, each: bool) -> Operand:
        """Axes in packed order, the reduction split into blocks and rows of one; of what there is
        one of for each block, rows repeat it, and other axes of extent 1 too."""
        shape, strides = [], []
        for axis in self.packed.order:
            extent, stride = operand.shape[axis], operand.strides[axis]
            if axis != self.row:
                whole = self.target.shape[axis]
                shape.append(whole)
                strides.append(stride if extent == whole else 0)
                continue
            shape += [self.target.shape[axis] // block, block]
            strides += [stride * block, stride] if each else [stride if extent > 1 else 0, 0]
        return replace(operand, shape=tuple(shape), strides=tuple(strides))

    def _units(self, steps: Sequence[Binary | Unary], block: int) -> list[Item]:
        """`steps` on one unit of rows after the other."""
        axis, rows = self.packed.order.index(self.row), self.target.shape[self.row]
        unit = int(self.narrow.unit(self.row, self.buffer.shape[self.row]))
        if unit >= block:
            extent, size = rows // block, unit // block
        else:
            axis, extent, size = axis + 1, block, unit
        return self._walked(steps, axis, (extent, max(1, size)), 0)

    def _walked(
        self, steps: Sequence[Binary | Unary], axis: int, unit: tuple[int, int], outer: int
    ) -> list[Item]:
        """Loops over what lies outside of `axis`, then over units of it."""
        if outer < axis and steps[0].dst.shape[outer] > 1:
            variable = self.names.fresh()
            count = steps[0].dst.shape[outer]
            inner = [taken(step, outer, variable, 0, 1, keep=True) for step in steps]
            body = self._walked(inner, axis, unit, outer + 1)
            return [Loop(variable, count, tuple(body))]
        if outer < axis:
            return self._walked(steps, axis, unit, outer + 1)
        extent, size = unit
        whole, rest = divmod(extent, size)
        items = self._piece(steps, axis, (0, size), whole)
        return [*items, *(self._piece(steps, axis, (whole * size, rest), 1) if rest else ())]

    def _piece(
        self, steps: Sequence[Binary | Unary], axis: int, span: tuple[int, int], count: int
    ) -> list[Item]:
        start, size = span
        variable = self.names.fresh() if count > 1 else ""
        items: list[Item] = []
        for step in steps:
            part = taken(step, axis, variable, start, size, keep=True)
            items += legal_vector(part, self.arch, self.names)
        return [Loop(variable, count, tuple(items))] if count > 1 else items


def in_bytes(copy: Copy) -> Copy:
    """The same copy as one of bytes, where both ends are one run of a type."""
    src, dst = copy.src, copy.dst
    if src.dtype != dst.dtype or per_byte(src.dtype) == 1 or joint_runs(src, dst) > 1:
        return copy
    if src.collapsed != dst.collapsed or len(src.collapsed) > 1:
        return copy
    size = bytes_for(src.dtype, src.elements)
    ends = (replace(o, shape=(size,), strides=(1,), dtype="uint8") for o in (dst, src))
    target, source = ends
    return replace(copy, dst=target, src=source)


def narrowed(use: Use, span: tuple[int, int]) -> Use:
    """The use of a part of a place that has one slot; of one with several it is the whole."""
    if use.slots > 1:
        return use
    return replace(use, low=use.low + span[0], high=min(use.high, use.low + span[1]))

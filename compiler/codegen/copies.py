"""Loads and stores of a box of a tensor where it lies between groups: one copy, or rows by a list.

What is picked, or put into another tensor, lies nowhere but in that table, so a load or a store of
a part of it takes the list's own part:

    e[2..4, 0..64], which picks w by i      copy.gather dst, src = w, index = i[2..4]
    k[0..1, 0..64], put into past by n      copy.scatter dst = past, src, index = n[0..1]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compiler.codegen.constants import PackedWeights
from compiler.codegen.legalize import Names, legal_copy, legal_vector, taken
from compiler.codegen.nodes import Use
from compiler.codegen.tile import EmissionContext, Places, far_operand
from compiler.frontend.quantization.narrow_constants import Narrow
from compiler.geometry.boxes import Range, Region
from compiler.schedule.residency.buffer import TileBuffer
from compiler.target.loops.split import runs
from compiler.target.narrow_weights import row_of
from compiler.tensor_ir.nest import Nest, Picked, Tensor, dense
from simmodel.arch.element_types import bytes_for, per_item, size_of
from simmodel.isa import Binary, Copy, Gather, Item, Loop, Scatter, Unary
from simmodel.isa.copy import joint_runs
from simmodel.isa.region import Operand, replace


def computed(tensors: Iterable[Tensor]) -> frozenset[str]:
    """The buffers off chip that steps of the program write, of those that `tensors` are read
    from."""
    found = (each for tensor in tensors for each in tensor.sources)
    return frozenset(each.storage.buffer for each in found if each.data is None)


def written(tensor: Tensor) -> frozenset[str]:
    """The buffer off chip that a store of `tensor` changes."""
    return frozenset({tensor.sources[0].storage.buffer})


def listed(tensor: Tensor) -> frozenset[str]:
    """The buffers off chip that a store of `tensor` reads: a list of rows that steps make."""
    return computed([tensor]) if tensor.placed is not None else frozenset()


def load(copy: Copy, tensor: Tensor, region: Region, around: EmissionContext) -> list[Item]:
    """The items that bring `region` of `tensor`, border included, to the target of `copy`, whose
    source only stands in its place."""
    places, arch, names = around.places, around.arch, around.names
    if tensor.picked is None:
        source = far_operand(tensor, region.ranges, places)
        return legal_copy(replace(copy, src=source), arch, names)
    picked, ranges = tensor.picked, region.ranges
    index = far_operand(picked.index, tuple(ranges[a] for a in picked.counted), places)
    gather = Gather(
        engine=copy.engine, origin=copy.origin, index=index,
        dst=copy.dst.along((*picked.counted, *picked.along)),
        src=_table_operand(picked, ranges, places),
    )  # fmt: skip
    return _legal(gather, arch.copy_[copy.engine].rank, names)


def store(
    copy: Copy, tensor: Tensor, ranges: tuple[Range, ...], around: EmissionContext
) -> list[Item]:
    """The items that bring a box of `tensor` from where `copy` says to where it lies; as `load`."""
    places, arch, names = around.places, around.arch, around.names
    placed = tensor.placed
    if placed is None:
        return legal_copy(replace(copy, dst=far_operand(tensor, ranges, places)), arch, names)
    index = far_operand(placed.index, tuple(ranges[a] for a in placed.counted), places)
    rank = arch.copy_[copy.engine].rank
    if not placed.block:
        spans = (Range(0, placed.table.shape[0]), *(ranges[a] for a in placed.along))
        table = far_operand(placed.table, spans, places)
        whole = Scatter(
            engine=copy.engine, origin=copy.origin, index=index, src=copy.src, dst=table
        )
        return _legal(whole, rank, names)
    # Of each sample: as many places to begin at as leave room for all its new rows.
    axis = placed.axis
    starts = placed.table.shape[axis] - tensor.shape[axis] + 1
    table = far_operand(placed.table, ranges, places)
    dims = [a for a in range(len(ranges)) if a]
    windows = replace(
        table, shape=(starts, *(table.shape[a] for a in dims)),
        strides=(table.strides[axis], *(table.strides[a] for a in dims)),
    )  # fmt: skip
    variable = names.fresh() if index.shape[0] > 1 else ""
    moves = (
        (windows, table.strides[0]),
        (copy.src, copy.src.strides[0]),
        (index, index.strides[0]),
    )
    dst, src, first = (
        replace(o, address=replace(o.address, terms=(*o.address.terms, (variable, step))))
        if variable else o
        for o, step in moves
    )  # fmt: skip
    one = Scatter(
        engine=copy.engine, origin=copy.origin, index=first.along(()),
        src=src.along(dims), dst=dst,
    )  # fmt: skip
    items = _legal(one, rank, names)
    return [Loop(variable, index.shape[0], tuple(items))] if variable else items


def _table_operand(picked: Picked, ranges: Sequence[Range], places: Places) -> Operand:
    """All rows of the table, the picked axis first, and of each the part that is copied."""
    axis, extent = picked.axis, picked.table.shape[picked.axis]
    others = [ranges[a] for a in picked.along]
    spans = (*others[:axis], Range(0, extent), *others[axis:])
    whole = far_operand(picked.table, spans, places)
    rest = [a for a in range(len(spans)) if a != axis]
    return whole.along((axis, *rest))


def _legal(whole: Gather | Scatter, rank: int, names: Names) -> list[Item]:
    """Loops over the slowest dimensions until the engine walks the rest: over those of a row, as
    far as there are several, else over the list."""
    if whole.dimensions <= rank:
        return [whole]
    box, table, counted = whole.box, whole.table, len(whole.index.shape)
    inside = [a for a in range(counted, len(box.shape)) if box.shape[a] > 1]
    ahead = [a for a in range(counted) if box.shape[a] > 1]
    if len(inside) > 1 or not ahead:
        axis = max(inside, key=lambda a: table.strides[a - counted + 1])
    else:
        axis = max(ahead, key=lambda a: box.strides[a])
    variable = names.fresh()
    extent, index, box = box.shape[axis], whole.index, _each(box, axis, variable)
    if axis < counted:
        index = _each(index, axis, variable)
    else:
        table = _each(table, axis - counted + 1, variable)
    src, dst = (table, box) if isinstance(whole, Gather) else (box, table)
    inner = replace(whole, src=src, dst=dst, index=index)
    return [Loop(variable, extent, tuple(_legal(inner, rank, names)))]


def _each(operand: Operand, axis: int, variable: str) -> Operand:
    """`operand` at one position of `axis`, which a loop counts."""
    rest = [a for a in range(len(operand.shape)) if a != axis]
    return operand.cut(axis, variable, 0, 1).along(rest)


# Filling a buffer with weights that memory holds narrow: loads, then the vector engine's work.


@dataclass(frozen=True)
class Widening:
    """One tile of a product's weights on its way from memory."""

    around: EmissionContext
    packed: PackedWeights
    head: Nest
    buffer: TileBuffer
    target: Operand
    """Where its wide numbers go."""
    region: Region
    origin: int

    @property
    def narrow(self) -> Narrow:
        assert self.packed.narrow is not None
        return self.packed.narrow

    @property
    def row(self) -> int:
        """The axis along which the product reduces."""
        return row_of(self.head)

    @property
    def sources(self) -> dict[str, PackedWeights]:
        """What is loaded: narrow numbers, and scales and zero points that memory holds."""
        narrow, found = self.narrow, {"values": self.packed.values}
        if narrow.scale is None:
            found["scales"] = self.packed.parameters("scales", narrow.scale_type)
        if narrow.zeros is not None:
            found["zeros"] = self.packed.parameters("zeros", narrow.zero_type)
        return found

    def loads(self, engine: str) -> Iterator[tuple[list[Item], tuple[int, int]]]:
        """Each load's instructions, and where in the place it begins and ends."""
        for name, packed in self.sources.items():
            region = self.region if name == "values" else self._scaled(self.region)
            target, source = self._landing(name), packed.operand(region, self.around.places)
            copy = Copy(engine=engine, origin=self.origin, dst=target, src=source)
            base = target.address.base - self.target.address.base
            span = base + target.span[0], base + target.span[1]
            yield legal_copy(in_bytes(copy), self.around.arch, self.around.names), span

    def _landing(self, name: str) -> Operand:
        """The narrow numbers, in the order of the wide ones; scales or zero points: one for each
        block of the tile, without gaps."""
        target, narrow, item = self.target, self.narrow, size_of(self.target.dtype)
        number, kind = {
            "values": (0, narrow.landing or narrow.dtype),
            "scales": (1, narrow.scale_type),
            "zeros": (2, narrow.zero_type),
        }[name]
        address = target.address.plus(int(narrow.places(self.buffer.shape, self.row, item)[number]))
        shape, strides = target.shape, tuple(s // item * size_of(kind) for s in target.strides)
        if number:
            shape = tuple(narrow.scaled(target.shape))
            strides = tuple(size_of(kind) * s for s in dense(shape, self.packed.order))
        return replace(target, address=address, shape=shape, strides=strides, dtype=kind)

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
        wide = self._split_blocks(self.target, block, each=True)
        numbers = replace(
            self._split_blocks(self._landing("values"), block, each=True), zero=narrow.zero
        )
        fields = {"engine": "vector", "origin": self.origin, "dst": wide}
        steps: list[Binary | Unary] = []
        if narrow.zeros is not None:
            zeros = self._split_blocks(self._landing("zeros"), block, each=False)
            steps.append(Binary(**fields, function="sub", a=numbers, b=zeros))  # type: ignore[arg-type]
            numbers = wide
        if narrow.scale is not None:
            scaled = replace(numbers, scale=narrow.scale)
            steps.append(Unary(**fields, function="move", a=scaled))  # type: ignore[arg-type]
        else:
            scales = self._split_blocks(self._landing("scales"), block, each=False)
            steps.append(Binary(**fields, function="mul", a=numbers, b=scales))  # type: ignore[arg-type]
        return self._units(steps, block)

    def _split_blocks(self, operand: Operand, block: int, *, each: bool) -> Operand:
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
        return self._loops_over_units(steps, axis, (extent, max(1, size)), 0)

    def _loops_over_units(
        self, steps: Sequence[Binary | Unary], axis: int, unit: tuple[int, int], outer: int
    ) -> list[Item]:
        """Loops over what lies outside of `axis`, then over units of it."""
        if outer < axis:
            count = steps[0].dst.shape[outer]
            if count == 1:
                return self._loops_over_units(steps, axis, unit, outer + 1)
            variable = self.around.names.fresh()
            inner = [taken(step, outer, variable, 0, 1, keep=True) for step in steps]
            body = self._loops_over_units(inner, axis, unit, outer + 1)
            return [Loop(variable, count, tuple(body))]
        items: list[Item] = []
        for run in runs(*unit):
            variable = self.around.names.fresh() if run.times > 1 else ""
            made: list[Item] = []
            for step in steps:
                part = taken(step, axis, variable, run.start, run.size, keep=True)
                made += legal_vector(part, self.around.arch, self.around.names)
            items += [Loop(variable, run.times, tuple(made))] if variable else made
        return items


def in_bytes(copy: Copy) -> Copy:
    """The same copy as one of bytes, where both ends are one run of a type."""
    src, dst = copy.src, copy.dst
    if src.dtype != dst.dtype or per_item(src.dtype) == 1 or joint_runs(src, dst) > 1:
        return copy
    if src.collapsed != dst.collapsed or len(src.collapsed) > 1:
        return copy
    size = bytes_for(src.dtype, src.elements)
    dst, src = (replace(o, shape=(size,), strides=(1,), dtype="uint8") for o in (dst, src))
    return replace(copy, dst=dst, src=src)


def narrowed(use: Use, span: tuple[int, int]) -> Use:
    """The use of a part of a place that has one slot; of one with several it is the whole."""
    if use.slots > 1:
        return use
    return use._replace(low=use.low + span[0], high=min(use.high, use.low + span[1]))

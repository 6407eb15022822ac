"""One tile at emission: where its loops stand, and the operands that follow from that.

`TilePosition` turns (nest, access) into operands of on-chip buffers and of DRAM. All addresses are
affine in the tile loops' variables, so the same operands serve every tile of a segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import compiler.geometry.boxes as boxes
from compiler.codegen.legalize import Names
from compiler.codegen.nodes import Use
from compiler.cost.multicast import EARLY
from compiler.plan.make_plan import Compute, LayerPlan
from compiler.schedule.residency.buffer import TileBuffer
from compiler.tensor_ir.nest import Access, Tensor
from simmodel.arch.element_types import per_item, size_of
from simmodel.arch.record import Arch
from simmodel.isa.region import Address, Operand, Ring, Terms, cached_property, in_bytes
from simmodel.program.program import TileLoop


@dataclass(frozen=True)
class Places:
    """Addresses of a group's buffers on chip, and of buffers that lie between groups."""

    chip: Mapping[str, tuple[int, int]]
    """(address, bytes from slot to slot)."""
    far: Mapping[str, tuple[str, int]]
    """Memory and address; in shared memory as if the whole buffer lay in that of the core's
    cluster."""


@dataclass(frozen=True)
class EmissionContext:
    """What all steps of a group share."""

    arch: Arch
    places: Places
    names: Names
    step: int
    """Number of the group in the program."""
    depth: int
    """Outer loops around every layer."""
    awaited: Callable[[str], Sequence[int]]
    """Steps behind which a buffer off chip holds what this group reads."""
    picks: Mapping[str, int]
    """Origin index of the node that picks a tensor of which this group reads the rows."""
    lacking: Callable[[str, int], bool]
    """Whether a core has yet to load a constant that stays for several groups."""
    pieces: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """By tensor that the host makes in pieces: tile -> the barrier of what it is the first to
    read."""
    ahead: int = 0
    """Tiles by which a layer works ahead of others."""

    def on_array(self, name: str) -> EmissionContext:
        """The same with the array of this name as the `matrix` of the machine."""
        return self if name == "matrix" else replace(self, arch=self.arch.with_array(name))

    def uses(self, reads: Iterable[TileBuffer], writes: Iterable[TileBuffer]) -> tuple[Use, ...]:
        """What a step touches on chip."""
        return (
            *(self._use(buffer, write=False) for buffer in reads),
            *(self._use(buffer, write=True) for buffer in writes),
        )

    def _use(self, buffer: TileBuffer, *, write: bool) -> Use:
        own = buffer.layer is not None
        return Use(
            f"{self.step}:{buffer.name}", buffer.role,
            *buffer.span(self.places.chip[buffer.name]), buffer.slots,
            buffer.level + (self.depth if own else 0),
            # What no loop of the layer moves turns with the group's tiles.
            self.depth if own and buffer.level else 0, write, 0 if own else self.ahead,
            pitch=self.places.chip[buffer.name][1],
        )  # fmt: skip


@dataclass(frozen=True)
class Turn:
    """How often the tile loops have turned so far: an affine count for ring buffers."""

    offset: int = 0
    terms: Terms = ()


@dataclass(frozen=True)
class TilePosition:
    """Loop positions of one tile, for one segment of every loop entered so far."""

    around: EmissionContext
    plan: LayerPlan
    out: tuple[boxes.Range, ...]
    split: Mapping[int, boxes.Range]
    turns: tuple[Turn, ...]
    """By level: turns[l] counts the iterations of the layer's first l loops."""
    opens: bool = True
    closes: bool = True
    outer: tuple[Turn, ...] = (Turn(),)
    """By level, turns of the group's loops."""
    first: bool = True
    """Whether it is the layer's first piece, and stands for no other."""
    origins: Mapping[str, tuple[boxes.Range, ...]] = field(default_factory=dict)
    """Buffer that no loop of the layer refills -> where its first element lies in the tensor,
    border included."""
    path: tuple[TileLoop, ...] = ()
    """Which tile of all loops entered so far it is, those of the group included."""
    share: tuple[int, int, int, int] | None = None
    """What one of several engines takes: position of the nest, its dimension that is cut, first
    position there and positions; None: all."""

    @cached_property
    def needs(self) -> boxes.Needs:
        return boxes.needs(self.plan.tiled.layer, self.out, self.split)

    def loops(self, position: int) -> tuple[boxes.Range, ...]:
        whole = self.needs.loops[position]
        if self.share is None or self.share[0] != position:
            return whole
        _, dim, start, size = self.share
        span = whole[dim]._replace(start=whole[dim].start + start, size=size)
        return (*whole[:dim], span, *whole[dim + 1 :])

    def tensor(self, name: str) -> Tensor:
        return self.plan.tiled.layer.tensors[name]


def place_in(name: str, first: int, count: int, total: int, alike: tuple[int, int]) -> TileLoop:
    """Tiles `first` .. `first + count` of a loop over `total`, out of a stretch of tiles that are
    `alike`, of which its first one and how many they are is given."""
    begin, many = alike
    kind = "steady"
    if total == 1:
        kind = "only"
    elif many == 1 and begin in (0, total - 1):
        kind = "first" if begin == 0 else "last"
    return name, first, count, total, kind


def slot_address(buffer: TileBuffer, tile: TilePosition) -> Address:
    """Address of the slot of `buffer` that this tile uses."""
    base, pitch = tile.around.places.chip[buffer.name]
    base += buffer.offset
    if buffer.slots == 1:
        return Address(base)
    if buffer.layer is None:
        turn = tile.outer[buffer.level]
    else:
        turn = tile.turns[buffer.level] if buffer.level else tile.outer[-1]
    offset = turn.offset % buffer.slots
    terms = tuple((v, s % buffer.slots) for v, s in turn.terms if s % buffer.slots)
    if not terms and buffer.slots < EARLY:  # of more, places in shared memory follow the slot
        return Address(base + pitch * offset)
    return Address(base, (), Ring(buffer.slots, pitch, offset, terms))


def address_of_ranges(
    address: Address, spans: Sequence[boxes.Range], origin: Sequence[boxes.Range],
    strides: Sequence[int], dtype: str = "int8",
) -> Address:  # fmt: skip
    """Where `spans` begin in a buffer at `address` whose first element is `origin`."""
    moved = 0
    terms: Terms = ()
    for span, first, stride in zip(spans, origin, strides, strict=True):
        moved += (span.start - first.start) * stride
        terms = boxes.summed(
            terms, boxes.scaled(span.terms, stride), boxes.scaled(first.terms, -stride)
        )
    if per_item(dtype) > 1:
        moved, terms = in_bytes(moved, dtype), tuple([(n, in_bytes(s, dtype)) for n, s in terms])
    return Address(address.base + moved, boxes.summed(address.terms, terms), address.ring)


def region_origin(tile: TilePosition, key: boxes.Key) -> tuple[boxes.Range, ...]:
    """Where the buffer's first element lies in the tensor, border included."""
    region = tile.needs.regions[key]
    return tuple(
        boxes.Range(span.start - before, size, span.terms)
        for span, before, size in zip(region.ranges, region.before, region.padded, strict=True)
    )


def read_operand(compute: Compute, access: Access, index: int, tile: TilePosition) -> Operand:
    """Operand of one access of a nest, with one dimension for each of the nest's loops."""
    buffer, layer = tile.plan.buffers[compute.reads[index]], tile.plan.tiled.layer
    nest, loops = compute.nest, tile.loops(compute.position)
    if access.tensor in layer.inside:
        maker = next(n for n, nest in enumerate(layer.nests) if nest.tensor == access.tensor)
        origin = tile.loops(maker)[: layer.nests[maker].rank]
    elif buffer.layer is None or not buffer.level:
        origin = tile.origins[buffer.name]
    else:
        origin = region_origin(tile, boxes.keys_of(nest)[index])
    address = slot_address(buffer, tile)
    spans = boxes.touched(access, loops)
    address = address_of_ranges(address, spans, origin, buffer.strides, buffer.dtype)
    shape, strides = tuple(span.size for span in loops), compute.steps[index]
    # What is added or multiplied at the end knows nothing of the reduction.
    own = nest.dims if index < len(nest.operands) else nest.dims[: nest.rank]
    short = boxes.limits([dim.extent for dim in own], [dim.count for dim in own], loops)
    return Operand(
        buffer.role, address, shape, strides, buffer.dtype, access.scale, access.zero, limits=short
    )


def written_operand(compute: Compute, name: str, tile: TilePosition) -> Operand:
    """Operand of what a nest writes: a tile of its own, or its place in the group's buffer."""
    buffer, rank = tile.plan.buffers[name], compute.nest.rank
    ranges = tile.loops(compute.position)[:rank]
    shape = tuple(span.size for span in ranges)
    own = tile.needs.loops[compute.position][:rank]
    origin = tile.origins[name] if buffer.layer is None else own
    address = address_of_ranges(slot_address(buffer, tile), ranges, origin, buffer.strides)
    dims = compute.nest.dims[:rank]
    short = boxes.limits([dim.extent for dim in dims], [dim.count for dim in dims], ranges)
    return Operand(buffer.role, address, shape, buffer.strides, buffer.dtype, limits=short)


def far_operand(tensor: Tensor, ranges: tuple[boxes.Range, ...], places: Places) -> Operand:
    """Operand of a box of a tensor where it lies between groups: off chip or in shared memory."""
    size, storage = size_of(tensor.dtype), tensor.storage
    home, base = places.far[storage.buffer]
    address = Address(base + storage.offset * size, boxes.scaled(storage.registers, size))
    strides = tuple(s * size for s in storage.strides)
    first = [boxes.Range(0, span.size) for span in ranges]
    address = address_of_ranges(address, ranges, first, strides)
    shape = tuple(span.size for span in ranges)
    short = boxes.limits(tensor.shape, tensor.counts, ranges)
    return Operand(home, address, shape, strides, tensor.dtype, limits=short)


def inner_operand(
    buffer: TileBuffer, tensor: Tensor, region: boxes.Region, tile: TilePosition
) -> Operand:
    """Operand of the whole padded region of `tensor` inside a buffer."""
    return in_buffer(buffer, slot_address(buffer, tile), region.padded, tensor, region.ranges)


def in_buffer(
    buffer: TileBuffer, address: Address, shape: tuple[int, ...], tensor: Tensor,
    ranges: Sequence[boxes.Range],
) -> Operand:  # fmt: skip
    """Operand of `shape` at an address of a buffer, whose inside is a box of `tensor`."""
    short = boxes.limits(tensor.shape, tensor.counts, ranges)
    return Operand(buffer.role, address, shape, buffer.strides, buffer.dtype, limits=short)


@dataclass(frozen=True)
class TileEmitter:
    """Emits one compute step on one engine."""

    around: EmissionContext
    origin: int

    @property
    def arch(self) -> Arch:
        return self.around.arch

    @property
    def names(self) -> Names:
        return self.around.names

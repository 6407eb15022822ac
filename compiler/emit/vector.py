"""Vector instructions of one nest over one tile.

A nest is a short chain: its own function, then the bias, then the multiplier; only the last link
clips and encodes. Values between links stay in scratch, in the widest type that the engine has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.bind.machine import form_of, joins_in_place, step_between
from compiler.bind.roles import Roles, roles
from compiler.emit.kernels import KERNELS, Leaf, Offer, cycles_of, offered
from compiler.emit.legal import Names, legal_vector
from compiler.emit.tile import Places, Tile, moved, read_operand, written_operand
from compiler.plan.ir import Compute
from simmodel.arch import Arch
from simmodel.dtype import is_float
from simmodel.isa import (
    Binary,
    Item,
    Loop,
    Reduce,
    ScalarBinary,
    ScalarReduce,
    ScalarTernary,
    ScalarUnary,
    Ternary,
    Unary,
    VectorInstruction,
    Window,
)
from simmodel.isa.forms import definition
from simmodel.isa.functions import JOINS
from simmodel.region import Address, Operand

Link = Callable[[Operand], list[VectorInstruction]]
"""Makes the instructions that write one link's result into the given operand."""


@dataclass(frozen=True)
class Kinds:
    """The classes of instructions of one engine."""

    unary: type[Unary]
    binary: type[Binary]
    ternary: type[Ternary]
    reduce: type[Reduce]


KINDS = {
    "vector": Kinds(Unary, Binary, Ternary, Reduce),
    "scalar": Kinds(ScalarUnary, ScalarBinary, ScalarTernary, ScalarReduce),
}


@dataclass(frozen=True)
class VectorEmitter:
    """Emits one compute step on the vector engine, or on the scalar unit."""

    arch: Arch
    names: Names
    places: Places
    origin: int
    engine: str = "vector"

    @property
    def kinds(self) -> Kinds:
        """The instructions of the engine."""
        return KINDS[self.engine]

    def items(self, compute: Compute, tile: Tile) -> list[Item]:
        """Instructions of `compute`, within the engine's ranks and extents."""
        links = self._links(compute, tile)
        nest = compute.nest
        final = replace(
            written_operand(compute, compute.writes, tile, self.places),
            scale=nest.scale,
            zero=nest.zero,
        )
        items: list[Item] = []
        # Scratch holds what pieces of a reduction leave as it is.
        tensors = tile.plan.tiled.layer.tensors
        joins = bool(compute.scratch) or joins_in_place(nest, tensors)
        for number, link in enumerate(links):
            last = number == len(links) - 1
            target = final if last else self._scratch(compute, tile)
            made = link(target)
            if last:
                made[-1] = replace(made[-1], low=nest.low, high=nest.high)
            for instruction in made:
                items += legal_vector(instruction, self.arch, self.names, joins=joins)
        return self._best(items, compute, tile, final)

    def _best(self, items: list[Item], compute: Compute, tile: Tile, final: Operand) -> list[Item]:
        """`items`, or those of a kernel that takes fewer cycles."""
        nest = compute.nest
        late = nest.bias or nest.multiplier
        if not KERNELS or compute.binding.engine != "vector" or late or final.limits:
            return items
        bounds = {"low": nest.low, "high": nest.high}
        numbers = {name: value for name, value in bounds.items() if math.isfinite(value)}
        if nest.elementwise:
            names = definition(nest.function, len(nest.operands)).parameters
            numbers |= dict(zip(names, nest.parameters, strict=True))
        reads = tuple(
            read_operand(compute, access, index, tile, self.places)
            for index, access in enumerate(nest.operands)
        )
        leaf = Leaf(form_of(nest), self.engine, final, reads, numbers, self.origin)
        least, best = cycles_of(items, self.arch), items
        instead = least
        for kernel, made in offered(leaf, self.arch, self.names):
            cycles = cycles_of(made, self.arch)
            offer = Offer(
                kernel.name, kernel.place, nest.tensor, nest.origin, final.shape, cycles, instead
            )
            self._note(offer)
            if cycles < least:
                least, best = cycles, made
        return best

    def _note(self, offer: Offer) -> None:
        key = (offer.tensor, offer.kernel)
        known = self.names.offers.get(key)
        if known is None or known.instead < offer.instead:
            self.names.offers[key] = offer

    def _scratch(self, compute: Compute, tile: Tile) -> Operand:
        """Space for values between links: real ones, or whole numbers of steps."""
        made = written_operand(compute, compute.scratch[0], tile, self.places)
        nest = compute.nest
        if is_float(made.dtype) or all(access.scale is None for access in nest.operands):
            return made
        return replace(made, scale=step_between(nest, tile.plan.tiled.layer.tensors))

    def _links(self, compute: Compute, tile: Tile) -> list[Link]:
        nest = compute.nest
        links: list[Link] = []
        if compute.binding.product:
            assert compute.sums is not None
            source = written_operand(compute, compute.sums, tile, self.places)
            if nest.bias is None and nest.multiplier is None:
                return [lambda dst: [self._unary("move", dst, source)]]
        else:
            links.append(self._main(compute, tile))
            source = self._scratch(compute, tile) if compute.scratch else None  # type: ignore[assignment]
            in_pieces = bool(compute.scratch) and not roles(nest).taps
            if in_pieces and nest.bias is None and nest.multiplier is None:
                links.append(lambda dst: [self._unary("move", dst, source)])
        for access, function in ((nest.bias, "add"), (nest.multiplier, "mul")):
            if access is None:
                continue
            index = nest.reads.index(access)
            operand = self._late(compute, index, tile)
            links.append(self._binary(function, source, operand))
            source = self._scratch(compute, tile) if compute.scratch else source
        return links

    def _late(self, compute: Compute, index: int, tile: Tile) -> Operand:
        """Bias or multiplier, with the result's dims only."""
        operand = read_operand(compute, compute.nest.reads[index], index, tile, self.places)
        return operand.along(range(compute.nest.rank))

    def _unary(self, function: str, dst: Operand, a: Operand, *parameters: float) -> Unary:
        return self.kinds.unary(
            engine=self.engine, origin=self.origin, function=function, dst=dst, a=a,
            parameters=tuple(parameters),
        )  # fmt: skip

    def _binary(self, function: str, a: Operand, b: Operand) -> Link:
        return lambda dst: [
            self.kinds.binary(
                engine=self.engine, origin=self.origin, function=function, dst=dst, a=a, b=b
            )
        ]

    def _main(self, compute: Compute, tile: Tile) -> Link:
        nest = compute.nest
        reads = [
            read_operand(compute, access, index, tile, self.places)
            for index, access in enumerate(nest.operands)
        ]
        if nest.elementwise:
            return lambda dst: [self._elementwise(compute, dst, reads)]
        found = roles(nest)
        if not found.taps:
            return lambda dst: [self._reduce(compute, dst, reads[0])]
        if self.arch.vector.window:
            return lambda dst: self._window(compute, dst, reads, found, tile)
        return lambda dst: self._taps(compute, dst, reads, tile)

    def _elementwise(
        self, compute: Compute, dst: Operand, reads: list[Operand]
    ) -> VectorInstruction:
        nest = compute.nest
        if len(reads) == 1:
            return self._unary(nest.function, dst, reads[0], *nest.parameters)
        if len(reads) == 2:
            return self._binary(nest.function, reads[0], reads[1])(dst)[0]
        return self.kinds.ternary(
            engine=self.engine, origin=self.origin, function=nest.function, dst=dst,
            a=reads[0], b=reads[1], c=reads[2],
        )  # fmt: skip

    def _reduce(self, compute: Compute, dst: Operand, a: Operand) -> VectorInstruction:
        extra = len(a.shape) - len(dst.shape)
        wide = replace(
            dst,
            shape=(*dst.shape, *(1,) * extra),
            strides=(*dst.strides, *(dst.itemsize,) * extra),
        )
        function = compute.nest.reduce
        assert function is not None
        return self.kinds.reduce(
            engine=self.engine, origin=self.origin, function=function, dst=wide, a=a
        )

    def _window(
        self, compute: Compute, dst: Operand, reads: list[Operand], found: Roles, tile: Tile
    ) -> list[VectorInstruction]:
        """One window instruction; output dims beyond rows and channels become leading ones."""
        nest = compute.nest
        geometry = Windows.of(compute, tile, found)
        channel = _channel(dst, found)
        lead = [d for d in range(nest.rank) if d not in (found.y, found.x, channel)]
        lead = [d for d in lead if dst.shape[d] > 1]
        a, buffer = reads[0], tile.plan.buffers[compute.reads[0]]
        walked = [*lead, found.y, found.x, channel]
        shape = [dst.shape[d] for d in lead] + [*geometry.extent, _size(dst, channel)]
        strides = [a.strides[d] for d in lead]
        strides += [buffer.strides[axis] if axis is not None else 0 for axis in geometry.axes]
        strides.append(a.strides[channel] if channel is not None else a.itemsize)
        window = Window(
            engine="vector", origin=self.origin, function=str(nest.reduce),
            dst=dst.along(walked),
            a=replace(
                a.along([*lead, None, None, channel]), shape=tuple(shape), strides=tuple(strides)
            ),
            w=self._weights(reads, lead, geometry, channel) if len(reads) > 1 else None,
            kernel=geometry.kernel, stride=geometry.stride, dilation=geometry.dilation,
        )  # fmt: skip
        return [window]

    def _weights(
        self, reads: list[Operand], lead: list[int], geometry: Windows, channel: int | None
    ) -> Operand:
        dims = [*lead, *geometry.taps, channel]
        return reads[1].along(dims)

    def _taps(
        self, compute: Compute, dst: Operand, reads: list[Operand], tile: Tile
    ) -> list[VectorInstruction]:
        """A window tap by tap: the first starts the result, the others join in."""
        nest = compute.nest
        rank = nest.rank
        ranges = [range(span.size) for span in tile.loops(compute.position)[rank:]]
        positions = [()] if not ranges else [(i,) for i in ranges[0]]
        for more in ranges[1:]:
            positions = [(*p, i) for p in positions for i in more]
        made: list[VectorInstruction] = []
        earlier: Operand | None = None
        for number, position in enumerate(positions):
            target = dst if number == len(positions) - 1 else self._scratch(compute, tile)
            operands = [_at_tap(operand, rank, position) for operand in reads]
            made.append(self._tap(compute, target, operands, earlier))
            earlier = target
        return made

    def _tap(
        self, compute: Compute, dst: Operand, reads: list[Operand], earlier: Operand | None
    ) -> VectorInstruction:
        join = JOINS[str(compute.nest.reduce)]
        if len(reads) == 1:
            if earlier is None:
                return self._unary("move", dst, reads[0])
            return self._binary(join, reads[0], earlier)(dst)[0]
        if earlier is None:
            return self._binary("mul", reads[0], reads[1])(dst)[0]
        return Ternary(
            engine="vector", origin=self.origin, function="fma", dst=dst,
            a=reads[0], b=reads[1], c=earlier,
        )  # fmt: skip


@dataclass(frozen=True)
class Windows:
    """Kernel, stride, dilation and input extent of a tile, for rows y and x."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    extent: tuple[int, int]
    """Input positions that the tile's window covers."""
    axes: tuple[int | None, int | None]
    """Axes of the input tensor."""
    taps: tuple[int | None, int | None]
    """Loops over kernel positions."""

    @classmethod
    def of(cls, compute: Compute, tile: Tile, found: Roles) -> Windows:
        """Geometry of `compute` in `tile`; a missing row dimension has extent 1."""
        loops = tile.loops(compute.position)
        sides = []
        for row in (found.y, found.x):
            tap = next((t for t in found.taps if t.row == row and row is not None), None)
            size = loops[row].size if row is not None else 1
            if tap is None:
                axis = _axis(compute, row)
                step = _coefficient(compute, row)
                sides.append((1, step, 1, (size - 1) * step + 1, axis, None))
                continue
            kernel = loops[tap.dim].size
            extent = (size - 1) * tap.stride + (kernel - 1) * tap.dilation + 1
            sides.append((kernel, tap.stride, tap.dilation, extent, tap.axis, tap.dim))  # type: ignore[arg-type]
        y, x = sides
        return cls(*zip(y, x, strict=True))  # type: ignore[arg-type]


def _axis(compute: Compute, row: int | None) -> int | None:
    if row is None:
        return None
    index = compute.nest.operands[0].index
    return next((axis for axis, affine in enumerate(index) if affine.coefficient(row)), None)


def _coefficient(compute: Compute, row: int | None) -> int:
    axis = _axis(compute, row)
    if axis is None or row is None:
        return 1
    return abs(compute.nest.operands[0].index[axis].coefficient(row)) or 1


def _channel(dst: Operand, found: Roles) -> int | None:
    """The output dim that is neither row: the fastest one that has more than one position."""
    others = [d for d in range(len(dst.shape)) if d not in (found.y, found.x)]
    moving = [d for d in others if dst.shape[d] > 1]
    return min(moving, key=lambda d: dst.strides[d]) if moving else None


def _size(operand: Operand, dim: int | None) -> int:
    return 1 if dim is None else operand.shape[dim]


def _at_tap(operand: Operand, rank: int, position: tuple[int, ...]) -> Operand:
    offset = sum(i * s for i, s in zip(position, operand.strides[rank:], strict=True))
    address: Address = moved(operand.address, offset)
    return replace(operand.along(range(rank)), address=address)


def looped(items: list[Item], counts: list[tuple[str, int]]) -> list[Item]:
    """`items` inside loops, outermost first."""
    for variable, count in reversed(counts):
        items = [Loop(variable, count, tuple(items))]
    return items

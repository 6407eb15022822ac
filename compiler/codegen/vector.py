"""Vector instructions of one nest over one tile.

A nest is a short chain: its own function, then the bias, then the multiplier; only the last link
clips and encodes. Values between links stay in scratch, in the widest type that the engine has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import simmodel.isa as isa
from compiler.codegen.kernels import KERNELS, KernelRequest, Offer, cycles_of, offered
from compiler.codegen.legalize import in_pieces, legal_vector, merged, taken
from compiler.codegen.tile import TileEmitter, TilePosition, read_operand, written_operand
from compiler.geometry.boxes import scaled
from compiler.plan.make_plan import Compute
from compiler.target.array_mapping import Roles, roles
from compiler.target.layout import links_of
from compiler.target.loops.split import SplitInstruction
from compiler.target.machine import form_of, joins_in_place, step_between
from compiler.target.vector import kept_dims, lane_of
from simmodel.arch.element_types import is_float
from simmodel.isa.forms import definition
from simmodel.isa.region import Limit, Operand, replace
from simmodel.program.substitute import operands_of

_SCALARS = (isa.ScalarUnary, isa.ScalarBinary, isa.ScalarTernary)
"""Instructions of the scalar unit, of one, two and three operands."""
_VECTORS = (isa.Unary, isa.Binary, isa.Ternary)
"""The same of all others."""


@dataclass(frozen=True)
class VectorEmitter(TileEmitter):
    """Emits one compute step on the vector engine, a function engine or the scalar unit."""

    engine: str = "vector"

    def items(self, compute: Compute, tile: TilePosition) -> list[isa.Item]:
        """Instructions of `compute`, within the engine's ranks and extents."""
        nest, tensors = compute.nest, tile.plan.tiled.layer.tensors
        links = links_of(nest, tensors, compute.binding, self.arch)
        final = replace(
            written_operand(compute, compute.writes, tile), scale=nest.scale, zero=nest.zero
        )
        source = None
        if compute.sums is not None:
            source = written_operand(compute, compute.sums, tile)
        items: list[isa.Item] = []
        # Scratch holds what pieces of a reduction leave as it is.
        joins = bool(compute.scratch) or joins_in_place(nest, tensors)
        for number, link in enumerate(links):
            last = number == len(links) - 1
            target = final if last else self._scratch(compute, tile)
            made = self._linked(link, target, source, compute, tile)
            if last:
                made = replace(made, low=nest.low, high=nest.high)
            items += legal_vector(made, self.arch, self.names, joins=joins)
            source = target
        return self._quicker_kernel(items, compute, tile, final)

    def _quicker_kernel(
        self, items: list[isa.Item], compute: Compute, tile: TilePosition, final: Operand
    ) -> list[isa.Item]:
        """`items`, or those of a kernel that takes fewer cycles."""
        nest, way = compute.nest, compute.binding
        late = nest.bias or nest.multiplier or way.product  # what finishes sums is no operator
        if not KERNELS or way.engine != "vector" or late or final.limits:
            return items
        bounds = {"low": nest.low, "high": nest.high}
        numbers = {name: value for name, value in bounds.items() if math.isfinite(value)}
        if nest.elementwise:
            names = definition(nest.function, len(nest.operands)).parameters
            numbers |= dict(zip(names, nest.parameters, strict=True))
        reads = tuple(
            read_operand(compute, access, index, tile) for index, access in enumerate(nest.operands)
        )
        leaf = KernelRequest(form_of(nest), self.engine, final, reads, numbers, self.origin)
        least, best = cycles_of(items, self.arch), items
        instead = least
        for kernel, made in offered(leaf, self.arch, self.names):
            cycles = cycles_of(made, self.arch)
            known = self.names.offers.get((nest.tensor, kernel.name))
            if known is None or known.instead < instead:
                self.names.offers[nest.tensor, kernel.name] = Offer(
                    kernel.name, kernel.place, nest.tensor, nest.origin, final.shape, cycles,
                    instead,
                )  # fmt: skip
            if cycles < least:
                least, best = cycles, made
        return best

    def _scratch(self, compute: Compute, tile: TilePosition) -> Operand:
        """Space for values between links: real ones, or whole numbers of steps."""
        made = written_operand(compute, compute.scratch[0], tile)
        nest = compute.nest
        if is_float(made.dtype) or all(access.scale is None for access in nest.operands):
            return made
        return replace(made, scale=step_between(nest, tile.plan.tiled.layer.tensors))

    def _linked(
        self, link: SplitInstruction, dst: Operand, source: Operand | None, compute: Compute,
        tile: TilePosition,
    ) -> isa.VectorInstruction:  # fmt: skip
        """The instruction of `link`, which reads `source` where it reads what is there."""
        nest = compute.nest
        operands = []
        for index in link.reads:
            if index is None:
                assert source is not None
                operands.append(source)
                continue
            read = read_operand(compute, nest.reads[index], index, tile)
            if link.at is not None:
                read = _at_tap(read, nest.rank, link.at)
            elif index >= len(nest.operands):
                read = read.along(range(nest.rank))
            operands.append(read)
        if link.kind == "window":
            return self._window(compute, dst, operands, roles(nest), tile)
        fields: dict[str, Any] = dict(zip("abc", operands, strict=False))
        fields |= {"engine": self.engine, "origin": self.origin}
        if link.kind == "reduce":
            kind = isa.ScalarReduce if self.engine == "scalar" else isa.Reduce
            wide = _with_unit_axes(dst, len(operands[0].shape) - len(dst.shape))
            return kind(function=str(nest.reduce), dst=wide, **fields)
        if len(operands) == 1:
            fields["parameters"] = link.parameters
        kinds = _SCALARS if self.engine == "scalar" else _VECTORS
        return kinds[len(operands) - 1](function=link.function, dst=dst, **fields)

    def _window(
        self, compute: Compute, dst: Operand, reads: list[Operand], found: Roles, tile: TilePosition
    ) -> isa.VectorInstruction:
        """One window instruction; output dims beyond rows and channels become leading ones."""
        nest = compute.nest
        geometry = Windows.of(compute, tile, found)
        # The channel is the fastest output dim with several positions that is neither row.
        others = [d for d in range(nest.rank) if d not in (found.y, found.x) and dst.shape[d] > 1]
        channel = min(others, key=lambda d: dst.strides[d], default=None)
        lead = [d for d in others if d != channel]
        a, buffer = reads[0], tile.plan.buffers[compute.reads[0]]
        inner = a.along([*lead, None, None, channel])
        strides = [buffer.strides[axis] if axis is not None else 0 for axis in geometry.axes]
        rows = slice(len(lead), len(lead) + 2)
        shape, steps = list(inner.shape), list(inner.strides)
        shape[rows], steps[rows] = geometry.extent, strides
        short = geometry.limits(a, (found.y, found.x), len(lead))
        return isa.Window(
            engine="vector", origin=self.origin, function=str(nest.reduce),
            dst=dst.along([*lead, found.y, found.x, channel]),
            a=replace(
                inner, shape=tuple(shape), strides=tuple(steps), limits=(*inner.limits, *short)
            ),
            w=reads[1].along([*lead, *geometry.taps, channel]) if len(reads) > 1 else None,
            kernel=geometry.kernel, stride=geometry.stride, dilation=geometry.dilation,
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
    def of(cls, compute: Compute, tile: TilePosition, found: Roles) -> Windows:
        """Geometry of `compute` in `tile`; a missing row dimension has extent 1."""
        loops = tile.loops(compute.position)
        sides = []
        for row in (found.y, found.x):
            tap = next((t for t in found.taps if t.row == row and row is not None), None)
            size = loops[row].size if row is not None else 1
            if tap is None:
                axis, step = _axis_read_by(compute, row)
                sides.append((1, step, 1, (size - 1) * step + 1, axis, None))
                continue
            kernel = loops[tap.dim].size
            extent = (size - 1) * tap.stride + (kernel - 1) * tap.dilation + 1
            sides.append((kernel, tap.stride, tap.dilation, extent, tap.axis, tap.dim))  # type: ignore[arg-type]
        y, x = sides
        return cls(*zip(y, x, strict=True))  # type: ignore[arg-type]

    def limits(
        self, read: Operand, rows: tuple[int | None, int | None], first: int
    ) -> tuple[Limit, ...]:
        """How far input positions, `read` over all loops, go where there are fewer windows in
        `rows`, the first of which is axis `first` of the operand that the limits are for."""
        made = []
        for side, row in enumerate(rows):
            step = self.stride[side]
            more = (self.kernel[side] - 1) * self.dilation[side] + 1 - step
            made += [
                Limit(first + side, each.base * step + more, scaled(each.terms, step))
                for each in read.limits
                if each.axis == row and row is not None
            ]
        return tuple(made)


def _axis_read_by(compute: Compute, row: int | None) -> tuple[int | None, int]:
    """The axis of the first operand that a loop moves, and by how many positions."""
    for axis, affine in enumerate(compute.nest.operands[0].index):
        if row is not None and (factor := affine.coefficient(row)):
            return axis, abs(factor)
    return None, 1


def _with_unit_axes(operand: Operand, count: int) -> Operand:
    """`operand` with so many more dimensions of extent 1."""
    strides = (*operand.strides, *(operand.itemsize,) * count)
    return replace(operand, shape=(*operand.shape, *(1,) * count), strides=strides)


def _at_tap(operand: Operand, rank: int, position: tuple[int, ...]) -> Operand:
    offset = sum(i * s for i, s in zip(position, operand.strides[rank:], strict=True))
    return replace(operand.along(range(rank)), address=operand.address.plus(offset))


# Sums of products on the vector engine: one nest over one tile, added up beside what there is.


@dataclass(frozen=True)
class ProductEmitter(TileEmitter):
    """Emits the sums of one compute step; `VectorEmitter` finishes them."""

    def items(self, compute: Compute, tile: TilePosition) -> list[isa.Item]:
        """Instructions that add the products of `tile` to the sums of `compute`."""
        assert compute.sums is not None
        nest = compute.nest
        a, w = (
            read_operand(compute, access, index, tile) for index, access in enumerate(nest.operands)
        )
        sums = written_operand(compute, compute.sums, tile)
        dst = _with_unit_axes(sums, len(nest.dims) - nest.rank)
        whole = isa.Product(engine="vector", origin=self.origin, dst=dst, a=a, w=w)
        if not self.arch.vector.product_rows:
            first = self._cleared(sums) if tile.opens else []
            return [*first, *self._chained(whole)]
        whole = merged(self._order_axes(whole, nest.rank))
        loops = self._loops(whole)
        limit = self.arch.reach(whole.form)[1]
        last = len(whole.dst.shape) - 1
        alone = not any(_adds(whole, axis) for axis in loops)
        alone = alone and not (
            _adds(whole, last) and limit is not None and _extent(whole, last) > limit
        )
        if tile.opens and alone:
            return self._looped(whole, loops, limit)
        first = self._cleared(sums) if tile.opens else []
        return [*first, *self._looped(replace(whole, partial=whole.dst), loops, limit)]

    def _cleared(self, sums: Operand) -> list[isa.Item]:
        splat = isa.Splat(engine="vector", origin=self.origin, dst=sums)
        return legal_vector(splat, self.arch, self.names)

    def _order_axes(self, whole: isa.Product, rank: int) -> isa.Product:
        """Rows, then the reduction, then the dimension that lies along the lanes."""
        lanes = self.arch.vector.elements(max(whole.a.itemsize, whole.w.itemsize))
        order = sorted(range(rank), key=lambda axis: -abs(whole.dst.strides[axis]))
        lane = lane_of([(axis, whole.dst.shape[axis]) for axis in order], lanes)
        inner = range(rank, len(whole.dst.shape))
        deep = sorted(inner, key=lambda axis: -abs(whole.w.strides[axis]))
        axes = [*(axis for axis in order if axis != lane), *deep]
        return _with_axes(whole, [*axes, lane] if lane is not None else axes)

    def _loops(self, whole: isa.Product) -> list[int]:
        """Dimensions that loops around the instruction walk, rows outside of the reduction."""
        extents = [_extent(whole, axis) for axis in range(len(whole.dst.shape))]
        adds = [_adds(whole, axis) for axis in range(len(extents))]
        kept = kept_dims(extents, adds, self.arch.reach(whole.form)[0])
        return [axis for axis in range(len(extents)) if axis not in kept]

    def _looped(
        self, whole: isa.Product, loops: Sequence[int], limit: int | None
    ) -> list[isa.Item]:
        if not loops:
            axis = len(whole.dst.shape) - 1
            extent = _extent(whole, axis)
            return in_pieces(whole, axis, min(extent, limit or extent), self.names)
        variable, (axis, *rest) = self.names.fresh(), loops
        inner = taken(whole, axis, variable, 0, 1)
        assert isinstance(inner, isa.Product)
        body = self._looped(inner, [other - (other > axis) for other in rest], limit)
        return [isa.Loop(variable, _extent(whole, axis), tuple(body))]

    def _chained(self, whole: isa.Product) -> list[isa.Item]:
        """A multiply-add for each position of the reduction."""
        axis = next((a for a in range(len(whole.dst.shape)) if _adds(whole, a)), None)
        if axis is not None:
            variable = self.names.fresh()
            inner = taken(whole, axis, variable, 0, 1)
            assert isinstance(inner, isa.Product)
            return [isa.Loop(variable, _extent(whole, axis), tuple(self._chained(inner)))]
        once = [axis for axis in range(len(whole.dst.shape)) if _extent(whole, axis) > 1]
        whole = _with_axes(whole, once or [0])
        step = isa.Ternary(
            engine="vector", origin=self.origin, function="fma", dst=whole.dst,
            a=whole.a, b=whole.w, c=whole.dst,
        )  # fmt: skip
        return legal_vector(step, self.arch, self.names)


def _extent(product: isa.Product, axis: int) -> int:
    return max(operand.shape[axis] for operand in (product.dst, product.a, product.w))


def _adds(product: isa.Product, axis: int) -> bool:
    """Whether positions along `axis` are added up."""
    return product.dst.shape[axis] == 1 and _extent(product, axis) > 1


def _with_axes(product: isa.Product, axes: Sequence[int]) -> isa.Product:
    changes = {name: operand.along(axes) for name, operand in operands_of(product).items()}
    return replace(product, **changes)

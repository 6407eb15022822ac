"""Sums of products on the vector engine: one nest over one tile, added up beside what there is.

    sums = 0
    for y, for i:  sums[y] += a[y + i, x, (j k)] w[i, (j k), n]      lanes along n, rows along x

With products of its own (`vector.product_rows`) the engine walks lanes, as much of the reduction
and as many rows as its rank allows; hardware loops stand around that. Else each position of the
reduction is a multiply-add over the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.bind.lanes import kept_dims, lane_of
from compiler.emit.legal import Names, in_pieces, legal_vector
from compiler.emit.operands import merged, taken
from compiler.emit.tile import Places, Tile, read_operand, written_operand
from compiler.plan.ir import Compute
from simmodel.arch import Arch
from simmodel.isa import Item, Loop, Product, Splat, Ternary
from simmodel.region import Operand
from simmodel.turns import operands_of


@dataclass(frozen=True)
class ProductEmitter:
    """Emits the sums of one compute step; `VectorEmitter` finishes them."""

    arch: Arch
    names: Names
    places: Places
    origin: int

    def items(self, compute: Compute, tile: Tile) -> list[Item]:
        """Instructions that add the products of `tile` to the sums of `compute`."""
        assert compute.sums is not None
        nest = compute.nest
        a, w = (
            read_operand(compute, access, index, tile, self.places)
            for index, access in enumerate(nest.operands)
        )
        sums = written_operand(compute, compute.sums, tile, self.places)
        reduced = len(nest.dims) - nest.rank
        shape = (*sums.shape, *(1,) * reduced)
        dst = replace(sums, shape=shape, strides=(*sums.strides, *(sums.itemsize,) * reduced))
        whole = Product(engine="vector", origin=self.origin, dst=dst, a=a, w=w)
        if not self.arch.vector.product_rows:
            first = self._cleared(sums) if tile.opens else []
            return [*first, *self._chained(whole)]
        whole = merged(self._arranged(whole, nest.rank))
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

    def _cleared(self, sums: Operand) -> list[Item]:
        splat = Splat(engine="vector", origin=self.origin, dst=sums)
        return legal_vector(splat, self.arch, self.names)

    def _arranged(self, whole: Product, rank: int) -> Product:
        """Rows, then the reduction, then the dimension that lies along the lanes."""
        lanes = self.arch.vector.elements(max(whole.a.itemsize, whole.w.itemsize))
        order = sorted(range(rank), key=lambda axis: -abs(whole.dst.strides[axis]))
        lane = lane_of([(axis, whole.dst.shape[axis]) for axis in order], lanes)
        inner = range(rank, len(whole.dst.shape))
        deep = sorted(inner, key=lambda axis: -abs(whole.w.strides[axis]))
        axes = [*(axis for axis in order if axis != lane), *deep]
        return _with_axes(whole, [*axes, lane] if lane is not None else axes)

    def _loops(self, whole: Product) -> list[int]:
        """Dimensions that loops around the instruction walk, rows outside of the reduction."""
        extents = [_extent(whole, axis) for axis in range(len(whole.dst.shape))]
        adds = [_adds(whole, axis) for axis in range(len(extents))]
        kept = kept_dims(extents, adds, self.arch.reach(whole.form)[0])
        return [axis for axis in range(len(extents)) if axis not in kept]

    def _looped(self, whole: Product, loops: Sequence[int], limit: int | None) -> list[Item]:
        if not loops:
            axis = len(whole.dst.shape) - 1
            extent = _extent(whole, axis)
            return in_pieces(whole, axis, min(extent, limit or extent), self.names)
        variable, (axis, *rest) = self.names.fresh(), loops
        inner = taken(whole, axis, variable, 0, 1)
        assert isinstance(inner, Product)
        body = self._looped(inner, [other - (other > axis) for other in rest], limit)
        return [Loop(variable, _extent(whole, axis), tuple(body))]

    def _chained(self, whole: Product) -> list[Item]:
        """A multiply-add for each position of the reduction."""
        axis = next((a for a in range(len(whole.dst.shape)) if _adds(whole, a)), None)
        if axis is not None:
            variable = self.names.fresh()
            inner = taken(whole, axis, variable, 0, 1)
            assert isinstance(inner, Product)
            return [Loop(variable, _extent(whole, axis), tuple(self._chained(inner)))]
        once = [axis for axis in range(len(whole.dst.shape)) if _extent(whole, axis) > 1]
        whole = _with_axes(whole, once or [0])
        step = Ternary(
            engine="vector", origin=self.origin, function="fma", dst=whole.dst,
            a=whole.a, b=whole.w, c=whole.dst,
        )  # fmt: skip
        return legal_vector(step, self.arch, self.names)


def _extent(product: Product, axis: int) -> int:
    return max(operand.shape[axis] for operand in (product.dst, product.a, product.w))


def _adds(product: Product, axis: int) -> bool:
    """Whether positions along `axis` are added up."""
    return product.dst.shape[axis] == 1 and _extent(product, axis) > 1


def _with_axes(product: Product, axes: Sequence[int]) -> Product:
    changes = {name: operand.along(axes) for name, operand in operands_of(product).items()}
    return replace(product, **changes)  # type: ignore[arg-type]

"""Matrix instructions of one product over one tile, in the machine's granularity.

    conv     one instruction for the tile
    gemm     one instruction per kernel position that does not join the reduction (`bind.mapping`);
             sums kept between them
    tile     loops over array-sized pieces of each of those

The first piece of a reduction starts the sums, the last one finishes them where the engine can. Of
an open number of positions the last one is not always there. There the one at the beginning, which
always is, comes at the end; it starts the sums as well where it is the only one:

    0:16  16:32  32:48        16:32  32:48  0:16
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compiler.codegen.legalize import Names, scaled
from compiler.codegen.tile import Places, TilePosition, read_operand, written_operand
from compiler.codegen.vector import Windows, looped
from compiler.plan.plan import Compute
from compiler.target.array_mapping import Roles, block, mapping, merge_tap_loop, roles
from compiler.target.loops.split import behind, ends, runs
from simmodel.arch.record import Arch
from simmodel.isa import Conv, DepthwiseConv, Gemm, Item, Loop, MatrixInstruction
from simmodel.isa import Tile as TileProduct
from simmodel.isa.matrix import tile_limits
from simmodel.isa.region import Limit, Operand


@dataclass(frozen=True)
class ProductOperands:
    """Operands of one tile's product, by loop of the nest, and what finishing it takes."""

    a: Operand
    w: Operand
    sums: Operand | None
    out: Operand
    finish: dict[str, Any]
    """Fields of the last instruction: bias, multiplier, low, high."""
    opens: bool
    closes: bool
    """Whether the last piece writes the finished result."""

    def channels(
        self, channel: int, beside: int, part: tuple[str, int, int], first: int
    ) -> ProductOperands:
        """That of a part of the channels with themselves.

        Args:
            channel: the loop over channels.
            beside: the loop over those that each is computed with.
            part: variable of the loop around it, first channel and channels, see `Operand.cut`.
            first: of those that each is computed with.
        """

        def cut(operand: Operand) -> Operand:
            return operand.cut(channel, *part)

        finish = {n: cut(v) if isinstance(v, Operand) else v for n, v in self.finish.items()}
        sums = None if self.sums is None else cut(self.sums)
        w = cut(self.w).cut(beside, "", first, part[2])
        return replace(self, a=cut(self.a), w=w, sums=sums, out=cut(self.out), finish=finish)


class Axes(NamedTuple):
    """Loops of a product with its array."""

    deep: int | None
    """The reduction, of both operands."""
    wide: int | None
    """Columns of the weights."""
    out: int | None
    """Columns of the result: of channels that go together another loop than those of the weights.
    """


@dataclass(frozen=True)
class MatrixEmitter:
    """Emits one compute step on the matrix engine."""

    arch: Arch
    names: Names
    places: Places
    origin: int

    def items(self, compute: Compute, tile: TilePosition) -> list[Item]:
        """Instructions of `compute` for `tile`."""
        nest, found = compute.nest, roles(compute.nest)
        a, w = (
            read_operand(compute, access, index, tile, self.places)
            for index, access in enumerate(nest.operands)
        )
        out = written_operand(compute, compute.writes, tile, self.places)
        out = replace(out, scale=nest.scale, zero=nest.zero)
        sums = None
        if compute.sums is not None:
            sums = written_operand(compute, compute.sums, tile, self.places)
        closes = tile.closes and compute.binding.direct
        finish = self._finish(compute, tile) if closes else {}
        product = ProductOperands(a, w, sums, out, finish, tile.opens, closes)
        native = nest.depthwise and self.arch.matrix.depthwise
        channel = found.col
        if native or nest.beside is not None:
            channel = found.batch[-1]
        walked = (found.b, found.y, found.x, channel)
        lead = [d for d in range(nest.rank) if d not in walked and out.shape[d] > 1]
        counts = [(self.names.fresh(), out.shape[d]) for d in lead]
        product = _led(product, lead, counts)
        if native:
            return _each_looped(self._depthwise_items(compute, tile, product, found), counts)
        axes = Axes(found.k, found.col, found.col)
        if nest.beside is not None:
            axes = Axes(channel, nest.beside, channel)
        return [
            item
            for part, around in self._channel_group_products(compute, tile, product)
            for item in _each_looped(self._products(compute, tile, part, axes), around + counts)
        ]

    def _products(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, axes: Axes
    ) -> list[Item]:
        found = roles(compute.nest)
        if self.arch.matrix.granularity == "conv" and found.taps:
            return self._conv_items(compute, tile, product, axes)
        return self._gemms(compute, tile, product, axes)

    def _channel_group_products(
        self, compute: Compute, tile: TilePosition, product: ProductOperands
    ) -> Iterator[tuple[ProductOperands, list[tuple[str, int]]]]:
        """`product` cut into those of channels that are computed together, and loops around."""
        nest = compute.nest
        if nest.beside is None:
            yield product, []
            return
        channel, each = roles(nest).batch[-1], nest.sparse
        span = tile.loops(compute.position)[channel]
        assert all(factor % each == 0 for _, factor in span.terms)
        first = span.start % each
        short = min(span.size, -first % each)
        if short:
            yield product.channels(channel, nest.beside, ("", 0, short), first), []
        for _, count, start, size, _ in runs(span.size - short, each, low=short):
            variable = self.names.fresh() if count > 1 else ""
            part = product.channels(channel, nest.beside, (variable, start, size), 0)
            yield part, [(variable, count)] if count > 1 else []

    def _finish(self, compute: Compute, tile: TilePosition) -> dict[str, Any]:
        nest = compute.nest
        fields: dict[str, Any] = {"low": nest.low, "high": nest.high}
        for name, access in (("bias", nest.bias), ("multiplier", nest.multiplier)):
            if access is not None:
                index = nest.reads.index(access)
                fields[name] = read_operand(compute, access, index, tile, self.places)
        return fields

    def _make(
        self, kind: type[MatrixInstruction], product: ProductOperands,
        dims: dict[str, list[int | None]],
        *, first: bool, last: bool, **fields: Any,
    ) -> MatrixInstruction:  # fmt: skip
        """One instruction; `dims` picks each operand's dimensions from the nest's loops."""
        target = product.out if last and product.closes else product.sums
        assert target is not None
        partial = None if first and product.opens else product.sums
        finish = dict(product.finish) if last and product.closes else {}
        for name in ("bias", "multiplier"):
            if name in finish:
                finish[name] = _per_column(finish[name], dims["out"])
        return kind(
            engine="matrix",
            origin=self.origin,
            a=fields.pop("a", None) or product.a.along(dims["a"]),
            w=product.w.along(dims["w"]),
            dst=target.along(dims["out"]),
            partial=None if partial is None else partial.along(dims["out"]),
            **finish,
            **fields,
        )

    def _conv_items(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, axes: Axes
    ) -> list[Item]:
        found = roles(compute.nest)
        geometry = Windows.of(compute, tile, found)
        a = _window_input(compute, tile, product.a, geometry, (found.b, axes.deep))
        product, together = self._merge_kernel_columns(compute, product, found)
        if together is not None:
            assert found.x is not None
            a = _overlapping(a, geometry, tile.loops(compute.position)[found.x].size)
            (down, _), (apart, _) = geometry.stride, geometry.dilation
            geometry = replace(geometry, stride=(down, 1), dilation=(apart, 1))
        dims: dict[str, list[int | None]] = {
            "a": [],
            "w": [*geometry.taps, axes.deep, axes.wide],
            "out": [found.b, found.y, found.x, axes.out],
        }
        whole = self._make(
            Conv, product, dims, first=True, last=True, a=a,
            stride=geometry.stride, dilation=geometry.dilation,
        )  # fmt: skip
        return self._windowed(whole)

    def _depthwise_items(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, found: Roles
    ) -> list[Item]:
        geometry = Windows.of(compute, tile, found)
        channel = found.batch[-1]
        a = _window_input(compute, tile, product.a, geometry, (found.b, channel))
        dims: dict[str, list[int | None]] = {
            "a": [],
            "w": [*geometry.taps, channel],
            "out": [found.b, found.y, found.x, channel],
        }
        whole = self._make(
            DepthwiseConv, product, dims, first=True, last=True, a=a,
            stride=geometry.stride, dilation=geometry.dilation,
        )  # fmt: skip
        return self._windowed(whole)

    def _windowed(self, whole: MatrixInstruction) -> list[Item]:
        """`whole` cut into blocks of pixels, as many as one instruction takes."""
        items: list[Item] = [whole]
        pixels, limit = whole.dst.shape[:3], self.arch.matrix.max_pixels
        for axis, size in enumerate(block(limit or math.prod(pixels), *pixels)):
            items = [piece for item in items for piece in self._bands(item, axis, size)]
        return items

    def _bands(self, item: Item, axis: int, size: int) -> list[Item]:
        """Bands of `size` output positions along row dimension `axis`: batch, lines, columns."""
        if isinstance(item, Loop):
            body = (piece for inner in item.body for piece in self._bands(inner, axis, size))
            return [replace(item, body=tuple(body))]
        assert isinstance(item, Conv | DepthwiseConv)
        items: list[Item] = []
        step, reach = 1, 1
        if axis:
            step = item.stride[axis - 1]
            reach = (item.w.shape[axis - 1] - 1) * item.dilation[axis - 1] + 1
        extent = item.dst.shape[axis]
        for _, count, start, length, _ in runs(extent, size):
            variable = self.names.fresh() if count > 1 else ""
            seen = (length - 1) * step + reach
            moved = _spaced(item.a, axis, step).cut(axis, variable, start, length)
            shape = (*item.a.shape[:axis], seen, *item.a.shape[axis + 1 :])
            short = _later(item.a.limits, axis, variable, start * step, length * step)
            a = replace(moved, strides=item.a.strides, shape=shape, limits=short)
            dst = item.dst.cut(axis, variable, start, length)
            sums = item.partial and item.partial.cut(axis, variable, start, length)
            piece = replace(item, a=a, dst=dst, partial=sums)
            items.append(Loop(variable, count, (piece,)) if count > 1 else piece)
        return items

    def _gemms(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, axes: Axes
    ) -> list[Item]:
        """One product per kernel position that does not join the reduction."""
        found = roles(compute.nest)
        loops = tile.loops(compute.position)
        product, together = self._merge_kernel_columns(compute, product, found)
        dims: dict[str, list[int | None]] = {
            "a": [found.b, found.y, found.x, axes.deep],
            "w": [axes.deep, axes.wide],
            "out": [found.b, found.y, found.x, axes.out],
        }
        taps = [tap.dim for tap in found.taps if tap.dim != together]
        positions = _positions([loops[d].size for d in taps])
        items: list[Item] = []
        for number, position in enumerate(positions):
            offsets = dict(zip(taps, position, strict=True))
            moved = replace(
                product,
                a=_shifted(product.a, offsets),
                w=_shifted(product.w, offsets),
            )
            first, last = number == 0, number == len(positions) - 1
            if self.arch.matrix.granularity == "tile":
                items += self._array_tiles(moved, dims, first=first, last=last)
            else:
                items += self._pixels(self._make(Gemm, moved, dims, first=first, last=last))
        return items

    def _merge_kernel_columns(
        self, compute: Compute, product: ProductOperands, found: Roles
    ) -> tuple[ProductOperands, int | None]:
        """`product` with kernel columns in its reduction, and their loop, where they join it."""
        if found.k is None:
            return product, None
        a, w, k, matrix = product.a, product.w, found.k, self.arch.matrix
        lies = mapping(compute.nest, matrix, a.dtype, a.shape[k], (a.strides, w.strides))
        tap = lies.joined
        if tap is None:
            return product, None
        return replace(product, a=merge_tap_loop(a, tap, k), w=merge_tap_loop(w, tap, k)), tap

    def _array_tiles(
        self,
        product: ProductOperands,
        dims: dict[str, list[int | None]],
        *,
        first: bool,
        last: bool,
    ) -> list[Item]:
        """Array-sized pieces: reduction outermost, then columns, then pixels."""
        rows, _ = tile_limits(self.arch)
        depth = dims["a"][-1]
        extent = 1 if depth is None else product.a.shape[depth]
        pieces = -(-extent // rows)
        open_ = depth in product.a.limited and pieces > 1 and last and product.closes
        items: list[Item] = []
        alone = ends(pieces, first=first, last=last)
        for number, count, start, size, _ in (behind if open_ else runs)(extent, rows, alone):
            opens, closes = first and not number, last and number + count == pieces
            variable = self.names.fresh() if count > 1 else ""
            part = product
            if depth is not None and extent > 1:
                part = replace(
                    product,
                    a=product.a.cut(depth, variable, start, size),
                    w=product.w.cut(depth, variable, start, size),
                )
            if open_ and closes and first and product.opens:
                part = replace(part, sums=_limited_sums(part, depth, size))
            whole = self._make(TileProduct, part, dims, first=opens, last=closes)
            body = self._column_tiles(whole)
            items += _each_looped(body, [(variable, count)] if count > 1 else [])
        return items

    def _column_tiles(self, whole: MatrixInstruction) -> list[Item]:
        """`whole` cut into columns of the array."""
        _, cols = tile_limits(self.arch)
        items: list[Item] = []
        width = whole.dst.shape[-1]
        for _, count, start, size, _ in runs(width, cols):
            variable = self.names.fresh() if count > 1 else ""
            part = _cut_product(whole, variable, start, size)
            body = self._pixels(part)
            items += _each_looped(body, [(variable, count)] if count > 1 else [])
        return items

    def _pixels(self, part: MatrixInstruction) -> list[Item]:
        """`part` cut into blocks of pixels, as many as one instruction takes."""
        limit = self.arch.matrix.max_pixels
        if limit is None or math.prod(part.dst.shape[:3]) <= limit:
            return [part]
        part = _in_line(part)
        return self._blocks(part, 0, *block(limit, *part.dst.shape[:3]))

    def _blocks(self, part: MatrixInstruction, axis: int, size: int, *inner: int) -> list[Item]:
        """Pieces of `size` along row dimension `axis`, then of `inner` along the next ones."""
        items: list[Item] = []
        extent = part.dst.shape[axis]
        for _, count, start, length, _ in runs(extent, size):
            variable = self.names.fresh() if count > 1 else ""
            changes: dict[str, Any] = {}
            for name in ("a", "dst", "partial"):
                operand = getattr(part, name)
                if operand is not None:
                    changes[name] = operand.cut(axis, variable, start, length)
            piece = replace(part, **changes)
            body: list[Item] = self._blocks(piece, axis + 1, *inner) if inner else [piece]
            items += _each_looped(body, [(variable, count)] if count > 1 else [])
        return items


def _in_line(part: MatrixInstruction) -> MatrixInstruction:
    """`part` with lines, then images, one behind the other as one line where all operands allow."""
    changes: dict[str, Any] = {
        name: operand
        for name in ("a", "dst", "partial")
        if (operand := getattr(part, name)) is not None
    }
    for outer in (1, 0):
        if not all(_goes_on(operand, outer) for operand in changes.values()):
            break
        changes = {name: _lined(operand, outer) for name, operand in changes.items()}
    return replace(part, **changes)


def _goes_on(operand: Operand, outer: int) -> bool:
    """Whether its line goes on where a position of dimension `outer` ends."""
    if 2 in operand.limited:
        return False
    return operand.shape[outer] == 1 or operand.strides[outer] == (
        operand.shape[2] * operand.strides[2]
    )


def _lined(operand: Operand, outer: int) -> Operand:
    """`operand` with all of dimension `outer` in its line."""
    shape, line = list(operand.shape), operand.shape[2]
    shape[2] *= shape[outer]
    shape[outer] = 1
    limits = (scaled(limit, line, outer) for limit in operand.limits)
    longer = tuple(replace(each, axis=2) if each.axis == outer else each for each in limits)
    return replace(operand, shape=tuple(shape), limits=longer)


def _each_looped(items: list[Item], counts: list[tuple[str, int]]) -> list[Item]:
    """Every item in loops of its own: the iterations are independent, and a loop around a single
    instruction is one burst for the machine."""
    return [loop for item in items for loop in looped([item], counts)]


def _limited_sums(part: ProductOperands, depth: int | None, size: int) -> Operand:
    """Its sums, which are there where the reduction goes on behind its first `size` positions."""
    assert part.sums is not None
    there = (Limit(None, e.base - size, e.terms) for e in part.a.limits if e.axis == depth)
    return replace(part.sums, limits=(*part.sums.limits, *there))


def _cut_product(
    whole: MatrixInstruction, variable: str, start: int, size: int
) -> MatrixInstruction:
    changes: dict[str, Any] = {}
    for name in ("w", "dst", "partial", "bias", "multiplier"):
        operand = getattr(whole, name)
        if operand is not None:
            changes[name] = operand.cut(len(operand.shape) - 1, variable, start, size)
    return replace(whole, **changes)


def _led(
    product: ProductOperands, lead: list[int], counts: list[tuple[str, int]]
) -> ProductOperands:
    """Operands that `lead` loops move: the loops' variables enter their addresses."""

    def move(operand: Operand | None) -> Operand | None:
        if operand is None:
            return None
        for dim, (variable, _) in zip(lead, counts, strict=True):
            operand = operand.cut(dim, variable, 0, 1)
        return operand

    finish = {
        name: move(value) if isinstance(value, Operand) else value
        for name, value in product.finish.items()
    }
    a, w, out = move(product.a), move(product.w), move(product.out)
    assert a is not None and w is not None and out is not None
    return replace(product, a=a, w=w, out=out, sums=move(product.sums), finish=finish)


def _per_column(operand: Operand, out_dims: list[int | None]) -> Operand:
    """Bias or multiplier with dst's rank: extent 1 wherever it does not move."""
    narrow = operand.along(out_dims)
    shape = tuple(
        n if s and d is not None else 1
        for n, s, d in zip(narrow.shape, narrow.strides, out_dims, strict=True)
    )
    return replace(narrow, shape=shape)


def _window_input(
    compute: Compute, tile: TilePosition, a: Operand, geometry: Windows,
    ends: tuple[int | None, int | None],
) -> Operand:  # fmt: skip
    """Input [b, h, w, c] that the tile's windows cover; `ends`: loops of the first and last."""
    buffer = tile.plan.buffers[compute.reads[0]]
    strides = [buffer.strides[axis] if axis is not None else a.itemsize for axis in geometry.axes]
    batch, deep = ends
    own = a.along([batch, None, None, deep])
    found = roles(compute.nest)
    return replace(
        own, shape=(own.shape[0], *geometry.extent, own.shape[3]),
        strides=(own.strides[0], *strides, own.strides[3]),
        limits=(*own.limits, *geometry.limits(a, (found.y, found.x), 1)),
    )  # fmt: skip


def _overlapping(a: Operand, geometry: Windows, outs: int) -> Operand:
    """Input [b, h, x, (j, c)] of [b, h, w, c]: for each of `outs` pixels all of its kernel row."""
    batch, high, _, deep = a.shape
    step = geometry.stride[1]
    strides = (*a.strides[:2], a.strides[2] * step, a.strides[3])
    reach = (geometry.kernel[1] - 1) * geometry.dilation[1] + 1
    limits = tuple(
        Limit(2, (each.base - reach) // step + 1, tuple((n, f // step) for n, f in each.terms))
        if each.axis == 2
        else each
        for each in a.limits
    )
    shape = (batch, high, outs, geometry.kernel[1] * deep)
    return replace(a, shape=shape, strides=strides, limits=limits)


def _later(
    limits: tuple[Limit, ...], axis: int, variable: str, start: int, step: int
) -> tuple[Limit, ...]:
    """`limits` of what begins at `start` of one dimension, and in each turn `step` later."""
    terms = ((variable, -step),) if variable else ()
    return tuple(
        Limit(axis, each.base - start, (*each.terms, *terms)) if each.axis == axis else each
        for each in limits
    )


def _spaced(operand: Operand, axis: int, step: int) -> Operand:
    """The operand with every `step`-th position of one dimension."""
    strides = (*operand.strides[:axis], operand.strides[axis] * step, *operand.strides[axis + 1 :])
    return replace(operand, strides=strides)


def _positions(sizes: list[int]) -> list[tuple[int, ...]]:
    positions: list[tuple[int, ...]] = [()]
    for size in sizes:
        positions = [(*p, i) for p in positions for i in range(size)]
    return positions


def _shifted(operand: Operand, offsets: dict[int, int]) -> Operand:
    offset = sum(operand.strides[dim] * position for dim, position in offsets.items())
    return replace(operand, address=operand.address.plus(offset))

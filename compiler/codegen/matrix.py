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

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from compiler.codegen.legalize import each_looped, in_runs, scaled
from compiler.codegen.tile import (
    TileEmitter,
    TilePosition,
    address_of_ranges,
    read_operand,
    region_origin,
    slot_address,
    written_operand,
)
from compiler.codegen.vector import Windows
from compiler.geometry.boxes import Range, keys_of, touched
from compiler.plan.make_plan import Compute
from compiler.target.array_mapping import (
    Roles,
    block,
    mapping,
    merge_tap_loop,
    on_columns,
    pixels_together,
    roles,
)
from compiler.target.loops.split import PieceRun, behind, ends, runs
from compiler.target.machine import rate_type
from compiler.target.start_sums import LOWEST
from compiler.tensor_ir.nest import Nest
from simmodel.arch.element_types import WINOGRAD, is_float, size_of
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.isa import Conv, DepthwiseConv, Gemm, Item, Loop, MatrixInstruction, WinogradConv
from simmodel.isa import Tile as TileProduct
from simmodel.isa.region import Limit, Operand, in_bytes, replace


@dataclass(frozen=True)
class ProductOperands:
    """Operands of one tile's product, by loop of the nest, and what finishing it takes."""

    a: Operand
    w: Operand
    sums: Operand | None
    out: Operand
    finish: dict[str, Any]
    """Fields of the last instruction: bias, multiplier, low, high, added."""
    opens: bool
    closes: bool
    """Whether the last piece writes the finished result."""
    start: Operand | None = None
    """The row that the sums of all pixels start from."""

    def each(self, change: Callable[[Operand], Operand]) -> ProductOperands:
        finish = {n: change(v) if isinstance(v, Operand) else v for n, v in self.finish.items()}
        return replace(
            self, a=change(self.a), w=change(self.w), sums=self.sums and change(self.sums),
            out=change(self.out), finish=finish, start=self.start and change(self.start),
        )  # fmt: skip

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
        made = self.each(lambda operand: operand.cut(channel, *part))
        return replace(made, w=made.w.cut(beside, "", first, part[2]))


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
class MatrixEmitter(TileEmitter):
    """Emits one compute step on a matrix engine."""

    engine: str = "matrix"

    def items(self, compute: Compute, tile: TilePosition) -> list[Item]:
        nest, found = compute.nest, roles(compute.nest)
        a, w = (
            read_operand(compute, access, index, tile) for index, access in enumerate(nest.operands)
        )
        out = written_operand(compute, compute.writes, tile)
        out = replace(out, scale=nest.scale, zero=nest.zero)
        sums = None
        if compute.sums is not None:
            sums = written_operand(compute, compute.sums, tile)
        closes = tile.closes and compute.binding.direct
        finish = self._finish(compute, tile) if closes else {}
        start = self._as_start(compute, tile)
        product = ProductOperands(a, w, sums, out, finish, tile.opens, closes, start)
        native = nest.depthwise and self.arch.matrix.depthwise
        channel = found.col
        if native or nest.beside is not None:
            channel = found.batch[-1]
        walked = (found.b, found.y, found.x, channel)
        lead = [d for d in range(nest.rank) if d not in walked and out.shape[d] > 1]
        counts = [(self.names.fresh(), out.shape[d]) for d in lead]
        for dim, (variable, _) in zip(lead, counts, strict=True):
            one = partial(Operand.cut, axis=dim, variable=variable, start=0, size=1)
            product = product.each(one)
        if native:
            axes = Axes(channel, None, channel)
            made = self._window_items(DepthwiseConv, compute, tile, product, axes)
            return each_looped(made, counts)
        axes = Axes(found.k, found.col, found.col)
        if nest.beside is None:
            return each_looped(self._products(compute, tile, product, axes), counts)
        return self._channel_groups(compute, tile, product, nest.beside, counts)

    def first_row(self, compute: Compute, tile: TilePosition) -> list[Item]:
        """What makes the row from which sums start, for all columns in `tile`."""
        index = bias_of(compute.nest)
        ranges = tile.needs.regions[keys_of(compute.nest)[index]].ranges
        names = compute.reads[index], compute.start[0]
        w, row = (_bias_operand(compute, name, ranges, tile) for name in names)
        if len(w.shape) == 1:
            w, row = (replace(o, shape=(1, *o.shape), strides=(0, *o.strides)) for o in (w, row))
        # Rows of pixels side by side are one where a tile has all columns of the buffer.
        high, wide = w.shape
        high = high if w.strides[0] in (0, wide * w.itemsize) else 1
        rows = ((o.cut(0, "", n, high) for o in (w, row)) for n in range(0, w.shape[0], high))
        items = list[Item]()
        for digits, sums in rows:
            items += self._row(compute, tile, digits, sums, high * wide)
        return items

    def _row(
        self, compute: Compute, tile: TilePosition, digits: Operand, sums: Operand, wide: int
    ) -> list[Item]:
        """What makes a row of `wide` sums from their digits."""
        factors = tile.plan.buffers[compute.start[1]]
        (deep,), kind, item = factors.shape, factors.dtype, size_of(factors.dtype)
        whole: MatrixInstruction = (
            TileProduct if self.arch.matrix.granularity == "tile" else Gemm
        )(
            engine=self.engine, origin=self.origin,
            a=Operand(
                factors.role, slot_address(factors, tile), (1, 1, 1, deep),
                (*(deep * item,) * 3, item), kind, zero=0 if is_float(kind) else LOWEST,
            ),
            w=replace(digits, shape=(deep, wide), strides=(item, digits.itemsize), dtype=kind),
            dst=replace(sums, shape=(1, 1, 1, wide), strides=(0, 0, 0, sums.itemsize)),
        )  # fmt: skip
        return self._column_tiles(whole) if isinstance(whole, TileProduct) else [whole]

    def _as_start(self, compute: Compute, tile: TilePosition) -> Operand | None:
        """That row as the sums of all pixels of a tile."""
        if not (compute.start and tile.opens):
            return None
        index, loops = bias_of(compute.nest), tile.loops(compute.position)
        spans = touched(compute.nest.reads[index], loops)
        row = _bias_operand(compute, compute.start[0], spans, tile)
        digits = tile.plan.buffers[compute.reads[index]]
        steps = (s * row.itemsize // size_of(digits.dtype) for s in compute.steps[index])
        return replace(row, shape=tuple(s.size for s in loops), strides=tuple(steps))

    def _channel_groups(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, beside: int,
        counts: list[tuple[str, int]],
    ) -> list[Item]:  # fmt: skip
        """Products of as many channels as go together, each with those `beside`."""
        nest, channel = compute.nest, roles(compute.nest).batch[-1]
        axes = Axes(channel, beside, channel)
        span = tile.loops(compute.position)[channel]
        assert all(factor % nest.sparse == 0 for _, factor in span.terms)
        first = span.start % nest.sparse
        short = min(span.size, -first % nest.sparse)

        def together(variable: str, run: PieceRun) -> list[Item]:
            skipped = first if short and not run.start else 0
            cut = product.channels(channel, beside, (variable, run.start, run.size), skipped)
            return each_looped(self._products(compute, tile, cut, axes), counts)

        ahead = runs(short, short) if short else []
        rest = runs(span.size - short, nest.sparse, low=short)
        return in_runs([*ahead, *rest], self.names, together)

    def _products(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, axes: Axes
    ) -> list[Item]:
        if self.arch.matrix.granularity == "conv" and roles(compute.nest).taps:
            kind = rate_type(compute.nest, tile.plan.tiled.layer.tensors, self.arch)
            if kind not in WINOGRAD:
                return self._window_items(Conv, compute, tile, product, axes)
            _, outputs = WINOGRAD[kind]
            product = replace(product, w=_kernel_as_stored(product.w, compute))
            return self._window_items(WinogradConv, compute, tile, product, axes, outputs=outputs)
        return self._gemms(compute, tile, product, axes)

    def _finish(self, compute: Compute, tile: TilePosition) -> dict[str, Any]:
        nest = compute.nest
        fields: dict[str, Any] = {"low": nest.low, "high": nest.high, "table": nest.table}
        fields["middle"] = nest.middle
        late = {"bias": nest.bias, "multiplier": nest.multiplier, "added": nest.added}
        for name, access in late.items():
            if access is not None:
                index = nest.reads.index(access)
                fields[name] = read_operand(compute, access, index, tile)
        return fields

    def _make(
        self, kind: type[MatrixInstruction], product: ProductOperands, a: Operand, w: Operand,
        out: Sequence[int | None], *, first: bool = True, last: bool = True, **fields: Any,
    ) -> MatrixInstruction:  # fmt: skip
        """One instruction; `out` picks the result's dimensions from the nest's loops."""
        target = product.out if last and product.closes else product.sums
        assert target is not None
        partial_ = product.start if first and product.opens else product.sums
        finish = dict(product.finish) if last and product.closes else {}
        for name in ("bias", "multiplier"):
            if name in finish:
                finish[name] = _per_column(finish[name], out)
        if "added" in finish:
            finish["added"] = finish["added"].along(out)
        return kind(
            engine=self.engine, origin=self.origin, a=a, w=w, dst=target.along(out),
            partial=partial_ and partial_.along(out), **finish, **fields,
        )  # fmt: skip

    def _window_items(
        self, kind: type[Conv] | type[DepthwiseConv], compute: Compute, tile: TilePosition,
        product: ProductOperands, axes: Axes, **fields: Any,
    ) -> list[Item]:  # fmt: skip
        """One instruction that slides, in blocks of as many pixels as it takes."""
        found = roles(compute.nest)
        geometry = Windows.of(compute, tile, found)
        a = _window_input(compute, tile, product.a, geometry, (found.b, axes.deep))
        if kind is Conv:
            product, together = self._merge_kernel_columns(compute, product, found)
            if together is not None:
                assert found.x is not None
                a = _overlapping(a, geometry, tile.loops(compute.position)[found.x].size)
                (down, _), (apart, _) = geometry.stride, geometry.dilation
                geometry = replace(geometry, stride=(down, 1), dilation=(apart, 1))
        columns = [axes.deep] if kind is DepthwiseConv else [axes.deep, axes.wide]
        whole = self._make(
            kind, product, a, product.w.along([*geometry.taps, *columns]),
            [found.b, found.y, found.x, axes.out],
            stride=geometry.stride, dilation=geometry.dilation, **fields,
        )  # fmt: skip
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
        step, reach = 1, 1
        if axis:
            step = item.stride[axis - 1]
            reach = (item.kernel[axis - 1] - 1) * item.dilation[axis - 1] + 1

        def band(variable: str, run: PieceRun) -> list[Item]:
            seen = (run.size - 1) * step + reach
            shape = (*item.a.shape[:axis], seen, *item.a.shape[axis + 1 :])
            moved = item.a.cut(axis, variable, run.start * step, run.size * step)
            a = replace(moved, shape=shape)
            return [
                _cut_operands(replace(item, a=a), ("dst", "partial", "added"), axis, variable, run)
            ]

        return in_runs(runs(item.dst.shape[axis], size), self.names, band)

    def _gemms(
        self, compute: Compute, tile: TilePosition, product: ProductOperands, axes: Axes
    ) -> list[Item]:
        """One product per kernel position that does not join the reduction."""
        found = roles(compute.nest)
        product = _pixels_on_columns(product, compute, tile)
        product, together = self._merge_kernel_columns(compute, product, found)
        taps = [tap.dim for tap in found.taps if tap.dim != together]
        positions = list(itertools.product(*(range(product.w.shape[d]) for d in taps)))
        pixels = [found.b, found.y, found.x]
        items: list[Item] = []
        for number, position in enumerate(positions):
            offsets = dict(zip(taps, position, strict=True))
            moved = replace(product, a=_shifted(product.a, offsets), w=_shifted(product.w, offsets))
            ends_ = {"first": number == 0, "last": number == len(positions) - 1}
            if self.arch.matrix.granularity == "tile":
                items += self._array_tiles(moved, pixels, axes, **ends_)
            else:
                items += self._pixels(self._gemm(Gemm, moved, pixels, axes, **ends_))
        return items

    def _gemm(
        self, kind: type[MatrixInstruction], product: ProductOperands, pixels: list[int | None],
        axes: Axes, *, first: bool, last: bool,
    ) -> MatrixInstruction:  # fmt: skip
        a, w = product.a.along([*pixels, axes.deep]), product.w.along([axes.deep, axes.wide])
        return self._make(kind, product, a, w, [*pixels, axes.out], first=first, last=last)

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
        self, product: ProductOperands, pixels: list[int | None], axes: Axes,
        *, first: bool, last: bool,
    ) -> list[Item]:  # fmt: skip
        """Array-sized pieces: reduction outermost, then columns, then pixels."""
        rows, _ = tile_limits(self.arch.matrix, product.a.dtype)
        depth = axes.deep
        extent = 1 if depth is None else product.a.shape[depth]
        pieces = -(-extent // rows)
        open_ = depth in product.a.limited and pieces > 1 and last and product.closes

        def piece(variable: str, run: PieceRun) -> list[Item]:
            opens, closes = first and not run.first, last and run.first + run.times == pieces
            part = product
            if depth is not None and extent > 1:
                a, w = (
                    operand.cut(depth, variable, run.start, run.size)
                    for operand in (product.a, product.w)
                )
                part = replace(product, a=a, w=w)
            if open_ and closes and first and product.opens:
                part = replace(part, sums=_limited_sums(part, depth, run.size))
            whole = self._gemm(TileProduct, part, pixels, axes, first=opens, last=closes)
            return self._column_tiles(whole)

        alone = ends(pieces, first=first, last=last)
        return in_runs((behind if open_ else runs)(extent, rows, alone), self.names, piece)

    def _column_tiles(self, whole: MatrixInstruction) -> list[Item]:
        """`whole` cut into columns of the array."""
        _, cols = tile_limits(self.arch.matrix)

        def piece(variable: str, run: PieceRun) -> list[Item]:
            names = ("w", "dst", "partial", "bias", "multiplier", "added")
            return self._pixels(_cut_operands(whole, names, -1, variable, run))

        return in_runs(runs(whole.dst.shape[-1], cols), self.names, piece)

    def _pixels(self, part: MatrixInstruction) -> list[Item]:
        """`part` cut into blocks of pixels, as many as one instruction takes."""
        limit = self.arch.matrix.max_pixels
        if limit is None or math.prod(part.dst.shape[:3]) <= limit:
            return [part]
        part = _in_line(part)
        return self._blocks(part, 0, *block(limit, *part.dst.shape[:3]))

    def _blocks(self, part: MatrixInstruction, axis: int, size: int, *inner: int) -> list[Item]:
        """Pieces of `size` along row dimension `axis`, then of `inner` along the next ones."""

        def piece(variable: str, run: PieceRun) -> list[Item]:
            made = _cut_operands(part, ("a", "dst", "partial", "added"), axis, variable, run)
            return self._blocks(made, axis + 1, *inner) if inner else [made]

        return in_runs(runs(part.dst.shape[axis], size), self.names, piece)


def bias_of(nest: Nest) -> int:
    """Index of its bias among the accesses of `nest`."""
    assert nest.bias is not None
    return nest.reads.index(nest.bias)


def _bias_operand(
    compute: Compute, name: str, ranges: tuple[Range, ...], tile: TilePosition
) -> Operand:
    """`ranges` of a bias in the buffer of this name: that of its digits, or another one in which
    they lie in the same places."""
    index, buffer = bias_of(compute.nest), tile.plan.buffers[name]
    digits = tile.plan.buffers[compute.reads[index]]
    whole = digits.layer is None or not digits.level
    key = keys_of(compute.nest)[index]
    origin = tile.origins[digits.name] if whole else region_origin(tile, key)
    address = address_of_ranges(slot_address(buffer, tile), ranges, origin, buffer.strides)
    shape = tuple(span.size for span in ranges)
    return Operand(buffer.role, address, shape, buffer.strides, buffer.dtype)


def _pixels_on_columns(
    product: ProductOperands, compute: Compute, tile: TilePosition
) -> ProductOperands:
    """`product` with as many pixels of a line beside each other in its columns as its weights have
    kernels for; as it is where results do not lie so, or a line is no whole number of these."""
    nest, each = compute.nest, pixels_together(compute.nest)
    x, col = roles(nest).x, roles(nest).col
    sizes = on_columns(nest, product.w.shape)
    if x is None or col is None or sizes == list(product.w.shape):
        return product
    results = (product.sums, product.out if product.closes else None, product.finish.get("added"))
    steps = [(result, result.strides[x]) for result in results if result is not None]
    steps.append((product.w, tile.plan.buffers[compute.reads[1]].strides[-1]))
    if product.start is not None:
        steps.append((product.start, tile.plan.buffers[compute.start[0]].strides[0]))
    wide = product.w.shape[col]
    if any(step != wide * operand.strides[col] for operand, step in steps):
        return product

    def taken(operand: Operand) -> Operand:
        strides = tuple(s * (each if d == x else 1) for d, s in enumerate(operand.strides))
        return replace(operand, shape=tuple(sizes[: len(operand.shape)]), strides=strides)

    return product.each(taken)


def _cut_operands(
    whole: MatrixInstruction, names: Iterable[str], axis: int, variable: str, run: PieceRun
) -> MatrixInstruction:
    """`whole` with one run of positions along a dimension of some operands; -1: of the last."""
    changes: dict[str, Any] = {}
    for name in names:
        operand: Operand | None = getattr(whole, name)
        if operand is not None:
            at = axis % len(operand.shape)
            changes[name] = operand.cut(at, variable, run.start, run.size)
    return replace(whole, **changes)


def _in_line(part: MatrixInstruction) -> MatrixInstruction:
    """`part` with lines, then images, one behind the other as one line where all operands allow."""
    changes: dict[str, Any] = {
        name: operand
        for name in ("a", "dst", "partial", "added")
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
    shape, line = list(operand.shape), operand.shape[2]
    shape[2] *= shape[outer]
    shape[outer] = 1
    limits = (scaled(limit, line, outer) for limit in operand.limits)
    longer = tuple(replace(each, axis=2) if each.axis == outer else each for each in limits)
    return replace(operand, shape=tuple(shape), limits=longer)


def _limited_sums(part: ProductOperands, depth: int | None, size: int) -> Operand:
    """Its sums, which are there where the reduction goes on behind its first `size` positions."""
    assert part.sums is not None
    there = (Limit(None, e.base - size, e.terms) for e in part.a.limits if e.axis == depth)
    return replace(part.sums, limits=(*part.sums.limits, *there))


def _per_column(operand: Operand, out_dims: Sequence[int | None]) -> Operand:
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


def _kernel_as_stored(weights: Operand, compute: Compute) -> Operand:
    """`weights` with the positions that come along with the kernel."""
    shape = list(weights.shape)
    for affine in compute.nest.operands[1].index:
        for dim, _ in affine.terms:
            shape[dim] += affine.spare
    return replace(weights, shape=tuple(shape))


def _shifted(operand: Operand, offsets: dict[int, int]) -> Operand:
    offset = sum(operand.strides[dim] * position for dim, position in offsets.items())
    return replace(operand, address=operand.address.plus(in_bytes(offset, operand.dtype)))

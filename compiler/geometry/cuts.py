"""Ways to split results: axes that tiles and cores may cut, and grids along one or two of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from compiler.geometry.boxes import group_needs
from compiler.geometry.tile_trace import TileTrace
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.bounds import Box, volume
from compiler.tensor_ir.nest import Access, Nest
from simmodel.arch.base import Latest
from simmodel.arch.record import Arch


def cut_axes(shape: tuple[int, ...]) -> list[int]:
    """Axes of a result that tiles and cores usually cut: batch, rows or tokens, never channels."""
    if len(shape) >= 4:
        axes = [0, 2]
    elif len(shape) == 3:
        axes = [0, 1]
    else:
        axes = [0]
    return [axis for axis in axes if axis < len(shape) and shape[axis] > 1]


@Latest
def shared_axes(group: Group) -> list[int]:
    """Axes along which tiles and cores may cut all results of `group`: the usual ones, those of an
    attention, and columns of images unless channels of a product lie there."""
    shapes = [group.tensors[name].shape for name in group.results]
    last = shapes[-1]
    axes = cut_axes(last)
    axes += [axis for axis in dividing(group) if axis not in axes]
    column, heads = len(last) - 1, [layer.head for layer in group.layers if layer.head.macs]
    slides = bool(heads) and all(a.operands[0].uses(column) for a in heads if column < a.rank)
    if len(last) > 2 and column not in axes and slides:
        axes.append(column)
    return [a for a in axes if all(a < len(shape) and shape[a] == last[a] for shape in shapes)]


@Latest
def dividing(group: Group) -> list[int]:
    """Axes of the last result of an attention that divide the work of all its layers: batch, heads
    and tokens, wherever they lie, never the columns of a product.

        scores  b h m n  <-  query b h m k, key b h k n
        weights b h m n  <-  scores b h m *
        context b m h d  <-  weights b h m *, value b h * d       b, m and h

    There are none where no layer multiplies two tensors that are both computed.
    """
    if len(group.layers) == 1 or not any(map(_of_two, group.layers)):
        return []
    extents = group.tensors[group.results[-1]].shape
    moving = (axis for axis, extent in enumerate(extents) if extent > 1)
    return [axis for axis in moving if _split_dims(group, axis) is not None]


@Latest
def heads(group: Group) -> list[int]:
    """Axes of an attention along which each product has operands of its own: one position needs one
    position of all inputs, so fewer keys and values."""
    found = []
    for axis in dividing(group):
        dims = zip(group.layers, _split_dims(group, axis) or (), strict=True)
        products = [(layer.head, dim) for layer, dim in dims if _of_two(layer)]
        if all(a.uses(dim) for head, dim in products for a in head.operands[:2]):
            found.append(axis)
    return found


def _of_two(layer: Layer) -> bool:
    """Whether a layer multiplies two computed tensors."""
    operands = layer.head.operands if layer.head.contraction else ()
    return len(operands) > 1 and all(layer.tensors[a.tensor].data is None for a in operands)


def _split_dims(group: Group, axis: int) -> list[int] | None:
    """By layer, the dimension of its result in which two positions of the last result along `axis`
    differ; None where there is not just one, or they share work of any layer."""
    last = group.results[-1]
    whole = tuple((0, extent) for extent in group.tensors[last].shape)
    one, two = (
        group_needs(group, {last: (*whole[:axis], (position, 1), *whole[axis + 1 :])})
        for position in (0, 1)
    )
    layers = ((layer, layer.result.name) for layer in group.layers)
    dims = [_differing_dim(layer, one.get(name), two.get(name)) for layer, name in layers]
    return None if None in dims else [dim for dim in dims if dim is not None]


def _differing_dim(layer: Layer, first: Box | None, second: Box | None) -> int | None:
    """The one dimension in which two boxes of a layer's result differ, if they have nothing in
    common there and it is no column of a product."""
    if first is None or second is None:
        return None
    moved = [d for d, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(moved) != 1:
        return None
    (dim,) = moved
    column = layer.head.contraction and not layer.head.operands[0].uses(dim)
    return dim if not column and first[dim][0] + first[dim][1] <= second[dim][0] else None


def channel_axis(rank: int) -> int | None:
    """The channel axis of a result of `rank` dimensions, or the heads of an attention."""
    axis = 1 if rank >= 4 else rank - 1
    return axis if axis > 0 else None


def slices_of(shape: tuple[int, ...], cores: int) -> Iterator[dict[int, int]]:
    """Grids by which `cores` may keep slices of a tensor, channels aside."""
    columns = [len(shape) - 1] if len(shape) >= 4 and shape[-1] > 1 else []
    return _with_columns(shape, cut_axes(shape), columns, cores)


def _with_columns(
    shape: tuple[int, ...], axes: list[int], columns: list[int], cores: int
) -> Iterator[dict[int, int]]:
    """Grids along `axes`; if none has as many equal parts as there are cores, also halves of an
    axis and of the columns, if these are equal. Each part is then a corner: cores with different
    borders share no loads."""
    yield from grids(shape, axes, cores)
    if not columns or any(shape[axis] % cores == 0 for axis in axes):
        return
    for grid in grids(shape, [*axes, *columns], cores):
        halved = cores == 4 and len(grid) == 2 and all(parts == 2 for parts in grid.values())
        even = not any(shape[axis] % 2 for axis in grid)
        if halved and even and not set(grid) <= set(axes):
            yield grid


def splits(group: Group, arch: Arch, cores: int) -> Iterator[tuple[Box, ...]]:
    """Parts of the last result of `group` for at most `cores` cores.

    Rows and columns together where rows alone are not the same for all; channels, on multiples of
    the array's columns, where no layer would have to be computed by several cores.
    """
    last = group.tensors[group.results[-1]].shape
    axes = worth_cutting(group)
    columns = [axis for axis in shared_axes(group) if axis not in axes]
    for grid in _with_columns(last, axes, columns, cores):
        yield boxes(last, grid, {}, arch)
    channels = split_channels(group)
    if channels is not None and channels not in axes:
        rows = [axis for axis in cut_axes(last) if axis in axes and group.residents]
        for grid in channel_grids(last, cores, rows, arch):
            yield boxes(last, grid, {channels: grain_of(last, channels, arch)}, arch)
    for axis in recomputing_axes(group) if cores > 1 else ():
        if axis not in axes and (axis != channels or last[axis] <= arch.matrix.cols):
            yield boxes(last, {axis: min(cores, last[axis])}, {}, arch)


def recomputing_axes(group: Group) -> list[int]:
    """Axes of all results along which cores may split a group if each computes again what parts of
    others need as well: what it reads is in the memory of each, or what it makes is to be."""
    shapes = [group.tensors[name].shape for name in group.results]
    last = shapes[-1]
    same = (all(shape[a : a + 1] == last[a : a + 1] for shape in shapes) for a in range(len(last)))
    return [a for a, alike in enumerate(same) if alike and last[a] > 1 and group.residents]


@Latest
def split_channels(group: Group) -> int | None:
    """The channel axis of all results, if cores may split it: a product that sums over channels
    must read its input from outside the group, as every core would need all of it."""
    shapes = [group.tensors[name].shape for name in group.results]
    axis = channel_axis(len(shapes[-1]))
    if axis is None or shapes[-1][axis] == 1:
        return None
    if any(shape[axis : axis + 1] != shapes[-1][axis : axis + 1] for shape in shapes):
        return None
    return axis if all(_splits_at(layer, axis, group) for layer in group.layers) else None


def tiled_channels(group: Group) -> int | None:
    """The channel axis, if tiles may move along it as well: products side by side, each tile with
    weights of its own, so that what passes between their layers need not be there as a whole.

        for channels in steps of 256: {up; gate, silu, times up}
    """
    axis = split_channels(group)
    products = any(layer.product for layer in group.layers)
    return axis if products and len(group.layers) > 1 and axis not in shared_axes(group) else None


def channels_of(group: Group, parts: Sequence[Box]) -> int | None:
    """The channel axis of the results, if cores split it."""
    axis = split_channels(group)
    return None if axis is None or len({part[axis] for part in parts}) == 1 else axis


def _splits_at(layer: Layer, axis: int, group: Group) -> bool:
    """Whether a part of a layer's result along `axis` needs only the same part of the group's
    tensors."""
    extent = layer.result.shape[axis : axis + 1]
    if any(nest.shape[axis : axis + 1] != extent for nest in layer.nests):
        return False
    summed = [a.tensor for nest in layer.nests for a in nest.reads if _sums_over(nest, a, axis)]
    return not summed or (
        layer.product and not any(name in group.producer_positions for name in summed)
    )


def _sums_over(nest: Nest, access: Access, axis: int) -> bool:
    """Whether all positions of the result along `axis` read the same positions, more than one
    each."""
    inner = range(nest.rank, len(nest.dims))
    return not access.uses(axis) and any(access.uses(dim) for dim in inner)


def channel_grids(
    shape: tuple[int, ...], cores: int, axes: Sequence[int], arch: Arch
) -> Iterator[dict[int, int]]:
    """Grids along the channels of a tensor; and along these and one of `axes` where none of these
    alone gives work to as many cores: late layers have few rows, and where channels alone are cut
    each core needs all that the others make."""
    channels = channel_axis(len(shape))
    assert channels is not None
    grain = {channels: grain_of(shape, channels, arch)}
    yield from (grid for grid in grids(shape, [channels], cores) if grid)
    most = max((len(boxes(shape, {axis: cores}, {})) for axis in axes), default=cores)
    for axis in axes if most < cores else ():
        for grid in grids(shape, sorted((channels, axis)), cores):
            if len(grid) == 2 and len(boxes(shape, grid, grain)) > most:
                yield grid


def grain_of(shape: tuple[int, ...], axis: int, arch: Arch) -> int:
    """Channels per unit of a split: as many as the array computes at once."""
    return min(arch.matrix.cols, shape[axis])


def worth_cutting(group: Group) -> list[int]:
    """Axes of `shared_axes` that the search tries: columns if images are wider than high, as halos
    are then smaller."""
    last = group.tensors[group.results[-1]].shape
    usual = {*cut_axes(last), *dividing(group)}
    return [a for a in shared_axes(group) if a in usual or last[a] > last[a - 1]]


def grids(
    extents: Sequence[int], splittable: Sequence[int], cores: int
) -> Iterator[dict[int, int]]:
    """Dimension -> number of parts, for all grids of at most `cores` parts worth trying.

    Whole chips first: grids that leave cores idle are offered only when the extents force it.
    """
    found: dict[tuple[tuple[int, int], ...], int] = {}
    for first in splittable:
        most = min(cores, extents[first])
        counts = {1 << n for n in range(most.bit_length())} | {most}
        for parts in sorted(counts | {_fewest_parts(extents[first], count) for count in counts}):
            found[((first, parts),)] = parts
            for second in splittable:
                if second <= first or parts == 1:
                    continue
                other = _fewest_parts(extents[second], min(cores // parts, extents[second]))
                if other > 1:
                    found[((first, parts), (second, other))] = parts * other
    best = max(found.values(), default=1)
    yield {}
    for grid, count in found.items():
        if count > 1 and count * 2 > best:
            yield dict(grid)


def _fewest_parts(extent: int, parts: int) -> int:
    """As few parts of `extent` as have the same largest part: 28 of 56 rows, not 32."""
    return -(-extent // -(-extent // parts))


def boxes(
    extents: Sequence[int], grid: dict[int, int], grain: dict[int, int], arch: Arch | None = None
) -> tuple[Box, ...]:
    """The box of each part, by core; cuts along a dimension fall on multiples of its `grain`. Parts
    along one dimension go to cores of `arch` that are neighbours on its mesh, torus or ring."""
    axes = [
        _split_extent(extent, grid.get(dim, 1), grain.get(dim, 1))
        for dim, extent in enumerate(extents)
    ]
    found = tuple(itertools.product(*axes))
    networks = () if arch is None else map(arch.grid, arch.links.values())
    network = next((grid for grid in networks if grid is not None), None)
    if network is None or sum(len(axis) > 1 for axis in axes) > 1:
        return found
    by_core = dict(zip(network.snake(len(found)), found, strict=True))
    return tuple(by_core[core] for core in range(len(found)))


def _split_extent(extent: int, parts: int, grain: int) -> list[tuple[int, int]]:
    units = -(-extent // grain)
    parts = min(parts, units)
    cuts = []
    for part in range(parts):
        low, high = units * part // parts * grain, units * (part + 1) // parts * grain
        cuts.append((low, min(high, extent) - low))
    return cuts


def telling(parts: Sequence[Box], *, sliced: bool = False) -> tuple[int, ...]:
    """Numbers of the parts that stand for all: the first; of the largest others the one with others
    around it along most axes, nearest the middle; where slices stay of what they read, the last."""
    last = (len(parts) - 1,) if sliced else ()
    if len(parts) < 3:
        largest = max(range(len(parts)), key=lambda p: volume(parts[p]))
        return tuple(sorted({0, largest, *last})) if sliced else (largest,)
    spans = [(min(axis)[0], max(map(sum, axis))) for axis in zip(*parts, strict=True)]
    inner = [
        sum(low < at and at + n < high for (at, n), (low, high) in zip(part, spans, strict=True))
        for part in parts
    ]
    others = range(1, len(parts))
    inside = max(others, key=lambda p: (volume(parts[p]), inner[p], -abs(2 * p - len(parts))))
    return tuple(sorted({0, inside, *last}))


def axes_without_halo(
    group: Group, parts: Sequence[Box], traces: Sequence[TileTrace]
) -> frozenset[int]:
    """Axes of the last result along which all layers compute just the positions of a core's part,
    such as tokens: `traces` are of `parts`."""
    shares = [
        (part, traced.share(position, layer.result.name))
        for part, traced in zip(parts, traces, strict=True)
        for position, layer in enumerate(group.layers)
    ]
    return frozenset(
        d
        for d in range(len(parts[0]))
        if all(own is None or own[d : d + 1] == part[d : d + 1] for part, own in shares)
    )

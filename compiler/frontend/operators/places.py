"""Operators that ask where something stands, as comparisons with constant positions.

The one idea: a *ramp*, the numbers 0, 1, 2, ... along an axis, is a constant. Where an index equals
the ramp is a mask of one place, so finding, marking, picking and writing by index are comparisons,
choices and reductions, which the vector engine does; running sums are sums of shifted copies, each
step reaching twice as far. Positions are counted in int32, whatever real values are stored in.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

import numpy as np

from compiler.frontend.canonicalize.symbolic_axes import Pieces, has_gaps, open_of, pieces_of
from compiler.frontend.operators.body import Body, Declined, Tensor
from compiler.frontend.operators.definitions import Table, defines
from compiler.frontend.rewrite import Array, static_shape

PLACES: Table = {}

INDEX = np.int32
LONGEST = 1024
"""Positions along an axis that GatherElements compares an index with, at most: of a longer one the
host reads what is chosen alone."""
COMPARED = 8
"""Positions that an index may be compared with for each element that is read or made; what needs
more is left as it is."""
RANKED = 8
"""Elements that TopK may want, at most; longer lists are left as they are."""


def ramp(extent: int, axis: int, rank: int, first: int = 0) -> Array:
    """first, first + 1, ... along `axis` of `rank` dimensions."""
    shape = [1] * rank
    shape[axis] = extent
    return np.arange(first, first + extent, dtype=INDEX).reshape(shape)


def _check_worth(compared: int, *values: tuple[int, ...]) -> None:
    """Raise Declined where more is compared than values of these shapes are worth."""
    if compared > COMPARED * sum(map(prod, values)):
        raise Declined("too many places would be compared")


def _pick(b: Body, chosen: Tensor, data: Tensor, axis: int) -> Tensor:
    """The element of `data` along `axis` that the mask `chosen` marks, or zero; the axis stays."""
    picked = b.Where(chosen, _summable(b, data), 0)
    return b.cast(b.reduce("Sum", picked, [axis]), data.dtype)


def _summable(b: Body, x: Tensor) -> Tensor:
    """`x` in a type that ONNX's sums take: they take no integers of fewer than four bytes."""
    return b.cast(x, np.int32) if x.dtype.kind in "biu" and x.dtype.itemsize < 4 else x


def _marked(b: Body, index: Tensor, extent: int, axis: int) -> Tensor:
    """Whether `index`, of extent 1 along `axis`, stands for each of `extent` positions; negative
    ones count from the end."""
    rank = len(index.shape)
    return b.one("Or", *(b.Equal(index, ramp(extent, axis, rank, at)) for at in (0, -extent)))


# Which position, and one there.


def _extreme_index(b: Body, x: Tensor, axis: int, last: bool, keepdims: int) -> Tensor:
    """Where the extreme along `axis` stands: the first of equals, or the last."""
    extent, smallest = x.shape[axis], b.node.op_type == "ArgMin"
    best = b.reduce("Min" if smallest else "Max", x, [axis])
    nowhere = INDEX(-1 if last else extent)
    places = b.Where(b.Equal(x, best), ramp(extent, axis, len(x.shape)), nowhere)
    return b.reduce("Max" if last else "Min", places, [axis], keepdims)


@defines(PLACES, "ArgMax", "ArgMin")
def extreme_place(
    b: Body, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Tensor:
    """The place of the extreme."""
    place = _extreme_index(b, x, axis % len(x.shape), bool(select_last_index), keepdims)
    return b.cast(place, np.int64)


@defines(PLACES, "Hardmax")
def hardmax(b: Body, x: Tensor, *, axis: int = -1) -> Tensor:
    """One where the largest stands, zero elsewhere."""
    rank = len(x.shape)
    place = _extreme_index(b, x, axis % rank, last=False, keepdims=1)
    chosen = b.Equal(place, ramp(x.shape[axis], axis, rank))
    return b.one("Where", chosen, *(b.constant(number, x.dtype) for number in (1, 0)))


@defines(PLACES, "OneHot")
def one_hot(b: Body, index: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    """One value where the index stands, the other elsewhere."""
    if depth.value is None:
        raise Declined("its depth is computed")
    shape = index.shape
    axis %= len(shape) + 1
    if index.dtype not in (np.int32, np.int64):
        index = b.cast(index, INDEX)
    apart = b.reshape(index, (*shape[:axis], 1, *shape[axis:]))
    off, on = (b.one("Gather", values, place, axis=0) for place in (0, 1))
    return b.one("Where", _marked(b, apart, int(depth.value.item()), axis), on, off)


def _expanded(index: Tensor, axis: int) -> Tensor | None:
    """What repeats to `index` along all axes but one; None where nothing does."""
    maker = index.ir.producer()
    if maker is None or maker.op_type not in ("Expand", "Tile") or maker.inputs[0] is None:
        return None
    source = Tensor(index.body, maker.inputs[0])
    alone = prod(source.shape) == index.shape[axis] and len(source.shape) == len(index.shape)
    return source if alone and source.shape[axis] == index.shape[axis] else None


@defines(PLACES, "GatherElements")
def gather_elements(b: Body, data: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """The elements at these places along an axis."""
    wanted = index.shape
    axis %= len(wanted)
    extent = data.shape[axis]
    rows = _expanded(index, axis)
    if (
        rows is not None
        and prod(data.shape[:axis]) == 1
        and wanted[axis + 1 :] == data.shape[axis + 1 :]
    ):
        table, places = b.reshape(data, data.shape[axis:]), b.reshape(rows, (wanted[axis],))
        return b.reshape(b.one("Gather", table, places, axis=0), wanted)
    _check_worth(prod(wanted) * extent, data.shape, wanted)
    if extent > LONGEST:
        raise Declined("its axis is too long to be compared with")
    kept = [a for a, n in enumerate(wanted) if n < data.shape[a] and a != axis]
    if kept:
        data = b.one("Slice", data, [0] * len(kept), [wanted[a] for a in kept], kept)
    if wanted[axis] == 1:
        return _pick(b, _marked(b, index, extent, axis), data, axis)
    rows = b.reshape(index, (*wanted[: axis + 1], 1, *wanted[axis + 1 :]))
    source = b.one("Unsqueeze", data, [axis])
    return b.reshape(_pick(b, _marked(b, rows, extent, axis + 1), source, axis + 1), wanted)


# Running sums and products: with every step of twice as many.


@defines(PLACES, "CumSum", "CumProd")
def running(b: Body, x: Tensor, along: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Sums or products of all elements up to each."""
    if along.value is None:
        raise Declined("its axis is computed")
    op_type, neutral = ("Add", 0) if b.node.op_type == "CumSum" else ("Mul", 1)
    shape, axis = x.shape, int(along.value.item()) % len(x.shape)
    fill, sign = b.constant(neutral, x.dtype), -1 if reverse else 1
    total, reach = x, 1
    if exclusive:
        if shape[axis] == 1 and axis not in open_of(x.ir) | open_of(b.node.outputs[0]):
            return b.constant(np.full(shape, neutral), x.dtype)
        total = b.pad(x, axis, sign, -sign, fill)
    while reach < shape[axis]:
        moved = b.pad(total, axis, sign * reach, -sign * reach, fill)
        total = b.one(op_type, total, moved)
        reach *= 2
    return total


# The best few of many, one after another: each is found, then left out of the search, by value and
# by place, so that elements that are all lowest are found once each.


@defines(PLACES, "TopK")
def top_k(
    b: Body, x: Tensor, wanted: Tensor, *, axis: int = -1, largest: int = 1, **order: int
) -> tuple[Tensor, Tensor]:
    """Values and places of the best."""
    count = 0 if wanted.value is None else int(wanted.value.item())
    if not 0 < count <= RANKED:
        raise Declined(f"more than {RANKED}, or a computed number, are wanted")
    axis %= len(x.shape)
    extent, worst = x.shape[axis], b.constant(_least(x, bool(largest)), x.dtype)
    left = b.constant(ramp(extent, axis, len(x.shape)), INDEX)
    nowhere = b.constant(extent, INDEX)
    values, places = [], []
    for number in range(count):
        best = b.reduce("Max" if largest else "Min", x, [axis])
        place = b.reduce("Min", b.Where(b.Equal(x, best), left, nowhere), [axis])
        values.append(best)
        places.append(place)
        if number < count - 1:
            taken = b.Equal(left, place)
            x = b.one("Where", taken, worst, x)
            left = b.one("Where", taken, nowhere, left)
    return b.concat(values, axis), b.cast(b.concat(places, axis), np.int64)


def _least(x: Tensor, least: bool) -> float | int:
    """The least number of a type, or the largest."""
    kind = x.ir.dtype
    assert kind is not None
    if kind.is_floating_point():
        return -inf if least else inf
    return int(kind.min if least else kind.max)


# Writing to computed places, and reading from places of several dimensions: every update is
# compared with every place, a mask [place, update], which is worth it where there are few of
# either. Places of several dimensions become one number each, as they lie row by row.

JOINED: dict[str, tuple[str, Callable[[Tensor], float]]] = {
    "none": ("Sum", lambda _: 0), "add": ("Sum", lambda _: 0), "mul": ("Prod", lambda _: 1),
    "max": ("Max", lambda x: _least(x, True)), "min": ("Min", lambda x: _least(x, False)),
}  # fmt: skip
"""Reduction of a scatter -> how updates are joined with each other, and what changes nothing."""


def _check_numbers(*values: Tensor) -> None:
    if any(value.dtype.kind not in "iufV" for value in values):
        raise Declined("it moves other things than numbers")


@defines(PLACES, "Scatter", "ScatterElements")
def scatter_elements(
    b: Body, data: Tensor, index: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Updates at their places along an axis."""
    shape = data.shape
    axis %= len(shape)
    count = index.shape[axis]
    _check_numbers(data, updates)
    places, others = _expanded(index, axis), [*range(axis), *range(axis + 1, len(shape))]
    alike = all(updates.shape[a] == shape[a] for a in others)
    if places is not None and alike and reduction == "none":
        order = [axis, *others]
        table, new = (b.one("Transpose", x, perm=order) for x in (data, updates))
        written = b.one("ScatterND", table, b.reshape(places, (count, 1)), new)
        return b.one("Transpose", written, perm=np.argsort(order).tolist())
    _check_worth(prod(shape) * count, shape, updates.shape)
    index = _filled(b, index, shape, axis, shape[axis])  # a place that there is not
    updates = _filled(b, updates, shape, axis, 0)
    pieces = pieces_of(shape, open_of(b.node.outputs[0]))
    before, behind = _collapsed_extents(pieces[:axis]), _collapsed_extents(pieces[axis + 1 :])
    rows = (*before, 1, count, *behind)
    index, updates = b.reshape(index, rows), b.reshape(updates, rows)
    return _scattered(b, data, (before, shape[axis], behind), (index, updates), reduction)


@defines(PLACES, "ScatterND")
def scatter_nd(
    b: Body, data: Tensor, index: Tensor, updates: Tensor, *, reduction: str = "none"
) -> Tensor:
    """Updates at places of several dimensions: known places that are a box as parts of the data
    around it. A few rows, or many of a large table, are left to lowering, which knows whether copy
    engines put them."""
    depth, count = index.shape[-1], prod(index.shape[:-1])
    extent, behind = prod(data.shape[:depth]), prod(data.shape[depth:])
    if reduction == "none" and (box := _box(index, data.shape)) is not None:
        return _around(b, data, b.reshape(updates, tuple(n for _, n in box)), box)
    _check_numbers(data, updates)
    compared = extent * count * behind
    few = count <= COMPARED
    many = behind > 1 and compared > COMPARED * (prod(data.shape) + prod(updates.shape))
    if reduction == "none" and (few or many):
        if depth == 1:
            raise Declined("rows are put by copy engines")
        flat = b.reshape(_flat(b, index, data.shape[:depth]), (count, 1))
        table, rows = b.reshape(data, (extent, behind)), b.reshape(updates, (count, behind))
        return b.reshape(b.one("ScatterND", table, flat, rows), data.shape)
    _check_worth(compared, data.shape, updates.shape)
    flat = b.reshape(_flat(b, index, data.shape[:depth]), (1, 1, count, 1))
    updates = b.reshape(updates, (1, 1, count, behind))
    return _scattered(b, data, ((1,), extent, (behind,)), (flat, updates), reduction)


def _box(index: Tensor, shape: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """First and number of the positions along every axis of `shape` which known places are, each of
    them once and in order; None where they are no box."""
    if index.value is None or not index.value.size:
        return None
    depth = index.shape[-1]
    places = index.value.reshape(-1, depth)
    places = np.where(places < 0, places + shape[:depth], places)
    first, counts = places[0], places[-1] - places[0] + 1
    if (counts < 1).any() or prod(counts.tolist()) != len(places):
        return None
    if (places != first + np.indices(counts).reshape(depth, -1).T).any():
        return None
    return [*zip(first.tolist(), counts.tolist(), strict=True), *((0, n) for n in shape[depth:])]


def _around(
    b: Body, data: Tensor, updates: Tensor, box: list[tuple[int, int]], axis: int = 0
) -> Tensor:
    """`data` with `updates` in a box of its positions, of which it is cut to those along the axes
    before `axis`."""
    if axis == len(box):
        return updates
    (first, count), extent = box[axis], data.shape[axis]
    if count == extent:
        return _around(b, data, updates, box, axis + 1)
    cuts = ((0, first), (first, first + count), (first + count, extent))
    before, middle, behind = (
        b.one("Slice", data, [low], [high], [axis]) if high > low else None for low, high in cuts
    )
    assert middle is not None
    within = _around(b, middle, updates, box, axis + 1)
    return b.one("Concat", *(x for x in (before, within, behind) if x is not None), axis=axis)


@defines(PLACES, "GatherND")
def gather_nd(b: Body, data: Tensor, index: Tensor, *, batch_dims: int = 0) -> Tensor:
    """What stands at places of several dimensions: without a batch a Gather of rows, which copy
    engines may do."""
    made, places = static_shape(b.node.outputs[0]), index.shape
    ends = batch_dims + places[-1]
    extents, behind = data.shape[batch_dims:ends], prod(data.shape[ends:])
    if batch_dims == 0:
        rows = index if len(extents) == 1 else _flat(b, index, extents)
        table = b.reshape(data, (prod(extents), *data.shape[ends:]))
        return b.one("Gather", table, b.reshape(rows, places[:-1]), axis=0)
    batch, count, deep = prod(places[:batch_dims]), prod(places[batch_dims:-1]), prod(extents)
    _check_numbers(data)
    _check_worth(batch * count * deep * behind, data.shape, made)
    flat = b.reshape(_flat(b, index, extents), (batch, count, 1, 1))
    source = b.reshape(data, (batch, 1, deep, behind))
    return b.reshape(_pick(b, _marked(b, flat, deep, 2), source, 2), made)


def _collapsed_extents(pieces: Pieces) -> tuple[int, ...]:
    """The extents of axes, as one where a buffer has one for all of them."""
    extents = [piece.extent for piece in pieces]
    return tuple(extents) if has_gaps(pieces) else (prod(extents),)


def _filled(b: Body, x: Tensor, shape: tuple[int, ...], axis: int, fill: int) -> Tensor:
    """`x` as large as `shape` along every axis but `axis`."""
    lacks = [n - m for n, m in zip(shape, x.shape, strict=True)]
    lacks[axis] = 0
    return b.one("Pad", x, [0] * len(lacks) + lacks, fill, mode="constant") if any(lacks) else x


def _flat(b: Body, index: Tensor, extents: tuple[int, ...]) -> Tensor:
    """Places [..., dimension] as one number each, none of them from the end."""
    steps = [prod(extents[axis + 1 :]) for axis in range(len(extents))]
    places = b.one("Where", b.Less(index, 0), index + extents, index)
    return b.reduce("Sum", places * steps, [len(index.shape) - 1])


def _scattered(
    b: Body, data: Tensor, shape: tuple[tuple[int, ...], int, tuple[int, ...]],
    given: tuple[Tensor, Tensor], reduction: str,
) -> Tensor:  # fmt: skip
    """Updates [*before, 1, count, *behind] at their places in the data, seen as `shape`: of the
    axes before, the places and the axes behind them. `given`: index and updates."""
    before, extent, behind = shape
    axis, (index, updates) = len(before), given
    mask = _marked(b, index, extent, axis)
    how, neutral = JOINED[reduction]
    if reduction == "none" and (count := index.shape[axis + 1]) <= COMPARED:
        made = b.reshape(data, (*before, extent, 1, *behind))
        for n in range(count):
            here, new = (b.one("Slice", x, [n], [n + 1], [axis + 1]) for x in (mask, updates))
            made = b.one("Where", here, new, made)
        return b.reshape(made, data.shape)
    chosen = b.one("Where", mask, _summable(b, updates), neutral(data))
    joined = b.cast(b.reduce(how, chosen, [axis + 1], keepdims=0), data.dtype)
    own = b.reshape(data, (*before, extent, *behind))
    if reduction == "none":
        one, zero = b.constant(1, INDEX), b.constant(0, INDEX)
        met = b.reduce("Max", b.Where(mask, one, zero), [axis + 1], keepdims=0)
        made = b.one("Where", b.Equal(met, one), joined, own)
    else:
        made = b.one({"Sum": "Add", "Prod": "Mul"}.get(how, how), own, joined)
    return b.reshape(made, data.shape)

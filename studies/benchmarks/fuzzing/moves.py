"""Operators that move values without computing: borders, slices, joins, turns, views, gathers."""

from __future__ import annotations

import math

import numpy as np

from fuzzing.net import Net


def pad(net: Net, x: str) -> str | None:
    """Borders in any mode, sometimes cut away instead, sometimes of single axes."""
    rank = len(net.shape(x))
    mode = net.pick("constant", "constant", "constant", "reflect", "edge", "wrap")
    sides = [net.pick(0, 0, 0, 1, 2, 3, 5) for _ in range(2 * rank)]
    if net.maybe(0.1) and mode == "constant":
        sides = [net.pick(0, 0, 1, -1) for _ in sides]
    more: list[str] = []
    if mode == "constant" and net.maybe(0.5):
        more = [net.const(net.pick(0.0, 0.5, -2.0), net.real)]
    if net.maybe(0.15):
        axis = net.rng.randrange(rank)
        value = more or [""]
        return net.op("Pad", x, net.ints(sides[0], sides[1]), *value, net.ints(axis), mode=mode)
    return net.op("Pad", x, net.ints(*sides), *more, mode=mode)


def cut(net: Net, x: str) -> str | None:
    """A slice of one or two axes: with steps, from the end, or turned round."""
    shape = net.shape(x)
    axes = net.rng.sample(range(len(shape)), min(len(shape), net.pick(1, 1, 2)))
    starts, ends, steps = [], [], []
    for axis in axes:
        extent, step = shape[axis], net.pick(1, 1, 1, 2, 3, -1, -2)
        start = net.rng.randrange(max(1, extent // 2))
        end = extent - net.rng.randrange(max(1, extent // 3))
        if step < 0:
            start, end = end - 1, start - 1 if start else -extent - 1
        starts.append(start - extent if net.maybe(0.2) and start < extent else start)
        ends.append(net.pick(end, 1 << 40) if step > 0 and end == extent else end)
        steps.append(step)
    inputs = [net.ints(*starts), net.ints(*ends), net.ints(*axes)]
    if steps != [1] * len(steps) or net.maybe(0.3):
        inputs.append(net.ints(*steps))
    return net.op("Slice", x, *inputs)


def split(net: Net, x: str) -> str | None:
    """Parts of one axis: one of them, or all joined again in another order."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    extent = shape[axis]
    if extent < 2:
        return None
    if net.maybe(0.5):
        first = net.rng.randrange(1, extent)
        parts = net.ops("Split", x, net.ints(first, extent - first), outputs=2, axis=axis)
    else:
        parts = net.ops("Split", x, outputs=2, axis=axis, num_outputs=2)
    if parts is None or net.maybe(0.5):
        return net.pick(*parts) if parts else None
    return net.op("Concat", *reversed(parts), axis=axis)


def concat(net: Net, x: str) -> str | None:
    """Joined with values of a shape that fits, itself or a constant among them."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    rest = shape[:axis] + shape[axis + 1 :]
    near = [
        name for name in list(net.values)[-40:]
        if net.is_real(name) and name[0] != "c" and len(net.shape(name)) == len(shape)
        and net.shape(name)[:axis] + net.shape(name)[axis + 1 :] == rest
    ]  # fmt: skip
    parts = [x, *(net.pick(*(near or [x])) for _ in range(net.pick(1, 1, 2)))]
    if net.maybe(0.15):
        parts.append(net.weight(*shape))
    net.rng.shuffle(parts)
    return net.op("Concat", *parts, axis=net.pick(axis, axis - len(shape)))


def transpose(net: Net, x: str) -> str | None:
    """Any order of the axes; none given turns all round."""
    order = list(range(len(net.shape(x))))
    net.rng.shuffle(order)
    return net.op("Transpose", x, **({"perm": order} if net.maybe(0.9) else {}))


def reshape(net: Net, x: str) -> str | None:
    """Another shape of as many elements, with 0 and -1 as exporters write them."""
    shape = list(net.shape(x))
    total = math.prod(shape)
    kind = net.rng.randrange(4)
    if kind == 0 and len(shape) > 1:
        at = net.rng.randrange(len(shape) - 1)
        made = [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
    elif kind == 1 and len(shape) < 5:
        at = net.rng.randrange(len(shape))
        factor = net.pick(*(f for f in (1, 2, 3, 4) if shape[at] % f == 0))
        made = [*shape[:at], factor, shape[at] // factor, *shape[at + 1 :]]
    elif kind == 2:
        made = [shape[0], total // shape[0]]
    else:
        made = net.rng.sample(shape, len(shape))
    if net.maybe(0.4):
        made[net.rng.randrange(len(made))] = -1
    elif made[0] == shape[0] and net.maybe(0.3):
        made[0] = 0
    return net.op("Reshape", x, net.ints(*made))


def view(net: Net, x: str) -> str | None:
    """Axes of one element added or taken away, or all flattened."""
    shape = net.shape(x)
    flat = [axis for axis, extent in enumerate(shape) if extent == 1]
    if flat and net.maybe(0.5):
        return net.op("Squeeze", x, *([net.ints(net.pick(*flat))] if net.maybe(0.8) else []))
    if len(shape) < 5 and net.maybe(0.7):
        return net.op("Unsqueeze", x, net.ints(net.rng.randrange(len(shape) + 1)))
    return net.op("Flatten", x, axis=net.rng.randrange(len(shape) + 1))


def gather(net: Net, x: str) -> str | None:
    """Constant positions of one axis: a scalar, a vector or a table, sometimes from the end."""
    shape = net.shape(x)
    axis = net.rng.randrange(len(shape))
    form = net.pick((), (1,), (2,), (3,), (2, 2))
    positions = net.random.integers(-shape[axis] if net.maybe(0.3) else 0, shape[axis], form)
    return net.op("Gather", x, net.const(positions, np.int64), axis=axis)


def lookup(net: Net, x: str) -> str | None:
    """Rows of a table, chosen at run time, added to what is there."""
    shape = net.shape(x)
    ids = net.input(*shape[:-1], dtype=np.int64, below=7)
    return net.op("Add", x, net.op("Gather", net.weight(7, shape[-1]), ids))


def stretch(net: Net, x: str) -> str | None:
    """Repeated: by Expand where an extent is 1, by Tile anywhere."""
    shape = net.shape(x)
    if net.maybe(0.5):
        made = [net.pick(2, 3) if extent == 1 else extent for extent in shape]
        return net.op("Expand", x, net.ints(*made))
    return net.op("Tile", x, net.ints(*(net.pick(1, 1, 2) for _ in shape)))


def scan(net: Net, x: str) -> str | None:
    """Running sums, triangles, and the best few."""
    shape = net.shape(x)
    kind = net.rng.randrange(3)
    if kind == 0:
        axis = net.const(net.rng.randrange(len(shape)), np.int64)
        return net.op("CumSum", x, axis, exclusive=net.pick(0, 1), reverse=net.pick(0, 1))
    if kind == 1 and len(shape) > 1:
        return net.op("Trilu", x, net.const(net.pick(-1, 0, 1), np.int64), upper=net.pick(0, 1))
    made = net.ops("TopK", x, net.ints(1), outputs=2, axis=-1)
    return made[0] if made else None

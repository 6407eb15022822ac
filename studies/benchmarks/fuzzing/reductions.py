"""Reductions of every kind, softmax, normalizations."""

from __future__ import annotations

from typing import Any

from fuzzing.net import Net
from fuzzing.pointwise import float_code

KINDS = (
    "ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
    "ReduceSumSquare", "ReduceProd", "ReduceLogSumExp", "ReduceLogSum",
)  # fmt: skip


def reduction(net: Net, x: str) -> str | None:
    """One or several axes, or all; kept or not."""
    rank = len(net.shape(x))
    kind = net.pick(*KINDS)
    source = x
    if kind == "ReduceLogSum":
        positive = net.op("Add", net.op("Abs", x), net.const(0.1, net.real))
        if positive is None:
            return None
        source = positive
    keep = {"keepdims": net.pick(0, 1)} if net.maybe(0.8) else {}
    if net.maybe(0.1):
        return net.op(kind, source, **keep)
    axes = net.rng.sample(range(rank), net.pick(1, min(rank, 2)))
    axes = [axis - rank if net.maybe(0.3) else axis for axis in axes]
    return net.op(kind, source, net.ints(*axes), **keep)


def best(net: Net, x: str) -> str | None:
    """Where the largest is, as a number."""
    axis = net.rng.randrange(len(net.shape(x)))
    where = net.op(net.pick("ArgMax", "ArgMin"), x, axis=axis, keepdims=net.pick(0, 1))
    return net.op("Cast", where, to=float_code(net))


def softmax(net: Net, x: str) -> str | None:
    """Along any axis."""
    kind = net.pick("Softmax", "Softmax", "LogSoftmax", "Hardmax")
    rank = len(net.shape(x))
    return net.op(kind, x, axis=net.pick(-1, net.rng.randrange(rank)))


def norm(net: Net, x: str) -> str | None:
    """Layer, batch, instance, group and root-mean-square normalization; Lp normalization."""
    shape = net.shape(x)
    wide = lambda *extents: net.const(net.random.random(extents) + 0.5, net.real)  # noqa: E731
    kind = net.pick("Layer", "Layer", "Batch", "Instance", "Group", "Lp", "MeanVariance")
    near: dict[str, Any] = {"epsilon": 1e-3} if net.maybe(0.5) else {}
    if kind == "Layer":
        axis = net.rng.randrange(max(0, len(shape) - 2), len(shape))
        bias = [wide(*shape[axis:])] if net.maybe(0.7) else []
        given = axis - len(shape) if net.maybe(0.5) else axis
        return net.op("LayerNormalization", x, wide(*shape[axis:]), *bias, axis=given, **near)
    if kind == "Lp":
        return net.op("LpNormalization", x, axis=net.pick(-1, 0), p=net.pick(1, 2))
    if len(shape) < 3:
        return None
    channels = shape[1]
    if kind == "Batch":
        four = [wide(channels) for _ in range(4)]
        return net.op("BatchNormalization", x, *four, **near)
    if kind == "Instance":
        return net.op("InstanceNormalization", x, wide(channels), wide(channels), **near)
    if kind == "Group":
        groups = net.pick(*(g for g in (1, 2, 3, 4) if channels % g == 0))
        return net.op(
            "GroupNormalization", x, wide(channels), wide(channels), num_groups=groups, **near
        )
    return net.op("MeanVarianceNormalization", x) if len(shape) == 4 else None

"""Blocks as real networks are built of them: what fused groups and their halos meet.

Branches that are added or joined, squeezed channels that scale their own input, chains of
depthwise convolutions, shortcuts of another length.
"""

from __future__ import annotations

from fuzzing.net import Net


def plain_conv(
    net: Net, x: str | None, out: int, kernel: tuple[int, int], stride: int = 1, group: int = 1
) -> str | None:
    """A convolution with a bias that keeps the size (but for its stride)."""
    if x is None:
        return None
    before = [(k - 1) // 2 for k in kernel]
    after = [k // 2 for k in kernel]
    return net.op(
        "Conv", x, net.weight(out, net.shape(x)[1] // group, *kernel, axis=0),
        net.const(net.random.standard_normal(out), net.real), kernel_shape=kernel,
        strides=[stride] * 2, pads=[*before, *after], group=group,
    )  # fmt: skip


def _out(net: Net) -> int:
    return int(net.pick(2, 3, 7, 8, 16))


def basic(net: Net, x: str) -> str | None:
    """Two convolutions beside a shortcut."""
    stride = net.pick(1, 1, 2)
    out = _out(net) if stride > 1 or net.maybe(0.5) else net.shape(x)[1]
    a = net.op("Relu", plain_conv(net, x, out, (3, 3), stride))
    a = plain_conv(net, a, out, (net.pick(1, 3), 3))
    straight = stride == 1 and out == net.shape(x)[1]
    b = x if straight else plain_conv(net, x, out, (1, 1), stride)
    made = net.op("Add", a, b)
    return net.op("Relu", made) if net.maybe(0.7) else made


def inception(net: Net, x: str) -> str | None:
    """Branches of different kernels, joined."""
    branches: list[str | None] = []
    for _ in range(net.pick(2, 3, 4)):
        kind = net.rng.randrange(4)
        if kind == 0:
            made = plain_conv(net, x, _out(net), (1, 1))
        elif kind == 1:
            made = plain_conv(net, plain_conv(net, x, _out(net), (1, 1)), _out(net), (3, 3))
        elif kind == 2:
            made = net.op("Relu", plain_conv(net, x, _out(net), (5, 1)))
        else:
            made = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        branches.append(made)
    return net.op("Concat", *branches, axis=1)


def dense(net: Net, x: str) -> str | None:
    """What was made is joined to what it was made of."""
    made: str | None = x
    for _ in range(net.pick(1, 2)):
        new = net.op("Relu", plain_conv(net, made, _out(net), (3, 3)))
        made = net.op("Concat", made, new, axis=1)
    return made


def squeeze(net: Net, x: str) -> str | None:
    """Channels scaled by what a global pool makes of them."""
    s = net.op("GlobalAveragePool", x)
    s = net.op("Relu", plain_conv(net, s, _out(net), (1, 1)))
    s = plain_conv(net, s, net.shape(x)[1], (1, 1))
    return net.op("Mul", x, net.op(net.pick("Sigmoid", "HardSigmoid"), s))


def inverted(net: Net, x: str) -> str | None:
    """Expand, depthwise, project."""
    channels = net.shape(x)[1]
    wide, stride, kernel = channels * net.pick(1, 2), net.pick(1, 1, 2), net.pick(3, 5)
    a = plain_conv(net, x, wide, (1, 1))
    a = net.op("Clip", a, net.const(0.0, net.real), net.const(6.0, net.real))
    a = plain_conv(net, a, wide, (kernel, kernel), stride, wide)
    a = plain_conv(net, net.op("Relu", a), channels, (1, 1))
    return net.op("Add", a, x) if stride == 1 and net.maybe(0.5) else a


def late(net: Net, x: str) -> str | None:
    """A shortcut over more windows than its own branch has."""
    a = plain_conv(net, plain_conv(net, x, 4, (3, 3)), 4, (5, 3))
    return net.op(net.pick("Add", "Mul", "Sub"), a, plain_conv(net, x, 4, (1, 1)))


def head(net: Net, x: str) -> str | None:
    """A global pool, and back to an image by broadcasting."""
    return net.op("Add", x, net.op(net.pick("GlobalAveragePool", "GlobalMaxPool"), x))


def centred(net: Net, x: str) -> str | None:
    """Without its mean along one axis."""
    axis = net.rng.randrange(len(net.shape(x)))
    return net.op("Sub", x, net.op("ReduceMean", x, net.ints(axis), keepdims=1))


def mixed(net: Net, x: str) -> str | None:
    """Tokens mixed, not channels."""
    if len(net.shape(x)) != 3:
        return None
    tokens = net.shape(x)[1]
    turned = net.op("Transpose", x, perm=[0, 2, 1])
    made = net.op("Relu", net.op("MatMul", turned, net.weight(tokens, tokens)))
    return net.op("Add", net.op("Transpose", made, perm=[0, 2, 1]), x)


def unrolled(net: Net, x: str) -> str | None:
    """Rows and columns flattened, worked on, and restored."""
    shape = net.shape(x)
    flat = net.op("Reshape", x, net.ints(*shape[:2], -1))
    return net.op("Reshape", net.op("Relu", flat), net.ints(*shape))

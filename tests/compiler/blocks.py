"""Random networks of blocks, as real ones are built: what fused groups and their halos meet.

Branches that are added or concatenated, squeezed channels that scale their own input, depthwise
chains, windows of odd strides, dilations and borders, perceptrons, attention.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from hypothesis import strategies as st
from networks import Net

LARGEST = 12000
"""Elements of a value, at most."""


@st.composite
def blocks(draw: st.DrawFn, quantized: bool, most: int = 4) -> onnx.ModelProto:
    """A random network of up to `most` blocks on images or tokens."""
    net = Net(quantized, draw(st.integers(0, 9)))
    batch = draw(st.sampled_from((1, 1, 1, 2, 3, 4)))
    image = draw(st.integers(0, 3)) > 0
    if image:
        high, wide = (draw(st.sampled_from((1, 5, 7, 8, 11, 16, 23, 29))) for _ in range(2))
        x = net.input(batch, draw(st.sampled_from((1, 3, 4, 8, 13, 16))), high, wide)
    else:
        tokens = draw(st.sampled_from((2, 5, 8, 13, 16, 31)))
        x = net.input(batch, tokens, draw(st.sampled_from((4, 6, 8, 12, 24))))
    kinds = IMAGES if image else TOKENS
    kept = [x]
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(sorted(kinds)))
        made = kinds[kind](draw, net, x)
        if 0 < np.prod(net.shapes[made]) < LARGEST and min(net.shapes[made]) > 0:
            x = made
            kept.append(x)
    outputs = [x] if x not in net.inputs and len(kept) > 1 else [net.op("Neg", x)]
    if len(kept) > 3 and draw(st.integers(0, 3)) == 0:
        outputs.append(kept[-2])
    return net.model(*dict.fromkeys(outputs))


Draw = st.DrawFn
Block = Callable[[Draw, Net, str], str]


def _act(draw: Draw, net: Net, x: str) -> str:
    kind = draw(st.sampled_from(("", "Relu", "Relu", "HardSwish", "Sigmoid")))
    return net.op(kind, x) if kind else x


def conv(
    net: Net, x: str, out: int, kernel: tuple[int, int], *, stride: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] | None = None, dilation: int = 1, group: int = 1,
    bias: bool = True,
) -> str:  # fmt: skip
    """A convolution; by default padded such that the size stays."""
    spans = [dilation * (k - 1) for k in kernel]
    if pads is None:
        pads = (spans[0] // 2, spans[1] // 2, spans[0] - spans[0] // 2, spans[1] - spans[1] // 2)
    inputs = [x, net.weight(out, net.shapes[x][1] // group, *kernel)]
    if bias:
        inputs.append(net.vector(out))
    return net.op(
        "Conv", *inputs, kernel_shape=kernel, strides=stride, pads=pads, group=group,
        dilations=[dilation] * 2,
    )  # fmt: skip


def _out(draw: Draw) -> int:
    return draw(st.sampled_from((2, 3, 7, 8, 16, 17)))


def _window(draw: Draw, net: Net, x: str) -> str:
    """Any kernel, stride, dilation and border."""
    _, channels, *sides = net.shapes[x]
    dilation = draw(st.sampled_from((1, 1, 1, 2, 3)))
    kernel, stride = [], []
    starts, ends = [], []
    for side in sides:
        k = draw(st.sampled_from([k for k in (1, 2, 3, 4, 5, 7) if dilation * (k - 1) < side]))
        span = dilation * (k - 1) + 1
        kernel.append(k)
        stride.append(draw(st.sampled_from((1, 1, 2, 3))))
        starts.append(draw(st.integers(0, span - 1)))
        ends.append(draw(st.integers(0, span - 1)))
    group = channels if draw(st.integers(0, 3)) == 0 else 1
    out = channels if group > 1 else _out(draw)
    made = conv(
        net, x, out, (kernel[0], kernel[1]), stride=(stride[0], stride[1]),
        pads=(starts[0], starts[1], ends[0], ends[1]), dilation=dilation, group=group,
        bias=draw(st.booleans()),
    )  # fmt: skip
    return _act(draw, net, made)


def _basic(draw: Draw, net: Net, x: str) -> str:
    """Two convolutions beside a shortcut."""
    stride = draw(st.sampled_from((1, 1, 2)))
    out = _out(draw) if stride > 1 or draw(st.booleans()) else net.shapes[x][1]
    a = net.op("Relu", conv(net, x, out, (3, 3), stride=(stride, stride)))
    a = conv(net, a, out, (draw(st.sampled_from((1, 3))), 3))
    b = x
    if stride > 1 or out != net.shapes[x][1]:
        b = conv(net, x, out, (1, 1), stride=(stride, stride))
    return _act(draw, net, net.op("Add", a, b))


def _inception(draw: Draw, net: Net, x: str) -> str:
    """Branches of different kernels, joined."""
    branches = []
    for _ in range(draw(st.integers(2, 4))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            made = conv(net, x, _out(draw), (1, 1))
        elif kind == 1:
            made = conv(net, conv(net, x, _out(draw), (1, 1)), _out(draw), (3, 3))
        elif kind == 2:
            made = net.op("Relu", conv(net, x, _out(draw), (5, 1)))
        else:
            pooled = _pooled(draw, net, x, 3, 1)
            made = pooled if draw(st.booleans()) else conv(net, pooled, _out(draw), (1, 1))
        branches.append(made)
    return net.op("Concat", *branches, axis=1)


def _dense(draw: Draw, net: Net, x: str) -> str:
    """What was made is joined to what it was made of."""
    for _ in range(draw(st.integers(1, 2))):
        new = net.op("Relu", conv(net, x, _out(draw), (3, 3)))
        x = net.op("Concat", x, new, axis=1)
    return x


def _pooled(draw: Draw, net: Net, x: str, kernel: int, stride: int) -> str:
    kind = draw(st.sampled_from(("MaxPool", "AveragePool")))
    more = {"count_include_pad": draw(st.integers(0, 1))} if kind == "AveragePool" else {}
    pad = kernel // 2
    return net.op(
        kind, x, kernel_shape=[kernel] * 2, strides=[stride] * 2,
        pads=[pad, pad, kernel - 1 - pad, kernel - 1 - pad], **more,
    )  # fmt: skip


def _pool(draw: Draw, net: Net, x: str) -> str:
    return _pooled(draw, net, x, draw(st.sampled_from((2, 3))), draw(st.sampled_from((1, 2, 3))))


def _squeeze(draw: Draw, net: Net, x: str) -> str:
    """Channels scaled by what a global pool makes of them."""
    channels = net.shapes[x][1]
    s = net.op("GlobalAveragePool", x)
    s = net.op("Relu", conv(net, s, _out(draw), (1, 1)))
    s = net.op(draw(st.sampled_from(("Sigmoid", "HardSigmoid"))), conv(net, s, channels, (1, 1)))
    return net.op("Mul", x, s)


def _inverted(draw: Draw, net: Net, x: str) -> str:
    """Expand, depthwise, project."""
    channels = net.shapes[x][1]
    wide = channels * draw(st.sampled_from((1, 2)))
    stride = draw(st.sampled_from((1, 1, 2)))
    a = net.op("Clip", conv(net, x, wide, (1, 1)), net.const(0.0, "f4"), net.const(6.0, "f4"))
    kernel = draw(st.sampled_from((3, 5)))
    a = conv(net, a, wide, (kernel, kernel), stride=(stride, stride), group=wide)
    a = conv(net, net.op("Relu", a), channels, (1, 1))
    return net.op("Add", a, x) if stride == 1 and draw(st.booleans()) else a


def _late(draw: Draw, net: Net, x: str) -> str:
    """A shortcut over more windows than its own branch has."""
    a = conv(net, conv(net, x, 4, (3, 3)), 4, (5, 3))
    b = conv(net, x, 4, (1, 1))
    return net.op(draw(st.sampled_from(("Add", "Mul", "Sub"))), a, b)


def _head(draw: Draw, net: Net, x: str) -> str:
    """A global pool, and back to an image by broadcasting."""
    kind = draw(st.sampled_from(("GlobalAveragePool", "GlobalMaxPool")))
    return net.op("Add", x, net.op(kind, x))


def _turned(draw: Draw, net: Net, x: str) -> str:
    """Rows and columns exchanged, or flattened and restored."""
    n, c, h, w = net.shapes[x]
    if draw(st.booleans()):
        return net.op("Transpose", x, perm=[0, 1, 3, 2])
    flat = net.op("Reshape", x, net.const([n, c, h * w], "i8"))
    return net.op("Reshape", net.op("Relu", flat), net.const([n, c, h, w], "i8"))


def _cut(draw: Draw, net: Net, x: str) -> str:
    """A part of one axis."""
    axis = draw(st.integers(1, len(net.shapes[x]) - 1))
    extent = net.shapes[x][axis]
    if extent < 3:
        return net.op("Relu", x)
    start = draw(st.integers(0, 1))
    bounds = [net.const([n], "i8") for n in (start, extent - draw(st.integers(0, 1)), axis)]
    return net.op("Slice", x, *bounds, net.const([draw(st.sampled_from((1, 2)))], "i8"))


def _mlp(draw: Draw, net: Net, x: str) -> str:
    wide = net.shapes[x][-1]
    a = net.op("MatMul", x, net.weight(wide, draw(st.sampled_from((3, 8, 16)))))
    a = net.op("Add", a, net.vector(net.shapes[a][-1]))
    a = net.op(draw(st.sampled_from(("Gelu", "Relu"))), a)
    a = net.op("MatMul", a, net.weight(net.shapes[a][-1], wide))
    return net.op("Add", a, x) if draw(st.booleans()) else a


def _norm(draw: Draw, net: Net, x: str) -> str:
    wide = net.shapes[x][-1]
    return net.op("LayerNormalization", x, net.vector(wide), net.vector(wide), axis=-1)


def attention(net: Net, x: str, heads: int, scale: float | None = None) -> str:
    """Scores and weighted values of every head, side by side again, and a last product."""
    batch, tokens, wide = net.shapes[x]

    def split(order: list[int]) -> str:
        made = net.op("MatMul", x, net.weight(wide, wide))
        made = net.op("Reshape", made, net.const([batch, tokens, heads, wide // heads], "i8"))
        return net.op("Transpose", made, perm=order)

    scores = net.op("MatMul", split([0, 2, 1, 3]), split([0, 2, 3, 1]))
    scores = scores if scale is None else net.op("Mul", scores, net.const(scale, "f4"))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), split([0, 2, 1, 3]))
    mixed = net.op("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = net.op("Reshape", mixed, net.const([batch, tokens, wide], "i8"))
    return net.op("MatMul", mixed, net.weight(wide, wide))


def _attention(draw: Draw, net: Net, x: str) -> str:
    heads = draw(st.sampled_from([h for h in (1, 2, 4) if net.shapes[x][-1] % h == 0]))
    return net.op("Add", attention(net, x, heads, 0.3), x)


def _mixed(draw: Draw, net: Net, x: str) -> str:
    """Tokens mixed, not channels."""
    turned = net.op("Transpose", x, perm=[0, 2, 1])
    tokens = net.shapes[x][1]
    made = net.op("Relu", net.op("MatMul", turned, net.weight(tokens, tokens)))
    return net.op("Add", net.op("Transpose", made, perm=[0, 2, 1]), x)


def _mean(draw: Draw, net: Net, x: str) -> str:
    return net.op("Sub", x, net.op("ReduceMean", x, net.const([1], "i8"), keepdims=1))


IMAGES: dict[str, Block] = {
    "window": _window, "window2": _window, "basic": _basic, "inception": _inception,
    "dense": _dense, "pool": _pool, "squeeze": _squeeze, "inverted": _inverted, "late": _late,
    "head": _head, "turned": _turned, "cut": _cut,
}  # fmt: skip
TOKENS: dict[str, Block] = {
    "mlp": _mlp, "norm": _norm, "attention": _attention, "mixed": _mixed, "mean": _mean,
    "cut": _cut, "mlp2": _mlp,
}  # fmt: skip

"""U-Net (Ronneberger et al. 2015), with padded convolutions and BatchNormalization, and a detector
like YOLOv8n (Jocher et al. 2023).

The one idea: what each resolution computed on the way down is concatenated to what comes back up,
so large tensors live across the whole network.
"""

from __future__ import annotations

import math

import numpy as np

from archgen.zoo.builder import Moments, NetworkBuilder, ZooTensor, concatenated, scaled_channels

_CHANNELS = (64, 128, 256, 512, 1024)


def unet(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends U-Net on (batch, 3, image, image); outputs ``logits`` (batch, classes, image,
    image)."""
    steps = 1 << len(_CHANNELS) - 1
    net.refuse(image % steps > 0, f"image={image} is not a multiple of {steps}")
    x = net.input("input", (batch, 3, image, image))
    beside: list[ZooTensor] = []
    for level, channels in enumerate(_CHANNELS):
        if level:
            beside.append(x)
            x = x.pool(f"pool{level}", 2, 2)
        x = _twice(x, f"down{level}", scaled_channels(channels, width))
    for level, left in reversed([*enumerate(beside)]):
        x = _doubled(x, f"up{level}.transposed", left.shape[1])
        x = _twice(concatenated(f"up{level}.concat", [left, x]), f"up{level}", left.shape[1])
    x.conv("head", classes, 1).output("logits")


def _twice(x: ZooTensor, name: str, channels: int) -> ZooTensor:
    for index in range(2):
        x = x.conv_bn(f"{name}.conv{index}", channels, 3, norm=f"{name}.bn{index}").relu()
    return x


def _doubled(x: ZooTensor, name: str, channels: int) -> ZooTensor:
    """ConvTranspose with a 2x2 kernel and stride 2: each pixel becomes four, centred."""
    net, (batch, given, height, width) = x.net, x.shape
    weight = net.normal((given, channels, 2, 2), 1 / math.sqrt(given))
    moments = Moments.standard(channels)
    if net.weights:
        weight -= weight.mean(axis=0, keepdims=True)
        moments = x.moments.through(weight.transpose(1, 0, 2, 3))
        # Of the four products of the kernel, each pixel is one.
        moments = Moments(moments.mean / 4, moments.variance / 4)
    inputs = [net.parameter(f"{name}.weight", weight), net.centring_bias(f"{name}.bias", moments)]
    return x.apply(
        "ConvTranspose", name, *inputs, shape=(batch, channels, 2 * height, 2 * width),
        moments=moments.centred(), kernel_shape=[2, 2], strides=[2, 2],
    )  # fmt: skip


# The detector, as exported: BatchNormalization folded.

_STRIDES = (8, 16, 32)
_BINS = 16


def yolov8n(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends the detector on (batch, 3, image, image). Outputs ``boxes`` (batch, 4, anchors),
    centre and size in pixels, and ``scores`` (batch, classes, anchors)."""
    coarsest = _STRIDES[-1]
    net.refuse(image % coarsest > 0, f"image={image} is not a multiple of {coarsest}")
    levels = _neck(_backbone(net.input("images", (batch, 3, image, image)), width), width)
    boxes, scores = _heads(levels, classes)
    _decoded(boxes, [level.shape[2] for level in levels]).output("boxes")
    scores.apply("Sigmoid", "scores.likely").output("scores")


def _backbone(x: ZooTensor, width: float) -> list[ZooTensor]:
    """Features at strides 8, 16 and 32."""
    levels: list[ZooTensor] = []
    x = _conv_swish(x, "backbone.0", scaled_channels(16, width), 3, 2)
    for stage, (channels, repeats) in enumerate(((32, 1), (64, 2), (128, 2), (256, 1)), 1):
        channels = scaled_channels(channels, width)
        x = _conv_swish(x, f"backbone.{stage}.down", channels, 3, 2)
        x = _cross_stage(x, f"backbone.{stage}", channels, repeats, residual=True)
        levels.append(x)
    return [*levels[1:-1], _pooled_wide(x, "backbone.sppf")]


def _neck(levels: list[ZooTensor], width: float) -> list[ZooTensor]:
    """From coarse to fine and back, each level with its neighbour's features beside its own."""
    fine, middle, coarse = levels
    rising = _fuse_scales(_upsampled(coarse, "neck.up1"), "neck.up1", middle, 128, width)
    out = [_fuse_scales(_upsampled(rising, "neck.up2"), "neck.up2", fine, 64, width)]
    for index, (beside, channels) in enumerate(((rising, 128), (coarse, 256)), 1):
        name = f"neck.down{index}"
        down = _conv_swish(out[-1], f"{name}.down", out[-1].shape[1], 3, 2)
        out.append(_fuse_scales(down, name, beside, channels, width))
    return out


def _fuse_scales(
    x: ZooTensor, name: str, beside: ZooTensor, channels: int, width: float
) -> ZooTensor:
    x = concatenated(f"{name}.beside", [x, beside])
    return _cross_stage(x, name, scaled_channels(channels, width), 1, residual=False)


def _heads(levels: list[ZooTensor], classes: int) -> tuple[ZooTensor, ZooTensor]:
    """Logits of the bins (batch, 64, anchors) and of the classes (batch, classes, anchors)."""
    narrow = levels[0].shape[1]
    widths = {"box": max(16, narrow // 4, 4 * _BINS), "class": max(narrow, min(classes, 100))}
    flat: dict[str, list[ZooTensor]] = {"box": [], "class": []}
    for index, level in enumerate(levels):
        for kind, wide in widths.items():
            name = f"head.{kind}.{index}"
            y = _conv_swish(_conv_swish(level, f"{name}.0", wide, 3), f"{name}.1", wide, 3)
            y = y.conv(f"{name}.2", 4 * _BINS if kind == "box" else classes, 1)
            batch, channels, height, across = y.shape
            shape = batch, channels, height * across
            flat[kind].append(y.apply("Reshape", f"{name}.flat", shape, shape=shape))
    boxes, scores = (_side_by_side(f"head.{kind}", parts) for kind, parts in flat.items())
    return boxes, scores


def _side_by_side(name: str, parts: list[ZooTensor]) -> ZooTensor:
    """Concat of the anchors of all levels."""
    first, *others = parts
    shape = (*first.shape[:2], sum(part.shape[2] for part in parts))
    return first.apply("Concat", name, *others, shape=shape, axis=2)


def _decoded(bins: ZooTensor, sides: list[int]) -> ZooTensor:
    """Expected distances from each anchor to the four edges, as centre and size in pixels."""
    net, (batch, _, anchors) = bins.net, bins.shape
    apart = net.node("Reshape", "dfl.bins", bins, [batch, 4, _BINS, anchors])
    first = net.node("Transpose", "dfl.first", apart, perm=[0, 2, 1, 3])
    likely = net.node("Softmax", "dfl.likely", first, axis=1)
    bins_at = np.arange(_BINS, dtype=np.float32).reshape(1, _BINS, 1, 1)
    expected = net.node("Conv", "dfl.expected", likely, net.parameter("dfl.places", bins_at))
    edges = net.node("Reshape", "dfl.edges", expected, [batch, 4, anchors])
    names = ["boxes.edges.0", "boxes.edges.1"]
    before, after = net.nodes("Split", names, edges, [2, 2], axis=1)
    places, strides = _anchors(sides)
    centres = net.constant("boxes.low.input0", places)
    low = net.node("Sub", "boxes.low", centres, before)
    high = net.node("Add", "boxes.high", centres, after)
    total = net.node("Add", "boxes.sum", low, high)
    middle = net.node("Div", "boxes.centre", total, 2.0)
    size = net.node("Sub", "boxes.size", high, low)
    cells = net.node("Concat", "boxes.cells", middle, size, axis=1)
    return net.tensor(net.node("Mul", "boxes.pixels", cells, strides), (batch, 4, anchors))


def _anchors(sides: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Centres of all cells in cells (1, 2, anchors), and pixels per cell (1, anchors)."""
    grids = [np.meshgrid(*[np.arange(side) + 0.5] * 2) for side in sides]
    centres = np.concatenate([np.stack(grid).reshape(2, -1) for grid in grids], axis=1)
    strides = np.repeat(_STRIDES, [side * side for side in sides])
    return centres[np.newaxis].astype(np.float32), strides[np.newaxis].astype(np.float32)


def _cross_stage(x: ZooTensor, name: str, channels: int, repeats: int, residual: bool) -> ZooTensor:
    """All intermediate results of a chain of bottlenecks, side by side, and a 1x1 convolution."""
    parts = _conv_swish(x, f"{name}.cv1", channels, 1).split(f"{name}.split", 2)
    for index in range(repeats):
        half = parts[-1].shape[1]
        y = _conv_swish(parts[-1], f"{name}.{index}.cv1", half, 3)
        y = _conv_swish(y, f"{name}.{index}.cv2", half, 3)
        parts.append(parts[-1].plus(f"{name}.{index}.add", y) if residual else y)
    return _conv_swish(concatenated(f"{name}.concat", parts), f"{name}.cv2", channels, 1)


def _pooled_wide(x: ZooTensor, name: str) -> ZooTensor:
    """Three pools of 5x5 in a chain, all side by side (fast spatial pyramid pooling)."""
    parts = [_conv_swish(x, f"{name}.cv1", x.shape[1] // 2, 1)]
    for index in range(3):
        parts.append(parts[-1].pool(f"{name}.pool{index}", 5, 1, 2))
    return _conv_swish(concatenated(f"{name}.concat", parts), f"{name}.cv2", x.shape[1], 1)


def _upsampled(x: ZooTensor, name: str) -> ZooTensor:
    """Resize to twice the size, each pixel four times."""
    batch, channels, height, across = x.shape
    return x.apply(
        "Resize", f"{name}.resized", "", np.array([1, 1, 2, 2], np.float32),
        shape=(batch, channels, 2 * height, 2 * across), mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip


def _conv_swish(x: ZooTensor, name: str, channels: int, kernel: int, stride: int = 1) -> ZooTensor:
    return x.conv(name, channels, kernel, stride).activated("Swish")

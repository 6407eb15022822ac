"""U-Net (Ronneberger et al. 2015), with padded convolutions and BatchNormalization.

The one idea: what each resolution computed on the way down is concatenated to what comes back up
through transposed convolutions, so large tensors live across the whole network.
"""

from __future__ import annotations

import math

import numpy as np

from archgen.zoo.builder import NetworkBuilder, ZooError, ZooTensor, scaled_channels
from archgen.zoo.moments import Moments

_CHANNELS = (64, 128, 256, 512, 1024)


def unet(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends U-Net on (batch, 3, image, image); outputs ``logits`` (batch, classes, image,
    image)."""
    steps = 1 << len(_CHANNELS) - 1
    if image % steps:
        raise ZooError(f"{net.graph.name}: image={image} is not a multiple of {steps}")
    x = net.input("input", (batch, 3, image, image))
    kept: list[ZooTensor] = []
    for level, channels in enumerate(_CHANNELS):
        if level:
            kept.append(x)
            x = net.max_pool(f"pool{level}", x, 2, 2)
        x = _twice(net, f"down{level}", x, scaled_channels(channels, width))
    while kept:
        level, beside = len(kept) - 1, kept.pop()
        x = _doubled(net, f"up{level}.transposed", x, beside.shape[1])
        x = net.concatenate(f"up{level}.concat", [beside, x])
        x = _twice(net, f"up{level}", x, beside.shape[1])
    net.output("logits", net.convolution("head", x, classes, 1))


def _twice(net: NetworkBuilder, name: str, x: ZooTensor, channels: int) -> ZooTensor:
    for index in range(2):
        x = net.convolution(f"{name}.conv{index}", x, channels, 3, bias=False)
        x = net.relu(net.batch_norm(f"{name}.bn{index}", x))
    return x


def _doubled(net: NetworkBuilder, name: str, x: ZooTensor, channels: int) -> ZooTensor:
    """ConvTranspose with a 2x2 kernel and stride 2: each pixel becomes four, centred."""
    batch, given, height, width = x.shape
    weight = net.normal((given, channels, 2, 2), 1 / math.sqrt(given))
    moments = Moments.standard(channels)
    if net.weights:
        weight -= weight.mean(axis=0, keepdims=True)
        moments = x.moments.through(weight.transpose(1, 0, 2, 3))
        # Of the four products of the kernel, each pixel is one.
        moments = Moments(moments.mean / 4, moments.variance / 4)
    bias = (net.uniform(channels, -0.1, 0.1) - moments.mean).astype(np.float32)
    inputs = [net.parameter(f"{name}.weight", weight), net.parameter(f"{name}.bias", bias)]
    net.node("ConvTranspose", name, [x.name, *inputs], kernel_shape=[2, 2], strides=[2, 2])
    return ZooTensor(name, (batch, channels, 2 * height, 2 * width), moments.centred())


# A detector like YOLOv8n (Jocher et al. 2023), as exported: BatchNormalization folded.

_STRIDES = (8, 16, 32)
_BINS = 16


def yolov8n(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends the detector on (batch, 3, image, image). Outputs ``boxes`` (batch, 4, anchors),
    centre and size in pixels, and ``scores`` (batch, classes, anchors)."""
    if image % _STRIDES[-1]:
        raise ZooError(f"{net.graph.name}: image={image} is not a multiple of {_STRIDES[-1]}")
    x = net.input("images", (batch, 3, image, image))
    levels = _neck(net, _backbone(net, x, width), width)
    boxes, scores = _heads(net, levels, classes)
    net.output("boxes", _decoded(net, boxes, [level.shape[2] for level in levels]))
    (likely,) = net.node("Sigmoid", "scores.likely", [scores.name])
    net.output("scores", ZooTensor(likely, scores.shape, scores.moments))


def _backbone(net: NetworkBuilder, x: ZooTensor, width: float) -> list[ZooTensor]:
    """Features at strides 8, 16 and 32."""
    levels: list[ZooTensor] = []
    x = _conv_swish(net, "backbone.0", x, scaled_channels(16, width), 3, 2)
    for stage, (channels, repeats) in enumerate(((32, 1), (64, 2), (128, 2), (256, 1)), 1):
        channels = scaled_channels(channels, width)
        x = _conv_swish(net, f"backbone.{stage}.down", x, channels, 3, 2)
        x = _cross_stage(net, f"backbone.{stage}", x, channels, repeats, residual=True)
        levels.append(x)
    return [*levels[1:-1], _pooled_wide(net, "backbone.sppf", x)]


def _neck(net: NetworkBuilder, levels: list[ZooTensor], width: float) -> list[ZooTensor]:
    """From coarse to fine and back, each level with its neighbour's features beside its own."""
    fine, middle, coarse = levels
    rising = _fuse_scales(net, "neck.up1", _upsampled(net, "neck.up1", coarse), middle, 128, width)
    out = [_fuse_scales(net, "neck.up2", _upsampled(net, "neck.up2", rising), fine, 64, width)]
    for index, (beside, channels) in enumerate(((rising, 128), (coarse, 256)), 1):
        name = f"neck.down{index}"
        down = _conv_swish(net, f"{name}.down", out[-1], out[-1].shape[1], 3, 2)
        out.append(_fuse_scales(net, name, down, beside, channels, width))
    return out


def _fuse_scales(
    net: NetworkBuilder, name: str, x: ZooTensor, beside: ZooTensor, channels: int, width: float
) -> ZooTensor:
    x = net.concatenate(f"{name}.beside", [x, beside])
    return _cross_stage(net, name, x, scaled_channels(channels, width), 1, residual=False)


def _heads(
    net: NetworkBuilder, levels: list[ZooTensor], classes: int
) -> tuple[ZooTensor, ZooTensor]:
    """Logits of the bins (batch, 64, anchors) and of the classes (batch, classes, anchors)."""
    narrow = levels[0].shape[1]
    widths = {"box": max(16, narrow // 4, 4 * _BINS), "class": max(narrow, min(classes, 100))}
    flat: dict[str, list[ZooTensor]] = {"box": [], "class": []}
    for index, level in enumerate(levels):
        for kind, wide in widths.items():
            name = f"head.{kind}.{index}"
            y = _conv_swish(
                net, f"{name}.1", _conv_swish(net, f"{name}.0", level, wide, 3), wide, 3
            )
            y = net.convolution(f"{name}.2", y, 4 * _BINS if kind == "box" else classes, 1)
            batch, channels, height, across = y.shape
            shape = batch, channels, height * across
            net.node("Reshape", f"{name}.flat", [y.name, net.integers(shape)])
            flat[kind].append(ZooTensor(f"{name}.flat", shape, y.moments))
    boxes, scores = (_side_by_side(net, f"head.{kind}", parts) for kind, parts in flat.items())
    return boxes, scores


def _side_by_side(net: NetworkBuilder, name: str, parts: list[ZooTensor]) -> ZooTensor:
    """Concat of the anchors of all levels."""
    net.node("Concat", name, [part.name for part in parts], axis=2)
    anchors = sum(part.shape[2] for part in parts)
    return ZooTensor(name, (*parts[0].shape[:2], anchors), parts[0].moments)


def _decoded(net: NetworkBuilder, bins: ZooTensor, sides: list[int]) -> ZooTensor:
    """Expected distances from each anchor to the four edges, as centre and size in pixels."""
    batch, _, anchors = bins.shape
    net.node("Reshape", "dfl.bins", [bins.name, net.integers([batch, 4, _BINS, anchors])])
    net.node("Transpose", "dfl.first", ["dfl.bins"], perm=[0, 2, 1, 3])
    net.node("Softmax", "dfl.likely", ["dfl.first"], axis=1)
    bins_at = np.arange(_BINS, dtype=np.float32).reshape(1, _BINS, 1, 1)
    net.node("Conv", "dfl.expected", ["dfl.likely", net.parameter("dfl.places", bins_at)])
    net.node("Reshape", "dfl.edges", ["dfl.expected", net.integers([batch, 4, anchors])])
    before, after = net.node("Split", "boxes.edges", ["dfl.edges", net.integers([2, 2])], 2, axis=1)
    places, strides = _anchors(sides)
    centres = net.constant(places)
    (low,) = net.node("Sub", "boxes.low", [centres, before])
    (high,) = net.node("Add", "boxes.high", [centres, after])
    (total,) = net.node("Add", "boxes.sum", [low, high])
    (middle,) = net.node("Div", "boxes.centre", [total, net.scalar(2.0)])
    (size,) = net.node("Sub", "boxes.size", [high, low])
    (cells,) = net.node("Concat", "boxes.cells", [middle, size], axis=1)
    net.node("Mul", "boxes.pixels", [cells, net.constant(strides)])
    return ZooTensor("boxes.pixels", (batch, 4, anchors), Moments.standard(anchors))


def _anchors(sides: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Centres of all cells in cells (1, 2, anchors), and pixels per cell (1, anchors)."""
    grids = [np.meshgrid(*[np.arange(side) + 0.5] * 2) for side in sides]
    centres = np.concatenate([np.stack(grid).reshape(2, -1) for grid in grids], axis=1)
    strides = np.repeat(_STRIDES, [side * side for side in sides])
    return centres[np.newaxis].astype(np.float32), strides[np.newaxis].astype(np.float32)


def _cross_stage(
    net: NetworkBuilder, name: str, x: ZooTensor, channels: int, repeats: int, residual: bool
) -> ZooTensor:
    """All intermediate results of a chain of bottlenecks, side by side, and a 1x1 convolution."""
    parts = net.split(f"{name}.split", _conv_swish(net, f"{name}.cv1", x, channels, 1), 2)
    for index in range(repeats):
        half = parts[-1].shape[1]
        y = _conv_swish(net, f"{name}.{index}.cv1", parts[-1], half, 3)
        y = _conv_swish(net, f"{name}.{index}.cv2", y, half, 3)
        parts.append(net.add(f"{name}.{index}.add", parts[-1], y) if residual else y)
    return _conv_swish(net, f"{name}.cv2", net.concatenate(f"{name}.concat", parts), channels, 1)


def _pooled_wide(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """Three pools of 5x5 in a chain, all side by side (fast spatial pyramid pooling)."""
    parts = [_conv_swish(net, f"{name}.cv1", x, x.shape[1] // 2, 1)]
    for index in range(3):
        parts.append(net.max_pool(f"{name}.pool{index}", parts[-1], 5, 1, 2))
    return _conv_swish(net, f"{name}.cv2", net.concatenate(f"{name}.concat", parts), x.shape[1], 1)


def _upsampled(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """Resize to twice the size, each pixel four times."""
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    net.node(
        "Resize", f"{name}.resized", [x.name, "", scales], mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    batch, channels, height, across = x.shape
    return ZooTensor(f"{name}.resized", (batch, channels, 2 * height, 2 * across), x.moments)


def _conv_swish(
    net: NetworkBuilder, name: str, x: ZooTensor, channels: int, kernel: int, stride: int = 1
) -> ZooTensor:
    return net.activated("Swish", net.convolution(name, x, channels, kernel, stride))

"""A detector like YOLOv8n (Jocher et al. 2023), as exported: BatchNormalization folded.

The one idea: a backbone of cross-stage blocks, a neck that carries features up and down again by
concatenation, and heads apart for boxes and classes. A box's four distances are expectations over
16 bins (distribution focal loss), which the graph decodes into pixels.
"""

from __future__ import annotations

import numpy as np

from archgen.zoo.builder import Builder, Tensor, ZooError, scaled_channels
from archgen.zoo.moments import Moments

_STRIDES = (8, 16, 32)
_BINS = 16


def yolov8n(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends the detector on (batch, 3, image, image). Outputs ``boxes`` (batch, 4, anchors),
    centre and size in pixels, and ``scores`` (batch, classes, anchors)."""
    if image % _STRIDES[-1]:
        raise ZooError(f"{net.graph.name}: image={image} is not a multiple of {_STRIDES[-1]}")
    x = net.input("images", (batch, 3, image, image))
    levels = _neck(net, _backbone(net, x, width), width)
    boxes, scores = _heads(net, levels, classes)
    net.output("boxes", _decoded(net, boxes, [level.shape[2] for level in levels]))
    (likely,) = net.node("Sigmoid", "scores.likely", [scores.name])
    net.output("scores", Tensor(likely, scores.shape, scores.moments))


def _backbone(net: Builder, x: Tensor, width: float) -> list[Tensor]:
    """Features at strides 8, 16 and 32."""
    levels: list[Tensor] = []
    x = _unit(net, "backbone.0", x, scaled_channels(16, width), 3, 2)
    for stage, (channels, repeats) in enumerate(((32, 1), (64, 2), (128, 2), (256, 1)), 1):
        channels = scaled_channels(channels, width)
        x = _unit(net, f"backbone.{stage}.down", x, channels, 3, 2)
        x = _cross_stage(net, f"backbone.{stage}", x, channels, repeats, residual=True)
        levels.append(x)
    return [*levels[1:-1], _pooled_wide(net, "backbone.sppf", x)]


def _neck(net: Builder, levels: list[Tensor], width: float) -> list[Tensor]:
    """From coarse to fine and back, each level with its neighbour's features beside its own."""
    fine, middle, coarse = levels
    rising = _merged(net, "neck.up1", _upsampled(net, "neck.up1", coarse), middle, 128, width)
    out = [_merged(net, "neck.up2", _upsampled(net, "neck.up2", rising), fine, 64, width)]
    for index, (beside, channels) in enumerate(((rising, 128), (coarse, 256)), 1):
        name = f"neck.down{index}"
        down = _unit(net, f"{name}.down", out[-1], out[-1].shape[1], 3, 2)
        out.append(_merged(net, name, down, beside, channels, width))
    return out


def _merged(
    net: Builder, name: str, x: Tensor, beside: Tensor, channels: int, width: float
) -> Tensor:
    x = net.concatenate(f"{name}.beside", [x, beside])
    return _cross_stage(net, name, x, scaled_channels(channels, width), 1, residual=False)


def _heads(net: Builder, levels: list[Tensor], classes: int) -> tuple[Tensor, Tensor]:
    """Logits of the bins (batch, 64, anchors) and of the classes (batch, classes, anchors)."""
    narrow = levels[0].shape[1]
    widths = {"box": max(16, narrow // 4, 4 * _BINS), "class": max(narrow, min(classes, 100))}
    flat: dict[str, list[Tensor]] = {"box": [], "class": []}
    for index, level in enumerate(levels):
        for kind, wide in widths.items():
            name = f"head.{kind}.{index}"
            y = _unit(net, f"{name}.1", _unit(net, f"{name}.0", level, wide, 3), wide, 3)
            y = net.convolution(f"{name}.2", y, 4 * _BINS if kind == "box" else classes, 1)
            batch, channels, height, across = y.shape
            shape = batch, channels, height * across
            net.node("Reshape", f"{name}.flat", [y.name, net.integers(shape)])
            flat[kind].append(Tensor(f"{name}.flat", shape, y.moments))
    boxes, scores = (_side_by_side(net, f"head.{kind}", parts) for kind, parts in flat.items())
    return boxes, scores


def _side_by_side(net: Builder, name: str, parts: list[Tensor]) -> Tensor:
    """Concat of the anchors of all levels."""
    net.node("Concat", name, [part.name for part in parts], axis=2)
    anchors = sum(part.shape[2] for part in parts)
    return Tensor(name, (*parts[0].shape[:2], anchors), parts[0].moments)


def _decoded(net: Builder, bins: Tensor, sides: list[int]) -> Tensor:
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
    return Tensor("boxes.pixels", (batch, 4, anchors), Moments.standard(anchors))


def _anchors(sides: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Centres of all cells in cells (1, 2, anchors), and pixels per cell (1, anchors)."""
    grids = [np.meshgrid(*[np.arange(side) + 0.5] * 2) for side in sides]
    centres = np.concatenate([np.stack(grid).reshape(2, -1) for grid in grids], axis=1)
    strides = np.repeat(_STRIDES, [side * side for side in sides])
    return centres[np.newaxis].astype(np.float32), strides[np.newaxis].astype(np.float32)


def _cross_stage(
    net: Builder, name: str, x: Tensor, channels: int, repeats: int, residual: bool
) -> Tensor:
    """All intermediate results of a chain of bottlenecks, side by side, and a 1x1 convolution."""
    parts = net.split(f"{name}.split", _unit(net, f"{name}.cv1", x, channels, 1), 2)
    for index in range(repeats):
        half = parts[-1].shape[1]
        y = _unit(net, f"{name}.{index}.cv1", parts[-1], half, 3)
        y = _unit(net, f"{name}.{index}.cv2", y, half, 3)
        parts.append(net.add(f"{name}.{index}.add", parts[-1], y) if residual else y)
    return _unit(net, f"{name}.cv2", net.concatenate(f"{name}.concat", parts), channels, 1)


def _pooled_wide(net: Builder, name: str, x: Tensor) -> Tensor:
    """Three pools of 5x5 in a chain, all side by side (fast spatial pyramid pooling)."""
    parts = [_unit(net, f"{name}.cv1", x, x.shape[1] // 2, 1)]
    for index in range(3):
        parts.append(net.max_pool(f"{name}.pool{index}", parts[-1], 5, 1, 2))
    return _unit(net, f"{name}.cv2", net.concatenate(f"{name}.concat", parts), x.shape[1], 1)


def _upsampled(net: Builder, name: str, x: Tensor) -> Tensor:
    """Resize to twice the size, each pixel four times."""
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    net.node(
        "Resize", f"{name}.resized", [x.name, "", scales], mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    batch, channels, height, across = x.shape
    return Tensor(f"{name}.resized", (batch, channels, 2 * height, 2 * across), x.moments)


def _unit(
    net: Builder, name: str, x: Tensor, channels: int, kernel: int, stride: int = 1
) -> Tensor:
    return net.activated("Swish", net.convolution(name, x, channels, kernel, stride))

"""MobileNetV1 (Howard et al. 2017) and MobileNetV2 (Sandler et al. 2018).

The one idea: a depthwise 3x3 and a pointwise 1x1 stand for a full convolution; V2 wraps them in a
residual between narrow tensors, without an activation on the narrow side.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels

# Output channels and stride of V1's thirteen depthwise separable layers.
_V1_LAYERS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
# Expansion, output channels, repeats and first stride of V2's seven stages (its table 2).
_V2_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def mobilenet_v1(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends MobileNetV1 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = net.relu(_normalized(net, "conv0", x, scaled_channels(32, width), 3, 2))
    for index, (channels, stride) in enumerate(_V1_LAYERS, 1):
        x = net.relu(_depthwise(net, f"conv{index}.depthwise", x, stride))
        channels = scaled_channels(channels, width)
        x = net.relu(_normalized(net, f"conv{index}.pointwise", x, channels, 1))
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def mobilenet_v2(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends MobileNetV2 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    stem = _normalized(net, "features.0", x, scaled_channels(32, width), 3, 2)
    x = net.relu(stem, six=True)
    index = 0
    for expansion, channels, repeats, first_stride in _V2_STAGES:
        for repeat in range(repeats):
            index += 1
            stride = first_stride if repeat == 0 else 1
            wide = scaled_channels(channels, width)
            x = _inverted_residual(net, f"features.{index}", x, expansion, wide, stride)
    last = scaled_channels(1280, max(1.0, width))
    x = net.relu(_normalized(net, "features.18", x, last, 1), six=True)
    net.output("logits", net.gemm("classifier", net.global_average_pool("avgpool", x), classes))


def _inverted_residual(
    net: Builder, name: str, x: Tensor, expansion: int, channels: int, stride: int
) -> Tensor:
    y = x
    if expansion != 1:
        y = _normalized(net, f"{name}.expand", x, expansion * x.shape[1], 1)
        y = net.relu(y, six=True)
    y = net.relu(_depthwise(net, f"{name}.depthwise", y, stride), six=True)
    residual = stride == 1 and x.shape[1] == channels
    y = _normalized(net, f"{name}.project", y, channels, 1, gain=0.5 if residual else 1.0)
    return net.add(f"{name}.add", x, y) if residual else y


def _depthwise(net: Builder, name: str, x: Tensor, stride: int) -> Tensor:
    groups = x.shape[1]
    y = net.convolution(name, x, groups, 3, stride, groups=groups, bias=False)
    return net.batch_norm(f"{name}.bn", y)


def _normalized(
    net: Builder,
    name: str,
    x: Tensor,
    channels: int,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
) -> Tensor:
    y = net.convolution(name, x, channels, kernel, stride, bias=False)
    return net.batch_norm(f"{name}.bn", y, gain)

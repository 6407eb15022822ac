"""MobileNetV1 (Howard et al. 2017) and MobileNetV2 (Sandler et al. 2018).

The one idea: a depthwise 3x3 and a pointwise 1x1 stand for a full convolution; V2 wraps them in a
residual between narrow tensors, without an activation on the narrow side.
"""

from __future__ import annotations

from dataclasses import dataclass

from archgen.zoo.builder import NetworkBuilder, ZooTensor, scaled_channels

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


def mobilenet_v1(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends MobileNetV1 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = net.relu(_normalized(net, "conv0", x, scaled_channels(32, width), 3, 2))
    for index, (channels, stride) in enumerate(_V1_LAYERS, 1):
        x = net.relu(_depthwise_bn(net, f"conv{index}.depthwise", x, stride))
        channels = scaled_channels(channels, width)
        x = net.relu(_normalized(net, f"conv{index}.pointwise", x, channels, 1))
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def mobilenet_v2(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
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
    net: NetworkBuilder, name: str, x: ZooTensor, expansion: int, channels: int, stride: int
) -> ZooTensor:
    y = x
    if expansion != 1:
        y = _normalized(net, f"{name}.expand", x, expansion * x.shape[1], 1)
        y = net.relu(y, six=True)
    y = net.relu(_depthwise_bn(net, f"{name}.depthwise", y, stride), six=True)
    residual = stride == 1 and x.shape[1] == channels
    y = _normalized(net, f"{name}.project", y, channels, 1, gain=0.5 if residual else 1.0)
    return net.add(f"{name}.add", x, y) if residual else y


def _depthwise_bn(net: NetworkBuilder, name: str, x: ZooTensor, stride: int) -> ZooTensor:
    groups = x.shape[1]
    y = net.convolution(name, x, groups, 3, stride, groups=groups, bias=False)
    return net.batch_norm(f"{name}.bn", y)


def _normalized(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    channels: int,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
) -> ZooTensor:
    y = net.convolution(name, x, channels, kernel, stride, bias=False)
    return net.batch_norm(f"{name}.bn", y, gain)


# MobileNetV3 (Howard et al. 2019) and EfficientNet-B0 (Tan and Le 2019).

_BRANCH_GAIN = 0.5


@dataclass(frozen=True)
class _Block:
    """One inverted residual; ``squeezed`` channels inside of its gate, none without a gate."""

    kernel: int
    wide: int
    channels: int
    squeezed: int
    activation: str
    gate: str
    stride: int


# Kernel, expanded and output channels, gated, HardSwish instead of Relu, stride (tables 1 and 2).
_V3_LARGE = (
    *((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1)),
    *((5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1)),
    *((3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1)),
    *((3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1)),
    *((5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1)),
)
_V3_SMALL = (
    *((3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1)),
    *((5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1), (5, 240, 40, 1, 1, 1)),
    *((5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1)),
    *((5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1), (5, 576, 96, 1, 1, 1)),
)
# Expansion, kernel, first stride, output channels and repeats of B0's seven stages (its table 1).
_B0_STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)


def mobilenet_v3(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float, small: int
) -> None:
    """Appends MobileNetV3-Large, or with ``small`` MobileNetV3-Small, on (batch, 3, image,
    image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _conv_bn_activation(net, "features.0", x, scaled_channels(16, width), 3, "HardSwish", 2)
    for index, row in enumerate(_V3_SMALL if small else _V3_LARGE, 1):
        kernel, wide, channels, gated, smooth, stride = row
        wide, channels = (scaled_channels(count, width) for count in (wide, channels))
        squeezed = scaled_channels(wide, 0.25) if gated else 0
        kind = "HardSwish" if smooth else "Relu"
        block = _Block(kernel, wide, channels, squeezed, kind, "HardSigmoid", stride)
        x = _gated_inverted_residual(net, f"features.{index}", x, block, "Relu")
    x = _conv_bn_activation(net, "features.last", x, 6 * x.shape[1], 1, "HardSwish")
    hidden = net.gemm(
        "classifier.0", net.global_average_pool("avgpool", x), 1024 if small else 1280
    )
    net.output("logits", net.gemm("classifier.3", net.activated("HardSwish", hidden), classes))


def efficientnet_b0(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends EfficientNet-B0 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _conv_bn_activation(net, "features.0", x, scaled_channels(32, width), 3, "Swish", 2)
    for stage, (expansion, kernel, stride, channels, repeats) in enumerate(_B0_STAGES, 1):
        channels = scaled_channels(channels, width)
        for repeat in range(repeats):
            given = x.shape[1]
            step = stride if repeat == 0 else 1
            sizes = kernel, expansion * given, channels, max(1, given // 4)
            block = _Block(*sizes, "Swish", "Sigmoid", step)
            x = _gated_inverted_residual(net, f"features.{stage}.{repeat}", x, block, "Swish")
    x = _conv_bn_activation(net, "features.8", x, scaled_channels(1280, width), 1, "Swish")
    net.output("logits", net.gemm("classifier", net.global_average_pool("avgpool", x), classes))


def _gated_inverted_residual(
    net: NetworkBuilder, name: str, x: ZooTensor, block: _Block, inner: str
) -> ZooTensor:
    """Expansion, depthwise convolution, gate and projection; ``inner`` activates in the gate."""
    y = x
    if block.wide != x.shape[1]:
        y = _conv_bn_activation(net, f"{name}.expand", x, block.wide, 1, block.activation)
    y = _conv_bn_activation(
        net, f"{name}.depthwise", y, block.wide, block.kernel, block.activation, block.stride,
        block.wide,
    )  # fmt: skip
    if block.squeezed:
        y = _gated(net, f"{name}.se", y, block, inner)
    residual = block.stride == 1 and x.shape[1] == block.channels
    y = net.convolution(f"{name}.project", y, block.channels, 1, bias=False)
    y = net.batch_norm(f"{name}.project.bn", y, _BRANCH_GAIN if residual else 1.0)
    return net.add(f"{name}.add", x, y) if residual else y


def _gated(net: NetworkBuilder, name: str, x: ZooTensor, block: _Block, inner: str) -> ZooTensor:
    """Squeeze and excitation: each channel times a number that all channels' means give."""
    y = net.convolution(f"{name}.squeeze", net.averaged(f"{name}.mean", x), block.squeezed, 1)
    y = net.convolution(f"{name}.excite", net.activated(inner, y), x.shape[1], 1)
    return net.multiply(f"{name}.gated", x, net.activated(block.gate, y))


def _conv_bn_activation(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    channels: int,
    kernel: int,
    activation: str,
    stride: int = 1,
    groups: int = 1,
) -> ZooTensor:
    y = net.convolution(f"{name}.conv", x, channels, kernel, stride, groups=groups, bias=False)
    return net.activated(activation, net.batch_norm(f"{name}.bn", y))

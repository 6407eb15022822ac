"""Classifiers of images: ResNet, VGG-16, SqueezeNet, DenseNet-121, GoogLeNet, ShuffleNetV2,
MobileNets and EfficientNet-B0.

The one idea: a network is a table of its layers and a function for its block.
"""

from __future__ import annotations

from dataclasses import dataclass

from archgen.zoo.builder import Moments, NetworkBuilder, ZooTensor, concatenated, scaled_channels

# ResNet (He et al. 2016) in version 1.5: the stride of a bottleneck is in its 3x3 convolution. The
# last BatchNormalization of each residual branch has a small gain, so that the sum over dozens of
# blocks keeps the scale of its first term.

_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK_STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_BRANCH_GAIN = 0.4


def resnet(
    net: NetworkBuilder, *, batch: int, depth: int, image: int, classes: int, width: float
) -> None:
    """Appends ResNet-``depth`` on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv_bn("conv1", scaled_channels(64, width), 7, 2, norm="bn1").relu()
    x = x.pool("maxpool", 3, 2, 1)
    for stage, count in enumerate((_BASIC | _BOTTLENECK_STAGES)[depth]):
        channels = scaled_channels(64 << stage, width)
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            rows = [(channels, 3, stride), (channels, 3, 1)]
            if depth in _BOTTLENECK_STAGES:
                rows = [(channels, 1, 1), (channels, 3, stride), (4 * channels, 1, 1)]
            x = _residual(x, f"layer{stage + 1}.{index}", rows, stride)
    x.flat_average().gemm("fc", classes).output("logits")


def _residual(
    x: ZooTensor, name: str, layers: list[tuple[int, int, int]], stride: int
) -> ZooTensor:
    """`x` and what `layers` (channels, kernel, stride) make of it."""
    y = x
    for index, (channels, kernel, step) in enumerate(layers, 1):
        last = index == len(layers)
        y = y.conv_bn(
            f"{name}.conv{index}", channels, kernel, step, norm=f"{name}.bn{index}",
            gain=_BRANCH_GAIN if last else 1.0,
        )  # fmt: skip
        y = y if last else y.relu()
    if x.shape != y.shape:
        down = f"{name}.downsample"
        x = x.conv_bn(f"{down}.0", y.shape[1], 1, stride, norm=f"{down}.1")
    return y.plus(f"{name}.add", x).relu()


# Convolutional networks without BatchNormalization: VGG-16 and SqueezeNet 1.1.

# Channels of the convolutions of each stage; a 2x2 MaxPool follows every stage.
_VGG16_STAGES = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)
# Squeeze and expand channels of the fire modules, by stage; a MaxPool precedes every stage.
_FIRE_STAGES = (((16, 64),) * 2, ((32, 128),) * 2, (*((48, 192),) * 2, *((64, 256),) * 2))


def vgg16(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float, hidden: int
) -> None:
    """Appends VGG-16 (Simonyan and Zisserman 2014, configuration D) with two hidden fully
    connected layers of ``hidden`` features."""
    x = net.input("input", (batch, 3, image, image))
    for stage, layers in enumerate(_VGG16_STAGES, 1):
        for index, channels in enumerate(layers, 1):
            x = x.conv(f"conv{stage}_{index}", scaled_channels(channels, width), 3).relu()
        x = x.pool(f"pool{stage}", 2, 2)
    x = x.flatten("flatten").gemm("fc6", hidden).relu().gemm("fc7", hidden).relu()
    x.gemm("fc8", classes).output("logits")


def squeezenet(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends SqueezeNet 1.1 (Iandola et al. 2016) on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv("conv1", scaled_channels(64, width), 3, 2, 0).relu()
    index = 1
    for stage, fires in enumerate(_FIRE_STAGES, 1):
        x = x.pool(f"pool{stage}", 3, 2, ceil=True)
        for squeeze, expand in fires:
            index += 1
            name, wide = f"fire{index}", scaled_channels(expand, width)
            x = x.conv(f"{name}.squeeze", scaled_channels(squeeze, width), 1).relu()
            sides = [x.conv(f"{name}.expand{k}x{k}", wide, k).relu() for k in (1, 3)]
            x = concatenated(f"{name}.concat", sides)
    x.conv("conv10", classes, 1).relu().flat_average().output("logits")


# DenseNet-121 (Huang et al. 2017).

_LAYERS = (6, 12, 24, 16)
_BOTTLENECK = 4


def densenet121(net: NetworkBuilder, *, batch: int, image: int, classes: int, growth: int) -> None:
    """Appends DenseNet-121 with ``growth`` channels per layer on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv_bn("conv0", scaled_channels(64, growth / 32), 7, 2, norm="norm0").relu()
    x = x.pool("pool0", 3, 2, 1)
    for block, layers in enumerate(_LAYERS, 1):
        for index in range(1, layers + 1):
            name = f"denseblock{block}.denselayer{index}"
            y = x.batch_norm(f"{name}.norm1").relu()
            y = y.conv_bn(f"{name}.conv1", _BOTTLENECK * growth, 1, norm=f"{name}.norm2").relu()
            y = y.conv(f"{name}.conv2", growth, 3, bias=False)
            x = concatenated(f"{name}.concat", [x, y])
        if block < len(_LAYERS):
            name = f"transition{block}"
            x = x.batch_norm(f"{name}.norm").relu()
            x = x.conv(f"{name}.conv", x.shape[1] // 2, 1, bias=False)
            x = x.pool(f"{name}.pool", 2, 2, kind="AveragePool")
    x.batch_norm("norm5").relu().flat_average().gemm("classifier", classes).output("logits")


# GoogLeNet (Szegedy et al. 2015), the inference graph with BatchNormalization.

# 1x1; reduced 3x3; 3x3; reduced third branch; third branch; projection after the pool.
_INCEPTIONS = (
    {"3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64)},
    {
        "4a": (192, 96, 208, 16, 48, 64),
        "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64),
        "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128),
    },
    {"5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128)},
)


def googlenet(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends GoogLeNet on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _conv_unit(x, "conv1", scaled_channels(64, width), 7, 2)
    x = x.pool("maxpool1", 3, 2, ceil=True)
    x = _conv_unit(x, "conv2", scaled_channels(64, width), 1)
    x = _conv_unit(x, "conv3", scaled_channels(192, width), 3)
    x = x.pool("maxpool2", 3, 2, ceil=True)
    for stage, modules in enumerate(_INCEPTIONS, 3):
        if stage > 3:
            x = x.pool(f"maxpool{stage}", 3 if stage == 4 else 2, 2, ceil=True)
        for name, channels in modules.items():
            wide = [scaled_channels(count, width) for count in channels]
            x = _inception(x, f"inception{name}", wide)
    x.flat_average().gemm("fc", classes).output("logits")


def _inception(x: ZooTensor, name: str, channels: list[int]) -> ZooTensor:
    one, reduced, three, third_reduced, third, projection = channels
    branches = [_conv_unit(x, f"{name}.branch1", one, 1)]
    for branch, first, last in ((2, reduced, three), (3, third_reduced, third)):
        y = _conv_unit(x, f"{name}.branch{branch}.0", first, 1)
        branches.append(_conv_unit(y, f"{name}.branch{branch}.1", last, 3))
    y = x.pool(f"{name}.branch4.0", 3, 1, 1, ceil=True)
    branches.append(_conv_unit(y, f"{name}.branch4.1", projection, 1))
    return concatenated(f"{name}.concat", branches)


def _conv_unit(x: ZooTensor, name: str, channels: int, kernel: int, stride: int = 1) -> ZooTensor:
    return x.conv_bn(f"{name}.conv", channels, kernel, stride, norm=f"{name}.bn").relu()


# ShuffleNetV2 (Ma et al. 2018).

# Output channels and units of the three stages at width 1 (its table 5).
_SHUFFLE_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet_v2(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends ShuffleNetV2 1x with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv_bn("conv1", scaled_channels(24, width), 3, 2).relu().pool("maxpool", 3, 2, 1)
    for stage, (channels, units) in enumerate(_SHUFFLE_STAGES, 2):
        half = scaled_channels(channels, width) // 2
        for index in range(units):
            x = _shuffle_unit(x, f"stage{stage}.{index}", half, 2 if index == 0 else 1)
    x = x.conv_bn("conv5", scaled_channels(1024, width), 1).relu()
    x.flat_average().gemm("fc", classes).output("logits")


def _shuffle_unit(x: ZooTensor, name: str, half: int, stride: int) -> ZooTensor:
    """A unit of stride 1 keeps one half as it is; one of stride 2 computes both from all. The
    channels of the two halves follow in turn."""
    if stride == 1:
        beside, y = x.split(f"{name}.split", 2)
    else:
        first, y = f"{name}.branch1", x
        beside = x.conv_bn(f"{first}.depthwise", x.shape[1], 3, stride, groups=x.shape[1])
        beside = beside.conv_bn(f"{first}.pointwise", half, 1).relu()
    y = y.conv_bn(f"{name}.branch2.0", half, 1).relu()
    y = y.conv_bn(f"{name}.branch2.1", half, 3, stride, groups=half)
    y = y.conv_bn(f"{name}.branch2.2", half, 1).relu()
    x = concatenated(f"{name}.concat", [beside, y])
    batch, channels, *image = x.shape
    halves = x.net.node("Reshape", f"{name}.halves", x, [batch, 2, channels // 2, *image])
    turned = x.net.node("Transpose", f"{name}.turned", halves, perm=[0, 2, 1, 3, 4])
    x.net.node("Reshape", f"{name}.shuffled", turned, x.shape)
    mean, variance = (
        part.reshape(2, -1).T.ravel() for part in (x.moments.mean, x.moments.variance)
    )
    return ZooTensor(x.net, f"{name}.shuffled", x.shape, Moments(mean, variance))


# MobileNets (Howard et al. 2017, 2019, Sandler et al. 2018) and EfficientNet-B0 (Tan and Le 2019).
# A depthwise and a pointwise convolution stand for a full one; from V2 on in a residual between
# narrow tensors, without an activation on the narrow side.

_INVERTED_GAIN = 0.5
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


@dataclass(frozen=True)
class _Block:
    """One inverted residual."""

    kernel: int
    wide: int
    channels: int
    stride: int
    activation: str
    squeezed: int = 0
    """Channels inside of its gate; none without a gate."""
    gates: tuple[str, str] = ("", "")
    """Activations inside and at the end of the gate."""
    suffix: str = ".conv"
    """Of the names of its convolutions."""


def mobilenet_v1(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends MobileNetV1 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv_bn("conv0", scaled_channels(32, width), 3, 2).relu()
    for index, (channels, stride) in enumerate(_V1_LAYERS, 1):
        groups = x.shape[1]
        x = x.conv_bn(f"conv{index}.depthwise", groups, 3, stride, groups).relu()
        x = x.conv_bn(f"conv{index}.pointwise", scaled_channels(channels, width), 1).relu()
    x.flat_average().gemm("fc", classes).output("logits")


def mobilenet_v2(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends MobileNetV2 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = x.conv_bn("features.0", scaled_channels(32, width), 3, 2).activated("Relu6")
    index = 0
    for expansion, channels, repeats, first_stride in _V2_STAGES:
        for repeat in range(repeats):
            index += 1
            sizes = 3, expansion * x.shape[1], scaled_channels(channels, width)
            block = _Block(*sizes, 1 if repeat else first_stride, "Relu6", suffix="")
            x = _inverted_residual(x, f"features.{index}", block)
    last = scaled_channels(1280, max(1.0, width))
    x = x.conv_bn("features.18", last, 1).activated("Relu6")
    x.flat_average().gemm("classifier", classes).output("logits")


def mobilenet_v3(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float, small: int
) -> None:
    """Appends MobileNetV3-Large, or with ``small`` MobileNetV3-Small, on (batch, 3, image,
    image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _activated_unit(x, "features.0", scaled_channels(16, width), 3, "HardSwish", 2)
    for index, row in enumerate(_V3_SMALL if small else _V3_LARGE, 1):
        kernel, wide, channels, gated, smooth, stride = row
        wide, channels = (scaled_channels(count, width) for count in (wide, channels))
        squeezed = scaled_channels(wide, 0.25) if gated else 0
        sizes = kernel, wide, channels, stride, "HardSwish" if smooth else "Relu", squeezed
        block = _Block(*sizes, ("Relu", "HardSigmoid"))
        x = _inverted_residual(x, f"features.{index}", block)
    x = _activated_unit(x, "features.last", 6 * x.shape[1], 1, "HardSwish")
    x = x.flat_average().gemm("classifier.0", 1024 if small else 1280).activated("HardSwish")
    x.gemm("classifier.3", classes).output("logits")


def efficientnet_b0(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends EfficientNet-B0 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _activated_unit(x, "features.0", scaled_channels(32, width), 3, "Swish", 2)
    for stage, (expansion, kernel, stride, channels, repeats) in enumerate(_B0_STAGES, 1):
        for repeat in range(repeats):
            given = x.shape[1]
            sizes = kernel, expansion * given, scaled_channels(channels, width)
            step, squeezed = 1 if repeat else stride, max(1, given // 4)
            block = _Block(*sizes, step, "Swish", squeezed, ("Swish", "Sigmoid"))
            x = _inverted_residual(x, f"features.{stage}.{repeat}", block)
    x = _activated_unit(x, "features.8", scaled_channels(1280, width), 1, "Swish")
    x.flat_average().gemm("classifier", classes).output("logits")


def _inverted_residual(x: ZooTensor, name: str, block: _Block) -> ZooTensor:
    """Expansion, depthwise convolution, gate and projection. The gate, squeeze and excitation, is
    each channel times a number that all channels' means give."""
    y, unit = x, (block.activation, 1, 1, block.suffix)
    if block.wide != x.shape[1]:
        y = _activated_unit(y, f"{name}.expand", block.wide, 1, *unit)
    unit = (block.activation, block.stride, block.wide, block.suffix)
    y = _activated_unit(y, f"{name}.depthwise", block.wide, block.kernel, *unit)
    if block.squeezed:
        inner, outer = block.gates
        gate = y.averaged(f"{name}.se.mean").conv(f"{name}.se.squeeze", block.squeezed, 1)
        gate = gate.activated(inner).conv(f"{name}.se.excite", block.wide, 1).activated(outer)
        y = y.times(f"{name}.se.gated", gate)
    residual = block.stride == 1 and x.shape[1] == block.channels
    gain = _INVERTED_GAIN if residual else 1.0
    y = y.conv_bn(f"{name}.project", block.channels, 1, gain=gain)
    return x.plus(f"{name}.add", y) if residual else y


def _activated_unit(
    x: ZooTensor, name: str, channels: int, kernel: int, activation: str, stride: int = 1,
    groups: int = 1, suffix: str = ".conv",
) -> ZooTensor:  # fmt: skip
    y = x.conv_bn(f"{name}{suffix}", channels, kernel, stride, groups, f"{name}.bn")
    return y.activated(activation)

"""Networks for small machines: MobileNets (Howard et al. 2017 and 2019, Sandler et al. 2018) and
EfficientNet-B0 (Tan and Le 2019).

The one idea: a depthwise and a pointwise convolution stand for a full one; from V2 on in a residual
between narrow tensors, without an activation on the narrow side.
"""

from __future__ import annotations

from dataclasses import dataclass

from archgen.zoo.builder import NetworkBuilder, ZooTensor, scaled_channels

_BRANCH_GAIN = 0.5
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
    x = _conv_unit(x, "features.0", scaled_channels(16, width), 3, "HardSwish", 2)
    for index, row in enumerate(_V3_SMALL if small else _V3_LARGE, 1):
        kernel, wide, channels, gated, smooth, stride = row
        wide, channels = (scaled_channels(count, width) for count in (wide, channels))
        squeezed = scaled_channels(wide, 0.25) if gated else 0
        sizes = kernel, wide, channels, stride, "HardSwish" if smooth else "Relu", squeezed
        block = _Block(*sizes, ("Relu", "HardSigmoid"))
        x = _inverted_residual(x, f"features.{index}", block)
    x = _conv_unit(x, "features.last", 6 * x.shape[1], 1, "HardSwish")
    x = x.flat_average().gemm("classifier.0", 1024 if small else 1280).activated("HardSwish")
    x.gemm("classifier.3", classes).output("logits")


def efficientnet_b0(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends EfficientNet-B0 with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _conv_unit(x, "features.0", scaled_channels(32, width), 3, "Swish", 2)
    for stage, (expansion, kernel, stride, channels, repeats) in enumerate(_B0_STAGES, 1):
        for repeat in range(repeats):
            given = x.shape[1]
            sizes = kernel, expansion * given, scaled_channels(channels, width)
            step, squeezed = 1 if repeat else stride, max(1, given // 4)
            block = _Block(*sizes, step, "Swish", squeezed, ("Swish", "Sigmoid"))
            x = _inverted_residual(x, f"features.{stage}.{repeat}", block)
    x = _conv_unit(x, "features.8", scaled_channels(1280, width), 1, "Swish")
    x.flat_average().gemm("classifier", classes).output("logits")


def _inverted_residual(x: ZooTensor, name: str, block: _Block) -> ZooTensor:
    """Expansion, depthwise convolution, gate and projection. The gate, squeeze and excitation, is
    each channel times a number that all channels' means give."""
    y, unit = x, (block.activation, 1, 1, block.suffix)
    if block.wide != x.shape[1]:
        y = _conv_unit(y, f"{name}.expand", block.wide, 1, *unit)
    unit = (block.activation, block.stride, block.wide, block.suffix)
    y = _conv_unit(y, f"{name}.depthwise", block.wide, block.kernel, *unit)
    if block.squeezed:
        inner, outer = block.gates
        gate = y.averaged(f"{name}.se.mean").conv(f"{name}.se.squeeze", block.squeezed, 1)
        gate = gate.activated(inner).conv(f"{name}.se.excite", block.wide, 1).activated(outer)
        y = y.times(f"{name}.se.gated", gate)
    residual = block.stride == 1 and x.shape[1] == block.channels
    gain = _BRANCH_GAIN if residual else 1.0
    y = y.conv_bn(f"{name}.project", block.channels, 1, gain=gain)
    return x.plus(f"{name}.add", y) if residual else y


def _conv_unit(
    x: ZooTensor, name: str, channels: int, kernel: int, activation: str, stride: int = 1,
    groups: int = 1, suffix: str = ".conv",
) -> ZooTensor:  # fmt: skip
    y = x.conv_bn(f"{name}{suffix}", channels, kernel, stride, groups, f"{name}.bn")
    return y.activated(activation)

"""ResNet (He et al. 2016) in version 1.5: the stride of a bottleneck is in its 3x3 convolution.

The one idea: the last BatchNormalization of each residual branch has a small gain, so that the
sum over dozens of blocks keeps the scale of its first term.
"""

from __future__ import annotations

from archgen.zoo.builder import NetworkBuilder, ZooTensor, scaled_channels
from archgen.zoo.moments import Moments

_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK_STAGES = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_BRANCH_GAIN = 0.4


def resnet(
    net: NetworkBuilder, *, batch: int, depth: int, image: int, classes: int, width: float
) -> None:
    """Appends ResNet-``depth`` on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _normalized(net, "conv1", "bn1", x, scaled_channels(64, width), 7, 2)
    x = net.max_pool("maxpool", net.relu(x), 3, 2, 1)
    block = _basic if depth in _BASIC else _bottleneck
    repeats = (_BASIC | _BOTTLENECK_STAGES)[depth]
    for stage, count in enumerate(repeats):
        channels = scaled_channels(64 << stage, width)
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            x = block(net, f"layer{stage + 1}.{index}", x, channels, stride)
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _normalized(
    net: NetworkBuilder,
    convolution: str,
    norm: str,
    x: ZooTensor,
    channels: int,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
) -> ZooTensor:
    x = net.convolution(convolution, x, channels, kernel, stride, bias=False)
    return net.batch_norm(norm, x, gain)


def _basic(net: NetworkBuilder, name: str, x: ZooTensor, channels: int, stride: int) -> ZooTensor:
    y = net.relu(_normalized(net, f"{name}.conv1", f"{name}.bn1", x, channels, 3, stride))
    y = _normalized(net, f"{name}.conv2", f"{name}.bn2", y, channels, 3, gain=_BRANCH_GAIN)
    return _add_residual(net, name, x, y, stride)


def _bottleneck(
    net: NetworkBuilder, name: str, x: ZooTensor, channels: int, stride: int
) -> ZooTensor:
    y = net.relu(_normalized(net, f"{name}.conv1", f"{name}.bn1", x, channels, 1))
    y = net.relu(_normalized(net, f"{name}.conv2", f"{name}.bn2", y, channels, 3, stride))
    y = _normalized(net, f"{name}.conv3", f"{name}.bn3", y, 4 * channels, 1, gain=_BRANCH_GAIN)
    return _add_residual(net, name, x, y, stride)


def _add_residual(
    net: NetworkBuilder, name: str, x: ZooTensor, y: ZooTensor, stride: int
) -> ZooTensor:
    if x.shape != y.shape:
        down = f"{name}.downsample"
        x = _normalized(net, f"{down}.0", f"{down}.1", x, y.shape[1], 1, stride)
    return net.relu(net.add(f"{name}.add", y, x))


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
            name = f"conv{stage}_{index}"
            x = net.relu(net.convolution(name, x, scaled_channels(channels, width), 3))
        x = net.max_pool(f"pool{stage}", x, 2, 2)
    x = net.flatten("flatten", x)
    x = net.relu(net.gemm("fc6", x, hidden))
    x = net.relu(net.gemm("fc7", x, hidden))
    net.output("logits", net.gemm("fc8", x, classes))


def squeezenet(net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends SqueezeNet 1.1 (Iandola et al. 2016) on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = net.relu(net.convolution("conv1", x, scaled_channels(64, width), 3, 2, 0))
    index = 1
    for stage, fires in enumerate(_FIRE_STAGES, 1):
        x = net.max_pool(f"pool{stage}", x, 3, 2, ceil=True)
        for squeeze, expand in fires:
            index += 1
            narrow, wide = scaled_channels(squeeze, width), scaled_channels(expand, width)
            x = _fire(net, f"fire{index}", x, narrow, wide)
    x = net.relu(net.convolution("conv10", x, classes, 1))
    net.output("logits", net.global_average_pool("avgpool", x))


def _fire(net: NetworkBuilder, name: str, x: ZooTensor, squeeze: int, expand: int) -> ZooTensor:
    x = net.relu(net.convolution(f"{name}.squeeze", x, squeeze, 1))
    left = net.relu(net.convolution(f"{name}.expand1x1", x, expand, 1))
    right = net.relu(net.convolution(f"{name}.expand3x3", x, expand, 3))
    return net.concatenate(f"{name}.concat", [left, right])


# DenseNet-121 (Huang et al. 2017).

_LAYERS = (6, 12, 24, 16)
_BOTTLENECK = 4


def densenet121(net: NetworkBuilder, *, batch: int, image: int, classes: int, growth: int) -> None:
    """Appends DenseNet-121 with ``growth`` channels per layer on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = net.convolution("conv0", x, scaled_channels(64, growth / 32), 7, 2, bias=False)
    x = net.max_pool("pool0", net.relu(net.batch_norm("norm0", x)), 3, 2, 1)
    for block, layers in enumerate(_LAYERS, 1):
        for index in range(1, layers + 1):
            name = f"denseblock{block}.denselayer{index}"
            x = net.concatenate(f"{name}.concat", [x, _dense_layer(net, name, x, growth)])
        if block < len(_LAYERS):
            x = _transition(net, f"transition{block}", x)
    x = net.relu(net.batch_norm("norm5", x))
    net.output("logits", net.gemm("classifier", net.global_average_pool("avgpool", x), classes))


def _dense_layer(net: NetworkBuilder, name: str, x: ZooTensor, growth: int) -> ZooTensor:
    y = net.relu(net.batch_norm(f"{name}.norm1", x))
    y = net.convolution(f"{name}.conv1", y, _BOTTLENECK * growth, 1, bias=False)
    y = net.relu(net.batch_norm(f"{name}.norm2", y))
    return net.convolution(f"{name}.conv2", y, growth, 3, bias=False)


def _transition(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    x = net.relu(net.batch_norm(f"{name}.norm", x))
    x = net.convolution(f"{name}.conv", x, x.shape[1] // 2, 1, bias=False)
    return net.average_pool(f"{name}.pool", x, 2, 2)


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
    x = _conv_unit(net, "conv1", x, scaled_channels(64, width), 7, 2)
    x = net.max_pool("maxpool1", x, 3, 2, ceil=True)
    x = _conv_unit(net, "conv2", x, scaled_channels(64, width), 1)
    x = _conv_unit(net, "conv3", x, scaled_channels(192, width), 3)
    x = net.max_pool("maxpool2", x, 3, 2, ceil=True)
    for stage, modules in enumerate(_INCEPTIONS, 3):
        if stage > 3:
            x = net.max_pool(f"maxpool{stage}", x, 3 if stage == 4 else 2, 2, ceil=True)
        for name, channels in modules.items():
            wide = [scaled_channels(count, width) for count in channels]
            x = _inception(net, f"inception{name}", x, wide)
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _inception(net: NetworkBuilder, name: str, x: ZooTensor, channels: list[int]) -> ZooTensor:
    one, reduced, three, third_reduced, third, projection = channels
    branches = [_conv_unit(net, f"{name}.branch1", x, one, 1)]
    y = _conv_unit(net, f"{name}.branch2.0", x, reduced, 1)
    branches.append(_conv_unit(net, f"{name}.branch2.1", y, three, 3))
    y = _conv_unit(net, f"{name}.branch3.0", x, third_reduced, 1)
    branches.append(_conv_unit(net, f"{name}.branch3.1", y, third, 3))
    y = net.max_pool(f"{name}.branch4.0", x, 3, 1, 1, ceil=True)
    branches.append(_conv_unit(net, f"{name}.branch4.1", y, projection, 1))
    return net.concatenate(f"{name}.concat", branches)


def _conv_unit(
    net: NetworkBuilder, name: str, x: ZooTensor, channels: int, kernel: int, stride: int = 1
) -> ZooTensor:
    y = net.convolution(f"{name}.conv", x, channels, kernel, stride, bias=False)
    return net.relu(net.batch_norm(f"{name}.bn", y))


# ShuffleNetV2 (Ma et al. 2018).

# Output channels and units of the three stages at width 1 (its table 5).
_SHUFFLE_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet_v2(
    net: NetworkBuilder, *, batch: int, image: int, classes: int, width: float
) -> None:
    """Appends ShuffleNetV2 1x with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _pointwise(net, "conv1", x, scaled_channels(24, width), 3, 2)
    x = net.max_pool("maxpool", x, 3, 2, 1)
    for stage, (channels, units) in enumerate(_SHUFFLE_STAGES, 2):
        half = scaled_channels(channels, width) // 2
        for index in range(units):
            x = _shuffle_unit(net, f"stage{stage}.{index}", x, half, 2 if index == 0 else 1)
    x = _pointwise(net, "conv5", x, scaled_channels(1024, width))
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _shuffle_unit(
    net: NetworkBuilder, name: str, x: ZooTensor, half: int, stride: int
) -> ZooTensor:
    """A unit of stride 1 keeps one half as it is; one of stride 2 computes both from all."""
    if stride == 1:
        kept, y = net.split(f"{name}.split", x, 2)
    else:
        kept, y = _depthwise_bn(net, f"{name}.branch1.depthwise", x, stride), x
        kept = _pointwise(net, f"{name}.branch1.pointwise", kept, half)
    y = _pointwise(net, f"{name}.branch2.0", y, half)
    y = _depthwise_bn(net, f"{name}.branch2.1", y, stride)
    y = _pointwise(net, f"{name}.branch2.2", y, half)
    return _shuffled(net, name, net.concatenate(f"{name}.concat", [kept, y]))


def _shuffled(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """Channels of the two halves in turn."""
    batch, channels, *image = x.shape
    apart = net.integers([batch, 2, channels // 2, *image])
    net.node("Reshape", f"{name}.halves", [x.name, apart])
    net.node("Transpose", f"{name}.turned", [f"{name}.halves"], perm=[0, 2, 1, 3, 4])
    net.node("Reshape", f"{name}.shuffled", [f"{name}.turned", net.integers(x.shape)])
    moments = Moments(
        x.moments.mean.reshape(2, -1).T.ravel(), x.moments.variance.reshape(2, -1).T.ravel()
    )
    return ZooTensor(f"{name}.shuffled", x.shape, moments)


def _depthwise_bn(net: NetworkBuilder, name: str, x: ZooTensor, stride: int) -> ZooTensor:
    groups = x.shape[1]
    y = net.convolution(name, x, groups, 3, stride, groups=groups, bias=False)
    return net.batch_norm(f"{name}.bn", y)


def _pointwise(
    net: NetworkBuilder, name: str, x: ZooTensor, channels: int, kernel: int = 1, stride: int = 1
) -> ZooTensor:
    y = net.convolution(name, x, channels, kernel, stride, bias=False)
    return net.relu(net.batch_norm(f"{name}.bn", y))

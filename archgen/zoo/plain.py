"""Convolutional networks without BatchNormalization: VGG-16 and SqueezeNet 1.1.

The one idea: with no normalization in the graph, each convolution's own weights and bias keep its
output centred with unit variance.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels

# Channels of the convolutions of each stage; a 2x2 MaxPool follows every stage.
_VGG16_STAGES = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)
# Squeeze and expand channels of the fire modules, by stage; a MaxPool precedes every stage.
_FIRE_STAGES = (((16, 64),) * 2, ((32, 128),) * 2, (*((48, 192),) * 2, *((64, 256),) * 2))


def vgg16(net: Builder, *, batch: int, image: int, classes: int, width: float, hidden: int) -> None:
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


def squeezenet(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
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


def _fire(net: Builder, name: str, x: Tensor, squeeze: int, expand: int) -> Tensor:
    x = net.relu(net.convolution(f"{name}.squeeze", x, squeeze, 1))
    left = net.relu(net.convolution(f"{name}.expand1x1", x, expand, 1))
    right = net.relu(net.convolution(f"{name}.expand3x3", x, expand, 3))
    return net.concatenate(f"{name}.concat", [left, right])

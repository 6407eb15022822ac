"""U-Net (Ronneberger et al. 2015), with padded convolutions and BatchNormalization.

The one idea: what each resolution computed on the way down is concatenated to what comes back up
through transposed convolutions, so large tensors live across the whole network.
"""

from __future__ import annotations

import math

import numpy as np

from archgen.zoo.builder import Builder, Tensor, ZooError, scaled_channels
from archgen.zoo.moments import Moments

_CHANNELS = (64, 128, 256, 512, 1024)


def unet(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends U-Net on (batch, 3, image, image); outputs ``logits`` (batch, classes, image,
    image)."""
    steps = 1 << len(_CHANNELS) - 1
    if image % steps:
        raise ZooError(f"{net.graph.name}: image={image} is not a multiple of {steps}")
    x = net.input("input", (batch, 3, image, image))
    kept: list[Tensor] = []
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


def _twice(net: Builder, name: str, x: Tensor, channels: int) -> Tensor:
    for index in range(2):
        x = net.convolution(f"{name}.conv{index}", x, channels, 3, bias=False)
        x = net.relu(net.batch_norm(f"{name}.bn{index}", x))
    return x


def _doubled(net: Builder, name: str, x: Tensor, channels: int) -> Tensor:
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
    return Tensor(name, (batch, channels, 2 * height, 2 * width), moments.centred())

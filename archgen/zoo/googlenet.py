"""GoogLeNet (Szegedy et al. 2015), the inference graph with BatchNormalization.

The one idea: an inception module concatenates four branches of different reach. As in torchvision,
whose counts it reproduces, the third branch has a 3x3 kernel, and there are neither local response
normalization nor auxiliary classifiers.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels

# 1x1; reduced 3x3; 3x3; reduced third branch; third branch; projection after the pool.
_STAGES = (
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


def googlenet(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends GoogLeNet on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _unit(net, "conv1", x, scaled_channels(64, width), 7, 2)
    x = net.max_pool("maxpool1", x, 3, 2, ceil=True)
    x = _unit(net, "conv2", x, scaled_channels(64, width), 1)
    x = _unit(net, "conv3", x, scaled_channels(192, width), 3)
    x = net.max_pool("maxpool2", x, 3, 2, ceil=True)
    for stage, modules in enumerate(_STAGES, 3):
        if stage > 3:
            x = net.max_pool(f"maxpool{stage}", x, 3 if stage == 4 else 2, 2, ceil=True)
        for name, channels in modules.items():
            wide = [scaled_channels(count, width) for count in channels]
            x = _inception(net, f"inception{name}", x, wide)
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _inception(net: Builder, name: str, x: Tensor, channels: list[int]) -> Tensor:
    one, reduced, three, third_reduced, third, projection = channels
    branches = [_unit(net, f"{name}.branch1", x, one, 1)]
    y = _unit(net, f"{name}.branch2.0", x, reduced, 1)
    branches.append(_unit(net, f"{name}.branch2.1", y, three, 3))
    y = _unit(net, f"{name}.branch3.0", x, third_reduced, 1)
    branches.append(_unit(net, f"{name}.branch3.1", y, third, 3))
    y = net.max_pool(f"{name}.branch4.0", x, 3, 1, 1, ceil=True)
    branches.append(_unit(net, f"{name}.branch4.1", y, projection, 1))
    return net.concatenate(f"{name}.concat", branches)


def _unit(
    net: Builder, name: str, x: Tensor, channels: int, kernel: int, stride: int = 1
) -> Tensor:
    y = net.convolution(f"{name}.conv", x, channels, kernel, stride, bias=False)
    return net.relu(net.batch_norm(f"{name}.bn", y))

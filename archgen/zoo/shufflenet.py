"""ShuffleNetV2 (Ma et al. 2018).

The one idea: a unit computes on one half of the channels only, and a shuffle (Reshape, Transpose,
Reshape) mixes the halves for the next one.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels
from archgen.zoo.moments import Moments

# Output channels and units of the three stages at width 1 (its table 5).
_STAGES = ((116, 4), (232, 8), (464, 4))


def shufflenet_v2(net: Builder, *, batch: int, image: int, classes: int, width: float) -> None:
    """Appends ShuffleNetV2 1x with ``width`` multiplier on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _pointwise(net, "conv1", x, scaled_channels(24, width), 3, 2)
    x = net.max_pool("maxpool", x, 3, 2, 1)
    for stage, (channels, units) in enumerate(_STAGES, 2):
        half = scaled_channels(channels, width) // 2
        for index in range(units):
            x = _unit(net, f"stage{stage}.{index}", x, half, 2 if index == 0 else 1)
    x = _pointwise(net, "conv5", x, scaled_channels(1024, width))
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _unit(net: Builder, name: str, x: Tensor, half: int, stride: int) -> Tensor:
    """A unit of stride 1 keeps one half as it is; one of stride 2 computes both from all."""
    if stride == 1:
        kept, y = net.split(f"{name}.split", x, 2)
    else:
        kept, y = _depthwise(net, f"{name}.branch1.depthwise", x, stride), x
        kept = _pointwise(net, f"{name}.branch1.pointwise", kept, half)
    y = _pointwise(net, f"{name}.branch2.0", y, half)
    y = _depthwise(net, f"{name}.branch2.1", y, stride)
    y = _pointwise(net, f"{name}.branch2.2", y, half)
    return _shuffled(net, name, net.concatenate(f"{name}.concat", [kept, y]))


def _shuffled(net: Builder, name: str, x: Tensor) -> Tensor:
    """Channels of the two halves in turn."""
    batch, channels, *image = x.shape
    apart = net.integers([batch, 2, channels // 2, *image])
    net.node("Reshape", f"{name}.halves", [x.name, apart])
    net.node("Transpose", f"{name}.turned", [f"{name}.halves"], perm=[0, 2, 1, 3, 4])
    net.node("Reshape", f"{name}.shuffled", [f"{name}.turned", net.integers(x.shape)])
    moments = Moments(
        x.moments.mean.reshape(2, -1).T.ravel(), x.moments.variance.reshape(2, -1).T.ravel()
    )
    return Tensor(f"{name}.shuffled", x.shape, moments)


def _depthwise(net: Builder, name: str, x: Tensor, stride: int) -> Tensor:
    groups = x.shape[1]
    y = net.convolution(name, x, groups, 3, stride, groups=groups, bias=False)
    return net.batch_norm(f"{name}.bn", y)


def _pointwise(
    net: Builder, name: str, x: Tensor, channels: int, kernel: int = 1, stride: int = 1
) -> Tensor:
    y = net.convolution(name, x, channels, kernel, stride, bias=False)
    return net.relu(net.batch_norm(f"{name}.bn", y))

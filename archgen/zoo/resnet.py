"""ResNet (He et al. 2016) in version 1.5: the stride of a bottleneck is in its 3x3 convolution.

The one idea: the last BatchNormalization of each residual branch has a small gain, so that the
sum over dozens of blocks keeps the scale of its first term.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels

_BASIC = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_BOTTLENECK = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_BRANCH_GAIN = 0.4


def resnet(net: Builder, *, batch: int, depth: int, image: int, classes: int, width: float) -> None:
    """Appends ResNet-``depth`` on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = _normalized(net, "conv1", "bn1", x, scaled_channels(64, width), 7, 2)
    x = net.max_pool("maxpool", net.relu(x), 3, 2, 1)
    block = _basic if depth in _BASIC else _bottleneck
    repeats = (_BASIC | _BOTTLENECK)[depth]
    for stage, count in enumerate(repeats):
        channels = scaled_channels(64 << stage, width)
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            x = block(net, f"layer{stage + 1}.{index}", x, channels, stride)
    net.output("logits", net.gemm("fc", net.global_average_pool("avgpool", x), classes))


def _normalized(
    net: Builder,
    convolution: str,
    norm: str,
    x: Tensor,
    channels: int,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
) -> Tensor:
    x = net.convolution(convolution, x, channels, kernel, stride, bias=False)
    return net.batch_norm(norm, x, gain)


def _basic(net: Builder, name: str, x: Tensor, channels: int, stride: int) -> Tensor:
    y = net.relu(_normalized(net, f"{name}.conv1", f"{name}.bn1", x, channels, 3, stride))
    y = _normalized(net, f"{name}.conv2", f"{name}.bn2", y, channels, 3, gain=_BRANCH_GAIN)
    return _joined(net, name, x, y, stride)


def _bottleneck(net: Builder, name: str, x: Tensor, channels: int, stride: int) -> Tensor:
    y = net.relu(_normalized(net, f"{name}.conv1", f"{name}.bn1", x, channels, 1))
    y = net.relu(_normalized(net, f"{name}.conv2", f"{name}.bn2", y, channels, 3, stride))
    y = _normalized(net, f"{name}.conv3", f"{name}.bn3", y, 4 * channels, 1, gain=_BRANCH_GAIN)
    return _joined(net, name, x, y, stride)


def _joined(net: Builder, name: str, x: Tensor, y: Tensor, stride: int) -> Tensor:
    if x.shape != y.shape:
        down = f"{name}.downsample"
        x = _normalized(net, f"{down}.0", f"{down}.1", x, y.shape[1], 1, stride)
    return net.relu(net.add(f"{name}.add", y, x))

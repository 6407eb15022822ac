"""DenseNet-121 (Huang et al. 2017).

The one idea: every layer normalizes and reads the concatenation of all before it, and adds
``growth`` channels. Those BatchNormalizations follow a Concat and cannot fold into a convolution.
"""

from __future__ import annotations

from archgen.zoo.builder import Builder, Tensor, scaled_channels

_LAYERS = (6, 12, 24, 16)
_BOTTLENECK = 4


def densenet121(net: Builder, *, batch: int, image: int, classes: int, growth: int) -> None:
    """Appends DenseNet-121 with ``growth`` channels per layer on (batch, 3, image, image)."""
    x = net.input("input", (batch, 3, image, image))
    x = net.convolution("conv0", x, scaled_channels(64, growth / 32), 7, 2, bias=False)
    x = net.max_pool("pool0", net.relu(net.batch_norm("norm0", x)), 3, 2, 1)
    for block, layers in enumerate(_LAYERS, 1):
        for index in range(1, layers + 1):
            name = f"denseblock{block}.denselayer{index}"
            x = net.concatenate(f"{name}.concat", [x, _layer(net, name, x, growth)])
        if block < len(_LAYERS):
            x = _transition(net, f"transition{block}", x)
    x = net.relu(net.batch_norm("norm5", x))
    net.output("logits", net.gemm("classifier", net.global_average_pool("avgpool", x), classes))


def _layer(net: Builder, name: str, x: Tensor, growth: int) -> Tensor:
    y = net.relu(net.batch_norm(f"{name}.norm1", x))
    y = net.convolution(f"{name}.conv1", y, _BOTTLENECK * growth, 1, bias=False)
    y = net.relu(net.batch_norm(f"{name}.norm2", y))
    return net.convolution(f"{name}.conv2", y, growth, 3, bias=False)


def _transition(net: Builder, name: str, x: Tensor) -> Tensor:
    x = net.relu(net.batch_norm(f"{name}.norm", x))
    x = net.convolution(f"{name}.conv", x, x.shape[1] // 2, 1, bias=False)
    return net.average_pool(f"{name}.pool", x, 2, 2)

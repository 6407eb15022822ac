"""Networks that listen: Whisper's encoder (Radford et al. 2022), Conformer blocks (Gulati et al.
2020) and an LSTM that spots keywords (Zhang et al. 2017); one that recommends; single operators.

The one idea: time is the only axis that a window slides along, so convolutions have one dimension,
and channels and time change places between them and what looks at tokens.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from archgen.zoo.builder import Moments, NetworkBuilder, ZooTensor
from archgen.zoo.transformer import attention, check_heads, encoder_layers, gelu, layer_norm, linear

_BASE = 10_000.0
"""Of the wavelengths of positions."""


def whisper_encoder(
    net: NetworkBuilder, *, batch: int, frames: int, mels: int, layers: int, hidden: int, heads: int
) -> None:
    """Appends the encoder on a log-mel spectrogram (batch, mels, frames); outputs
    ``last_hidden_state`` (batch, frames / 2, hidden)."""
    check_heads(net, hidden, heads)
    x = net.input("input_features", (batch, mels, frames), channel_axis=1)
    for name, stride in (("conv1", 1), ("conv2", 2)):
        x = gelu(x.conv(name, hidden, 3, stride), f"{name}.gelu")
        x = replace(x, moments=x.moments.rectified())
    x = x.swapped("tokens")
    places = net.parameter("embed_positions.weight", _waves(x.shape[1], hidden))
    net.node("Add", "embedded", x, places)
    x = encoder_layers(net.tensor("embedded", x.shape), "layers", layers, heads, biased_keys=False)
    layer_norm(x, "norm").output("last_hidden_state")


def conformer(
    net: NetworkBuilder, *, batch: int, sequence: int, layers: int, hidden: int, heads: int,
    kernel: int,
) -> None:  # fmt: skip
    """Appends Conformer blocks on (batch, sequence, hidden): attention and a convolution between
    two feed-forward layers of half a step each. ``kernel`` is that of the convolution."""
    check_heads(net, hidden, heads)
    x = net.input("features", (batch, sequence, hidden))
    for index in range(layers):
        name = f"blocks.{index}"
        x = _half_step(x, f"{name}.mlp1")
        y = attention(layer_norm(x, f"{name}.norm"), f"{name}.attention", heads)
        x = x.plus(f"{name}.attention.add", y)
        x = x.plus(f"{name}.conv.add", _convolved(x, f"{name}.conv", kernel))
        x = layer_norm(_half_step(x, f"{name}.mlp2"), f"{name}.final_norm")
    x.output("encoded")


def lstm_kws(
    net: NetworkBuilder, *, batch: int, frames: int, features: int, hidden: int, classes: int
) -> None:
    """Appends one LSTM layer over ``features`` coefficients of each of (batch, frames), and a
    classifier on its last state."""
    x = net.input("features", (batch, frames, features))
    steps = net.node("Transpose", "steps", x, perm=[1, 0, 2])
    weight = net.normal((1, 4 * hidden, features), 1 / math.sqrt(features))
    recurrence = net.normal((1, 4 * hidden, hidden), 1 / math.sqrt(hidden))
    bias = np.repeat(np.array([[0, 0, 1, 0] + 4 * [0]], np.float32), hidden, axis=1)
    parameters = {"weight": weight, "recurrence": recurrence, "bias": bias}
    given = [net.parameter(f"lstm.{name}", values) for name, values in parameters.items()]
    names = ["lstm.0", "lstm.1", "lstm.2"]
    net.nodes("LSTM", names, steps, *given, hidden_size=hidden)
    net.node("Squeeze", "state", "lstm.1", [0])
    # Of a gate's output times that of Tanh, both of unit-variance sums.
    moments = Moments(np.zeros(hidden), np.full(hidden, 0.15))
    state = ZooTensor(net, "state", (batch, hidden), moments)
    state.gemm("classifier", classes).output("logits")


def _half_step(x: ZooTensor, name: str) -> ZooTensor:
    """x and half of what a feed-forward layer with Swish makes of it."""
    hidden = x.shape[-1]
    wide = linear(layer_norm(x, f"{name}.norm"), f"{name}.expand", 4 * hidden)
    y = linear(wide.activated("Swish"), f"{name}.project", hidden)
    return x.plus(f"{name}.add", y.apply("Mul", f"{name}.half", 0.5, moments=y.moments.scaled(0.5)))


def _convolved(x: ZooTensor, name: str, kernel: int) -> ZooTensor:
    """Pointwise convolution with a gate for each channel, depthwise convolution, pointwise."""
    hidden = x.shape[-1]
    y = layer_norm(x, f"{name}.norm").swapped(f"{name}.channels")
    y, gate = y.conv(f"{name}.pointwise1", 2 * hidden, 1).split(f"{name}.split", 2)
    y = y.times(f"{name}.gated", gate.activated("Sigmoid"))
    y = y.conv_bn(f"{name}.depthwise", hidden, kernel, groups=hidden, norm=f"{name}.bn")
    y = y.activated("Swish").conv(f"{name}.pointwise2", hidden, 1)
    return y.swapped(f"{name}.tokens")


def _waves(tokens: int, hidden: int) -> np.ndarray:
    """Sines and cosines of positions, (tokens, hidden)."""
    scales = _BASE ** (-np.arange(hidden // 2) / max(hidden // 2 - 1, 1))
    angles = np.arange(tokens)[:, np.newaxis] * scales
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.resize(waves, (tokens, hidden)).astype(np.float32)


# DLRM, a recommendation model (Naumov et al. 2019) with the layers of its Criteo Kaggle run.

_ROWS_STD = 0.5


def dlrm(
    net: NetworkBuilder, *, batch: int, features: int, tables: int, rows: int, width: int,
    hidden: int,
) -> None:  # fmt: skip
    """Appends DLRM on ``dense`` (batch, features) and ``indices`` (batch, tables), one row of
    ``width`` values out of ``rows`` for each table; ``hidden`` is the widest layer of both
    perceptrons. Outputs the probability of a ``click`` (batch, 1)."""
    x = net.input("dense", (batch, features))
    indices = net.input("indices", (batch, tables), TensorProto.INT64)
    for index, wide in enumerate((hidden, hidden // 2, hidden // 8, width)):
        x = x.gemm(f"bottom.{index}", max(wide, 1)).relu()
    picked = []
    for table in range(tables):
        name = f"tables.{table}"
        row = net.node("Gather", f"{name}.index", indices, np.array(table), axis=1)
        weight = net.drawn(f"{name}.weight", (rows, width), _ROWS_STD)
        picked.append(net.node("Gather", name, weight, row, axis=0))
    pairs = _interaction(net, [x.name, *picked], (batch, tables + 1, width))
    shape = (batch, width + pairs.shape[1])
    moments = Moments.concatenated([x.moments, pairs.moments])
    x = x.apply("Concat", "interaction", pairs, shape=shape, moments=moments, axis=1)
    for index, wide in enumerate((hidden, hidden // 2)):
        x = x.gemm(f"top.{index}", max(wide, 1)).relu()
    x.gemm("top.2", 1).apply("Sigmoid", "probability").output("click")


def _interaction(net: NetworkBuilder, picked: list[str], shape: tuple[int, int, int]) -> ZooTensor:
    """Products of all pairs of vectors (batch, count, width), each pair once."""
    batch, count, _ = shape
    flat = net.node("Concat", "vectors.flat", *picked, axis=1)
    vectors = net.node("Reshape", "vectors", flat, shape)
    across = net.node("Transpose", "vectors.across", vectors, perm=[0, 2, 1])
    products = net.node("MatMul", "products", vectors, across)
    line = net.node("Reshape", "products.line", products, [batch, count * count])
    left, right = np.tril_indices(count, -1)
    pairs = net.node("Gather", "pairs", line, left * count + right, axis=1)
    return net.tensor(pairs, (batch, len(left)))


# Single operators, by which machines are compared with other tools.


def matrix_product(net: NetworkBuilder, *, batch: int, m: int, n: int, k: int) -> None:
    """Appends ``m`` rows of ``k`` numbers times a (k, n) weight."""
    linear(net.input("a", (batch, m, k)), "c", n, biased=False).output("c")


def convolution(
    net: NetworkBuilder, *, batch: int, image: int, channels: int, filters: int, kernel: int,
    stride: int,
) -> None:  # fmt: skip
    """Appends a square convolution with a border of half its kernel, and a bias."""
    x = net.input("x", (batch, channels, image, image))
    x.conv("y", filters, kernel, stride).output("y")


def self_attention(
    net: NetworkBuilder, *, batch: int, sequence: int, hidden: int, heads: int
) -> None:
    """Appends multi-head self-attention with its four projections."""
    check_heads(net, hidden, heads)
    attention(net.input("x", (batch, sequence, hidden)), "y", heads).output("y")

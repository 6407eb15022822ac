"""Networks that listen: Whisper's encoder (Radford et al. 2022), Conformer blocks (Gulati et al.
2020) and an LSTM that spots keywords (Zhang et al. 2017).

The one idea: time is the only axis that a window slides along, so convolutions have one dimension,
and channels and time change places between them and what looks at tokens.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from archgen.zoo.builder import NetworkBuilder, ZooTensor
from archgen.zoo.moments import Moments
from archgen.zoo.transformer import attention, check_heads, feed_forward, gelu, layer_norm, linear

_BASE = 10_000.0
"""Of the wavelengths of positions."""


def whisper_encoder(
    net: NetworkBuilder, *, batch: int, frames: int, mels: int, layers: int, hidden: int, heads: int
) -> None:
    """Appends the encoder on a log-mel spectrogram (batch, mels, frames); outputs
    ``last_hidden_state`` (batch, frames / 2, hidden)."""
    check_heads(net, hidden, heads)
    x = net.signal("input_features", mels, frames, batch)
    for name, stride in (("conv1", 1), ("conv2", 2)):
        x = gelu(net, f"{name}.gelu", net.convolution(name, x, hidden, 3, stride))
        x = ZooTensor(x.name, x.shape, x.moments.rectified())
    x = _swapped(net, "tokens", x)
    tokens = x.shape[1]
    places = net.parameter("embed_positions.weight", _waves(tokens, hidden))
    net.node("Add", "embedded", [x.name, places])
    x = ZooTensor("embedded", x.shape, Moments.standard(hidden))
    for index in range(layers):
        name = f"layers.{index}"
        y = layer_norm(net, f"{name}.norm1", x)
        y = attention(net, f"{name}.attention", y, heads, biased_keys=False)
        x = net.add(f"{name}.attention.add", x, y)
        y = feed_forward(net, f"{name}.mlp", layer_norm(net, f"{name}.norm2", x))
        x = net.add(f"{name}.mlp.add", x, y)
    net.output("last_hidden_state", layer_norm(net, "norm", x))


def conformer(
    net: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    layers: int,
    hidden: int,
    heads: int,
    kernel: int,
) -> None:
    """Appends Conformer blocks on (batch, sequence, hidden): attention and a convolution between
    two feed-forward layers of half a step each. ``kernel`` is that of the convolution."""
    check_heads(net, hidden, heads)
    x = net.input("features", (batch, sequence, hidden))
    for index in range(layers):
        name = f"blocks.{index}"
        x = _half_step(net, f"{name}.mlp1", x)
        y = attention(net, f"{name}.attention", layer_norm(net, f"{name}.norm", x), heads)
        x = net.add(f"{name}.attention.add", x, y)
        x = net.add(f"{name}.conv.add", x, _convolved(net, f"{name}.conv", x, kernel))
        x = layer_norm(net, f"{name}.final_norm", _half_step(net, f"{name}.mlp2", x))
    net.output("encoded", x)


def lstm_kws(
    net: NetworkBuilder, *, batch: int, frames: int, features: int, hidden: int, classes: int
) -> None:
    """Appends one LSTM layer over ``features`` coefficients of each of (batch, frames), and a
    classifier on its last state."""
    x = net.input("features", (batch, frames, features))
    (steps,) = net.node("Transpose", "steps", [x.name], perm=[1, 0, 2])
    weight = net.normal((1, 4 * hidden, features), 1 / math.sqrt(features))
    recurrence = net.normal((1, 4 * hidden, hidden), 1 / math.sqrt(hidden))
    bias = np.repeat(np.array([[0, 0, 1, 0] + 4 * [0]], np.float32), hidden, axis=1)
    parameters = {"weight": weight, "recurrence": recurrence, "bias": bias}
    given = [net.parameter(f"lstm.{name}", values) for name, values in parameters.items()]
    _, last, _ = net.node("LSTM", "lstm", [steps, *given], 3, hidden_size=hidden)
    (state,) = net.node("Squeeze", "state", [last, net.integers([0])])
    # Of a gate's output times that of Tanh, both of unit-variance sums.
    moments = Moments(np.zeros(hidden), np.full(hidden, 0.15))
    net.output(
        "logits", net.gemm("classifier", ZooTensor(state, (batch, hidden), moments), classes)
    )


def _half_step(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """x and half of what a feed-forward layer with Swish makes of it."""
    hidden = x.shape[-1]
    wide = linear(net, f"{name}.expand", layer_norm(net, f"{name}.norm", x), 4 * hidden)
    y = linear(net, f"{name}.project", net.activated("Swish", wide), hidden)
    (half,) = net.node("Mul", f"{name}.half", [y.name, net.scalar(0.5)])
    return net.add(f"{name}.add", x, ZooTensor(half, y.shape, y.moments.scaled(0.5)))


def _convolved(net: NetworkBuilder, name: str, x: ZooTensor, kernel: int) -> ZooTensor:
    """Pointwise convolution with a gate for each channel, depthwise convolution, pointwise."""
    hidden = x.shape[-1]
    y = _swapped(net, f"{name}.channels", layer_norm(net, f"{name}.norm", x))
    y, gate = net.split(f"{name}.split", net.convolution(f"{name}.pointwise1", y, 2 * hidden, 1), 2)
    y = net.multiply(f"{name}.gated", y, net.activated("Sigmoid", gate))
    y = net.convolution(f"{name}.depthwise", y, hidden, kernel, groups=hidden, bias=False)
    y = net.activated("Swish", net.batch_norm(f"{name}.bn", y))
    return _swapped(net, f"{name}.tokens", net.convolution(f"{name}.pointwise2", y, hidden, 1))


def _swapped(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """(batch, channels, time) -> (batch, time, channels), and back."""
    net.node("Transpose", name, [x.name], perm=[0, 2, 1])
    batch, first, second = x.shape
    return ZooTensor(name, (batch, second, first), x.moments)


def _waves(tokens: int, hidden: int) -> np.ndarray:
    """Sines and cosines of positions, (tokens, hidden)."""
    scales = _BASE ** (-np.arange(hidden // 2) / max(hidden // 2 - 1, 1))
    angles = np.arange(tokens)[:, np.newaxis] * scales
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.resize(waves, (tokens, hidden)).astype(np.float32)


# DLRM, a recommendation model (Naumov et al. 2019) with the layers of its Criteo Kaggle run.

_ROWS_STD = 0.5


def dlrm(
    net: NetworkBuilder,
    *,
    batch: int,
    features: int,
    tables: int,
    rows: int,
    width: int,
    hidden: int,
) -> None:
    """Appends DLRM on ``dense`` (batch, features) and ``indices`` (batch, tables), one row of
    ``width`` values out of ``rows`` for each table; ``hidden`` is the widest layer of both
    perceptrons. Outputs the probability of a ``click`` (batch, 1)."""
    dense = net.input("dense", (batch, features))
    indices = net.input("indices", (batch, tables), TensorProto.INT64)
    bottom = dense
    for index, wide in enumerate((hidden, hidden // 2, hidden // 8, width)):
        bottom = net.relu(net.gemm(f"bottom.{index}", bottom, max(wide, 1)))
    picked = [
        bottom.name,
        *(_embedding_lookup(net, f"tables.{t}", indices, t, rows, width) for t in range(tables)),
    ]
    pairs = _interaction(net, picked, (batch, tables + 1, width))
    (joined,) = net.node("Concat", "interaction", [bottom.name, pairs.name], axis=1)
    top = ZooTensor(
        joined,
        (batch, width + pairs.shape[1]),
        Moments.concatenated([bottom.moments, pairs.moments]),
    )
    for index, wide in enumerate((hidden, hidden // 2)):
        top = net.relu(net.gemm(f"top.{index}", top, max(wide, 1)))
    top = net.gemm("top.2", top, 1)
    (click,) = net.node("Sigmoid", "probability", [top.name])
    net.output("click", ZooTensor(click, top.shape, top.moments))


def _embedding_lookup(
    net: NetworkBuilder, name: str, indices: ZooTensor, table: int, rows: int, width: int
) -> str:
    """(batch, width): of one table, the rows that its column of indices names."""
    column = net.constant(np.array(table))
    (index,) = net.node("Gather", f"{name}.index", [indices.name, column], axis=1)
    weight = net.parameter(f"{name}.weight", net.normal((rows, width), _ROWS_STD))
    return net.node("Gather", name, [weight, index], axis=0)[0]


def _interaction(net: NetworkBuilder, picked: list[str], shape: tuple[int, int, int]) -> ZooTensor:
    """Products of all pairs of vectors (batch, count, width), each pair once."""
    batch, count, _ = shape
    (flat,) = net.node("Concat", "vectors.flat", picked, axis=1)
    (vectors,) = net.node("Reshape", "vectors", [flat, net.integers(shape)])
    (across,) = net.node("Transpose", "vectors.across", [vectors], perm=[0, 2, 1])
    (products,) = net.node("MatMul", "products", [vectors, across])
    square = net.integers([batch, count * count])
    (line,) = net.node("Reshape", "products.line", [products, square])
    left, right = np.tril_indices(count, -1)
    once = net.constant(left * count + right)
    (pairs,) = net.node("Gather", "pairs", [line, once], axis=1)
    return ZooTensor(pairs, (batch, len(left)), Moments.standard(len(left)))

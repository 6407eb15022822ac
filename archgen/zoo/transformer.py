"""Transformer encoders as exporters write them: BERT (Devlin et al. 2019) and ViT (Dosovitskiy
et al. 2021).

The one idea: attention, GELU and LayerNormalization are spelled in standard operators of the
opset (MatMul, Add, Reshape, Transpose, Softmax, Erf, LayerNormalization); a linear layer over
tokens is MatMul and Add. Weights of queries and keys are large enough that attention is peaked,
as in a trained network, rather than an average over all tokens.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from archgen.zoo.builder import Moments, NetworkBuilder, ZooTensor

_MASKED = float(np.finfo(np.float32).min)
PEAKED = 1.4
"""Standard deviation of queries and keys: attention is no average over all tokens."""


def bert(
    net: NetworkBuilder, *, batch: int, sequence: int, layers: int, hidden: int, heads: int,
    vocabulary: int, positions: int,
) -> None:  # fmt: skip
    """Appends a BERT encoder on token ids (batch, sequence); outputs ``last_hidden_state``
    (batch, sequence, hidden) and ``pooler_output`` (batch, hidden)."""
    check_heads(net, hidden, heads)
    net.refuse(sequence > positions, f"sequence={sequence} is over its {positions} positions")
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (net.input(name, (batch, sequence), TensorProto.INT64) for name in names)
    places = net.constant("embeddings.position.input1", np.arange(sequence)[np.newaxis])
    shape = (batch, sequence, hidden)
    words = _embedding(net, "embeddings.word", vocabulary, shape, ids.name)
    kinds = _embedding(net, "embeddings.token_type", 2, shape, types.name)
    spots = _embedding(net, "embeddings.position", positions, (1, sequence, hidden), places)
    x = words.plus("embeddings.add_type", kinds).plus("embeddings.add_position", spots)
    x = layer_norm(x, "embeddings.norm")
    # (batch, tokens) of ones and zeros -> (batch, 1, 1, tokens) of zeros and very negative.
    net.node("Unsqueeze", "mask.unsqueezed", mask, [1, 2])
    net.node("Cast", "mask.cast", "mask.unsqueezed", to=TensorProto.FLOAT)
    net.node("Sub", "mask.inverted", 1.0, "mask.cast")
    bias = net.node("Mul", "mask.bias", "mask.inverted", _MASKED)
    for index in range(layers):
        name = f"encoder.{index}"
        x = attention(x, f"{name}.attention", heads, bias).plus(f"{name}.attention.add", x)
        x = layer_norm(x, f"{name}.attention.norm")
        x = layer_norm(feed_forward(x, f"{name}.mlp").plus(f"{name}.mlp.add", x), f"{name}.norm")
    pooled = (
        first_token(x, "pooler.first").gemm("pooler.dense", hidden).apply("Tanh", "pooler.tanh")
    )
    x.output("last_hidden_state")
    pooled.output("pooler_output")


def vit(
    net: NetworkBuilder, *, batch: int, image: int, patch: int, layers: int, hidden: int,
    heads: int, classes: int,
) -> None:  # fmt: skip
    """Appends a ViT classifier with a class token on (batch, 3, image, image)."""
    check_heads(net, hidden, heads)
    net.refuse(image % patch > 0, f"image={image} is not a multiple of patch={patch}")
    x = net.input("input", (batch, 3, image, image)).conv("patch_embed", hidden, patch, patch, 0)
    tokens = x.shape[2] * x.shape[3]
    x = x.apply(
        "Reshape", "patch_embed.flat", [batch, hidden, tokens], shape=(batch, hidden, tokens)
    )
    x.swapped("patch_embed.tokens")
    head = net.drawn("class_token", (1, 1, hidden))
    if batch > 1:
        head = net.node("Expand", "class_token.expanded", head, [batch, 1, hidden])
    net.node("Concat", "tokens", head, "patch_embed.tokens", axis=1)
    places = net.drawn("position_embedding", (1, tokens + 1, hidden), 0.5)
    net.node("Add", "embedded", "tokens", places)
    x = encoder_layers(
        net.tensor("embedded", (batch, tokens + 1, hidden)), "encoder", layers, heads
    )
    first_token(layer_norm(x, "norm"), "first").gemm("head", classes).output("logits")


def encoder_layers(
    x: ZooTensor, stem: str, layers: int, heads: int, biased_keys: bool = True
) -> ZooTensor:
    """Layers that normalize what their branches read."""
    for index in range(layers):
        name = f"{stem}.{index}"
        y = attention(
            layer_norm(x, f"{name}.norm1"), f"{name}.attention", heads, biased_keys=biased_keys
        )
        x = x.plus(f"{name}.attention.add", y)
        y = feed_forward(layer_norm(x, f"{name}.norm2"), f"{name}.mlp")
        x = x.plus(f"{name}.mlp.add", y)
    return x


def first_token(x: ZooTensor, name: str) -> ZooTensor:
    """(batch, tokens, hidden) -> (batch, hidden)."""
    return x.apply("Gather", name, np.array(0), shape=(x.shape[0], x.shape[2]), axis=1)


def layer_norm(x: ZooTensor, name: str) -> ZooTensor:
    """LayerNormalization over the last axis, as one operator."""
    net, channels = x.net, x.shape[-1]
    scale, shift = net.uniform(channels, 0.8, 1.2), net.uniform(channels, -0.2, 0.2)
    inputs = [net.parameter(f"{name}.weight", scale), net.parameter(f"{name}.bias", shift)]
    moments = Moments.standard(channels)
    return x.apply("LayerNormalization", name, *inputs, moments=moments, axis=-1, epsilon=1e-6)


def linear(
    x: ZooTensor, name: str, features: int, gain: float = 1.0, biased: bool = True
) -> ZooTensor:
    """MatMul with a (inputs, features) weight, and Add where it is ``biased``; unit-variance
    input gives a standard deviation of ``gain``."""
    net, given = x.net, x.shape[-1]
    weight = net.drawn(f"{name}.weight", (given, features), gain / math.sqrt(given))
    product = f"{name}.matmul" if biased else name
    bias = net.uniform(features, -0.1, 0.1) if biased else None
    net.node("MatMul", product, x, weight)
    if bias is not None:
        net.node("Add", name, product, net.parameter(f"{name}.bias", bias))
    return net.tensor(name, (*x.shape[:-1], features), gain)


def attention(
    x: ZooTensor, name: str, heads: int, bias: str | None = None, biased_keys: bool = True
) -> ZooTensor:
    """Multi-head self-attention on (batch, tokens, hidden) and its output projection; ``bias``
    is added to the scores."""
    net, hidden = x.net, x.shape[-1]
    query = by_head(linear(x, f"{name}.query", hidden, PEAKED), heads)
    key = by_head(linear(x, f"{name}.key", hidden, PEAKED, biased_keys), heads, (0, 2, 3, 1))
    value = by_head(linear(x, f"{name}.value", hidden), heads)
    scores = net.node("MatMul", f"{name}.scores", query, key)
    scores = net.node("Div", f"{name}.scaled", scores, math.sqrt(hidden // heads))
    if bias is not None:
        scores = net.node("Add", f"{name}.masked", scores, bias)
    return linear(weighted_values(x, name, scores, value), f"{name}.output", hidden)


def by_head(x: ZooTensor, heads: int, order: tuple[int, ...] = (0, 2, 1, 3)) -> str:
    """(batch, tokens, hidden) -> (batch, heads, tokens, width), or another `order` of these."""
    batch, tokens, hidden = x.shape
    shape = [batch, tokens, heads, hidden // heads]
    split = x.net.node("Reshape", f"{x.name}.split", x, shape)
    return x.net.node("Transpose", f"{x.name}.heads", split, perm=order)


def weighted_values(x: ZooTensor, name: str, scores: str, value: str) -> ZooTensor:
    """Mean values of all heads by the Softmax of `scores`, side by side in the shape of `x`."""
    net = x.net
    weights = net.node("Softmax", f"{name}.weights", scores, axis=-1)
    context = net.node("MatMul", f"{name}.context", weights, value)
    merged = net.node("Transpose", f"{name}.merged", context, perm=[0, 2, 1, 3])
    net.node("Reshape", f"{name}.flat", merged, x.shape)
    return ZooTensor(net, f"{name}.flat", x.shape, x.moments)


def feed_forward(x: ZooTensor, name: str) -> ZooTensor:
    """Linear to four times the width, GELU by Erf, linear back."""
    hidden = x.shape[-1]
    wide = gelu(linear(x, f"{name}.expand", 4 * hidden), f"{name}.gelu")
    return linear(wide, f"{name}.project", hidden)


def gelu(x: ZooTensor, name: str) -> ZooTensor:
    """x times the normal distribution's probability below x, by Erf."""
    net = x.net
    scaled = net.node("Div", f"{name}.scaled", x, math.sqrt(2))
    erf = net.node("Erf", f"{name}.erf", scaled)
    shifted = net.node("Add", f"{name}.shifted", erf, 1.0)
    net.node("Mul", f"{name}.gated", x, shifted)
    net.node("Mul", name, f"{name}.gated", 0.5)
    return ZooTensor(net, name, x.shape, x.moments)


def _embedding(
    net: NetworkBuilder, name: str, rows: int, shape: tuple[int, int, int], indices: str
) -> ZooTensor:
    table = net.drawn(f"{name}.weight", (rows, shape[2]))
    return net.tensor(net.node("Gather", name, table, indices, axis=0), shape)


def check_heads(net: NetworkBuilder, hidden: int, heads: int) -> None:
    """Refuses heads of no whole width."""
    net.refuse(hidden % heads > 0, f"hidden={hidden} is not a multiple of heads={heads}")

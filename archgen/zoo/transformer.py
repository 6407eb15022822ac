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

from archgen.zoo.builder import NetworkBuilder, ZooError, ZooTensor
from archgen.zoo.moments import Moments

_MASKED = float(np.finfo(np.float32).min)


def bert(
    net: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    positions: int,
) -> None:
    """Appends a BERT encoder on token ids (batch, sequence); outputs ``last_hidden_state``
    (batch, sequence, hidden) and ``pooler_output`` (batch, hidden)."""
    check_heads(net, hidden, heads)
    if sequence > positions:
        raise ZooError(f"{net.graph.name}: sequence={sequence} is over its {positions} positions")
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (net.input(name, (batch, sequence), TensorProto.INT64) for name in names)
    places = net.constant(np.arange(sequence)[np.newaxis])
    shape = (batch, sequence, hidden)
    words = _embedding(net, "embeddings.word", vocabulary, shape, ids.name)
    kinds = _embedding(net, "embeddings.token_type", 2, shape, types.name)
    spots = _embedding(net, "embeddings.position", positions, (1, sequence, hidden), places)
    x = net.add("embeddings.add_type", words, kinds)
    x = layer_norm(net, "embeddings.norm", net.add("embeddings.add_position", x, spots))
    bias = _mask_bias(net, mask)
    for index in range(layers):
        name = f"encoder.{index}"
        x = net.add(f"{name}.attention.add", attention(net, f"{name}.attention", x, heads, bias), x)
        x = layer_norm(net, f"{name}.attention.norm", x)
        x = net.add(f"{name}.mlp.add", feed_forward(net, f"{name}.mlp", x), x)
        x = layer_norm(net, f"{name}.norm", x)
    net.node("Gather", "pooler.first", [x.name, net.constant(np.array(0))], axis=1)
    first = ZooTensor("pooler.first", (batch, hidden), x.moments)
    pooled = net.gemm("pooler.dense", first, hidden)
    net.node("Tanh", "pooler.tanh", [pooled.name])
    net.output("last_hidden_state", x)
    net.output("pooler_output", ZooTensor("pooler.tanh", pooled.shape, pooled.moments))


def vit(
    net: NetworkBuilder,
    *,
    batch: int,
    image: int,
    patch: int,
    layers: int,
    hidden: int,
    heads: int,
    classes: int,
) -> None:
    """Appends a ViT classifier with a class token on (batch, 3, image, image)."""
    check_heads(net, hidden, heads)
    if image % patch:
        raise ZooError(f"{net.graph.name}: image={image} is not a multiple of patch={patch}")
    x = net.input("input", (batch, 3, image, image))
    x = net.convolution("patch_embed", x, hidden, patch, patch, 0)
    tokens = x.shape[2] * x.shape[3]
    net.node("Reshape", "patch_embed.flat", [x.name, net.integers([batch, hidden, tokens])])
    net.node("Transpose", "patch_embed.tokens", ["patch_embed.flat"], perm=[0, 2, 1])
    head = net.parameter("class_token", net.normal((1, 1, hidden)))
    if batch > 1:
        shape = net.integers([batch, 1, hidden])
        (head,) = net.node("Expand", "class_token.expanded", [head, shape])
    net.node("Concat", "tokens", [head, "patch_embed.tokens"], axis=1)
    places = net.parameter("position_embedding", net.normal((1, tokens + 1, hidden), 0.5))
    net.node("Add", "embedded", ["tokens", places])
    x = ZooTensor("embedded", (batch, tokens + 1, hidden), Moments.standard(hidden))
    for index in range(layers):
        name = f"encoder.{index}"
        y = attention(net, f"{name}.attention", layer_norm(net, f"{name}.norm1", x), heads)
        x = net.add(f"{name}.attention.add", x, y)
        y = feed_forward(net, f"{name}.mlp", layer_norm(net, f"{name}.norm2", x))
        x = net.add(f"{name}.mlp.add", x, y)
    x = layer_norm(net, "norm", x)
    net.node("Gather", "first", [x.name, net.constant(np.array(0))], axis=1)
    net.output("logits", net.gemm("head", ZooTensor("first", (batch, hidden), x.moments), classes))


def layer_norm(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """LayerNormalization over the last axis, as one operator."""
    scale = net.uniform(x.shape[-1], 0.8, 1.2)
    shift = net.uniform(x.shape[-1], -0.2, 0.2)
    inputs = [x.name, net.parameter(f"{name}.weight", scale), net.parameter(f"{name}.bias", shift)]
    net.node("LayerNormalization", name, inputs, axis=-1, epsilon=1e-6)
    return ZooTensor(name, x.shape, Moments.standard(x.shape[-1]))


def linear(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    features: int,
    gain: float = 1.0,
    biased: bool = True,
) -> ZooTensor:
    """MatMul with a (inputs, features) weight, and Add where it is ``biased``; unit-variance
    input gives a standard deviation of ``gain``."""
    given = x.shape[-1]
    weight = net.normal((given, features), gain / math.sqrt(given))
    product = f"{name}.matmul" if biased else name
    bias = net.uniform(features, -0.1, 0.1) if biased else None
    net.node("MatMul", product, [x.name, net.parameter(f"{name}.weight", weight)])
    if bias is not None:
        net.node("Add", name, [product, net.parameter(f"{name}.bias", bias)])
    return ZooTensor(name, (*x.shape[:-1], features), Moments.standard(features).scaled(gain))


def attention(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    heads: int,
    bias: str | None = None,
    biased_keys: bool = True,
) -> ZooTensor:
    """Multi-head self-attention on (batch, tokens, hidden) and its output projection; ``bias``
    is added to the scores."""
    hidden = x.shape[2]
    query = _by_head(net, f"{name}.query", x, heads, [0, 2, 1, 3], 1.4)
    key = _by_head(net, f"{name}.key", x, heads, [0, 2, 3, 1], 1.4, biased_keys)
    value = _by_head(net, f"{name}.value", x, heads, [0, 2, 1, 3], 1.0)
    net.node("MatMul", f"{name}.scores", [query, key])
    root = net.scalar(math.sqrt(hidden // heads))
    (scores,) = net.node("Div", f"{name}.scaled", [f"{name}.scores", root])
    if bias is not None:
        (scores,) = net.node("Add", f"{name}.masked", [scores, bias])
    net.node("Softmax", f"{name}.weights", [scores], axis=-1)
    net.node("MatMul", f"{name}.context", [f"{name}.weights", value])
    net.node("Transpose", f"{name}.merged", [f"{name}.context"], perm=[0, 2, 1, 3])
    net.node("Reshape", f"{name}.flat", [f"{name}.merged", net.integers(x.shape)])
    return linear(net, f"{name}.output", ZooTensor(f"{name}.flat", x.shape, x.moments), hidden)


def feed_forward(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """Linear to four times the width, GELU by Erf, linear back."""
    hidden = x.shape[-1]
    wide = linear(net, f"{name}.expand", x, 4 * hidden)
    return linear(net, f"{name}.project", gelu(net, f"{name}.gelu", wide), hidden)


def gelu(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """x times the normal distribution's probability below x, by Erf."""
    net.node("Div", f"{name}.scaled", [x.name, net.scalar(math.sqrt(2))])
    net.node("Erf", f"{name}.erf", [f"{name}.scaled"])
    net.node("Add", f"{name}.shifted", [f"{name}.erf", net.scalar(1.0)])
    net.node("Mul", f"{name}.gated", [x.name, f"{name}.shifted"])
    net.node("Mul", name, [f"{name}.gated", net.scalar(0.5)])
    return ZooTensor(name, x.shape, x.moments)


def _by_head(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    heads: int,
    order: list[int],
    gain: float,
    biased: bool = True,
) -> str:
    batch, tokens, hidden = x.shape
    y = linear(net, name, x, hidden, gain, biased)
    shape = net.integers([batch, tokens, heads, hidden // heads])
    net.node("Reshape", f"{name}.split", [y.name, shape])
    return net.node("Transpose", f"{name}.heads", [f"{name}.split"], perm=order)[0]


def _embedding(
    net: NetworkBuilder, name: str, rows: int, shape: tuple[int, int, int], indices: str
) -> ZooTensor:
    table = net.parameter(f"{name}.weight", net.normal((rows, shape[2])))
    net.node("Gather", name, [table, indices], axis=0)
    return ZooTensor(name, shape, Moments.standard(shape[2]))


def _mask_bias(net: NetworkBuilder, mask: ZooTensor) -> str:
    """(batch, tokens) of ones and zeros -> (batch, 1, 1, tokens) of zeros and very negative."""
    net.node("Unsqueeze", "mask.unsqueezed", [mask.name, net.integers([1, 2])])
    net.node("Cast", "mask.cast", ["mask.unsqueezed"], to=TensorProto.FLOAT)
    net.node("Sub", "mask.inverted", [net.scalar(1.0), "mask.cast"])
    return net.node("Mul", "mask.bias", ["mask.inverted", net.scalar(_MASKED)])[0]


def check_heads(net: NetworkBuilder, hidden: int, heads: int) -> None:
    """Refuses heads of no whole width."""
    if hidden % heads:
        raise ZooError(f"{net.graph.name}: hidden={hidden} is not a multiple of heads={heads}")

"""GPT-2 (Radford et al. 2019) from token ids to the next token's logits: a whole prompt, or what
follows behind a cache.

The one idea: one product makes queries, keys and values of all heads, a constant triangle chooses
what a token may see, GELU is spelled with Tanh, and the table of words is also the last product's
weight. Behind ``past`` tokens, keys and values come in as ``past_key_values.0.key`` and leave with
the new ones as ``present.0.key``.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from archgen.zoo.builder import Builder, Tensor, ZooError
from archgen.zoo.moments import Moments
from archgen.zoo.transformer import check_heads, layer_norm, linear

_MASKED = -1e4
_PEAKED = 1.4
"""Standard deviation of queries, keys and values."""
_WORDS = 4.0
"""Standard deviation of logits, which the table of words sets."""


def gpt2(
    net: Builder,
    *,
    batch: int,
    sequence: int,
    past: int,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    positions: int,
) -> None:
    """Appends GPT-2 on token ids (batch, sequence) behind ``past`` tokens; outputs ``logits``
    (batch, vocabulary) of the token after the last one."""
    check_heads(net, hidden, heads)
    if past + sequence > positions:
        raise ZooError(
            f"{net.graph.name}: past={past} and sequence={sequence} are over its {positions} "
            f"positions"
        )
    ids = net.input("input_ids", (batch, sequence), TensorProto.INT64)
    std = _WORDS / math.sqrt(hidden)
    table = net.parameter("wte.weight", net.normal((vocabulary, hidden), std))
    (words,) = net.node("Gather", "wte", [table, ids.name], axis=0)
    spots = net.parameter("wpe.weight", net.normal((positions, hidden), std / 2))
    places = net.constant(np.arange(past, past + sequence)[np.newaxis])
    (spot,) = net.node("Gather", "wpe", [spots, places], axis=0)
    (embedded,) = net.node("Add", "embedded", [words, spot])
    x = Tensor(embedded, (batch, sequence, hidden), Moments.standard(hidden))
    mask = np.tri(sequence, past + sequence, past, dtype=np.bool_)[np.newaxis, np.newaxis]
    seen = net.constant(mask) if sequence > 1 else None
    for index in range(layers):
        name = f"h.{index}"
        y = layer_norm(net, f"{name}.ln_1", x)
        x = net.add(f"{name}.attn.add", x, _attention(net, name, y, heads, index, past, seen))
        y = linear(net, f"{name}.mlp.c_fc", layer_norm(net, f"{name}.ln_2", x), 4 * hidden)
        y = linear(net, f"{name}.mlp.c_proj", _gelu(net, f"{name}.mlp.gelu", y), hidden)
        x = net.add(f"{name}.mlp.add", x, y)
    x = layer_norm(net, "ln_f", x)
    (last,) = net.node("Gather", "last", [x.name, net.constant(np.array(sequence - 1))], axis=1)
    (across,) = net.node("Transpose", "lm_head.weight", [table], perm=[1, 0])
    (logits,) = net.node("MatMul", "lm_head", [last, across])
    net.output("logits", Tensor(logits, (batch, vocabulary), Moments.standard(vocabulary)))


def _attention(
    net: Builder, name: str, x: Tensor, heads: int, layer: int, past: int, seen: str | None
) -> Tensor:
    """Attention to the tokens that are ``seen``, all where it is None, and its output
    projection."""
    batch, tokens, hidden = x.shape
    width, end = hidden // heads, past + tokens
    joint = linear(net, f"{name}.attn.c_attn", x, 3 * hidden, _PEAKED)
    parts = net.node(
        "Split", f"{name}.attn.split", [joint.name, net.integers([hidden] * 3)], 3, axis=2
    )
    shape = net.integers([batch, tokens, heads, width])
    by_head: list[str] = []
    for part in parts:
        (apart,) = net.node("Reshape", f"{part}.apart", [part, shape])
        by_head += net.node("Transpose", f"{part}.heads", [apart], perm=[0, 2, 1, 3])
    query, *new = by_head
    key, value = (
        _grown(net, f"{layer}.{kind}", given, (batch, heads, past, width), end) if past else given
        for kind, given in zip(("key", "value"), new, strict=True)
    )
    (turned,) = net.node("Transpose", f"{name}.attn.across", [key], perm=[0, 1, 3, 2])
    (scores,) = net.node("MatMul", f"{name}.attn.scores", [query, turned])
    root = net.scalar(math.sqrt(width))
    (scores,) = net.node("Div", f"{name}.attn.scaled", [scores, root])
    if seen is not None:
        given = [seen, scores, net.scalar(_MASKED)]
        (scores,) = net.node("Where", f"{name}.attn.masked", given)
    (weights,) = net.node("Softmax", f"{name}.attn.weights", [scores], axis=-1)
    (context,) = net.node("MatMul", f"{name}.attn.context", [weights, value])
    (merged,) = net.node("Transpose", f"{name}.attn.merged", [context], perm=[0, 2, 1, 3])
    (flat,) = net.node("Reshape", f"{name}.attn.flat", [merged, net.integers(x.shape)])
    return linear(net, f"{name}.attn.c_proj", Tensor(flat, x.shape, x.moments), hidden)


def _grown(net: Builder, name: str, new: str, shape: tuple[int, ...], end: int) -> str:
    """Keys or values of the tokens before, (batch, heads, past, width), and behind them ``new``."""
    given = net.input(f"past_key_values.{name}", shape)
    batch, heads, _, width = shape
    (present,) = net.node("Concat", f"present.{name}", [given.name, new], axis=2)
    net.output(present, Tensor(present, (batch, heads, end, width), Moments.standard(width)))
    return present


def _gelu(net: Builder, name: str, x: Tensor) -> Tensor:
    """GELU by Tanh of a cubic polynomial."""
    (cube,) = net.node("Pow", f"{name}.cube", [x.name, net.scalar(3.0)])
    (small,) = net.node("Mul", f"{name}.small", [cube, net.scalar(0.044715)])
    (sum_,) = net.node("Add", f"{name}.sum", [x.name, small])
    (scaled,) = net.node("Mul", f"{name}.scaled", [sum_, net.scalar(math.sqrt(2 / math.pi))])
    (tanh,) = net.node("Tanh", f"{name}.tanh", [scaled])
    (shifted,) = net.node("Add", f"{name}.shifted", [tanh, net.scalar(1.0)])
    (half,) = net.node("Mul", f"{name}.half", [x.name, net.scalar(0.5)])
    net.node("Mul", name, [half, shifted])
    return Tensor(name, x.shape, x.moments)

"""Decoder layers of large language models as exporters write them: Llama's (Touvron et al. 2023)
with grouped heads (Ainslie et al. 2023), reading a whole prompt, or what follows after one.

The one idea: RMSNorm, rotary positions, the repetition of key and value heads, the causal mask
and SwiGLU are spelled in standard operators (Pow, ReduceMean, Slice, Neg, Concat, Expand, Sigmoid,
Mul), so a compiler has to find the structure itself. The embedding and the vocabulary's product
are left out: hidden states go in and come out, and behind a prompt the keys and values of all
tokens so far go in as `past_key_values.0.key` and come out as `present.0.key`, with the new ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper

from archgen.zoo.builder import NetworkBuilder, ZooTensor
from archgen.zoo.transformer import (
    PEAKED,
    by_head,
    check_heads,
    layer_norm,
    linear,
    weighted_values,
)

_BASE = 10_000.0
"""Of the wavelengths of rotary positions."""
_MASKED = -1e4
_Shape = tuple[int, int, int, int]


def llama(
    net: NetworkBuilder, *, batch: int, sequence: int, layers: int, hidden: int, heads: int,
    groups: int, wide: int, past: int, room: int,
) -> None:  # fmt: skip
    """Appends decoder layers and the last normalization on hidden states (batch, sequence,
    hidden); ``groups`` key and value heads serve ``heads`` query heads, ``wide`` is the width of
    the feed-forward layers, ``past`` the number of tokens whose keys and values are given. With
    ``room`` the caches have so many rows, of which the first `used` are in use: one network for
    any number of tokens, spelled with GroupQueryAttention."""
    odd = hidden % heads > 0 or hidden // heads % 2 > 0
    net.refuse(odd, f"hidden={hidden} gives heads={heads} no even width")
    net.refuse(heads % groups > 0, f"heads={heads} is not a multiple of groups={groups}")
    x = net.input("hidden_states", (batch, sequence, hidden))
    crowded = room > 0 and (past > 0 or room < sequence)
    net.refuse(crowded, f"room={room} is for all tokens, and past={past} is then 0")
    turn = _turn(net, past, room or sequence, hidden // heads, halves=1 if room else 2)
    mask = _causal(net, past, sequence) if sequence > 1 and not room else None
    if room:
        net.input("used", (batch,), TensorProto.INT32)
        net.input("total", (1,), TensorProto.INT32)
        net.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    shape = (batch, groups, room or past, hidden // heads)
    for index in range(layers):
        name = f"layers.{index}"
        attention = _Attention(f"{name}.attention", index, heads, shape, turn, mask)
        y = _rms_norm(x, f"{name}.input_norm")
        y = attention.fused(y) if room else attention.grouped(y)
        x = x.plus(f"{name}.attention.add", y)
        x = x.plus(f"{name}.mlp.add", _gated(_rms_norm(x, f"{name}.mlp_norm"), f"{name}.mlp", wide))
    _rms_norm(x, "norm").output("last_hidden_state")


def _rms_norm(x: ZooTensor, name: str) -> ZooTensor:
    """Division by the root of the mean square over the last axis, and a scale."""
    net = x.net
    square = net.node("Pow", f"{name}.square", x, 2.0)
    mean = net.node("ReduceMean", f"{name}.mean", square, axes=[-1], keepdims=1)
    safe = net.node("Add", f"{name}.safe", mean, 1e-5)
    root = net.node("Sqrt", f"{name}.root", safe)
    reciprocal = net.node("Reciprocal", f"{name}.reciprocal", root)
    normed = net.node("Mul", f"{name}.normed", x, reciprocal)
    weight = net.parameter(f"{name}.weight", net.uniform(x.shape[-1], 0.8, 1.2))
    return net.tensor(net.node("Mul", name, normed, weight), x.shape)


def _projected(x: ZooTensor, name: str, features: int, gain: float = 1.0) -> ZooTensor:
    return linear(x, name, features, gain, biased=False)


def _positions(net: NetworkBuilder, name: str, first: int, end: int, axis: int) -> str:
    """first .. end - 1 along the axis of a matrix that `axis` leaves."""
    places = net.node("Range", f"{name}.places", float(first), float(end), 1.0)
    return net.node("Unsqueeze", f"{name}.positions", places, [axis])


def _causal(net: NetworkBuilder, past: int, sequence: int) -> str:
    """(sequence, past + sequence) of zeros, and of a large negative number after each token."""
    end = past + sequence
    keys, queries = _positions(net, "keys", 0, end, 0), _positions(net, "queries", past, end, 1)
    future = net.node("Greater", "mask.future", keys, queries)
    return net.node("Where", "mask", future, _MASKED, 0.0)


def _turn(
    net: NetworkBuilder, past: int, sequence: int, width: int, halves: int
) -> tuple[str, str]:
    """Cosines and sines of rotary positions from `past` on, (sequence, width) each, or of one half
    of the width."""
    waves = (_BASE ** (-np.arange(0, width, 2) / width)).astype(np.float32)
    places = _positions(net, "rotary", past, past + sequence, 1)
    half = net.node("Mul", "rotary.half", places, net.parameter("rotary.waves", waves))
    angles = net.node("Concat", "rotary.angles", *[half] * halves, axis=-1)
    cosine, sine = (net.node(kind, f"rotary.{kind}", angles) for kind in ("Cos", "Sin"))
    return cosine, sine


@dataclass(frozen=True)
class _Attention:
    """Causal attention of one layer with rotary positions, and its output projection."""

    name: str
    layer: int
    heads: int
    cached: _Shape
    """(batch, groups, tokens whose keys and values are given, width)."""
    turn: tuple[str, str]
    mask: str | None

    def grouped(self, x: ZooTensor) -> ZooTensor:
        """In standard operators."""
        net, name, (_, groups, past, width) = x.net, self.name, self.cached
        query, *new = (
            by_head(_projected(x, f"{name}.{kind}", count * width, gain), count)
            for kind, count, gain in self._parts()
        )
        query = self._rotated(net, f"{name}.query", query)
        new[0] = self._rotated(net, f"{name}.key", new[0])
        shape = (x.shape[0], groups, past + x.shape[1], width)
        kinds = {"key": new[0], "value": new[1]}
        grown = {
            kind: _grown_cache(net, f"{self.layer}.{kind}", given, self.cached, shape[2])
            for kind, given in kinds.items()
        }
        key, value = (
            _repeated(net, f"{name}.{kind}", given, shape, self.heads // groups)
            for kind, given in grown.items()
        )
        across = net.node("Transpose", f"{name}.key.across", key, perm=[0, 1, 3, 2])
        scores = net.node("MatMul", f"{name}.scores", query, across)
        scores = net.node("Mul", f"{name}.scaled", scores, width**-0.5)
        if self.mask is not None:
            scores = net.node("Add", f"{name}.masked", scores, self.mask)
        return _projected(weighted_values(x, name, scores, value), f"{name}.output", x.shape[-1])

    def fused(self, x: ZooTensor) -> ZooTensor:
        """As one operator of ONNX Runtime, on caches with room for all tokens."""
        net, name, (_, groups, _, width) = x.net, self.name, self.cached
        projected = [
            _projected(x, f"{name}.{kind}", count * width, gain)
            for kind, count, gain in self._parts()
        ]
        ends = [f"{self.layer}.{kind}" for kind in ("key", "value")]
        caches = [net.input(f"past_key_values.{end}", self.cached) for end in ends]
        written = [f"{name}.context", *(f"present.{end}" for end in ends)]
        net.nodes(
            "GroupQueryAttention", written, *projected, *caches, "used", "total", *self.turn,
            domain="com.microsoft", num_heads=self.heads, kv_num_heads=groups, do_rotary=1,
        )  # fmt: skip
        for present in written[1:]:
            net.tensor(present, self.cached).output(present)
        context = ZooTensor(net, written[0], x.shape, x.moments)
        return _projected(context, f"{name}.output", x.shape[-1])

    def _parts(self) -> tuple[tuple[str, int, float], ...]:
        """What is projected, to how many heads, and of which standard deviation."""
        groups = self.cached[1]
        return ("query", self.heads, PEAKED), ("key", groups, PEAKED), ("value", groups, 1.0)

    def _rotated(self, net: NetworkBuilder, name: str, x: str) -> str:
        """Pairs of the last axis, half of it apart, turned by their position's angle."""
        ends = [0, self.cached[3] // 2, np.iinfo(np.int64).max]
        low, high = (
            net.node("Slice", f"{name}.half{part}", x, [start], [end], [3])
            for part, (start, end) in enumerate(pairwise(ends))
        )
        negative = net.node("Neg", f"{name}.negative", high)
        crossed = net.node("Concat", f"{name}.crossed", negative, low, axis=-1)
        straight = net.node("Mul", f"{name}.cos", x, self.turn[0])
        across = net.node("Mul", f"{name}.sin", crossed, self.turn[1])
        return net.node("Add", f"{name}.rotated", straight, across)


def _grown_cache(net: NetworkBuilder, name: str, new: str, given: _Shape, end: int) -> str:
    """Keys or values of the tokens before, of the shape `given`, and behind them ``new``; these
    alone where there were none."""
    batch, heads, past, width = given
    if not past:
        return new
    earlier = net.input(f"past_key_values.{name}", given)
    present = net.node("Concat", f"present.{name}", earlier, new, axis=2)
    net.tensor(present, (batch, heads, end, width)).output(present)
    return present


def _repeated(net: NetworkBuilder, name: str, x: str, shape: _Shape, times: int) -> str:
    """Each head of (batch, groups, tokens, width), `times` in a row."""
    if times == 1:
        return x
    batch, groups, tokens, width = shape
    apart = net.node("Unsqueeze", f"{name}.apart", x, [2])
    expanded = net.node("Expand", f"{name}.expanded", apart, [batch, groups, times, tokens, width])
    flat = [batch, groups * times, tokens, width]
    return net.node("Reshape", f"{name}.repeated", expanded, flat)


def _gated(x: ZooTensor, name: str, wide: int) -> ZooTensor:
    """SwiGLU: one wide product gates another, and a third leads back."""
    gate, up = (_projected(x, f"{name}.{kind}", wide) for kind in ("gate", "up"))
    sigmoid = x.net.node("Sigmoid", f"{name}.sigmoid", gate)
    swish = gate.apply("Mul", f"{name}.swish", sigmoid)
    return _projected(swish.apply("Mul", f"{name}.gated", up), f"{name}.down", x.shape[-1], 2.0)


# GPT-2 (Radford et al. 2019) from token ids to the next token's logits: a whole prompt, or what
# follows behind a cache.

_WORDS = 4.0
"""Standard deviation of logits, which the table of words sets."""


def gpt2(
    net: NetworkBuilder, *, batch: int, sequence: int, past: int, layers: int, hidden: int,
    heads: int, vocabulary: int, positions: int,
) -> None:  # fmt: skip
    """Appends GPT-2 on token ids (batch, sequence) behind ``past`` tokens; outputs ``logits``
    (batch, vocabulary) of the token after the last one."""
    check_heads(net, hidden, heads)
    over = f"past={past} and sequence={sequence} are over its {positions} positions"
    net.refuse(past + sequence > positions, over)
    ids = net.input("input_ids", (batch, sequence), TensorProto.INT64)
    std = _WORDS / math.sqrt(hidden)
    table = net.drawn("wte.weight", (vocabulary, hidden), std)
    words = net.node("Gather", "wte", table, ids, axis=0)
    spots = net.drawn("wpe.weight", (positions, hidden), std / 2)
    places = np.arange(past, past + sequence)[np.newaxis]
    spot = net.node("Gather", "wpe", spots, places, axis=0)
    x = net.tensor(net.node("Add", "embedded", words, spot), (batch, sequence, hidden))
    mask = np.tri(sequence, past + sequence, past, dtype=np.bool_)[np.newaxis, np.newaxis]
    seen = net.constant("h.0.attn.masked.input0", mask) if sequence > 1 else None
    for index in range(layers):
        name = f"h.{index}"
        y = _masked_attention(layer_norm(x, f"{name}.ln_1"), index, heads, past, seen)
        x = x.plus(f"{name}.attn.add", y)
        y = linear(layer_norm(x, f"{name}.ln_2"), f"{name}.mlp.c_fc", 4 * hidden)
        y = linear(_gelu(y, f"{name}.mlp.gelu"), f"{name}.mlp.c_proj", hidden)
        x = x.plus(f"{name}.mlp.add", y)
    last = net.node("Gather", "last", layer_norm(x, "ln_f"), np.array(sequence - 1), axis=1)
    across = net.node("Transpose", "lm_head.weight", table, perm=[1, 0])
    logits = net.node("MatMul", "lm_head", last, across)
    net.tensor(logits, (batch, vocabulary)).output("logits")


def _masked_attention(
    x: ZooTensor, layer: int, heads: int, past: int, seen: str | None
) -> ZooTensor:
    """Attention to the tokens that are ``seen``, all where it is None, and its output
    projection."""
    net, name, (batch, tokens, hidden) = x.net, f"h.{layer}.attn", x.shape
    width = hidden // heads
    joint = linear(x, f"{name}.c_attn", 3 * hidden, PEAKED)
    names = [f"{name}.split.{part}" for part in range(3)]
    net.nodes("Split", names, joint, [hidden] * 3, axis=2)
    shape = net.constant(f"{names[0]}.apart.input1", np.array([batch, tokens, heads, width]))
    apart_heads = []
    for part in names:
        apart = net.node("Reshape", f"{part}.apart", part, shape)
        apart_heads.append(net.node("Transpose", f"{part}.heads", apart, perm=[0, 2, 1, 3]))
    query, *new = apart_heads
    key, value = (
        _grown_cache(net, f"{layer}.{kind}", given, (batch, heads, past, width), past + tokens)
        for kind, given in zip(("key", "value"), new, strict=True)
    )
    across = net.node("Transpose", f"{name}.across", key, perm=[0, 1, 3, 2])
    scores = net.node("MatMul", f"{name}.scores", query, across)
    scores = net.node("Div", f"{name}.scaled", scores, math.sqrt(width))
    if seen is not None:
        scores = net.node("Where", f"{name}.masked", seen, scores, _MASKED)
    return linear(weighted_values(x, name, scores, value), f"{name}.c_proj", hidden)


def _gelu(x: ZooTensor, name: str) -> ZooTensor:
    """GELU by Tanh of a cubic polynomial."""
    net = x.net
    cube = net.node("Pow", f"{name}.cube", x, 3.0)
    small = net.node("Mul", f"{name}.small", cube, 0.044715)
    added = net.node("Add", f"{name}.sum", x, small)
    scaled = net.node("Mul", f"{name}.scaled", added, math.sqrt(2 / math.pi))
    tanh = net.node("Tanh", f"{name}.tanh", scaled)
    shifted = net.node("Add", f"{name}.shifted", tanh, 1.0)
    half = net.node("Mul", f"{name}.half", x, 0.5)
    return replace(x, name=net.node("Mul", name, half, shifted))


# A mixture of experts (Shazeer et al. 2017): the feed-forward layer of Granite 3.0 1B-A400M.

_OUTPUT_GAIN = 4.0
"""Of the last product: a weighted mean over the chosen experts is small."""


def moe(
    net: NetworkBuilder, *, batch: int, sequence: int, hidden: int, wide: int, experts: int,
    active: int, gathered: int,
) -> None:  # fmt: skip
    """Appends the layer on normalized hidden states (batch, sequence, hidden): ``active`` of
    ``experts`` gated perceptrons of width ``wide`` for each token. With ``gathered`` the weights
    of the chosen experts are gathered, else all experts compute all tokens."""
    net.refuse(active > experts, f"active={active} is over experts={experts}")
    x = net.input("hidden_states", (batch, sequence, hidden))
    tokens = batch * sequence
    flat = net.node("Reshape", "tokens", x, [tokens, hidden])
    router = net.drawn("router.weight", (hidden, experts), 1 / math.sqrt(hidden))
    logits = net.node("MatMul", "router", flat, router)
    best, chosen = net.nodes("TopK", ["chosen.0", "chosen.1"], logits, [active], axis=-1)
    gates = net.node("Softmax", "gates", best, axis=-1)
    shapes = {"gate": (hidden, wide, 1.0), "up": (hidden, wide, 1.0)}
    shapes["down"] = (wide, hidden, _OUTPUT_GAIN)
    weights = {
        kind: net.drawn(f"experts.{kind}", (experts, given, wanted), gain / math.sqrt(given))
        for kind, (given, wanted, gain) in shapes.items()
    }
    if gathered:  # each token's experts alone: weights (tokens, active, inputs, outputs)
        weights = {
            kind: net.node("Gather", f"experts.{kind}.chosen", weight, chosen, axis=0)
            for kind, weight in weights.items()
        }
        flat = net.node("Reshape", "tokens.apart", flat, [tokens, 1, 1, hidden])
        y = _perceptrons(net, flat, weights)
        column = net.node("Reshape", "gates.column", gates, [tokens, active, 1, 1])
    else:  # all experts on all tokens, times gates (tokens, experts) that are mostly zero
        none = net.node("ConstantOfShape", "gates.none", [tokens, experts])
        spread = net.node("ScatterElements", "gates.spread", none, chosen, gates, axis=1)
        turned = net.node("Transpose", "gates.turned", spread, perm=[1, 0])
        column = net.node("Unsqueeze", "gates.column", turned, [2])
        y = _perceptrons(net, flat, weights)
    gated = net.node("Mul", "gated", y, column)
    mixed = net.node("ReduceSum", "mixed", gated, [1, 2] if gathered else [0], keepdims=0)
    net.tensor(net.node("Reshape", "mixed.shaped", mixed, x.shape), x.shape).output("output")


def _perceptrons(net: NetworkBuilder, x: str, weights: Mapping[str, str]) -> str:
    """SwiGLU with whole stacks of weights."""
    gate, up = (
        net.node("MatMul", f"experts.{kind}.product", x, weights[kind]) for kind in ("gate", "up")
    )
    sigmoid = net.node("Sigmoid", "experts.sigmoid", gate)
    swish = net.node("Mul", "experts.swish", gate, sigmoid)
    inner = net.node("Mul", "experts.inner", swish, up)
    return net.node("MatMul", "experts.down.product", inner, weights["down"])

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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from onnx import TensorProto, helper

from archgen.zoo.builder import NetworkBuilder, ZooError, ZooTensor
from archgen.zoo.moments import Moments
from archgen.zoo.transformer import check_heads, layer_norm, linear

_BASE = 10_000.0
"""Of the wavelengths of rotary positions."""
_MASKED = -1e4
_PEAKED = 1.4
"""Standard deviation of queries and keys: attention is no average over all tokens."""


def llama(
    net: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    layers: int,
    hidden: int,
    heads: int,
    groups: int,
    wide: int,
    past: int,
    room: int,
) -> None:
    """Appends decoder layers and the last normalization on hidden states (batch, sequence,
    hidden); ``groups`` key and value heads serve ``heads`` query heads, ``wide`` is the width of
    the feed-forward layers, ``past`` the number of tokens whose keys and values are given. With
    ``room`` the caches have so many rows, of which the first `used` are in use: one network for
    any number of tokens, spelled with GroupQueryAttention."""
    if hidden % heads or hidden // heads % 2:
        raise ZooError(f"{net.graph.name}: hidden={hidden} gives heads={heads} no even width")
    if heads % groups:
        raise ZooError(f"{net.graph.name}: heads={heads} is not a multiple of groups={groups}")
    x = net.input("hidden_states", (batch, sequence, hidden))
    if room and (past or room < sequence):
        raise ZooError(
            f"{net.graph.name}: room={room} is for all tokens, and past={past} is then 0"
        )
    turn = _turn(net, past, room or sequence, hidden // heads, halves=1 if room else 2)
    mask = _causal(net, past, sequence) if sequence > 1 and not room else None
    if room:
        net.input("used", (batch,), TensorProto.INT32)
        net.input("total", (1,), TensorProto.INT32)
        net.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    for index in range(layers):
        name = f"layers.{index}"
        y = _rms_norm(net, f"{name}.input_norm", x)
        shape = (batch, groups, room or past, hidden // heads)
        caches = [_Cache(index, kind, shape) for kind in ("key", "value")]
        if room:
            y = _fused_attention(net, f"{name}.attention", y, heads, caches, turn)
        else:
            y = _grouped_attention(net, f"{name}.attention", y, heads, caches, turn, mask)
        x = net.add(f"{name}.attention.add", x, y)
        y = _rms_norm(net, f"{name}.mlp_norm", x)
        x = net.add(f"{name}.mlp.add", x, _gated(net, f"{name}.mlp", y, wide))
    net.output("last_hidden_state", _rms_norm(net, "norm", x))


def _rms_norm(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """Division by the root of the mean square over the last axis, and a scale."""
    (square,) = net.node("Pow", f"{name}.square", [x.name, net.scalar(2.0)])
    (mean,) = net.node("ReduceMean", f"{name}.mean", [square], axes=[-1], keepdims=1)
    (safe,) = net.node("Add", f"{name}.safe", [mean, net.scalar(1e-5)])
    (root,) = net.node("Sqrt", f"{name}.root", [safe])
    (whole,) = net.node("Reciprocal", f"{name}.reciprocal", [root])
    (normed,) = net.node("Mul", f"{name}.normed", [x.name, whole])
    weight = net.parameter(f"{name}.weight", net.uniform(x.shape[-1], 0.8, 1.2))
    net.node("Mul", name, [normed, weight])
    return ZooTensor(name, x.shape, Moments.standard(x.shape[-1]))


def _projected(
    net: NetworkBuilder, name: str, x: ZooTensor, features: int, gain: float = 1.0
) -> ZooTensor:
    """MatMul without a bias; unit-variance input gives a standard deviation of ``gain``."""
    given = x.shape[-1]
    weight = net.normal((given, features), gain / math.sqrt(given))
    net.node("MatMul", name, [x.name, net.parameter(f"{name}.weight", weight)])
    moments = Moments.standard(features).scaled(gain)
    return ZooTensor(name, (*x.shape[:-1], features), moments)


def _by_head(
    net: NetworkBuilder, name: str, x: ZooTensor, heads: int, width: int, gain: float
) -> str:
    """(batch, tokens, hidden) -> (batch, heads, tokens, width)."""
    batch, tokens, _ = x.shape
    y = _projected(net, name, x, heads * width, gain)
    shape = net.integers([batch, tokens, heads, width])
    (split,) = net.node("Reshape", f"{name}.split", [y.name, shape])
    return net.node("Transpose", f"{name}.heads", [split], perm=[0, 2, 1, 3])[0]


def _positions(net: NetworkBuilder, name: str, first: int, end: int, axis: int) -> str:
    """first .. end - 1 along the axis of a matrix that `axis` leaves."""
    given = [net.constant(np.array(value, np.float32)) for value in (first, end, 1)]
    (places,) = net.node("Range", f"{name}.places", given)
    return net.node("Unsqueeze", f"{name}.positions", [places, net.integers([axis])])[0]


def _causal(net: NetworkBuilder, past: int, sequence: int) -> str:
    """(sequence, past + sequence) of zeros, and of a large negative number after each token."""
    end = past + sequence
    late = [_positions(net, "keys", 0, end, 0), _positions(net, "queries", past, end, 1)]
    (future,) = net.node("Greater", "mask.future", late)
    return net.node("Where", "mask", [future, net.scalar(_MASKED), net.scalar(0.0)])[0]


def _turn(
    net: NetworkBuilder, past: int, sequence: int, width: int, halves: int = 2
) -> tuple[str, str]:
    """Cosines and sines of rotary positions from `past` on, (sequence, width) each, or of one half
    of the width."""
    waves = (_BASE ** (-np.arange(0, width, 2) / width)).astype(np.float32)
    places = _positions(net, "rotary", past, past + sequence, 1)
    (half,) = net.node("Mul", "rotary.half", [places, net.parameter("rotary.waves", waves)])
    (angles,) = net.node("Concat", "rotary.angles", [half] * halves, axis=-1)
    cosine, sine = (net.node(kind, f"rotary.{kind}", [angles])[0] for kind in ("Cos", "Sin"))
    return cosine, sine


def _rotated(net: NetworkBuilder, name: str, x: str, width: int, turn: tuple[str, str]) -> str:
    """Pairs of the last axis, half of it apart, turned by their position's angle."""
    cosine, sine = turn
    ends = [0, width // 2, np.iinfo(np.int64).max]
    low, high = (
        net.node("Slice", f"{name}.half{part}", [x, *map(net.integers, ([start], [end], [3]))])[0]
        for part, (start, end) in enumerate(pairwise(ends))
    )
    (negative,) = net.node("Neg", f"{name}.negative", [high])
    (crossed,) = net.node("Concat", f"{name}.crossed", [negative, low], axis=-1)
    (straight,) = net.node("Mul", f"{name}.cos", [x, cosine])
    (across,) = net.node("Mul", f"{name}.sin", [crossed, sine])
    return net.node("Add", f"{name}.rotated", [straight, across])[0]


def _repeated(
    net: NetworkBuilder, name: str, x: str, shape: tuple[int, int, int, int], times: int
) -> str:
    """Each head of (batch, groups, tokens, width), `times` in a row."""
    if times == 1:
        return x
    batch, groups, tokens, width = shape
    (apart,) = net.node("Unsqueeze", f"{name}.apart", [x, net.integers([2])])
    many = net.integers([batch, groups, times, tokens, width])
    (expanded,) = net.node("Expand", f"{name}.expanded", [apart, many])
    flat = net.integers([batch, groups * times, tokens, width])
    return net.node("Reshape", f"{name}.repeated", [expanded, flat])[0]


@dataclass(frozen=True)
class _Cache:
    """Keys or values of one layer, of all tokens so far."""

    layer: int
    kind: str
    shape: tuple[int, int, int, int]
    """(batch, groups, tokens that are given, width)."""

    def grown(
        self, net: NetworkBuilder, new: str, tokens: int
    ) -> tuple[str, tuple[int, int, int, int]]:
        """What is given and behind it `new`, those of `tokens` more; and their shape."""
        batch, groups, past, width = self.shape
        shape = batch, groups, past + tokens, width
        if not past:
            return new, shape
        name = net.node("Concat", self.present, [self.add_past_input(net), new], axis=2)[0]
        net.output(name, ZooTensor(name, shape, Moments.standard(width)))
        return name, shape

    @property
    def present(self) -> str:
        return f"present.{self.layer}.{self.kind}"

    def add_past_input(self, net: NetworkBuilder) -> str:
        """The input."""
        return net.input(f"past_key_values.{self.layer}.{self.kind}", self.shape).name


def _fused_attention(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    heads: int,
    caches: Sequence[_Cache],
    turn: tuple[str, str],
) -> ZooTensor:
    """The same as one operator of ONNX Runtime, on caches with room for all tokens."""
    hidden, groups, width = x.shape[-1], caches[0].shape[1], caches[0].shape[3]
    parts = (("query", heads, _PEAKED), ("key", groups, _PEAKED), ("value", groups, 1.0))
    projected = [_projected(net, f"{name}.{kind}", x, n * width, gain) for kind, n, gain in parts]
    given = [*(part.name for part in projected), *(cache.add_past_input(net) for cache in caches)]
    made = [f"{name}.context", *(cache.present for cache in caches)]
    net.graph.node.append(
        helper.make_node(
            "GroupQueryAttention", [*given, "used", "total", *turn], made, f"{name}.context",
            domain="com.microsoft", num_heads=heads, kv_num_heads=groups, do_rotary=1,
        )
    )  # fmt: skip
    for cache in caches:
        net.output(cache.present, ZooTensor(cache.present, cache.shape, Moments.standard(width)))
    return _projected(net, f"{name}.output", ZooTensor(made[0], x.shape, x.moments), hidden)


def _grouped_attention(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    heads: int,
    caches: Sequence[_Cache],
    turn: tuple[str, str],
    mask: str | None,
) -> ZooTensor:
    """Causal attention, with rotary positions, and its output projection."""
    _, tokens, hidden = x.shape
    width, groups = hidden // heads, caches[0].shape[1]
    query = _by_head(net, f"{name}.query", x, heads, width, _PEAKED)
    key = _by_head(net, f"{name}.key", x, groups, width, _PEAKED)
    value = _by_head(net, f"{name}.value", x, groups, width, 1.0)
    query = _rotated(net, f"{name}.query", query, width, turn)
    key = _rotated(net, f"{name}.key", key, width, turn)
    (key, shape), (value, _) = (
        cache.grown(net, new, tokens) for cache, new in zip(caches, (key, value), strict=True)
    )
    key = _repeated(net, f"{name}.key", key, shape, heads // groups)
    value = _repeated(net, f"{name}.value", value, shape, heads // groups)
    (across,) = net.node("Transpose", f"{name}.key.across", [key], perm=[0, 1, 3, 2])
    (scores,) = net.node("MatMul", f"{name}.scores", [query, across])
    (scaled,) = net.node("Mul", f"{name}.scaled", [scores, net.scalar(width**-0.5)])
    masked = net.node("Add", f"{name}.masked", [scaled, mask])[0] if mask else scaled
    (weights,) = net.node("Softmax", f"{name}.weights", [masked], axis=-1)
    (context,) = net.node("MatMul", f"{name}.context", [weights, value])
    (merged,) = net.node("Transpose", f"{name}.merged", [context], perm=[0, 2, 1, 3])
    (flat,) = net.node("Reshape", f"{name}.flat", [merged, net.integers(x.shape)])
    return _projected(net, f"{name}.output", ZooTensor(flat, x.shape, x.moments), hidden)


def _gated(net: NetworkBuilder, name: str, x: ZooTensor, wide: int) -> ZooTensor:
    """SwiGLU: one wide product gates another, and a third leads back."""
    gate = _projected(net, f"{name}.gate", x, wide)
    up = _projected(net, f"{name}.up", x, wide)
    (sigmoid,) = net.node("Sigmoid", f"{name}.sigmoid", [gate.name])
    (swish,) = net.node("Mul", f"{name}.swish", [gate.name, sigmoid])
    (gated,) = net.node("Mul", f"{name}.gated", [swish, up.name])
    return _projected(net, f"{name}.down", ZooTensor(gated, up.shape, up.moments), x.shape[-1], 2.0)


# GPT-2 (Radford et al. 2019) from token ids to the next token's logits: a whole prompt, or what
# follows behind a cache.

_WORDS = 4.0
"""Standard deviation of logits, which the table of words sets."""


def gpt2(
    net: NetworkBuilder,
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
    x = ZooTensor(embedded, (batch, sequence, hidden), Moments.standard(hidden))
    mask = np.tri(sequence, past + sequence, past, dtype=np.bool_)[np.newaxis, np.newaxis]
    seen = net.constant(mask) if sequence > 1 else None
    for index in range(layers):
        name = f"h.{index}"
        y = layer_norm(net, f"{name}.ln_1", x)
        x = net.add(
            f"{name}.attn.add", x, _masked_attention(net, name, y, heads, index, past, seen)
        )
        y = linear(net, f"{name}.mlp.c_fc", layer_norm(net, f"{name}.ln_2", x), 4 * hidden)
        y = linear(net, f"{name}.mlp.c_proj", _gelu(net, f"{name}.mlp.gelu", y), hidden)
        x = net.add(f"{name}.mlp.add", x, y)
    x = layer_norm(net, "ln_f", x)
    (last,) = net.node("Gather", "last", [x.name, net.constant(np.array(sequence - 1))], axis=1)
    (across,) = net.node("Transpose", "lm_head.weight", [table], perm=[1, 0])
    (logits,) = net.node("MatMul", "lm_head", [last, across])
    net.output("logits", ZooTensor(logits, (batch, vocabulary), Moments.standard(vocabulary)))


def _masked_attention(
    net: NetworkBuilder,
    name: str,
    x: ZooTensor,
    heads: int,
    layer: int,
    past: int,
    seen: str | None,
) -> ZooTensor:
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
    return linear(net, f"{name}.attn.c_proj", ZooTensor(flat, x.shape, x.moments), hidden)


def _grown(net: NetworkBuilder, name: str, new: str, shape: tuple[int, ...], end: int) -> str:
    """Keys or values of the tokens before, (batch, heads, past, width), and behind them ``new``."""
    given = net.input(f"past_key_values.{name}", shape)
    batch, heads, _, width = shape
    (present,) = net.node("Concat", f"present.{name}", [given.name, new], axis=2)
    net.output(present, ZooTensor(present, (batch, heads, end, width), Moments.standard(width)))
    return present


def _gelu(net: NetworkBuilder, name: str, x: ZooTensor) -> ZooTensor:
    """GELU by Tanh of a cubic polynomial."""
    (cube,) = net.node("Pow", f"{name}.cube", [x.name, net.scalar(3.0)])
    (small,) = net.node("Mul", f"{name}.small", [cube, net.scalar(0.044715)])
    (sum_,) = net.node("Add", f"{name}.sum", [x.name, small])
    (scaled,) = net.node("Mul", f"{name}.scaled", [sum_, net.scalar(math.sqrt(2 / math.pi))])
    (tanh,) = net.node("Tanh", f"{name}.tanh", [scaled])
    (shifted,) = net.node("Add", f"{name}.shifted", [tanh, net.scalar(1.0)])
    (half,) = net.node("Mul", f"{name}.half", [x.name, net.scalar(0.5)])
    net.node("Mul", name, [half, shifted])
    return ZooTensor(name, x.shape, x.moments)


# A mixture of experts (Shazeer et al. 2017): the feed-forward layer of Granite 3.0 1B-A400M.

_OUTPUT_GAIN = 4.0
"""Of the last product: a weighted mean over the chosen experts is small."""


def moe(
    net: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    hidden: int,
    wide: int,
    experts: int,
    active: int,
    gathered: int,
) -> None:
    """Appends the layer on normalized hidden states (batch, sequence, hidden): ``active`` of
    ``experts`` gated perceptrons of width ``wide`` for each token. With ``gathered`` the weights
    of the chosen experts are gathered, else all experts compute all tokens."""
    if active > experts:
        raise ZooError(f"{net.graph.name}: active={active} is over experts={experts}")
    x = net.input("hidden_states", (batch, sequence, hidden))
    tokens = batch * sequence
    (flat,) = net.node("Reshape", "tokens", [x.name, net.integers([tokens, hidden])])
    router = net.parameter("router.weight", net.normal((hidden, experts), 1 / math.sqrt(hidden)))
    (logits,) = net.node("MatMul", "router", [flat, router])
    best, chosen = net.node("TopK", "chosen", [logits, net.integers([active])], 2, axis=-1)
    (gates,) = net.node("Softmax", "gates", [best], axis=-1)
    weights = _expert_weights(net, experts, hidden, wide)
    if gathered:
        mixed = _gathered(net, flat, chosen, gates, weights, (tokens, active, hidden))
    else:
        mixed = _dense(net, flat, chosen, gates, weights, (tokens, experts))
    (y,) = net.node("Reshape", "mixed.shaped", [mixed, net.integers(x.shape)])
    net.output("output", ZooTensor(y, x.shape, Moments.standard(hidden)))


def _expert_weights(net: NetworkBuilder, experts: int, hidden: int, wide: int) -> dict[str, str]:
    """Of all experts: (experts, inputs, outputs) of the gate, of what is gated, and of the way
    back."""
    shapes = {"gate": (hidden, wide, 1.0), "up": (hidden, wide, 1.0)}
    shapes["down"] = (wide, hidden, _OUTPUT_GAIN)
    return {
        kind: net.parameter(
            f"experts.{kind}", net.normal((experts, given, made), gain / math.sqrt(given))
        )
        for kind, (given, made, gain) in shapes.items()
    }


def _dense(
    net: NetworkBuilder,
    x: str,
    chosen: str,
    gates: str,
    weights: dict[str, str],
    shape: tuple[int, int],
) -> str:
    """All experts on all tokens, times gates (tokens, experts) that are mostly zero."""
    (none,) = net.node("ConstantOfShape", "gates.none", [net.integers(shape)])
    (spread,) = net.node("ScatterElements", "gates.spread", [none, chosen, gates], axis=1)
    (turned,) = net.node("Transpose", "gates.turned", [spread], perm=[1, 0])
    (column,) = net.node("Unsqueeze", "gates.column", [turned, net.integers([2])])
    y = _perceptrons(net, x, weights)
    (gated,) = net.node("Mul", "gated", [y, column])
    return net.node("ReduceSum", "mixed", [gated, net.integers([0])], keepdims=0)[0]


def _gathered(
    net: NetworkBuilder,
    x: str,
    chosen: str,
    gates: str,
    weights: dict[str, str],
    shape: tuple[int, int, int],
) -> str:
    """Each token's experts alone: weights (tokens, active, inputs, outputs) by Gather."""
    tokens, active, hidden = shape
    mine = {
        kind: net.node("Gather", f"experts.{kind}.chosen", [weight, chosen], axis=0)[0]
        for kind, weight in weights.items()
    }
    (apart,) = net.node("Reshape", "tokens.apart", [x, net.integers([tokens, 1, 1, hidden])])
    y = _perceptrons(net, apart, mine)
    column = net.integers([tokens, active, 1, 1])
    (scales,) = net.node("Reshape", "gates.column", [gates, column])
    (gated,) = net.node("Mul", "gated", [y, scales])
    return net.node("ReduceSum", "mixed", [gated, net.integers([1, 2])], keepdims=0)[0]


def _perceptrons(net: NetworkBuilder, x: str, weights: dict[str, str]) -> str:
    """SwiGLU with whole stacks of weights."""
    gate, up = (
        net.node("MatMul", f"experts.{kind}.product", [x, weights[kind]])[0]
        for kind in ("gate", "up")
    )
    (sigmoid,) = net.node("Sigmoid", "experts.sigmoid", [gate])
    (swish,) = net.node("Mul", "experts.swish", [gate, sigmoid])
    (inner,) = net.node("Mul", "experts.inner", [swish, up])
    return net.node("MatMul", "experts.down.product", [inner, weights["down"]])[0]

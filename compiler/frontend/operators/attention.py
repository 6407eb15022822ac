"""ONNX Runtime's attentions and rotary positions, written in standard operators.

The one idea: whatever the operator, there are queries, keys and values by head, scores between
them, a bias that says what is not to be seen, and a cache in front of the new keys and values.
Query heads that share a key head are rows of one product, so that no key is copied for each.

A cache is grown or filled. Where it is as long as what it holds, what is new stands behind it:
`present = Concat(past, new)`. Where it has room (a buffer of fixed capacity), the new rows take the
places behind the ones in use, whose number is known when the program runs. Few rows are written
alone; behind them stays what is there, as in ONNX Runtime's one buffer for past and present. A
longer prompt makes the whole cache, and 0 behind, as ONNX Runtime does with two buffers.

What is asked for and is not here (a smooth softmax, quantized caches, packed sequences) stays what
it is, for the host to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from compiler.frontend.operators.body import Body, Contradicted, Tensor
from compiler.frontend.operators.definitions import rewrite_of
from compiler.frontend.operators.positions import INDEX, ramp
from compiler.frontend.rewrite import (
    MICROSOFT,
    GraphPass,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    required,
    static_shape,
)

Results = tuple[ir.Value | None, ...]
Expansion = Callable[[ir.Node, Rewriter], Results | None]
HIDDEN = float(np.finfo(np.float32).min)
"""Added to scores of what a query may not see; in narrower types the least that they hold."""


@dataclass(frozen=True)
class DecomposeAttention(GraphPass):
    """GroupQueryAttention, MultiHeadAttention, Attention and RotaryEmbedding of com.microsoft.

       y, present_key, present_value = GroupQueryAttention(q, k, v, past_key, past_value, ..)
    =>
       present_key = Concat(past_key, k); present_value = Concat(past_value, v)
       s = MatMul(q, Transpose(present_key)); w = Softmax(s * scale); y = MatMul(w, present_value)
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one operator, unless it has something that standard operators do not say."""
        expand = EXPANSIONS.get(node.op_type) if node.domain == MICROSOFT else None
        if expand is None:
            return False
        made = expand(node, Rewriter(node))
        if made is None:
            return False
        wanted = [out.uses() or out.is_graph_output() for out in node.outputs[len(made) :]]
        if any(wanted):
            return False
        Rewriter(node).replace(*made)
        return True


# Shapes and positions.


def _reshape(make: Rewriter, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    return x if static_shape(x) == tuple(shape) else make.op("Reshape", [x, make.axes(shape)])


def _transpose(make: Rewriter, x: ir.Value, perm: Sequence[int]) -> ir.Value:
    return make.op("Transpose", [x], {"perm": list(perm)})


def _slice(make: Rewriter, x: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    if (start, end) == (0, static_shape(x)[axis]):
        return x
    return make.op("Slice", [x, *(make.axes([n]) for n in (start, end, axis))])


def _by_head(make: Rewriter, x: ir.Value, heads: int) -> ir.Value:
    """[batch, tokens, hidden] -> [batch, heads, tokens, width]."""
    batch, tokens, hidden = static_shape(x)
    split = _reshape(make, x, (batch, tokens, heads, hidden // heads))
    return _transpose(make, split, (0, 2, 1, 3))


def _merge_heads(make: Rewriter, x: ir.Value) -> ir.Value:
    """[batch, heads, tokens, width] -> [batch, tokens, hidden]."""
    batch, heads, tokens, width = static_shape(x)
    return _reshape(make, _transpose(make, x, (0, 2, 1, 3)), (batch, tokens, heads * width))


def _integer(make: Rewriter, x: ir.Value) -> ir.Value:
    return x if x.dtype == INDEX else make.op("Cast", [x], {"to": int(INDEX)})


# Rotary positions.


def _turned(
    make: Rewriter, x: ir.Value, cosine: ir.Value, sine: ir.Value, interleaved: bool
) -> ir.Value:
    """Pairs of the last axis of [batch, heads, tokens, width] turned by angles of [batch or 1, 1,
    tokens, half of the width that is turned]; the rest of the width stays."""
    *outer, width = static_shape(x)
    half = static_shape(cosine)[-1]
    turned = _slice(make, x, 3, 0, 2 * half)
    if interleaved:
        pairs = _reshape(make, turned, (*outer, half, 2))
        left, right = (
            _reshape(make, _slice(make, pairs, 4, n, n + 1), (*outer, half)) for n in (0, 1)
        )
    else:
        left, right = (_slice(make, turned, 3, n * half, (n + 1) * half) for n in (0, 1))
    low = make.op("Sub", [make.op("Mul", [left, cosine]), make.op("Mul", [right, sine])])
    high = make.op("Add", [make.op("Mul", [right, cosine]), make.op("Mul", [left, sine])])
    if interleaved:
        apart = [_reshape(make, part, (*outer, half, 1)) for part in (low, high)]
        whole = _reshape(make, make.op("Concat", apart, {"axis": 4}), (*outer, 2 * half))
    else:
        whole = make.op("Concat", [low, high], {"axis": 3})
    if 2 * half == width:
        return whole
    return make.op("Concat", [whole, _slice(make, x, 3, 2 * half, width)], {"axis": 3})


def _angles(make: Rewriter, table: ir.Value, places: ir.Value) -> ir.Value:
    """Rows of `table` at positions [batch or 1, tokens], as [batch or 1, 1, tokens, half]."""
    rows = make.op("Gather", [table, places], {"axis": 0})
    batch, tokens, half = static_shape(rows)
    return _reshape(make, rows, (batch, 1, tokens, half))


def _rotary(node: ir.Node, make: Rewriter) -> Results | None:
    x, places = required(node, 0), required(node, 1)
    tables = required(node, 2), required(node, 3)
    half = static_shape(tables[0])[-1]
    shape = static_shape(x)
    if int_attr(node, "is_packed_batching", 0) or len(shape) not in (3, 4):
        return None
    if float_attr(node, "scale", 1.0) != 1.0:
        return None
    heads = int_attr(node, "num_heads", 0) or shape[-1] // (2 * half)
    apart = x if len(shape) == 4 else _by_head(make, x, heads)
    tokens = static_shape(apart)[2]
    if len(static_shape(places)) == 1:
        more = make.constant(np.arange(tokens).reshape(1, tokens), places.dtype)
        places = make.op("Add", [_reshape(make, places, (1, 1)), more])
    cosine, sine = (_angles(make, table, places) for table in tables)
    made = _turned(make, apart, cosine, sine, bool(int_attr(node, "interleaved", 0)))
    return (made if len(shape) == 4 else _merge_heads(make, made),)


# Products.


@dataclass(frozen=True)
class _Scores:
    """How scores become weights."""

    scale: float
    bias: tuple[ir.Value, ...] = ()
    """What is added, broadcast over [batch, heads, tokens, all tokens]."""
    cap: float = 0.0


def _attended(
    make: Rewriter, query: ir.Value, key: ir.Value, value: ir.Value, scores: _Scores
) -> ir.Value:
    """[batch, heads, tokens, width of values] from queries, keys and values by head, of which there
    may be fewer for keys and values."""
    batch, heads, tokens, width = static_shape(query)
    _, groups, total, wide = static_shape(value)
    rows = heads // groups * tokens
    query = _reshape(make, query, (batch, groups, rows, width))
    found = make.op("MatMul", [query, _transpose(make, key, (0, 1, 3, 2))])
    found = make.op("Mul", [found, make.like(np.asarray(scores.scale), found)])
    if scores.cap:
        cap = make.like(np.asarray(scores.cap), found)
        found = make.op("Mul", [make.op("Tanh", [make.op("Div", [found, cap])]), cap])
    found = _reshape(make, found, (batch, heads, tokens, total))
    for bias in scores.bias:
        found = make.op("Add", [found, bias])
    weights = make.op("Softmax", [found], {"axis": 3})
    weights = _reshape(make, weights, (batch, groups, rows, total))
    made = make.op("MatMul", [weights, value])
    return _reshape(make, made, (batch, heads, tokens, wide))


def _scale(node: ir.Node, width: int) -> float:
    return float_attr(node, "scale", 0.0) or 1 / math.sqrt(width)


def _bias(make: Rewriter, seen: ir.Value, like: ir.Value, hidden: float = HIDDEN) -> ir.Value:
    """0 where something is seen, a large negative number elsewhere."""
    zero, least = (make.like(np.asarray(number), like) for number in (0.0, hidden))
    return make.op("Where", [seen, zero, least])


# Grouped heads with a cache.


_SCATTERED_SINCE = 24
"""The operator set that has TensorScatter."""
COMPARED = 8
"""New rows of a TensorScatter that are compared with every place where no engine takes a list of
rows, at most; with more it is the host's."""


@dataclass(frozen=True)
class _Filling:
    """How many tokens a cache holds, for each sequence."""

    begin: ir.Value
    """Tokens before the new ones: int32 [batch, 1, 1, 1]."""
    known: int | None
    """The same for all, where it is known while the program is made."""
    tokens: int
    room: int
    rows: ir.Value | None = None
    """Where the new rows begin, as TensorScatter has it: int64 [batch]. None: all are written."""

    def appended(self, make: Rewriter, past: ir.Value | None, new: ir.Value) -> ir.Value:
        """The cache with the new rows, and 0 behind them."""
        batch, heads, tokens, width = static_shape(new)
        if self.known is not None:
            parts = [] if past is None or not self.known else [_slice(make, past, 2, 0, self.known)]
            parts.append(new)
            rest = self.room - self.known - tokens
            if rest:
                parts.append(make.like(np.zeros((batch, heads, rest, width)), new))
            return parts[0] if len(parts) == 1 else make.op("Concat", parts, {"axis": 2})
        assert past is not None
        if self.rows is not None:
            return make.op("TensorScatter", [past, new, self.rows], {"axis": 2})
        places = ramp(make, self.room, 2, 4, INDEX)
        nothing = make.like(np.zeros(()), new)
        kept = make.op("Where", [make.op("Less", [places, self.begin]), past, nothing])
        step = np.arange(self.room)[:, None] - np.arange(tokens)
        here = make.op("Equal", [make.constant(step[None, None], INDEX), self.begin])
        chosen = make.op("Cast", [here], {"to": int(new.dtype or ir.DataType.FLOAT)})
        spread = make.op("Expand", [chosen, make.axes((batch, heads, self.room, tokens))])
        return make.op("Add", [kept, make.op("MatMul", [spread, new])])

    def visibility_mask(self, make: Rewriter, window: int) -> ir.Value:
        """Which of all tokens each new one may see: [batch, 1, tokens, room]."""
        place = np.arange(self.room)
        behind = make.constant((place - np.arange(self.tokens)[:, None])[None, None], INDEX)
        found = make.op("LessOrEqual", [behind, self.begin])
        if window > 0:
            edge = make.op("Sub", [self.begin, make.constant(np.asarray(window), INDEX)])
            found = make.op("And", [found, make.op("Greater", [behind, edge])])
        return found

    def places(self, make: Rewriter, batch: int) -> ir.Value:
        """Positions of the new tokens: int32 [batch, tokens]."""
        more = make.constant(np.arange(self.tokens).reshape(1, -1), INDEX)
        return make.op("Add", [_reshape(make, self.begin, (batch, 1)), more])


def _filling(
    node: ir.Node, make: Rewriter, past: ir.Value | None, shape: tuple[int, ...]
) -> _Filling:
    """From the lengths that a GroupQueryAttention is given, less one; `shape` of its new keys."""
    batch, _, tokens, _ = shape
    room = static_shape(node.outputs[1])[2]
    before = 0 if past is None else static_shape(past)[2]
    lengths = const(required(node, 5))
    known: int | None = None
    if past is None:
        known = 0
    elif lengths is not None and len(set(lengths.ravel().tolist())) == 1:
        known = max(int(lengths.ravel()[0]) + 1 - tokens, 0)
    elif room > before and batch == 1:
        known = before  # a cache that grows is full
    if known is not None:
        begin = make.constant(np.full((batch, 1, 1, 1), known), INDEX)
        return _Filling(begin, known, tokens, room)
    given = _reshape(make, _integer(make, required(node, 5)), (batch, 1, 1, 1))
    begin = given
    if tokens > 1:  # a prompt that is filled up to the others' length begins at 0
        begin = make.op("Add", [given, make.constant(np.asarray(1 - tokens), INDEX)])
        begin = make.op("Max", [begin, make.constant(np.asarray(0), INDEX)])
    if tokens > COMPARED:
        return _Filling(begin, None, tokens, room)
    imports = make.graph.opset_imports
    imports[""] = max(imports[""], _SCATTERED_SINCE)
    places = _reshape(make, begin, (batch,))
    rows = make.op("Cast", [places], {"to": int(ir.DataType.INT64)})
    return _Filling(begin, None, tokens, room, rows)


_OPTIONS = ("smooth_softmax", "qk_output", "kv_cache_bit_width")


def _grouped(node: ir.Node, make: Rewriter) -> Results | None:
    """GroupQueryAttention: the result, and the caches with the new rows."""
    if any(int_attr(node, name, 0) > 0 for name in _OPTIONS):
        return None
    if any(value is not None for value in node.inputs[11:]) or len(node.outputs) < 3:
        return None
    query, heads = required(node, 0), int_attr(node, "num_heads", 0)
    groups = int_attr(node, "kv_num_heads", 0)
    key, value = input_of(node, 1), input_of(node, 2)
    if key is None or value is None:
        width = static_shape(query)[-1] // (heads + 2 * groups)
        ends = [0, heads * width, (heads + groups) * width, (heads + 2 * groups) * width]
        query, key, value = (_slice(make, query, 2, a, b) for a, b in pairwise(ends))
    query, key, value = (
        _by_head(make, x, n) for x, n in ((query, heads), (key, groups), (value, groups))
    )
    past = input_of(node, 3), input_of(node, 4)
    filling = _filling(node, make, past[0], static_shape(key))
    if filling.room < filling.tokens or (past[0] is None and filling.room > filling.tokens):
        return None
    batch, _, _, width = static_shape(query)
    if int_attr(node, "do_rotary", 0):
        places = input_of(node, 9) or filling.places(make, batch)
        cosine, sine = (_angles(make, required(node, i), places) for i in (7, 8))
        mixed = bool(int_attr(node, "rotary_interleaved", 0))
        query, key = (_turned(make, x, cosine, sine, mixed) for x in (query, key))
    key, value = (
        filling.appended(make, old, new) for old, new in zip(past, (key, value), strict=True)
    )
    window, last = int_attr(node, "local_window_size", -1), filling.known == filling.room - 1
    bias = (
        [] if last and window < 0 else [_bias(make, filling.visibility_mask(make, window), query)]
    )
    more = input_of(node, 10)
    if more is not None:
        if static_shape(more)[-1] != filling.room:
            return None
        bias.append(more)
    scores = _Scores(_scale(node, width), tuple(bias), float_attr(node, "softcap", 0.0))
    return _merge_heads(make, _attended(make, query, key, value, scores)), key, value


# Every head with keys of its own.


def _append_to_cache(make: Rewriter, past: ir.Value | None, new: ir.Value) -> ir.Value:
    return new if past is None else make.op("Concat", [past, new], {"axis": 2})


def _causal(make: Rewriter, tokens: int, total: int, like: ir.Value) -> ir.Value:
    """The bias of tokens that see none behind themselves, the last of `total`."""
    late = np.arange(total) > np.arange(total - tokens, total)[:, None]
    return make.like(np.where(late, HIDDEN, 0.0)[None, None], like)


def _padding(
    make: Rewriter, node: ir.Node, mask: ir.Value, total: int, like: ir.Value
) -> ir.Value | None:
    """The bias of a mask over all tokens of each sequence; None where it says otherwise."""
    shape = static_shape(mask)
    if len(shape) not in (2, 3, 4) or shape[-1] != total:
        return None
    axes = {2: (shape[0], 1, 1, total), 3: (shape[0], 1, *shape[1:]), 4: shape}
    whole = _reshape(make, _integer(make, mask), axes[len(shape)])
    seen = make.op("Greater", [whole, make.constant(np.asarray(0), INDEX)])
    return _bias(make, seen, like, float_attr(node, "mask_filter_value", -10000.0))


def _weighed(
    node: ir.Node, make: Rewriter, parts: Sequence[ir.Value],
    mask: ir.Value | None, more: ir.Value | None,
) -> ir.Value | None:  # fmt: skip
    """The result of queries, keys and values by head, masked and biased."""
    query, key, value = parts
    tokens, width = static_shape(query)[2:]
    total = static_shape(key)[2]
    bias = [] if more is None else [more]
    if mask is not None:
        padding = _padding(make, node, mask, total, query)
        if padding is None:
            return None
        bias.append(padding)
    if int_attr(node, "unidirectional", 0):
        bias.append(_causal(make, tokens, total, query))
    made = _attended(make, query, key, value, _Scores(_scale(node, width), tuple(bias)))
    return _merge_heads(make, made)


def _multi_head(node: ir.Node, make: Rewriter) -> Results | None:
    """MultiHeadAttention: the result, and the caches with the new rows."""
    given = [input_of(node, i) for i in (0, 1, 2)]
    parts = [x for x in given if x is not None and len(static_shape(x)) == 3]
    if len(parts) < 3 or any(value is not None for value in node.inputs[8:]):
        return None
    bias = input_of(node, 3)
    if bias is not None:
        ends = np.cumsum([0, *(static_shape(x)[2] for x in parts)]).tolist()
        parts = [
            make.op("Add", [x, _slice(make, bias, 0, a, b)])
            for x, (a, b) in zip(parts, pairwise(ends), strict=True)
        ]
    heads = int_attr(node, "num_heads", 0)
    query, key, value = (_by_head(make, x, heads) for x in parts)
    key, value = (
        _append_to_cache(make, input_of(node, 6), key),
        _append_to_cache(make, input_of(node, 7), value),
    )
    made = _weighed(node, make, (query, key, value), input_of(node, 4), input_of(node, 5))
    return None if made is None else (made, key, value)


def _self_attention(node: ir.Node, make: Rewriter) -> Results | None:
    """Attention: the projection to queries, keys and values with it; the result and the cache."""
    x, weights, bias = required(node, 0), required(node, 1), input_of(node, 2)
    special = ("do_rotary", "past_present_share_buffer")
    if any(int_attr(node, name, 0) for name in special) or input_of(node, 6) is not None:
        return None
    wide = static_shape(weights)[1]
    sizes = node.attributes.get("qkv_hidden_sizes")
    ends = np.cumsum([0, *(sizes.as_ints() if sizes else [wide // 3] * 3)]).tolist()
    made = make.op("MatMul", [x, weights])
    made = made if bias is None else make.op("Add", [made, bias])
    heads = int_attr(node, "num_heads", 0)
    query, key, value = (
        _by_head(make, _slice(make, made, 2, a, b), heads) for a, b in pairwise(ends)
    )
    past = input_of(node, 4)
    if past is not None:
        shape = static_shape(past)[1:]
        halves = (_reshape(make, _slice(make, past, 0, n, n + 1), shape) for n in (0, 1))
        key, value = (
            _append_to_cache(make, p, n) for p, n in zip(halves, (key, value), strict=True)
        )
    result = _weighed(node, make, (query, key, value), input_of(node, 3), input_of(node, 5))
    if result is None:
        return None
    if len(node.outputs) < 2 or not (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
        return (result,)
    both = [_reshape(make, x, (1, *static_shape(x))) for x in (key, value)]
    return result, make.op("Concat", both, {"axis": 0})


EXPANSIONS: dict[str, Expansion] = {
    "Attention": _self_attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _multi_head,
    "RotaryEmbedding": _rotary,
}


# LinearAttention as a scan over the tokens: a state instead of a cache.

Array = NDArray[Any]

RULES = {"linear": (), "gated": ("decay",), "delta": ("beta",), "gated_delta": ("decay", "beta")}
"""Update rule -> the inputs that it reads beside queries, keys and values."""


def in_numpy(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    **hints: object,
) -> tuple[Array, Array]:
    """The recurrence as it is defined, token by token and head by head."""
    del hints, update_rule  # the inputs say which rule it is
    batch, steps, width = query.shape
    keys, values = width // q_num_heads, value.shape[2] // kv_num_heads
    state = np.zeros((batch, kv_num_heads, keys, values), np.float32)
    if past_state is not None:
        state = past_state.astype(np.float32)
    given = {
        "q": query.reshape(batch, steps, q_num_heads, keys),
        "k": key.reshape(batch, steps, kv_num_heads, keys, 1),
        "v": value.reshape(batch, steps, kv_num_heads, 1, values),
    }
    q, k, v = (each.astype(np.float32) for each in given.values())
    made = []
    for step in range(steps):
        if decay is not None:
            gate = decay[:, step].astype(np.float32).reshape(batch, kv_num_heads, -1, 1)
            state = np.exp(gate) * state
        new = v[:, step]
        if beta is not None:
            rate = beta[:, step].astype(np.float32).reshape(batch, -1, 1, 1)
            new = rate * (new - (state * k[:, step]).sum(axis=2, keepdims=True))
        state = state + k[:, step] * new
        shared = np.repeat(state, q_num_heads // kv_num_heads, axis=1)
        made.append((q[:, step, :, :, None] * shared).sum(axis=2))
    y = np.stack(made, axis=1).reshape(batch, steps, -1) * (scale or 1 / sqrt(keys))
    kind = query.dtype if past_state is None else past_state.dtype
    return y.astype(query.dtype), state.astype(kind)


@rewrite_of("", "LinearAttention", in_numpy)
def linear_attention(
    b: Body,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int = 64,
) -> tuple[Tensor, Tensor]:
    """Of [batch, tokens, heads * size]: the same of the values, and the last state."""
    del chunk_size  # how others cut it
    _check_rule(query, (decay, beta), update_rule, q_num_heads, kv_num_heads)
    batch, steps, width = query.shape
    heads, keys, values = kv_num_heads, width // q_num_heads, value.shape[2] // kv_num_heads
    group = q_num_heads // kv_num_heads

    def tokens(x: Tensor, *shape: int) -> Tensor:
        """[tokens, batch, ...] in fp32."""
        first = b.one("Transpose", b.one("Cast", x, to=np.float32), perm=[1, 0, 2])
        return b.reshape(first, (steps, batch, *shape))

    over = [tokens(query, heads, group, keys), tokens(key, heads, 1, keys),
            tokens(value, heads, 1, values)]  # fmt: skip
    if decay is not None:
        over.append(tokens(decay, heads, decay.shape[2] // heads, 1))
    if beta is not None:
        over.append(tokens(beta, beta.shape[2], 1, 1))
    factor = scale or 1 / sqrt(keys)

    def step(state: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Tensor) -> Any:
        gates = [*rest]
        if decay is not None:
            state = state * b.one("Exp", gates.pop(0))
        if beta is not None:
            v = gates.pop() * (v - k @ state)
        after = state + b.one("Transpose", k, perm=[0, 1, 3, 2]) * v
        return [after], [(q @ after) * factor]

    start = b.constant(np.zeros((batch, heads, keys, values)), np.float32)
    if past_state is not None:
        start = b.one("Cast", past_state, to=np.float32)
    (last,), (made,) = b.scan(step, [start], over)
    y = b.one("Transpose", b.reshape(made, (steps, batch, -1)), perm=[1, 0, 2])
    kind = query.dtype if past_state is None else past_state.dtype
    return b.one("Cast", y, to=query.dtype), b.one("Cast", last, to=kind)


def _check_rule(
    query: Tensor, gates: Sequence[Tensor | None], rule: str, of_query: int, of_key: int
) -> None:
    """Raise Contradicted where heads or inputs do not suit the rule."""
    if rule not in RULES:
        raise Contradicted(f"update_rule {rule!r}, expected one of {', '.join(RULES)}")
    given = [n for n, x in zip(("decay", "beta"), gates, strict=True) if x is not None]
    if given != [*RULES[rule]]:
        raise Contradicted(
            f"update_rule {rule!r} takes {' and '.join(RULES[rule]) or 'neither decay nor beta'}, "
            f"the node has {' and '.join(given) or 'neither'}"
        )
    if min(of_query, of_key) < 1 or of_query % of_key or query.shape[2] % of_query:
        raise Contradicted(
            f"{of_query} query heads for {of_key} heads of keys, rows of {query.shape[2]}"
        )


TABLE = (linear_attention,)

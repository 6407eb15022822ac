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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from compiler.frontend.operators.body import Body, Contradicted, Declined, Tensor
from compiler.frontend.operators.definitions import Decompose, Table, defines
from compiler.frontend.operators.places import INDEX, ramp
from compiler.frontend.rewrite import MICROSOFT, static_shape

ATTENTIONS: Table = {}
HIDDEN = float(np.finfo(np.float32).min)
"""Added to scores of what a query may not see; in narrower types the least that they hold."""


@dataclass(frozen=True)
class DecomposeAttention(Decompose):
    """GroupQueryAttention, MultiHeadAttention, Attention and RotaryEmbedding of com.microsoft.

       y, present_key, present_value = GroupQueryAttention(q, k, v, past_key, past_value, ..)
    =>
       present_key = Concat(past_key, k); present_value = Concat(past_value, v)
       s = MatMul(q, Transpose(present_key)); w = Softmax(s * scale); y = MatMul(w, present_value)
    """

    table: ClassVar[Table] = ATTENTIONS


# Shapes and positions.


def _reshape(b: Body, x: Tensor, *shape: int) -> Tensor:
    return x if x.shape == shape else b.reshape(x, shape)


def _by_head(b: Body, x: Tensor, heads: int) -> Tensor:
    """[batch, tokens, hidden] -> [batch, heads, tokens, width]."""
    batch, tokens, hidden = x.shape
    return b.transpose(_reshape(b, x, batch, tokens, heads, hidden // heads), 0, 2, 1, 3)


def _merge_heads(b: Body, x: Tensor) -> Tensor:
    """[batch, heads, tokens, width] -> [batch, tokens, hidden]."""
    batch, heads, tokens, width = x.shape
    return _reshape(b, b.transpose(x, 0, 2, 1, 3), batch, tokens, heads * width)


def _cut(b: Body, x: Tensor, sizes: Sequence[int], axis: int) -> Iterator[Tensor]:
    """Parts of `x` along `axis`, of these extents, one after another."""
    ends = np.cumsum([0, *sizes]).tolist()
    return (b.slice(x, axis, first, end) for first, end in pairwise(ends))


# Rotary positions.


def _turned(b: Body, x: Tensor, cosine: Tensor, sine: Tensor, interleaved: bool) -> Tensor:
    """Pairs of the last axis of [batch, heads, tokens, width] turned by angles of [batch or 1, 1,
    tokens, half of the width that is turned]; the rest of the width stays."""
    *outer, width = x.shape
    half = cosine.shape[-1]
    turned = b.slice(x, 3, 0, 2 * half)
    if interleaved:
        pairs = _reshape(b, turned, *outer, half, 2)
        left, right = (_reshape(b, part, *outer, half) for part in _cut(b, pairs, (1, 1), 4))
    else:
        left, right = _cut(b, turned, (half, half), 3)
    low, high = left * cosine - right * sine, right * cosine + left * sine
    if interleaved:
        made = _reshape(b, b.stack([low, high], 4), *outer, 2 * half)
    else:
        made = b.concat([low, high], 3)
    return made if 2 * half == width else b.concat([made, b.slice(x, 3, 2 * half, width)], 3)


def _angles(b: Body, table: Tensor, places: Tensor) -> Tensor:
    """Rows of `table` at positions [batch or 1, tokens], as [batch or 1, 1, tokens, half]."""
    rows = b.one("Gather", table, places, axis=0)
    batch, tokens, half = rows.shape
    return _reshape(b, rows, batch, 1, tokens, half)


@defines(ATTENTIONS, "RotaryEmbedding", domain=MICROSOFT, grouped=False)
def rotary(
    b: Body, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor,
    *, interleaved: int = 0, num_heads: int = 0, is_packed_batching: int = 0, scale: float = 1.0,
    **given: Any,
) -> Tensor:  # fmt: skip
    """Rotary positions of [batch, tokens, hidden], or by head."""
    if is_packed_batching or len(x.shape) not in (3, 4) or scale != 1.0:
        raise Declined("its sequences are packed, or its positions scaled")
    heads = num_heads or x.shape[-1] // (2 * cosines.shape[-1])
    apart = x if len(x.shape) == 4 else _by_head(b, x, heads)
    tokens = apart.shape[2]
    if len(places.shape) == 1:
        places = _reshape(b, places, 1, 1) + np.arange(tokens).reshape(1, tokens)
    cosine, sine = (_angles(b, table, places) for table in (cosines, sines))
    made = _turned(b, apart, cosine, sine, bool(interleaved))
    return made if len(x.shape) == 4 else _merge_heads(b, made)


# Products.


def _attended(
    b: Body, parts: Sequence[Tensor], scale: float, biases: Sequence[Tensor], cap: float = 0.0
) -> Tensor:
    """[batch, tokens, hidden] from queries, keys and values by head, of which there may be fewer
    for keys and values.

    Args:
        scale: of the scores; 0: one over the root of the width.
        biases: what is added to scores, broadcast over [batch, heads, tokens, all tokens].
        cap: what scores are limited to, softly; 0: they are not.
    """
    query, key, value = parts
    batch, heads, tokens, width = query.shape
    _, groups, total, wide = value.shape
    rows = heads // groups * tokens
    query = _reshape(b, query, batch, groups, rows, width)
    scores = query @ b.transpose(key, 0, 1, 3, 2) * (scale or 1 / sqrt(width))
    if cap:
        scores = b.one("Tanh", scores / cap) * cap
    scores = _reshape(b, scores, batch, heads, tokens, total)
    for bias in biases:
        scores = scores + bias
    weights = _reshape(b, b.Softmax(scores, axis=3), batch, groups, rows, total)
    return _merge_heads(b, _reshape(b, weights @ value, batch, heads, tokens, wide))


def _bias(b: Body, seen: Tensor, like: Tensor, hidden: float = HIDDEN) -> Tensor:
    """0 where something is seen, a large negative number elsewhere."""
    return b.one("Where", seen, b.constant(0.0, like.dtype), b.constant(hidden, like.dtype))


# Grouped heads with a cache.


_SCATTERED_SINCE = 24
"""The operator set that has TensorScatter."""
COMPARED = 8
"""New rows of a TensorScatter that are compared with every place where no engine takes a list of
rows, at most; with more it is the host's."""


@dataclass(frozen=True)
class _Filling:
    """How many tokens a cache holds, for each sequence."""

    b: Body
    begin: Tensor
    """Tokens before the new ones: int32 [batch, 1, 1, 1]."""
    known: int | None
    """The same for all, where it is known while the program is made."""
    tokens: int
    room: int
    rows: Tensor | None = None
    """Where the new rows begin, as TensorScatter has it: int64 [batch]. None: all are written."""

    def appended(self, past: Tensor | None, new: Tensor) -> Tensor:
        """The cache with the new rows, and 0 behind them."""
        b, (batch, heads, tokens, width) = self.b, new.shape
        if self.known is not None:
            parts = [] if past is None or not self.known else [b.slice(past, 2, 0, self.known)]
            parts.append(new)
            rest = self.room - self.known - tokens
            if rest:
                parts.append(b.constant(np.zeros((batch, heads, rest, width)), new.dtype))
            return b.concat(parts, 2)
        assert past is not None
        if self.rows is not None:
            return b.one("TensorScatter", past, new, self.rows, axis=2)
        kept = b.Where(b.Less(ramp(self.room, 2, 4), self.begin), past, 0.0)
        step = np.arange(self.room)[:, None] - np.arange(tokens)
        chosen = b.cast(b.Equal(step[None, None], self.begin), new.dtype)
        spread = b.one("Expand", chosen, (batch, heads, self.room, tokens))
        return b.one("Add", kept, spread @ new)

    def visibility_mask(self, window: int) -> Tensor:
        """Which of all tokens each new one may see: [batch, 1, tokens, room]."""
        behind = np.arange(self.room) - np.arange(self.tokens)[:, None]
        places = self.b.constant(behind[None, None], INDEX)
        seen = self.b.one("LessOrEqual", places, self.begin)
        if window > 0:
            seen = self.b.one("And", seen, self.b.Greater(places, self.begin - window))
        return seen


def _filling(b: Body, past: Tensor | None, shape: tuple[int, ...], lengths: Tensor) -> _Filling:
    """From the lengths that a GroupQueryAttention is given, less one; `shape` of its new keys."""
    batch, _, tokens, _ = shape
    room = static_shape(b.node.outputs[1])[2]
    before = 0 if past is None else past.shape[2]
    numbers = lengths.value
    known = 0 if past is None else None
    if past is not None and numbers is not None and len(set(numbers.ravel().tolist())) == 1:
        known = max(int(numbers.ravel()[0]) + 1 - tokens, 0)
    elif past is not None and room > before and batch == 1:
        known = before  # a cache that grows is full
    if known is not None:
        begin = b.constant(np.full((batch, 1, 1, 1), known), INDEX)
        return _Filling(b, begin, known, tokens, room)
    begin = _reshape(b, b.cast(lengths, INDEX), batch, 1, 1, 1)
    if tokens > 1:  # a prompt that is filled up to the others' length begins at 0
        begin = b.one("Max", begin + (1 - tokens), 0)
    if tokens > COMPARED:
        return _Filling(b, begin, None, tokens, room)
    imports = b.node.graph.opset_imports  # type: ignore[union-attr]
    imports[""] = max(imports[""], _SCATTERED_SINCE)
    rows = b.cast(_reshape(b, begin, batch), np.int64)
    return _Filling(b, begin, None, tokens, room, rows)


_OPTIONS = ("smooth_softmax", "qk_output", "kv_cache_bit_width")


@defines(ATTENTIONS, "GroupQueryAttention", domain=MICROSOFT, grouped=False)
def grouped_attention(
    b: Body, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None,
    lengths: Tensor | None = None, total: Tensor | None = None, cosines: Tensor | None = None,
    sines: Tensor | None = None, places: Tensor | None = None, bias: Tensor | None = None,
    *more: Tensor | None, num_heads: int, kv_num_heads: int, scale: float = 0.0,
    softcap: float = 0.0, do_rotary: int = 0, rotary_interleaved: int = 0,
    local_window_size: int = -1, **options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The result, and the caches with the new rows."""
    odd = any(options.get(name, 0) > 0 for name in _OPTIONS)
    if odd or any(x is not None for x in more) or len(b.node.outputs) < 3:
        raise Declined("its softmax is smooth, its cache quantized, or it has no cache")
    if lengths is None:
        raise Contradicted("the lengths of its sequences are missing")
    counts = (num_heads, kv_num_heads, kv_num_heads)
    if key is None or value is None:
        width = query.shape[-1] // sum(counts)
        query, key, value = _cut(b, query, [width * count for count in counts], 2)
    pairs = zip((query, key, value), counts, strict=True)
    query, key, value = (_by_head(b, x, count) for x, count in pairs)
    filling = _filling(b, past_key, key.shape, lengths)
    if filling.room < filling.tokens or (past_key is None and filling.room > filling.tokens):
        raise Declined("its cache has another length than its tokens")
    if do_rotary:
        if cosines is None or sines is None:
            raise Contradicted("its tables of cosines and sines are missing")
        new = np.arange(filling.tokens).reshape(1, -1)
        places = places or _reshape(b, filling.begin, query.shape[0], 1) + new
        cosine, sine = (_angles(b, table, places) for table in (cosines, sines))
        query, key = (_turned(b, x, cosine, sine, bool(rotary_interleaved)) for x in (query, key))
    key, value = filling.appended(past_key, key), filling.appended(past_value, value)
    biases = []
    if filling.known != filling.room - 1 or local_window_size >= 0:
        biases.append(_bias(b, filling.visibility_mask(local_window_size), query))
    if bias is not None:
        if bias.shape[-1] != filling.room:
            raise Declined("its bias has another length than its cache")
        biases.append(bias)
    return _attended(b, (query, key, value), scale, biases, softcap), key, value


# Every head with keys of its own.


def _weighed(
    b: Body, parts: Sequence[Tensor], mask: Tensor | None, bias: Tensor | None,
    scale: float = 0.0, unidirectional: int = 0, mask_filter_value: float = -10000.0,
    **given: Any,
) -> Tensor:  # fmt: skip
    """The result of queries, keys and values by head, masked and biased."""
    query, key, _ = parts
    tokens, total = query.shape[2], key.shape[2]
    biases = [] if bias is None else [bias]
    if mask is not None:
        shape = mask.shape
        if len(shape) not in (2, 3, 4) or shape[-1] != total:
            raise Declined("its mask is none over all tokens")
        each = _reshape(b, b.cast(mask, INDEX), shape[0], *(1, 1, *shape[1:-1])[-2:], total)
        biases.append(_bias(b, b.Greater(each, 0), query, mask_filter_value))
    if unidirectional:  # tokens see none behind themselves, the last of `total`
        late = np.arange(total) > np.arange(total - tokens, total)[:, None]
        biases.append(b.constant(np.where(late, HIDDEN, 0.0)[None, None], query.dtype))
    return _attended(b, parts, scale, biases)


@defines(ATTENTIONS, "MultiHeadAttention", domain=MICROSOFT, grouped=False)
def multi_head_attention(
    b: Body, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    bias: Tensor | None = None, mask: Tensor | None = None, added: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None, *more: Tensor | None,
    num_heads: int, **given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The result, and the caches with the new rows."""
    parts = [x for x in (query, key, value) if x is not None and len(x.shape) == 3]
    if len(parts) < 3 or any(x is not None for x in more):
        raise Declined("its queries, keys and values are packed")
    if bias is not None:
        cut = _cut(b, bias, [x.shape[2] for x in parts], 0)
        parts = [x + each for x, each in zip(parts, cut, strict=True)]
    query, key, value = (_by_head(b, x, num_heads) for x in parts)
    pairs = ((past_key, key), (past_value, value))
    key, value = (new if old is None else b.concat([old, new], 2) for old, new in pairs)
    return _weighed(b, (query, key, value), mask, added, **given), key, value


@defines(ATTENTIONS, "Attention", domain=MICROSOFT, grouped=False)
def self_attention(
    b: Body, x: Tensor, weights: Tensor, bias: Tensor | None = None, mask: Tensor | None = None,
    past: Tensor | None = None, added: Tensor | None = None, lengths: Tensor | None = None,
    *, num_heads: int, qkv_hidden_sizes: Sequence[int] = (), do_rotary: int = 0,
    past_present_share_buffer: int = 0, **given: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The projection to queries, keys and values with it; the result and the cache."""
    if do_rotary or past_present_share_buffer or lengths is not None:
        raise Declined("its positions are rotary, or its cache is a buffer")
    made = x @ weights if bias is None else x @ weights + bias
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    query, key, value = (_by_head(b, part, num_heads) for part in _cut(b, made, sizes, 2))
    if past is not None:
        old = (_reshape(b, half, *past.shape[1:]) for half in _cut(b, past, (1, 1), 0))
        key, value = (b.concat(pair, 2) for pair in zip(old, (key, value), strict=True))
    result = _weighed(b, (query, key, value), mask, added, **given)
    cache = b.node.outputs[1:]
    if not any(each.uses() or each.is_graph_output() for each in cache):
        return (result,)
    return result, b.concat([_reshape(b, each, 1, *each.shape) for each in (key, value)], 0)

"""LinearAttention as a scan over the tokens: a state instead of a cache.

    S = exp(g[t]) * S + k[t] (x) beta[t] * (v[t] - S k[t]);   o[t] = scale * S q[t]

The one idea: the state [batch, heads, keys, values] is one matrix per head of keys, and all query
heads that share it are rows of one product with it. It is computed in fp32 whatever the tokens
are, as ONNX has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.graph.body import Body, Contradicted, Tensor
from compiler.graph.operators import rewrite_of

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
    _check(query, (decay, beta), update_rule, q_num_heads, kv_num_heads)
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


def _check(
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

"""TfIdfVectorizer of numbers: every run of a pool, compared with every place of a row.

    count[g] = sum p: x[p] == g[0] and x[p + step] == g[1] and ...

The one idea: runs of one length are rows of a constant, so all of them are compared at once; where
their counts go is a product with a constant of zeros and weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from compiler.graph.body import Body, Contradicted, Declined, Tensor
from compiler.graph.operators import rewrite_of
from compiler.graph.rewrite import Array

LARGEST = 1 << 20
"""Numbers that are compared, at most."""


@rewrite_of("", "TfIdfVectorizer")
def tf_idf_vectorizer(
    b: Body,
    x: Tensor,
    *,
    mode: str,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Tensor:
    """Of a row or of several; the numbers of a run stand up to `max_skip_count` others apart."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Contradicted(f"mode {mode!r}, expected one of TF, IDF, TFIDF")
    if pool_strings:
        raise Declined("its pool is of text")
    if len(set(ngram_indexes)) < len(ngram_indexes):
        raise Declined("several runs are counted in one place")
    rows = b.reshape(x, (1, -1)) if len(x.shape) == 1 else x
    if prod(rows.shape) * len(pool_int64s) * (max_skip_count + 1) > LARGEST:
        raise Declined(f"it compares more than {LARGEST} numbers")
    counts: list[Tensor] = []
    columns: list[int] = []
    first = 0
    for grams in _by_length(pool_int64s, ngram_counts):
        length = grams.shape[1]
        if min_gram_length <= length <= max_gram_length and len(grams):
            skips = range(1, (max_skip_count + 1 if length > 1 else 1) + 1)
            found = [n for n in (_found(b, rows, grams, step) for step in skips) if n is not None]
            counts += found
            columns += [*ngram_indexes[first : first + len(grams)]] * len(found)
        first += len(grams)
    width = max(ngram_indexes) + 1
    made = _placed(b, rows, counts, columns, width, mode == "IDF")
    if weights and mode != "TF":
        factors = np.zeros(width, np.float32)
        factors[[*ngram_indexes]] = weights
        made = made * factors
    return b.reshape(made, made.shape[1:]) if len(x.shape) == 1 else made


def _by_length(pool: Sequence[int], starts: Sequence[int]) -> list[Array]:
    """Runs of each length, from one number on: [count, length]."""
    ends = [*starts[1:], len(pool)]
    found = []
    for length, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        grams = np.asarray(pool[begin:end], np.int64)
        grams = grams[: grams.size // length * length].reshape(-1, length)
        if len(np.unique(grams, axis=0)) < len(grams):
            raise Declined("its pool has a run twice")
        found.append(grams)
    return found


def _found(b: Body, rows: Tensor, grams: Array, step: int) -> Tensor | None:
    """How often each of `grams` stands in each row, `step` apart; None: a row is too short."""
    count, length = grams.shape
    places = rows.shape[1] - (length - 1) * step
    if places < 1:
        return None
    hits = []
    for at in range(length):
        seen = b.one("Slice", rows, [at * step], [at * step + places], [1])
        wanted = b.constant(grams[:, at].reshape(1, 1, count), rows.dtype)
        hits.append(b.one("Equal", b.one("Unsqueeze", seen, [2]), wanted))
    whole = reduce(lambda one, other: b.one("And", one, other), hits)
    return b.one("ReduceSum", b.one("Cast", whole, to=np.float32), [1], keepdims=0)


def _placed(
    b: Body, rows: Tensor, counts: Sequence[Tensor], columns: Sequence[int], width: int, once: bool
) -> Tensor:
    """Counts added up in their columns; `once`: 1 where there is any."""
    if not counts:
        return b.constant(np.zeros((rows.shape[0], width)), np.float32)
    places = np.zeros((len(columns), width), np.float32)
    places[np.arange(len(columns)), columns] = 1
    total = b.one("Concat", *counts, axis=1) @ places
    return b.one("Clip", total, 0.0, 1.0) if once else total


TABLE = (tf_idf_vectorizer,)

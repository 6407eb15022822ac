"""Lazy arrays: shapes and types are known, numbers are made each time they are asked for."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np

from simmodel.arch.dtype import NUMPY
from simmodel.arch.lazy_array import Array, LazyArray, cast, transformed

REAL = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_nothing_is_made_before_somebody_asks_and_nothing_is_kept() -> None:
    made: list[Array] = []

    def make() -> Array:
        made.append(REAL.copy())
        return made[-1]

    lazy = LazyArray(REAL.shape, REAL.dtype, make)
    turned = transformed(cast(lazy, NUMPY["bf16"]), np.transpose)
    part = transformed(turned, partial(np.reshape, shape=-1))
    assert (turned.shape, turned.dtype, turned.nbytes) == ((3, 2), NUMPY["bf16"], 12)
    assert (part.shape, part.ndim, part.size) == ((6,), 1, 6)
    assert not made
    for count in (1, 2):
        assert np.array_equal(np.asarray(part), [0, 3, 1, 4, 2, 5])
        assert len(made) == count
    assert np.array_equal(pickle.loads(pickle.dumps(turned)), REAL.T)

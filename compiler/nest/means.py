"""Means over a dimension whose length is known only when a program runs.

    mean = sum(x[n] * 1/8)     at n=8, the upper edge
    mean = sum(x[n] * 1/8) * share        at any n: 8 / n, which is row n - 1 of a table

The one idea: a sum takes its terms times the same number at all lengths, that of the upper edge, so
that no sum is larger than a mean; how many times fewer there are is a constant of each length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.nest.build import rounds
from compiler.nest.ir import ZERO, Access, Dim, Nest, Storage, Tensor, row_major
from compiler.nest.registers import Point
from simmodel.dtype import NUMPY
from simmodel.region import Register

_LARGEST = 1 << 20
"""Rows of a table."""
_NEAR = 1e-6
"""Of a factor, how far it may be off where it is 1 / n."""


@dataclass(frozen=True)
class Share:
    """How many times fewer positions than at the upper edge a mean is over."""

    table: Tensor
    tensor: Tensor
    """Its row of the length."""

    @property
    def read(self) -> Access:
        """It, as a multiplier."""
        return Access(self.tensor.name, (ZERO,))


def is_mean(seen: Mapping[Point, Nest]) -> bool:
    """Whether a nest divides by how many positions it adds up, which are others at other points."""
    for nest in seen.values():
        plain = nest.reduce == "sum" and nest.function == "move" and nest.multiplier is None
        if not plain or nest.operands[0].scale is None:
            return False
    totals = [
        (nest.operands[0].scale or 0) * math.prod(dim.extent for dim in nest.dims[nest.rank :])
        for nest in seen.values()
    ]
    scales = {nest.operands[0].scale for nest in seen.values()}
    return len(scales) > 1 and max(totals) - min(totals) <= _NEAR * max(totals)


def with_scale(nest: Nest, edge: Nest) -> Nest:
    """`nest` with terms times the number of the upper edge."""
    read, like = nest.operands[0], edge.operands[0]
    return replace(nest, operands=(replace(read, scale=like.scale),))


def share_of(
    name: str, dims: Sequence[Dim], registers: Sequence[Register], real: str
) -> Share | str:
    """What a mean over `dims` is to be multiplied by, as tensors called after `name`; or why there
    is none, in words.

    Args:
        name: of the mean.
        dims: what it adds up, with their counts.
        registers: the lengths.
        real: element type.
    """
    used = {term for dim in dims if dim.count is not None for term, _ in dim.count.terms}
    on = [register for register in registers if register.name in used]
    spans = [np.arange(register.low, register.high + 1) for register in on]
    rows = math.prod(span.size for span in spans)
    if rows > _LARGEST:
        return f"its mean is over {rows} different numbers of positions"
    lengths = dict(zip((r.name for r in on), np.meshgrid(*spans, indexing="ij"), strict=True))
    over = np.ones([span.size for span in spans])
    for dim in dims:
        if dim.count is not None:
            over = over * (dim.count.base + sum(f * lengths[n] for n, f in dim.count.terms))
    if (over <= 0).any():
        return "its mean is over nothing at some lengths"
    exact = (over[tuple([-1] * over.ndim)] / over)[..., np.newaxis].astype(np.float32)
    data = exact.astype(NUMPY[real])
    strides = row_major(data.shape)
    terms = tuple((register.name, step) for register, step in zip(on, strides, strict=False))
    label = f"{name}.share@{'@'.join(register.name for register in on)}"
    kept = exact if rounds(exact, data) else None
    table = Tensor(label, data.shape, real, Storage(label, 0, strides), data, kept)
    row = Storage(label, data.size - 1, (1,), terms)
    return Share(table, Tensor(f"{name}.share", (1,), real, row, data.reshape(-1)[-1:]))

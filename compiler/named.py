"""Which values of the model the tensors of a program hold, by the names that people know.

The one idea: what a tensor holds has the shape that the model gives it, whatever the compiler has
made of it: axes that are one in the model may be apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from compiler.nest.ir import Array


class Named(NamedTuple):
    """A value of the model."""

    name: str
    dtype: str
    """Element type in the model."""
    node: int
    """Which of the model's nodes makes it: several values of one node may be the same bytes."""
    origin: str
    """That node as nests name where they come from."""
    runs: tuple[int, ...] = ()
    """How many axes of the tensor each of its axes is made of; nothing: it has the same axes."""

    def shaped(self, values: Array) -> Array:
        """What a tensor holds, in the shape that the model gives it."""
        if not self.runs:
            return values
        parts = np.split(np.array(values.shape), np.cumsum(self.runs)[:-1])
        return values.reshape([int(part.prod()) for part in parts])


Known = Mapping[str, Sequence[Named]]
"""Tensor -> each value of the model that it holds, in the model's order."""

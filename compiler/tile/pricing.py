"""What the prices of candidates are made of: how often things happen, and what they take.

Every field is an array over candidates, or a number that holds for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.cost.transfer import Flow


@dataclass(frozen=True)
class Turns:
    """How often things happen in one lead iteration."""

    rows: Any
    cols: Any
    deep: Any
    input: Any
    """Loads of the left operand."""
    weights: Any
    """Loads of the right operand."""

    @property
    def tiles(self) -> Any:
        """Tiles of the result."""
        return self.rows * self.cols

    @property
    def split(self) -> Any:
        """Whether the reduction is split."""
        return self.deep > 1

    @property
    def around(self) -> tuple[Any, Any]:
        """Whether loops over rows are around loads of the right operand, and whether the one over
        columns is around those of the left."""
        rows = np.where(self.split, self.rows > 1, self.weights > self.cols)
        cols = np.where(self.split, self.cols > 1, self.input > self.rows)
        return rows, cols

    def columns(self, order: Any) -> Any:
        """Loads of what only columns move: for every tile where rows lie outside of them."""
        return np.where((order == 1) | (self.cols == 1), self.cols, self.tiles)


@dataclass(frozen=True)
class Tail:
    """Vector work behind the product, per tile."""

    cycles: Any
    space: Any
    """Bytes of its buffers."""


@dataclass(frozen=True)
class Price:
    """The answer, per candidate."""

    total: Any
    matrix: Any
    vector: Any
    memory: Any
    bytes: Any
    """Of DRAM."""
    need: Any
    """Bytes of local memory."""
    fits: Any
    """Whether every other memory holds its share."""
    load: Any
    """Cycles of the load engine."""
    store: Any
    tiles: Any
    """Pieces of the result."""
    arrivals: Any
    """Pieces in which what is loaded most often arrives."""
    lead: Any
    rest: Any
    """See `Estimate`."""
    gap: Any
    """Cycles of `matrix` that a product spares right behind another one."""


def passed_on(slots: int, flows: Sequence[Flow], work: Any) -> Any:
    """Cycles that slots are taken of what cores pass on to each other, shared by the slots: one is
    filled, passed on and worked on before any core fills it again.

        slot 0  load pass work load pass work         with two slots the array rests, though loads,
        slot 1       load pass work load pass         copies and products are each short enough
    """
    longest: Any = 0.0
    for flow in flows:
        taken = (flow.count * flow.once.cycles + work) / slots
        passes = (flow.once.passing > 0) & (flow.count > slots)
        longest = np.maximum(longest, np.where(passes, taken, 0.0))
    return longest

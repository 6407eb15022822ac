"""The role of one input: what it is, which of its axes is the batch, and how samples look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["data", "state", "index", "mask", "parameter"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Fill = Literal["noise", "small noise", "weights", "range", "positive", "ones", "zeros"]
"""How a seeded sample of an input is drawn:

noise: standard normal; bytes over their range, other integers below 8
small noise: normal, deviation 1/2; integers as noise
weights: normal, deviation 1 / sqrt(products in a sum); integers as noise
range: whole numbers from `low` to `high`
positive: uniform over (1/2, 1]; integers from 1 to 7
ones, zeros: all alike
"""


@dataclass(frozen=True)
class Role:
    """What one input is for, with the evidence in words."""

    kind: Kind
    evidence: str
    axis: int | None
    """The axis of the batch; None: it carries no batch."""
    axis_evidence: str
    fill: Fill = "noise"
    low: int = 0
    """The least and the largest value of a sample, where `fill` is `range`."""
    high: int = 0
    becomes: str | None = None
    """Of a state, the output that it is in the next inference."""

    @property
    def shown(self) -> str:
        """As users write it: `state:1`, `data:0`, `parameter`."""
        return self.kind if self.axis is None else f"{self.kind}:{self.axis}"

"""What an option of a pass may be: its type, and the range that is written into it.

The one idea: a range stands where the option is declared, as part of its type, so that whoever sets
options can check them and whoever lists them can say it; the pass itself may rely on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Within:
    """Numbers from `low` to `high`, both included; infinity and what is no number are in none."""

    low: float
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether `value` is one of them."""
        return self.low <= value <= self.high and math.isfinite(value)

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"of at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


Amount = Annotated[int, Within(0)]
"""How many there may be; 0: none."""
Count = Annotated[int, Within(1)]
"""How many there are, at least one."""
Share = Annotated[float, Within(0, 1)]
"""A part of a whole."""
Factor = Annotated[float, Within(0)]
"""A weight, or what something is multiplied by."""


@dataclass(frozen=True)
class Omittable:
    """A pass that may be left out: what it makes is better, not more right."""

    enabled: bool = True
    """False: the pass is left out."""

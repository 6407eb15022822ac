"""How long the points that are left should take, by what those of the same network have taken.

The one idea: a point costs what its network costs, so time left is summed over what is left of each
network, not over points of some mean cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from archgen.outcomes.point import Outcome


@dataclass
class Pace:
    """Measures points as they are finished."""

    expected: Mapping[str, int] = field(default_factory=dict)
    """Network -> points that it has in all, as far as that is known."""
    at_most: bool = False
    """Whether the work may end before all points are done."""
    _spent: dict[str, float] = field(default_factory=dict)
    _run: dict[str, int] = field(default_factory=dict)
    _done: dict[str, int] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Points that were not taken from an earlier run."""
        return sum(self._run.values())

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One more point, `seconds` after the one before."""
        model = str(outcome.row.get("model", ""))
        self._done[model] = self._done.get(model, 0) + 1
        if not outcome.reused:
            self._spent[model] = self._spent.get(model, 0.0) + seconds
            self._run[model] = self._run.get(model, 0) + 1

    def left(self, count: int) -> float:
        """Seconds that `count` more points should take, where at least one was run."""
        mean = sum(self._spent.values()) / self.run
        known = {
            model: max(0, points - self._done.get(model, 0))
            for model, points in self.expected.items()
        }
        open_ = sum(known.values())
        if not open_:
            return mean * count
        share = count / open_
        return sum(share * points * self._cost(model, mean) for model, points in known.items())

    def _cost(self, model: str, mean: float) -> float:
        """Seconds of a point of a network; of one that has none yet, those of all."""
        return self._spent[model] / self._run[model] if model in self._run else mean

    def said(self, seconds: float, count: int) -> str:
        """`12.4 points/min, at most 8 min left`, after `seconds` and with `count` points to go."""
        if not self.run or seconds <= 0:
            return ""
        most = "at most " if self.at_most else ""
        return f"{60 * self.run / seconds:.3g} points/min, {most}{span(self.left(count))} left"


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

"""Values as Optuna's journal has them: amounts in base units, or words, and only those listed.

The one idea: Optuna's own range of an amount is continuous, so whoever proposes knows which values
are near each other; what it proposes is moved to the nearest value that is listed before it is
written down. So dashboards show what machines have, in bytes, hertz and counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from archgen.exploration.ranges import base_value
from archgen.exploration.space import Parameter
from archgen.schema.tree import plain

_WIDE = 4.0
"""Ratio of the largest to the smallest from which on amounts are compared by their ratios."""


@dataclass(frozen=True)
class Listed:
    """The values of a parameter."""

    parameter: Parameter

    @cached_property
    def values(self) -> tuple[float | str, ...]:
        """As the journal has them: amounts where they grow, else words."""
        if self.parameter.ordered:
            amounts = tuple(float(base_value(plain(v))[0]) for v in self.parameter.values)
            if len(set(amounts)) == len(amounts):
                return amounts
        return self.parameter.texts

    @property
    def amounts(self) -> tuple[float, ...]:
        """The values where they are amounts, else none."""
        return tuple(value for value in self.values if isinstance(value, float))

    def distribution(self, kinds: Any) -> Any:
        """Optuna's; half a step beyond both ends, so that these are proposed as often as others."""
        amounts = self.amounts
        if len(amounts) < 2:
            return kinds.CategoricalDistribution(list(self.values))
        places = list(map(self._place, amounts))
        low = places[0] - (places[1] - places[0]) / 2
        high = places[-1] + (places[-1] - places[-2]) / 2
        ends = (math.exp(low), math.exp(high)) if self._log else (low, high)
        return kinds.FloatDistribution(*ends, log=self._log)

    def nearest(self, value: Any) -> float | str:
        """The listed value that is nearest to what was proposed."""
        return self.values[self.index(value)]

    def index(self, value: Any) -> int:
        """Its place in the list."""
        if isinstance(self.values[0], str):
            return self.values.index(value)
        away = [abs(self._place(each) - self._place(value)) for each in self.amounts]
        return away.index(min(away))

    @property
    def _log(self) -> bool:
        amounts = self.amounts
        return amounts[0] > 0 and amounts[-1] >= _WIDE * amounts[0]

    def _place(self, amount: float) -> float:
        return math.log(amount) if self._log else amount


def only_listed(base: Any, sampler: Any, listed: Mapping[str, Listed]) -> Any:
    """`sampler`, of Optuna's class `base`, with its proposals moved to listed values."""

    class OnlyListed(base):  # type: ignore[misc]
        """Moves what `sampler` proposes."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return sampler.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            found = sampler.sample_relative(study, trial, search_space)
            return {name: listed[name].nearest(value) for name, value in found.items()}

        def sample_independent(self, study: Any, trial: Any, name: str, kind: Any) -> Any:
            return listed[name].nearest(sampler.sample_independent(study, trial, name, kind))

        def before_trial(self, study: Any, trial: Any) -> None:
            sampler.before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            sampler.after_trial(study, trial, state, values)

        def reseed_rng(self) -> None:
            sampler.reseed_rng()

    return OnlyListed()

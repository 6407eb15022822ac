"""Whether what a program stored is what its nests make of the values that it had before.

The one idea: integers must be equal, bit for bit; what sums of floats may differ by is measured
(`compiler.recompute`), not derived from a depth, so the verdict stays sharp however many operators
stay on chip between two values that are stored. Two tolerances bound floats:

- the largest difference: C (u + sqrt(K) u32) max|expected|, for u the unit round-off of the stored
  type and K products added up in fp32, plus C times the largest measured difference;
- the root mean square: that of one value of N which is off by all that is excused, plus C sqrt(K)
  u32 rms(expected), plus twice the measured one. It finds errors that are small but everywhere, as
  equal sums are rounded alike.

Integers behind sums of floats may be one step off, or C times what was measured; their root mean
square a tenth of a step, or twice what was measured. C is 4, as for single operators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archgen.verify import SAFETY, SHOWN, Comparison, largest_difference
from compiler.recompute import Stored
from simmodel.dtype import EPSILON, NAMES

Array = NDArray[Any]
_DEVIATIONS = 2.0
"""Excused of a root mean square that was measured."""
_STEPS = 0.1
"""Root mean square excused in integers that a tie may have moved by one step."""


def with_stored(verdict: Comparison, stored: Iterable[Stored]) -> Comparison:
    """`verdict`, and that everything in `stored` is as it should be."""
    drifts = [drift(pair) for pair in stored]
    excess = max((each.excess for each in drifts), default=None)
    known = [each for each in (verdict.excess, excess) if each is not None]
    verdict = replace(verdict, excess=max(known, default=None))
    wrong = [str(each) for each in drifts if each.excess > 1]
    if not wrong:
        return verdict
    more = [f"{len(wrong)} stored tensors differ from their operators"] if wrong[SHOWN:] else []
    note = "; ".join(filter(None, (verdict.note, *wrong[:SHOWN], *more)))
    return replace(verdict, verified=False, note=note)


def with_outputs(
    verdict: Comparison, outputs: Mapping[str, Array], stored: Mapping[str, Array]
) -> Comparison:
    """`verdict`, and that `outputs` at the program's end are what was `stored` on the way."""
    lost = [
        f"{name}: changed after it was complete"
        for name, values in outputs.items()
        if name in stored and not np.array_equal(values, stored[name], equal_nan=True)
    ]
    return (
        replace(verdict, verified=False, note="; ".join([*lost, verdict.note])) if lost else verdict
    )


@dataclass(frozen=True)
class Drift:
    """How far a stored tensor is off, and how far it may be."""

    name: str
    error: float
    most: float
    mean: float
    """Root mean square."""
    usual: float
    """What it may be."""

    @property
    def excess(self) -> float:
        """The larger of both as a fraction of what is excused; more than 1 is wrong."""
        return max(_share(self.error, self.most), _share(self.mean, self.usual))

    def __str__(self) -> str:
        return (
            f"{self.name}: stored values are off by {self.error:.3g}, tolerance {self.most:.3g}; "
            f"{self.mean:.3g} rms, tolerance {self.usual:.3g}"
        )


def drift(pair: Stored) -> Drift:
    """How far `pair` is off."""
    error, mean = largest_difference(pair.actual, pair.expected), _rms(pair.actual, pair.expected)
    integer = pair.expected.dtype.kind in "biu"
    most, usual = _integer_slack(pair) if integer else _float_slack(pair)
    return Drift(pair.name, error, most, mean, usual)


def _share(error: float, tolerance: float) -> float:
    if tolerance:
        return error / tolerance
    return math.inf if error else 0.0


def _integer_slack(pair: Stored) -> tuple[float, float]:
    if pair.other is None:
        return 0.0, 0.0
    if pair.expected.dtype.kind == "b":
        return 1.0, max(_STEPS, _DEVIATIONS * _rms(pair.other, pair.expected))
    most = SAFETY * largest_difference(pair.other, pair.expected)
    return max(1.0, most), max(_STEPS, _DEVIATIONS * _rms(pair.other, pair.expected))


def _float_slack(pair: Stored) -> tuple[float, float]:
    other = pair.expected if pair.other is None else pair.other
    unit = EPSILON[NAMES[pair.expected.dtype]]
    sums = math.sqrt(pair.products) * EPSILON["fp32"]
    largest, count = _largest(pair.expected), max(1, pair.expected.size)
    most = (unit + sums) * largest + largest_difference(other, pair.expected)
    usual = most / math.sqrt(count) + sums * _rms(pair.expected, np.zeros_like(pair.expected))
    return SAFETY * most, SAFETY * usual + _DEVIATIONS * _rms(other, pair.expected)


def _largest(values: Array) -> float:
    sizes = np.abs(values.astype(np.float64))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _rms(values: Array, others: Array) -> float:
    """Root mean square of the finite differences."""
    with np.errstate(invalid="ignore"):
        difference = values.astype(np.float64) - others.astype(np.float64)
    finite = difference[np.isfinite(difference)]
    return math.sqrt(float(np.square(finite).mean())) if finite.size else 0.0

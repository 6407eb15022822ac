"""By how much figures may get worse: `latency:2%`, and which pairs of points they stop.

The one idea: a gate that nothing went through is not open. Each says of a comparison which pairs
are worse and whether there was any to be judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from archgen.comparison.comparison import Against, StudyComparison
from archgen.comparison.differences import JUDGED, Pair
from archgen.outcomes.figures import figure_named, figure_of, more_is_better, with_unit
from archgen.studies.design import StudyError

USUAL_GATES = "usual"
"""Word for figures that are usually judged, where there are any."""


@dataclass(frozen=True)
class Gate:
    """How much worse a figure may be than in the baseline."""

    figure: str
    share: float
    needed: bool = True
    """Whether it is wrong that nothing has the figure."""

    def judges(self, pair: Pair) -> bool:
        """Whether there is something to judge: a result before, and the figure, or its loss."""
        before, after = self._figures(pair)
        known = pair.verdict == "lost" or not math.isnan(before + after)
        return pair.before["status"] == "ok" and known

    def stops(self, pair: Pair) -> bool:
        """Whether the pair is worse than allowed, or its result is lost."""
        if not self.judges(pair) or pair.verdict == "lost":
            return self.judges(pair)
        before, after = self._figures(pair)
        by = before - after if more_is_better(self.figure) else after - before
        return by > self.share * abs(before) and not math.isclose(before, after)

    def regression_text(self, pair: Pair) -> str:
        """How much worse the pair is."""
        if pair.verdict == "lost":
            return pair.why
        before, after = self._figures(pair)
        by = f"{100 * (after / before - 1):+.2f} %" if before else "from nothing"
        change = f"{with_unit(before, self.figure)} -> {with_unit(after, self.figure)}"
        return f"{self.figure} {change} ({by}; allowed {100 * self.share:.4g} %)"

    def _figures(self, pair: Pair) -> tuple[float, float]:
        return figure_of(pair.before, self.figure), figure_of(pair.after, self.figure)


@dataclass(frozen=True)
class Stopped:
    """A pair that a gate stops."""

    study: str
    pair: Pair
    gate: Gate


@dataclass(frozen=True)
class Judgement:
    """What gates say of a comparison."""

    stopped: tuple[Stopped, ...] = ()
    idle: tuple[str, ...] = ()
    """Where nothing could be judged, in words."""


def gates_of(words: Iterable[str], threshold: float, columns: Sequence[str]) -> tuple[Gate, ...]:
    """The gates that `words` say (`latency:2%`, or `latency` at the `threshold`; `usual`), of
    results with these columns. Raises StudyError with everything that is wrong with them."""
    found: dict[str, Gate] = {}
    wrong: list[str] = []
    for word in words:
        name, colon, share = word.partition(":")
        try:
            usual = word == USUAL_GATES
            figures = JUDGED if usual else (figure_named(name, columns),)
            allowed = share_of(share) if colon else threshold
            found |= {figure: Gate(figure, allowed, not usual) for figure in figures}
        except ValueError as mistake:
            wrong.append(f"{word!r}: {mistake}")
    if wrong:
        raise StudyError(wrong)
    return tuple(found.values())


def share_of(text: str) -> float:
    """`1%`, `1 %` or `0.01`. Raises ValueError."""
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"expected a share such as 2% or 0.02, not {text!r}") from None
    if not 0 <= share < 1:
        raise ValueError(f"expected a share below 100%, such as 2% or 0.02, not {number}")
    return share


def judged(found: StudyComparison, gates: Sequence[Gate]) -> Judgement:
    """What `gates` say of a comparison."""
    stopped = []
    for each in found.against:
        for pair in each.pairs:
            own = [Stopped(each.name, pair, gate) for gate in gates if gate.stops(pair)]
            stopped += own[:1] if pair.verdict == "lost" else own  # one stands for all
    idle = [why for each in found.against for why in _idle(found, each, gates)]
    return Judgement(tuple(stopped), tuple(idle))


def _idle(found: StudyComparison, each: Against, gates: Sequence[Gate]) -> Iterator[str]:
    without = [gate for gate in gates if not any(map(gate.judges, each.pairs))]
    if len(without) < len(gates):
        without = [gate for gate in without if gate.needed]
    if not each.pairs:
        reason = found.no_overlap_reason(each)
        yield f"{each.name}: no point of the baseline is in it: {reason}"
    elif without:
        figures = " or ".join(gate.figure for gate in without)
        yield f"{each.name}: no pair has {figures} on both sides"

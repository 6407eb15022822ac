"""Budget files: what figures may be at most, or at least, on which networks and machines.

    verified: true                           # the default: only outputs that were checked
    budgets:
      - latency_ms <= 5 on resnet50
      - energy <= 2 mJ on mobilenet*, squeezenet* for edge-*
      - {limit: peak_local_bytes <= 512 KiB, on: {batch: 1, dtype: int8}, optional: true}

The one idea: a budget is kept by every point that it is about, and one that is about no point is
not kept either, unless it says that it is optional.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from archgen.outcomes import figures
from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.points import DIMENSION, Outcome, Row
from archgen.schema.record import RecordReader
from archgen.schema.source import BUDGET, read_tree
from archgen.schema.tree import FilePosition, Mistake, Table, find, guess, plain
from archgen.studies.design import StudyError, matches_pattern
from archgen.studies.file import Several
from simmodel.arch.base import FrozenModel

_FIXED = tuple(known.name for known in COLUMNS if "<" not in known.name)
_WHOM = re.compile(r"\s+(on|for)\s+")
_SIDES: Mapping[str, str] = {"on": "model", "for": "arch"}
_EXAMPLE = "'latency_ms <= 5 on resnet50' or 'energy <= 2 mJ on resnet* for edge-*'"


@dataclass(frozen=True)
class FigureLimit:
    """A figure and its bound, in the unit of its column."""

    figure: str
    comparison: str
    bound: float

    def excess_text(self, value: float) -> str:
        """How far a value is beyond the bound."""
        by = abs(value - self.bound)
        way = "over" if self.comparison.startswith("<") else "under"
        if not self.bound:
            return f"{figures.with_unit(by, self.figure)} {way}"
        return f"{100 * by / abs(self.bound):.3g} % {way}"


def limit_of(text: str) -> tuple[FigureLimit, dict[str, tuple[str, ...]]]:
    """The limit in `text`, and whom it is for: `latency_ms <= 5 on resnet50 for edge-*`.

    Raises ValueError.
    """
    condition, *rest = _WHOM.split(text.strip())
    parts = figures.split_condition(condition)
    if parts is None or parts[1] not in figures.ORDERS:
        raise ValueError(f"{text!r}: expected a figure, <= or >=, and a bound, such as {_EXAMPLE}")
    name, comparison, bound = parts
    figure = name if figures.is_figure(name) else figures.figure_named(name, _FIXED)
    whom: dict[str, tuple[str, ...]] = {}
    for word, names in zip(rest[::2], rest[1::2], strict=True):
        patterns = tuple(part.strip() for part in names.split(","))
        if not all(patterns) or _SIDES[word] in whom:
            raise ValueError(f"{text!r}: expected names behind {word!r}, such as {_EXAMPLE}")
        whom[_SIDES[word]] = patterns
    most = figures.parse_amount(bound, figure, figures.unit_of(figure))
    return FigureLimit(figure, comparison, most), whom


def _checked(text: str) -> str:
    limit_of(text)
    return text


LimitText = Annotated[str, AfterValidator(_checked)]


class On(FrozenModel):
    """The points that a budget is about: those that agree in all that is said."""

    arch: Several[str] | None = None
    """Names or patterns of machines."""
    model: Several[str] | None = None
    """Names or patterns of networks, as the study names them."""
    batch: Several[PositiveInt] | None = None
    dtype: Several[str] | None = None
    dims: dict[str, Several[NonNegativeInt]] = Field(default_factory=dict)
    """Sizes of free input dimensions."""
    fusion: Several[str] | None = None
    halo: Several[str] | None = None
    objective: Several[str] | None = None
    effort: Several[int] | None = None


class BudgetEntry(FrozenModel):
    """One budget, where a line of text does not say enough."""

    limit: LimitText
    """`latency_ms <= 5`, also with `on NETWORK` and `for MACHINE` behind it."""
    on: On = On()
    optional: bool = False
    """Whether it may be about no point: for a file that several studies share."""


class BudgetFile(FrozenModel):
    """What stands in a budget file."""

    verified: bool = True
    """Whether the outputs behind a figure have to be checked, and right."""
    budgets: Annotated[tuple[LimitText | BudgetEntry, ...], Field(min_length=1)]


_READER = RecordReader(BudgetFile, BUDGET.root)
Verdict = Literal["kept", "broken", "unverified", "idle"]


@dataclass(frozen=True)
class Budget:
    """One budget of a file."""

    at: FilePosition
    text: str
    """As it stands in the file."""
    limit: FigureLimit
    on: Mapping[str, Any]
    """Column -> values or patterns, of the points that it is about."""
    optional: bool
    verified: bool
    """Whether outputs have to be checked."""

    def check(self, outcome: Outcome) -> Check:
        """What it says of a point that it is about."""
        verdict, said = self._judged(outcome.row)
        return Check(self, outcome.label, verdict, said)

    def _judged(self, row: Row) -> tuple[Verdict, str]:
        limit, status = self.limit, str(row["status"])
        guessed = status == ESTIMATED
        if status != "ok" and not guessed:
            reason = str(row.get("reason") or "").partition("\n")[0]
            return "broken", f"{status}: {reason}"
        of_run = not figures.is_of_machine(limit.figure)
        if of_run and row.get("verified") is False:
            return "broken", "its outputs are wrong"
        value = figures.figure_of(dict(row), limit.figure)
        shown = figures.with_unit(value, limit.figure)
        if guessed and of_run:
            told = "no figure of estimates" if math.isnan(value) else f"estimated at {shown}"
            return "unverified", f"{limit.figure} is {told}, and it was not run"
        if math.isnan(value):
            near = guess(limit.figure, [name for name in row if figures.is_figure(name)])
            return "broken", f"it has no {limit.figure}{near}"
        told = f"{limit.figure} {shown}, limit {figures.with_unit(limit.bound, limit.figure)}"
        if not figures.ORDERS[limit.comparison](value, limit.bound):
            return "broken", f"{told}: {limit.excess_text(value)}"
        if of_run and self.verified and row.get("verified") is not True:
            return "unverified", f"{told}, but its outputs were not checked"
        return "kept", told


@dataclass(frozen=True)
class Check:
    """What a budget says of a point."""

    budget: Budget
    point: str
    """Its label; empty where the budget is about no point, or about what is not finished."""
    verdict: Verdict
    said: str

    def __str__(self) -> str:
        whom = f"{self.point}: " if self.point else ""
        return f"{self.budget.at.file}:{self.budget.at.line}: {whom}{self.said}"


def check_budgets(budgets: Sequence[Budget], outcomes: Sequence[Outcome]) -> Iterator[Check]:
    """What each budget says of each point that it is about, and which are about none."""
    for budget in budgets:
        about = [outcome for outcome in outcomes if matches_pattern(outcome.row, budget.on)]
        yield from map(budget.check, about)
        if not about and not budget.optional:
            said = f"{budget.text!r} is about no point{_nearest(budget, outcomes)}"
            yield Check(budget, "", "idle", said)


def _nearest(budget: Budget, outcomes: Iterable[Outcome]) -> str:
    """What was probably meant by a pattern that nothing agrees with."""
    rows = [outcome.row for outcome in outcomes]
    for column, wanted in budget.on.items():
        if not any(matches_pattern(row, {column: wanted}) for row in rows):
            held = list(dict.fromkeys(str(row[column]) for row in rows if column in row))
            near = guess(str(wanted[0]).strip("*"), held)
            there = f"; there is {', '.join(map(repr, held[:5]))}" if held else ""
            return f": none has the {column} {wanted[0]!r}{near or there}"
    return ""


def read_budgets(paths: Iterable[Path]) -> tuple[Budget, ...]:
    """The budgets in these files. Raises StudyError with everything that is wrong with them."""
    budgets: list[Budget] = []
    mistakes: list[Mistake] = []
    for path in paths:
        tree, wrong = read_tree(path, str(path), BUDGET)
        mistakes += wrong
        if tree is None:
            continue
        found, errors = _READER.attempt(plain(tree))
        mistakes += _READER.to_mistakes(tree, errors)
        if found is not None:
            budgets += _budgets(found, tree)
    if mistakes:
        raise StudyError(map(str, sorted(set(mistakes))))
    return tuple(budgets)


def _budgets(found: BudgetFile, tree: Table) -> Iterator[Budget]:
    for index, given in enumerate(found.budgets):
        entry = given if isinstance(given, BudgetEntry) else BudgetEntry(limit=given)
        node = find(tree, ("budgets", index))
        assert node is not None
        limit, whom = limit_of(entry.limit)
        on = {name: value for name, value in entry.on if value is not None and name != "dims"}
        on |= {f"{DIMENSION}{name}": sizes for name, sizes in entry.on.dims.items()}
        yield Budget(node.at, entry.limit, limit, on | whom, entry.optional, found.verified)

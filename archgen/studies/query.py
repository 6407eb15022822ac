"""Rows of a frame by simple conditions, and their order: `latency_ms<=5`, `arch=tpu*`, `-batch`.

The one idea: amounts are read in the unit of their column (`archgen.outcomes.figures`), which of
a field the machines know (`archgen.outcomes.axes`); text is a pattern, and commas separate
alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from archgen.outcomes import estimated
from archgen.outcomes.answer import answer
from archgen.outcomes.axes import StudyAxis, axes, axis_of
from archgen.outcomes.figures import ORDERS, SHORT, parse_amount, split_condition
from archgen.outcomes.frame import Frame, is_wrong, records
from archgen.outcomes.points import FIELD
from archgen.schema.tree import Given, Made, attempted, guess, listed
from archgen.studies.design import StudyError
from simmodel.arch.record import Arch

_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def known_column(frame: pd.DataFrame, name: str) -> str:
    """The column of `frame` that `name` means: in full (`latency_ms`), in short (`latency`), or by
    the last words of a field (`local.size`), of several fields the one that differs among rows.

    Raises StudyError."""
    if not isinstance(name, str):
        raise StudyError([f"{name!r}: expected the name of a column"])
    if name in frame:
        return name
    if SHORT.get(name) in frame:
        return SHORT[name]
    fields = [each for each in map(str, frame) if each.endswith(f".{name}")]
    varied = fields if len(fields) == 1 else [each for each in fields if frame[each].nunique() > 1]
    if len(varied) == 1:
        return varied[0]
    if fields:
        raise StudyError(
            [f"column {name!r}: {listed(sorted(varied or fields), 'and')} are called so"]
        )
    raise StudyError([f"column {name!r}: no such column{_hint(frame, name)}"])


def _hint(frame: pd.DataFrame, name: str) -> str:
    """What `name` may be for: names with dots are only spelled like names with dots."""
    dotted = "." in name
    names = [*map(str, frame)]
    names += [".".join(each.split(".")[-2:]) for each in names if each.count(".") > 1]
    near = guess(name, [known for known in names if dotted == ("." in known)])
    if near or not dotted:
        return near or "; `archgen explain columns` lists them"
    swept = [str(known).removeprefix(FIELD) for known in frame if str(known).startswith(FIELD)]
    there = f"which are {listed(swept, 'and')}" if swept else "and there are none"
    return f"; fields are columns where the study sweeps them, {there}"


def known_columns(frame: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """The columns of `frame` that `names` mean. Raises StudyError with all that mean none."""
    return all_or_mistakes(lambda name: known_column(frame, name), names)


def known_numbers(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """The same of columns that hold numbers. Raises StudyError also with those that do not."""
    found = known_columns(frame, names)
    wrong = [n for n, own in zip(names, found, strict=True) if not _is_number(frame[own])]
    if wrong:
        raise StudyError([f"column {name!r}: holds no numbers" for name in wrong])
    return found


def _is_number(values: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(values) and values.dtype != "boolean"


def all_or_mistakes(make: Callable[[Given], Made], given: Iterable[Given]) -> list[Made]:
    """What `make` makes of each. Raises StudyError with the mistakes of all."""
    made, mistakes = attempted(make, given, StudyError)
    if mistakes:
        raise StudyError(dict.fromkeys(mistakes))
    return made


def where(
    frame: pd.DataFrame, conditions: Sequence[str], archs: Mapping[str, Arch]
) -> pd.DataFrame:
    """The rows that meet all `conditions`; a missing value meets none but `!=`. `archs`: the
    machines by name.

    Raises StudyError with all that is wrong with conditions.
    """
    met = all_or_mistakes(lambda condition: _met(frame, condition, archs), conditions)
    return frame[np.logical_and.reduce(met)] if met else frame


def by_order(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """`frame` sorted by columns, the first the most important; `-name` is descending. Missing
    values come last, and what was only estimated after all that was run. Raises StudyError for an
    unknown column."""
    columns = known_columns(frame, (name.removeprefix("-") for name in names))
    rising = [not name.startswith("-") for name in names]
    if not columns:
        return frame
    return frame.sort_values(columns, ascending=rising, kind="stable").sort_values(
        "status", key=lambda status: status.eq(estimated.ESTIMATED), kind="stable"
    )


def _met(frame: pd.DataFrame, condition: str, archs: Mapping[str, Arch]) -> pd.Series:
    parts = split_condition(condition) if isinstance(condition, str) else None
    if parts is None:
        example = "a column, a comparison and a value, such as 'latency_ms<=5' or 'arch=tpu*'"
        raise StudyError([f"{condition!r}: expected {example}"])
    name, comparison, text = parts
    values = frame[known_column(frame, name)]

    def number(word: str) -> float:
        along = axis_of(str(values.name), [{str(values.name): v} for v in values.unique()], archs)
        try:
            return parse_amount(word, along.column, along.unit, along.per)
        except ValueError as mistake:
            raise StudyError([f"{condition!r}: {mistake}"]) from None

    if comparison in ORDERS:
        if not _is_number(values):
            raise StudyError([f"{condition!r}: {name} is no number; compare it with = or !="])
        found = ORDERS[comparison](values, number(text))
    else:
        found = _equal(condition, values, text.split(","), number)
    met: pd.Series = found.fillna(False).astype(bool)
    return ~met if comparison == "!=" else met


def _equal(
    condition: str, values: pd.Series, words: Sequence[str], number: Callable[[str], float]
) -> pd.Series:
    """Which values are one of `words`; `number` reads an amount."""
    options = [word.strip() for word in words]
    if values.dtype == "boolean":
        wrong = [word for word in options if word.lower() not in _TRUTH]
        if wrong:
            raise StudyError([f"{condition!r}: {values.name} is true or false, not {wrong[0]!r}"])
        return values.isin([_TRUTH[word.lower()] for word in options])
    if pd.api.types.is_numeric_dtype(values):
        return values.isin(list(map(number, options)))
    return values.map(
        lambda value: not pd.isna(value) and any(fnmatchcase(str(value), w) for w in options)
    )


# Finished points as they are compared, and told on one screen.

_SHOWN = 4
"""Values of an axis that a few words name."""


def compared_results(frame: Frame, names: Sequence[str]) -> Frame:
    """The points with all of some columns, unless their outputs are wrong, as they are compared:
    what estimates do not know, of runs."""
    like = estimated.comparable(frame)
    rows = like if {*names} <= {*like} else estimated.simulated(frame)
    good = [estimated.has_figures(row) and not is_wrong(row) for row in records(rows)]
    return rows.loc[good].dropna(subset=names)


def study_text(frame: Frame, archs: Mapping[str, Arch], title: str) -> str:
    """A study on one screen: how many points, what was swept, and what it answers."""
    if frame.empty:
        return f"{title}: no points"
    counts = frame["status"].value_counts()
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    lines = [f"{title}: {len(frame)} points ({said}), {frame['arch'].nunique()} machines"]
    lines += [f"  {axis.label}: {_axis_values_text(axis)}" for axis in axes(frame, archs)]
    lines += [f"  {sentence}" for sentence in answer(frame, archs)]
    lines.append("  .frame, .layers, .spans, .levels; .filter, .best, .pareto, .pivot")
    return "\n".join(lines)


def _axis_values_text(axis: StudyAxis) -> str:
    """`32 KiB to 1 MiB (6)`; of an axis without an order its first values."""
    shown = [axis.shown(value) for value in axis.values]
    if len(shown) <= _SHOWN:
        return ", ".join(shown)
    if axis.ordered:
        return f"{shown[0]} to {shown[-1]} ({len(shown)})"
    return f"{', '.join(shown[:_SHOWN])} and {len(shown) - _SHOWN} more"

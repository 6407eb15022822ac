"""Why two studies have no common point: what one is and the other is not, column by column.

The one idea: a column of which the sides share no value separates them, whatever else holds; where
each shares one, no point has all of them on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from archgen.outcomes.frame import Record

_MOST = 4
"""Values of a column that are named."""


def why_apart(before: Sequence[Record], after: Sequence[Record], names: tuple[str, str]) -> str:
    """What separates the keys `before` and `after` of the studies called `names`."""
    sides = list(zip((before, after), names, strict=True))
    empty = [name for keys, name in sides if not keys]
    if empty:
        return " and ".join(f"{name} has no points" for name in empty)
    said = [
        f"{column} is {' and '.join(f'{_values(keys, column)} in {name}' for keys, name in sides)}"
        for column in separating(before, after)
    ]
    return "; ".join(said) or "each value is in both, but no point has all of them in both"


def separating(before: Sequence[Record], after: Sequence[Record]) -> tuple[str, ...]:
    """Columns of which the sides share no value."""
    columns = dict.fromkeys(name for key in (*before, *after) for name in key)
    return tuple(name for name in columns if not set(_said(before, name)) & set(_said(after, name)))


def _values(keys: Sequence[Record], column: str) -> str:
    found = _said(keys, column)
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _said(keys: Sequence[Record], column: str) -> list[str]:
    values = (key.get(column) for key in keys)
    return list(dict.fromkeys("not given" if pd.isna(each) else str(each) for each in values))

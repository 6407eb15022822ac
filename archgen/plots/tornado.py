"""What each parameter is worth: the change of a result when one of them moves and the rest stay."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archgen.outcomes.axes import workload
from archgen.outcomes.frame import Frame, Record, number, records
from archgen.plots.panels import Panel, bar_figure
from archgen.plots.style import BLUE, INK, MUTED, ORANGE, SETTINGS, filled, keys

_SIDES: Mapping[str, str] = {"low": BLUE, "high": ORANGE}
_MOST_ROWS = 40


@rc_context(SETTINGS)
def tornado_figure(frame: Frame) -> Figure:
    """Bars of `low` and `high`, relative changes of a metric at `low_value` and `high_value`.

    `frame` has the columns parameter, low_value, high_value, low, high, and may have `metric`
    and those of points: a panel for each. The parameter that matters most is on top; of more
    than 40 the others are counted. A change that is missing has no bar, but its value is named.
    """
    panels = _panels(records(frame))
    figure, grid = bar_figure(panels, "Sensitivity: one parameter at a time", 0.36)
    for axes, panel in zip(grid, panels, strict=True):
        metric = str(panel.rows[0].get("metric", "result"))
        axes.set_xlabel(f"change of {metric} [%]")
        axes.axvline(0, color=INK, lw=1)
        _draw_tornado(axes, panel)
    names = {"at the low value": BLUE, "at the high value": ORANGE}
    figure.legend(handles=keys(names), loc="outside lower left", ncols=2)
    return figure


def _panels(rows: list[Record]) -> list[Panel]:
    found: dict[str, list[Record]] = {}
    for row in rows:
        found.setdefault(_title(row), []).append(row)
    return [_panel(name, members) for name, members in found.items()]


def _title(row: Record) -> str:
    loads = [workload(row)] if "model" in row and "batch" in row else []
    return ", ".join([*(str(row[name]) for name in ("arch",) if name in row), *loads])


def _panel(name: str, rows: list[Record]) -> Panel:
    ranked = sorted(rows, key=_reach, reverse=True)
    shown, left = ranked[:_MOST_ROWS], len(ranked) - _MOST_ROWS
    more = f" ({left} smaller ones left out)" if left > 0 else ""
    return Panel(name + more, shown, [str(row["parameter"]) for row in shown])


def _reach(row: Record) -> float:
    """The larger of a row's two changes; those that are missing count as none."""
    changes = [abs(number(row, side)) for side in _SIDES]
    return max((change for change in changes if not math.isnan(change)), default=0.0)


def _draw_tornado(axes: Axes, panel: Panel) -> None:
    reach = max(map(_reach, panel.rows), default=0.0) or 0.01
    axes.set_xlim(-175 * reach, 175 * reach)
    for place, row in enumerate(panel.rows):
        low, high = number(row, "low"), number(row, "high")
        together = low * high > 0
        for side, change in (("low", low), ("high", high)):
            # Bars that point the same way share the row; else each has its whole height.
            shift = (-0.19 if side == "low" else 0.19) if together else 0.0
            height = 0.36 if together else 0.7
            if not math.isnan(change):
                axes.barh(place + shift, 100 * change, height=height, **filled(_SIDES[side]))
            other = high if side == "low" else low
            rightwards = _rightwards(change, other, side)
            _write_end(axes, row, side, change, place + shift, rightwards)


def _rightwards(change: float, other: float, side: str) -> bool:
    """Where a label goes: the way of its bar, away from the other one where it has none."""
    if change > 0 or change < 0:
        return change > 0
    return other < 0 if other > 0 or other < 0 else side == "high"


def _write_end(
    axes: Axes, row: Record, side: str, change: float, place: float, rightwards: bool
) -> None:
    """The parameter's value and the change that it makes, at the end of its bar."""
    value = row.get(f"{side}_value")
    text = "" if value is None or pd.isna(value) else str(value)
    missing = math.isnan(change)
    text += ": no result" if missing else f" ({100 * change:+.3g} %)"
    axes.annotate(
        text.strip(), (0 if missing else 100 * change, place), (4 if rightwards else -4, 0),
        textcoords="offset points", va="center", ha="left" if rightwards else "right",
        fontsize=7, color=MUTED if missing else INK, style="italic" if missing else "normal",
    )  # fmt: skip

"""What pictures found, in the words of their titles: who is best and by how much, what takes most.

The one idea: a title is read before axes are; it is short enough for a narrow page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from archgen.outcomes.axes import workload
from archgen.outcomes.bottleneck import verdict
from archgen.outcomes.estimated import has_figures
from archgen.outcomes.frame import Frame, Record, grouped, is_wrong, number, records
from archgen.plots.panels import row_labels
from archgen.plots.style import number_text
from simmodel.arch.record import Arch

_LETTERS = 40
"""Of a name in a title."""
_EQUAL = 0.005
"""Share by which values differ that are as good as each other."""
_FEW = 3
"""Points that a title may name one by one."""
_FEW_TIMES = 2.0
"""From so many times on, less is said as times."""
Measure = Callable[[Record], float]


def short(name: str) -> str:
    """`name` in so many letters as a title has for one."""
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def points_with_labels(frame: Frame, archs: Mapping[str, Arch]) -> list[tuple[str, Record]]:
    """The points of `frame` with figures, as pictures call them."""
    rows = records(frame)
    return [
        (short(label), row)
        for label, row in zip(row_labels(rows, frame, archs)[0], rows, strict=True)
        if has_figures(row) and not is_wrong(row)
    ]


def best_of(
    points: Sequence[tuple[str, Record]], of: Measure, unit: str, word: str, more: bool = False
) -> str:
    """`edge takes least, cloud 23 % more`: of one network; of several how often who is, or
    what one machine gives."""
    networks = grouped(points, lambda point: workload(point[1])).values()
    known = ([(name, of(row)) for name, row in own if of(row) > 0] for own in networks)
    ends = [sorted(own, key=itemgetter(1), reverse=more)[:2] for own in known if own]
    if not ends:
        return ""
    if len(ends) > 1 and not any(rest for _, *rest in ends):
        values = [value for (_, value), *_ in ends]
        low, high = number_text(min(values)), number_text(max(values))
        return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"
    if len(ends) > 1:
        firsts = [first for (first, _), *_ in ends]
        most = max(dict.fromkeys(firsts), key=firsts.count)
        return f"{most} {word} for {firsts.count(most)} of {len(ends)} networks"
    (first, value), *rest = ends[0]
    if not rest:
        return f"{number_text(value)} {unit}"
    second, other = rest[0]
    ratio = other / value
    if abs(ratio - 1) < _EQUAL:
        return f"{first} and {second}, {number_text(value)} {unit}"
    apart = f"{100 * abs(ratio - 1):.0f} % {'more' if ratio > 1 else 'less'}"
    return (
        f"{first} {word}, {second} {f'{ratio:.2g} times as much' if ratio >= _FEW_TIMES else apart}"
    )


def largest_part(rows: Sequence[Record], parts: Mapping[str, str]) -> str:
    """`dram is 65 % of all`: of columns that add up, by their names, the largest over all rows,
    each of the same weight."""
    sums = dict.fromkeys(parts, 0.0)
    for row in rows:
        values = {name: number(row, name, 0.0) for name in parts}
        total = math.fsum(values.values()) or 1.0
        for name, value in values.items():
            sums[name] += value / total / len(rows)
    first = max(sums, key=lambda name: sums[name], default="")
    return f"{parts[first]} is {100 * sums[first]:.0f} % of all" if sums.get(first) else ""


def bottlenecks(points: Sequence[tuple[str, Record]]) -> str:
    """What holds up the one point, or most of several: the verdict that tables have."""
    runs = [row for _, row in points if row["status"] == "ok"]
    verdicts = [each for each in map(verdict, runs) if each.cause]
    if len(verdicts) == 1:
        return verdicts[0].sentence
    words = [each.words for each in verdicts]
    names = [name for name, row in points if row["status"] == "ok"]
    if len({*names}) < len(names):  # one machine on several networks
        names = [workload(row) for row in runs]
    if 1 < len(words) == len({*names}) == len(runs) <= _FEW and len(set(words)) > 1:
        return ", ".join(f"{name} by {each}" for name, each in zip(names, words, strict=True))
    most = max(dict.fromkeys(words), key=words.count, default="")
    return f"{words.count(most)} of {len(words)} points by {most}" if words else ""


def extremes(points: Sequence[tuple[str, Record]], of: Measure, unit: str, what: str) -> str:
    """`edge reaches 62 % of its roof, cloud 21 %`: `what` with the most of all, and the least;
    `62 % of its roof (cores 1), 21 % (cores 2)` where names are settings with numbers."""
    ranked = sorted(((of(row), name) for name, row in points if of(row) > 0), reverse=True)
    if not ranked:
        return ""
    (high, first), (low, last) = ranked[0], ranked[-1]
    digits = "{:.0f}" if "%" in unit else "{:.3g}"
    most, least = (f"{digits.format(each)}{unit}" for each in (high, low))
    if " " in first + last:
        return f"{what.format(most)} ({first})" + (f", {least} ({last})" if last != first else "")
    return f"{first} {what.format(most)}" + (f", {last} {least}" if last != first else "")


def titled(what: str, finding: str) -> str:
    """A title: what is drawn, and what it found."""
    return f"{what}: {finding}" if finding else what

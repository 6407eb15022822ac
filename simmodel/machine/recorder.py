"""Recorder of a full trace: spans and levels over time."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from simmodel.machine.flow import Resource
from simmodel.machine.work import Work
from simmodel.trace import Counts, Levels, Spans


class Recorder:
    """Collects one row per ended instruction, and the level of every resource that changes."""

    def __init__(self, levels: bool) -> None:
        self.wants_levels = levels
        self._rows = array("q")
        self._levels: dict[str, tuple[array[int], array[float]]] = {}

    def span(self, work: Work, issued: int, start: int, end: int) -> None:
        """An occurrence of `work`, issued in cycle `issued`, ran from cycle `start` to `end`."""
        self._rows.extend((work.core, work.number, work.count, issued, start, end, work.gained))

    def levels_of(self, resources: Iterable[Resource], now: int) -> None:
        """What `resources` grant may have changed at cycle `now`."""
        for resource in resources:
            self._level(resource, now)

    def _level(self, resource: Resource, now: int) -> None:
        times, levels = self._levels.setdefault(resource.name, (array("q"), array("d")))
        granted = resource.granted
        if times and times[-1] == now:
            levels[-1] = granted
        elif not levels or levels[-1] != granted:
            times.append(now)
            levels.append(granted)

    def rows(self) -> Counts:
        """One row per span, in order of their ends: core whose stream it is of, site, occurrence,
        issue, start, end, and cycles saved by overlapping, in it and all before it of its site."""
        return np.array(self._rows, np.int64).reshape(-1, 7)

    def levels(self) -> dict[str, Levels] | None:
        """All levels so far, by resource; None where they are not wanted."""
        if not self.wants_levels:
            return None
        return {
            name: (np.array(times, np.int64), np.array(levels, np.float64))
            for name, (times, levels) in self._levels.items()
        }


# The recorder's rows as spans: what a site tells of all its occurrences is looked up in bulk.

_CORE, _SITE, _COUNT, _ISSUE, _START, _END, _GAINED = range(7)


def spans(
    rows: Counts,
    works: Sequence[Sequence[Work]],
    moved: Sequence[Mapping[str, int]],
    engine_names: Sequence[str],
) -> Spans:
    """Spans of `rows` (`Recorder.rows`), from the work of each core's sites.

    `moved` has the bytes that one occurrence moves, by key of the trace's traffic, for each work
    in order of cores and sites.
    """
    known = [work for core in works for work in core]
    first = np.cumsum([0, *(len(core) for core in works)])
    which = first[rows[:, _CORE]] + rows[:, _SITE]

    def of_site(values: Sequence[int]) -> Counts:
        found: Counts = np.array(values, np.int64)[which]
        return found

    keys = dict.fromkeys(key for each in moved for key in each)
    startup = of_site([work.startup for work in known])
    own = of_site([work.times * (work.startup + work.cycles) for work in known])
    number = {name: index for index, name in enumerate(engine_names)}
    return Spans(
        core=of_site([work.engine.core for work in known]).astype(np.int32),
        engine=of_site([number[work.engine.name] for work in known]).astype(np.int32),
        stream=rows[:, _CORE].astype(np.int32),
        site=rows[:, _SITE].astype(np.int32),
        occurrence=rows[:, _COUNT].astype(np.int32),
        origin=of_site([work.instruction.origin for work in known]).astype(np.int32),
        issue=rows[:, _ISSUE].copy(),
        start=rows[:, _START].copy(),
        begin=np.minimum(rows[:, _START] + startup, rows[:, _END]),
        end=rows[:, _END].copy(),
        instructions=of_site([work.times for work in known]),
        busy=own - _gained(rows, which),
        moved={key: of_site([each.get(key, 0) for each in moved]) for key in keys},
    )


def _gained(rows: Counts, which: Counts) -> Counts:
    """Cycles that each row saved by overlapping, from the sums over its site so far."""
    order = np.argsort(which, kind="stable")
    so_far = rows[order, _GAINED]
    before = np.zeros_like(so_far)
    before[1:] = np.where(which[order][1:] == which[order][:-1], so_far[:-1], 0)
    result: Counts = np.empty_like(so_far)
    result[order] = so_far - before
    return result

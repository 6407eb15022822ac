"""What is noted while the machine runs, when a full trace is asked for: spans and levels."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from simmodel.machine.flow import Resource
from simmodel.machine.work import Work
from simmodel.trace import Counts, Levels


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

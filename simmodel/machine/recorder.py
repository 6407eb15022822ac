"""What is noted while the machine runs, when a full trace is asked for: spans and levels."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from simmodel.machine.flow import Resource
from simmodel.machine.work import Work
from simmodel.trace import Counts, Levels, Spans


class Recorder:
    """Collects one row per ended instruction, and the level of every resource that changes."""

    def __init__(self, engine_names: tuple[str, ...]) -> None:
        self._engines = {name: index for index, name in enumerate(engine_names)}
        self._rows = array("q")
        self._levels: dict[str, tuple[array[int], array[float]]] = {}

    def span(self, work: Work, start: int, end: int) -> None:
        """An occurrence of `work` ran on `engine` from cycle `start` to cycle `end`."""
        engine = work.engine
        index = self._engines[engine.name]
        origin = work.instruction.origin
        self._rows.extend((engine.core, index, work.number, work.count, origin, start, end))

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

    def spans(self) -> Spans:
        """All rows so far."""
        rows: Counts = np.array(self._rows, np.int64).reshape(-1, 7)
        core, engine, site, occurrence, origin = rows[:, :5].astype(np.int32).T.copy()
        start, end = rows[:, 5:].T.copy()
        return Spans(core, engine, site, occurrence, origin, start, end)

    def levels(self) -> dict[str, Levels]:
        """All levels so far, by resource."""
        return {
            name: (np.array(times, np.int64), np.array(levels, np.float64))
            for name, (times, levels) in self._levels.items()
        }

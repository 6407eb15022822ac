"""Many points at once, of which none can take the others down.

The one idea: the loop knows of each point whether it waits, is under way here, is under way in
another study that writes the same store, or is finished; it hands out no more than there is room
for. A point that takes too long is given up; one whose worker dies is tried once more when nothing
else runs, because memory that others took may have been the reason.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace

from archgen.outcomes.points import Outcome, Point
from archgen.process.steps import overdue
from archgen.studies.run import failure
from archgen.studies.store import Store
from archgen.studies.workers import WorkerDied, Workers, WorkersGone

_DIED = (
    "the worker process died{} while it ran this point, also alone: out of memory (a larger "
    "--memory, fewer --jobs or a smaller batch would help), or a crash in native code"
)
_LOOK = 0.25
"""Seconds between looks at points that other studies have."""


@dataclass
class _Under:
    """A point that is under way."""

    point: Point
    started: float
    """Of `time.monotonic`."""


def run_points(
    points: Iterable[Point],
    workers: Workers,
    store: Store | None = None,
    timeout: float | None = None,
    fresh: bool = False,
) -> Iterator[Outcome]:
    """Outcomes in the order in which they are finished, each stored before it is given.

    Args:
        points: what has to be run; what the store got meanwhile is taken from it.
        workers: who runs them; they are not closed.
        store: where outcomes go, which other studies may write at the same time: a point that one
            of them is at is not started here.
        timeout: seconds that a point may take; None: as long as it likes, but no step of it longer
            than `archgen.process.steps.STEP_SECONDS`.
        fresh: run every point, whatever the store has.
    """
    yield from _Loop(deque(points), workers, store, timeout, fresh).run()


@dataclass
class _Loop:
    waiting: deque[Point]
    workers: Workers
    store: Store | None
    timeout: float | None
    fresh: bool

    def __post_init__(self) -> None:
        self.under: dict[Future[Outcome], _Under] = {}
        self.elsewhere: list[Point] = []
        self.died: deque[Point] = deque()
        self.suspect: Point | None = None
        self.known: list[Point | None] = []
        """Buckets of which a point is finished."""

    def run(self) -> Iterator[Outcome]:
        """Until nothing is left."""
        while self.waiting or self.under or self.elsewhere or self.died:
            yield from self._start()
            yield from self._finished_outcomes()
            yield from self._late()

    def _start(self) -> Iterator[Outcome]:
        """Hand out points while there is room."""
        if not self.waiting and not self.under:
            self._look_again()
        while len(self.under) < self.workers.room():
            point = self._next_point()
            if point is None:
                return
            # Claimed before it is looked up: a rival may have finished it in between.
            if self.store is not None and not self.store.claim(point.key):
                self.elsewhere.append(point)
                continue
            found = self._stored_outcome(point)
            if found is not None:
                self._release(point)
                yield found
                continue
            future = self.workers.submit(point)
            self.under[future] = _Under(point, time.monotonic())

    def _next_point(self) -> Point | None:
        """The point to go on with: of a bucket whose program a free worker has; else one whose
        program nobody has begun to make; else of a bucket that has been compiled before, of which
        the store has what was decided. None where all others wait for a program's first point."""
        if not any(point.ranges for point in self.waiting):
            return self.waiting.popleft() if self.waiting else None
        at_hand = self.workers.at_hand()
        begun = [*(under.point.range_point for under in self.under.values()), *self.known]
        buckets = [(point, point.range_point) for point in self.waiting]
        sought = (
            (point for point, bucket in buckets if bucket in at_hand),
            (point for point, bucket in buckets if bucket is None or bucket not in begun),
            (point for point, bucket in buckets if bucket in self.known),
        )
        found = next((point for points in sought for point in points), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def _stored_outcome(self, point: Point) -> Outcome | None:
        """What another study has made of the point."""
        return None if self.store is None or self.fresh else self.store.finished(point)

    def _look_again(self) -> None:
        """What others had may be finished or given up; what died is tried alone."""
        if self.elsewhere:
            self.waiting.extend(self.elsewhere)
            self.elsewhere.clear()
            time.sleep(_LOOK)
        elif self.died:
            self.suspect = self.died.popleft()
            self.waiting.append(self.suspect)

    def _finished_outcomes(self) -> Iterator[Outcome]:
        if not self.under:
            return
        done, _ = wait(self.under, _LOOK, FIRST_COMPLETED)
        for future in done:
            point = self.under.pop(future).point
            try:
                outcome = future.result()
            except WorkerDied as death:
                # All workers share the machine's memory, so it may have died of another point: it
                # is tried once more, alone, before it is blamed.
                if point is not self.suspect:
                    self._release(point)
                    self.died.append(point)
                    continue
                doing = f" at {death}" if str(death) else ""
                outcome = failure(point, _DIED.format(doing))
            except WorkersGone:
                raise
            except Exception as mistake:
                outcome = failure(point, mistake)
            if point.ranges and point.range_point not in self.known:
                self.known.append(point.range_point)
            yield self._store_outcome(point, outcome)

    def _late(self) -> Iterator[Outcome]:
        for future, under in list(self.under.items()):
            said = overdue(self.workers.at(future), under.started, self.timeout)
            if said is not None and not future.done():  # it may have finished since `wait`
                del self.under[future]
                self.workers.abandon(future)
                yield self._store_outcome(under.point, failure(under.point, said))

    def _store_outcome(self, point: Point, outcome: Outcome) -> Outcome:
        outcome = replace(outcome, network=point.network)
        if self.store is not None:
            outcome = self.store.save(outcome)
        self._release(point)
        return outcome

    def _release(self, point: Point) -> None:
        if self.store is not None:
            self.store.release(point.key)

"""Who runs the points, and many points at once, of which none can take the others down.

The one idea: everybody who runs points gives a future for each: this process, processes of this
machine, or an executor of the user's. Each process of this machine is an executor of its own, so
when one dies or hangs it is known which point it had, and no other point suffers. A process ends
when the study that started it is gone. The loop (`run_points`) knows of each point whether it
waits, is under way here or in another study that writes the same store, or is finished; it hands
out no more than there is room for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from concurrent.futures import Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing.context import BaseContext

from archgen.outcomes.points import Outcome, Point
from archgen.process import guard
from archgen.process.files import code_version
from archgen.process.start import collect_rarely, configure_messages, single_threaded
from archgen.process.steps import Board, ProcessStep, overdue, step_of
from archgen.studies.run import EstimateBench, Estimator, Workbench, failure
from archgen.studies.store import Store
from archgen.toolchain import Toolchain
from simmodel.arch.units import show_bytes
from simmodel.errors import UserError

_FULL = 0.5
"""Share of its memory that a worker may keep between points; one that has more is replaced."""
_own = threading.local()


class Workers:
    """Takes points and gives outcomes; by itself through an executor of the user's, whose processes
    have archgen."""

    def __init__(self, executor: Executor, tools: Tools, jobs: int) -> None:
        self._executor, self._tools, self.jobs = executor, tools, jobs
        """The last: how many points may be under way."""

    def at_hand(self) -> list[Point]:
        """Buckets (`Point.range_point`) whose programs somebody has made who is free; none where
        that is not known."""
        return []

    def submit(self, point: Point) -> Future[Outcome]:
        """Start on a point. The future raises `WorkerDied` when the worker does."""
        try:
            return self._executor.submit(_run_there, point, self._tools, code_version())
        except RuntimeError as why:  # broken, or shut down
            raise WorkersGone(f"the executor takes no more points: {why}") from why

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        """The step that the process which has the point of `future` is at, where that is known."""
        return None

    def abandon(self, future: Future[Outcome]) -> None:
        """Stop working on what `future` stands for, by force where that is possible."""
        future.cancel()

    def close(self) -> None:
        """Stop everything that was started for the points."""


class WorkerDied(Exception):
    """The process that worked on a point is gone; what it was at, where that is known."""


class WorkersGone(UserError):
    """Nobody is left who could run points."""


Tools = Toolchain | Estimator
"""What a point is run with, or estimated."""
Bench = Workbench | EstimateBench


def bench_for(tools: Tools) -> Bench:
    """A bench that uses `tools`."""
    return EstimateBench(tools) if isinstance(tools, Estimator) else Workbench(tools)


def can_guard() -> bool:
    """Whether a single worker process costs next to nothing, and asks nothing of scripts."""
    return guard.fork_context() is not None


class InProcess(Workers):
    """Runs points in this process, each before `submit` returns."""

    def __init__(self, tools: Tools) -> None:
        self._bench, self.jobs = bench_for(tools), 1
        self._last: list[Point] = []

    def at_hand(self) -> list[Point]:
        """That of the last point."""
        return self._last

    def submit(self, point: Point) -> Future[Outcome]:
        """A future that is done."""
        future: Future[Outcome] = Future()
        future.set_result(self._bench.run(point))
        self._last = [point.range_point] if point.range_point is not None else []
        return future


def _run_there(point: Point, tools: Tools, version: str) -> Outcome:
    """`_run_on_bench`; WorkersGone where archgen has not the `version` of who asks."""
    if version != code_version():
        raise WorkersGone("the processes of the executor have another version of archgen")
    return _run_on_bench(point, tools)


def _run_on_bench(point: Point, tools: Tools) -> Outcome:
    """The outcome of a point, on the bench of this thread, which keeps what points share."""
    benches: dict[Tools, Bench] = _own.__dict__.setdefault("benches", {})
    if tools not in benches:
        benches[tools] = bench_for(tools)
    return benches[tools].run(point)


class LocalProcesses(Workers):
    """Worker processes of this machine, each with a bound on its memory."""

    def __init__(self, tools: Tools, jobs: int, memory: int | None = None) -> None:
        """`memory`: bytes that the data of each worker may take; None: its share. Raises
        WorkersGone for less than a worker takes before its first point."""
        if memory is not None and memory < guard.LEAST:
            said = f"a worker process takes {show_bytes(guard.LEAST)} before its first point"
            raise WorkersGone(f"{show_bytes(memory)} for each worker (--memory, --jobs): {said}")
        single_threaded()
        self.jobs, self._tools, self._memory = jobs, tools, guard.memory_share(memory, jobs)
        self._context = _context(jobs)
        self._full = _FULL * (self._memory or float("inf"))
        self._idle: list[_WorkerProcess] = []
        self._busy: dict[Future[Outcome], _WorkerProcess] = {}

    def at_hand(self) -> list[Point]:
        """Of the last points of processes that have none now."""
        return [process.bucket for process in self._idle if process.bucket is not None]

    def submit(self, point: Point) -> Future[Outcome]:
        """Hand the point to a process that has none, the one that has its program if there is."""
        if not self._idle:
            self._idle.append(_WorkerProcess(self._tools, self._memory, self._context))
        bucket = point.range_point
        fitting = (p for p in self._idle if bucket is not None and p.bucket == bucket)
        process = next(fitting, self._idle[-1])
        self._idle.remove(process)
        process.bucket = bucket
        mine: Future[Outcome] = Future()
        self._busy[mine] = process

        def over(theirs: Future[Outcome]) -> None:
            busy = self._busy.pop(mine, None) is not None
            try:
                outcome = theirs.result()
            except (futures.CancelledError, BrokenProcessPool):
                at = step_of(process.board)
                mine.set_exception(WorkerDied("" if at is None else at.what))
            except BaseException as error:
                mine.set_exception(error)
            else:
                if busy:
                    self._recycle_process(process)
                mine.set_result(outcome)

        process.executor.submit(_run_with_tools, point).add_done_callback(over)
        return mine

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        """The step that the point's process is at."""
        process = self._busy.get(future)
        return None if process is None else step_of(process.board)

    def _recycle_process(self, process: _WorkerProcess) -> None:
        """Keep a process for the next point, unless what it has kept from others is too much."""
        if (guard.resident(process.pid) or 0) > self._full:
            process.executor.shutdown(wait=False)
        else:
            self._idle.append(process)

    def abandon(self, future: Future[Outcome]) -> None:
        """Kill the process that has the point."""
        if future in self._busy:
            self._busy[future].kill()

    def close(self) -> None:
        """End all processes: those with a point by force."""
        for process in list(self._busy.values()):
            process.kill()
        for process in self._idle:
            process.executor.shutdown(wait=True, cancel_futures=True)
        self._idle.clear()


class _WorkerProcess:
    def __init__(self, tools: Tools, memory: int | None, context: BaseContext) -> None:
        # A board of its own for each process: what a killed one was at stays to be read.
        self.board: Board = context.RawValue(Board)
        self.bucket: Point | None = None  # of its last point
        given = (tools, memory, self.board, dict(os.environ))
        self.executor = futures.ProcessPoolExecutor(1, context, _start, given)
        try:
            self.pid = self.executor.submit(os.getpid).result()  # what starting takes is no point's
        except (BrokenProcessPool, OSError, EOFError):  # the latter: from the server that forks
            bound = f" with {show_bytes(memory)} of memory (--memory)" if memory is not None else ""
            raise WorkersGone(f"no worker process could be started{bound}") from None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.executor.shutdown(wait=True, cancel_futures=True)


def _context(jobs: int) -> BaseContext:
    """A single worker is a fork of this process, which has the imports. Several are forked from a
    clean server, because this process has threads once it watches the first of them."""
    fork = guard.fork_context()
    if fork is not None and jobs == 1:
        return fork
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["archgen.studies.workers"])
    return context


def _start(tools: Tools, memory: int | None, board: Board, environment: Mapping[str, str]) -> None:
    """`environment`: of the study; that of the server which forks is older."""
    os.environ.update(environment)
    collect_rarely()
    configure_messages()
    guard.become_worker(memory, board)
    _own.tools = tools


def _run_with_tools(point: Point) -> Outcome:
    """The outcome of a point in a process that was started for it."""
    return _run_on_bench(point, _own.tools)


# Many points at once.

_DIED = (
    "the worker process died{} while it ran this point, also alone: out of memory (a larger "
    "--memory, fewer --jobs or a smaller batch would help), or a crash in native code"
)
_LOOK = 0.25
"""Seconds between looks at points that other studies have."""


def run_points(
    points: Iterable[Point], workers: Workers, store: Store | None = None,
    timeout: float | None = None, fresh: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
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
    under: dict[Future[Outcome], tuple[Point, float]] = field(default_factory=dict)
    """Points that are under way here, and since when (`time.monotonic`)."""
    elsewhere: list[Point] = field(default_factory=list)
    died: deque[Point] = field(default_factory=deque)
    suspect: Point | None = None
    """A point whose worker died, tried once more when nothing else runs: memory that others took
    may have been the reason."""
    known: list[Point | None] = field(default_factory=list)
    """Buckets of which a point is finished."""

    def run(self) -> Iterator[Outcome]:
        """Until nothing is left."""
        while self.waiting or self.under or self.elsewhere or self.died:
            yield from self._start()
            yield from self._finished_outcomes()
            yield from self._late()

    def _start(self) -> Iterator[Outcome]:
        if not self.waiting and not self.under:
            self._look_again()
        while len(self.under) < self.workers.jobs:
            point = self._next_point()
            if point is None:
                return
            # Claimed before it is looked up: a rival may have finished it in between.
            if self.store is not None and not self.store.claim(point.key):
                self.elsewhere.append(point)
            elif self.store is not None and not self.fresh and (old := self.store.finished(point)):
                self.store.release(point.key)
                yield old
            else:
                self.under[self.workers.submit(point)] = point, time.monotonic()

    def _next_point(self) -> Point | None:
        """The point to go on with: of a bucket whose program a free worker has; else one whose
        program nobody has begun to make; else of a bucket that has been compiled before, of which
        the store has what was decided. None where all others wait for a program's first point."""
        if not any(point.ranges for point in self.waiting):
            return self.waiting.popleft() if self.waiting else None
        at_hand = self.workers.at_hand()
        begun = [*(point.range_point for point, _ in self.under.values()), *self.known]
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
        for future in wait(self.under, _LOOK, futures.FIRST_COMPLETED).done if self.under else ():
            point, _ = self.under.pop(future)
            try:
                outcome = future.result()
            except WorkersGone:
                raise
            except (futures.BrokenExecutor, futures.CancelledError) as why:
                raise WorkersGone("the executor is gone; run again to go on") from why
            except WorkerDied as death:
                if point is not self.suspect:
                    self._release(point)
                    self.died.append(point)
                    continue
                outcome = failure(point, _DIED.format(f" at {death}" if str(death) else ""))
            except Exception as mistake:
                outcome = failure(point, mistake)
            if point.ranges and point.range_point not in self.known:
                self.known.append(point.range_point)
            yield self._store_outcome(point, outcome)

    def _late(self) -> Iterator[Outcome]:
        for future, (point, started) in list(self.under.items()):
            said = overdue(self.workers.at(future), started, self.timeout)
            if said is not None and not future.done():  # it may have finished since `wait`
                del self.under[future]
                self.workers.abandon(future)
                yield self._store_outcome(point, failure(point, said))

    def _store_outcome(self, point: Point, outcome: Outcome) -> Outcome:
        outcome = replace(outcome, network=point.network)
        if self.store is not None:
            outcome = self.store.save(outcome)
        self._release(point)
        return outcome

    def _release(self, point: Point) -> None:
        if self.store is not None:
            self.store.release(point.key)

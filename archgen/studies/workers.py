"""Who runs the points: this process, processes of this machine, or an executor somewhere else.

The one idea: everybody who runs points is a `concurrent.futures.Executor`. Each process of this
machine is an executor of its own, so when one dies or hangs it is known which point it had, and no
other point suffers. A process ends when the study that started it is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from typing import Protocol

from archgen.outcomes.points import Outcome, Point
from archgen.process.files import say_plainly
from archgen.process.guard import (
    LEAST,
    become_worker,
    collect_rarely,
    fork_context,
    grant,
    one_thread_each,
    resident,
)
from archgen.process.steps import Board, ProcessStep, step_of
from archgen.studies.estimate import EstimateBench, Estimator
from archgen.studies.run import Workbench
from archgen.toolchain import Toolchain
from simmodel.arch.units import show_bytes

_FULL = 0.5
"""Share of its memory that a worker may keep between points; one that has more is replaced."""
_own = threading.local()


class Workers(Protocol):
    """Takes points and gives outcomes."""

    def room(self) -> int:
        """How many points may be under way."""

    def at_hand(self) -> list[Point]:
        """Buckets (`Point.bucket`) whose programs somebody has made who is free."""

    def submit(self, point: Point) -> Future[Outcome]:
        """Start on a point. The future raises `WorkerDied` when the worker does."""

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        """The step that the process which has the point of `future` is at, where that is known."""

    def abandon(self, future: Future[Outcome]) -> None:
        """Stop working on what `future` stands for, by force."""

    def close(self) -> None:
        """Stop everything."""


class WorkerDied(Exception):
    """The process that worked on a point is gone; what it was at, where that is known."""


class WorkersGone(Exception):
    """Nobody is left who could run points."""


Tools = Toolchain | Estimator
"""What a point is run with, or estimated."""
Bench = Workbench | EstimateBench


def bench_for(tools: Tools) -> Bench:
    """A bench that uses `tools`."""
    return EstimateBench(tools) if isinstance(tools, Estimator) else Workbench(tools)


def run_here(point: Point, tools: Tools) -> Outcome:
    """The outcome of a point, on the bench of this thread, which keeps what points share."""
    benches: dict[Tools, Bench] = _own.__dict__.setdefault("benches", {})
    bench = benches.get(tools)
    if bench is None:
        bench = benches[tools] = bench_for(tools)
    return bench.run(point)


def can_guard() -> bool:
    """Whether a single worker process costs next to nothing, and asks nothing of scripts."""
    return fork_context() is not None


class InProcess:
    """Runs points in this process, each before `submit` returns."""

    def __init__(self, tools: Tools) -> None:
        self.bench = bench_for(tools)
        self._last: list[Point] = []

    def room(self) -> int:
        """One."""
        return 1

    def at_hand(self) -> list[Point]:
        """That of the last point."""
        return self._last

    def submit(self, point: Point) -> Future[Outcome]:
        """A future that is done."""
        future: Future[Outcome] = Future()
        future.set_result(self.bench.run(point))
        self._last = [point.range_point] if point.range_point is not None else []
        return future

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        """Nothing: it is done."""
        return None

    def abandon(self, future: Future[Outcome]) -> None:
        """Nothing: it is done."""

    def close(self) -> None:
        """Nothing is left running."""


class LocalProcesses:
    """Worker processes of this machine, each with a bound on its memory."""

    def __init__(self, tools: Tools, jobs: int, memory: int | None = None) -> None:
        """`memory`: bytes that the data of each worker may take; None: its share. Raises
        WorkersGone for less than a worker takes before its first point."""
        if memory is not None and memory < LEAST:
            said = f"a worker process takes {show_bytes(LEAST)} before its first point"
            raise WorkersGone(f"{show_bytes(memory)} for each worker (--memory, --jobs): {said}")
        one_thread_each()
        self.jobs, self._tools, self._memory = jobs, tools, grant(memory, jobs)
        self._context = _context(jobs)
        self._full = _FULL * (self._memory or float("inf"))
        self._idle: list[_WorkerProcess] = []
        self._busy: dict[Future[Outcome], _WorkerProcess] = {}

    def room(self) -> int:
        """The number of processes."""
        return self.jobs

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
            error = None if theirs.cancelled() else theirs.exception()
            known = self._busy.pop(mine, None)
            if known is not None and error is None and not theirs.cancelled():
                self._recycle_process(known)
            if theirs.cancelled() or isinstance(error, BrokenProcessPool):
                mine.set_exception(WorkerDied(process.doing()))
            elif error is not None:
                mine.set_exception(error)
            else:
                mine.set_result(theirs.result())

        process.executor.submit(_run_on_bench, point).add_done_callback(over)
        return mine

    def at(self, future: Future[Outcome]) -> ProcessStep | None:
        """The step that the point's process is at."""
        process = self._busy.get(future)
        return None if process is None else step_of(process.board)

    def _recycle_process(self, process: _WorkerProcess) -> None:
        """Keep a process for the next point, unless what it has kept from others is too much."""
        if process.resident() > self._full:
            process.executor.shutdown(wait=False)
        else:
            self._idle.append(process)

    def abandon(self, future: Future[Outcome]) -> None:
        """Kill the process that has the point."""
        process = self._busy.get(future)
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End all processes: those with a point by force."""
        for process in list(self._busy.values()):
            process.kill()
        for process in self._idle:
            process.executor.shutdown(wait=True, cancel_futures=True)
        self._idle.clear()


class _WorkerProcess:
    """One worker process."""

    def __init__(self, tools: Tools, memory: int | None, context: BaseContext) -> None:
        # A board of its own for each process: what a killed one was at stays to be read.
        self.board: Board = context.RawValue(Board)
        self.bucket: Point | None = None  # of its last point
        given = (tools, memory, self.board, dict(os.environ))
        self.executor = ProcessPoolExecutor(1, context, _start, given)
        try:
            self.pid = self.executor.submit(os.getpid).result()  # what starting takes is no point's
        except (BrokenProcessPool, OSError, EOFError):  # the latter: from the server that forks
            bound = f" with {show_bytes(memory)} of memory (--memory)" if memory is not None else ""
            raise WorkersGone(f"no worker process could be started{bound}") from None

    def doing(self) -> str:
        """What it is at, or was when it died."""
        at = step_of(self.board)
        return "" if at is None else at.what

    def resident(self) -> int:
        """Bytes of memory that it has; 0 where that is not known."""
        return resident(self.pid) or 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.executor.shutdown(wait=True, cancel_futures=True)


def _context(jobs: int) -> BaseContext:
    """A single worker is a fork of this process, which has the imports. Several are forked from a
    clean server, because this process has threads once it watches the first of them."""
    fork = fork_context()
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
    say_plainly()
    become_worker(memory, board)
    _own.bench = bench_for(tools)


def _run_on_bench(point: Point) -> Outcome:
    bench: Bench = _own.bench
    return bench.run(point)

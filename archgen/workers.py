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
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import BaseContext
from types import FrameType
from typing import Protocol

from archgen.estimate import EstimateBench, Estimator
from archgen.memory import limit, resident, share
from archgen.point import Outcome, Point
from archgen.run import Workbench
from archgen.threads import collect_rarely, one_thread_each
from archgen.toolchain import Toolchain
from simmodel.units import show_bytes

_FULL = 0.5
"""Share of its memory that a worker may keep between points; one that has more is replaced."""
_LEAST = 512 << 20
"""Bytes that a worker takes for libraries."""
_own = threading.local()


class Workers(Protocol):
    """Takes points and gives outcomes."""

    def room(self) -> int:
        """How many points may be under way."""

    def submit(self, point: Point) -> Future[Outcome]:
        """Start on a point. The future raises `WorkerDied` when the worker does."""

    def abandon(self, future: Future[Outcome]) -> None:
        """Stop working on what `future` stands for, by force."""

    def close(self) -> None:
        """Stop everything."""


class WorkerDied(Exception):
    """The process that worked on a point is gone."""


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


class InProcess:
    """Runs points in this process, each before `submit` returns."""

    def __init__(self, tools: Tools) -> None:
        self.bench = bench_for(tools)

    def room(self) -> int:
        """One."""
        return 1

    def submit(self, point: Point) -> Future[Outcome]:
        """A future that is done."""
        future: Future[Outcome] = Future()
        future.set_result(self.bench.run(point))
        return future

    def abandon(self, future: Future[Outcome]) -> None:
        """Nothing: it is done."""

    def close(self) -> None:
        """Nothing is left running."""


class LocalProcesses:
    """Worker processes of this machine, each with a bound on its memory."""

    def __init__(self, tools: Tools, jobs: int, memory: int | None = None) -> None:
        """`memory`: bytes that the data of each worker may take; None: no bound. Raises
        WorkersGone for less than a worker takes before its first point."""
        if memory is not None and memory < _LEAST:
            said = f"a worker process takes {show_bytes(_LEAST)} before its first point"
            raise WorkersGone(f"{show_bytes(memory)} for each worker (--memory, --jobs): {said}")
        one_thread_each()
        self.jobs, self._tools, self._memory = jobs, tools, memory
        self._full = _FULL * (memory or share(jobs) or float("inf"))
        self._idle: list[_Process] = []
        self._busy: dict[Future[Outcome], _Process] = {}

    def room(self) -> int:
        """The number of processes."""
        return self.jobs

    def submit(self, point: Point) -> Future[Outcome]:
        """Hand the point to a process that has none."""
        process = self._idle.pop() if self._idle else _Process(self._tools, self._memory)
        mine: Future[Outcome] = Future()
        self._busy[mine] = process

        def over(theirs: Future[Outcome]) -> None:
            error = None if theirs.cancelled() else theirs.exception()
            known = self._busy.pop(mine, None)
            if known is not None and error is None and not theirs.cancelled():
                self._next(known)
            if theirs.cancelled() or isinstance(error, BrokenProcessPool):
                mine.set_exception(WorkerDied())
            elif error is not None:
                mine.set_exception(error)
            else:
                mine.set_result(theirs.result())

        process.executor.submit(run_here, point, self._tools).add_done_callback(over)
        return mine

    def _next(self, process: _Process) -> None:
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


class _Process:
    """One worker process."""

    def __init__(self, tools: Tools, memory: int | None) -> None:
        self.executor = ProcessPoolExecutor(1, _context(), _start, (memory, dict(os.environ)))
        try:
            self.pid = self.executor.submit(os.getpid).result()  # what starting takes is no point's
        except (BrokenProcessPool, OSError, EOFError):  # the latter: from the server that forks
            bound = f" with {show_bytes(memory)} of memory (--memory)" if memory is not None else ""
            raise WorkersGone(f"no worker process could be started{bound}") from None

    def resident(self) -> int:
        """Bytes of memory that it has; 0 where that is not known."""
        return resident(self.pid) or 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.executor.shutdown(wait=True, cancel_futures=True)


def _context() -> BaseContext:
    """Workers forked from a clean server that has the imports, where the system has that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["archgen.workers"])
    return context


def _start(memory: int | None, environment: Mapping[str, str]) -> None:
    """`environment`: of the study; the server's is older."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, _leave)
    collect_rarely()
    limit(memory)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _leave_with_parent() -> None:
    """A worker whose study was killed would wait for its next point forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)

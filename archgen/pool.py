"""Many points at once in worker processes, of which none can take the others down.

The one idea: no more points are handed out than there are workers, so when a worker dies (out of
memory, a crash in a native library) the suspects are few; each is tried once more alone, and one
that dies alone is reported as failed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from types import FrameType

from archgen.point import Outcome, Point
from archgen.run import Workbench, failure
from archgen.threads import collect_rarely, one_thread_each
from archgen.toolchain import Toolchain

DIED = "the worker process died while it ran this point (out of memory, or a crash in native code)"

_benches: dict[str, Workbench] = {}


def run_points(points: Iterable[Point], tools: Toolchain, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order in which they are finished; `jobs` worker processes.

    With one job everything runs in this process. On KeyboardInterrupt the workers end at once.
    """
    if jobs <= 1:
        bench = Workbench(tools)
        yield from (bench.run(point) for point in points)
        return
    waiting = deque(points)
    while waiting:
        suspects = yield from _until_broken(waiting, tools, jobs)
        for point in suspects:
            alone = deque([point])
            died = yield from _until_broken(alone, tools, 1)
            for culprit in died:
                yield failure(culprit, DIED)


def _until_broken(
    waiting: deque[Point], tools: Toolchain, jobs: int
) -> Generator[Outcome, None, list[Point]]:
    """Take points from `waiting` until none is left or a worker dies; then: the points at risk."""
    one_thread_each()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, _context(), _start_worker, (tools,))
    running: dict[Future[Outcome], Point] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                point = waiting.popleft()
                running[pool.submit(_run, point)] = point
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                del running[future]
                yield outcome
    except BrokenProcessPool:
        return list(running.values())
    finally:
        if running:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
    return []


def _context() -> BaseContext:
    """Workers forked from a clean server that has the imports, where the system has that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["archgen.pool"])
    return context


def _start_worker(tools: Toolchain) -> None:
    signal.signal(signal.SIGINT, _leave)
    collect_rarely()
    _benches["mine"] = Workbench(tools)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _run(point: Point) -> Outcome:
    return _benches["mine"].run(point)

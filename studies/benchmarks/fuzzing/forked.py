"""Work in a process of its own, so that no case takes the others with it.

The one idea: the parent imports everything once and computes nothing; a child is a fork of it, and
its answer comes back through a pipe. A child that dies without an answer has given one: `died`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from archgen.process.guard import limit_memory

_FORK = multiprocessing.get_context("fork")
Answer = dict[str, Any]
DIED = "died"


@dataclass(frozen=True)
class Child:
    """A process at work."""

    task: int
    process: BaseProcess
    pipe: Connection
    until: float
    """When it is stopped by force."""


def apart(work: Callable[[], Answer], seconds: float, memory: int = 8 << 30) -> Answer:
    """What `work` answers in a process of its own."""
    return next(each(lambda _: work(), iter([0]), jobs=1, seconds=seconds, memory=memory))[1]


def each(
    work: Callable[[int], Answer], tasks: Iterator[int], *, jobs: int, seconds: float,
    memory: int = 8 << 30,
) -> Iterator[tuple[int, Answer]]:  # fmt: skip
    """(task, answer) as they come, `jobs` at a time, each stopped after `seconds` of wall time."""
    busy: list[Child] = []
    try:
        while True:
            while len(busy) < jobs and (task := next(tasks, None)) is not None:
                busy.append(_started(work, task, seconds, memory))
            if not busy:
                return
            wait([child.pipe for child in busy], timeout=1)
            for child in list(busy):
                answer = _answer(child)
                if answer is not None:
                    busy.remove(child)
                    yield child.task, answer
    finally:
        for child in busy:
            child.process.kill()


def _started(work: Callable[[int], Answer], task: int, seconds: float, memory: int) -> Child:
    ours, theirs = _FORK.Pipe(duplex=False)

    def run() -> None:
        limit_memory(memory)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        theirs.send(work(task))

    process = _FORK.Process(target=run)
    sys.stdout.flush()
    process.start()
    theirs.close()
    return Child(task, process, ours, time.monotonic() + seconds)


def _answer(child: Child) -> Answer | None:
    """What a child has answered, or that it died or had to be stopped; None while it works."""
    if child.pipe.poll():
        try:
            answer: Answer = child.pipe.recv()
        except EOFError:
            child.process.join()
            code = child.process.exitcode
            return {"kind": DIED, "signature": f"exit {code}", "reason": "no answer"}
        child.process.join()
        return answer
    if time.monotonic() > child.until:
        child.process.kill()
        child.process.join()
        return {"kind": "hang", "signature": "killed", "reason": "stopped by force"}
    return None

"""A piece of work in a process of its own, which can be ended when it takes too much.

The one idea: a fork of this process does the work and sends back what came out; this process
watches the clock. What a model file may contain (a loop without end, functions that double at each
level, an array of terabytes) cannot take this process with it. Where forks are not safe, the work
is done here, without bounds.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkContext
from types import FrameType
from typing import Any, TypeVar

from archgen.process.memory import grant, limit
from archgen.process.steps import Board, overdue, step_at, step_of, tell
from simmodel.units import show_bytes

Result = TypeVar("Result")
_LOOK = 0.25
"""Seconds between looks at the clock."""


class Exceeded(Exception):
    """Work that took more time or memory than it may; what, and how to allow more."""


@dataclass(frozen=True)
class Bounds:
    """What a piece of work may take."""

    timeout: float | None = None
    """Seconds; None: `archgen.process.steps.STEP_SECONDS` for each step."""
    memory: int | None = None
    """Bytes; None: the share of one process."""


def fork_context() -> ForkContext | None:
    """Processes that begin as copies of this one, in milliseconds; None where libraries of the
    system do not survive that."""
    return multiprocessing.get_context("fork") if sys.platform == "linux" else None


def become_worker(memory: int | None, board: Board) -> None:
    """Of a process that works for another one: it takes no more than `memory` bytes, tells its
    steps to `board`, and ends with whoever started it."""
    signal.signal(signal.SIGINT, _leave)
    tell(board)
    limit(memory)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def guarded(work: Callable[[], Result], bounds: Bounds = Bounds()) -> Result:
    """What `work` gives, or raises, in a process of its own; it changes nothing in this one.

    Raises Exceeded when it takes too much. What is returned or raised has to be picklable.
    """
    context = fork_context()
    if context is None:
        return work()
    board: Board = context.RawValue(Board)
    memory = grant(bounds.memory, 1)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, writer, memory, board))
    started = time.monotonic()
    process.start()
    writer.close()
    try:
        while not reader.poll(_LOOK):
            late = overdue(step_of(board), started, bounds.timeout)
            if late is not None:
                raise Exceeded(late)
        result: Result = _received(reader, board, memory)
        return result
    finally:
        process.kill()  # its answer is here, or too late; it need not tidy up
        process.join()
        reader.close()


def _received(reader: Connection[object, bytes], board: Board, memory: int | None) -> Any:
    at = step_of(board)
    try:
        good, content = pickle.loads(reader.recv_bytes())
    except EOFError:
        said = f"the process died{f' at {at.what}' if at else ''}"
        raise Exceeded(f"{said}: out of memory, or a crash in native code") from None
    if good:
        return content
    if isinstance(content, MemoryError):
        what = step_at(content) or "this"
        bound = show_bytes(memory) if memory is not None else "there is"
        raise Exceeded(f"{what} takes more than {bound} of memory; a larger --memory allows more")
    raise content


def _work(
    work: Callable[[], Result],
    writer: Connection[bytes, object],
    memory: int | None,
    board: Board,
) -> None:
    become_worker(memory, board)
    try:
        content = pickle.dumps((True, work()))
    except Exception as mistake:
        content = pickle.dumps((False, _portable(mistake)))
    writer.send_bytes(content)


def _portable(mistake: Exception) -> Exception:
    """`mistake`, or what tells of it where it does not survive being sent."""
    try:
        pickle.loads(pickle.dumps(mistake))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(mistake)))
    return mistake


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _leave_with_parent() -> None:
    """A worker whose study was killed would wait for its next point forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)

"""A piece of work in a process of its own, which can be ended when it takes too much.

The one idea: a fork of this process does the work and sends back what came out; this process
watches the clock. What a model file may contain (a loop without end, functions that double at each
level, an array of terabytes) cannot take this process with it. Where forks are not safe, the work
is done here, without bounds.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import ForkContext
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from archgen.process.steps import STEP_SECONDS, Board, overdue, report_steps_to, step_at, step_of
from simmodel.arch.units import show_bytes

# Memory of processes: what the machine has, what one of them may take, what it takes.

try:
    import resource
except ImportError:  # pragma: no cover - not on this system
    resource = None  # type: ignore[assignment]

LEAST = 512 << 20
"""Bytes that a process takes for libraries."""
_SHARED = 0.75
"""Part of the machine's memory that all processes of a study may take together."""
_CONTAINER = tuple(map(Path, ("/sys/fs/cgroup/memory.max",
                              "/sys/fs/cgroup/memory/memory.limit_in_bytes")))  # fmt: skip
"""Where Linux says what a container may take."""
_DATA = 5
"""Where Linux says how many pages of data a process has."""
_REFUSED = ("failed to allocate", "bad_alloc", "bad allocation", "out of memory")
"""What libraries say in their own errors when they are given no memory, in small letters."""


def memory_share(asked: int | None, jobs: int) -> int | None:
    """Bytes that each of `jobs` processes may take: what is asked for, or its share of three
    quarters of the machine's memory."""
    there = machine_memory()
    if asked is not None or there is None:
        return asked
    return max(LEAST, int(_SHARED * there) // jobs)


def machine_memory() -> int | None:
    """Bytes of memory that this machine has, or this container may take."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    for path in _CONTAINER:
        # There may be no such file, or it says "max".
        with suppress(OSError, ValueError):
            return min(size, int(path.read_text(encoding="ascii")) or size)
    return size


def limit_memory(size: int | None) -> None:
    """Give this process no more than `size` bytes for its data from now on; what it has already
    beside libraries comes on top. A bound of the user's own (`ulimit -d`) stays."""
    if size is not None and resource is not None:
        bound = size + max(0, (resident("self", _DATA) or 0) - LEAST)
        own = resource.getrlimit(resource.RLIMIT_DATA)[1]
        bound = bound if own == resource.RLIM_INFINITY else min(bound, own)
        resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))
        _Granted.size = size


class _Granted:
    """What `limit_memory` has given this process."""

    size: int | None = None


def resident(pid: int | str, column: int = 1) -> int | None:
    """Bytes of memory that the process `pid` occupies, or of another `column` of its `statm`; None
    where that is not known."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[column])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def is_refusal(mistake: BaseException) -> bool:
    """Whether a library's error says that there was no memory."""
    said = str(mistake).lower()
    return isinstance(mistake, MemoryError) or any(words in said for words in _REFUSED)


def refusal(batch: int, mistake: BaseException) -> str:
    """Why a point at this `batch` had not enough memory, and what would help."""
    room, step = "this computer has left", step_at(mistake)
    if _Granted.size is not None:
        room = (
            f"the {show_bytes(_Granted.size)} that a worker process may have; a larger --memory, "
            "fewer --jobs or a smaller batch would help"
        )
    what = f"a batch of {batch} takes more memory than {room}{f', at {step}' if step else ''}"
    return f"{what}: {mistake}" if str(mistake) else what


Result = TypeVar("Result")
_LOOK = 0.25
"""Seconds between looks at the clock."""


class Exceeded(Exception):
    """Work that took more time or memory than it may; what, and how to allow more."""


@dataclass(frozen=True)
class ResourceLimits:
    """What a piece of work may take."""

    timeout: float | None = None
    """Seconds; None: `archgen.process.steps.STEP_SECONDS` for each step."""
    memory: int | None = None
    """Bytes; None: the share of one process."""


# A fork does not collect what its parent had dropped: a session of ONNX Runtime would wait for its
# threads, which a fork does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=gc.freeze, after_in_parent=gc.unfreeze)


def fork_context() -> ForkContext | None:
    """Processes that begin as copies of this one, in milliseconds; None where libraries of the
    system do not survive that."""
    return multiprocessing.get_context("fork") if sys.platform == "linux" else None


def become_worker(memory: int | None, board: Board) -> None:
    """Of a process that works for another one: it takes no more than `memory` bytes, tells its
    steps to `board`, and ends with whoever started it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for a script's jobs with `&`
        signal.signal(signal.SIGINT, _exit_worker)
    report_steps_to(board)
    limit_memory(memory)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def guarded(work: Callable[[], Result], bounds: ResourceLimits = ResourceLimits()) -> Result:
    """What `work` gives, or raises, in a process of its own; it changes nothing in this one.

    Raises Exceeded when it takes too much. What is returned or raised has to be picklable.
    """
    context = fork_context()
    if context is None:
        return work()
    board: Board = context.RawValue(Board)
    memory = memory_share(bounds.memory, 1)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(work, writer, memory, board))
    started = time.monotonic()
    process.start()
    writer.close()
    try:
        while not reader.poll(_LOOK):
            at = step_of(board)  # None: it may hang before its first step
            late = overdue(at, started, bounds.timeout or (None if at else STEP_SECONDS))
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
    work: Callable[[], Result], writer: Connection[bytes, object], memory: int | None, board: Board,
) -> None:  # fmt: skip
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


def _exit_worker(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _exit_with_parent() -> None:
    """A worker whose study was killed would wait for its next point forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)

"""What a process is at, told to whoever watches it.

The one idea: what somebody's model decides the length of (opening it, quantizing it, loading it, a
run of it in ONNX Runtime) is a *step*. A process writes the step that it is at into a few bytes
that it may share with another one, which can end it and say what took too long. Where nobody
watches, nobody reads them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure, c_char, c_double
from dataclasses import dataclass

STEP_SECONDS = 600.0
"""What a step may take where the user says nothing of time."""
_LENGTH, _AT = 240, "at "


class Board(Structure):
    """The step that a process is at, as shared memory holds it; empty between steps."""

    _fields_ = (("since", c_double), ("what", c_char * _LENGTH))


@dataclass(frozen=True)
class ProcessStep:
    """What a process is at, and for how many seconds."""

    what: str
    """`quantizing net.onnx`."""
    seconds: float


class _CurrentProcess:
    """This process, which tells its steps to one board."""

    board = Board()


def report_steps_to(board: Board) -> None:
    """Let this process write its steps there from now on."""
    _CurrentProcess.board = board


@contextmanager
def step(what: str) -> Iterator[None]:
    """Within, this process is at `what`, `quantizing net.onnx`; steps may lie within others. Where
    memory runs out, the error has `what` as a note."""
    board = _CurrentProcess.board
    before = board.since, board.what
    board.since, board.what = time.monotonic(), what.encode()[: _LENGTH - 1]
    try:
        yield
    except MemoryError as mistake:
        if step_at(mistake) is None:
            mistake.add_note(f"{_AT}{what}")
        raise
    finally:
        board.since, board.what = before


def step_at(mistake: BaseException) -> str | None:
    """The innermost step in which memory ran out."""
    notes: list[str] = getattr(mistake, "__notes__", [])
    return next((note.removeprefix(_AT) for note in notes if note.startswith(_AT)), None)


def step_of(board: Board) -> ProcessStep | None:
    """The step that the process which writes `board` is at."""
    what = bytes(board.what).decode(errors="replace")
    return ProcessStep(what, time.monotonic() - float(board.since)) if what else None


def overdue(at: ProcessStep | None, started: float, timeout: float | None) -> str | None:
    """Why work is given up that began at `started` (of `time.monotonic`) and is at the step `at`;
    None while it may go on. All of it may take `timeout` seconds; None: no step more than
    `STEP_SECONDS`."""
    if timeout is not None:
        late = time.monotonic() - started > timeout
        doing = f", at {at.what}" if at is not None else ""
        return f"no result after {timeout:g} s (--timeout){doing}" if late else None
    if at is None or at.seconds < STEP_SECONDS:
        return None
    return f"{at.what} took more than {STEP_SECONDS:g} s; a larger --timeout allows more"

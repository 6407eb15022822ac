"""Errors of a running program, importable without the machine model."""

from __future__ import annotations


class Deadlock(Exception):
    """Nothing happens any more, with work left; the text lists what each engine waits for."""


class NotRunnable(ValueError):
    """The program needs a part that the architecture lacks (engine, token, barrier, memory), or
    something that no machine does."""


class TooLong(NotRunnable):
    """A stream stands for more instructions than can be listed."""


class Impossible(RuntimeError):
    """A run did less than its outputs need: run or demand is wrong, and so are all figures."""


class NoSuchRow(ValueError):
    """An index in a program's data names a row that its table does not have."""

    def __init__(self, index: int, rows: int, node: str = "") -> None:
        self.index, self.rows = index, rows
        where = f"{node}: " if node else ""
        super().__init__(
            f"{where}index {index} is out of range, expected {-rows} .. {rows - 1} ({rows} rows)"
        )


class HostFailed(ValueError):
    """The results of a payload do not match the outputs of its host call."""


class NoPayload(HostFailed):
    """A payload is no model that the host can run."""

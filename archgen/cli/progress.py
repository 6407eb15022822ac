"""How far a study is: a bar with rate and time left, or lines where there is no terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from archgen.cli.pace import Pace
from archgen.outcomes.point import Outcome

_EVERY = 30.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Shows the progress of a study on `console` while it is entered."""

    def __init__(self, console: Console, pace: Pace) -> None:
        self.console = console
        self.done = self.total = 0
        self._pace = pace
        self._started = self._told = self._last = time.monotonic()
        self._bar = Bar(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[pace]}"), TextColumn("{task.description}"),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("preparing", total=None, pace="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def observe(self, outcome: Outcome, done: int, total: int) -> None:
        """Count one more point."""
        now = time.monotonic()
        if done <= self.done:  # what is run behind estimates takes times of its own
            self._pace, self._started = Pace(at_most=self._pace.at_most), self._last
        self._pace.add(outcome, now - self._last)
        self._last = now
        self.done, self.total = done, total
        self._bar.update(
            self._task, completed=done, total=total, description=outcome.label, pace=self.pace()
        )
        if not self.console.is_terminal and now - self._told >= _EVERY and done < total:
            self._told = now
            self.console.print(f"{done} of {total} points, {self.pace()}", highlight=False)

    def pace(self) -> str:
        """`12.4 points/min, 8 min left`; only points that were run count."""
        seconds = time.monotonic() - self._started
        return self._pace.said(seconds, self.total - self.done)

"""Options of verbs that run points, running them with progress shown, and what is said after."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from archgen.cli.options import bounds_options, together
from archgen.lint import brief, findings
from archgen.outcomes.points import Outcome
from archgen.report import REPORT, write_report
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.results import Study
from archgen.studies.store import writing
from archgen.studies.sweep import Observer

Result = TypeVar("Result")
OUT = Path("archgen-out")
INTERRUPTED = 130
running_options = together(
    click.option(
        "-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1,
        show_default="processors", help="Worker processes.",
    ),
    click.option(
        "-o", "--out", type=click.Path(file_okay=False, path_type=Path),
        help="Folder for results and plots.  "
        "[default: archgen-out, archgen-out/NAME for a study file]",
    ),
    click.option("--fresh", is_flag=True, help="Run points again that the folder already has."),
    click.option(
        "--plots/--no-plots", default=True, help="Draw plots in the end, and write the report."
    ),
    bounds_options(
        "Give up a point after this long; it becomes a failed row.",
        "Most data of one worker process, such as 8GiB.  "
        "[default: its share of three quarters of the machine's]",
    ),
    click.option(
        "--executor", default="local", show_default=True,
        help="Who runs the points: local (processes), here (this process, without bounds).",
    ),
)  # fmt: skip


def running(folder: Path, **given: Any) -> Running:
    """What these options say."""
    return Running(out=folder, command=shlex.join(["archgen", *sys.argv[1:]]), **given)


# How far a study is: a bar with rate and time left, or lines where there is no terminal.

_EVERY = 30.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Shows the progress of a study on `console` while it is entered."""

    def __init__(self, console: Console, at_most: bool = False) -> None:
        """`at_most`: the work may end before all points are done."""
        self.console = console
        self.done = self.total = 0
        self._at_most, self._run, self._spent = at_most, 0, 0.0
        self._told = self._last = time.monotonic()
        self.bar = Bar(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[pace]}"), TextColumn("{task.description}"),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self.bar.add_task("preparing", total=None, pace="")

    def observe(self, outcome: Outcome, done: int, total: int) -> None:
        """Count one more point; of those before it only what was run tells how long one takes."""
        now = time.monotonic()
        if done <= self.done:  # what is run behind estimates takes times of its own
            self._run, self._spent = 0, 0.0
        if not outcome.reused:
            self._run, self._spent = self._run + 1, self._spent + now - self._last
        self.done, self.total, self._last = done, total, now
        self.bar.update(
            self._task, completed=done, total=total, description=outcome.label, pace=self.pace()
        )
        if not self.console.is_terminal and now - self._told >= _EVERY and done < total:
            self._told = now
            self.console.print(f"{done} of {total} points, {self.pace()}", highlight=False)

    def pace(self) -> str:
        """`12.4 points/min, at most 8 min left`; nothing before a point was run."""
        if not self._spent:
            return ""
        left = self._spent / self._run * (self.total - self.done)
        most = "at most " if self._at_most else ""
        return f"{60 * self._run / self._spent:.3g} points/min, {most}{_time_text(left)} left"


def _time_text(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def watched(work: Callable[[Observer], Result], folder: Path, at_most: bool = False) -> Result:
    """What `work` gives, with its progress shown; an interruption says what is saved and ends.
    `at_most`: there may be fewer points than are known of."""
    progress = Progress(Console(stderr=True), at_most)
    with progress.bar:
        try:
            return work(progress.observe)
        except KeyboardInterrupt:
            progress.bar.stop()
            shown = f"{progress.done} of {progress.total} points are finished and saved in {folder}"
            done = f"{shown}; run again to go on" if progress.done else "no point is finished yet"
            click.echo(f"interrupted: {done}", err=True)
            sys.exit(INTERRUPTED)


def save_page(study: Study, folder: Path, wanted: bool, name: str = REPORT) -> None:
    """The page about what was run, where one is wanted."""
    if wanted and study.outcomes:
        with writing(folder):
            write_report(study, folder / name, folder)


def implausible(design: Design, study: Study | None = None) -> Iterator[str]:
    """What `archgen lint` warns of the machines of `design`, or of those that `study` has run, all
    of them variants of its first; each thing once."""
    archs = design.archs if study is None else study.archs
    files = {machine.arch.name: machine.file for machine in design.machines}
    if study is not None:
        files = {arch.name: design.machines[0].file for arch in archs}
    return brief((each for arch in archs for each in findings(arch)), files)

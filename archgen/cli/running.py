"""Options of verbs that run points, and running them with progress shown."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from archgen.cli.options import Size, seconds_of
from archgen.outcomes.points import Outcome
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.sweep import Observer

# How long the points that are left should take, by what those of the same network have taken.


@dataclass
class ProgressRate:
    """Measures points as they are finished."""

    expected: Mapping[str, int] = field(default_factory=dict)
    """Network -> points that it has in all, as far as that is known."""
    at_most: bool = False
    """Whether the work may end before all points are done."""
    _spent: dict[str, float] = field(default_factory=dict)
    _run: dict[str, int] = field(default_factory=dict)
    _done: dict[str, int] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Points that were not taken from an earlier run."""
        return sum(self._run.values())

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One more point, `seconds` after the one before."""
        model = str(outcome.row.get("model", ""))
        self._done[model] = self._done.get(model, 0) + 1
        if not outcome.reused:
            self._spent[model] = self._spent.get(model, 0.0) + seconds
            self._run[model] = self._run.get(model, 0) + 1

    def left(self, count: int) -> float:
        """Seconds that `count` more points should take, where at least one was run."""
        mean = sum(self._spent.values()) / self.run
        known = {
            model: max(0, points - self._done.get(model, 0))
            for model, points in self.expected.items()
        }
        open_ = sum(known.values())
        if not open_:
            return mean * count
        share = count / open_
        return sum(share * points * self._cost(model, mean) for model, points in known.items())

    def _cost(self, model: str, mean: float) -> float:
        """Seconds of a point of a network; of one that has none yet, those of all."""
        return self._spent[model] / self._run[model] if model in self._run else mean

    def rate_text(self, seconds: float, count: int) -> str:
        """`12.4 points/min, at most 8 min left`, after `seconds` and with `count` points to go."""
        if not self.run or seconds <= 0:
            return ""
        most = "at most " if self.at_most else ""
        return f"{60 * self.run / seconds:.3g} points/min, {most}{span(self.left(count))} left"


def span(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# How far a study is: a bar with rate and time left, or lines where there is no terminal.

_EVERY = 30.0
"""Seconds between lines where there is no terminal."""


class Progress:
    """Shows the progress of a study on `console` while it is entered."""

    def __init__(self, console: Console, pace: ProgressRate) -> None:
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
            self._pace, self._started = ProgressRate(at_most=self._pace.at_most), self._last
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
        return self._pace.rate_text(seconds, self.total - self.done)


Result = TypeVar("Result")
Verb = Callable[..., Any]
OUT = Path("archgen-out")
INTERRUPTED = 130


_OPTIONS = (
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(1),
        default=os.cpu_count() or 1,
        show_default="processors",
        help="Worker processes.",
    ),
    click.option(
        "-o",
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for results and plots.  "
        "[default: archgen-out, archgen-out/NAME for a study file]",
    ),
    click.option("--fresh", is_flag=True, help="Run points again that the folder already has."),
    click.option(
        "--plots/--no-plots",
        default=True,
        help="Draw plots in the end, and write the report.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        callback=seconds_of,
        metavar="SECONDS",
        help="Give up a point after this long; it becomes a failed row.  "
        "[default: no step that runs the model takes more than 600]",
    ),
    click.option(
        "--memory",
        type=Size(),
        metavar="SIZE",
        help="Most data of one worker process, such as 8GiB.  "
        "[default: its share of three quarters of the machine's]",
    ),
    click.option(
        "--executor",
        default="local",
        show_default=True,
        help="Who runs the points: local, here (this process, without bounds), "
        "dask:tcp://HOST:PORT, dask:local[:WORKERS].",
    ),
)


def running_options(verb: Verb) -> Verb:
    """Adds --jobs, --out, --fresh, --plots, --timeout, --memory and --executor."""
    for option in reversed(_OPTIONS):
        verb = option(verb)
    return verb


def running(
    folder: Path,
    jobs: int,
    fresh: bool,
    plots: bool,
    timeout: float | None,
    memory: int | None,
    executor: str,
    trace: bool = False,
    levers: bool | None = None,
) -> Running:
    """What these options say."""
    command = shlex.join(["archgen", *sys.argv[1:]])
    return Running(jobs, folder, fresh, timeout, memory, executor, command, trace, plots, levers)


def watched(
    work: Callable[[Observer], Result],
    folder: Path,
    design: Design | None = None,
    at_most: bool = False,
) -> Result:
    """What `work` gives, with its progress shown; an interruption says what is saved and ends.

    `design`: whose points are run, where these are known before; `at_most`: there may be fewer.
    """
    pace = ProgressRate({} if design is None else _points_by_model(design), at_most)
    with Progress(Console(stderr=True), pace) as progress:
        try:
            return work(progress.observe)
        except KeyboardInterrupt:
            progress.stop()
            shown = f"{progress.done} of {progress.total} points are finished and saved in {folder}"
            done = f"{shown}; run again to go on" if progress.done else "no point is finished yet"
            click.echo(f"interrupted: {done}", err=True)
            sys.exit(INTERRUPTED)


def _points_by_model(design: Design) -> Counter[str]:
    """Points of each network, before any are filtered."""
    each = len(design.machines) * max(1, len(design.dtypes)) * len(design.ways)
    found: Counter[str] = Counter()
    for load in design.workloads:
        found[load.model] += each * max(1, len(load.batches))
    return found

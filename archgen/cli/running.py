"""Options of verbs that run points, running them with progress shown, and what is said after."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
from rich import progress
from rich.console import Console

from archgen.cli.options import bounds_options, combined_options
from archgen.cli.terminal import ExitCode
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
running_options = combined_options(
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


# How far a study is: a bar with the time left, or lines where there is no terminal.

_EVERY = 30.0
"""Seconds between lines where there is no terminal."""
_WINDOW = 3600.0
"""Seconds whose points tell how long one takes."""


def with_progress(work: Callable[[Observer], Result], folder: Path) -> Result:
    """What `work` gives, with its progress shown; an interruption says what is saved and ends."""
    bar = progress.Progress(
        progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(), progress.TextColumn("{task.description}"),
        console=Console(stderr=True), transient=True, speed_estimate_period=_WINDOW,
    )  # fmt: skip
    bar.add_task("preparing", total=None)
    (task,) = bar.tasks
    told = time.monotonic()

    def observe(outcome: Outcome, done: int, total: int) -> None:
        nonlocal told
        # What is stored says nothing of time, and runs behind estimates take times of their own.
        counts = bar.reset if outcome.reused or done <= task.completed else bar.update
        counts(task.id, total=total, completed=done, description=outcome.label)
        if not bar.console.is_terminal and time.monotonic() - told >= _EVERY and done < total:
            told = time.monotonic()
            left = timedelta(seconds=task.time_remaining or 0)
            bar.console.print(f"{done} of {total} points, {left or '?'} left", highlight=False)

    with bar:
        try:
            return work(observe)
        except KeyboardInterrupt:
            bar.stop()
            said = "no point is finished yet"
            if task.total:
                done = f"{task.completed:.0f} of {task.total:.0f} points are finished and saved"
                said = f"{done} in {folder}; run again to go on"
            click.echo(f"interrupted: {said}", err=True)
            sys.exit(ExitCode.INTERRUPTED)


def save_page(study: Study, folder: Path, wanted: bool, name: str = REPORT) -> None:
    """The page about what was run, where one is wanted."""
    if wanted and study.outcomes:
        with writing(folder):
            write_report(study, folder / name, folder)


def lint_notes(design: Design, study: Study | None = None) -> Iterator[str]:
    """What `archgen lint` warns of the machines of `design`, or of those that `study` has run, all
    of them variants of its first; each thing once."""
    archs = design.archs if study is None else study.archs
    files = {machine.arch.name: machine.file for machine in design.machines}
    if study is not None:
        files = {arch.name: design.machines[0].file for arch in archs}
    return brief((each for arch in archs for each in findings(arch)), files)

"""Options of verbs that run points, and running them with progress shown."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from archgen.cli.options import Size, seconds_of
from archgen.cli.pace import Pace
from archgen.cli.progress import Progress
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.sweep import Observer

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
    pace = Pace({} if design is None else _points_by_model(design), at_most)
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

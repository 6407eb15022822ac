"""`archgen study`: every model on every architecture, as a table, frames and plots."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from archgen.cli.options import (
    Batches,
    as_dims,
    as_efforts,
    calibration_option,
    dim_option,
    dtype_option,
    host_option,
    scheduling_options,
)
from archgen.cli.summary import results_table, summary_lines
from archgen.point import Outcome
from archgen.results import Study
from archgen.sweep import study as run_study

INTERRUPTED = 130


@click.command()
@click.argument("archs", nargs=-1, required=True, metavar="ARCH...")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    required=True,
    metavar="MODEL",
    help="Network: zoo name, name:option=value,..., or .onnx file. May be repeated.",
)
@click.option(
    "-b",
    "--batch",
    "batches",
    type=Batches(),
    default="1",
    show_default=True,
    help="Batch sizes, separated by commas.",
)
@dtype_option
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1),
    default=os.cpu_count() or 1,
    show_default="processors",
    help="Worker processes.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Execute the instructions and compare with ONNX Runtime.",
)
@host_option
@dim_option
@calibration_option
@scheduling_options
@click.option(
    "-o",
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="archgen-out",
    show_default=True,
    help="Folder for results and plots.",
)
@click.option("--fresh", is_flag=True, help="Run points again that the folder already has.")
def study(
    archs: tuple[str, ...],
    models: tuple[str, ...],
    batches: tuple[int, ...],
    dtype: str | None,
    jobs: int,
    verify: bool,
    host: bool,
    dims: Sequence[tuple[str, int]],
    calibration: str | None,
    fusion: tuple[str, ...],
    halo: tuple[str, ...],
    objective: tuple[str, ...],
    effort: tuple[str, ...],
    out: Path,
    fresh: bool,
) -> None:
    """Compile, check and simulate models on architectures, and compare them.

    ARCH is a file, a pattern or the name of a shipped architecture. The folder gets results.csv,
    results.parquet, latency.png, roofline.png, memory.png, stalls.png, and the details of each
    point under runs/. Finished points are taken from there when the command is run again.

    \b
    archgen study archs/*.yaml --model resnet50 --batch 1,8 --out results
    archgen study soma-edge --model net.onnx --dim sequence=128 --dtype int8
    archgen study soma-edge --model resnet50 --fusion none,line,optimal

    Several values of --batch, --fusion, --halo, --objective or --effort, separated by commas, are
    compared: a point for each combination.

    Exit code 0: every point has an answer, also "does not fit" and "unsupported". 1: a point
    failed or its outputs are wrong. 2: wrong input. 130: interrupted, finished points are saved.
    """  # fmt: skip
    console = Console(stderr=True)
    counts = {"done": 0, "all": 0}
    with _progress(console) as progress:
        task = progress.add_task("preparing", total=None)

        def observe(outcome: Outcome, done: int, total: int) -> None:
            counts.update(done=done, all=total)
            progress.update(task, completed=done, total=total, description=outcome.label)

        try:
            result = run_study(
                archs, models, batches, dtype, jobs=jobs, verify=verify, host=host,
                dims=as_dims(dims), calibration=calibration, fusion=fusion, halo=halo,
                objective=objective, effort=as_efforts(effort), out=out, fresh=fresh,
                observe=observe,
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.stop()
            shown = f"{counts['done']} of {counts['all']} points are finished and saved in {out}"
            done = f"{shown}; run again to go on" if counts["done"] else "no point is finished yet"
            click.echo(f"interrupted: {done}", err=True)
            sys.exit(INTERRUPTED)
    report(result, out)
    sys.exit(0 if result.good else 1)


def report(result: Study, out: Path) -> None:
    """Print the table of results, then what needs words."""
    console = Console()
    if not console.is_terminal:
        console.width = 200
    console.print(results_table(result.frame))
    for line in summary_lines(result.frame, result.reused, out):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
        console=console, transient=True,
    )  # fmt: skip

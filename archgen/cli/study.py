"""`archgen study`: every model on every architecture, as a table, frames and plots."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from archgen.cli.options import (
    Batches,
    Size,
    as_dims,
    as_efforts,
    calibration_option,
    dim_option,
    dtype_option,
    host_option,
    scheduling_options,
)
from archgen.cli.progress import Progress
from archgen.cli.summary import points_table, results_table, summary_lines
from archgen.design import Design, Workload, designed, points
from archgen.memory import share
from archgen.report import REPORT, write_report
from archgen.results import Study
from archgen.store import written
from archgen.study_file import is_study
from archgen.study_plan import load_study
from archgen.sweep import Running, run_study
from archgen.variants import Variant

INTERRUPTED = 130
WIDE = 1000
"""Columns of output that no terminal shows, so that nothing of a table is cut off."""
_TYPED = click.core.ParameterSource.COMMANDLINE
OUT = Path("archgen-out")


@click.command()
@click.argument("archs", nargs=-1, required=True, metavar="ARCH...|STUDY")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
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
    help="Folder for results and plots.  [default: archgen-out, archgen-out/NAME for a study file]",
)
@click.option("--fresh", is_flag=True, help="Run points again that the folder already has.")
@click.option(
    "--trace", is_flag=True, help="Keep each run as runs/*.pftrace.gz for ui.perfetto.dev."
)
@click.option(
    "--plots/--no-plots", default=True, help="Draw plots and write the report in the end."
)
@click.option("--dry-run", is_flag=True, help="List the points and which are finished; run none.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Give up a point after this long; it becomes a failed row.",
)
@click.option(
    "--memory",
    type=Size(),
    metavar="SIZE",
    help="Most data of one worker process, such as 8GiB.  [default: its share of the machine's]",
)
@click.option(
    "--executor",
    default="local",
    show_default=True,
    help="Who runs the points: local, dask:tcp://HOST:PORT, dask:local[:WORKERS].",
)
@click.pass_context
def study(
    context: click.Context,
    /,
    archs: tuple[str, ...],
    out: Path | None,
    jobs: int,
    fresh: bool,
    trace: bool,
    plots: bool,
    dry_run: bool,
    timeout: float | None,
    memory: int | None,
    executor: str,
    **given: Any,
) -> None:
    """Compile, check and simulate models on architectures, and compare them.

    ARCH is a file, a pattern or the name of a shipped architecture. STUDY is a file that says which
    architectures, sweeps of their fields, models and options; options given beside it replace what
    it says. The folder gets results.csv, results.parquet, plots, report.html, and the details of
    each point under runs/. Finished points are taken from there when the command is run again,
    whatever has interrupted it.

    \b
    archgen study archs/*.yaml --model resnet50 --batch 1,8 --out results
    archgen study studies/02_sweep.yaml --jobs 4
    archgen study soma-edge --model net.onnx --dim sequence=128 --dtype int8
    archgen study soma-edge --model resnet50 --fusion none,line,optimal

    Several values of --batch, --fusion, --halo, --objective or --effort, separated by commas, are
    compared: a point for each combination.

    Exit code 0: every point has an answer, also "does not fit" and "unsupported". 1: a point
    failed or its outputs are wrong. 2: wrong input. 130: interrupted, finished points are saved.
    """  # fmt: skip
    typed = {name for name in given if context.get_parameter_source(name) == _TYPED}
    design = _design(archs, given, typed)
    folder = out or (OUT / design.name if design.source else OUT)
    if dry_run:
        _list(design, folder)
        return
    command = shlex.join(["archgen", *sys.argv[1:]])
    most = memory or share(jobs) if executor == "local" and jobs > 1 else memory
    running = Running(jobs, folder, fresh, timeout, most, executor, command, trace, plots)
    sys.exit(0 if run_and_report(design, running, folder).good else 1)


def run_and_report(design: Design, running: Running, folder: Path) -> Study:
    """Run a study with its progress shown, and print what came out."""
    with Progress(Console(stderr=True)) as progress:
        try:
            result = run_study(design, running, progress.observe)
        except KeyboardInterrupt:
            progress.stop()
            shown = f"{progress.done} of {progress.total} points are finished and saved in {folder}"
            done = f"{shown}; run again to go on" if progress.done else "no point is finished yet"
            click.echo(f"interrupted: {done}", err=True)
            sys.exit(INTERRUPTED)
    if running.plots and result.outcomes:
        with written(folder):
            write_report(result, folder / REPORT)
    report(result, folder)
    return result


def _design(archs: Sequence[str], given: Mapping[str, Any], typed: Set[str]) -> Design:
    """The design that arguments and options describe, from a study file or without one; `typed`
    are the options that stand on the command line."""
    files = [Path(name) for name in archs if Path(name).is_file() and is_study(Path(name))]
    if not files:
        if not given["models"]:
            raise click.UsageError("Missing option '-m' / '--model': which networks?")
        return _plain(archs, given)
    if len(archs) > 1:
        raise click.UsageError("a study file stands alone: it says which architectures it is about")
    return _overridden(load_study(files[0]), given, typed)


def _plain(archs: Sequence[str | Variant], given: Mapping[str, Any]) -> Design:
    return designed(
        archs, given["models"], given["batches"], given["dtype"],
        verify=given["verify"], host=given["host"],
        dims=as_dims(given["dims"]), calibration=given["calibration"],
        fusion=given["fusion"], halo=given["halo"], objective=given["objective"],
        effort=as_efforts(given["effort"]), passes=given.get("passes", ((),)),
    )  # fmt: skip


def _overridden(design: Design, given: Mapping[str, Any], typed: Set[str]) -> Design:
    """`design` with what the command line says otherwise."""
    if not typed:
        return design
    said = {name: value for name, value in given.items() if name in typed}
    ways = {
        name: tuple(dict.fromkeys(getattr(way, name) for way in design.ways))
        for name in ("fusion", "halo", "objective", "effort", "passes")
    }
    ways["effort"] = tuple(map(str, ways["effort"]))
    held = {"verify": design.verify, "host": design.host}
    loads = said.get("models") or design.workloads
    made = _plain(design.machines, {**given, **ways, **held, **said, "models": loads})
    return replace(
        made,
        workloads=tuple(_changed(load, said) for load in made.workloads),
        dtypes=made.dtypes or design.dtypes,
        only=design.only, skip=design.skip, timeout=design.timeout,
        name=design.name, description=design.description, source=design.source,
    )  # fmt: skip


def _changed(load: Workload, said: Mapping[str, Any]) -> Workload:
    dims = {**dict(load.dims), **as_dims(said.get("dims", ()))}
    return replace(
        load,
        batches=said.get("batches", load.batches),
        dims=tuple(sorted(dims.items())),
        calibration=said.get("calibration", load.calibration),
    )


def _list(design: Design, folder: Path) -> None:
    """Print the points, and which of them `folder` has."""
    wanted = points(design)
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    table, finished = points_table(wanted, folder)
    console.print(table)
    console.print(f"{len(wanted)} points, {finished} of them finished in {folder}", highlight=False)


def report(result: Study, out: Path) -> None:
    """Print the table of results, then what needs words."""
    console = Console()
    if not console.is_terminal:
        console.width = WIDE
    console.print(results_table(result.frame))
    for line in summary_lines(result.frame, result.reused, out):
        console.print(line, highlight=False, markup=False, soft_wrap=True)

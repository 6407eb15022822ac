"""`archgen study`: every model on every architecture, as a table, frames and plots."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from archgen.cli.codes import ExitCode, first_of
from archgen.cli.gates import budget_option, judge, pipeline_options
from archgen.cli.implausible import of_design
from archgen.cli.options import (
    Batches,
    as_extents,
    as_roles,
    calibration_option,
    dim_option,
    dtype_option,
    extension_option,
    host_option,
    role_option,
    set_option,
)
from archgen.cli.running import OUT, running, running_options, watched
from archgen.cli.scheduling_options import as_efforts, scheduling_options
from archgen.cli.summary import host_lines, points_table, results_table, summary_lines
from archgen.cli.terminal import show
from archgen.comparison.budgets import read_budgets
from archgen.models.constants import with_values
from archgen.models.extents import Shape, SizeRange, asked, left_out, shapes
from archgen.report import REPORT, write_report
from archgen.schema.load import load_all
from archgen.schema.variants import Variant
from archgen.studies.design import Design, StudyError, Workload, designed, points
from archgen.studies.file import is_study
from archgen.studies.options import Running, StudyOptions
from archgen.studies.plan import load_study
from archgen.studies.results import Study
from archgen.studies.store import writing
from archgen.studies.sweep import run_estimated, run_study

_TYPED = click.core.ParameterSource.COMMANDLINE
_RUNNING = ("jobs", "fresh", "plots", "timeout", "memory", "executor", "trace", "levers")


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
    help="Batch sizes, separated by commas; default: what the file fixes, else 1.",
)
@dtype_option
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Execute the instructions and compare with ONNX Runtime.",
)
@host_option
@dim_option(
    "; several, separated by commas, are compared, and of ranges such as 1..128,129..512 one "
    "program each runs at several sizes",
    ranges=True,
)
@role_option
@set_option
@calibration_option
@extension_option
@scheduling_options
@click.option(
    "--isolated",
    is_flag=True,
    help="Every point keeps its own schedule, however quick that of a machine with less is.",
)
@running_options
@click.option(
    "--trace", is_flag=True, help="Keep each run as runs/*.pftrace.gz for ui.perfetto.dev."
)
@click.option(
    "--levers/--no-levers",
    default=None,
    help="Try on each run what changes of its machine bring, for the report; in a study of up to "
    "twelve points also by programs made for them.  [default: as --plots]",
)
@click.option(
    "--estimate",
    is_flag=True,
    help="Price layers one by one instead of compiling and running: milliseconds a point of a "
    "sweep. Rows, plots and report say so.",
)
@click.option(
    "--best",
    type=click.IntRange(1),
    metavar="K",
    help="With --estimate: run K points of each network in full: the fastest, then points spread "
    "over the front of latency and area.",
)
@click.option("--dry-run", is_flag=True, help="List the points and which are finished; run none.")
@budget_option
@pipeline_options
@click.pass_context
def study(
    context: click.Context,
    /,
    archs: tuple[str, ...],
    out: Path | None,
    dry_run: bool,
    budget_files: tuple[Path, ...],
    junit: Path | None,
    annotate: str,
    estimate: bool,
    best: int | None,
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
    archgen study soma-edge --model net.onnx --dim sequence=128,512 --dtype int8
    archgen study soma-edge --model resnet50 --fusion none,line,optimal

    Several values of --batch, --dim, --fusion, --halo, --objective, --effort or --pass, separated
    by commas, are compared: a point for each combination.

    Exit code 0: every point has an answer, also "does not fit" and "unsupported". 1: a point
    failed or its outputs are wrong. 2: wrong input. 4: a budget is broken. 5: one is about
    no point. 6: outputs behind one were not checked. 130: interrupted, finished points are saved.
    """  # fmt: skip
    if best and not estimate:
        raise click.UsageError("--best K runs the best by their estimates: give --estimate too")
    budgets = read_budgets(budget_files)
    means = {name: given.pop(name) for name in _RUNNING}
    given["models"] = tuple(with_values(name, given["values"]) for name in given["models"])
    if given.pop("values") and not given["models"]:
        raise click.UsageError("--set goes with -m; a study file names net.onnx:NAME=VALUE")
    typed = {name for name in given if context.get_parameter_source(name) == _TYPED}
    design = _design(archs, given, typed)
    folder = out or (OUT / design.name if design.source else OUT)
    if dry_run:
        _list(design, folder)
        return
    asked = running(folder, **means)
    if estimate:
        result = watched(lambda seen: run_estimated(design, asked, seen, best or 0), folder)
    else:
        result = watched(lambda seen: run_study(design, asked, seen), folder, design)
    _report(result, asked, folder)
    lines = [*host_lines(result.outcomes), *summary_lines(result, folder, asked.plots)]
    lines += [*_range_gap_notes(design), *of_design(design)]
    show([results_table(result.frame)], lines)
    codes = judge(result, budgets, junit, annotate)
    sys.exit(first_of(codes if result.good else {*codes, ExitCode.BAD}))


def _design(archs: Sequence[str], given: Mapping[str, Any], typed: Set[str]) -> Design:
    """The design that arguments and options describe, from a study file or without one; `typed`
    are the options that stand on the command line."""
    files = [Path(name) for name in archs if Path(name).is_file() and is_study(Path(name))]
    if not files:
        if not given["models"]:
            _, mistakes = load_all(archs)
            if mistakes:  # of what may be meant as a study file
                raise StudyError(map(str, mistakes))
            raise click.UsageError("Missing option '-m' / '--model': which networks?")
        return _design_from_options(archs, given)
    if len(archs) > 1:
        raise click.UsageError("a study file stands alone: it says which architectures it is about")
    return _overridden(load_study(files[0]), given, typed)


def _design_from_options(archs: Sequence[str | Variant], given: Mapping[str, Any]) -> Design:
    options = StudyOptions(
        fusion=given["fusion"],
        halo=given["halo"],
        objective=given["objective"],
        effort=as_efforts(given["effort"]),
        passes=given["passes"],
        verify=given["verify"],
        host=given["host"],
        dims=as_extents(given["dims"]),
        roles=as_roles(given["roles"]),
        calibration=given["calibration"],
        isolated=given["isolated"],
        extensions=given["extensions"],
    )
    return designed(archs, given["models"], given["batches"], given["dtype"], options)


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
    held = {"verify": design.verify, "host": design.host, "isolated": design.isolated}
    loads = said.get("models") or design.workloads
    made = _design_from_options(design.machines, {**given, **ways, **held, **said, "models": loads})
    changed = (new for load in made.workloads for new in _changed(load, said))
    return replace(
        made,
        workloads=tuple(dict.fromkeys(changed)),
        dtypes=made.dtypes or design.dtypes,
        extensions=made.extensions or design.extensions,
        only=design.only, skip=design.skip, timeout=design.timeout,
        name=design.name, description=design.description, source=design.source, overridden=True,
    )  # fmt: skip


def _changed(load: Workload, said: Mapping[str, Any]) -> Iterator[Workload]:
    held = asked(Shape(load.dims, load.ranges))
    roles = {**dict(load.roles), **as_roles(said.get("roles", ()))}
    for shape in shapes(held | as_extents(said.get("dims", ()))):
        yield replace(
            load,
            batches=said.get("batches", load.batches),
            dims=shape.dims,
            ranges=shape.ranges,
            roles=tuple(sorted(roles.items())),
            calibration=said.get("calibration", load.calibration),
            samples_place="" if "calibration" in said else load.samples_place,
        )


def _list(design: Design, folder: Path) -> None:
    """Print the points, and which of them `folder` has."""
    wanted = points(design)
    table, finished = points_table(wanted, folder)
    said = f"{len(wanted)} points, {finished} of them finished in {folder}"
    show([table], [said, *_range_gap_notes(design), *of_design(design)])


def _range_gap_notes(design: Design) -> Iterator[str]:
    """Lengths between ranges, for which there is no program."""
    spans: dict[str, set[SizeRange]] = {}
    for load in design.workloads:
        for name, span in load.ranges:
            spans.setdefault(f"{load.model}: {name}", set()).add(span)
    for name, held in spans.items():
        gaps = ", ".join(map(str, left_out(held)))
        if gaps:
            yield f"note: {name} of {gaps} is in none of the ranges, so no program takes it"


def _report(result: Study, asked: Running, folder: Path) -> None:
    """The page about what was run, where one is wanted."""
    if asked.plots and result.outcomes:
        with writing(folder):
            write_report(result, folder / REPORT)

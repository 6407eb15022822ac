"""`archgen study`: every model on every architecture, as a table, frames and plots."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click

from archgen.cli import options, summary
from archgen.cli.compile import scheduling_options
from archgen.cli.gates import budget_option, judge, junit_option
from archgen.cli.running import OUT, lint_notes, running, running_options, save_page, with_progress
from archgen.cli.terminal import ExitCode, show
from archgen.comparison.budgets import read_budgets
from archgen.models.constants import with_values
from archgen.models.extents import Shape, asked, shapes
from archgen.report.sheet import counted
from archgen.schema.load import load_files
from archgen.schema.variants import Variant
from archgen.studies.design import Design, StudyError, Workload, contents_of, designed, points
from archgen.studies.file import is_study
from archgen.studies.options import StudyOptions
from archgen.studies.plan import load_study
from archgen.studies.sweep import run_estimated, run_study
from archgen.toolchain import STANDARD, UNSKIPPED

_TYPED = click.core.ParameterSource.COMMANDLINE
_RUNNING = ("jobs", "fresh", "plots", "timeout", "memory", "executor", "trace", "levers")
_WAYS = ("fusion", "halo", "objective", "effort", "passes")


@click.command(cls=options.EveryMistake, judges=True)
@click.argument("archs", nargs=-1, required=True, metavar="ARCH...|STUDY")
@click.option(
    "-m", "--model", "models", multiple=True, metavar="MODEL",
    help="Network: zoo name, name:option=value,..., .onnx file, or the .encodings beside one. "
    "May be repeated.",
)  # fmt: skip
@click.option(
    "-b", "--batch", "batches", callback=options.parsed(options.batches_of), metavar="BATCHES",
    help="Batch sizes, separated by commas; default: what the file fixes, else 1.",
)  # fmt: skip
@click.option(
    "--dtype", callback=options.parsed(options.names_of), metavar="TYPES",
    help="Element types of the network, separated by commas [default: each architecture's first].",
)  # fmt: skip
@click.option(
    "--verify/--no-verify", default=True,
    help="Execute the instructions and compare with ONNX Runtime.",
)  # fmt: skip
@options.host_option
@options.dims_option
@options.role_option
@options.set_option
@options.calibration_option
@options.extension_option
@scheduling_options
@click.option(
    "--execute", type=click.Choice(["distinct", "all"]), default="distinct",
    help="What is executed and compared: of equal layers the first, second and last, or all.",
)  # fmt: skip
@click.option(
    "--in-flight", type=click.IntRange(1), default=1, metavar="N",
    help="Inferences that follow each other in one program: throughput_ips is what came out.",
)  # fmt: skip
@click.option(
    "--isolated", is_flag=True,
    help="Every point keeps its own schedule, however quick that of a machine with less is.",
)  # fmt: skip
@running_options
@click.option(
    "--trace", is_flag=True, help="Keep each run as runs/*.pftrace.gz for ui.perfetto.dev."
)
@click.option(
    "--levers/--no-levers", default=None,
    help="Try on each run what changes of its machine bring, for the report; in a study of up to "
    "twelve points also by programs made for them.  [default: as --plots]",
)  # fmt: skip
@click.option(
    "--estimate", is_flag=True,
    help="Price layers one by one instead of compiling and running: some hundredths of "
    "a second a point. Rows, plots and report say so.",
)  # fmt: skip
@click.option(
    "--best", type=click.IntRange(1), metavar="K",
    help="With --estimate: run K points of each network in full: the fastest, then points spread "
    "over the front of latency and area.",
)  # fmt: skip
@options.skip_option
@options.all_option
@click.option("--dry-run", is_flag=True, help="List the points and which are finished; run none.")
@budget_option
@junit_option
@click.pass_context
def study(
    context: click.Context, /, archs: tuple[str, ...] | None, out: Path | None, dry_run: bool,
    budget_files: tuple[Path, ...] | None, junit: Path | None, estimate: bool, best: int | None,
    everything: bool, skip: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Compile, check and simulate models on architectures, and compare them.

    ARCH is a file, a pattern or the name of a shipped architecture. STUDY is a file that says which
    architectures, sweeps of their fields, models and options; options given beside it replace what
    it says. The folder gets results.csv, results.parquet, plots, report.html, and the details of
    each point under runs/. Finished points are taken from there when the command is run again,
    whatever has interrupted it.

    \b
    archgen study archs/*.yaml --model resnet50 --batch 1,8 --out results
    archgen study studies/02_memory_and_bandwidth.yaml --jobs 4
    archgen study soma-edge --model net.onnx --dim sequence=128,512 --dtype int8
    archgen study soma-edge --model resnet50 --fusion none,line,optimal

    Several values of --batch, --dtype, --dim, --fusion, --halo, --objective, --effort or --pass,
    separated by commas, are compared: a point for each combination.

    Exit code 0: every point has an answer, also "does not fit" and "unsupported". 1: a point
    failed or its outputs are wrong. 2: wrong input. 4: a budget is broken. 5: one is about
    no point. 6: outputs behind one were not checked. 130: interrupted, finished points are saved.
    """  # fmt: skip
    means = {name: given.pop(name) for name in _RUNNING}
    wrong = options.mistakes_of(context)
    if best and not estimate:
        wrong.append("--best K runs the best by their estimates: give --estimate too")
    try:
        budgets = read_budgets(budget_files or ())
    except StudyError as mistake:
        wrong += mistake.mistakes
    typed = {name for name in given if context.get_parameter_source(name) == _TYPED}
    design = _judged(archs or (), given, typed, wrong)
    if estimate and design.in_flight > 1:
        raise StudyError(["--estimate has no inferences in flight: leave --in-flight out, or run"])
    folder = out or (OUT / design.name if design.source else OUT)
    if dry_run:
        wanted = points(design)
        table, finished = summary.points_table(wanted, folder)
        said = f"{counted(len(wanted), 'point')}, {finished} of them finished in {folder}"
        show([table], [said, *lint_notes(design)])
        return
    asked, tools = running(folder, **means), STANDARD if skip else UNSKIPPED
    if estimate:
        result = with_progress(
            lambda seen: run_estimated(design, asked, seen, best or 0, tools), folder
        )
    else:
        result = with_progress(lambda seen: run_study(design, asked, seen, tools), folder)
    save_page(result, folder, asked.plots)
    hosts = summary.host_lines(result.outcomes)
    lines = summary.summary_lines(result, folder, asked.plots)
    shown, left = summary.screenful(result.frame, everything)
    show([summary.results_table(shown)], [*left, *hosts, *lines, *lint_notes(design)])
    codes = judge(result, budgets, junit)
    sys.exit(min(codes if result.good else {*codes, ExitCode.BAD}, default=ExitCode.GOOD))


def _judged(
    archs: Sequence[str], given: dict[str, Any], typed: Set[str], wrong: list[str]
) -> Design:
    """The design that arguments and options describe; `typed` are the options that stand on the
    command line. StudyError with what is `wrong` with options so far and with all else; of inputs
    with a wrong value what can be told without it."""
    given, values = {name: value for name, value in given.items() if value is not None}, ()
    if given.get("models"):
        values = given.pop("values", ())
    elif given.pop("values", ()):
        wrong.append("--set goes with -m; a study file names net.onnx:NAME=VALUE")
    bare = tuple(given.get("models", ()))
    given["models"] = tuple(with_values(name, values) for name in bare)
    try:
        design = _design(archs, given, typed)
        if wrong or values:
            contents_of(design)
    except StudyError as mistake:
        said = list(_of_values(mistake.mistakes, values))
        if values:
            said += _besides_values(archs, {**given, "models": bare}, typed)
        # Sizes may be among what could not be read.
        wrong += [each for each in said if not (wrong and "of unknown size" in each)]
    if wrong:
        raise StudyError(dict.fromkeys(wrong))
    return design


def _of_values(mistakes: Iterable[str], values: Sequence[str]) -> Iterator[str]:
    """Mistakes, those about a value by the option that gives it."""
    names = {value: value.partition("=")[0] for value in values}
    for said in mistakes:
        own = [v for v in names if f"value {v!r}" in said or f"option {names[v]!r}" in said]
        yield f"--set {own[0]}: {said}" if own else said


def _besides_values(
    archs: Sequence[str], given: Mapping[str, Any], typed: Set[str]
) -> Iterator[str]:
    """What is wrong with other options of networks, as far as it can be told without the values."""
    try:
        contents_of(_design(archs, given, typed))
    except StudyError as mistake:
        yield from (said for said in mistake.mistakes if said.startswith("--"))


def _design(archs: Sequence[str], given: Mapping[str, Any], typed: Set[str]) -> Design:
    """The design that arguments and options describe, from a study file or without one."""
    files = [Path(name) for name in archs if Path(name).is_file() and is_study(Path(name))]
    if not files and not given["models"]:
        _, mistakes = load_files(archs)
        # What may be meant as a study file is wrong by itself.
        missing = "Missing option '-m' / '--model': which networks?"
        raise StudyError(map(str, mistakes) if mistakes else [missing])
    if not files:
        return _design_from_options(archs, given)
    if len(archs) > 1:
        raise StudyError(["a study file stands alone: it says which architectures it is about"])
    return _overridden(load_study(files[0]), given, typed)


def _design_from_options(archs: Sequence[str | Variant], given: Mapping[str, Any]) -> Design:
    names = {field.name for field in fields(StudyOptions)}
    chosen = StudyOptions(**{name: given[name] for name in names & given.keys()})
    return designed(archs, given["models"], given.get("batches"), given.get("dtype"), chosen)


_FLAGS = ("verify", "host", "isolated", "execute", "in_flight")
"""Of a study file, what holds unless the command line says otherwise."""


def _overridden(design: Design, given: Mapping[str, Any], typed: Set[str]) -> Design:
    """`design` with what the command line says otherwise."""
    said = {name: value for name, value in given.items() if name in typed}
    if not said:
        return design
    ways = {name: tuple(dict.fromkeys(getattr(way, name) for way in design.ways)) for name in _WAYS}
    same = {name: getattr(design, name) for name in _FLAGS}
    loads = said.get("models") or design.workloads
    made = _design_from_options(design.machines, {**given, **ways, **same, **said, "models": loads})
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
    roles = {**dict(load.roles), **said.get("roles", {})}
    for shape in shapes(asked(Shape(load.dims, load.ranges)) | said.get("dims", {})):
        yield replace(
            load,
            batches=said.get("batches", load.batches),
            dims=shape.dims,
            ranges=shape.ranges,
            roles=tuple(sorted(roles.items())),
            calibration=said.get("calibration", load.calibration),
            samples_place="" if "calibration" in said else load.samples_place,
        )

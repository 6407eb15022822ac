"""`archgen compile`: the program of one model for one architecture, and how it came about.

The one idea: one compilation, shown in one of three ways: the instruction streams, the reasons
(`--report`), or what one stage of the compiler made (`--after`). All that is wrong with the
arguments is found before anything is compiled, and ends with exit code 2. That there is no program,
because the model does not fit or is not supported, is an answer: its sum or list, and exit code 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
import onnx

from archgen.api import batched, load_family, load_model, prepared_for, request_for, states_of
from archgen.cli import options
from archgen.cli.compile_report import print_report
from archgen.cli.guarded import guarding_options, run_guarded
from archgen.extensions import activate, blaming_extensions, extension
from archgen.models.binding import declared_otherwise
from archgen.models.constants import with_values
from archgen.models.extents import SizeRange
from archgen.models.load import ModelError, SourceModel, check_sizes
from archgen.models.mapping import following, is_mapping
from archgen.models.source_family import SourceFamily
from archgen.outcomes import rows
from archgen.outcomes.bottleneck import bottleneck_row, verdict
from archgen.outcomes.commands import commands_frame, save_commands
from archgen.outcomes.points import Point
from archgen.outcomes.rows import host_calls
from archgen.perfetto import write_trace
from archgen.process.files import unwritable
from archgen.process.guard import ResourceLimits
from archgen.process.steps import step
from archgen.program_files import named_loadable, write, write_assembly
from archgen.scheduling import DEFAULT, OptionError, Scalar, Scheduling, choices, combinations_of
from archgen.schema import load_arch
from archgen.schema.tree import ArchError, guess
from archgen.studies.prepare import Prepared
from archgen.studies.run import measured_schedules
from archgen.toolchain import Request, compile_best, compile_options, explanation
from compiler import api
from simmodel.arch.base import ElementType
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes
from simmodel.machine.run import traced
from simmodel.metrics import measure
from simmodel.program.assembly import print_program
from simmodel.program.encoding import EncodingError, check_encodable

Value = TypeVar("Value")

# How networks are scheduled, as all verbs that compile take it.

_WORDS = {
    "fusion": ("How layers are grouped", api.STRATEGIES),
    "halo": ("What neighbouring tiles of a group share", api.HALOS),
    "objective": ("What schedules are compared by", api.OBJECTIVES),
    "effort": ("How long the compiler may search", api.EFFORTS),
}


def _choices_of(text: str) -> tuple[Any, ...]:
    """Words; levels of effort as numbers, and what is no number as it is, to be reported."""
    return tuple(int(w) if w.isascii() and w.isdigit() else w for w in options.names_of(text))


def _pass_option(text: str) -> tuple[str, list[Scalar]]:
    """`option=value,value`: an option of a pass; the compiler knows which there are, and what they
    take: never nothing, so that one without a value is among the mistakes of all."""
    name, _, values = text.partition("=")
    return name.strip(), [_scalar(part.strip()) for part in values.split(",")]


def _scalar(text: str) -> Scalar:
    """A number, true, false or null as it is written, here or in results; otherwise a word."""
    try:
        value = json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return text
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | float | None) else text


_each_pass = options.once_each("--pass", "; several values go by commas")
scheduling_options = options.combined_options(
    *(
        click.option(
            f"--{name}", callback=options.parsed(_choices_of), default=str(DEFAULT.columns[name]),
            show_default=True, metavar="NAMES", help=f"{help}: {', '.join(map(str, known))}.",
        )
        for name, (help, known) in _WORDS.items()
    ),
    click.option(
        "--pass", "passes", multiple=True, metavar="OPTION=VALUE",
        callback=options.each_parsed(
            _pass_option, lambda pairs: tuple(combinations_of(_each_pass(pairs)))
        ),
        help="An option of a pass; `archgen explain passes` lists them. May be repeated.",
    ),
)  # fmt: skip
"""Adds --fusion, --halo, --objective and --effort, each a tuple of words, and --pass, which becomes
combinations of settings."""


@dataclass(frozen=True)
class _OutputOptions:
    """What to print."""

    after: str | None
    report: bool
    as_json: bool
    output: Path | None
    trace: Path | None
    commands: Path | None
    tree: Path | None

    @property
    def loadable(self) -> Path | None:
        """The file for the program as bytes, where its name asks for these."""
        asked = self.output is not None and named_loadable(self.output)
        return self.output if asked and self.after is None and not self.as_json else None

    @property
    def run(self) -> bool:
        """Whether the run of the program is asked for, and not, or not only, its text."""
        return self.report or self.as_json or self.trace is not None or self.commands is not None

    def mistakes(self) -> Iterator[str]:
        """What is wrong with it by itself."""
        if self.after is not None:
            if self.after not in api.FORMS:
                there = f"{guess(self.after, api.FORMS)}; there are: {', '.join(api.FORMS)}"
                yield f"--after: no stage {self.after!r}{there}"
            others = {
                "report": self.report or self.as_json, "trace": self.trace,
                "commands": self.commands,
            }  # fmt: skip
            for name, other in others.items():
                if other:
                    yield f"--after and --{name}: one of them at a time"
        for name, path in (
            ("output", self.output), ("trace", self.trace), ("commands", self.commands),
        ):  # fmt: skip
            yield from unwritable(f"--{name}", path)


_PATH = click.Path(path_type=Path)


@click.command(cls=options.EveryMistake)
@click.argument("arch", metavar="ARCH", required=False)
@click.option("-m", "--model", help="Network: zoo name or .onnx file.")
@click.option("-b", "--batch", type=click.IntRange(1), help="Default: what the file fixes, else 1.")
@click.option(
    "--dtype", type=click.Choice(get_args(ElementType)),
    help="Element type of the network [default: the architecture's first].",
)  # fmt: skip
@options.host_option
@options.dim_option(
    options.one_shape, "; of a range such as sequence=1..512 the program takes any", ranges=True
)
@options.role_option
@options.set_option
@options.calibration_option
@options.extension_option
@scheduling_options
@click.option("--report", is_flag=True, help="Explain every decision instead.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@click.option(
    "--after", metavar="STAGE", help="Print what a stage makes instead; `--after list` lists them."
)
@click.option(
    "--tree", type=_PATH,
    help="Follow the schedule in this file instead of searching: as `--after tree` writes it, or a "
    "mapping of Timeloop, ZigZag or DOSA for a network with one product.",
)  # fmt: skip
@click.option(
    "--in-flight", type=click.IntRange(1), default=1, metavar="N",
    help="With --tree, the report also has the interval of N inferences that follow each other.",
)  # fmt: skip
@click.option(
    "--trace", type=_PATH,
    help="Run the program and write a file for ui.perfetto.dev instead; *.gz is compressed.",
)  # fmt: skip
@click.option(
    "--commands", type=_PATH,
    help="Run the program and write its commands instead, with tile, control words and intervals: "
    "*.csv or *.parquet as a table, else as text.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=_PATH,
    help="File for the program: a loadable where it ends in .npu, else text (its constants go to "
    "FILE.npz beside it); with --json for the report, with --after for the stage "
    "[default: standard output].",
)  # fmt: skip
@guarding_options
def compile(
    arch: str | None, model: str | None, batch: int | None, dtype: str | None, host: bool,
    dims: tuple[dict[str, int], dict[str, SizeRange]], roles: dict[str, str],
    values: tuple[str, ...], calibration: str | None, extensions: tuple[str, ...],
    timeout: float | None, memory: int | None, in_flight: int, **given: Any,
) -> None:  # fmt: skip
    """Compile a model for an architecture and print the instruction streams.

    The summary goes to standard error, so the text can be piped; `archgen.read_assembly` reads it.

    \b
    archgen compile soma-edge --model squeezenet -o squeezenet.npu    # or squeezenet.asm
    archgen compile soma-edge --model squeezenet --report --commands squeezenet.csv
    archgen compile soma-edge --model squeezenet --trace squeezenet.pftrace.gz
    archgen compile soma-edge --model squeezenet --after tree -o squeezenet.tree
    archgen compile soma-edge --model squeezenet --tree squeezenet.tree --report

    Where --effort allows several programs, the best as simulated is shown, also by --after.
    Exit code 0: there is a program. 1: it does not fit or is not supported. 2: wrong input.
    """  # fmt: skip
    if given["after"] == "list":
        click.echo("\n".join(api.FORMS))
        return
    shown = _OutputOptions(**{name: given[name] for name in _OutputOptions.__dataclass_fields__})
    mistakes = [] if arch else ["no architecture given: a file or the name of a shipped one"]
    mistakes += [] if model else ["no --model given: a zoo name or an .onnx file"]
    mistakes += shown.mistakes()
    if in_flight > 1 and (shown.tree is None or not (shown.report or shown.as_json)):
        mistakes.append(
            "--in-flight: for the report of a --tree; `archgen study` has it for others"
        )
    if model is None:
        _resolved(arch, dtype, given, mistakes)
        raise OptionError(mistakes)
    spec = with_values(model, values)
    sizes, ranges = dims
    asked = {**sizes, **{name: str(span) for name, span in ranges.items()}}
    load: Callable[..., SourceModel | SourceFamily] = load_family if ranges else load_model

    def work() -> None:
        activate(tuple(map(extension, extensions)))
        machine, scheduling, mapping = _resolved(arch, dtype, given, mistakes)
        network = _try_loading(lambda: load(spec, dims=asked, batch=batch, roles=roles), mistakes)
        if mistakes or machine is None or network is None or scheduling is None:
            raise OptionError(mistakes)
        point = Point(
            "", machine, spec, batch or network.edge.batch, dtype or machine.types[0],
            (*sizes.items(), *((name, span.high) for name, span in ranges.items())),
            roles=tuple(roles.items()), calibration=calibration, host=host, scheduling=scheduling,
            in_flight=in_flight,
        )  # fmt: skip
        _answer(network, point, shown, mapping)

    run_guarded(work, ResourceLimits(timeout, memory))


def _resolved(
    arch: str | None, dtype: str | None, given: Mapping[str, Any], mistakes: list[str]
) -> tuple[Arch | None, Scheduling | None, str]:
    """The machine, the schedule that is asked for and the text of another tool's mapping in its
    place; adds to `mistakes` what is wrong with them, or with the element type."""
    machine = _try_loading(lambda: load_arch(arch), mistakes) if arch else None
    found, wrong = choices(*(given[name] for name in (*_WORDS, "passes")))
    if len(found) > 1:
        wrong.append("several schedules: compile makes one program; `archgen study` compares")
    tree = _tree(given["tree"], wrong)
    if machine is not None and dtype is not None and dtype not in machine.types:
        wrong.append(f"dtype {dtype}: {machine.name} runs networks of {', '.join(machine.types)}")
    mistakes += wrong
    schedule = None if isinstance(tree, str) else tree
    scheduling = replace(found[0], tree=schedule) if found else None
    return machine, scheduling, tree if isinstance(tree, str) else ""


def _try_loading(make: Callable[[], Value], mistakes: list[str]) -> Value | None:
    try:
        return make()
    except (ArchError, ModelError) as mistake:
        mistakes += str(mistake).splitlines()
        return None


def _tree(path: Path | None, mistakes: list[str]) -> api.Tree | str | None:
    """The schedule in a file, or the text of another tool's mapping."""
    try:
        text = "" if path is None else path.read_text(encoding="utf-8-sig")
        return text if path is None or is_mapping(text) else api.parse_tree(text)
    except api.TreeError as mistake:
        mistakes += [f"{path}: {said}" for said in mistake.mistakes]
    except OSError as mistake:
        mistakes.append(f"--tree {path}: {mistake.strerror}")
    except UnicodeDecodeError:
        mistakes.append(f"--tree {path}: is no text")
    return None


def _answer(
    network: SourceModel | SourceFamily, point: Point, shown: _OutputOptions, mapping: str
) -> None:
    """Show what is asked for, or why there is no program."""
    try:
        with blaming_extensions():
            _show(network, point, shown, mapping)
    except api.CompilerError as answer:
        click.echo(f"no program: {answer}", err=True)
        sys.exit(1)
    except EncodingError as narrow:
        said = f"no program: the encoding of {point.arch.name} does not hold it"
        click.echo("\n".join((said, *(f"  {line}" for line in str(narrow).splitlines()))), err=True)
        sys.exit(1)
    except api.TreeError as wrong:
        raise OptionError(f"{shown.tree}: {said}" for said in wrong.mistakes) from None


def _show(
    network: SourceModel | SourceFamily, point: Point, shown: _OutputOptions, mapping: str
) -> None:
    machine = point.arch
    with step(f"opening {network.name}"):
        check_sizes(network.edge, machine, point.dtype)
    prepared, dtype = prepared_for(
        network, machine, point.dtype, point.calibration, point.scheduling
    )
    request = request_for(prepared, dtype, machine, point.host, point.scheduling)
    if mapping:
        request, left = following(request, prepared.edge.proto, mapping)
        point = replace(point, scheduling=request.scheduling)
        for said in left:
            click.echo(f"has no place in a schedule: {said}", err=True)
    if shown.after is not None:
        _write(_form(shown.after, request, prepared.edge, network.edge.proto), shown.output)
        return
    best = compile_best(request)
    program = batched(best.result.program, network.edge.proto)
    check_encodable(program, machine)
    output = shown.output
    if shown.loadable is not None:
        with _written("output", shown.loadable) as path:
            write(path, program, machine, states_of(prepared.edge.proto))
    elif not shown.as_json and (output is not None or not shown.run):
        if output is None or (output.exists() and not output.is_file()):
            _write(print_program(program), output)
        else:
            with _written("output", output) as path:  # with its constants beside it
                write_assembly(program, path)
    if shown.run:
        _show_run(best, point, shown)
    if declared := declared_otherwise(prepared.edge.proto.graph, program.outputs):
        click.echo(f"note: {declared}", err=True)
    constants = sum(constant.data.nbytes for constant in program.constants)
    lines = print_program(replace(program, constants=())).count("\n") + len(program.constants)
    click.echo(
        f"{machine.name} {network.name}: {program.macs / 1e6:,.1f} MMACs, "
        f"{len(program.cores)} cores, {lines} lines, "
        f"{show_bytes(constants)} of constants, {host_calls(program)} host calls", err=True,
    )  # fmt: skip


def _form(stage: str, request: Request, model: Prepared, network: onnx.ModelProto) -> str:
    """What a stage makes of the program that `request` gets, or of the first that is tried."""
    best: api.Best | None = None
    with suppress(api.CompilerError):  # what is refused has forms of the first program
        best = compile_best(request) if stage in api.CHOSEN else None
    if best is None:
        asked = compile_options(request)
        return api.form_after(stage, model.proto, model.name, request.arch, asked)
    program = batched(best.result.program, network)
    form = api.form_of(stage, replace(best.result, program=program))
    return form or api.form_after(stage, model.proto, model.name, best.arch, best.options)


def _show_run(best: api.Best, point: Point, shown: _OutputOptions) -> None:
    """The report, the trace and the commands, as far as they are wanted."""
    program, machine = best.result.program, point.arch
    trace = best.trace or traced(program, machine)
    if shown.trace is not None:
        with _written("trace", shown.trace) as path:
            write_trace(path, trace, program, machine)
    if shown.commands is not None:
        with _written("commands", shown.commands) as path:
            save_commands(commands_frame(program, machine, trace), path)
    if not (shown.report or shown.as_json):
        return
    made = explanation(best, trace, machine, point.dtype, point.scheduling)
    row = rows.metrics_row(measure(trace, program, machine), program, machine)
    row |= rows.bound_row(made.bound, trace.cycles, machine)
    row |= rows.waterfall_row(made.waterfall, trace.cycles)
    held = verdict(row | bottleneck_row(row))
    if point.scheduling.tree is not None:
        made = replace(made, beside=measured_schedules(point))
    if shown.as_json:
        _write(json.dumps({**made.plain(), "held_by": held.cause}, indent=2) + "\n", shown.output)
    else:
        print_report(made, held)


@contextmanager
def _written(option: str, path: Path) -> Iterator[Path]:
    """Within, the file that an option names is written; BadParameter where that fails."""
    try:
        yield path
    except OSError as mistake:
        raise click.BadParameter(f"{path}: {mistake.strerror}", param_hint=f"--{option}") from None


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
    else:
        with _written("output", output) as path:
            path.write_text(text, encoding="utf-8")

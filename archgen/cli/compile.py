"""`archgen compile`: the program of one model for one architecture, and how it came about.

The one idea: one compilation, shown in one of three ways: the instruction streams, the reasons
(`--report`), or what one stage of the compiler made (`--after`). All that is wrong with the
arguments is found before anything is compiled, and ends with exit code 2. That there is no program,
because the model does not fit or is not supported, is an answer: its sum or list, and exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from archgen.api import load_arch, load_model, prepared_for, request_for
from archgen.cli.compile_report import print_report
from archgen.cli.guarded import bounds_options, printed
from archgen.cli.options import (
    as_dims,
    as_efforts,
    as_roles,
    calibration_option,
    dim_option,
    dtype_option,
    extension_option,
    host_option,
    role_option,
    scheduling_options,
)
from archgen.explanation import explanation
from archgen.extensions import activate, extension
from archgen.models.load import ModelError, SourceModel
from archgen.models.sizes import check_sizes
from archgen.outcomes.rows import host_calls
from archgen.perfetto import write_trace
from archgen.process.guard import Bounds
from archgen.process.steps import step
from archgen.scheduling import OptionError, Scheduling, choices
from archgen.schema.mistakes import ArchError, guess
from archgen.standard import compile_best, first, winner
from compiler.api import CHOSEN, FORMS, Best, CompilerError, form_after
from simmodel.arch import Arch
from simmodel.asm import print_program
from simmodel.program import Program
from simmodel.simulate import traced
from simmodel.trace import Trace
from simmodel.units import show_bytes

Value = TypeVar("Value")


@dataclass(frozen=True)
class _Shown:
    """What to print."""

    after: str | None
    report: bool
    as_json: bool
    output: Path | None
    trace: Path | None

    @property
    def run(self) -> bool:
        """Whether the run of the program is asked for, and not, or not only, its text."""
        return self.report or self.trace is not None


@click.command()
@click.argument("arch", metavar="ARCH", required=False)
@click.option("-m", "--model", help="Network: zoo name or .onnx file.")
@click.option("-b", "--batch", type=click.IntRange(1), default=1, show_default=True)
@dtype_option
@host_option
@dim_option
@role_option
@calibration_option
@extension_option
@scheduling_options
@click.option("--report", is_flag=True, help="Explain every decision instead.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@click.option(
    "--after", metavar="STAGE", help="Print what a stage makes instead; `--after list` lists them."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Run the program and write a file for ui.perfetto.dev instead; *.gz is compressed.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File for the program, with --json for the report, with --after for the stage "
    "[default: standard output].",
)
@bounds_options
def compile(
    arch: str | None,
    model: str | None,
    batch: int,
    dtype: str | None,
    host: bool,
    dims: Sequence[tuple[str, int]],
    roles: Sequence[tuple[str, str]],
    calibration: str | None,
    extensions: Sequence[str],
    report: bool,
    as_json: bool,
    after: str | None,
    trace: Path | None,
    output: Path | None,
    timeout: float | None,
    memory: int | None,
    **given: tuple[Any, ...],
) -> None:
    """Compile a model for an architecture and print the instruction streams.

    The summary goes to standard error, so the text can be piped.

    \b
    archgen compile soma-edge --model squeezenet -o squeezenet.asm
    archgen compile soma-edge --model squeezenet --report
    archgen compile soma-edge --model squeezenet --after fuse
    archgen compile soma-edge --model squeezenet --trace squeezenet.pftrace.gz

    Where --effort allows several programs, the best as simulated is shown, also by --after.

    Exit code 0: there is a program. 1: there is none, the model does not fit or is not supported.
    2: wrong input.
    """  # fmt: skip
    if after == "list":
        click.echo("\n".join(FORMS))
        return
    shown = _Shown(after, report or as_json, as_json, output, trace)
    files = {"--output": output, "--trace": trace}
    unwritable = [line for option, path in files.items() for line in _unwritable(option, path)]
    mistakes = [*_wrong(arch, model, shown), *unwritable]
    machine = _tried(lambda: load_arch(arch or ""), mistakes) if arch else None
    scheduling = _scheduling(given, mistakes)
    if machine is not None and dtype is not None and dtype not in machine.types:
        known = ", ".join(machine.types)
        mistakes.append(f"dtype {dtype}: {machine.name} runs networks of {known}")
    if model is None:
        raise OptionError(mistakes)
    sizes, said = as_dims(dims), as_roles(roles)

    def work() -> None:
        activate(tuple(map(extension, extensions)))
        network = _tried(lambda: load_model(model, batch=batch, dims=sizes, roles=said), mistakes)
        if mistakes or machine is None or network is None or scheduling is None:
            raise OptionError(mistakes)
        _answer(network, machine, dtype, calibration, host, scheduling, shown)

    printed(work, Bounds(timeout, memory))


def _wrong(arch: str | None, model: str | None, shown: _Shown) -> list[str]:
    """What is wrong with the arguments by themselves."""
    found = [] if arch else ["no architecture given: a file or the name of a shipped one"]
    found += [] if model else ["no --model given: a zoo name or an .onnx file"]
    if shown.after is not None and shown.after not in FORMS:
        there = f"{guess(shown.after, FORMS)}; there are: {', '.join(FORMS)}"
        found.append(f"--after: no stage {shown.after!r}{there}")
    if shown.after is not None and shown.report:
        found.append("--after and --report: one of them at a time")
    if shown.after is not None and shown.trace is not None:
        found.append("--after and --trace: one of them at a time")
    return found


def _unwritable(option: str, path: Path | None) -> list[str]:
    """Why the file that `option` names cannot be written, found out without touching it."""
    if path is None:
        return []
    folder = path.parent
    if path.is_dir():
        return [f"{option} {path}: is a folder"]
    if not folder.is_dir():
        return [f"{option} {path}: there is no folder {folder}"]
    if not os.access(path if path.exists() else folder, os.W_OK):
        return [f"{option} {path}: may not be written"]
    return []


def _tried(make: Callable[[], Value], mistakes: list[str]) -> Value | None:
    try:
        return make()
    except (ArchError, ModelError) as mistake:
        mistakes += str(mistake).splitlines()
        return None


def _scheduling(given: Mapping[str, Any], mistakes: list[str]) -> Scheduling | None:
    effort = as_efforts(given["effort"])
    found, unknown = choices(
        given["fusion"], given["halo"], given["objective"], effort, given["passes"]
    )
    if len(found) > 1:
        unknown.append("several schedules: compile makes one program; `archgen study` compares")
    mistakes += unknown
    return found[0] if found else None


def _answer(
    network: SourceModel,
    machine: Arch,
    dtype: str | None,
    calibration: str | None,
    host: bool,
    scheduling: Scheduling,
    shown: _Shown,
) -> None:
    """Show what is asked for, or why there is no program."""
    try:
        _show(network, machine, dtype, calibration, host, scheduling, shown)
    except CompilerError as answer:
        click.echo(f"no program: {answer}", err=True)
        sys.exit(1)


def _show(
    network: SourceModel,
    machine: Arch,
    dtype: str | None,
    calibration: str | None,
    host: bool,
    scheduling: Scheduling,
    shown: _Shown,
) -> None:
    with step(f"opening {network.name}"):
        check_sizes(network, machine, dtype or machine.types[0])
    prepared, chosen = prepared_for(network, machine, dtype, calibration)
    request = request_for(prepared, chosen, machine, host, scheduling)
    if shown.after is not None:
        on, options = winner(request) if shown.after in CHOSEN else first(request)
        _write(form_after(shown.after, prepared.proto, prepared.name, on, options), shown.output)
        return
    best = compile_best(request)
    program = best.result.program
    text = print_program(program)
    if not shown.as_json and (shown.output is not None or not shown.run):
        _write(text, shown.output)
    if shown.run:
        _show_run(best, machine, chosen, scheduling, shown)
    click.echo(_summary(machine, network, program, text), err=True)


def _show_run(best: Best, machine: Arch, dtype: str, scheduling: Scheduling, shown: _Shown) -> None:
    """The report and the trace, as far as they are wanted."""
    program = best.result.program
    trace = best.trace or traced(program, machine)
    if shown.trace is not None:
        _write_trace(shown.trace, trace, program, machine)
    if not shown.report:
        return
    made = explanation(best, trace, machine, dtype, scheduling)
    if shown.as_json:
        _write(json.dumps(made.plain(), indent=2) + "\n", shown.output)
    else:
        print_report(made)


def _write_trace(path: Path, trace: Trace, program: Program, machine: Arch) -> None:
    try:
        write_trace(path, trace, program, machine)
    except OSError as mistake:
        raise click.BadParameter(f"{path}: {mistake.strerror}", param_hint="--trace") from None


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as mistake:
        raise click.BadParameter(f"{output}: {mistake.strerror}", param_hint="--output") from None


def _summary(machine: Arch, network: SourceModel, program: Program, text: str) -> str:
    constants = sum(constant.data.nbytes for constant in program.constants)
    return (
        f"{machine.name} {network.name}: {program.macs / 1e6:,.1f} MMACs, "
        f"{len(program.cores)} cores, {len(text.splitlines())} lines, "
        f"{show_bytes(constants)} of constants, {host_calls(program)} host calls"
    )

"""`archgen run` and `archgen disasm`: a loadable on inputs, or as text, without the network and the
compiler behind it.

The one idea: what is executed, simulated or printed are the bytes of the file: its own instructions
on its own machine, of assembly on the one that is named. Several inputs are a chain of inferences,
in which each state is what the one before made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import click
import numpy as np

from archgen import program_files
from archgen.api import commands, execute, simulate
from archgen.cli import options
from archgen.cli.guarded import guarding_options, run_guarded
from archgen.cli.options import FILE, EveryMistake, activate_named
from archgen.models.load import arrays_in
from archgen.outcomes.commands import TooManyCommands, commands_text, save_commands
from archgen.process.files import unwritable, write_atomically
from archgen.process.guard import ResourceLimits
from archgen.program_files import Loaded, checked_inputs, load, read, type_and_shape
from archgen.scheduling import OptionError
from archgen.schema import load_arch, shipped_names
from simmodel.arch.dtype import NAMES, NUMPY, Array
from simmodel.arch.record import Encoding
from simmodel.errors import HostFailed, NoPayload, NoSuchRow
from simmodel.isa import Loop
from simmodel.program.assembly import print_item, print_program
from simmodel.program.command_fields import Command, End
from simmodel.program.encoding import EncodingError, codes, control_words
from simmodel.program.loadable import LoadableError
from simmodel.program.program import Program
from simmodel.program.sizes import LengthError, lengths_of, most, specialize
from simmodel.verify import VerifyError, verify


@click.command(cls=EveryMistake)
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--input", "inputs", multiple=True, type=FILE,
    help=".npz file with an array for each input; none: they are listed. Several are inferences "
    "one after the other.",
)  # fmt: skip
@click.option(
    "-o", "--output", "outputs", multiple=True, type=FILE,
    help=".npz file for the outputs: of the last inference, or one for each.",
)  # fmt: skip
@options.dim_option()
@click.option(
    "--arch", help="Of assembly the machine; refuse a loadable unless it is for this one."
)
@options.place_option
@click.option("--simulate", "timed", is_flag=True, help="Also say how many cycles it takes.")
@options.skip_option
@options.extension_option
@guarding_options
def run(
    file: Path, inputs: Sequence[Path], outputs: Sequence[Path], dims: Mapping[str, int],
    arch: str | None, places: Mapping[str, int], timed: bool, skip: bool,
    extensions: Sequence[str], timeout: float | None, memory: int | None,
) -> None:  # fmt: skip
    """Run a loadable, as `archgen compile -o FILE.npu` writes it, or assembly.

    Names, shapes and element types of the inputs have to be those of the file. Inputs that are a
    state may be left out: they are what the inference before made, at first zeros. Where lengths
    are left open, each inference has those of its inputs, or all have what --dim says.

    \b
    archgen compile soma-edge --model squeezenet -o squeezenet.npu
    archgen run squeezenet.npu --input x.npz --output y.npz
    archgen run squeezenet.asm --arch soma-edge --input x.npz --output y.npz

    Exit code 0: it ran. 2: the file or an input is wrong, which is said.
    """
    if len(outputs) not in (0, 1, len(inputs)):
        raise click.UsageError(f"{len(outputs)} times --output for {len(inputs)} times --input")
    wrong = [line for path in outputs for line in unwritable("--output", path)]
    for path, times in Counter(path.resolve() for path in outputs).items():
        if times > 1:
            wrong.append(f"--output {path}: {times} times, expected a file for each inference")
    if wrong:
        raise OptionError(wrong)

    def work() -> None:
        activate_named(extensions)
        loaded = _load_program_file(file, arch, places)
        name = f"{loaded.program.name} on {loaded.arch.name}"
        click.echo(f"{file}: {name}, fingerprint {loaded.fingerprint[:16]}")
        if not inputs:
            raise OptionError([f"--input: missing; {_expected_inputs(loaded)}"])
        _run_inferences(_Programs(loaded, dims, file), inputs, outputs, timed=timed, skip=skip)

    run_guarded(work, ResourceLimits(timeout, memory))


def _load_program_file(file: Path, arch: str | None, places: Mapping[str, int]) -> Loaded:
    try:
        if program_files.is_loadable(file):
            loaded = load(file, places)
            if arch is not None:
                program_files.same_machine(loaded, load_arch(arch), arch)
            return loaded
        program = program_files.read_assembly(file)
    except OSError as mistake:
        raise OptionError([f"{file}: {mistake.strerror}"]) from None
    if arch is None:
        known = program.arch if program.arch in shipped_names() else "FILE"
        said = f"assembly has no machine but its name, {program.arch}: say --arch {known}"
        raise OptionError([f"--arch: {said}"])
    machine = load_arch(arch)
    loaded = program_files.load_assembly(program, machine, str(file), places)
    if program.arch != machine.name:
        said = f"the text is for {program.arch}, it runs on {machine.name}"
        click.echo(f"warning: {file}: {said}", err=True)
    return loaded


def _expected_inputs(loaded: Loaded) -> str:
    """What a file of inputs has to hold."""
    program, states = loaded.program, []
    given, there = list[str](), set[str]()
    for port in program.inputs:
        text = f"{port.name} {program_files.type_and_ranges(port, program.registers)}"
        if port.name in loaded.states:
            states.append(text)
        else:
            given.append(text)
            there |= {name for limit in port.operand.limits for name, _ in limit.terms}
    parts = [", ".join(given)] if given else []
    unsaid = [name for name in most(program.registers) if name not in there]
    if states and unsaid:
        parts.append(f"for {', '.join(unsaid)} at least one of the states {', '.join(states)}")
    elif states:
        parts.append(f"the states {', '.join(states)}, or zeros for them where it has none")
    return f"expected an .npz file with {'; '.join(parts)}"


@dataclass
class _Programs:
    """The program of a loadable for the lengths of each inference, verified once for each."""

    loaded: Loaded
    lengths: Mapping[str, int]
    """Those that are asked for; empty: what the inputs' shapes say."""
    file: Path
    made: dict[tuple[tuple[str, int], ...], Program] = field(default_factory=dict)

    def of(self, inputs: Mapping[str, Array], path: Path) -> Program:
        """The program for these inputs, of which some are those of the file `path`."""
        program = self.loaded.program
        if not program.registers and not self.lengths:
            return program
        shapes = {name: values.shape for name, values in inputs.items()}
        try:
            lengths = self.lengths or lengths_of(program, shapes)
            key = tuple(sorted(lengths.items()))
            if key not in self.made:
                self.made[key] = specialize(program, lengths)
                verify(self.made[key], self.loaded.arch)
        except LengthError as wrong:
            said = f"--input {path}: {wrong}"
            if self.lengths:
                all_ = "it stands for the shapes of all inputs, so it says all lengths or none"
                said = f"--dim: {wrong}; {all_}"
            raise OptionError([said]) from None
        except VerifyError as wrong:
            raise LoadableError(f"{self.file}: {wrong}") from None
        return self.made[key]


def _run_inferences(
    programs: _Programs, inputs: Sequence[Path], outputs: Sequence[Path], *, timed: bool,
    skip: bool,
) -> None:  # fmt: skip
    """One inference after the other."""
    loaded = programs.loaded
    written = outputs if len(outputs) == len(inputs) else [None] * (len(inputs) - 1) + [*outputs]
    state: dict[str, Array] = {}
    for path, output in zip_longest(inputs, written):
        given = arrays_in(path, "--input")
        shapes = {**state, **given.outlines}
        program = programs.of(shapes, path)
        zeros = {
            port.name: np.zeros(port.shape, NUMPY[port.dtype])
            for port in program.inputs
            if port.name in loaded.states
        }
        try:
            checked_inputs(program, {**zeros, **shapes})  # before any of them is read
            made = execute(
                program, checked_inputs(program, {**zeros, **state, **given}), loaded.arch
            )
        except NoPayload as broken:
            raise OptionError([f"{programs.file}: {broken}"]) from None
        except (program_files.WrongInputs, NoSuchRow, HostFailed) as wrong:
            raise OptionError(f"{path}: {line}" for line in str(wrong).splitlines()) from None
        state = {name: made[after] for name, after in loaded.states.items()}
        if output is not None:
            _write(output, made)
        arrays = (f"{name} {type_and_shape(NAMES[a.dtype], a.shape)}" for name, a in made.items())
        click.echo(f"{output or path}: {', '.join(arrays)}")
        if timed and (loaded.program.registers or path == inputs[-1]):
            cycles = simulate(program, loaded.arch, skip=skip).cycles
            click.echo(f"{cycles} cycles, {cycles / loaded.arch.clock * 1e3:.4g} ms")


def _write(path: Path, made: Mapping[str, Array]) -> None:
    if away := [name for name in made if program_files.escapes_folder(name)]:
        said = "expected names of outputs that do not lead out of the folder of an archive"
        raise OptionError([f"--output {path}: {said}, got {', '.join(map(repr, away))}"])
    try:
        write_atomically(path, lambda temporary: program_files.save_arrays(temporary, made))
    except OSError as mistake:
        raise OptionError([f"--output {path}: {mistake.strerror}"]) from None


@click.command(cls=EveryMistake)
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--level", type=click.Choice(("program", "tiles", "ports")), default="program",
    show_default=True,
    help="The program as assembly, or its commands layer by layer and tile by tile, run on its "
    "machine for the cycles between them, or where its inputs and outputs lie.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=FILE,
    help="File for the text; of tiles *.csv or *.parquet is a table [default: standard output].",
)  # fmt: skip
@click.option(
    "--words", is_flag=True, help="The control words instead, as the machine packs its fields."
)
@click.option(
    "--expand", type=click.IntRange(1), metavar="MOST",
    help="Of tiles: a row for each turn of each loop, where these are no more than MOST.",
)  # fmt: skip
@options.dim_option(means="; of a program for ranges the commands that the front end makes then")
@options.place_option
@options.extension_option
def disasm(
    file: Path, level: str, output: Path | None, words: bool, expand: int | None,
    dims: Mapping[str, int], places: Mapping[str, int], extensions: Sequence[str],
) -> None:  # fmt: skip
    """Print the program of a loadable, as `archgen compile -o FILE.npu` writes it.

    With --words each command is a line of hexadecimal control words, highest digit first, and its
    assembly behind `//`, as $readmemh of Verilog reads it. Widths, order and numbers are those of
    the machine's section `encoding`; lines at the top say which number each opcode, engine,
    memory, element type and function has.

    \b
    archgen disasm squeezenet.npu
    archgen disasm squeezenet.npu --words
    archgen disasm squeezenet.npu --words --place input=0x40000000
    archgen disasm squeezenet.npu --level ports
    archgen disasm squeezenet.npu --level tiles -o squeezenet.csv
    archgen disasm gpt2.npu --level tiles --dim past=17

    Exit code 2: the file is none, or is damaged; it is said where.
    """
    wrong = {
        f"--level {level} and --words: one of them at a time": level != "program" and words,
        "--expand: only with --level tiles": level != "tiles" and expand is not None,
        "--dim: ports lie where they do for every length": level == "ports" and dims,
    }
    if any(wrong.values()):
        raise OptionError([said for said, holds in wrong.items() if holds])
    activate_named(extensions)
    try:
        loaded = load(file, places) if places or dims or level == "tiles" else read(file)
        if level == "tiles":
            text = _tiles(loaded, output, expand, dims)
        elif level == "ports":
            text = _ports(loaded)
        else:
            if dims:
                loaded = replace(loaded, program=specialize(loaded.program, dims))
            text = _control_words_text(loaded) if words else print_program(loaded.program)
        if output is not None and level != "tiles":
            output.write_text(text, encoding="utf-8")
    except LengthError as mistake:
        raise OptionError([f"--dim: {mistake}"]) from None
    except OSError as mistake:
        raise OptionError([f"{mistake.filename}: {mistake.strerror}"]) from None
    if output is None:
        click.echo(text, nl=False)


def _ports(loaded: Loaded) -> str:
    """Where inputs and outputs lie."""
    rows = [("port", "memory", "base", "bytes", "")]
    for port in loaded.ports:
        stays = "" if port.movable else "stays where it is"
        rows.append((port.name, port.memory, f"{port.base:#x}", str(port.size), stays))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _tiles(
    loaded: Loaded, output: Path | None, most: int | None, lengths: Mapping[str, int]
) -> str:
    """The commands of a loadable, tile by tile; nothing where they go to a file."""
    try:
        frame = commands(
            loaded.program, loaded.arch, dims=lengths, expand=most is not None, limit=most or 1
        )
    except TooManyCommands as mistake:
        raise OptionError([str(mistake)]) from None
    if output is None:
        return commands_text(frame)
    save_commands(frame, output)
    return ""


def _control_words_text(loaded: Loaded) -> str:
    """The control words of all commands, behind every number of a name: those of the machine by
    their field, those of the program. Raises OptionError: a field does not hold its value."""
    try:
        streams, names = control_words(loaded.program, loaded.arch)
    except EncodingError as wrong:
        raise OptionError(str(wrong).splitlines()) from None
    size = (loaded.arch.encoding or Encoding()).word
    lines = [
        f"// {field} {number} {name}"
        for field, table in {**codes(loaded.arch), "name": names}.items()
        for name, number in table.items()
    ]
    for core, stream in enumerate(streams):
        lines.append(f"// core {core}: {sum(len(packed) for _, packed in stream)} bytes")
        for command, packed in stream:
            parts = (packed[at : at + size][::-1].hex() for at in range(0, len(packed), size))
            lines.append(f"{' '.join(parts)} // {_command_text(command)}")
    return "\n".join(lines) + "\n"


def _command_text(command: Command) -> str:
    if isinstance(command, Loop):
        return f"loop {command.variable} {command.count}"
    return "end" if isinstance(command, End) else print_item(command)

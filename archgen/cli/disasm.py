"""`archgen disasm`: what a loadable holds, as text.

The one idea: the text is the assembly that `archgen compile` prints, its control words, or what
each command is for, made from the bytes of the file alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from archgen.api import commands
from archgen.cli.options import FILE, EveryMistake, dim_option, extension_option, place_option
from archgen.extensions import activate, extension
from archgen.outcomes.commands import TooMany, commands_text, save_commands
from archgen.program_files import Loaded, load, read
from archgen.scheduling import OptionError
from simmodel.arch.record import Encoding
from simmodel.isa import Loop
from simmodel.program.assembly import print_item, print_program
from simmodel.program.command_fields import Command, End
from simmodel.program.encoding import EncodingError, codes, control_words
from simmodel.program.sizes import LengthError, specialize


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
@dim_option(means="; of a program for ranges the commands that the front end makes then")
@place_option
@extension_option
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
    activate(tuple(map(extension, extensions)))
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
        if output is None:
            click.echo(text, nl=False)
        elif level != "tiles":
            output.write_text(text, encoding="utf-8")
    except LengthError as mistake:
        raise OptionError([f"--dim: {mistake}"]) from None
    except OSError as mistake:
        raise OptionError([f"{mistake.filename}: {mistake.strerror}"]) from None


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
    except TooMany as mistake:
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

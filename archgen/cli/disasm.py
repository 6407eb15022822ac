"""`archgen disasm`: what a loadable holds, as text.

The one idea: the text is the assembly that `archgen compile` prints, made from the bytes of the
file alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from archgen.cli.options import extension_option
from archgen.extensions import activate, extension
from archgen.loadable import read
from archgen.scheduling import OptionError
from simmodel.asm import print_program


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="File for the text [default: standard output].",
)  # fmt: skip
@extension_option
def disasm(file: Path, output: Path | None, extensions: Sequence[str]) -> None:
    """Print the program of a loadable, as `archgen compile -o FILE.npu` writes it.

    \b
    archgen disasm squeezenet.npu

    Exit code 2: the file is none, or is damaged; it is said where.
    """
    activate(tuple(map(extension, extensions)))
    try:
        text = print_program(read(file).program)
        if output is None:
            click.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
    except OSError as mistake:
        raise OptionError([f"{mistake.filename}: {mistake.strerror}"]) from None

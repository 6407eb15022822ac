"""`archgen compile`: the program of one model for one architecture, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from archgen.api import compile_model, load_arch, load_model
from archgen.cli.options import as_dims, calibration_option, dim_option, dtype_option, host_option
from archgen.rows import host_calls
from simmodel.asm import print_program
from simmodel.units import show_bytes


@click.command()
@click.argument("arch", metavar="ARCH")
@click.option("-m", "--model", required=True, help="Network: zoo name or .onnx file.")
@click.option("-b", "--batch", type=click.IntRange(1), default=1, show_default=True)
@dtype_option
@host_option
@dim_option
@calibration_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the program's text [default: standard output].",
)
def compile(
    arch: str,
    model: str,
    batch: int,
    dtype: str | None,
    host: bool,
    dims: Sequence[tuple[str, int]],
    calibration: str | None,
    output: Path | None,
) -> None:
    """Compile a model for an architecture and print the instruction streams.

    The summary goes to standard error, so the text can be piped.

    \b
    archgen compile soma-edge --model squeezenet -o squeezenet.asm
    """  # fmt: skip
    machine = load_arch(arch)
    network = load_model(model, batch=batch, dims=as_dims(dims))
    program = compile_model(network, machine, dtype=dtype, host=host, calibration=calibration)
    text = print_program(program)
    if output is None:
        click.echo(text)
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as mistake:
            raise click.BadParameter(
                f"{output}: {mistake.strerror}", param_hint="--output"
            ) from None
    constants = sum(constant.data.nbytes for constant in program.constants)
    click.echo(
        f"{machine.name} {network.name}: {program.macs / 1e6:,.1f} MMACs, "
        f"{len(program.cores)} cores, {len(text.splitlines())} lines, "
        f"{show_bytes(constants)} of constants, {host_calls(program)} host calls",
        err=True,
    )

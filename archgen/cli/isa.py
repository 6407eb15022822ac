"""`archgen isa`: what instructions has a machine?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from archgen.cli.options import EveryMistake, activate_named, extension_option
from archgen.cli.terminal import plain_table, show
from archgen.schema import load_arch
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch
from simmodel.isa import Tile
from simmodel.isa.forms import Form, absent, forms


@click.command(cls=EveryMistake)
@click.argument("arch", metavar="ARCH")
@click.option("--engine", help="Only forms of this kind of engine: matrix, vector, copy, ...")
@click.option("--all", "every", is_flag=True, help="Also forms that this machine lacks.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, one object for each form.")
@extension_option
def isa(
    arch: str, engine: str | None, every: bool, as_json: bool, extensions: Sequence[str]
) -> None:
    """List the instruction forms of a machine with their limits and costs.

    ARCH is a file or the name of a shipped architecture. Forms are what `isa.without` and
    `isa.limits` of its file speak of; with --all also those that it lacks, and the field that
    says so, and with --extension those that it adds.

    \b
    archgen isa soma-edge --engine vector
    """
    activate_named(extensions)
    machine = load_arch(arch)
    known = sorted({form.engine for form in forms().values()})
    if engine is not None and engine not in known:
        raise click.BadParameter(f"{engine!r}; there are {', '.join(known)}", param_hint="--engine")
    rows = [_form_row(form, machine) for form in forms().values() if engine in (None, form.engine)]
    shown = [row for row in rows if every or row["absent"] is None]
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    there = sum(row["absent"] is None for row in rows)
    lacking = there < len(shown)
    headings = ("form", "meaning", ">cycles per\nvector", "limits", "absent")
    caption = f"{machine.name}: {there} of {len(rows)} forms"
    table = plain_table(*headings[: 4 + lacking], caption=caption)
    for row in shown:
        factor = row["cycles per vector"]
        cells = row["form"], row["meaning"], "" if factor is None else f"{factor:g}", row["limits"]
        table.add_row(*cells, *([row["absent"] or ""] if lacking else []))
    show([table])


def _form_row(form: Form, arch: Arch) -> dict[str, Any]:
    return {
        "form": form.name,
        "engine": form.engine,
        "meaning": form.meaning,
        "cycles per vector": None if form.cost is None else arch.factor(form.name, form.cost),
        "limits": ", ".join(_form_limits(form, arch)),
        "absent": absent(form, arch),
    }


def _form_limits(form: Form, arch: Arch) -> Iterator[str]:
    """What one instruction of this form can cover at most."""
    if form.engine == "vector":
        rank, extent = arch.reach(form.name)
        yield f"rank {rank}"
        if extent is not None:
            yield f"{extent} wide"
    if form.name == Tile.MNEMONIC:
        yield "{} x {} weights".format(*tile_limits(arch.matrix))
    if form.engine == "matrix" and arch.matrix.max_pixels is not None:
        yield f"{arch.matrix.max_pixels} pixels"
    if form.engine == "copy":
        yield from (f"{name} rank {engine.rank}" for name, engine in arch.copy_.items())

"""`archgen isa`: every instruction form, and what a machine has of it.

The one idea: what is listed are the definitions that the simulator times and the verifier asks,
with the limits of this machine, so the table is the instruction set and no description of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from archgen.cli.options import extension_option
from archgen.extensions import activate, extension
from archgen.schema import load_arch
from simmodel.arch.record import Arch
from simmodel.isa import Tile
from simmodel.isa.forms import Form, absent, forms
from simmodel.isa.matrix import tile_limits

_LEAST_WIDTH = 118


@click.command()
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
    activate(tuple(map(extension, extensions)))
    machine = load_arch(arch)
    known = sorted({form.engine for form in forms().values()})
    if engine is not None and engine not in known:
        raise click.BadParameter(f"{engine!r}; there are {', '.join(known)}", param_hint="--engine")
    rows = [row(form, machine) for form in forms().values() if engine in (None, form.engine)]
    shown = [one for one in rows if every or one["absent"] is None]
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    console = Console()
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(table(machine, shown, len(rows)))


def row(form: Form, arch: Arch) -> dict[str, Any]:
    """What is told of one form."""
    factor = None if form.cost is None else arch.factor(form.name, form.cost)
    return {
        "form": form.name,
        "engine": form.engine,
        "meaning": form.meaning,
        "cycles per vector": factor,
        "limits": ", ".join(limits(form, arch)),
        "absent": absent(form, arch),
    }


def limits(form: Form, arch: Arch) -> Iterator[str]:
    """What one instruction of this form can cover at most."""
    if form.engine == "vector":
        rank, extent = arch.reach(form.name)
        yield f"rank {rank}"
        if extent is not None:
            yield f"{extent} wide"
    if form.name == Tile.MNEMONIC:
        yield "{} x {} weights".format(*tile_limits(arch))
    if form.engine == "matrix" and arch.matrix.max_pixels is not None:
        yield f"{arch.matrix.max_pixels} pixels"
    if form.engine == "copy":
        yield from (f"{name} rank {engine.rank}" for name, engine in arch.copy_.items())


def table(arch: Arch, rows: Iterable[dict[str, Any]], known: int) -> Table:
    """The forms of `arch` as a table; `known` is how many forms there are."""
    shown = list(rows)
    have = sum(one["absent"] is None for one in shown)
    made = Table(
        box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False,
        caption=f"{arch.name}: {have} of {known} forms",
    )  # fmt: skip
    made.add_column("form", no_wrap=True)
    made.add_column("meaning")
    made.add_column("cycles per\nvector", justify="right", no_wrap=True)
    made.add_column("limits")
    if have < len(shown):
        made.add_column("absent")
    for one in shown:
        factor = one["cycles per vector"]
        words = (
            escape(one["form"]),
            escape(one["meaning"]),
            "" if factor is None else f"{factor:g}",
        )
        lacking = [escape(one["absent"] or "")] if have < len(shown) else []
        made.add_row(*words, one["limits"], *lacking)
    return made

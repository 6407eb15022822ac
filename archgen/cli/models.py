"""`archgen models`: the networks that come with archgen."""

from __future__ import annotations

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from archgen.zoo.catalog import CATALOG

_LEAST_WIDTH = 120


@click.command()
def models() -> None:
    """List the networks of the zoo with their options.

    Sizes are the published ones at batch 1 and default options. An option is set after a colon:

    \b
    archgen study soma-edge --model resnet50:image=160,classes=10
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("MMACs", justify="right", no_wrap=True)
    table.add_column("Mparameters", justify="right", no_wrap=True)
    table.add_column("options")
    table.add_column("description")
    for name, entry in CATALOG.items():
        options = ", ".join(f"{key}={value}" for key, value in entry.options.items())
        sizes = f"{entry.macs / 1e6:,.0f}", f"{entry.parameters / 1e6:.2f}"
        table.add_row(name, *sizes, options, entry.description)
    console = Console()
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(table)

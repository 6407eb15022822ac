"""`archgen check`: are these architecture files right, and what machines do they describe?"""

from __future__ import annotations

import sys

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from archgen.schema import load_all
from archgen.schema.peaks import Peaks, peaks
from simmodel.arch import Arch
from simmodel.units import show_bytes

_LEVELS = {"dram": "DRAM", "shared": "shared", "local": "local", "weights": "weights",
           "accumulators": "accum."}  # fmt: skip
_LEAST_WIDTH = 106


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def check(files: tuple[str, ...]) -> None:
    """Check architecture files and print what each machine could do at best.

    FILE is a path, a pattern or the name of a shipped architecture. Prints peak operations by
    element type, bytes per cycle of each memory level, on-chip capacity and the ridge point.
    Every mistake of every file is reported; the exit code is then 2.
    """
    archs, mistakes = load_all(files)
    if archs:
        console = Console()
        console.width = max(console.width, _LEAST_WIDTH)
        console.print(peaks_table(archs))
    for mistake in mistakes:
        click.echo(str(mistake), err=True)
    if mistakes:
        sys.exit(2)


def peaks_table(archs: list[Arch]) -> Table:
    """A table with one row of derived peaks for each architecture."""
    derived = [(arch, peaks(arch)) for arch in archs]
    levels = [role for role in _LEVELS if any(role in p.bytes_per_cycle for _, p in derived)]
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
        caption="memory levels: bytes per core cycle",
    )
    table.add_column("architecture", no_wrap=True)
    for heading in ("cores", "GHz", "TOPS", *(_LEVELS[role] for role in levels)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("on chip", justify="right", no_wrap=True)
    table.add_column("ridge\nMAC/B", justify="right", no_wrap=True)
    for arch, best in derived:
        table.add_row(*_row(arch, best, levels))
    return table


def _row(arch: Arch, best: Peaks, levels: list[str]) -> list[str]:
    tops = "\n".join(f"{name} {value:.3g}" for name, value in best.tops.items())
    widths = best.bytes_per_cycle
    return [
        arch.name,
        str(arch.core_count),
        f"{arch.clock / 1e9:g}",
        tops,
        *(f"{widths[role]:.4g}" if role in widths else "-" for role in levels),
        show_bytes(best.on_chip),
        f"{best.ridge:.4g}",
    ]

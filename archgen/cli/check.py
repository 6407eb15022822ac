"""`archgen check`: are these architecture files right, and what machines do they describe?

The one idea: what it prints is derived from the files alone (peaks, area, costs of events), so it
can be held against data sheets before anything is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from archgen.cli.codes import ExitCode
from archgen.cli.options import extension_option, ignore_option
from archgen.cli.terminal import NARROW, PlainTable, show
from archgen.energy import EnergyCosts, costs_of
from archgen.energy.ranges import UncertainValue
from archgen.energy.sram import MissingSource
from archgen.extensions import activate, extension
from archgen.lint import brief, findings
from archgen.schema import Mistake
from archgen.schema.load import load_files
from archgen.schema.rewritten import Peaks, peaks
from archgen.schema.tree import FilePosition
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

_LEVELS = {"dram": "DRAM", "shared": "shared", "local": "local", "weights": "weights",
           "accumulators": "accum."}  # fmt: skip
_SPARE = ("nm", "accum.", "weights", "cores", "ridge\nMAC/B", "on chip")
"""What may be left out where all has no room; what is missed least comes first."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--energy", is_flag=True, help="Also print what each event and each part costs.")
@ignore_option
@extension_option
def check(
    files: tuple[str, ...], energy: bool, ignored: list[str], extensions: tuple[str, ...]
) -> None:
    """Check architecture files and print what each machine could do at best.

    FILE is a path, a pattern or the name of a shipped architecture. Prints peak operations by
    element type, bytes per cycle of each memory level, on-chip capacity, the ridge point, the
    technology node and the estimated area; with --energy the figures behind it. Then what
    `archgen lint` warns of.

    Exit code 0: the files are right, and what they describe could be built, perhaps with warnings.
    1: an error of `archgen lint`. 2: a file is wrong; every mistake of every file is reported.
    """
    activate(tuple(map(extension, extensions)))
    loaded, mistakes = load_files(files)
    archs = [each.arch for each in loaded]
    costs: dict[str, EnergyCosts] = {}
    for arch in archs:
        try:
            costs[arch.name] = costs_of(arch)
        except MissingSource as missing:
            mistakes.append(Mistake(FilePosition(arch.name), "arch.energy.source", str(missing)))
    priced = [arch for arch in archs if arch.name in costs]
    if priced:
        told = [costs_table(arch, costs[arch.name]) for arch in priced if energy]
        show([peaks_table(priced, costs), *told], (), pipe=NARROW)
    found = [each for arch in archs for each in findings(arch, ignored)]
    for line in brief(found, {each.arch.name: str(each.path) for each in loaded}):
        click.echo(line)
    for mistake in mistakes:
        click.echo(str(mistake), err=True)
    if mistakes:
        sys.exit(ExitCode.WRONG_INPUT)
    sys.exit(
        ExitCode.BAD if any(each.rule.severity == "error" for each in found) else ExitCode.GOOD
    )


def peaks_table(archs: list[Arch], costs: dict[str, EnergyCosts]) -> PlainTable:
    """A table with one row of derived peaks for each architecture; `costs` by its name."""
    derived = [(arch, peaks(arch)) for arch in archs]
    levels = [role for role in _LEVELS if any(role in p.bytes_per_cycle for _, p in derived)]
    table = PlainTable(
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
        pad_edge=False,
        caption="memory levels: bytes per core cycle; +DRAM: its interface",
    )
    table.spare = _SPARE
    table.add_column("architecture", overflow="fold")
    for heading in ("cores", "GHz", "TOPS", *(_LEVELS[role] for role in levels)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("on chip", justify="right", no_wrap=True)
    for heading in ("ridge\nMAC/B", "nm", "mm2\n+DRAM"):
        table.add_column(heading, justify="right", no_wrap=True)
    for arch, best in derived:
        area = costs[arch.name].area
        sizes = f"{area.core.value:.3g}\n+{area.total.value - area.core.value:.2g}"
        table.add_row(*_machine_row(arch, best, levels), f"{arch.energy.node:g}", sizes)
    return table


def _machine_row(arch: Arch, best: Peaks, levels: list[str]) -> list[str]:
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


def costs_table(arch: Arch, costs: EnergyCosts) -> Table:
    """What each event and each part costs, with its range and where the figure comes from."""
    supply = "" if arch.energy.voltage is None else f", {arch.energy.voltage:g} V"
    table = Table(
        title=f"{arch.name}: {arch.energy.node:g} nm{supply}, {arch.energy.dram}",
        title_justify="left", box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False,
    )  # fmt: skip
    for heading in ("event or part", "unit"):
        table.add_column(heading, no_wrap=True)
    for heading in ("figure", "low", "high"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    memories = arch.memories.on_chip()
    for name, unit, cost in _priced(costs):
        ends = (f"{value:.3g}" for value in (cost.value, cost.low, cost.high))
        source = arch.energy.source if memories.keys() & name.split() else "table"
        table.add_row(name, unit, *ends, "file" if cost.stated else source)
    return table


def _priced(costs: EnergyCosts) -> Iterator[tuple[str, str, UncertainValue]]:
    yield from ((f"mac {name}", "pJ", cost) for name, cost in costs.mac.items())
    yield from ((f"vector {kind}", "pJ", cost) for kind, cost in costs.vector.items())
    for role, cost in costs.read.items():
        yield f"{role} read", "pJ/B", cost
        yield f"{role} write", "pJ/B", costs.write[role]
    yield from ((f"link {name}", "pJ/B", cost) for name, cost in costs.links.items())
    yield "instruction", "pJ", costs.instruction
    yield "leakage", "mW", costs.leakage
    yield from ((f"area {name}", "mm2", cost) for name, cost in costs.area.parts.items())
    yield "area without dram", "mm2", costs.area.core
    yield "area", "mm2", costs.area.total

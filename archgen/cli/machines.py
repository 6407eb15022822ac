"""`archgen check`, `lint` and `schema`: are machines right, plausible, and how are they written?

The one idea: what is printed is derived from the files alone (peaks, area, costs of events), so it
can be held against data sheets before anything is compiled.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from importlib import import_module

import click

from archgen.cli.options import EveryMistake, activate_named, extension_option, ignore_option
from archgen.cli.terminal import ExitCode, PlainTable, plain_table, show
from archgen.energy import EnergyCosts, costs_of
from archgen.energy.costs import event_name
from archgen.energy.sram import MissingSource
from archgen.lint import LintFinding, brief, findings, located
from archgen.lint.rules import SEVERITIES
from archgen.lint.subject import LintedMachine
from archgen.schema import Mistake
from archgen.schema.json_schema import file_schema
from archgen.schema.load import LoadedArch, load_files
from archgen.schema.rewritten import peaks
from archgen.schema.tree import FilePosition, dotted, find
from simmodel.arch.memories import DRAM_KINDS
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

_LEVELS = {"dram": "DRAM", "flash": "flash", "shared": "shared", "local": "local",
           "weights": "weights", "accumulators": "accum."}  # fmt: skip
_SPARE = ("nm", "accum.", "weights", "cores", "ridge\nMAC/B", "on chip")
"""What may be left out where all has no room; what is missed least comes first."""
_WIDTH, _INDENT = 96, "    "


@click.command(cls=EveryMistake)
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
    activate_named(extensions)
    loaded, mistakes = load_files(files)
    costs: dict[str, EnergyCosts] = {}
    for each in loaded:
        try:
            costs[each.arch.name] = costs_of(each.arch)
        except MissingSource as missing:
            at = FilePosition(each.arch.name)
            mistakes.append(Mistake(at, "arch.energy.source", str(missing)))
    priced = [each.arch for each in loaded if each.arch.name in costs]
    if priced:
        more = [costs_table(arch, costs[arch.name]) for arch in priced if energy]
        show([peaks_table(priced, costs), *more])
    for line in filter(None, map(given_by_kind, loaded)):
        click.echo(line)
    found = [each for one in loaded for each in findings(one.arch, ignored)]
    for line in brief(found, {each.arch.name: str(each.path) for each in loaded}):
        click.echo(line)
    for mistake in mistakes:
        click.echo(str(mistake), err=True)
    bad = any(each.rule.severity == "error" for each in found)
    sys.exit(ExitCode.WRONG_INPUT if mistakes else ExitCode.BAD if bad else ExitCode.GOOD)


def peaks_table(archs: list[Arch], costs: dict[str, EnergyCosts]) -> PlainTable:
    """A table with one row of derived peaks for each architecture; `costs` by its name."""
    derived = [(arch, peaks(arch)) for arch in archs]
    levels = [role for role in _LEVELS if any(role in p.bytes_per_cycle for _, p in derived)]
    table = plain_table(
        "architecture", ">cores", ">GHz", ">TOPS", *(f">{_LEVELS[role]}" for role in levels),
        ">on chip", ">ridge\nMAC/B", ">nm", ">mm2\n+DRAM",
        spare=_SPARE, caption="memory levels: bytes per core cycle; +DRAM: its interface",
        padding=(0, 0, 0, 1),
    )  # fmt: skip
    for arch, best in derived:
        area, widths = costs[arch.name].area, best.bytes_per_cycle
        table.add_row(
            arch.name, str(arch.core_count), f"{arch.clock / 1e9:g}",
            "\n".join(f"{name} {value:.3g}" for name, value in best.tops.items()),
            *(f"{widths[role]:.4g}" if role in widths else "-" for role in levels),
            show_bytes(best.on_chip), f"{best.ridge:.4g}", f"{arch.energy.node:g}",
            f"{area.core.value:.3g}\n+{area.total.value - area.core.value:.2g}",
        )  # fmt: skip
    return table


def given_by_kind(loaded: LoadedArch) -> str:
    """The fields of DRAM that its kind gives, as the file leaves them out."""
    dram = loaded.arch.memories.dram
    given = (
        f"{name} {getattr(dram, name)}"
        for name in (DRAM_KINDS[dram.kind].fields(0) if dram.kind else ())
        if find(loaded.tree, ("memories", "dram", name)) is None
    )
    said = ", ".join(given)
    return f"{loaded.arch.name}: memories.dram.kind {dram.kind} gives {said}" if said else ""


def costs_table(arch: Arch, costs: EnergyCosts) -> PlainTable:
    """What each event and each part costs, with its range and where the figure comes from."""
    supply = "" if arch.energy.voltage is None else f", {arch.energy.voltage:g} V"
    table = plain_table("event or part", "unit", ">figure", ">low", ">high", "from")
    table.title = f"{arch.name}: {arch.energy.node:g} nm{supply}, {arch.energy.dram}"
    table.title_justify = "left"
    areas = {f"energy.area {name}": cost for name, cost in costs.area.parts.items()}
    areas |= {"energy.area without dram": costs.area.core, "energy.area": costs.area.total}
    for field, cost in {**costs.by_field, **areas}.items():
        unit = "mm2" if field in areas else LintedMachine.energy_unit(field)
        ends = (f"{value:.3g}" for value in (cost.value, cost.low, cost.high))
        words = event_name(field)
        in_memory = arch.memories.on_chip().keys() & words.split()
        source = "file" if cost.stated else arch.energy.source if in_memory else "table"
        table.add_row(words, unit, *ends, source)
    return table


@click.command(cls=EveryMistake)
@click.argument("files", nargs=-1, required=True, metavar="ARCH...")
@ignore_option
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON list.")
@extension_option
def lint(
    files: tuple[str, ...], ignored: list[str], strict: bool, as_json: bool,
    extensions: tuple[str, ...],
) -> None:  # fmt: skip
    """Hold machines against what can be built and fed.

    ARCH is a path, a pattern or the name of a shipped architecture. Each finding has its place in
    the file, the figure, what is usual, and a published chip; `archgen explain lint` lists the
    rules with their limits and sources. What is said of the machines of a sweep, `archgen study`
    shows, also with --dry-run.

    \b
    archgen lint archs/*.yaml
    archgen lint my.yaml --ignore vector-real --json

    Exit code 0: notes and warnings at most. 1: an error, with --strict also a warning. 2: a file
    is wrong.
    """
    activate_named(extensions)
    loaded, mistakes = load_files(files)
    for mistake in mistakes:
        click.echo(str(mistake), err=True)
    if mistakes:
        sys.exit(ExitCode.WRONG_INPUT)
    found = [located(each, one.tree) for one in loaded for each in findings(one.arch, ignored)]
    counts = Counter(each.rule.severity for each in found)
    if as_json:
        click.echo(json.dumps([each.record() for each in found], indent=2))
    else:
        for line in (line for each in found for line in finding_lines(each)):
            click.echo(line)
        words = (_count_text(counts[name], name) for name in SEVERITIES)
        click.echo(f"{', '.join(words)} about {_count_text(len(loaded), 'machine')}")
    sys.exit(1 if counts["error"] or (strict and counts["warning"]) else 0)


def finding_lines(found: LintFinding) -> Iterator[str]:
    """The lines about one finding: place, machine, field and figure; what is usual; a chip."""
    yield f"{found.at}: {found.rule.severity}: {found.arch}: {dotted(found.path)} [{found.name}]"
    for start, text in (("", found.figure), ("usual: ", found.usual), ("built: ", found.chip)):
        if text:
            said = f"{start}{text}"
            yield textwrap.fill(said, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _count_text(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


@click.command(cls=EveryMistake)
@click.option("--study", is_flag=True, help="Of study files rather than architecture files.")
def schema(study: bool) -> None:
    """Print the JSON Schema of architecture files, or of study files.

    Save it, and put `# yaml-language-server: $schema=PATH` at the top of a file: editors then
    complete keys, explain fields and mark mistakes.

    \b
    archgen schema > archgen.schema.json
    archgen schema --study > study.schema.json
    """
    made = import_module("archgen.studies.file").study_schema() if study else file_schema()
    click.echo(json.dumps(made, indent=2))

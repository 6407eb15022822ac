"""`archgen explain area`: what a machine's silicon is made of, and which field asks for it.

The one idea: the sum is printed as it was added up, term by term with its formula in figures; with
`--sensitivity` each field is changed alone and everything is priced again.
"""

from __future__ import annotations

import csv as tables
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from archgen.cli.terminal import plain_table, show
from archgen.energy import costs_of
from archgen.energy.area_of_parts import has_own
from archgen.energy.ranges import UncertainValue, area_of_speed, easy_clock, energy_of_speed
from archgen.energy.sensitivity import effects
from archgen.energy.table import shipped_table
from archgen.outcomes.axes import field_text
from archgen.schema import load_archs
from simmodel.arch.record import Arch


def explain_area(
    names: tuple[str, ...], factor: float | None, as_json: bool, csv: Path | None
) -> None:
    """Print (or write to `csv`) the terms of each machine's area, or the effects of its fields,
    each `factor` times as large."""
    archs = load_archs(names)
    rows = [
        row for arch in archs for row in (_sums(arch) if factor is None else _changes(arch, factor))
    ]
    if csv is not None:
        _write(csv, rows)
        click.echo(f"{len(rows)} rows are in {csv}")
    elif as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        for arch in archs:
            own = [row for row in rows if row["arch"] == arch.name]
            if factor is not None:
                show([_changes_table(arch, own, factor)], [_ELASTIC])
            else:
                show([], [*_sums_lines(arch, own), ""])


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Raises ClickException where the file cannot be written."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = tables.DictWriter(file, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    except OSError as problem:
        raise click.ClickException(f"{path} cannot be written: {problem.strerror}") from None


def _sums(arch: Arch) -> list[dict[str, Any]]:
    area = costs_of(arch).area
    return [
        {
            "arch": arch.name, "part": term.part, "what": term.what,
            "mm2": term.mm2.value, "low": term.mm2.low, "high": term.mm2.high,
            "formula": term.formula, "fields": list(term.fields),
        }
        for term in area.terms
    ]  # fmt: skip


def _changes(arch: Arch, factor: float) -> list[dict[str, Any]]:
    return [
        {
            "arch": arch.name, "field": effect.field, "before": effect.before,
            "after": effect.after, "mm2": effect.mm2, "area": effect.area,
            "elasticity": effect.elasticity,
            "leakage": effect.leakage, "energy": effect.events,
        }
        for effect in effects(arch, factor)
    ]  # fmt: skip


def _sums_lines(arch: Arch, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    area = costs_of(arch).area
    own = "its own" if has_own(arch) else "a port of the system's"
    yield f"{arch.name}, {arch.energy.node:g} nm: {_sized(area.core)} without interface to DRAM"
    yield f"{' ' * len(arch.name)}  with it: {_sized(area.total)}; it is {own}"
    yield from _speed(arch)
    for part, whole in area.parts.items():
        share = whole.value / area.total.value if area.total.value else 0.0
        yield f"\n{part:{_NAMES}} {share:6.1%}  {_sized(whole)}"
        for row in rows:
            if row["part"] == part:
                yield f"  {row['what']:{_NAMES}} {row['mm2']:9.4g}  {row['formula']}"
                said = ", ".join(_brace_fields(row["fields"])) or "no field"
                yield from textwrap.wrap(said, _WIDTH, initial_indent=_IN, subsequent_indent=_IN)


def _speed(arch: Arch) -> Iterator[str]:
    """What the clock asks for, where the node does not give it easily."""
    figures = shipped_table()
    more = [grown(arch, figures).value - 1 for grown in (area_of_speed, energy_of_speed)]
    easy = f"{easy_clock(arch.energy.node, figures) / 1e9:.3g} GHz"
    if not more[0]:
        yield f"up to {easy}, which {arch.energy.node:g} nm gives easily, the clock costs no area"
        return
    yield (
        f"at {arch.clock / 1e9:.3g} GHz logic takes {more[0]:.0%} more area, and operations "
        f"{more[1]:.0%} more energy, than up to {easy}"
    )


_NAMES, _WIDTH = 22, 100
_IN = " " * (_NAMES + 14)


def _brace_fields(fields: Iterable[str]) -> Iterator[str]:
    """Fields of one part of the file together: `memories.local.{size, banks}`."""
    holders: dict[str, list[str]] = {}
    for field in fields:
        holder, _, name = field.rpartition(".")
        holders.setdefault(holder, []).append(name)
    for holder, names in holders.items():
        if holder and len(names) > 1:
            yield f"{holder}.{{{', '.join(names)}}}"
        else:
            yield from (f"{holder}.{name}".lstrip(".") for name in names)


def _sized(area: UncertainValue) -> str:
    """An area and its range in words."""
    return f"{area.value:.4g} mm2 ({area_line(area)})"


def area_line(area: UncertainValue) -> str:
    """The range of an area in words."""
    return "as stated" if area.stated else f"{area.low:.3g} to {area.high:.3g}"


_ELASTIC = "elasticity: per cent of area for one per cent of the field"


def _changes_table(arch: Arch, rows: Iterable[Mapping[str, Any]], factor: float) -> Table:
    table = plain_table()
    table.spare = ("energy of an event", "leakage", "from")
    table.title = (
        f"{arch.name}: one field {factor:.4g} times as large at a time, or what is lawful next to "
        "that; area with the interface to DRAM"
    )
    table.title_justify = "left"
    for heading in ("field", "from", "to"):
        table.add_column(heading, no_wrap=True)
    for heading in ("mm2", "area", "elasticity", "leakage"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("energy of an event", no_wrap=True)
    for row in sorted(rows, key=lambda row: (-abs(row["area"]), -abs(row["leakage"]))):
        events = ", ".join(f"{name} {_signed(share)}" for name, share in row["energy"].items())
        table.add_row(
            row["field"], *(field_text(row["field"], row[at]) for at in ("before", "after")),
            f"{row['mm2']:+.3g}",
            _signed(row["area"]), _elastic(row["elasticity"]), _signed(row["leakage"]), events,
        )  # fmt: skip
    return table


def _cell(value: Any) -> Any:
    """A value for a column: lists as words, mappings as JSON."""
    return json.dumps(value) if isinstance(value, dict) else _list_as_text(value)


def _list_as_text(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _signed(share: float) -> str:
    if abs(share) < _LEAST:
        return "~0%" if share else "-"
    return f"{share:+.1%}"


def _elastic(value: float | None) -> str:
    return "" if value is None else f"{value:z.2f}"


_LEAST = 0.0005
"""What is less is no tenth of a percent."""

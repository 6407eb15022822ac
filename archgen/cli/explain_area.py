"""`archgen explain area`: what a machine's silicon is made of, and which field asks for it.

The one idea: the sum is printed as it was added up, term by term with its formula in figures; with
`--sensitivity` each field is changed alone and everything is priced again.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from archgen.cli.terminal import PlainTable, plain_table, show
from archgen.energy import costs_of
from archgen.energy.area import Area
from archgen.energy.costs import effects
from archgen.energy.price import price_of
from archgen.energy.ranges import UncertainValue, area_of_speed, easy_clock, energy_of_speed
from archgen.energy.table import shipped_table
from archgen.outcomes.axes import field_text
from archgen.schema import load_archs
from simmodel.arch.record import Arch


def explain_area(names: tuple[str, ...], factor: float | None) -> None:
    """Print the terms of each machine's area, or the effects of its fields, each `factor` times as
    large."""
    for arch in load_archs(names):
        if factor is None:
            show([], [*_sums(arch), ""])
        else:
            show([_changes_table(arch, factor)], [_ELASTIC])


def _sums(arch: Arch) -> Iterator[str]:
    area = costs_of(arch).area
    own = "it is its own" if arch.energy.has_pads else "it is a port of the system's"
    own = "there is none" if arch.memories.dram.on_chip else own
    yield f"{arch.name}, {arch.energy.node:g} nm: {_sized(area.core)} without interface to DRAM"
    yield f"{' ' * len(arch.name)}  with it: {_sized(area.total)}; {own}"
    yield from _speed(arch)
    yield from _price(arch, area)
    for part, whole in area.parts.items():
        share = whole.value / area.total.value if area.total.value else 0.0
        yield f"\n{part:{_NAMES}} {share:6.1%}  {_sized(whole)}"
        for term in area.terms:
            if term.part == part:
                yield f"  {term.what:{_NAMES}} {term.mm2.value:9.4g}  {term.formula}"
                said = ", ".join(_brace_fields(term.fields)) or "no field"
                yield from textwrap.wrap(said, _WIDTH, initial_indent=_IN, subsequent_indent=_IN)


def _price(arch: Arch, area: Area) -> Iterator[str]:
    """What a chip costs, where the file says what a wafer does."""
    ends = [price_of(arch, mm2) for mm2 in (area.total.value, area.total.low, area.total.high)]
    if arch.price is None:
        return
    if ends[0] is None:
        yield f"no die of this size fits on a wafer of {arch.price.diameter:g} mm"
        return
    found, spread = ends[0], " to ".join(f"{each.chip:.3g}" for each in ends[1:] if each)
    with_dram = f"; {found.system:.3g} USD with its DRAM" if arch.price.dram else ""
    yield (
        f"a chip costs {found.chip:.3g} USD ({spread}): {found.dies} dies on a wafer, of which "
        f"{found.good:.0%} work{with_dram}"
    )


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
    ends = "as stated" if area.stated else f"{area.low:.3g} to {area.high:.3g}"
    return f"{area.value:.4g} mm2 ({ends})"


_ELASTIC = "elasticity: per cent of area for one per cent of the field"


def _changes_table(arch: Arch, factor: float) -> PlainTable:
    table = plain_table(
        "field", "from", "to", ">mm2", ">area", ">elasticity", ">leakage", "energy of an event",
        spare=("energy of an event", "leakage", "from"),
    )  # fmt: skip
    table.title = (
        f"{arch.name}: one field {factor:.4g} times as large at a time, or what is lawful next to "
        "that; area with the interface to DRAM"
    )
    table.title_justify = "left"
    for effect in sorted(effects(arch, factor), key=lambda e: (-abs(e.area), -abs(e.leakage))):
        events = ", ".join(f"{name} {_signed(share)}" for name, share in effect.events.items())
        values = (field_text(effect.field, value) for value in (effect.before, effect.after))
        elastic = "" if effect.elasticity is None else f"{effect.elasticity:z.2f}"
        table.add_row(
            effect.field, *values, f"{effect.mm2:+.3g}", _signed(effect.area), elastic,
            _signed(effect.leakage), events,
        )  # fmt: skip
    return table


def _signed(share: float) -> str:
    if abs(share) < _LEAST:
        return "~0%" if share else "-"
    return f"{share:+.1%}"


_LEAST = 0.0005
"""What is less is no tenth of a percent."""

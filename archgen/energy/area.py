"""Area of the chip, term by term.

The one idea: what the architecture file lists has terms of its own, each with the fields behind it,
and what no list has (clock, wires, space between cells) is a share of them. Pins are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter

import archgen.energy.area_of_parts as area_of_parts
from archgen.energy.engines import matrix_terms, scalar_terms, vector_terms
from archgen.energy.ranges import UncertainValue, area_of_speed, total
from archgen.energy.sram import Source
from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from simmodel.arch.record import Arch

# Areas that a file states in the place of terms, and terms of its own.

EXTRA = "extra"
"""The part of terms that only the file knows."""


def as_stated(arch: Arch, terms: Iterable[Term]) -> Iterator[Term]:
    """`terms`, those that the file states replaced."""
    given = arch.energy.area.parts
    for part, own in groupby(terms, key=attrgetter("part")):
        if part in given:
            yield _stated(arch, next(own), part, "as stated")
            continue
        for term in own:
            name = f"{part} {term.what.replace(':', '')}"
            yield _stated(arch, term, name, term.what) if name in given else term


def _stated(arch: Arch, term: Term, name: str, what: str) -> Term:
    area, count = arch.energy.area.parts[name], _stated_instances(arch, term, name)
    text = f"{count} x {area:.4g} mm2 (energy.area.parts)"
    where = () if term.part == area_of_parts.PART else ("cores", "clusters")
    return Term(term.part, what, where, text, UncertainValue.exact(area).times(count))


def _stated_instances(arch: Arch, term: Term, name: str) -> int:
    """How many of what is stated the chip has; of all links together there is one."""
    if term.part in ("dram", *arch.memories.srams()):
        return arch.instances(term.part)
    if term.part == "link" and name != "link":
        return arch.scopes(arch.links[term.what].span)
    return 1 if term.part == "link" else arch.core_count


@dataclass(frozen=True)
class Area:
    """What stands on the chip."""

    terms: tuple[Term, ...]

    @cached_property
    def parts(self) -> dict[str, UncertainValue]:
        """mm2 by part: mac, vector, scalar, each memory's role, copy, link, front_end, other,
        extra, dram."""
        names = dict.fromkeys(term.part for term in self.terms)
        return {name: total(t.mm2 for t in self.terms if t.part == name) for name in names}

    @property
    def total(self) -> UncertainValue:
        """mm2 of everything."""
        return total(self.parts.values())

    @property
    def core(self) -> UncertainValue:
        """mm2 of everything but the interface to DRAM."""
        return total(part for name, part in self.parts.items() if name != area_of_parts.PART)


def area_of(arch: Arch, figures: Figures, source: Source) -> Area:
    """Area of `arch`; what its section `energy` states comes before the table."""
    terms = [*as_stated(arch, _listed(arch, figures, source))]
    listed = total(term.mm2 for term in terms).value
    other, stated = figures.area.other, arch.energy.area.other
    share = UncertainValue.within(other.share * listed, other.low, other.high).unless(stated)
    text = f"{other.share:.0%} of {listed:.4g} mm2" if stated is None else "energy.area.other"
    terms.append(Term("other", "clock, wires, space", (), text, share))
    # Its clock is DRAM's, or the system's.
    slow = Logic(figures.area, arch.energy.node)
    interface = as_stated(arch, area_of_parts.interface_terms(arch, figures, slow))
    extra = (
        Term(EXTRA, name, (), f"{mm2:.4g} mm2 (energy.area.extra)", UncertainValue.exact(mm2))
        for name, mm2 in arch.energy.area.extra.items()
    )
    return Area((*terms, *extra, *interface))


def _listed(arch: Arch, figures: Figures, source: Source) -> Iterator[Term]:
    logic = Logic(figures.area, arch.energy.node, area_of_speed(arch, figures))
    for name, array in arch.arrays.items():
        yield from matrix_terms(arch, name, array, figures, logic)
    yield from vector_terms(arch, figures, logic)
    yield from scalar_terms(arch, figures, logic)
    for role in arch.memories.srams():
        yield from area_of_parts.memory_terms(arch, role, figures, source, logic)
    yield from area_of_parts.copy_terms(arch, figures, logic)
    yield from area_of_parts.link_terms(arch, logic)
    yield from area_of_parts.front_end_terms(arch, figures, source, logic)

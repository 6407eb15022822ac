"""Area of the chip, term by term.

The one idea: what the architecture file lists has terms of its own, each with the fields behind it,
and what no list has (clock, wires, space between cells) is a share of them. Pins are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from archgen.energy.engines import matrix_terms, scalar_terms, vector_terms
from archgen.energy.front_end import front_end_terms
from archgen.energy.interface import PART as INTERFACE
from archgen.energy.interface import interface_terms
from archgen.energy.memories import memory_terms
from archgen.energy.movers import copy_terms, link_terms
from archgen.energy.ranges import Range, total
from archgen.energy.sources import Source
from archgen.energy.speed import area_of_speed
from archgen.energy.stated import as_stated, extra_terms
from archgen.energy.table import Figures
from archgen.energy.terms import Logic, Term
from simmodel.arch import Arch


@dataclass(frozen=True)
class Area:
    """What stands on the chip."""

    terms: tuple[Term, ...]

    @cached_property
    def parts(self) -> dict[str, Range]:
        """mm2 by part: mac, vector, scalar, each memory's role, copy, link, front_end, other,
        extra, dram."""
        names = dict.fromkeys(term.part for term in self.terms)
        return {name: total(t.mm2 for t in self.terms if t.part == name) for name in names}

    @property
    def total(self) -> Range:
        """mm2 of everything."""
        return total(self.parts.values())

    @property
    def core(self) -> Range:
        """mm2 of everything but the interface to DRAM."""
        return total(part for name, part in self.parts.items() if name != INTERFACE)


def area_of(arch: Arch, figures: Figures, source: Source) -> Area:
    """Area of `arch`; what its section `energy` states comes before the table."""
    terms = [*as_stated(arch, _listed(arch, figures, source))]
    listed = total(term.mm2 for term in terms).value
    other, stated = figures.area.other, arch.energy.area.other
    share = Range.given(stated, lambda: Range.within(other.share * listed, other.low, other.high))
    text = f"{other.share:.0%} of {listed:.4g} mm2" if stated is None else "energy.area.other"
    terms.append(Term("other", "clock, wires, space", (), text, share))
    # Its clock is DRAM's, or the system's.
    slow = Logic(figures.area, arch.energy.node)
    interface = as_stated(arch, interface_terms(arch, figures, slow))
    return Area((*terms, *extra_terms(arch), *interface))


def _listed(arch: Arch, figures: Figures, source: Source) -> Iterator[Term]:
    logic = Logic(figures.area, arch.energy.node, area_of_speed(arch, figures))
    if arch.matrix.present:
        yield from matrix_terms(arch, figures, logic)
    yield from vector_terms(arch, figures, logic)
    yield from scalar_terms(arch, figures, logic)
    for role in arch.memories.on_chip():
        yield from memory_terms(arch, role, figures, source, logic)
    yield from copy_terms(arch, figures, logic)
    yield from link_terms(arch, logic)
    yield from front_end_terms(arch, figures, source, logic)

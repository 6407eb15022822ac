"""Areas that a file states in the place of terms, and terms of its own.

The one idea: what is stated replaces what the table makes of it, under the name that is printed, so
the sum stays a sum; a term counts as often as its core, memory or link is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from archgen.energy.movers import spans
from archgen.energy.ranges import Range
from archgen.energy.terms import Term
from archgen.schema.peaks import instances
from simmodel.arch import Arch

EXTRA = "extra"
"""The part of terms that only the file knows."""
_WHERE = ("cores", "clusters")


def as_stated(arch: Arch, terms: Iterable[Term]) -> Iterator[Term]:
    """`terms`, those that the file states replaced."""
    given, told = arch.energy.area.parts, set[str]()
    for term in terms:
        name = f"{term.part} {term.what.replace(':', '')}"
        if term.part not in given:
            yield _stated(arch, term, name, term.what) if name in given else term
        elif term.part not in told:
            told.add(term.part)
            yield _stated(arch, term, term.part, "as stated")


def extra_terms(arch: Arch) -> Iterator[Term]:
    """What the file has under names of its own."""
    for name, area in arch.energy.area.extra.items():
        text = f"{area:.4g} mm2 (energy.area.extra)"
        yield Term(EXTRA, name, (), text, Range(area, area, area, stated=True))


def _stated(arch: Arch, term: Term, name: str, what: str) -> Term:
    area, count = arch.energy.area.parts[name], _count(arch, term, name)
    text = f"{count} x {area:.4g} mm2 (energy.area.parts)"
    one = Range(area, area, area, stated=True)
    return Term(term.part, what, _WHERE if term.part != "dram" else (), text, one.times(count))


def _count(arch: Arch, term: Term, name: str) -> int:
    """How many of what is stated the chip has; of all links together there is one."""
    if term.part in arch.memories.on_chip():
        return instances(arch, term.part)
    if term.part == "link" and name != "link":
        return spans(arch, arch.links[term.what])
    return 1 if term.part in ("link", "dram") else arch.core_count

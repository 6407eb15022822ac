"""Which machine can do whatever another one can: it has more of something, and nothing less.

The one idea: it has more of fields of which more takes nothing away, less of those of which less
does not (`archgen.schema.amounts`), and is the same in all others.
"""

from __future__ import annotations

from collections.abc import Iterator

from archgen.schema.amounts import LESS, MORE, is_one_of
from simmodel.arch import Arch
from simmodel.part import Part
from simmodel.units import Bandwidth, Delay

_SILENT = ("name", "description", "energy", "energy.*")
"""Fields that no cycle depends on."""

Fields = dict[str, object]
"""The fields of a machine by their paths; bandwidths and delays in cycles."""


def fields_of(arch: Arch) -> Fields:
    """Every field of `arch` that a cycle may depend on."""
    found = _below(arch, "", arch.clock)
    return {name: value for name, value in found if not is_one_of(name, _SILENT)}


def at_least(more: Fields, less: Fields) -> bool:
    """Whether a machine can do whatever another can, in no more time by its fields alone."""
    if more.keys() != less.keys():
        return False
    return all(_covers(name, more[name], less[name]) for name in more if more[name] != less[name])


def _covers(name: str, ours: object, theirs: object) -> bool:
    if not (isinstance(ours, int | float) and isinstance(theirs, int | float)):
        return False
    return (is_one_of(name, MORE) and ours > theirs) or (is_one_of(name, LESS) and ours < theirs)


def _below(value: object, name: str, clock: float) -> Iterator[tuple[str, object]]:
    """Every field below `value` by its path."""
    parts: Iterator[tuple[str, object]]
    match value:
        case Part():
            fields = type(value).model_fields
            parts = ((fields[n].alias or n, getattr(value, n)) for n in fields)
        case dict():
            parts = iter(value.items())
        case Bandwidth():
            yield name, value.at(clock)
            return
        case Delay():
            yield name, value.cycles(clock)
            return
        case _:
            yield name, value
            return
    for key, part in parts:
        yield from _below(part, f"{name}.{key}" if name else str(key), clock)

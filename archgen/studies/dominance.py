"""Which machine can do whatever another one can: it has more of something, and nothing less.

The one idea: of every field of the schema it is known whether more of it, or less, takes nothing
away from what a program may do: `MORE` and `LESS`. In all other fields two machines have to agree,
as more rows of an array or another granularity are other hardware, not more of the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from simmodel.arch import Arch
from simmodel.part import Part
from simmodel.units import Bandwidth, Delay

MORE = (
    "clusters", "cores", "memories.*.size", "memories.*.banks", "memories.*.ports",
    "memories.*.read_ports", "memories.*.write_ports", "memories.dram.bandwidth",
    "memories.dram.channels", "copy.*.bandwidth", "copy.*.outstanding", "links.*.bandwidth",
    "front_end.issue_width", "front_end.queue_depth", "front_end.queue_depth.*",
    "front_end.tokens", "front_end.fetch_bandwidth", "front_end.loop_buffer", "host.compute",
    "host.bandwidth", "vector.lanes", "vector.wide_lanes",
)  # fmt: skip
"""Fields of which more never takes anything away."""
LESS = (
    "*.latency", "*.startup", "memories.*.conflict_penalty", "front_end.signal", "copy.*.indirect",
    "vector.cost.*", "scalar.cost.*",
)  # fmt: skip
"""Fields of which less never does: delays, and cycles of an operation."""
_SILENT = ("name", "description", "energy", "energy.*")
"""Fields that no cycle depends on."""

Fields = dict[str, object]
"""The fields of a machine by their paths; bandwidths and delays in cycles."""


def fields_of(arch: Arch) -> Fields:
    """Every field of `arch` that a cycle may depend on."""
    found = _below(arch, "", arch.clock)
    return {name: value for name, value in found if not _any(name, _SILENT)}


def at_least(more: Fields, less: Fields) -> bool:
    """Whether a machine can do whatever another can, in no more time by its fields alone."""
    if more.keys() != less.keys():
        return False
    return all(_covers(name, more[name], less[name]) for name in more if more[name] != less[name])


def _covers(name: str, ours: object, theirs: object) -> bool:
    if not (isinstance(ours, int | float) and isinstance(theirs, int | float)):
        return False
    return (_any(name, MORE) and ours > theirs) or (_any(name, LESS) and ours < theirs)


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


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

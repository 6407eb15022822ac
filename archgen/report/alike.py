"""Machines that are the same in all but their names, and what a study has measured of a change.

The one idea: a machine is what its fields say. Machines with equal fields share one card, and a
change that leads to the fields of another machine of the study has been measured there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from archgen.report.ranking import Standing
from archgen.report.words import geometric_mean
from archgen.schema.rewritten import Fields, changed
from simmodel.arch import Arch

_SAID = {"name", "description"}
"""What is said of a machine and does not make it another one."""


def content(arch: Arch) -> str:
    """What `arch` is, whatever it is called; equal for machines that are the same."""
    return arch.model_dump_json(exclude=_SAID)


def alike(standings: Iterable[Standing]) -> list[tuple[Standing, ...]]:
    """`standings` in their order, those of the same machine together."""
    found: dict[str, list[Standing]] = {}
    for standing in standings:
        found.setdefault(content(standing.arch), []).append(standing)
    return [tuple(own) for own in found.values()]


@dataclass(frozen=True)
class Measured:
    """What a change has brought where the study has the changed machine."""

    machine: str
    gain: float
    """Share of the time that it saves, over common workloads geometrically; below 0: it takes."""
    workloads: int


def measured(
    fields: Fields, standing: Standing, known: Mapping[str, Sequence[Standing]]
) -> Measured | None:
    """What `fields` have brought on the machine of `standing`; None where nobody has run it.

    Args:
        fields: what is changed about it.
        standing: the machine as it is.
        known: the machines of the study that have results, by `content`.
    """
    made = changed(standing.arch, fields) if fields else None
    if made is None:
        return None
    for other in known.get(content(made), ()):
        common = [name for name in standing.best if name in other.best]
        times = [(standing.best[n].time, other.best[n].time) for n in common]
        if common:
            kept = geometric_mean([after / before for before, after in times])
            return Measured(other.name, 1 - kept, len(common))
    return None

"""What is compared: a study's folder, machines of one, or a study at hand, each under its name.

The one idea: `out` is a folder and `out:edge` the machine `edge` of it (`out:edge*` several); what
names one machine alone is compared with other machines network by network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path

from archgen.schema.mistakes import guess
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study


@dataclass(frozen=True)
class Side:
    """A study as one side of a comparison."""

    name: str
    study: Study
    one_machine: bool = False
    """Whether it was chosen as one machine, so that its name says nothing about what it is for."""


def side_of(given: Side | Study | str | PathLike[str], number: int) -> Side:
    """`given` as a side; the `number` names a study without a name.

    Raises StudyError: there is no such study, or no such machine in it.
    """
    if isinstance(given, Side):
        return given
    if isinstance(given, Study):
        return Side(given.about.name or f"study {number}", given)
    text = fspath(given)
    folder, colon, names = text.rpartition(":")
    if not colon or Path(text).exists() or not Path(folder).exists():
        return Side(text, open_study(text))
    return machines_of(text, open_study(folder), names.split(","))


def machines_of(name: str, study: Study, patterns: Sequence[str]) -> Side:
    """The machines of `study` that `patterns` name. Raises StudyError where one names none."""
    known = list(dict.fromkeys(str(outcome.row["arch"]) for outcome in study.outcomes))
    idle = [p for p in patterns if not any(fnmatchcase(each, p) for each in known)]
    if idle:
        there = f"; there is {', '.join(map(repr, known[:5]))}" if known else "; it has no points"
        raise StudyError(
            f"{name}: no machine {p!r}{guess(p.strip('*'), known) or there}" for p in idle
        )
    kept = {each for each in known if any(fnmatchcase(each, p) for p in patterns)}
    chosen = replace(
        study,
        outcomes=tuple(o for o in study.outcomes if o.row["arch"] in kept),
        archs=tuple(arch for arch in study.archs if arch.name in kept),
    )
    return Side(name, chosen, len(kept) == 1)

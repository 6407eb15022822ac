"""What is compared: a study's folder, machines of one, or a study at hand, each under its name.

The one idea: `out` is a folder and `out:edge` the machine `edge` of it (`out:edge*` several); what
names one machine alone is compared with other machines network by network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from archgen.comparison.differences import Pair
from archgen.schema.load import load_files
from archgen.schema.tree import FilePosition, guess, position
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study
from simmodel.arch.record import Arch


@dataclass(frozen=True)
class ComparedStudy:
    """A study as one side of a comparison."""

    name: str
    study: Study
    one_machine: bool = False
    """Whether it was chosen as one machine, so that its name says nothing about what it is for."""


def side_of(given: ComparedStudy | Study | str | PathLike[str], number: int) -> ComparedStudy:
    """`given` as a side; the `number` names a study without a name.

    Raises StudyError: there is no such study, or no such machine in it.
    """
    if isinstance(given, ComparedStudy):
        return given
    if isinstance(given, Study):
        return ComparedStudy(given.about.name or f"study {number}", given)
    text = fspath(given)
    folder, colon, names = text.rpartition(":")
    if not colon or Path(text).exists() or not Path(folder).exists():
        return ComparedStudy(text, open_study(text))
    return machines_of(text, open_study(folder), names.split(","))


def machines_of(name: str, study: Study, patterns: Sequence[str]) -> ComparedStudy:
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
    return ComparedStudy(name, chosen, len(kept) == 1)


# Where a machine is described that two studies have: its file, at what is different.

Field: TypeAlias = tuple[str, ...]
NAMING = ("name", "description")
"""Of a machine: how it is called, which changes nothing."""


def place_of(pair: Pair, before: Study, after: Study) -> FilePosition | None:
    """The first field of the machine of `pair` that is another one in `after`, where its file
    stands; of an unchanged machine the top of its file. None where the file is unknown, or not
    below the folder at hand, as that of a shipped machine."""
    name = str(pair.after["arch"])
    file = Path(after.about.files.get(name, ""))
    if not file.is_file() or not file.resolve().is_relative_to(Path.cwd().resolve()):
        return None
    loaded, _ = load_files([file])
    if not loaded:
        return FilePosition(str(file), 1, 1)
    old, new = before.by_name.get(str(pair.before["arch"])), after.by_name.get(name)
    paths = _changed_fields(old, new) if old and new else []
    tree = loaded[0].tree
    places = (position(tree, path) for path in paths)
    return next((at for at in places if at != tree.at), tree.at)


def _changed_fields(old: Arch, new: Arch) -> list[Field]:
    """Fields in which two machines differ, but how they are called."""
    before, after = (_leaves(each.model_dump(mode="json", by_alias=True)) for each in (old, new))
    every = dict.fromkeys([*before, *after])
    return [n for n in every if n[0] not in NAMING and before.get(n) != after.get(n)]


def _leaves(value: Any, path: Field = ()) -> dict[Field, Any]:
    if not isinstance(value, Mapping):
        return {path: value}
    return {n: leaf for key in value for n, leaf in _leaves(value[key], (*path, str(key))).items()}

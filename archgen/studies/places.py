"""Where a machine is described that two studies have: its file, at what is different.

The one idea: a study says which files its machines were read from, so what became of a point can be
shown beside the line that may have to do with it, as long as that file is still there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from archgen.schema.load import load_files
from archgen.schema.mistakes import Position
from archgen.schema.tree import position
from archgen.studies.differences import Pair
from archgen.studies.results import Study
from simmodel.arch import Arch

Field: TypeAlias = tuple[str, ...]
NAMING = ("name", "description")
"""Of a machine: how it is called, which changes nothing."""


def place_of(pair: Pair, before: Study, after: Study) -> Position | None:
    """The first field of the machine of `pair` that is another one in `after`, where its file
    stands; of an unchanged machine the top of its file. None where the file is unknown, or not
    below the folder at hand, as that of a shipped machine."""
    name = str(pair.after["arch"])
    file = Path(after.about.files.get(name, ""))
    if not file.is_file() or not file.resolve().is_relative_to(Path.cwd().resolve()):
        return None
    loaded, _ = load_files([file])
    if not loaded:
        return Position(str(file), 1, 1)
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

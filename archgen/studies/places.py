"""Where a machine is described that two studies have: its file, at what is different.

The one idea: a study says which files its machines were read from, so what became of a point can be
shown beside the line that may have to do with it, as long as that file is still there.
"""

from __future__ import annotations

from pathlib import Path

from archgen.schema.load import load_files
from archgen.schema.mistakes import Position
from archgen.schema.tree import position
from archgen.studies.differences import Pair
from archgen.studies.made import changes
from archgen.studies.results import Study


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
    paths = [field.split(".") for field in changes(old, new)] if old and new else []
    tree = loaded[0].tree
    places = (position(tree, tuple(path)) for path in paths)
    return next((at for at in places if at != tree.at), tree.at)

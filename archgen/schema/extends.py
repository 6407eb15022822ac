"""Families: a file that names another with `extends:` is laid over it.

Mappings merge deeply, lists and scalars replace, null removes what the other file had. A name
belongs to one file and is not inherited.
"""

from __future__ import annotations

import os
from pathlib import Path

from archgen.schema.mistakes import Mistake, Position
from archgen.schema.shipped import locate
from archgen.schema.source import read_tree
from archgen.schema.tree import Leaf, Table, merge

KEY = "extends"


def read_family(
    path: Path, shown: str, below: tuple[Path, ...] = ()
) -> tuple[Table | None, list[Mistake], bool]:
    """The tree of `path` laid over everything that it extends, and the mistakes on the way.

    The last value says whether the tree is whole: False when a file of the family is not usable.
    `below` holds the files that led here.
    """
    tree, mistakes = read_tree(path, shown)
    if tree is None or KEY not in tree.entries:
        return tree, mistakes, tree is not None
    entries = dict(tree.entries)
    named = entries.pop(KEY).node
    own = Table(tree.at, entries)
    if not isinstance(named, Leaf) or not isinstance(named.value, str):
        complaint = "expected the name of another architecture file"
        return own, [*mistakes, Mistake(named.at, f"arch.{KEY}", complaint)], False
    family = (*below, path.resolve())
    parent, mistake = _parent(path, shown, named.value, named.at, family)
    if mistake is not None:
        return own, [*mistakes, mistake], False
    above, more, whole = read_family(parent, _shown(parent, path, shown), family)
    if above is None:
        return own, [*mistakes, *more], False
    inherited = {key: entry for key, entry in above.entries.items() if key != "name"}
    return merge(Table(above.at, inherited), own), [*mistakes, *more], whole


def _parent(
    path: Path, shown: str, name: str, at: Position, family: tuple[Path, ...]
) -> tuple[Path, Mistake | None]:
    """The file that `name`, written at `at` in `path`, stands for."""
    wanted = path.parent / name
    if wanted.suffix != ".yaml" and not os.path.isfile(wanted):
        wanted = Path(f"{wanted}.yaml")
    if not os.path.isfile(wanted):
        shipped, missing = locate(name)
        if missing is None and os.path.basename(name) == name:
            wanted = shipped
    if not os.path.isfile(wanted):
        _, missing = locate(str(wanted))
        said = "no such file" if missing is None else missing.message
        near = said.replace(f"{path.parent}{os.sep}", "")
        return wanted, Mistake(at, f"arch.{KEY}", f"{name!r}: {near}")
    if wanted.resolve() in family:
        chain = " -> ".join(member.name for member in (*family, wanted.resolve()))
        return wanted, Mistake(at, f"arch.{KEY}", f"a file cannot extend itself: {chain}")
    return wanted, None


def _shown(parent: Path, path: Path, shown: str) -> str:
    """How messages call `parent`, a neighbour of `path`, which they call `shown`."""
    relative = os.path.relpath(parent, path.parent)
    return os.path.normpath(os.path.join(os.path.dirname(shown), relative))

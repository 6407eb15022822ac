"""Families: a file that names another with `extends:` is laid over it.

Mappings merge deeply, lists and scalars replace, null removes what the other file had. A name
belongs to one file and is not inherited.
"""

from __future__ import annotations

import glob
import os
from difflib import get_close_matches
from pathlib import Path

import archgen
from archgen.schema.source import read_tree
from archgen.schema.tree import FilePosition, Mistake, ScalarNode, Table, guess, merge

# Where architecture files come from: paths, patterns, and the names of the files we ship.

_SUFFIXES = (".yaml", ".yml")


def shipped_folder() -> Path:
    """The folder of the shipped architecture files."""
    package = Path(archgen.__file__).parent
    inside = package / "archs"
    return inside if inside.is_dir() else package.parent / "archs"


def shipped_names() -> list[str]:
    """Names of the shipped architectures, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.yaml"))


def expand(pattern: str) -> tuple[list[Path], list[Mistake]]:
    """Files that `pattern` (a path, a glob pattern or a shipped name) stands for."""
    if glob.has_magic(pattern) and not os.path.exists(pattern):
        found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
        files = [path for path in found if path.suffix in _SUFFIXES and path.is_file()]
        if not files:
            return [], [Mistake(FilePosition(pattern), "", "no .yaml file matches this pattern")]
        return files, []
    path, mistake = locate(pattern)
    return ([path], []) if mistake is None else ([], [mistake])


def locate(name: str) -> tuple[Path, Mistake | None]:
    """The file that `name`, a path or a shipped name, stands for, or what is wrong with it."""
    path = Path(name)
    if os.path.isfile(path):
        return path, None
    shipped = shipped_folder() / f"{name}.yaml"
    bare = os.path.basename(name) == name and path.suffix not in _SUFFIXES
    if bare and os.path.isfile(shipped):
        return shipped, None
    at = FilePosition(name)
    if os.path.isdir(path):
        hint = f"write {os.path.join(name, '*.yaml')!r} for all files in it"
        return path, Mistake(at, "", f"is a folder, not a file; {hint}")
    if os.path.exists(path):
        return path, Mistake(at, "", "is not a regular file")
    if bare:
        near = guess(name, shipped_names()) or "; shipped: " + ", ".join(shipped_names())
        return path, Mistake(at, "", f"no such file, and no shipped architecture{near}")
    return path, Mistake(at, "", f"no such file{_similar_file_hint(path)}")


def _similar_file_hint(path: Path) -> str:
    """Which file of the same folder may have been meant."""
    if not os.path.isdir(path.parent):
        return ""
    stems = {near.stem: near for near in path.parent.iterdir() if near.suffix in _SUFFIXES}
    found = get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {str(stems[found[0]])!r}?" if found else ""


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
    if not isinstance(named, ScalarNode) or not isinstance(named.value, str):
        complaint = "expected the name of another architecture file"
        return own, [*mistakes, Mistake(named.at, f"arch.{KEY}", complaint)], False
    family = (*below, path.resolve())
    parent, mistake = _parent(path, shown, named.value, named.at, family)
    if mistake is not None:
        return own, [*mistakes, mistake], False
    above, more, whole = read_family(parent, _parent_label(parent, path, shown), family)
    if above is None:
        return own, [*mistakes, *more], False
    inherited = {key: entry for key, entry in above.entries.items() if key != "name"}
    return merge(Table(above.at, inherited), own), [*mistakes, *more], whole


def _parent(
    path: Path, shown: str, name: str, at: FilePosition, family: tuple[Path, ...]
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


def _parent_label(parent: Path, path: Path, shown: str) -> str:
    """How messages call `parent`, a neighbour of `path`, which they call `shown`."""
    relative = os.path.relpath(parent, path.parent)
    return os.path.normpath(os.path.join(os.path.dirname(shown), relative))

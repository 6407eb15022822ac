"""Loading architectures: one file, or all that patterns name, with every mistake at once.

A file that names another with `extends:` is laid over it: mappings merge deeply, lists and scalars
replace, null removes what the other file had. A name belongs to one file and is not inherited.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path

import archgen
import archgen.schema.tree as trees
from archgen.schema.record import validate
from archgen.schema.source import read_tree
from archgen.schema.tree import ArchError, FilePosition, Mistake, Table
from simmodel.arch.record import Arch
from simmodel.errors import expect

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
    bare = os.path.basename(name) == name and path.suffix not in _SUFFIXES
    shipped = shipped_folder().glob(f"**/{glob.escape(name)}.yaml") if bare else iter(())
    if (found := next(shipped, None)) is not None:
        return found, None
    at = FilePosition(name or "''")
    if name and os.path.isdir(path):
        hint = f"write {os.path.join(name, '*.yaml')!r} for all files in it"
        return path, Mistake(at, "", f"is a folder, not a file; {hint}")
    if os.path.lexists(name):
        return path, Mistake(
            at, "", "is not a regular file" if path.exists() else "is a link that leads nowhere"
        )
    if bare:
        near = trees.guess(name, shipped_names()) or "; shipped: " + ", ".join(shipped_names())
        return path, Mistake(at, "", f"no such file, and no shipped architecture{near}")
    return path, Mistake(at, "", f"no such file{_similar_file_hint(path)}")


def _similar_file_hint(path: Path) -> str:
    """Which file of the same folder may have been meant."""
    if not os.path.isdir(path.parent):
        return ""
    stems = {near.stem: near for near in path.parent.iterdir() if near.suffix in _SUFFIXES}
    found = get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {str(stems[found[0]])!r}?" if found else ""


def read_family(
    path: Path, shown: str, below: tuple[Path, ...] = ()
) -> tuple[Table | None, list[Mistake], bool]:
    """The tree of `path` laid over everything that it extends, and the mistakes on the way.

    The last value says whether the tree is whole: False when a file of the family is not usable.
    `below` holds the files that led here.
    """
    tree, mistakes = read_tree(path, shown)
    if tree is None or trees.EXTENDS not in tree.entries:
        return tree, mistakes, tree is not None
    entries = dict(tree.entries)
    named = entries.pop(trees.EXTENDS).node
    own = Table(tree.at, entries)
    if not isinstance(named, trees.ScalarNode) or not isinstance(named.value, str):
        complaint = "expected the name of another architecture file"
        return own, [*mistakes, Mistake(named.at, f"arch.{trees.EXTENDS}", complaint)], False
    family = (*below, path.resolve())
    parent, mistake = _parent(path, named.value, named.at, family)
    if mistake is not None:
        return own, [*mistakes, mistake], False
    # Messages call a neighbour of `path` as they call that.
    label = os.path.join(os.path.dirname(shown), os.path.relpath(parent, path.parent))
    above, more, whole = read_family(parent, os.path.normpath(label), family)
    if above is None:
        return own, [*mistakes, *more], False
    inherited = {key: entry for key, entry in above.entries.items() if key != "name"}
    return trees.merge(Table(above.at, inherited), own), [*mistakes, *more], whole


def _parent(
    path: Path, name: str, at: FilePosition, family: tuple[Path, ...]
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
        return wanted, Mistake(at, f"arch.{trees.EXTENDS}", f"{name!r}: {near}")
    if wanted.resolve() in family:
        chain = " -> ".join(member.name for member in (*family, wanted.resolve()))
        return wanted, Mistake(at, f"arch.{trees.EXTENDS}", f"a file cannot extend itself: {chain}")
    return wanted, None


NAMED_MACHINE = "a file or the name of a shipped machine"


def load_arch(path: str | PathLike[str]) -> Arch:
    """The architecture in the file `path`, or the shipped one of that name.

    Raises ArchError, which holds every mistake of the file and of those that it extends.
    """
    expect("path", path, (str, PathLike), NAMED_MACHINE)
    file, mistake = locate(fspath(path))
    loaded, mistakes = (None, [mistake]) if mistake is not None else _load(file)
    if loaded is None:
        raise ArchError(mistakes)
    return loaded.arch


def load_archs(patterns: Iterable[str | PathLike[str]]) -> list[Arch]:
    """The architectures that paths, glob patterns and shipped names stand for, in that order.

    A file that two patterns name is loaded once. Raises ArchError with every mistake of all files.
    """
    loaded, mistakes = load_files(patterns)
    if mistakes:
        raise ArchError(mistakes)
    return [each.arch for each in loaded]


@dataclass(frozen=True)
class LoadedArch:
    """An architecture and the file that it comes from, families resolved."""

    arch: Arch
    tree: Table
    path: Path


def load_files(patterns: Iterable[str | PathLike[str]]) -> tuple[list[LoadedArch], list[Mistake]]:
    """The architectures that can be loaded, and the sorted mistakes of those that cannot."""
    files: dict[Path, Path] = {}
    found: dict[str, LoadedArch] = {}
    mistakes: list[Mistake] = []
    for pattern in patterns:
        named, wrong = expand(fspath(pattern))
        mistakes += wrong
        for path in named:
            files.setdefault(path.resolve(), path)
    for path in files.values():
        loaded, wrong = _load(path)
        mistakes += wrong
        if loaded is None:
            continue
        name = loaded.arch.name
        if name in found:
            said = f"the name {name!r} is taken by {found[name].path}"
            mistakes.append(Mistake(FilePosition(str(path)), "arch.name", said))
            continue
        found[name] = loaded
    return list(found.values()), sorted(set(mistakes))


def _load(path: Path) -> tuple[LoadedArch | None, list[Mistake]]:
    tree, mistakes, whole = read_family(path, str(path))
    if tree is None:
        return None, mistakes
    arch, more = validate(tree, whole)
    loaded = None if mistakes or arch is None else LoadedArch(arch, tree, path)
    return loaded, mistakes + more

"""Loading architectures: one file, or all that patterns name, with every mistake at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

from archgen.schema.extends import expand, locate, read_family
from archgen.schema.record import validate
from archgen.schema.tree import ArchError, FilePosition, Mistake, Table
from simmodel.arch.record import Arch


def load_arch(path: str | PathLike[str]) -> Arch:
    """The architecture in the file `path`, or the shipped one of that name.

    Raises ArchError, which holds every mistake of the file and of those that it extends.
    """
    file, mistake = locate(fspath(path))
    loaded, mistakes = (None, [mistake]) if mistake is not None else _load(file)
    if loaded is None:
        raise ArchError(mistakes)
    return loaded.arch


def load_archs(patterns: Iterable[str | PathLike[str]]) -> list[Arch]:
    """The architectures that paths, glob patterns and shipped names stand for, in that order.

    A file that two patterns name is loaded once. Raises ArchError with every mistake of all files.
    """
    archs, mistakes = load_all(patterns)
    if mistakes:
        raise ArchError(mistakes)
    return archs


@dataclass(frozen=True)
class LoadedArch:
    """An architecture and the file that it comes from, families resolved."""

    arch: Arch
    tree: Table
    path: Path


def load_all(patterns: Iterable[str | PathLike[str]]) -> tuple[list[Arch], list[Mistake]]:
    """The architectures that can be loaded, and the sorted mistakes of those that cannot."""
    found, mistakes = load_files(patterns)
    return [loaded.arch for loaded in found], mistakes


def load_files(patterns: Iterable[str | PathLike[str]]) -> tuple[list[LoadedArch], list[Mistake]]:
    """As `load_all`, with the file of each architecture."""
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

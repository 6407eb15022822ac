"""Loading architectures: one file, or all that patterns name, with every mistake at once."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path

from archgen.schema.explain import validate
from archgen.schema.extends import read_family
from archgen.schema.mistakes import ArchError, Mistake, Position
from archgen.schema.shipped import expand, locate
from simmodel.arch import Arch


def load_arch(path: str | PathLike[str]) -> Arch:
    """The architecture in the file `path`, or the shipped one of that name.

    Raises ArchError, which holds every mistake of the file and of those that it extends.
    """
    file, mistake = locate(fspath(path))
    arch, mistakes = (None, [mistake]) if mistake is not None else _load(file)
    if arch is None:
        raise ArchError(mistakes)
    return arch


def load_archs(patterns: Iterable[str | PathLike[str]]) -> list[Arch]:
    """The architectures that paths, glob patterns and shipped names stand for, in that order.

    A file that two patterns name is loaded once. Raises ArchError with every mistake of all files.
    """
    archs, mistakes = load_all(patterns)
    if mistakes:
        raise ArchError(mistakes)
    return archs


def load_all(patterns: Iterable[str | PathLike[str]]) -> tuple[list[Arch], list[Mistake]]:
    """The architectures that can be loaded, and the sorted mistakes of those that cannot."""
    files: dict[Path, Path] = {}
    archs: dict[str, Arch] = {}
    owners: dict[str, Path] = {}
    mistakes: list[Mistake] = []
    for pattern in patterns:
        found, wrong = expand(fspath(pattern))
        mistakes += wrong
        for path in found:
            files.setdefault(path.resolve(), path)
    for path in files.values():
        arch, wrong = _load(path)
        mistakes += wrong
        if arch is None:
            continue
        if arch.name in archs:
            said = f"the name {arch.name!r} is taken by {owners[arch.name]}"
            mistakes.append(Mistake(Position(str(path)), "arch.name", said))
            continue
        archs[arch.name], owners[arch.name] = arch, path
    return list(archs.values()), sorted(set(mistakes))


def _load(path: Path) -> tuple[Arch | None, list[Mistake]]:
    tree, mistakes, whole = read_family(path, str(path))
    if tree is None:
        return None, mistakes
    arch, more = validate(tree, whole)
    return (None if mistakes else arch), mistakes + more

"""Operators, functions, strategies and passes of a user's own, in files that go where points go.

The one idea: an extension is a Python file whose lines register what it defines
(docs/extending.md). It travels with a point as path and content hash; whoever runs the point runs
the file first, and the hash is part of the point's key. What a script registers in its own process
reaches no other one and no key, so it is refused where either would matter. An error on its way
through a function of an extension is that function's, whoever called it.
"""

from __future__ import annotations

import ast
import hashlib
import os
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from archgen.process.guard import Exceeded, ResourceLimits, guarded
from archgen.process.internal_errors import error_context, exception_chain
from compiler import api
from compiler.api import CompilerError
from simmodel.arch.base import Registry
from simmodel.errors import UserError


class ExtensionError(UserError):
    """A file that is no extension, or not the one that was meant."""


@dataclass(frozen=True)
class Extension:
    """A file that registers something, as it was when the study began."""

    path: str
    """Absolute."""
    content: str
    """SHA-256 (hex) of it and of the files beside it that it imports."""
    distribution: str = ""
    """Name and version of the installed package that it is of, which are in `content` too."""


class _Active:
    """What is registered in this process beside what its own script did."""

    active: tuple[Extension, ...] = ()
    files: frozenset[str] = frozenset()
    """Of `active`, and of the modules beside them that they import."""
    before: tuple[list[dict[str, Any]], list[Any]] | None = None


GROUP = "archgen.extensions"
"""Entry points of installed packages that are extensions: each names a module."""


def extension(path: str | PathLike[str]) -> Extension:
    """The extension in the file `path`, or that of an installed package by the name of its entry
    point. Raises ExtensionError."""
    named = None if os.sep in fspath(path) else _entry_point(fspath(path))
    if named is None:
        absolute, distribution = Path(fspath(path)).absolute(), ""
    else:
        absolute, distribution = named
    return Extension(str(absolute), _content(absolute, distribution), distribution)


def _entry_point(name: str) -> tuple[Path, str] | None:
    """File, name and version of an installed extension; None: no package has such a one."""
    found = entry_points(group=GROUP, name=name)
    for each in found:
        spec = find_spec(each.module)
        if spec is None or spec.origin is None:
            raise ExtensionError(f"extension {name}: its module {each.module} has no file")
        owner = each.dist
        return Path(spec.origin), f"{owner.name} {owner.version}" if owner is not None else name
    return None


def _content(path: Path, distribution: str) -> str:
    digest = hashlib.sha256(distribution.encode())
    for source in _sources(path, set()):
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    return digest.hexdigest()


def _sources(path: Path, seen: set[Path]) -> Iterator[Path]:
    """`path`, and the modules beside it that it imports, and so on."""
    seen.add(path)
    names = {name.split(".")[0] for name in _imported(path)}
    yield path
    beside = [path.parent / f"{name}.py" for name in sorted(names)]
    for module in beside:
        if module not in seen and module.is_file():
            yield from _sources(module, seen)


def _imported(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as mistake:
        raise ExtensionError(f"extension {path}: {mistake.strerror}") from None
    except (SyntaxError, ValueError) as mistake:
        raise ExtensionError(f"extension {path}: is not Python: {mistake}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def checked(extensions: Iterable[Extension], timeout: float | None) -> list[str]:
    """What is wrong with extensions: found out by running them in a process of its own."""
    wanted = tuple(extensions)

    def run() -> str:
        try:
            activate(wanted)
        except ExtensionError as mistake:
            return str(mistake)
        return ""

    try:
        return [line for line in [guarded(run, ResourceLimits(timeout)) if wanted else ""] if line]
    except Exceeded as mistake:
        return [f"extensions: {mistake}"]


@contextmanager
def active_extensions(
    extensions: Iterable[Extension], timeout: float | None = None
) -> Iterator[None]:
    """Within, files may speak of what these register (forms of instructions). One that fails says
    so where extensions are checked."""
    wanted, before = tuple(extensions), _Active.active
    if wanted and not checked(wanted, timeout):
        activate(wanted)
    try:
        yield
    finally:
        activate(before)


def activate(extensions: tuple[Extension, ...]) -> None:
    """Let exactly these be registered in this process, beside what its own script registered.

    Raises ExtensionError where a file has changed since, or fails.
    """
    if extensions == _Active.active:
        return
    _restore()
    _Active.before = [dict(table) for table in Registry.every], list(api.GRAPH_PASSES)
    _Active.active = extensions
    try:
        for each in extensions:
            _run_extension_file(each)
            _Active.files |= {str(path) for path in _sources(Path(each.path), set())}
    except BaseException:
        _restore()
        raise


def _restore() -> None:
    if _Active.before is None:
        return
    tables, passes = _Active.before
    # Modules of the compiler that were imported since made tables of their own.
    later = [table.shipped for table in Registry.every[len(tables) :]]
    for table, content in zip(Registry.every, [*tables, *later], strict=False):
        table.clear()
        table.update(content)
    api.GRAPH_PASSES[:] = passes
    _Active.active, _Active.files, _Active.before = (), frozenset(), None


def _run_extension_file(wanted: Extension) -> None:
    if _content(Path(wanted.path), wanted.distribution) != wanted.content:
        raise ExtensionError(f"extension {wanted.path}: is not what it was when the study began")
    folder = str(Path(wanted.path).parent)
    sys.path.insert(0, folder)
    try:
        runpy.run_path(wanted.path, run_name="archgen_extension")
    except Exception as mistake:  # whatever a user's file does
        frames = traceback.extract_tb(mistake.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == wanted.path]
        place = f"{wanted.path}:{lines[-1]}" if lines else wanted.path
        raise ExtensionError(f"extension {place}: {type(mistake).__name__}: {mistake}") from mistake
    finally:
        sys.path.remove(folder)


@contextmanager
def blaming_extensions() -> Iterator[None]:
    """Within, an error that a function of an active extension raises, or lets pass, is an
    ExtensionError with its file and line; the compiler's refusals stay what they are."""
    try:
        yield
    except (CompilerError, ExtensionError, MemoryError):
        raise
    except Exception as mistake:
        if said := _blame(mistake):
            raise ExtensionError(said) from mistake
        raise


def _blame(mistake: Exception) -> str:
    """`extension sinh.py:9, in sinh, failed on node 'a' (Sinh): KeyError: 'x'`; else nothing."""
    for each in reversed(list(exception_chain(mistake))):
        frames = traceback.extract_tb(each.__traceback__)
        theirs = [frame for frame in frames if frame.filename in _Active.files]
        if theirs:
            at = theirs[-1]  # the innermost: those around it only called it
            failed = " ".join(["failed", *error_context(mistake)])
            place = f"extension {at.filename}:{at.lineno}, in {at.name}, {failed}"
            return f"{place}: {type(each).__name__}: {each}"
    return ""


def unowned() -> list[str]:
    """What this process has registered otherwise than by an extension: `operator 'Sinh'`."""
    activate(())
    named = [f"{table.what} {name!r}" for table in Registry.every for name in table.foreign()]
    own = [step for step in api.GRAPH_PASSES if type(step).__module__.split(".")[0] != "compiler"]
    return list(dict.fromkeys([*named, *(f"pass {step.name!r}" for step in own)]))

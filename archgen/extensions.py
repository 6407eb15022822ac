"""Operators, functions, strategies and passes of a user's own, in files that go where points go.

The one idea: an extension is a Python file whose lines register what it defines
(docs/extending.md). It travels with a point as path and content hash; whoever runs the point runs
the file first, and the hash is part of the point's key. What a script registers in its own process
reaches no other one and no key, so it is refused where either would matter.
"""

from __future__ import annotations

import ast
import hashlib
import runpy
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from archgen.process.guard import Bounds, Exceeded, guarded
from compiler.api import GRAPH_PASSES
from simmodel.registry import Registry


class ExtensionError(Exception):
    """A file that is no extension, or not the one that was meant."""


@dataclass(frozen=True)
class Extension:
    """A file that registers something, as it was when the study began."""

    path: str
    """Absolute."""
    content: str
    """SHA-256 (hex) of it and of the files beside it that it imports."""


class _Here:
    """What is registered in this process beside what its own script did."""

    active: tuple[Extension, ...] = ()
    before: tuple[list[dict[str, Any]], list[Any]] | None = None


def extension(path: str | PathLike[str]) -> Extension:
    """The extension in the file `path`. Raises ExtensionError."""
    absolute = Path(fspath(path)).absolute()
    digest = hashlib.sha256()
    for source in _sources(absolute, set()):
        digest.update(f"{source.name}\0".encode() + source.read_bytes())
    return Extension(str(absolute), digest.hexdigest())


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
        return [line for line in [guarded(run, Bounds(timeout)) if wanted else ""] if line]
    except Exceeded as mistake:
        return [f"extensions: {mistake}"]


def activate(extensions: tuple[Extension, ...]) -> None:
    """Let exactly these be registered in this process, beside what its own script registered.

    Raises ExtensionError where a file has changed since, or fails.
    """
    if extensions == _Here.active:
        return
    _restore()
    _Here.before = [dict(table) for table in Registry.every], list(GRAPH_PASSES)
    _Here.active = extensions
    try:
        for each in extensions:
            _run(each)
    except BaseException:
        _restore()
        raise


def _restore() -> None:
    if _Here.before is None:
        return
    tables, passes = _Here.before
    for table, content in zip(Registry.every, tables, strict=False):
        table.clear()
        table.update(content)
    GRAPH_PASSES[:] = passes
    _Here.active, _Here.before = (), None


def _run(wanted: Extension) -> None:
    if extension(wanted.path).content != wanted.content:
        raise ExtensionError(f"extension {wanted.path}: is not what it was when the study began")
    folder = str(Path(wanted.path).parent)
    sys.path.insert(0, folder)
    try:
        runpy.run_path(wanted.path, run_name="archgen_extension")
    except Exception as mistake:  # whatever a user's file does
        said = f"{type(mistake).__name__}: {mistake}"
        raise ExtensionError(f"extension {wanted.path}: {said}") from mistake
    finally:
        sys.path.remove(folder)


def foreign() -> list[str]:
    """What this process has registered otherwise than by an extension: `operator 'Sinh'`."""
    activate(())
    named = [f"{table.what} {name!r}" for table in Registry.every for name in table.foreign()]
    own = [step for step in GRAPH_PASSES if type(step).__module__.split(".")[0] != "compiler"]
    return list(dict.fromkeys([*named, *(f"pass {step.name!r}" for step in own)]))

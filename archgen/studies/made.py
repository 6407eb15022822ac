"""When and of what a stored result was made, so that a later one can say what is different.

The one idea: machine, network and sources each have a hash; what two results of one point differ in
is then known without running anything. The machine is kept whole, so that its fields can be named.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from archgen.cache import code_version, content_hash
from archgen.outcomes.point import Point
from archgen.process.git import last_commit, revision
from simmodel.arch import Arch

_WORDS = ("name", "description")
"""Of a machine: how it is called, which changes nothing."""


def made_of(point: Point) -> dict[str, Any]:
    """What a result of `point` is made of, now."""
    return {
        # Finer than a second: of two runs within one, the later one must be known.
        "when": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "version": version("archgen"),
        "code": code_version(),
        "git": revision(Path.cwd()),
        "file": last_commit(Path(point.file)) if point.file else "",
        "machine": machine_hash(point.arch),
        "network": point.network,
        "arch": point.arch.model_dump(mode="json", by_alias=True),
    }


def changes(old: Arch, new: Arch) -> dict[str, tuple[Any, Any]]:
    """Fields in which two machines differ, dotted, with both values."""
    before, after = (each.model_dump(mode="json", by_alias=True) for each in (old, new))
    return changed_leaves(before, after)


def changed_leaves(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """As `changes`, of machines as they are stored; None where one has no such field."""
    before, after = _leaves(old), _leaves(new)
    names = [n for n in dict.fromkeys([*before, *after]) if n not in _WORDS]
    return {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Dotted field -> value."""
    if not isinstance(value, Mapping):
        return {path: value}
    return {
        name: leaf
        for key, below in value.items()
        for name, leaf in _leaves(below, f"{path}.{key}" if path else str(key)).items()
    }


def machine_hash(arch: Arch) -> str:
    """A hash of all of a machine but how it is called."""
    return content_hash(arch.model_dump(mode="json", by_alias=True, exclude=set(_WORDS)))

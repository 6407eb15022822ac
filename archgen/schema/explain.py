"""A tree against the schema of architectures: an architecture, or all that is wrong with it.

When fields are broken, the rest is still held against the rules between fields: broken values are
replaced by defaults or stand-ins, and what the rules then say about a replaced value is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic_core import ErrorDetails

from archgen.schema.json_schema import arch_schema, arch_view
from archgen.schema.mistakes import Mistake, Path
from archgen.schema.record import Reader, distinct, existing
from archgen.schema.tree import Node, Plain, Table, broken_paths, plain, without
from archgen.schema.view import Schema
from simmodel.arch import Arch
from simmodel.arch_rules import problems
from simmodel.problem import Problem

_ROUNDS = 3
"""Repairs before the rules are given up: a list in place of a mapping hides what is below."""

_STAND_INS: dict[str, Plain] = {
    "name": "stand-in", "clock": 1e9, "size": "1 GiB", "bandwidth": 1, "kind": "systolic",
    "rows": 1, "cols": 1, "lanes": 1, "from": ["dram"], "to": ["local"],
    "memories": {}, "dram": {}, "local": {}, "matrix": {}, "vector": {}, "copy": {"stand-in": {}},
}  # fmt: skip


_READER = Reader(Arch, arch_view, "arch")


def validate(tree: Table, whole: bool) -> tuple[Arch | None, list[Mistake]]:
    """The architecture in `tree`, or None and what is wrong with it.

    Where the tree is not `whole` (a file that it extends is not usable), missing keys and rules
    between fields say nothing.
    """
    arch, errors = _READER.attempt(plain(tree))
    if arch is not None:
        return (arch, []) if not (found := _of_rules(tree, problems(arch))) else (None, found)
    said = _READER.said(tree, errors, whole)
    return None, said + (_of_rules(tree, _remaining(tree, errors)) if whole else [])


def broken_fields(tree: Table) -> list[Mistake]:
    """What is wrong with the fields of `tree`, each by itself; rules between them say nothing."""
    arch, errors = _READER.attempt(plain(tree))
    return [] if arch is not None else _READER.said(tree, errors)


def _of_rules(tree: Table, found: Iterable[Problem]) -> list[Mistake]:
    return [_READER.at(tree, p.path, p.message) for p in found]


def _remaining(tree: Table, errors: list[ErrorDetails]) -> list[Problem]:
    """What the rules say of the parts that are not broken."""
    broken = list(broken_paths(tree))
    value: Node = tree
    for path in broken:
        value = without(value, path)
    for _ in range(_ROUNDS):
        wrong = [_broken(value, error) for error in distinct(value, errors)]
        broken += wrong
        for path in wrong:
            value = without(value, path)
        filled = plain(value)
        assert isinstance(filled, dict)
        for part, *_ in broken:  # also one that need not be there
            if part in _STAND_INS and part in arch_schema()["properties"]:
                filled.setdefault(str(part), _stand_in(str(part)))
        _fill(filled, arch_schema())
        arch, errors = _READER.attempt(filled)
        if arch is not None:
            return [p for p in problems(arch) if not _touches(p, broken)]
    return []


def _broken(value: Node, error: ErrorDetails) -> Path:
    """The value to replace because of `error`: a list goes as a whole."""
    path = existing(value, error["loc"])
    if error["type"] == "missing":
        return (*path, error["loc"][-1])
    return path[:-1] if path and isinstance(path[-1], int) else path


def _fill(value: Plain, schema: Schema) -> None:
    """Puts a stand-in wherever a required key is missing."""
    if not isinstance(value, dict):
        return
    schema = arch_view().resolved(schema)
    for key in schema.get("required", ()):
        value.setdefault(key, _stand_in(key))
    for key, below in value.items():
        named = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        _fill(below, named if isinstance(named, dict) else {})


def _stand_in(key: str) -> Plain:
    found: Plain = json.loads(json.dumps(_STAND_INS[key]))
    return found


def _touches(problem: Problem, broken: list[Path]) -> bool:
    """Whether `problem` rests on a value that was replaced."""
    return any(
        wrong[: len(path)] == path or path[: len(wrong)] == wrong
        for path in (problem.path, *problem.about)
        for wrong in broken
    )

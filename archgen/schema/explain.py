"""A tree against the schema: an architecture, or every mistake in words at its position.

pydantic finds the mistakes; this module says them. When fields are broken, the rest is still held
against the rules between fields: broken values are replaced by defaults or stand-ins, and what the
rules then say about a replaced value is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

import archgen.schema.json_schema as json_schema
from archgen.schema.mistakes import Mistake, Path, dotted, guess, listed
from archgen.schema.tree import (
    Leaf,
    Node,
    Plain,
    Row,
    Table,
    broken_paths,
    child,
    find,
    plain,
    position,
    without,
)
from simmodel.arch import Arch
from simmodel.arch_rules import Problem, problems

_ROUNDS = 3
"""Repairs before the rules are given up: a list in place of a mapping hides what is below."""

_STAND_INS: dict[str, Plain] = {
    "name": "stand-in", "clock": 1e9, "size": "1 GiB", "bandwidth": 1, "kind": "systolic",
    "rows": 1, "cols": 1, "lanes": 1, "from": ["dram"], "to": ["local"],
    "memories": {}, "dram": {}, "local": {}, "matrix": {}, "vector": {}, "copy": {"stand-in": {}},
}  # fmt: skip


def validate(tree: Table, whole: bool) -> tuple[Arch | None, list[Mistake]]:
    """The architecture in `tree`, or None and what is wrong with it.

    Where the tree is not `whole` (a file that it extends is not usable), missing keys and rules
    between fields say nothing.
    """
    arch, errors = _attempt(plain(tree))
    if arch is not None:
        return (arch, []) if not (found := _of_rules(tree, problems(arch))) else (None, found)
    unread = set(broken_paths(tree))
    fresh = [e for e in errors if e["type"] == "missing" or _existing(tree, e["loc"]) not in unread]
    said = [mistake for error in _distinct(tree, fresh) if (mistake := _say(tree, error, whole))]
    return None, said + (_of_rules(tree, _remaining(tree, errors)) if whole else [])


def _attempt(value: Plain) -> tuple[Arch | None, list[ErrorDetails]]:
    try:
        text = json.dumps(value)
        return Arch.model_validate_json(text, strict=True, by_alias=True, by_name=False), []
    except ValidationError as failed:
        return None, failed.errors(include_url=False)


def _of_rules(tree: Table, found: Iterable[Problem]) -> list[Mistake]:
    return [Mistake(position(tree, p.path), dotted(p.path), p.message) for p in found]


def _existing(tree: Node, loc: Sequence[str | int]) -> Path:
    """The path of the tree that pydantic's location means (it also names branches of unions)."""
    path: Path = ()
    node = tree
    for step in loc:
        below = child(node, step)
        if below is not None:
            path, node = (*path, step), below
    return path


def _distinct(tree: Node, errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """One error for each value: a union complains once for each branch that does not fit."""
    found: dict[tuple[Path, str], ErrorDetails] = {}
    paths = [_existing(tree, error["loc"]) for error in errors]
    for path, error in zip(paths, errors, strict=True):
        kind = error["type"]
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
        branch = error["loc"] != path and kind not in ("missing", "literal_error")
        if deeper and (branch or kind == "too_short"):
            continue
        key = str(error["loc"][-1]) if kind == "missing" else "[key]" if _of_key(error) else ""
        found.setdefault((path, key), error)
    return list(found.values())


def _of_key(error: ErrorDetails) -> bool:
    return bool(error["loc"]) and error["loc"][-1] == "[key]"


def _say(tree: Table, error: ErrorDetails, whole: bool) -> Mistake | None:
    path, kind = _existing(tree, error["loc"]), error["type"]
    if kind == "missing":
        return _missing(tree, path, str(error["loc"][-1])) if whole else None
    if kind == "extra_forbidden" or _of_key(error):
        return _unknown(tree, path)
    return _wrong(tree, path, error)


def _missing(tree: Table, path: Path, key: str) -> Mistake:
    wanted = json_schema.expected(json_schema.at((*path, key)))
    return Mistake(position(tree, path), dotted(path), f"missing key {key!r}, expected {wanted}")


def _unknown(tree: Table, path: Path) -> Mistake:
    holder, key = path[:-1], str(path[-1])
    known = json_schema.keys(json_schema.at(holder))
    hint = guess(key, known) or f"; expected one of {listed(known)}"
    return Mistake(position(tree, path, key=True), dotted(holder), f"unknown key {key!r}{hint}")


def _wrong(tree: Table, path: Path, error: ErrorDetails) -> Mistake:
    at, node, schema = position(tree, path), find(tree, path), json_schema.at(path)
    raised: Any = error.get("ctx", {}).get("error")
    if isinstance(raised, ValueError) and isinstance(node, Leaf) and node.value is not None:
        return Mistake(at, dotted(path), str(raised))
    near = guess(node.text, json_schema.words(schema)) if isinstance(node, Leaf) else ""
    message = f"expected {json_schema.expected(schema)}, got {_got(node)}{near}"
    return Mistake(at, dotted(path), message)


def _got(node: Node | None) -> str:
    if isinstance(node, Table):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Row):
        return "a list" if node.items else "an empty list"
    if node is None or node.value is None:
        return "nothing"
    return repr(node.text) if isinstance(node.value, str) else node.text


def _remaining(tree: Table, errors: list[ErrorDetails]) -> list[Problem]:
    """What the rules say of the parts that are not broken."""
    broken = list(broken_paths(tree))
    value: Node = tree
    for path in broken:
        value = without(value, path)
    for _ in range(_ROUNDS):
        wrong = [_broken(value, error) for error in _distinct(value, errors)]
        broken += wrong
        for path in wrong:
            value = without(value, path)
        filled = plain(value)
        _fill(filled, json_schema.arch_schema())
        arch, errors = _attempt(filled)
        if arch is not None:
            return [p for p in problems(arch) if not _touches(p, broken)]
    return []


def _broken(value: Node, error: ErrorDetails) -> Path:
    """The value to replace because of `error`: a list goes as a whole."""
    path = _existing(value, error["loc"])
    if error["type"] == "missing":
        return (*path, error["loc"][-1])
    return path[:-1] if path and isinstance(path[-1], int) else path


def _fill(value: Plain, schema: json_schema.Schema) -> None:
    """Puts a stand-in wherever a required key is missing."""
    if not isinstance(value, dict):
        return
    schema = json_schema.resolved(schema)
    for key in schema.get("required", ()):
        value.setdefault(key, json.loads(json.dumps(_STAND_INS[key])))
    for key, below in value.items():
        named = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        _fill(below, named if isinstance(named, dict) else {})


def _touches(problem: Problem, broken: list[Path]) -> bool:
    """Whether `problem` rests on a value that was replaced."""
    return any(
        wrong[: len(path)] == path or path[: len(wrong)] == wrong
        for path in (problem.path, *problem.about)
        for wrong in broken
    )

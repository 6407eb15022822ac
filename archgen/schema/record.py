"""A tree against a record of pydantic: the record, or every mistake in words at its position.

pydantic finds the mistakes; this module says them, with what the record's schema expects there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from archgen.schema.mistakes import Mistake, Path, dotted, guess, listed
from archgen.schema.tree import Leaf, Node, Plain, Row, Table, broken_paths, child, find, position
from archgen.schema.view import View

Record = TypeVar("Record", bound=BaseModel)
_MUCH = 0.8
"""How much of its spelling a key shares with one of another place that it may stand for."""
_PLACES = 4
"""Most places that are named."""


@dataclass(frozen=True)
class Reader(Generic[Record]):
    """Reads one kind of file."""

    record: type[Record]
    schema: Callable[[], View]
    """What messages say of the record; made for the first of them."""
    root: str
    """What paths in messages start with."""
    meant: Mapping[str, str] = field(default_factory=dict)
    """Keys that it does not have, by which people mean something that it has: what to write."""

    @cached_property
    def view(self) -> View:
        """The schema, to be looked into."""
        return self.schema()

    def attempt(self, value: Plain) -> tuple[Record | None, list[ErrorDetails]]:
        """The record that `value` holds, or pydantic's complaints."""
        try:
            text = json.dumps(value)
            made = self.record.model_validate_json(text, strict=True, by_alias=True, by_name=False)
        except ValidationError as failed:
            return None, failed.errors(include_url=False)
        return made, []

    def said(self, tree: Table, errors: list[ErrorDetails], whole: bool = True) -> list[Mistake]:
        """`errors` in words, less those about values that could not even be read; where the tree is
        not `whole`, missing keys say nothing."""
        unread = set(broken_paths(tree))
        fresh = [
            e for e in errors if e["type"] == "missing" or existing(tree, e["loc"]) not in unread
        ]
        found = [self._say(tree, error, whole) for error in distinct(tree, fresh)]
        return [mistake for mistake in found if mistake is not None]

    def at(self, tree: Table, path: Path, message: str) -> Mistake:
        """A mistake at `path` of `tree`."""
        return Mistake(position(tree, path), dotted(path, self.root), message)

    def _say(self, tree: Table, error: ErrorDetails, whole: bool) -> Mistake | None:
        path, kind = existing(tree, error["loc"]), error["type"]
        if kind == "missing":
            return self._missing(tree, path, str(error["loc"][-1])) if whole else None
        if kind == "extra_forbidden" or _of_key(error):
            return self._unknown(tree, path)
        return self._wrong(tree, path, error)

    def _missing(self, tree: Table, path: Path, key: str) -> Mistake:
        wanted = self.view.expected(self.view.at((*path, key)))
        return self.at(tree, path, f"missing key {key!r}, expected {wanted}")

    def _unknown(self, tree: Table, path: Path) -> Mistake:
        holder, key = path[:-1], str(path[-1])
        where, place = dotted(holder, self.root), position(tree, path, key=True)
        if key in self.meant and not holder:
            return Mistake(place, where, f"unknown key {key!r}; {self.meant[key]}")
        known = self.view.keys(self.view.at(holder))
        near = guess(key, known)
        alike = any(name.startswith(key[:4]) for name in known)  # misspelled rather than misplaced
        elsewhere = "" if near and alike else self._elsewhere(key)
        if near and elsewhere:
            near = f"{near.removesuffix('?')}, or is it for {elsewhere}?"
        elif elsewhere:
            near = f"; it is a key of {elsewhere}"
        hint = near or self._misspelt(key) or f"; expected one of {listed(known)}"
        return Mistake(place, where, f"unknown key {key!r}{hint}")

    def _misspelt(self, key: str) -> str:
        """The key of another place that is spelled much like this one."""
        names = dict.fromkeys(name for name, _ in self.view.places())
        near = next(iter(get_close_matches(key, names, 1, _MUCH)), "")
        where = self._elsewhere(near) if near else ""
        return f"; did you mean {near!r} of {where}?" if where else ""

    def _elsewhere(self, key: str) -> str:
        """Where a key would be right, if there are few such places."""
        places = [f"{self.root}{place}" for place in self.view.holders(key)]
        return " or ".join(places) if len(places) <= _PLACES else ""

    def _wrong(self, tree: Table, path: Path, error: ErrorDetails) -> Mistake:
        node, schema = find(tree, path), self.view.at(path)
        raised: Any = error.get("ctx", {}).get("error")
        if isinstance(raised, ValueError) and isinstance(node, Leaf) and node.value is not None:
            return self.at(tree, path, str(raised))
        near = guess(node.text, self.view.words(schema)) if isinstance(node, Leaf) else ""
        return self.at(tree, path, f"expected {self.view.expected(schema)}, got {_got(node)}{near}")


def existing(tree: Node, loc: Sequence[str | int]) -> Path:
    """The path of the tree that pydantic's location means (it also names branches of unions)."""
    path: Path = ()
    node = tree
    for step in loc:
        below = child(node, step)
        if below is not None:
            path, node = (*path, step), below
    return path


def distinct(tree: Node, errors: list[ErrorDetails]) -> list[ErrorDetails]:
    """One error for each value: a union complains once for each branch that does not fit."""
    found: dict[tuple[Path, str], ErrorDetails] = {}
    paths = [existing(tree, error["loc"]) for error in errors]
    lacking = {p for p, error in zip(paths, errors, strict=True) if error["type"] == "missing"}
    for path, error in zip(paths, errors, strict=True):
        kind = error["type"]
        deeper = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
        branch = error["loc"] != path and kind not in ("missing", "literal_error")
        if deeper and (branch or kind == "too_short"):
            continue
        if branch and path in lacking:  # another branch is meant, and lacks a key
            continue
        key = str(error["loc"][-1]) if kind == "missing" else "[key]" if _of_key(error) else ""
        found.setdefault((path, key), error)
    return list(found.values())


def _of_key(error: ErrorDetails) -> bool:
    return bool(error["loc"]) and error["loc"][-1] == "[key]"


def _got(node: Node | None) -> str:
    if isinstance(node, Table):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Row):
        return "a list" if node.items else "an empty list"
    if node is None or node.value is None:
        return "nothing"
    return repr(node.text) if isinstance(node.value, str) else node.text

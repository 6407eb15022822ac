"""A tree against a record of pydantic: the record, or every mistake in words at its position.

pydantic finds the mistakes; this module says them, with what the record's schema expects there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

import archgen.schema.tree as trees
from archgen.schema.json_schema import Schema, View, arch_view, view_of
from archgen.schema.tree import ListNode, Mistake, Node, Path, Plain, ScalarNode, Table
from simmodel.arch.base import Problem
from simmodel.arch.memories import DRAM_KINDS, Dram, SharedMemory
from simmodel.arch.record import Arch
from simmodel.arch.units import parse_hertz
from simmodel.arch_rules import problems

Record = TypeVar("Record", bound=BaseModel)
_MUCH = 0.8
"""How much of its spelling a key shares with one of another place that it may stand for."""
_PLACES = 4
"""Most places that are named."""


@dataclass(frozen=True)
class RecordReader(Generic[Record]):
    """Reads one kind of file."""

    record: type[Record]
    root: str
    """What paths in messages start with."""
    meant: Mapping[str, str] = field(default_factory=dict)
    """Keys that it does not have, by which people mean something that it has: what to write."""
    why: Mapping[str, str] = field(default_factory=dict)
    """Keys that are easily thought needless: what they are for."""

    @property
    def view(self) -> View:
        """What messages say of the record."""
        return view_of(self.record)

    prepare: Callable[[Plain], Plain] = lambda value: value
    """What files may leave out, put in."""

    def attempt(self, value: Plain) -> tuple[Record | None, list[ErrorDetails]]:
        """The record that `value` holds, or pydantic's complaints."""
        try:
            text = json.dumps(self.prepare(value))
            made = self.record.model_validate_json(text, strict=True, by_alias=True, by_name=False)
        except ValidationError as failed:
            return None, failed.errors(include_url=False)
        return made, []

    def to_mistakes(
        self, tree: Table, errors: list[ErrorDetails], whole: bool = True
    ) -> list[Mistake]:
        """`errors` in words, less those about values that could not even be read; where the tree is
        not `whole`, missing keys say nothing."""
        unread = set(trees.broken_paths(tree))
        fresh = [
            e for e in errors if e["type"] == "missing" or existing(tree, e["loc"]) not in unread
        ]
        found = [self._say(tree, error, whole) for error in distinct(tree, fresh)]
        return [mistake for mistake in found if mistake is not None]

    def at(self, tree: Table, path: Path, message: str) -> Mistake:
        return Mistake(trees.position(tree, path), trees.dotted(path, self.root), message)

    def _say(self, tree: Table, error: ErrorDetails, whole: bool) -> Mistake | None:
        path, kind = existing(tree, error["loc"]), error["type"]
        if kind == "missing":
            return self._missing_key(tree, path, str(error["loc"][-1])) if whole else None
        if kind == "extra_forbidden" or _of_key(error):
            return self._unknown(tree, path)
        return self._wrong_value(tree, path, error)

    def _missing_key(self, tree: Table, path: Path, key: str) -> Mistake:
        wanted = self.view.expected(self.view.at((*path, key)))
        return self.at(tree, path, f"missing key {key!r}, expected {wanted}{self.why.get(key, '')}")

    def _unknown(self, tree: Table, path: Path) -> Mistake:
        holder, key = path[:-1], str(path[-1])
        where, place = trees.dotted(holder, self.root), trees.position(tree, path, key=True)
        if said := self.meant.get(".".join(map(str, path))):
            return Mistake(place, where, f"unknown key {key!r}; {said}")
        table = trees.find(tree, holder)
        given = [*table.entries] if isinstance(table, Table) else []
        known = self.view.keys(self.view.at(holder), given)
        near = trees.guess(key, known)
        alike = any(name.startswith(key[:4]) for name in known)  # misspelled rather than misplaced
        elsewhere = "" if near and alike else self._valid_key_places(key)
        if near and elsewhere:
            near = f"{near.removesuffix('?')}, or is it for {elsewhere}?"
        elif elsewhere:
            near = f"; it is a key of {elsewhere}"
        hint = near or self._misspelt(key) or f"; expected one of {trees.listed(known)}"
        return Mistake(place, where, f"unknown key {key!r}{hint}")

    def _misspelt(self, key: str) -> str:
        """The key of another place that is spelled much like this one."""
        names = dict.fromkeys(name for name, _ in self.view.places())
        near = next(iter(get_close_matches(key, names, 1, _MUCH)), "")
        where = self._valid_key_places(near) if near else ""
        return f"; did you mean {near!r} of {where}?" if where else ""

    def _valid_key_places(self, key: str) -> str:
        """Where a key would be right, if there are few such places."""
        places = [f"{self.root}{place}" for place in self.view.holders(key)]
        return " or ".join(places) if len(places) <= _PLACES else ""

    def _wrong_value(self, tree: Table, path: Path, error: ErrorDetails) -> Mistake:
        node, schema = trees.find(tree, path), self.view.at(path)
        raised: Any = error.get("ctx", {}).get("error")
        if (
            isinstance(raised, ValueError)
            and isinstance(node, ScalarNode)
            and node.value is not None
        ):
            return self.at(tree, path, str(raised))
        words, expected = [*map(str, self.view.words(schema))], self.view.expected(schema)
        near = trees.guess(node.text, words) if isinstance(node, ScalarNode) else ""
        if isinstance(node, ScalarNode) and node.text in words:  # right, but for its brackets
            near = f"; write [{node.text}]" if expected.startswith("a list") else ""
        return self.at(tree, path, f"expected {expected}, got {_got(node)}{near}")


def existing(tree: Node, loc: Sequence[str | int]) -> Path:
    """The path of the tree that pydantic's location means (it also names branches of unions)."""
    path: Path = ()
    node = tree
    for step in loc:
        below = trees.child(node, step)
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
    if isinstance(node, ListNode):
        return "a list" if node.items else "an empty list"
    if node is None or node.value is None:
        return "nothing"
    return repr(node.text) if isinstance(node.value, str) else node.text


# A tree against the schema of architectures: an architecture, or all that is wrong with it.

_ROUNDS = 3
"""Repairs before the rules are given up: a list in place of a mapping hides what is below."""

_STAND_INS: dict[str, Plain] = {
    "name": "stand-in", "clock": 1e9, "size": "1 GiB", "bandwidth": 1, "kind": "systolic",
    "rows": 1, "cols": 1, "lanes": 1, "wafer": 1, "from": ["dram"], "to": ["local"],
    "memories": {}, "dram": {}, "local": {}, "matrix": {}, "vector": {}, "copy": {"stand-in": {}},
}  # fmt: skip


_WHY = {
    "dram": ": where inputs, outputs and maps lie; of a machine without DRAM, the SRAM beside it, "
    "or `shared` memory of the chip, which holds the weights too"
}
_MEANT = {
    "host.per_call": "what a call costs is its latency",
    "memories.l1": "the memory of a core is local",
    "memories.l2": "the memory that cores share is shared",
}


def _with_dram(given: Plain) -> Plain:
    """Without DRAM and flash, the chip's shared memory takes the place of DRAM."""
    memories = given.get("memories") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(memories, dict):
        return given
    stated = memories.get("shared")
    if not isinstance(stated, dict) or memories.keys() & {"dram", "flash"}:
        return given
    try:
        shared = SharedMemory.model_validate(stated)
    except ValidationError:  # said of `shared` itself
        return given
    if shared.level == "cluster":
        return given
    dram: Plain = {
        "size": shared.size, "bandwidth": f"{shared.bytes_per_cycle()} B/cycle",
        "latency": stated.get("latency", 0), "burst": shared.bank_width, "channels": shared.banks,
        "on_chip": True,
    }  # fmt: skip
    kept = {role: memory for role, memory in memories.items() if role != "shared"}
    made = given | {"memories": {"dram": dram, **kept}}
    for name in ("copy", "links"):
        engines = given.get(name)
        if isinstance(engines, dict):
            made[name] = {key: _reaching_dram(engine) for key, engine in engines.items()}
    energy = given.get("energy", {})
    return made | ({"energy": {"dram": "sram", **energy}} if isinstance(energy, dict) else {})


def _reaching_dram(engine: Plain) -> Plain:
    """A copy engine or link whose `shared` memory is that in the place of DRAM."""
    if not isinstance(engine, dict):
        return engine
    return engine | {end: _as_dram(engine[end]) for end in ("from", "to") if end in engine}


def _as_dram(roles: Plain) -> Plain:
    if isinstance(roles, list):
        return [_as_dram(role) for role in roles]
    return "dram" if roles == "shared" else roles


def _with_kind(given: Plain) -> Plain:
    """What the kind of DRAM gives, where the file states none of its own."""
    memories = given.get("memories") if isinstance(given, dict) else None
    stated = memories.get("dram") if isinstance(memories, dict) else None
    if not (isinstance(given, dict) and isinstance(memories, dict) and isinstance(stated, dict)):
        return given
    try:
        dram, clock = Dram.model_validate(stated), parse_hertz(given.get("clock"))
    except ValueError:  # said of these fields themselves
        return given
    if dram.kind is None:
        return given
    fields = DRAM_KINDS[dram.kind].fields(dram.bandwidth.at(clock) * clock)
    made = given | {"memories": memories | {"dram": {**fields, **stated}}}
    energy = given.get("energy", {})
    return made | ({"energy": {"dram": dram.kind, **energy}} if isinstance(energy, dict) else {})


_READER = RecordReader(Arch, "arch", _MEANT, _WHY, lambda given: _with_kind(_with_dram(given)))


def validate(tree: Table, whole: bool) -> tuple[Arch | None, list[Mistake]]:
    """The architecture in `tree`, or None and what is wrong with it.

    Where the tree is not `whole` (a file that it extends is not usable), missing keys and rules
    between fields say nothing.
    """
    arch, errors = _READER.attempt(trees.plain(tree))
    if arch is not None:
        return (arch, []) if not (found := _of_rules(tree, problems(arch))) else (None, found)
    said = _READER.to_mistakes(tree, errors, whole)
    return None, said + (_of_rules(tree, _remaining(tree, errors)) if whole else [])


def broken_fields(tree: Table) -> list[Mistake]:
    """What is wrong with the fields of `tree`, each by itself; rules between them say nothing."""
    arch, errors = _READER.attempt(trees.plain(tree))
    return [] if arch is not None else _READER.to_mistakes(tree, errors)


def _of_rules(tree: Table, found: Iterable[Problem]) -> list[Mistake]:
    return [_READER.at(tree, p.path, p.message) for p in found]


def _remaining(tree: Table, errors: list[ErrorDetails]) -> list[Problem]:
    """What the rules say of the parts that are not broken."""
    broken = list(trees.broken_paths(tree))
    value: Node = tree
    for path in broken:
        value = trees.without(value, path)
    for _ in range(_ROUNDS):
        wrong = [_broken(value, error) for error in distinct(value, errors)]
        broken += wrong
        for path in wrong:
            value = trees.without(value, path)
        filled = _READER.prepare(trees.plain(value))
        assert isinstance(filled, dict)
        for part, *_ in broken:  # also one that need not be there
            if part in _STAND_INS and part in arch_view().root["properties"]:
                filled.setdefault(str(part), _stand_in(str(part)))
        _fill(filled, arch_view().root)
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
    schema = arch_view().fitting_branch(arch_view().resolved(schema), value)
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

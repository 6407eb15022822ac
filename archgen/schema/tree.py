"""YAML values that remember where they stand: the tree between text and schema.

A `Table` is a mapping, a `ListNode` a list, a `ScalarNode` a single value. Merging two trees keeps
each value's own position, so a mistake inside an extended file is reported there.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from simmodel.errors import UserError

# A mistake in a file, with its place, and the error that carries all of them.

Given = TypeVar("Given")
Made = TypeVar("Made")
_START = 4
"""Letters by which words begin alike."""
_OTHER_TYPES = re.compile(r"u?int[24]|fp64")
"""Element types that there are elsewhere: no misspelling of one that archgen has."""
_PLACE = re.compile(r"(.+?):(\d+):(\d+): ")
EXTENDS = "extends"
"""The key that names a file which this one is laid over."""
Path = tuple[str | int, ...]
"""Keys and list indices from the top of a file to one of its values."""


@dataclass(frozen=True, order=True)
class FilePosition:
    """A place in a file; line and column count from 1, line 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, order=True)
class Mistake:
    """One thing that is wrong in a file: where, at which path, and what was expected."""

    at: FilePosition
    path: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.at), self.path, self.message) if part)


class ArchError(UserError, ValueError):
    """Architecture files that cannot be used; `mistakes` is sorted by file, line and column."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: list[Mistake] = sorted(set(mistakes))
        super().__init__("\n".join(map(str, self.mistakes)))

    def __reduce__(self) -> tuple[type[ArchError], tuple[list[Mistake]]]:
        return ArchError, (self.mistakes,)


def attempted(
    make: Callable[[Given], Made], given: Iterable[Given], error: type[Exception]
) -> tuple[list[Made], list[str]]:
    """What `make` makes of each of `given`, and the mistakes of those where it raises `error`."""
    made: list[Made] = []
    mistakes: list[str] = []
    for one in given:
        try:
            made.append(make(one))
        except error as mistake:
            mistakes += getattr(mistake, "mistakes", [str(mistake)])
    return made, mistakes


def in_order(said: Iterable[str]) -> list[str]:
    """Mistakes in words, each once: of each file by their places, those without a place last."""

    def place(text: str) -> tuple[str, int, int]:
        form = _PLACE.match(text)
        return (form[1], int(form[2]), int(form[3])) if form else ("\U0010ffff", 0, 0)

    return sorted(dict.fromkeys(said), key=place)


def dotted(path: Path, root: str = "arch") -> str:
    """`arch.copy.load.to[1]` for `('copy', 'load', 'to', 1)`."""
    return root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def guess(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'banks'?`, or nothing when no known word is near: spelled much like it, or
    the only one that begins like it (`architectures`, `archs`). An element type is no other
    one's misspelling."""
    if _OTHER_TYPES.fullmatch(word.lower()):
        return ""
    by_folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    if not near and len(word) >= _START:
        alike = [name for name in by_folded if name.startswith(word.lower()[:_START])]
        near = alike if len(alike) == 1 else []
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


def listed(words: Iterable[object], conjunction: str = "or") -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [repr(word) for word in words]
    if len(quoted) < 2:
        return "".join(quoted)
    return f"{', '.join(quoted[:-1])} {conjunction} {quoted[-1]}"


@dataclass(frozen=True)
class ScalarNode:
    """A scalar; `text` is how the file spells it.

    A `broken` one stands for what could not be read, and has been complained about.
    """

    at: FilePosition
    value: str | int | float | bool | None
    text: str
    broken: bool = False


@dataclass(frozen=True)
class ListNode:
    """A list."""

    at: FilePosition
    items: tuple[Node, ...]


@dataclass(frozen=True)
class MappingEntry:
    """One key of a mapping and what stands behind it."""

    key_at: FilePosition
    node: Node


@dataclass(frozen=True)
class Table:
    """A mapping."""

    at: FilePosition
    entries: Mapping[str, MappingEntry]


Node = ScalarNode | ListNode | Table


def files_of(node: Node) -> set[str]:
    """Files that something in `node` stands in."""
    below = [entry.node for entry in node.entries.values()] if isinstance(node, Table) else []
    below += node.items if isinstance(node, ListNode) else ()
    return {node.at.file}.union(*map(files_of, below))


Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


def plain(node: Node) -> Plain:
    """The bare value, without positions; whole floats as integers (`1e3` counts 1000)."""
    if isinstance(node, Table):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    if isinstance(node.value, float) and node.value.is_integer():
        return int(node.value)
    return node.value


def child(node: Node, step: str | int) -> Node | None:
    """What stands at key or index `step` of `node`; None where there is nothing."""
    if isinstance(node, Table) and isinstance(step, str) and step in node.entries:
        return node.entries[step].node
    if isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def find(root: Node, path: Path) -> Node | None:
    """The node at `path`, or None."""
    node: Node | None = root
    for step in path:
        node = None if node is None else child(node, step)
    return node


def position(root: Node, path: Path, key: bool = False) -> FilePosition:
    """Where `path`, or the deepest part of it that exists, stands.

    A mapping stands at its key; so does anything else where `key` is set.
    """
    at, node = root.at, root
    for index, step in enumerate(path):
        below = child(node, step)
        if below is None:
            break
        at = below.at
        if isinstance(node, Table) and (
            isinstance(below, Table) or (key and index == len(path) - 1)
        ):
            at = node.entries[str(step)].key_at
        node = below
    return at


def merge(parent: Table, over: Table) -> Table:
    """`over` laid on `parent`: mappings deeply, lists and scalars replace, null removes; what
    `parent` assumes of a field that `over` states is assumed no more."""
    entries = dict(parent.entries)
    for key, entry in over.entries.items():
        below = entries.get(key)
        if below is None:
            entries[key] = entry
        elif removes(entry.node):
            del entries[key]
        elif isinstance(entry.node, Table) and isinstance(below.node, Table):
            entries[key] = MappingEntry(entry.key_at, merge(below.node, entry.node))
        else:
            entries[key] = entry
    if (assumed := entries.get("assumed")) and isinstance(assumed.node, Table):
        own = over.entries.get("assumed")
        stays = own.node.entries if own and isinstance(own.node, Table) else {}
        left = {
            field: entry
            for field, entry in assumed.node.entries.items()
            if field in stays or not _states(over, field.split("."))
        }
        entries["assumed"] = MappingEntry(assumed.key_at, Table(assumed.node.at, left))
    return Table(over.at, entries)


def _states(node: Node, path: Sequence[str]) -> bool:
    """Whether something stands at `path`, or in the place of what would have it."""
    for name in path:
        if not isinstance(node, Table):
            return True
        if name not in node.entries:
            return False
        node = node.entries[name].node
    return True


def removes(node: Node) -> bool:
    """Whether `node` is a null that somebody wrote."""
    return isinstance(node, ScalarNode) and node.value is None and not node.broken


def broken_paths(node: Node, path: Path = ()) -> Iterator[Path]:
    """Paths of everything that could not be read."""
    if isinstance(node, ScalarNode) and node.broken:
        yield path
    elif isinstance(node, Table):
        for key, entry in node.entries.items():
            yield from broken_paths(entry.node, (*path, key))
    elif isinstance(node, ListNode):
        for index, item in enumerate(node.items):
            yield from broken_paths(item, (*path, index))


def without(node: Node, path: Path, into_lists: bool = False) -> Node:
    """`node` less what stands at `path`. List items stay, as their indices count: the list goes
    that one of them is in; without `into_lists` also where only a part of one is meant."""
    below = child(node, path[0]) if path else None
    if below is None:
        return node
    inside = (
        len(path) > 2 if into_lists and isinstance(below, ListNode) else isinstance(below, Table)
    )
    left = without(below, path[1:], into_lists) if inside and len(path) > 1 else None
    if isinstance(node, ListNode):
        kept = left if left is not None else below
        return ListNode(node.at, tuple(kept if item is below else item for item in node.items))
    assert isinstance(node, Table)
    entries = dict(node.entries)
    entry = entries.pop(str(path[0]))
    if left is not None:
        entries[str(path[0])] = MappingEntry(entry.key_at, left)
    return Table(node.at, entries)

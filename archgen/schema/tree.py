"""YAML values that remember where they stand: the tree between text and schema.

A `Table` is a mapping, a `Row` a list, a `Leaf` a single value. Merging two trees keeps each
value's own position, so a mistake inside an extended file is reported there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from archgen.schema.mistakes import Path, Position


@dataclass(frozen=True)
class Leaf:
    """A scalar; `text` is how the file spells it.

    A `broken` one stands for what could not be read, and has been complained about.
    """

    at: Position
    value: str | int | float | bool | None
    text: str
    broken: bool = False


@dataclass(frozen=True)
class Row:
    """A list."""

    at: Position
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Entry:
    """One key of a mapping and what stands behind it."""

    key_at: Position
    node: Node


@dataclass(frozen=True)
class Table:
    """A mapping."""

    at: Position
    entries: Mapping[str, Entry]


Node = Leaf | Row | Table
Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


def plain(node: Node) -> Plain:
    """The bare value, without positions; whole floats as integers (`1e3` counts 1000)."""
    if isinstance(node, Table):
        return {key: plain(entry.node) for key, entry in node.entries.items()}
    if isinstance(node, Row):
        return [plain(item) for item in node.items]
    if isinstance(node.value, float) and node.value.is_integer():
        return int(node.value)
    return node.value


def child(node: Node, step: str | int) -> Node | None:
    """What stands at key or index `step` of `node`; None where there is nothing."""
    if isinstance(node, Table) and isinstance(step, str) and step in node.entries:
        return node.entries[step].node
    if isinstance(node, Row) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None


def find(root: Node, path: Path) -> Node | None:
    """The node at `path`, or None."""
    node: Node | None = root
    for step in path:
        node = None if node is None else child(node, step)
    return node


def position(root: Node, path: Path, key: bool = False) -> Position:
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
    """`over` laid on `parent`: mappings deeply, lists and scalars replace, null removes."""
    entries = dict(parent.entries)
    for key, entry in over.entries.items():
        below = entries.get(key)
        if below is None:
            entries[key] = entry
        elif removes(entry.node):
            del entries[key]
        elif isinstance(entry.node, Table) and isinstance(below.node, Table):
            entries[key] = Entry(entry.key_at, merge(below.node, entry.node))
        else:
            entries[key] = entry
    return Table(over.at, entries)


def removes(node: Node) -> bool:
    """Whether `node` is a null that somebody wrote."""
    return isinstance(node, Leaf) and node.value is None and not node.broken


def broken_paths(node: Node, path: Path = ()) -> Iterator[Path]:
    """Paths of everything that could not be read."""
    if isinstance(node, Leaf) and node.broken:
        yield path
    elif isinstance(node, Table):
        for key, entry in node.entries.items():
            yield from broken_paths(entry.node, (*path, key))
    elif isinstance(node, Row):
        for index, item in enumerate(node.items):
            yield from broken_paths(item, (*path, index))


def without(node: Node, path: Path, into_lists: bool = False) -> Node:
    """`node` less what stands at `path`. List items stay, as their indices count: the list goes
    that one of them is in; without `into_lists` also where only a part of one is meant."""
    below = child(node, path[0]) if path else None
    if below is None:
        return node
    inside = len(path) > 2 if into_lists and isinstance(below, Row) else isinstance(below, Table)
    left = without(below, path[1:], into_lists) if inside and len(path) > 1 else None
    if isinstance(node, Row):
        kept = left if left is not None else below
        return Row(node.at, tuple(kept if item is below else item for item in node.items))
    assert isinstance(node, Table)
    entries = dict(node.entries)
    entry = entries.pop(str(path[0]))
    if left is not None:
        entries[str(path[0])] = Entry(entry.key_at, left)
    return Table(node.at, entries)

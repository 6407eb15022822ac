"""Tokens between the engines of one core, from nothing but who fills and who uses each buffer.

Each buffer and pair (writer, reader) has two counting tokens: `full` starts at 0, `empty` at the
number of slots. The writer takes an empty and gives a full, the reader the other way round. Where a
step runs in deeper loops than its buffer turns, a bare `Sync` stands before and after these loops.

Names say who waits for whom and recur from group to group: every token is back at its initial
count when its group ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from compiler.plan.ir import Buffer, Plan
from simmodel.isa import Instruction, Item, Sync


@dataclass(frozen=True)
class Edge:
    """A buffer between two engines."""

    buffer: str
    writer: str
    reader: str
    full: str
    empty: str
    slots: int


@dataclass(frozen=True)
class Tokens:
    """All edges of a group; none where the hardware interlocks."""

    edges: tuple[Edge, ...] = ()

    @property
    def initial(self) -> dict[str, int]:
        """Token name -> initial count."""
        counts = {edge.full: 0 for edge in self.edges}
        counts.update((edge.empty, edge.slots) for edge in self.edges)
        return counts

    def filled_by(self, buffer: str) -> tuple[Edge, ...]:
        """Edges of `buffer`, as its writer sees them."""
        return tuple(edge for edge in self.edges if edge.buffer == buffer)

    def used_by(self, buffer: str, engine: str) -> tuple[Edge, ...]:
        """Edges of `buffer` that end at `engine`."""
        return tuple(e for e in self.edges if e.buffer == buffer and e.reader == engine)


def tokens(plan: Plan) -> Tokens:
    """Edges of every buffer of `plan` that two engines share."""
    seen: Counter[tuple[str, str, int]] = Counter()
    edges = []
    for buffer in plan.buffers.values():
        for reader in buffer.readers:
            if reader == buffer.writer:
                continue
            pair = (buffer.writer, reader, buffer.slots)
            number = seen[pair]
            seen[pair] += 1
            name = f"{buffer.writer}_{reader}_{buffer.slots}_{number}"
            edges.append(
                Edge(buffer.name, *pair[:2], f"full_{name}", f"empty_{name}", buffer.slots)
            )
    return Tokens(tuple(edges))


def waiting(items: list[Item], engine: str, names: tuple[str, ...], origin: int) -> list[Item]:
    """`items`, the first of which takes one of each token in `names`."""
    if not names:
        return items
    taken = tuple((name, 1) for name in names)
    if items and isinstance(items[0], Instruction) and items[0].engine == engine:
        return [replace(items[0], waits=(*items[0].waits, *taken)), *items[1:]]
    return [Sync(engine=engine, waits=taken, origin=origin), *items]


def signalling(items: list[Item], engine: str, names: tuple[str, ...], origin: int) -> list[Item]:
    """`items`, the last of which gives one of each token in `names`."""
    if not names:
        return items
    given = tuple((name, 1) for name in names)
    if items and isinstance(items[-1], Instruction) and items[-1].engine == engine:
        return [*items[:-1], replace(items[-1], signals=(*items[-1].signals, *given))]
    return [*items, Sync(engine=engine, signals=given, origin=origin)]


def turning_at(buffers: Mapping[str, Buffer], level: int) -> list[Buffer]:
    """Buffers whose slot changes at `level`."""
    return [buffer for buffer in buffers.values() if buffer.level == level]

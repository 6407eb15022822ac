"""Tokens between the engines of one core, from nothing but who fills and who uses each buffer.

Each buffer and pair (writer, reader) has two counting tokens: `full` starts at 0, `empty` at the
number of slots. The writer takes an empty and gives a full, the reader the other way round. Where a
step runs in deeper loops than its buffer turns, a bare `Sync` stands before and after these loops.

Names say who waits for whom and recur from group to group: every token is back at its initial
count when its group ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from compiler.plan.ir import Plan
from simmodel.isa import Instruction, Item, Sync


@dataclass(frozen=True)
class Edge:
    """Buffers that turn together between the same two engines."""

    buffers: frozenset[str]
    writer: str
    reader: str
    level: int
    full: str
    empty: str
    weight: int
    """Empty tokens that stand for one slot."""


@dataclass(frozen=True)
class Action:
    """Instructions of one step at one loop level; the deeper loops are an action of no engine."""

    engine: str
    items: tuple[Item, ...]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


Tokens = tuple[tuple[str, int], ...]
"""Names and counts."""

INNER = ""
"""Engine of the action that stands for the deeper loops."""


def edges(plan: Plan) -> tuple[Edge, ...]:
    """Edges of every buffer of `plan` that two engines share.

    Buffers that turn at the same level between the same engines share their tokens: the first one
    filled waits for all, the last one filled speaks for all. Every `empty` token starts at the same
    count in all groups, so groups share them too: one slot of a buffer that has fewer slots takes
    and gives more at once.
    """
    together: dict[tuple[str, str, int, int], list[str]] = {}
    for buffer in plan.buffers.values():
        for reader in buffer.readers:
            if reader != buffer.writer:
                key = (buffer.writer, reader, buffer.slots, buffer.level)
                together.setdefault(key, []).append(buffer.name)
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for (writer, reader, slots, level), names in together.items():
        name = f"{writer}_{reader}_{seen[writer, reader]}"
        seen[writer, reader] += 1
        weight = plan.slots // slots
        found.append(
            Edge(frozenset(names), writer, reader, level, f"full_{name}", f"empty_{name}", weight)
        )
    return tuple(found)


def synchronized(actions: list[Action], found: tuple[Edge, ...], origin: int) -> list[Item]:
    """The items of `actions` with the tokens of the edges that turn at their level."""
    before: dict[int, list[Item]] = {}
    after: dict[int, list[Item]] = {}
    waits: dict[int, dict[str, int]] = {}
    signals: dict[int, dict[str, int]] = {}
    inner = next((i for i, action in enumerate(actions) if action.engine == INNER), None)
    for edge in found:
        empty, full = (edge.empty, edge.weight), (edge.full, 1)
        sides = (
            (edge.writer, empty, full, [action.writes for action in actions]),
            (edge.reader, full, empty, [action.reads for action in actions]),
        )
        for engine, take, give, touched in sides:
            steps = [
                i
                for i, names in enumerate(touched)
                if actions[i].engine == engine and names & edge.buffers
            ]
            if steps:
                waits.setdefault(steps[0], {}).update([take])
                signals.setdefault(steps[-1], {}).update([give])
            elif inner is not None:
                waiting = Sync(engine=engine, waits=(take,), origin=origin)
                giving = Sync(engine=engine, signals=(give,), origin=origin)
                before.setdefault(inner, []).append(waiting)
                after.setdefault(inner, []).append(giving)
    items: list[Item] = []
    for i, action in enumerate(actions):
        held = _waiting(action, tuple(waits.get(i, {}).items()), origin)
        items += before.get(i, [])
        given = tuple(signals.get(i, {}).items())
        items += _signalling(held, action.engine, given, origin)
        items += after.get(i, [])
    return items


def _waiting(action: Action, taken: Tokens, origin: int) -> list[Item]:
    items = list(action.items)
    if not taken:
        return items
    if items and isinstance(items[0], Instruction):
        return [replace(items[0], waits=(*items[0].waits, *taken)), *items[1:]]
    return [Sync(engine=action.engine, waits=taken, origin=origin), *items]


def _signalling(items: list[Item], engine: str, given: Tokens, origin: int) -> list[Item]:
    if not given:
        return items
    if items and isinstance(items[-1], Instruction):
        return [*items[:-1], replace(items[-1], signals=(*items[-1].signals, *given))]
    return [*items, Sync(engine=engine, signals=given, origin=origin)]

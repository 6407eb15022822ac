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
    slots: int


@dataclass(frozen=True)
class Action:
    """Instructions of one step at one loop level; the deeper loops are an action of no engine."""

    engine: str
    items: tuple[Item, ...]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()


INNER = ""
"""Engine of the action that stands for the deeper loops."""


def edges(plan: Plan) -> tuple[Edge, ...]:
    """Edges of every buffer of `plan` that two engines share.

    Buffers that turn at the same level between the same engines share their tokens: the first one
    filled waits for all, the last one filled speaks for all.
    """
    together: dict[tuple[str, str, int, int], list[str]] = {}
    for buffer in plan.buffers.values():
        for reader in buffer.readers:
            if reader != buffer.writer:
                key = (buffer.writer, reader, buffer.slots, buffer.level)
                together.setdefault(key, []).append(buffer.name)
    seen: Counter[tuple[str, str, int]] = Counter()
    found = []
    for (writer, reader, slots, level), names in together.items():
        name = f"{writer}_{reader}_{slots}_{seen[writer, reader, slots]}"
        seen[writer, reader, slots] += 1
        found.append(
            Edge(frozenset(names), writer, reader, level, f"full_{name}", f"empty_{name}", slots)
        )
    return tuple(found)


def synchronized(actions: list[Action], found: tuple[Edge, ...], origin: int) -> list[Item]:
    """The items of `actions` with the tokens of the edges that turn at their level."""
    before: dict[int, list[Item]] = {}
    after: dict[int, list[Item]] = {}
    waits: dict[int, dict[str, None]] = {}
    signals: dict[int, dict[str, None]] = {}
    inner = next((i for i, action in enumerate(actions) if action.engine == INNER), None)
    for edge in found:
        sides = (
            (edge.writer, edge.empty, edge.full, [action.writes for action in actions]),
            (edge.reader, edge.full, edge.empty, [action.reads for action in actions]),
        )
        for engine, take, give, touched in sides:
            steps = [
                i
                for i, names in enumerate(touched)
                if actions[i].engine == engine and names & edge.buffers
            ]
            if steps:
                waits.setdefault(steps[0], {})[take] = None
                signals.setdefault(steps[-1], {})[give] = None
            elif inner is not None:
                waiting = Sync(engine=engine, waits=((take, 1),), origin=origin)
                giving = Sync(engine=engine, signals=((give, 1),), origin=origin)
                before.setdefault(inner, []).append(waiting)
                after.setdefault(inner, []).append(giving)
    items: list[Item] = []
    for i, action in enumerate(actions):
        held = _waiting(action, tuple(waits.get(i, ())), origin)
        items += before.get(i, [])
        items += _signalling(held, action.engine, tuple(signals.get(i, ())), origin)
        items += after.get(i, [])
    return items


def _waiting(action: Action, names: tuple[str, ...], origin: int) -> list[Item]:
    items = list(action.items)
    if not names:
        return items
    taken = tuple((name, 1) for name in names)
    if items and isinstance(items[0], Instruction):
        return [replace(items[0], waits=(*items[0].waits, *taken)), *items[1:]]
    return [Sync(engine=action.engine, waits=taken, origin=origin), *items]


def _signalling(items: list[Item], engine: str, names: tuple[str, ...], origin: int) -> list[Item]:
    if not names:
        return items
    given = tuple((name, 1) for name in names)
    if items and isinstance(items[-1], Instruction):
        return [*items[:-1], replace(items[-1], signals=(*items[-1].signals, *given))]
    return [*items, Sync(engine=engine, signals=given, origin=origin)]

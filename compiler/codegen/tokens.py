"""Tokens between the engines of one core, from nothing but which bytes each step touches.

Two steps of different engines that touch common bytes, one of them writing, must keep their order.
Engines run their queues in order, so of all such pairs only a few need a token, and none those that
other pairs imply over a third engine:

    full    step i of an iteration before step j of the same iteration; starts at 0
    free    step i before step j of the iteration that uses the same slot again, one or more later;
            starts at the steps that the first iterations may do at once

Each pair of engines has one chain of such pairs per loop depth: the n-th wait takes what the n-th
signal gave. A step in deeper loops is bracketed by `Sync` where the chain lives. Loops beside each
other use tokens in turns (`lanes`), so that one can begin while the one before it drains. Outside
all loops every pair happens once: where tokens are scarce, barriers do as well (`Sharing`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from compiler.codegen.issue_order.order import interleaved
from compiler.codegen.nodes import (
    AlikeLoops,
    EngineStep,
    Node,
    SegmentedLoop,
    Use,
    Works,
    instructions,
    works_of,
)  # fmt: skip
from simmodel.isa import Arrive, Await, Copy, Instruction, Item, Loop, Sync
from simmodel.isa.region import replace
from simmodel.program.program import TileKind

# One engine of a core at a time: the order that takes fewest tokens, one for each engine.


@dataclass
class EngineRing:
    """The ring of a core's engines."""

    numbered: Callable[[EngineStep], Sequence[Item]]
    """Instructions of a step with the number of their tile."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Token -> count at the start."""

    def stream(self, body: Sequence[Node]) -> list[Item]:
        """The instructions of `body`, each step on chip behind the one before it."""
        self._ring = tuple(dict.fromkeys(engine for node in body for engine, _ in node.touches))
        if not self._ring:
            return [item for node in body for leaf in node.leaves for item in leaf.items]
        return [*self._items(body, self._ring[0], None)]

    def _items(self, body: Sequence[Node], first: str, last: str | None) -> Iterator[Item]:
        """The steps of `body` from the turn of `first` on; behind them it is `last`'s, if given."""
        now, origin = first, 0
        for node in body:
            engines = [engine for engine, _ in node.touches]
            origin = node.origin
            if isinstance(node, EngineStep):
                if node.items and engines:
                    yield from self._passed(now, node.engine, origin)
                    now = node.engine
                yield from self.numbered(node)
            elif node.segments:
                home = engines[0] if engines else now
                yield from self._passed(now, home, origin)
                yield from self._loop_items(node, home)
                now = home
        if last is not None:
            yield from self._passed(now, last, origin)

    def _loop_items(self, walk: SegmentedLoop, home: str) -> Iterator[Item]:
        for segment in walk.segments:
            inner = tuple(self._items(segment.body, home, home))
            if segment.count == 1:
                yield from inner
            else:
                yield Loop(walk.variable, segment.count, inner)

    def _passed(self, giver: str, taker: str, origin: int) -> Iterator[Sync]:
        """The turn of `giver`, once it has ended what it does, as that of `taker`."""
        waits: tuple[tuple[str, int], ...] = ()
        place, end = self._ring.index(giver), self._ring.index(taker)
        while place != end:
            signals = ((f"turn_{self._ring[place]}", 1),)
            self.tokens[signals[0][0]] = 0
            yield Sync(engine=self._ring[place], waits=waits, signals=signals, origin=origin)
            place, waits = (place + 1) % len(self._ring), signals
        if waits:
            yield Sync(engine=taker, waits=waits, origin=origin)


Tokens = tuple[tuple[str, int], ...]
"""Names and counts."""
Marks = list[dict[str, list[tuple[str, int]]]]
"""By step: engine -> tokens with counts."""
Touches = tuple[tuple[str, Use], ...]
"""(engine, use) of everything in a step."""
Ints = NDArray[np.int64]
SHARED = 2
"""Count of a token that serves chains of distances 1 and 2 alike; of 1 they take all of it."""


@dataclass(frozen=True)
class TokenChain:
    """Ordered pairs of steps between two engines: `first[n]` before `second[n]`."""

    giver: str
    taker: str
    distance: int
    """Iterations between them."""
    first: tuple[int, ...]
    second: tuple[int, ...]


class Sharing(IntEnum):
    """How tokens are saved on a machine that has few: by all ways up to this one."""

    NONE = 0
    LANES = 1
    """Neighbouring loops have no sets of tokens that they take in turns."""
    BARRIERS = 2
    """Barriers order what happens once."""
    MERGED = 3
    """One token per pair of engines and depth keeps all orders between iterations: one is over with
    what they share before another begins, the next or the one after."""
    ALONE = 4
    """The first engine of each kind does the work of all: less has to keep an order."""
    TURNS = 5
    """One engine works at a time."""


@dataclass
class Synchronizer:
    """Turns the trees of cores into their streams; collects what that takes."""

    tokens: bool = True
    """Whether the machine has tokens; else its hardware interlocks."""
    sharing: Sharing = Sharing.NONE
    initial: dict[str, int] = field(default_factory=dict)
    """Token -> count at the start."""
    barriers: dict[str, int] = field(default_factory=dict)
    """Barrier -> arrivals, of the barriers made here."""
    tiles: dict[TileKind, int] = field(default_factory=dict)
    """What instructions are for -> its number."""

    def __post_init__(self) -> None:
        self._ranks: dict[str, list[int]] = {}
        self._passes_on = False

    def stream(self, body: Sequence[Node]) -> list[Item]:
        """The instructions of `body` with everything that keeps its steps in order."""
        if not self.tokens:
            none: Marks = [{} for _ in body]
            return self._items(body, (none, none), 0)
        if self.sharing is Sharing.TURNS:
            return EngineRing(self._numbered, self.initial).stream(body)
        # What other cores wait for overtakes other work of its engine when it is issued
        # (`issue_order.units.STAGED`), so nothing follows from the order of that engine's steps.
        items = instructions(item for node in body for leaf in node.leaves for item in leaf.items)
        self._passes_on = any(
            isinstance(each, Copy) and "shared" in (each.dst.memory, each.src.memory)
            and (each.notifies or each.waits)
            for each in items
        )  # fmt: skip
        touches = [node.touches for node in body]
        if self.sharing < Sharing.BARRIERS:
            return self._items(body, self._marks(self._chains(touches, 0), len(body), 0, 0), 0)
        return self._items(*self._behind_barriers(body, chains(touches, 0)), 0)

    def _behind_barriers(
        self, body: Sequence[Node], found: Sequence[TokenChain]
    ) -> tuple[list[Node], tuple[Marks, Marks]]:
        """`body` with an arrival and a wait for each pair of steps that must keep their order."""
        before: list[list[Node]] = [[] for _ in body]
        after: list[list[Node]] = [[] for _ in body]
        for chain in found:
            for i, j in zip(chain.first, chain.second, strict=True):
                name = f"order{len(self.barriers)}"
                self.barriers[name] = 1
                arrive = Arrive(engine=chain.giver, barrier=name, origin=body[i].origin)
                wait = Await(engine=chain.taker, barrier=name, origin=body[j].origin)
                after[i].append(EngineStep(chain.giver, (arrive,), origin=body[i].origin))
                before[j].append(EngineStep(chain.taker, (wait,), origin=body[j].origin))
        parts = zip(before, body, after, strict=True)
        nodes = [node for b, this, a in parts for node in (*b, this, *a)]
        none: Marks = [{} for _ in nodes]
        return nodes, (none, none)

    def _marks(
        self, found: Sequence[TokenChain], steps: int, depth: int, lane: int
    ) -> tuple[Marks, Marks]:
        """By step: engine -> tokens that it takes before the step, and gives after it."""
        waits: Marks = [{} for _ in range(steps)]
        signals: Marks = [{} for _ in range(steps)]
        for chain in found:
            token, count = self._token(chain, depth, lane)
            for i in chain.first:
                signals[i].setdefault(chain.giver, []).append((token, count))
            for j in chain.second:
                waits[j].setdefault(chain.taker, []).append((token, count))
        return waits, signals

    def _items(
        self, body: Sequence[Node], marks: tuple[Marks, Marks], depth: int,
        inside: Sequence[AlikeLoops | None] = (),
    ) -> list[Item]:  # fmt: skip
        items: list[Item] = []
        walks, team = 0, _Team()
        lanes = 1 if self.sharing else 2
        for n, (node, taken, given) in enumerate(zip(body, *marks, strict=True)):
            if isinstance(node, EngineStep):
                waits = tuple(taken.get(node.engine, ()))
                made = self._with_tokens(node, waits, tuple(given.get(node.engine, ())))
                if not team.takes(node, waits):
                    items += team.released()
                team.add(node, made)
                continue
            items += team.released()
            origin = node.origin
            items += (Sync(engine=e, waits=tuple(t), origin=origin) for e, t in taken.items())
            place = inside[n] if inside else AlikeLoops.of([node])
            assert place is not None
            if depth == 0 and self.tokens:
                self._ranks = self._ranked(place)
            items += self._loop_items(node, place, depth + 1, walks % lanes)
            items += (Sync(engine=e, signals=tuple(t), origin=origin) for e, t in given.items())
            walks += 1
        return [*items, *team.released()]

    def _tile_number(self, leaf: EngineStep) -> int:
        """Of the tile that a step is one of; -1: of none."""
        return -1 if leaf.tile is None else self.tiles.setdefault(leaf.tile, len(self.tiles))

    def _numbered(self, leaf: EngineStep) -> tuple[Item, ...]:
        """The instructions of a step, with the number of their tile."""
        return leaf.numbered(self._tile_number(leaf)) if leaf.items else ()

    def _with_tokens(self, node: EngineStep, taken: Tokens, given: Tokens) -> list[Item]:
        """The same with what it takes before them and gives behind them."""
        items = list(self._numbered(node))
        if taken and items and isinstance(first := items[0], Instruction):
            items[0] = replace(first, waits=(*first.waits, *taken))
        elif taken:
            items.insert(0, self._sync_of_step(node, waits=taken))
        if given and items and isinstance(last := items[-1], Instruction):
            items[-1] = replace(last, signals=(*last.signals, *given))
        elif given:
            items.append(self._sync_of_step(node, signals=given))
        return items

    def _sync_of_step(self, leaf: EngineStep, waits: Tokens = (), signals: Tokens = ()) -> Sync:
        engine, origin, tile = leaf.engine, leaf.origin, self._tile_number(leaf)
        return Sync(engine=engine, origin=origin, tile=tile, waits=waits, signals=signals)

    def _loop_items(
        self, walk: SegmentedLoop, place: AlikeLoops, depth: int, lane: int
    ) -> Iterator[Item]:
        if not walk.segments:
            return
        for segment in walk.segments:
            found = self._chains_of(place, works_of(segment.body), depth)
            marks = self._marks(found, len(segment.body), depth, lane)
            body = self._items(segment.body, marks, depth, place.inside)
            if segment.count == 1:
                yield from body
            else:
                yield Loop(walk.variable, segment.count, tuple(body))

    def _chains_of(self, place: AlikeLoops, works: Works, depth: int) -> list[TokenChain]:
        """The chains of a body of loops in one place. Those within one iteration begin at steps
        that do something there: what follows a step of an earlier iteration has waited for it
        then. From one iteration to the next all bodies give and take as much."""
        if not self.tokens:
            return []
        always = tuple(map(all, zip(*place.works, strict=True)))
        carried = [c for c in self._chains(place.touches, depth, always) if c.distance]
        return [*self._chains(place.touches, 0, works), *carried]

    def _chains(
        self, touches: Sequence[Touches], depth: int, works: Works = ()
    ) -> list[TokenChain]:
        found = chains(touches, depth, works)
        found = merged(found) if self.sharing >= Sharing.MERGED else found
        return found if self._passes_on else not_implied(found)

    def _token(self, chain: TokenChain, depth: int, lane: int) -> tuple[str, int]:
        """The token of a chain, and how many each of its pairs gives and takes."""
        kind = self._token_kind(chain)
        rank = self._ranks[kind].index(depth) + 1 if depth else 0
        name = f"{kind}_{rank}" + ("b" if lane else "")
        if self.sharing >= Sharing.MERGED and chain.distance:
            self.initial[name] = SHARED
            return name, SHARED // chain.distance
        self.initial[name] = chain.distance * len(chain.first)
        return name, 1

    def _token_kind(self, chain: TokenChain) -> str:
        """Chains of one kind have one count at the start, and never meet in one loop."""
        ends = f"{chain.giver}_{chain.taker}"
        if not chain.distance:
            return f"full_{ends}"
        if self.sharing >= Sharing.MERGED:
            return f"free_{ends}"
        pairs = f"x{len(chain.first)}" if len(chain.first) > 1 else ""
        return f"free{chain.distance}{pairs}_{ends}"

    def _ranked(self, outermost: AlikeLoops) -> dict[str, list[int]]:
        """Kind of token -> depths at which loops around each other need one of their own."""
        found: dict[str, set[int]] = {}

        def visit(place: AlikeLoops, depth: int) -> None:
            for chain in (c for w in place.works for c in self._chains_of(place, w, depth)):
                found.setdefault(self._token_kind(chain), set()).add(depth)
            for inner in place.inside:
                if inner is not None:
                    visit(inner, depth + 1)

        visit(outermost, 1)
        return {kind: sorted(depths) for kind, depths in found.items()}


@dataclass
class _Team:
    """Steps of equal engines that do one thing together."""

    leaves: list[EngineStep] = field(default_factory=list)
    streams: list[list[Item]] = field(default_factory=list)

    def takes(self, leaf: EngineStep, waits: Tokens) -> bool:
        """Whether `leaf` is one more of them, and waits for none of the others."""
        if not leaf.team or any(other.team != leaf.team for other in self.leaves):
            return False
        names = {other.engine for other in self.leaves}
        ends = tuple(f"_{name}_{leaf.engine}" for name in names)
        behind = any(
            end in f"{token}_" or token.endswith(end) for token, _ in waits for end in ends
        )
        return leaf.engine not in names and not behind

    def add(self, leaf: EngineStep, items: list[Item]) -> None:
        self.leaves.append(leaf)
        self.streams.append(items)

    def released(self) -> list[Item]:
        """What they do, in turns; from then on there are none."""
        streams, self.leaves, self.streams = self.streams, [], []
        return interleaved(streams) if streams else []


def merged(found: Sequence[TokenChain]) -> list[TokenChain]:
    """`found` with one chain at most from iteration to iteration for each pair of engines: its
    last step of all gives, its first of all takes."""
    ends: dict[tuple[str, str], list[TokenChain]] = {}
    for chain in found:
        if chain.distance:
            ends.setdefault((chain.giver, chain.taker), []).append(chain)
    carried = (
        TokenChain(
            *pair, min(SHARED, *(c.distance for c in alike)),
            (max(c.first[-1] for c in alike),), (min(c.second[0] for c in alike),),
        )
        for pair, alike in ends.items()
    )  # fmt: skip
    return [*(chain for chain in found if not chain.distance), *carried]


def not_implied(found: Sequence[TokenChain]) -> list[TokenChain]:
    """`found` without chains all of whose pairs others keep in order, over a third engine."""
    kept = list(found)
    for chain in sorted(found, key=lambda c: (-c.distance, len(c.first))):
        others = [other for other in kept if other is not chain]
        pairs = zip(chain.first, chain.second, strict=True)
        if all(_implies(others, chain, *pair) for pair in pairs):
            kept = others
    return kept


def _implies(others: Sequence[TokenChain], chain: TokenChain, first: int, second: int) -> bool:
    """Whether `others` keep a pair of `chain` in order: on each engine, from which iteration and
    step on does all come after the first of the pair?"""
    after = {chain.giver: (0, first)}
    while True:
        known = dict(after)
        for other in others:
            if other.giver in after:
                turn, step = after[other.giver]
                at = bisect_left(other.first, step)
                turn, at = (turn, at) if at < len(other.first) else (turn + 1, 0)
                there = turn + other.distance, other.second[at]
                after[other.taker] = min(after.get(other.taker, there), there)
        if chain.taker in after and after[chain.taker] <= (chain.distance, second):
            return True
        if after == known:
            return False


def chains(body: Sequence[Touches], depth: int, works: Works = ()) -> list[TokenChain]:
    """The pairs of steps that tokens must keep in order, from what each step of a body touches;
    `works`: whether each has anything to do, if not all have."""
    # Bodies of equal layers differ in the names of their buffers alone.
    names: dict[str, str] = {}
    alike = [
        tuple(
            [
                (engine, Use._make((names.setdefault(use.buffer, str(len(names))), *use[1:])))
                for engine, use in touches
            ]
        )
        for touches in body
    ]
    return _chains(tuple(alike), depth, works or (True,) * len(body))


@lru_cache(maxsize=1 << 12)
def _chains(body: tuple[Touches, ...], depth: int, works: Works) -> list[TokenChain]:
    table = UseTable.of(body)
    if table is None:
        return []
    ahead = table.by_engines(table.ahead(works))
    found = [TokenChain(*ends, 0, *_minimal(pairs)) for ends, pairs in ahead.items()]
    if depth == 0:
        return found
    reach = {(c.giver, c.taker): c.first[-1] for c in found}
    for distance, latest in table.carried(depth):
        for ends, pairs in table.by_engines(latest).items():
            beyond = reach.get(ends, -1)
            kept = {j: i for j, i in pairs.items() if i > beyond}
            if kept:
                found.append(TokenChain(*ends, distance, *_minimal(kept)))
    return found


@dataclass(frozen=True, eq=False)
class UseTable:
    """All uses of a body side by side, in the order of its steps. Those that are alike in all that
    decides about conflicts are of one kind: steps that repeat each other add uses, not kinds."""

    engines: tuple[str, ...]
    node: Ints
    buffer: Ints
    home: Ints
    reset: Ints
    slots: Ints
    kind: Ints
    engine: Ints
    """Per kind, rising."""
    cut: Ints
    """Per kind: the dimension that is cut, where it is only what one of several engines makes."""
    conflict: NDArray[np.bool_]
    """[kind, kind]: common bytes, one writes, different engines."""
    at_once: NDArray[np.bool_]
    """[kind, kind]: the same within one iteration, where uses that are early have other slots and
    parts of other bodies are not made."""
    early: Ints
    """Per kind: iterations that it is early in a buffer of which not all uses are."""

    @classmethod
    def of(cls, body: Sequence[Touches]) -> UseTable | None:
        rows = [(n, e, use) for n, touches in enumerate(body) for e, use in touches]
        names = tuple(dict.fromkeys(e for _, e, _ in rows))
        if len(names) < 2:
            return None
        numbers: dict[str, int] = {}

        def number(name: str) -> int:
            return numbers.setdefault(name, len(numbers))

        met = {(u.buffer, u.ahead) for _, _, u in rows}
        crossed = {name for name, count in Counter(name for name, _ in met).items() if count > 1}
        variants = tuple({u.bodies: None for _, _, u in rows})
        meet = np.array([[a & b != 0 for b in variants] for a in variants])
        alike = [
            (
                names.index(e), number(u.memory), u.low, u.high, u.write,
                number(u.buffer) if u.part or u.buffer in crossed else -1, *(u.part or _WHOLE),
                u.ahead % u.slots * (u.buffer in crossed), variants.index(u.bodies),
            )
            for _, e, u in rows
        ]  # fmt: skip
        kinds, kind = np.unique(alike, axis=0, return_inverse=True)
        engine, memory, low, high, write, buffer, cut, first, last, early, bodies = kinds.T
        conflict = (memory[:, None] == memory) & (low[:, None] < high) & (low < high[:, None])
        conflict &= ((write[:, None] | write) > 0) & (engine[:, None] != engine)
        apart = (buffer[:, None] == buffer) & (cut[:, None] == cut)
        conflict &= ~apart | ((first[:, None] < last) & (first < last[:, None]))
        at_once = conflict & ((buffer[:, None] != buffer) | (early[:, None] == early))
        at_once &= meet[bodies[:, None], bodies]
        others = [(n, number(u.buffer), u.home, u.reset, u.slots) for n, _, u in rows]
        node, buffer, home, reset, slots = np.array(others).T
        kind = kind.reshape(-1)
        return cls(
            names, node, buffer, home, reset, slots, kind, engine, cut, conflict, at_once, early
        )

    def ahead(self, works: Sequence[bool]) -> Ints:
        """[giver, taker, step]: the last step of the giver that must come before it, of those that
        do something; -1: none."""
        givers = np.searchsorted(self.engine, np.arange(len(self.engines)))
        latest, last = self._nothing(), np.full(len(self.engine), -1)
        bounds = np.flatnonzero(np.diff(self.node, prepend=-1, append=-1)).tolist()
        for start, end in pairwise(bounds):
            step, kinds = self.node[start], self.kind[start:end]
            for kind in set(kinds.tolist()):
                found = np.maximum.reduceat(np.where(self.at_once[kind], last, -1), givers)
                known = latest[:, self.engine[kind], step]
                np.maximum(known, found, out=known)
            if works[step]:
                last[kinds] = step
        return latest

    def carried(self, depth: int) -> Iterator[tuple[int, Ints]]:
        """(distance, the same) of what one iteration must do before a later one goes on."""
        early = self.early[self.kind]
        # How many iterations on a slot is used again; early uses may come before others of them.
        again_in = (early[:, None] - early - 1) % self.slots + 1
        same = self.buffer[:, None] == self.buffer
        # What no iteration does at once is not in order within one either.
        back = (self.node[:, None] >= self.node) | ~self.at_once[self.kind][:, self.kind]
        back &= self.conflict[self.kind][:, self.kind]
        shared = (self.cut > _WHOLE[0])[self.kind]
        turning = same & (self.home == depth)
        # Turns that go on through this loop are kept in order inside; but there each tile is cut in
        # one way, and those of another iteration, smaller ones at an end, may be cut in another.
        again = same & (self.home > depth)
        again &= (self.reset >= depth) | (shared[:, None] & shared)
        inside = np.maximum(self.home[:, None], self.home) >= depth
        anew = back & (again | (~same & inside))
        engine = self.engine[self.kind]
        for distance in sorted({*again_in[turning].tolist(), 1}):
            mask = back & turning & (again_in == distance)
            if distance == 1:
                mask = mask | anew
            if mask.any():
                a, b = np.nonzero(mask)
                latest = self._nothing()
                np.maximum.at(latest, (engine[a], engine[b], self.node[b]), self.node[a])
                yield distance, latest

    def _nothing(self) -> Ints:
        engines = len(self.engines)
        return np.full((engines, engines, int(self.node[-1]) + 1), -1)

    def by_engines(self, latest: Ints) -> dict[tuple[str, str], dict[int, int]]:
        """For every pair of engines: step -> the last step that must come before it."""
        found: dict[tuple[str, str], dict[int, int]] = {}
        for giver, taker, j in np.argwhere(latest >= 0).tolist():
            pair = self.engines[giver], self.engines[taker]
            found.setdefault(pair, {})[j] = int(latest[giver, taker, j])
        return found


_WHOLE = (-2, 0, 1)
"""No part."""


def _minimal(pairs: dict[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Without pairs that others imply: later first steps must be worth a later second one."""
    first: list[int] = []
    second: list[int] = []
    for j in sorted(pairs):
        if not first or pairs[j] > first[-1]:
            first.append(pairs[j])
            second.append(j)
    return tuple(first), tuple(second)

"""One engine of a core at a time: the order that takes fewest tokens, one for each engine.

The engines stand in a ring. Whoever has worked hands the turn on to whoever works next, past those
between them; a loop begins and ends with the same engine:

    load x; product; store y      load x > product > store y > (load) ...

Nothing overlaps, so it serves where a machine has too few tokens for anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from compiler.emit.nodes import Leaf, Node, Walk
from simmodel.isa import Item, Loop, Sync


@dataclass
class Turns:
    """The ring of a core's engines."""

    numbered: Callable[[list[Item], Leaf], list[Item]]
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
            if isinstance(node, Leaf):
                if node.items and engines:
                    yield from self._passed(now, node.engine, origin)
                    now = node.engine
                yield from self.numbered(list(node.items), node)
            elif node.segments:
                home = engines[0] if engines else now
                yield from self._passed(now, home, origin)
                yield from self._walked(node, home)
                now = home
        if last is not None:
            yield from self._passed(now, last, origin)

    def _walked(self, walk: Walk, home: str) -> Iterator[Item]:
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

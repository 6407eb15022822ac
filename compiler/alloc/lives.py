"""Between which steps of a group each of its buffers takes its bytes.

Steps are the group's layers, from 1 on; 0 is the end of the group before. In a group with loops the
layers come again for each tile, so the steps before the first layer are also the end of the tile
before, and those behind the last one the begin of the next:

    step            ..  last-1  last |  1    2   ..  last |  1   ..
    x, loaded             load  ->     used                           alive from -1 to 1
    y, stored                                        made -> store    alive from last to last + 1
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler.hold.buffer import Buffer

Life = tuple[int, int]
"""First and last step in which a buffer is alive."""


@dataclass(frozen=True)
class Lives:
    """The lives of some buffers."""

    steps: Mapping[str, Life]
    turn: int = 0
    """Steps after which the same ones come again; 0: they never do."""

    def meet(self, a: str, b: str) -> bool:
        """Whether two buffers are alive at the same time, in this tile or in neighbouring ones."""
        (first, last), (born, dies) = self.steps[a], self.steps[b]
        if first <= dies and born <= last:
            return True
        by = self.turn if first > dies else -self.turn
        return self.turn > 0 and first <= dies + by and born + by <= last

    def early(self, name: str) -> bool:
        """Whether a buffer is alive while the group before ends."""
        return self.steps[name][0] <= 0


def in_use(buffers: Sequence[Buffer], last: int) -> Lives:
    """Each while layers use it; `last` is the last layer's step."""
    return Lives({b.name: _used(b, last) for b in buffers})


def together(buffers: Sequence[Buffer], last: int) -> Lives:
    """All of them all the time."""
    return Lives({b.name: (0 if b.key is not None and not b.first else 1, last) for b in buffers})


def ahead(buffers: Sequence[Buffer], last: int, layers: int = 1) -> Lives:
    """Each while layers use it, and what is loaded some layers longer."""
    steps = {}
    for buffer in buffers:
        first, end = _used(buffer, last)
        steps[buffer.name] = (max(0, first - layers) if buffer.key is not None else first), end
    return Lives(steps)


def turning(
    buffers: Sequence[Buffer], last: int, stored: Collection[str], layers: int = 1
) -> Lives:
    """The same in loops: what is loaded for a tile finds its place free while the tile before ends,
    and what is stored has a layer's time to go."""
    steps = dict(ahead(buffers, last, layers).steps)
    for buffer in (b for b in buffers if not b.lasting):
        first, end = _used(buffer, last)
        if buffer.key is not None:
            first = max(end + 1 - last, first - layers)
        if buffer.name in stored:
            end = min(first + last - 1, end + 1)
        steps[buffer.name] = first, end
    return Lives(steps, last)


def depths(last: int) -> Iterator[int]:
    """How many layers ahead loads may find room: all, half of them, and so on, down to one."""
    layers = last
    while layers > 0:
        yield layers
        layers //= 2


def _used(buffer: Buffer, last: int) -> Life:
    return (1, last) if buffer.lasting else (buffer.first + 1, buffer.last + 1)

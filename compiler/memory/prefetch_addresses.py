"""Prefetch distance and addresses of a group without tile loops: each load begins early enough.

Loads run one after another, in order of use. The latest start of each load is computed backwards,
such that it and all later loads end in time. Loaded buffers then get, in order of use, addresses
that are free from that moment on, else those that become free first. Buffers that layers work on
are placed before, as low as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product

import numpy as np

from compiler.cost.overlap import sustained_rate
from compiler.memory.steady_state import phases
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import Place, Places, TileBuffer, earliest
from simmodel.arch.record import Arch

Lives = dict[str, tuple[int, int]]
"""Buffer -> steps in which it is alive; 0 is the end of the group before, layers follow from 1."""


LAYERS = 3
"""Layers of a group from which on loads can run farther ahead than the layer before."""
GAIN = 0.01
"""Part of the group's time that must be saved."""
SLACK = 1.25
"""Loads are begun so many times earlier than the work of the layers between asks for."""


@dataclass(frozen=True)
class LoadPacing:
    """Cycles of a group's layers, and the rate of its loads."""

    work: tuple[float, ...]
    """Cycles of each layer without its loads."""
    rate: float
    """Bytes per cycle that are loaded."""

    @classmethod
    def of(cls, plan: Plan, arch: Arch) -> LoadPacing:
        work = (
            max((c for engine, c in phase.engines.items() if engine not in arch.copy_), default=0.0)
            for phase in phases(plan, arch)
        )
        return cls(tuple(work), max(sustained_rate(arch, e) for e in arch.copy_.values()))

    def wishes(self, blocks: Sequence[Block]) -> list[int]:
        """Latest step in which each load may begin without a wait, with some slack."""
        begins = np.concatenate(([0.0], np.cumsum(self.work)))
        found = []
        latest = math.inf
        for block in reversed(blocks):
            latest = min(latest, begins[block.first]) - SLACK * block.bytes / self.rate
            layer = int(np.searchsorted(begins, latest, side="right")) - 1
            found.append(max(0, min(layer + 1, block.first)))
        return found[::-1]

    def end(self, blocks: Sequence[Block], starts: Sequence[int]) -> float:
        """Cycles until the last layer ends, if loads begin with these steps at the earliest."""
        ends = [0.0]
        loaded = 0.0
        position = 0
        for layer, cycles in enumerate(self.work):
            there = ends[-1]
            while position < len(blocks) and blocks[position].first == layer:
                free = ends[max(0, starts[position] - 1)]
                loaded = max(loaded, free) + blocks[position].bytes / self.rate
                there = loaded
                position += 1
            ends.append(max(there, ends[-1]) + cycles)
        return ends[-1]


@dataclass(frozen=True)
class Block:
    """Contiguous buffers that one layer loads."""

    first: int
    last: int
    buffers: tuple[TileBuffer, ...]
    pitches: tuple[int, ...]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of each buffer, from the start of the block."""
        sizes = (pitch * b.slots for b, pitch in zip(self.buffers, self.pitches, strict=True))
        return tuple(accumulate(sizes, initial=0))

    @property
    def bytes(self) -> int:
        return self.offsets[-1]

    @property
    def life(self) -> tuple[int, int]:
        """Steps in which layers use it."""
        return self.first + 1, self.last + 1


def prefetched(
    made: Mapping[str, Place], buffers: Sequence[TileBuffer], pace: LoadPacing,
    room: tuple[int, int], busy: Sequence[tuple[int, int]],
) -> tuple[Places, Lives] | None:  # fmt: skip
    """Addresses and live ranges that let loads begin early, apart from what the group before is
    still `busy` with; None if they are hardly better than those in `made`. `room`: bytes of the
    memory, and what addresses are multiples of."""
    size, grain = room
    blocks = _blocks(buffers, grain)
    held = [_block([b], grain) for b in buffers if b.key is None]
    free = [float(size)] * (len(pace.work) + 1)
    for block in held:
        for step in range(block.life[0], block.life[1] + 1):
            free[step] -= block.bytes
    late = pace.wishes(blocks)
    fair = earliest([b.life[0] for b in blocks], [b.bytes for b in blocks], free, late)
    least = (1 - GAIN) * pace.end(blocks, list(accumulate(_starts(made, blocks, buffers), max)))
    if pace.end(blocks, [0] * len(blocks)) >= least:
        return None
    best: tuple[_PlacementTable, list[int]] | None = None
    for order, wishes in product(ORDERS, (late, fair)):
        table = _PlacementTable(size, grain, [(low, high, 0, 0) for low, high in busy])
        starts = table.all(sorted(held, key=order), blocks, wishes)
        end = math.inf if starts is None else pace.end(blocks, starts)
        if starts is not None and end < least:
            least, best = end, (table, starts)
    if best is None:
        return None
    table, starts = best
    lives = {b.name: (b.first + 1, b.last + 1) for b in buffers}
    for block, start in zip(blocks, starts, strict=True):
        lives |= {b.name: (start, block.last + 1) for b in block.buffers}
    return table.places, lives


ORDERS: tuple[Callable[[Block], float], ...] = (
    lambda block: -block.bytes,
    lambda block: -block.bytes * (block.last - block.first + 1),
    lambda block: block.first - block.last - block.bytes * 2.0**-40,
)
"""In which what layers work on is placed: large, large and long, or long first."""


def _starts(
    made: Mapping[str, Place], blocks: Sequence[Block], buffers: Sequence[TileBuffer]
) -> list[int]:
    """The steps from which the bytes of each block are free."""
    spans = [(*b.span(made[b.name]), b.last + 2) for b in buffers]
    lows, highs, after = np.array(spans, dtype=np.int64).T
    found = []
    for block in blocks:
        start = 0
        for buffer in block.buffers:
            low, high = buffer.span(made[buffer.name])
            shared = (lows < high) & (low < highs) & (after <= block.life[0])
            start = max(start, int(after[shared].max(initial=0)))
        found.append(start)
    return found


def _blocks(buffers: Sequence[TileBuffer], grain: int) -> list[Block]:
    """Blocks of loaded buffers, in order of use."""
    alike: dict[tuple[int, int], list[TileBuffer]] = {}
    for buffer in buffers:
        if buffer.key is not None:
            alike.setdefault((buffer.first, buffer.last), []).append(buffer)
    return [_block(sorted(b, key=lambda b: -b.bytes), grain) for _, b in sorted(alike.items())]


def _block(buffers: Sequence[TileBuffer], grain: int) -> Block:
    pitches = tuple(-(-b.bytes // grain) * grain for b in buffers)
    return Block(buffers[0].first, buffers[0].last, tuple(buffers), pitches)


class _PlacementTable:
    """Blocks with addresses."""

    def __init__(self, size: int, grain: int, spans: list[tuple[int, int, int, int]]) -> None:
        self.size = size
        self.grain = grain
        self.places: Places = {}
        self.spans = spans

    def all(
        self, held: Sequence[Block], blocks: Sequence[Block], wishes: Sequence[int]
    ) -> list[int] | None:
        """Places all; the steps with which loads can begin, in order; None: there is no room."""
        for block in held:
            if self.put(block, block.life[0]) is None:
                return None
        starts = [0]
        for block, wish in zip(blocks, wishes, strict=True):
            start = self.put(block, min(max(wish, starts[-1]), block.life[0]))
            if start is None:
                return None
            starts.append(max(starts[-1], start))
        return starts[1:]

    def put(self, block: Block, wish: int) -> int | None:
        """Place `block`; the first step in which its bytes are free, `wish` at the earliest."""
        extent, (first, last) = block.bytes, block.life
        lows, highs, born, dies = np.array(self.spans or [(0, 0, 0, -1)], dtype=np.int64).T
        ends = (0, self.size - extent)
        points = np.concatenate((ends, -(-highs // self.grain) * self.grain, lows - extent))
        points = np.unique(points // self.grain * self.grain)
        points = points[(points >= 0) & (points + extent <= self.size)]
        shared = (lows < points[:, None] + extent) & (points[:, None] < highs)
        usable = ~(shared & (born <= last) & (dies >= first)).any(axis=1)
        points, shared = points[usable], shared[usable]
        if not len(points):
            return None
        free = np.where(shared & (dies < first), dies + 1, 0).max(axis=1)
        starts = np.maximum(free, wish)
        best = int(np.lexsort((points, starts))[0])
        address, start = int(points[best]), int(starts[best])
        for buffer, pitch, offset in zip(block.buffers, block.pitches, block.offsets, strict=False):
            self.places[buffer.name] = (address + offset, pitch)
        self.spans.append((address, address + extent, start, last))
        return start

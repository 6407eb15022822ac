"""Calls of the host in pieces: cores begin with the first while the host makes the others.

    call for rows 0..55       rows 56..111      rows 112..167        on the host
                              tiles 0..2        tiles 3..5 ..        on the core that reads them

Each piece costs another call, so they are cut where the last tile is expected to end soonest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler.cost.overlap import host_cycles
from compiler.geometry.boxes import Range
from compiler.memory.off_chip import OffChip
from compiler.memory.on_chip import PlacedGroup
from compiler.plan.make_plan import Plan
from compiler.tensor_ir.nest import HostNode, order_of
from simmodel.isa import HOST, Arrive, Await, HostCall, Instruction, Item


@dataclass(frozen=True)
class HostPieces:
    """Pieces of a host call, whose only reader is a loop over tiles of one core."""

    tensor: str
    """What it makes."""
    axis: int
    """Along which it is cut."""
    ends: tuple[int, ...]
    """Positions behind each piece."""
    tiles: tuple[int, ...]
    """For each piece, the first tile that reads of it."""

    def box(self, piece: int, shape: tuple[int, ...]) -> tuple[Range, ...]:
        """The part of the input and of the result, both of `shape`, of a piece."""
        start = self.ends[piece - 1] if piece else 0
        spans = [Range(0, extent) for extent in shape]
        spans[self.axis] = Range(start, self.ends[piece] - start)
        return tuple(spans)

    def barrier(self, piece: int, step: int) -> str:
        """Behind which a piece of the call that is a `step` is there: the step itself is over with
        the last."""
        return f"step{step}" if piece == len(self.ends) - 1 else f"step{step}.{piece}"

    def awaited(self, step: int) -> Mapping[int, str]:
        """Tile -> the barrier of what it is the first to read."""
        return {tile: self.barrier(piece, step) for piece, tile in enumerate(self.tiles)}


def pieces_of(code: OffChip, number: int) -> HostPieces | None:
    """The pieces of the host call that is step `number`; None: it stays whole."""
    node = code.steps[number]
    if not isinstance(node, HostNode) or not node.of_boxes or code.graph.registers:
        return None
    made = code.graph.tensors[node.outputs[0]]
    step = next((n for n in code.users[made.storage.buffer] if n != number), None)
    reader = None if step is None else code.steps[step]
    if len(code.users[made.storage.buffer]) != 2 or not isinstance(reader, PlacedGroup):
        return None
    # Pieces are rows of all that lies behind them, and the only reader goes along these.
    axis = next((a for a in order_of(made.shape, made.storage.strides) if made.shape[a] > 1), 0)
    ends = _tile_ends(reader.plan, made.name, axis)
    latency = code.arch.host.latency.cycles(code.arch.clock)
    work, rows = host_cycles(node, code.graph.tensors, code.arch) - latency, made.shape[axis]
    each = round(reader.plan.schedule.estimate.total / max(1, len(ends)))
    tiles = first_tiles([end * work // rows for end in ends], latency, each)
    tiles = tuple(tile for tile in tiles if not tile or ends[tile] > ends[tile - 1])
    if len(tiles) < 2:
        return None
    behind = (*(ends[tile - 1] for tile in tiles[1:]), made.shape[axis])
    return HostPieces(made.name, axis, behind, tiles)


def first_tiles(done: Sequence[int], latency: int, each: int) -> tuple[int, ...]:
    """The first tile of each piece, so that the last tile ends soonest; of equal ways that with
    most pieces, which leaves most time for what is not seen here: the host shares DRAM.

    Args:
        done: by tile, cycles of the host until it has made what the tile reads, calls aside.
        latency: cycles of each call.
        each: cycles of a tile.
    """
    found: tuple[float, tuple[int, ...]] = (math.inf, ())
    # Tiles in the pieces so far -> when they are over, and the first of each piece.
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for calls in range(1, len(done) + 1):
        best = {
            end: min(
                (max(over, calls * latency + done[end - 1]) + each * (end - begin), (*first, begin))
                for begin, (over, first) in best.items()
                if begin < end
            )
            for end in range(calls, len(done) + 1)
        }
        if calls * latency + done[-1] + each > found[0]:
            break
        if best[len(done)][0] <= found[0]:
            found = best[len(done)]
    return found[1]


def _tile_ends(plan: Plan, tensor: str, axis: int) -> tuple[int, ...]:
    """Positions behind what each tile of a group reads of a tensor, where one core loads it tile by
    tile along `axis`."""
    schedule, held = plan.schedule, plan.held.get(tensor)
    if len(schedule.loops) != 1 or [*schedule.cores] != [0] or held is None:
        return ()
    windows = plan.walked[0].holds[tensor]
    boxes = [box for box in windows.boxes if box is not None]
    if [moving for moving, _ in windows.moving] != [axis] or len(boxes) < plan.walked[0].count:
        return ()
    return tuple(sum(box[axis]) for box in boxes)


def called_in_time(items: Iterable[Item]) -> Iterator[Item]:
    """`items` of the core that issues calls of the host, where each piece of a call behind the
    second comes when the one before it is awaited: in the short queue of the host it would keep
    the front end from what reads the first."""
    held: list[Item] = []
    origin, calls = -1, 0
    for item in items:
        if isinstance(item, Instruction) and item.engine == HOST:
            if item.origin != origin or isinstance(item, Await):
                yield from held
                held, origin, calls = [], item.origin, 0
            calls += isinstance(item, HostCall)
            if calls > 2 or (calls == 2 and not isinstance(item, HostCall)):
                held.append(item)
                continue
        elif isinstance(item, Await):
            named = [isinstance(h, Arrive) and h.barrier == item.barrier for h in held]
            # With the call behind it.
            count = named.index(True) + 2 if any(named) else 0
            yield from held[:count]
            held = held[count:]
        yield item
    yield from held

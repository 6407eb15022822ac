"""Calls of the host in pieces: cores begin with the first while the host makes the others.

    call for rows 0..55       rows 56..111      rows 112..167        on the host
                              tiles 0..2        tiles 3..5 ..        on the core that reads them

Each piece costs another call, so they are cut where the last tile is expected to end soonest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.codegen.nodes import step_barrier
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
    """What it makes, of the shape of its only input."""
    boxes: tuple[tuple[Range, ...], ...]
    tiles: tuple[int, ...]
    """For each piece, the first tile that reads of it."""

    def barrier(self, piece: int, step: int) -> str:
        """What a piece of the call that is a `step` opens: the step is over with the last one."""
        over = step_barrier(step)
        return over if piece == len(self.boxes) - 1 else f"{over}.{piece}"

    def awaited(self, step: int) -> Mapping[int, str]:
        """Tile -> the barrier of what it is the first to read."""
        return {tile: self.barrier(piece, step) for piece, tile in enumerate(self.tiles)}


def pieces_of(code: OffChip, number: int) -> HostPieces | None:
    """The pieces of the host call that is step `number`; None: it stays whole."""
    node, tensors = code.steps[number], code.graph.tensors
    if not isinstance(node, HostNode) or not node.of_boxes or code.graph.registers:
        return None
    made = tensors[node.outputs[0]]
    readers = [code.steps[n] for n in code.users[made.storage.buffer] if n != number]
    if len(readers) != 1 or not isinstance(reader := readers[0], PlacedGroup):
        return None
    # Pieces are rows of all that lies behind them, and the reader goes along these.
    axis = next((a for a in order_of(made.shape, made.storage.strides) if made.shape[a] > 1), 0)
    ends, rows = _tile_ends(reader.plan, made.name, axis), made.shape[axis]
    latency = code.arch.host.latency.cycles(code.arch.clock)
    work = host_cycles(node, tensors, code.arch) - latency
    each = round(reader.plan.schedule.estimate.total / max(1, len(ends)))
    tiles = first_tiles([end * work // rows for end in ends], latency, each)
    tiles = tuple(tile for tile in tiles if not tile or ends[tile] > ends[tile - 1])
    if len(tiles) < 2:
        return None
    whole = [Range(0, extent) for extent in made.shape]
    cuts = pairwise((0, *(ends[tile - 1] for tile in tiles[1:]), rows))
    spans = (Range(start, end - start) for start, end in cuts)
    boxes = tuple((*whole[:axis], span, *whole[axis + 1 :]) for span in spans)
    return HostPieces(made.name, boxes, tiles)


def _tile_ends(plan: Plan, tensor: str, axis: int) -> list[int]:
    """Positions behind what each tile of a group reads of a tensor, where the core that calls the
    host loads it tile by tile along `axis`; else none."""
    schedule, walked = plan.schedule, plan.walked
    if len(schedule.loops) != 1 or [*schedule.cores] != [0] or tensor not in plan.held:
        return []
    windows = walked[0].holds[tensor]
    ends = [sum(box[axis]) for box in windows.boxes if box is not None]
    moving = [each for each, _ in windows.moving] == [axis]
    return ends if moving and len(ends) == walked[0].count else []


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


def called_in_time(items: Iterable[Item]) -> Iterator[Item]:
    """`items` of a core, where each piece of a call of the host behind the second comes when the
    one before it is awaited: in the host's short queue it would keep the front end from what reads
    the first."""
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
            count = named.index(True) + 2 if any(named) else 0  # with the call behind it
            yield from held[:count]
            held = held[count:]
        yield item
    yield from held

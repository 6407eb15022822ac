"""The order in which a core's instructions are issued: loads ahead of the work that hides them.

One front end issues in order into finite queues, so a long run of products keeps the loads behind
it from being issued. What an engine does in which order stays as it is; between engines only tokens
and barriers count, and where the hardware interlocks, operands.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import compiler.codegen.issue_order.units as units
from compiler.codegen.issue_order.clock import Depth, IssueClock, as_clocks_see, issued_by
from compiler.codegen.issue_order.loops import LoopOrder, SoftwarePipeline
from compiler.passes import Omittable, within
from simmodel.arch.record import Arch
from simmodel.isa import Item, Loop, Sync
from simmodel.isa.region import Register, replace
from simmodel.program.substitute import renamed


@dataclass(frozen=True)
class OrderInstructions(Omittable):
    """Issues what starts first, first.

    Before, and after with two slots for the operands:

        for t: load t; product t        load 0; for t: load t + 1, product t; product n
    """

    distance: Annotated[int, within(0, 8)] = 2
    """Most iterations that one instruction of a loop is issued ahead of another."""
    turns: bool = False
    """Whether one engine of a core works at a time, which takes fewest tokens."""

    def apply(
        self,
        streams: Sequence[Sequence[Item]],
        arch: Arch,
        tokens: Sequence[Mapping[str, int]],
        registers: Sequence[Register] = (),
    ) -> tuple[tuple[Item, ...], ...]:
        """The stream of each core in a better order, or as it is; what is found for one loop or
        stream serves its likes on other cores. Streams never wait for a token where they are
        executed one item after another from the initial counts of `tokens`; with `registers`,
        lengths that are known when it runs, accesses are apart at all of them."""
        known: dict[Hashable, SoftwarePipeline] = {}
        orders: dict[Hashable, Sequence[int]] = {}
        own = frozenset(name for counts in tokens for name in counts)
        users = units.users_of(streams, arch)
        told, parts = units.remote_waits_of(streams, arch)
        first = units.Pricer(arch, users, own, told)
        pricers = (replace(first, mine=mine) for mine in parts)
        # A register is like a loop that turns backwards from the upper edge.
        around = {register.name: register.low - register.high + 1 for register in registers}
        return tuple(
            self._ordered(
                tuple(stream), _IssueSequence(self, pricer, known, orders), counts, around
            )
            for stream, pricer, counts in zip(streams, pricers, tokens, strict=True)
        )

    def _ordered(
        self, stream: tuple[Item, ...], sequence: _IssueSequence, tokens: Mapping[str, int],
        around: Mapping[str, int],
    ) -> tuple[Item, ...]:  # fmt: skip
        if not self.enabled or self.turns or not units.plays(stream, tokens):
            return stream
        atoms, arch = sequence.merged_units(stream, tokens, around), sequence.pricer.arch
        alone = arch.core_count == 1 or arch.front_end.sync == "interlock"
        # Where hardware interlocks addresses decide, and these differ by core.
        key = None if alone else as_clocks_see(atoms, tokens)
        if (order := sequence.orders.get(key)) is None:
            order = _best_order(atoms, arch, partial(IssueClock, arch, tokens, around))
            if not alone:
                sequence.orders[key] = order
        items = tuple(atoms[index].item for index in order)
        return items if units.plays(items, tokens) else stream


@dataclass(frozen=True)
class _IssueSequence:
    options: OrderInstructions
    pricer: units.Pricer
    known: dict[Hashable, SoftwarePipeline]
    """What was found for loops."""
    orders: dict[Hashable, Sequence[int]]
    """The same for streams."""

    def merged_units(
        self, items: Sequence[Item], counts: Mapping[str, int], loops: Mapping[str, int]
    ) -> list[units.IssueUnit]:
        """`items`, with the loops of several engines rotated."""
        result: list[units.IssueUnit] = []
        counts = dict(counts)  # behind the items so far
        for item in items:
            if isinstance(item, Loop) and len(units.engines(item)) > 1:
                result += self._pipeline_loop(item, counts, loops)
            else:
                result.append(self.pricer.issue_unit(item))
            units.pass_by(item, counts)
        return units.merge_staging_lanes(result)

    def _pipeline_loop(
        self, loop: Loop, counts: Mapping[str, int], loops: Mapping[str, int]
    ) -> list[units.IssueUnit]:
        inside = {**loops, loop.variable: loop.count}
        body = self.merged_units(loop.body, counts, inside)
        whole = Loop(loop.variable, loop.count, tuple(atom.item for atom in body))
        if loop.count < 2 or any(atom.cost.fence for atom in body):
            return [self.pricer.loop(whole, body)]
        order = LoopOrder(self.pricer.arch, whole, body, counts, inside, self.pricer.users)
        key = order.signature
        choice = self.known.get(key)
        if choice is None or not order.legal(choice):
            choice = order.best(self.options.distance, self.known)
            self.known[key] = choice
        return order.issue_units(choice, self.pricer)


def _best_order(
    atoms: list[units.IssueUnit], arch: Arch, fresh: Callable[..., IssueClock]
) -> Sequence[int]:
    """Whichever order of `atoms`, by their places, a `fresh` coarse clock likes best."""
    clock, starts, ready = fresh(), list[int](), list[int]()
    for atom in atoms:
        starts.append(clock.play(atom)[0])
        ready.append(clock.ready)
    best: Sequence[int] = range(len(atoms))
    least = _clock_cycles(atoms, fresh(queues=True))
    if least <= clock.now:
        return best
    depth = arch.front_end.depth
    late = [issued_by(atom, start, depth) for atom, start in zip(atoms, starts, strict=True)]
    orders = (
        tuple(sorted(best, key=lambda i: (times[i], not atoms[i].cost.load, i)))
        for times in (_loads_queued(atoms, starts, ready, depth), starts, late)
    )
    for found in dict.fromkeys(orders):
        cycles = _clock_cycles([atoms[i] for i in found], fresh(queues=True), least)
        if cycles < least:
            best, least = found, cycles
        if least <= clock.now:
            break
    return best


def _loads_queued(
    atoms: Sequence[units.IssueUnit], starts: Sequence[int], ready: Sequence[int], depth: Depth
) -> list[int]:
    """`starts`, but of loads when they are `ready` and find room in their queue: work may take
    longer than the clock says, and loads behind it in the stream would be issued late."""
    found, last = list[int](), dict[str, int]()
    queues: dict[str, deque[int]] = {}
    for atom, start, free in zip(atoms, starts, ready, strict=True):
        cost, time, behind = atom.cost, start, start + 1
        queue = queues.setdefault(cost.engines[0], deque(maxlen=depth(cost.engines[0])))
        if cost.load and cost.times == 1 and not (cost.fence or cost.meets):
            room = queue[0] if len(queue) == queue.maxlen else 0
            behind = time = min(start, max(free, room, last.get(cost.engines[0], 0)))
        last |= dict.fromkeys(cost.engines, behind)
        queue.append(start)
        found.append(time)
    return found


def _clock_cycles(atoms: list[units.IssueUnit], clock: IssueClock, limit: float = math.inf) -> int:
    """Cycles of `atoms`, played until these are no fewer than `limit`."""
    for atom in atoms:
        clock.play(atom)
        if clock.now >= limit:
            break
    return clock.now


# Work of equal engines, in turns: each gets its next instruction before the queue of one is full.


def interleaved(streams: Sequence[Sequence[Item]]) -> list[Item]:
    """One stream of several, each of which keeps its order; none waits for another one of them."""
    if len(streams) == 1:
        return list(streams[0])
    ahead = [item for stream in streams for item in stream[: _syncs(stream)]]
    rest = [list(stream[_syncs(stream) :]) for stream in streams]
    made: list[Item] = []
    for place in range(max(map(len, rest))):
        items = [stream[place] for stream in rest if place < len(stream)]
        loops = [item for item in items if isinstance(item, Loop)]
        if len(loops) == len(items) and len({loop.count for loop in loops}) == 1:
            variable, count = loops[0].variable, loops[0].count
            bodies = [
                [renamed(inner, loop.variable, variable) for inner in loop.body] for loop in loops
            ]
            made.append(Loop(variable, count, tuple(interleaved(bodies))))
        else:
            made += items
    return [*ahead, *made]


def _syncs(stream: Sequence[Item]) -> int:
    """What only waits or signals, before anything else."""
    return next((n for n, item in enumerate(stream) if not isinstance(item, Sync)), len(stream))

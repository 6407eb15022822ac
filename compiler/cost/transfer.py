"""What it takes to copy a box of a tensor between far memory and a buffer on chip.

A transfer falls into the pieces that are contiguous at both ends, at most one per cycle; far memory
moves whole bursts for each run that is contiguous there; and what has more dimensions than the
engine walks is several transfers, each with its own start-up and latency. Sizes may be arrays over
candidates; for one box all this agrees with the instruction (`simmodel.isa.Copy`).

    rows 0..3 of [64, 28, 28]     64 pieces of 4 * 28 elements     channels last: 4 * 28 * 64
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from compiler.cost.multicast import EARLY, Cores, MulticastRoute
from compiler.cost.overlap import (
    Stage,
    copy_rate,
    far_latency,
    far_load,
    far_rate,
    network,
    path,
    shared_rate,
)
from compiler.tensor_ir.nest import RowPlacement, Tensor, order_of
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch, CopyEngine
from simmodel.isa.base import granule
from simmodel.isa.copy import least_cycles


@dataclass(frozen=True)
class Transfer:
    """One box, or one for each candidate."""

    cycles: Any
    """Of one core, start-up and latency included."""
    bytes: Any
    """That far memory moves for one core: of what several share, a part."""
    near: Any
    """Bytes of the buffer on chip."""
    passing: Any = 0.0
    """Of `cycles`, those of the engine that passes on to other cores what is loaded."""
    staged: Any = 0.0
    """Bytes that shared memory moves for one core so that it and others have what is loaded."""
    waits: Any = False
    """Whether the engine that loads fetches others' parts as soon as its own is passed on."""
    ends: Any = 0.0
    """Cycles of the first and the last of many in which the engine does nothing else than fetch
    others' parts, as far memory serves cores in turn."""

    @property
    def busy(self) -> Any:
        """Cycles after which the next one can begin."""
        apart = np.maximum(self.cycles - self.passing, self.passing)
        return np.where(self.waits, self.cycles, apart)


@dataclass(frozen=True)
class Path:
    """The way between far memory and memory on chip, which `cores` cores use at once."""

    arch: Arch
    cores: int
    far: str
    """dram, flash or shared."""
    near: str
    store: bool = False
    alike: Any = 1
    """Cores that load the same."""
    way: MulticastRoute | None = None
    """How they share it."""
    early: Any = False
    """Whether each loads its own part while it fetches others' parts of the load before: some
    cores do so early and others late, so that DRAM serves few at a time."""

    @classmethod
    def load(
        cls, arch: Arch, cores: Cores, far: str, near: str, alike: Any = 1, early: Any = False
    ) -> Path:
        """The way of loads that `alike` of `cores` have in common."""
        return cls(arch, cores.count, far, near, alike=alike, way=cores.way, early=early)

    @property
    def staged(self) -> bool:
        """Whether what is loaded may go through shared memory."""
        return self.way is not None and self.way.staged and self.far != "shared"

    @property
    def engine(self) -> CopyEngine:
        """That copies."""
        return path(self.arch, *self.ends)

    @property
    def ends(self) -> tuple[str, str]:
        """Where the transfer begins, and where it ends."""
        return (self.near, self.far) if self.store else (self.far, self.near)

    @property
    def hops(self) -> float:
        """Cycles that the way over links between cores takes."""
        return network(self.arch, *self.ends)[1]

    @property
    def demand(self) -> float:
        """Share of what far memory leaves to a core that a transfer takes at full speed."""
        rate = far_rate(self.arch, self.far, self.cores, store=self.store)
        return min(1.0, copy_rate(self.arch, self.engine, self.far) / rate)

    def box(
        self, tensor: Tensor, sizes: Sequence[Any], order: Sequence[int] = (),
        buffer: Sequence[Any] = (), steps: Sequence[Any] = (),
    ) -> Transfer:  # fmt: skip
        """A box of `tensor`, which lies in far memory as its storage says.

        Args:
            tensor: what is copied.
            sizes: positions along each of its axes, with the border that is filled on the way.
            order: of its axes on chip, slowest first; default as in far memory.
            buffer: positions that it has room for there; default just these.
            steps: elements between neighbours along each axis there; default as these say.
        """
        if tensor.picked is not None or tensor.placed is not None:
            return self._row_transfer(tensor, sizes, order, buffer or sizes)
        inside = _clipped_sizes(tensor, sizes)
        strides = tensor.storage.strides
        far = order_of(tensor.shape, strides)
        there = CopyShape.of([(inside[a], strides[a], strides[a]) for a in reversed(far)])
        steps = steps or pitches(buffer or sizes, order or far)
        near = {a: (sizes[a], strides[a], steps[a]) for a in reversed(order or far)}
        joint, item = CopyShape.of(tuple(near.values())), size_of(tensor.dtype)
        size, space = there.elements * item, joint.elements * item
        times = self._times(near, far if self.store else [*near][::-1])
        return self._timed(size, there.run * item, joint.pieces, times, space)

    def _row_transfer(
        self, tensor: Tensor, sizes: Sequence[Any], order: Sequence[int], buffer: Sequence[Any]
    ) -> Transfer:
        """A box of rows that lie anywhere in a table; nobody shares what others pick."""
        rows = tensor.picked or tensor.placed
        assert rows is not None
        arch, engine, sizes = self.arch, self.engine, _clipped_sizes(tensor, sizes)
        steps = pitches(buffer, order or range(len(sizes)))
        inside = dict(zip(rows.along, rows.strides, strict=True))
        fastest = sorted(inside, key=lambda axis: inside[axis])
        row = [(sizes[axis], inside[axis], steps[axis]) for axis in fastest]
        counted = [*zip(rows.counted, rows.index.storage.strides, strict=True)][::-1]
        ahead = CopyShape.of([(sizes[axis], stride, steps[axis]) for axis, stride in counted])
        listed = CopyShape.of([(sizes[axis], stride, stride) for axis, stride in counted])
        there, joint = CopyShape.of([(n, s, s) for n, s, _ in row]), CopyShape.of(row)
        item, number = size_of(rows.table.dtype), size_of(rows.index.dtype)
        each, names = there.elements * item, listed.elements * number
        requests = there.pieces * np.ceil(there.run * item / engine.request)
        waits = requests * far_latency(arch, self.far) / engine.outstanding
        handled = np.maximum(np.maximum(joint.pieces, engine.indirect or 0.0), waits)
        own = np.maximum(
            ahead.elements * each / engine.bandwidth.at(arch.clock), ahead.elements * handled
        )
        own = np.maximum(own, least_cycles(engine, ahead.elements * requests, arch.clock))
        moved = ahead.elements * far_load(arch, each, there.run * item, self.far, store=self.store)
        moved = moved + far_load(arch, names, listed.run * number, self.far)
        times: Any = ahead.elements if isinstance(rows, RowPlacement) and rows.block else 1
        for axis in sorted(row, key=lambda axis: -axis[1]):
            over = ahead.dims + CopyShape.of(row).dims > engine.rank
            times, row = times * np.where(over, axis[0], 1), [a for a in row if a is not axis]
        once = engine.startup.cycles(arch.clock) + 2 * far_latency(arch, self.far) + self.hops
        rate = far_rate(arch, self.far, self.cores, store=self.store)
        space = ahead.elements * each
        return Transfer(times * once + np.maximum(own, moved / rate), moved, space)

    def run(self, size: Any) -> Transfer:
        """`size` contiguous bytes."""
        return self._timed(size, size, 1, 1, size)

    def _timed(self, size: Any, run: Any, pieces: Any, times: Any, space: Any) -> Transfer:
        """`size` bytes in runs of `run` bytes in far memory."""
        arch, engine = self.arch, self.engine
        rate = far_rate(arch, self.far, self.cores, store=self.store)
        latency, requests = far_latency(arch, self.far), size / engine.request
        own = np.maximum(size / copy_rate(arch, engine, self.far), pieces)
        if not engine.joins_runs:
            requests = size / np.maximum(run, 1) * np.ceil(run / engine.request)
            own = np.maximum(own, requests * latency / engine.outstanding)
        own = np.maximum(own, times * least_cycles(engine, requests / times, arch.clock))
        own = np.where(np.greater(times, 1), times * np.ceil(own / times), own)  # whole, each
        moved = far_load(arch, size, run, self.far, store=self.store)
        once = engine.startup.cycles(arch.clock) + latency + self.hops
        alone = Transfer(times * once + np.maximum(own, moved / rate), moved, space)
        return self._multicast_transfer(alone, once, own, moved / rate, times)

    def _multicast_transfer(
        self, alone: Transfer, once: float, own: Any, far: Any, times: Any
    ) -> Transfer:
        """`alone`, or what it takes where every core loads a part and gives it to all."""
        way, alike = self.way, self.alike
        if way is None or np.all(alike == 1) or not way.reaches(self.near, self.far):
            return alone
        size, mine = alone.near, alone.near / alike
        part = once + np.maximum(own, far) / alike
        passing = way.passing(mine, self.arch, self.cores)
        fetching = way.fetching(size - mine, self.arch, self.cores)
        ends: Any = 0.0
        pays = (alike > 1) & (times == 1) & way.holds(size, self.cores, alike)
        pays = pays & way.pays(alone.cycles, part, passing, fetching)
        if np.any(self.early) and way.staged:
            # Of cores that load alike, one wants DRAM at a time, as each does at its own place
            # among others' parts: most fetch these in two loads. So DRAM waits for each start-up.
            part = np.where(self.early, once + np.maximum(own, far / alike) / alike, part)
            twice = fetching + way.fetching(0, self.arch, self.cores)
            in_turn = alike * once + far / alike - part
            ends = np.where(pays & self.early & (in_turn > twice), 2 * fetching, 0.0)
            fetching = np.where(self.early, np.maximum(twice, in_turn), fetching)
        cycles = np.where(pays, part + passing + fetching, alone.cycles)
        moved = np.where(pays, alone.bytes / alike, alone.bytes)
        staged = np.where(pays, size, 0.0) if way.staged else 0.0
        waits = pays & np.logical_not(self.early) & way.staged
        passing = np.where(pays, passing, 0.0)
        return Transfer(cycles, moved, alone.near, passing, staged, waits, ends)

    def _times(self, near: Mapping[int, Axis], slowest: Sequence[int]) -> Any:
        """Transfers that the engine's rank makes of one: the slowest dimensions are walked one by
        one until the rest is within the rank."""
        rest, times = dict(near), 1  # type: dict[int, Axis], Any
        for axis in slowest:
            if len(rest) <= self.engine.rank:
                break
            over = CopyShape.of(tuple(rest.values())).dims > self.engine.rank
            times = times * np.where(over, rest.pop(axis)[0], 1)
        return times


def _clipped_sizes(tensor: Tensor, sizes: Sequence[Any]) -> list[Any]:
    """As many positions of each axis as there are."""
    pairs = zip(sizes, tensor.shape, strict=True)
    return [min(n, m) if isinstance(n, int) else np.minimum(n, m) for n, m in pairs]


Axis = tuple[Any, Any, Any]
"""Positions of a box along one axis, and the elements between neighbours at either end."""


def pitches(sizes: Sequence[Any], order: Sequence[int]) -> list[Any]:
    """Elements between neighbours along each axis of a buffer of `sizes` whose axes lie in `order`,
    slowest first."""
    steps: list[Any] = [1] * len(sizes)
    pitch: Any = 1
    for axis in reversed(order):
        steps[axis] = pitch
        pitch = pitch * sizes[axis]
    return steps


@dataclass(frozen=True)
class CopyShape:
    """A box as both ends of a transfer see it."""

    elements: Any
    run: Any
    """Elements that are contiguous at both ends."""
    dims: Any
    """Dimensions that the joint walk has."""

    @property
    def pieces(self) -> Any:
        """Contiguous pieces of the box."""
        return self.elements / np.maximum(self.run, 1)

    @classmethod
    def of(cls, axes: Sequence[Axis]) -> CopyShape:
        """The joint walk over `axes`, fastest first."""
        elements: Any = 1
        run: Any = 1
        dims: Any = 0
        reached: tuple[Any, Any] = (1, 1)
        contiguous: Any = True
        for size, *steps in axes:
            number = isinstance(size, int)
            if number and size == 1:
                continue
            joined = (reached[0] == steps[0]) & (reached[1] == steps[1])
            ends, moves = (steps[0] * size, steps[1] * size), size > 1
            elements = elements * size
            # Only what is contiguous from the first element on is one piece.
            if number and moves:
                contiguous = contiguous & joined
                dims = dims + np.logical_not(joined & (dims > 0))
                run, reached = np.where(contiguous, run * size, run), ends
                continue
            contiguous = np.where(moves, contiguous & joined, contiguous)
            dims = dims + (moves & ~(joined & (dims > 0)))
            run = np.where(moves & contiguous, run * size, run)
            reached = np.where(moves, ends[0], reached[0]), np.where(moves, ends[1], reached[1])
        return cls(elements, run, np.maximum(dims, 1))


@dataclass(frozen=True)
class RepeatedTransfer:
    """Transfers that are alike."""

    way: Path
    count: Any
    """Of one core, in all tiles: at least one."""
    once: Transfer
    constant: bool = False
    """Whether no group before this one makes what is copied."""


def passed_on(slots: int, flows: Sequence[RepeatedTransfer], work: Any) -> Any:
    """Cycles that slots are taken of what cores pass on to each other, shared by the slots: one is
    filled, passed on and worked on before any core fills it again.

        slot 0  load pass work load pass work         with two slots the array rests, though loads,
        slot 1       load pass work load pass         copies and products are each short enough
    """
    longest: Any = 0.0
    for flow in flows:
        if not np.any(flow.once.passing):
            continue
        # What is early waits in its slot while others' parts of the tile before are fetched.
        early, once = flow.way.early, flow.once
        taken = flow.count * (once.cycles + np.where(early, once.busy, 0.0)) + work
        taken = taken / np.where(early, max(slots, EARLY), slots)
        passes = (flow.once.passing > 0) & (flow.count > slots)
        longest = np.maximum(longest, np.where(passes, taken, 0.0))
    return longest


@dataclass(frozen=True)
class Traffic:
    """What loads and stores of a tiled layer take."""

    load: Stage
    """Of one core's busiest load engine."""
    store: Stage
    far: Mapping[str, Stage]
    """Of each far memory, for all cores."""
    bytes: Mapping[str, Any]
    """That each far memory moves for all cores."""
    lead: Any
    """Cycles in which the first constants arrive."""

    @property
    def longest(self) -> Any:
        """Cycles of what is busiest."""
        return reduce(
            np.maximum, (every for every, _ in (self.load, self.store, *self.far.values()))
        )


Engine = tuple[int, bool]
"""A copy engine's identity, and whether it stores."""
_Stream = tuple[float, Any]
"""The share of a memory off chip that an engine takes while it moves anything, and the cycles of
that for what it moves behind its first tile."""


def traffic(arch: Arch, cores: int, flows: Sequence[RepeatedTransfer]) -> Traffic:
    """What `flows` take together, on each of `cores` cores."""
    rates = {**arch.far_rates, "shared": shared_rate(arch, cores)}
    far: dict[str, Stage] = dict.fromkeys(rates, (0.0, 0.0))
    engines: dict[Engine, Stage] = {}
    streams: dict[str, dict[Engine, _Stream]] = {role: {} for role in arch.far_rates}
    moved: dict[str, Any] = dict.fromkeys(rates, 0.0)
    lead: Any = 0.0
    for flow in flows:
        home, rate = flow.way.far, rates[flow.way.far]
        size = cores * flow.once.bytes
        moved[home] = moved[home] + flow.count * size
        far[home] = _add_stage(far[home], flow.count * size / rate, size / rate)
        if flow.way.staged:
            _stage(flow, cores / rates["shared"], far, engines)
        key = id(flow.way.engine), flow.way.store
        cycles = flow.once.cycles
        lead = lead + (cycles if flow.constant else 0.0)
        every = flow.count * flow.once.busy + flow.once.ends
        engines[key] = _add_stage(engines.get(key, (0.0, 0.0)), every, cycles)
        if home in streams:
            before = streams[home].get(key, (flow.way.demand, 0.0))
            streams[home][key] = before[0], before[1] + (flow.count - 1) * size / rate
    sides: dict[bool, list[Stage]] = {False: [], True: []}
    for key, (every, once) in engines.items():
        late = sum(_meeting(key, (every, once), each) for each in streams.values())
        sides[key[1]].append((every + late, once))
    load, store = map(_longest, sides.values())
    return Traffic(load, store, far, moved, lead)


def _stage(
    flow: RepeatedTransfer, rate: float, far: dict[str, Stage], engines: dict[Engine, Stage]
) -> None:
    """What a load that goes through shared memory takes there, and of the engine that stores."""
    share = flow.once.staged * rate
    far["shared"] = _add_stage(far["shared"], flow.count * share, share)
    key = id(path(flow.way.arch, flow.way.near, "shared")), True
    passing = flow.once.passing
    engines[key] = _add_stage(engines.get(key, (0.0, 0.0)), flow.count * passing, 0.0)


def _meeting(key: Engine, stage: Stage, streams: Mapping[Engine, _Stream]) -> Any:
    """Cycles that an engine loses to others that want one memory off chip at the same time.

    An engine that moves something half of its time, and else waits for start-ups, meets half of
    what the others move; for as long its own transfer stands still, or slows down.
    """
    late: Any = 0.0
    if key not in streams:
        return late
    (every, once), (demand, mine) = stage, streams[key]
    under_way = np.minimum(mine / demand / np.maximum(every - once, 1), 1)
    for other, (its, cycles) in streams.items():
        excess = demand + its - 1
        if other != key and excess > 0:
            late = late + under_way * cycles / its * excess
    return late


def _add_stage(stage: Stage, every: Any, once: Any) -> Stage:
    return stage[0] + every, stage[1] + once


def _longest(stages: Sequence[Stage]) -> Stage:
    """Engines side by side."""
    every, once = (reduce(np.maximum, column) for column in zip((0.0, 0.0), *stages, strict=True))
    return every, once


# Cycles that the matrix engine's operands take between it and the memories on chip.


class Flows:
    """Bytes between the engine and memories, by what they share."""

    def __init__(self, arch: Arch) -> None:
        self.arch, self.memories = arch, arch.memories.on_chip()
        self.cycles: dict[tuple[str, bool], Any] = defaultdict(float)

    def add(self, role: str, size: Any, run: Any, *, times: Any = 1, write: bool = False) -> None:
        """`size` bytes in contiguous runs of `run` bytes, moved `times` over."""
        memory = self.memories[role]
        grain = granule(self.arch, role)
        moved = times * size * np.ceil(run / grain) * grain / np.maximum(run, 1)
        way = role, write and memory.split_ports
        if memory.mapping == "interleaved":
            self.cycles[way] = self.cycles[way] + moved / memory.bytes_per_cycle(write)
            return
        # Each operand may have banks of its own; more of them, where it does not fit in one.
        banks = np.minimum(memory.banks, np.ceil(size / memory.bank_size))
        cycles = moved / (memory.port_bytes(write) * np.maximum(banks, 1))
        self.cycles[way] = np.maximum(self.cycles[way], cycles)

    def longest(self) -> Any:
        """Cycles of the memory that is busiest with them."""
        return reduce(np.maximum, self.cycles.values(), 0.0)

"""What a placement costs in cycles: engines that meet in the banks of one memory.

In a memory of contiguous banks, an access gets the ports of the banks that it touches, in equal
parts. So two engines that work in one bank at the same time slow each other down, and an engine
whose operands all lie in one bank slows itself down. Which tasks run together is taken from their
shares of the phase's time; each combination is weighed by how likely it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from compiler.alloc.steady import SAMPLES, Phase, Stream
from compiler.options import Amount, Factor, Share, Within
from simmodel.arch import Memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Banks:
    """How conflicts in banks are judged, and what is tried against them."""

    rare: Share = 0.02
    """Probability below which a task, or a combination of tasks, is left out."""
    settling: Annotated[int, Within(0, 32)] = 2
    """Rounds until it is known how often tasks meet that slow each other down."""
    hidden: Factor = 0.1
    """Cycles that one costs that an engine loses while another one is busier."""
    again: Share = 0.05
    """Part of a layer's time that is lost where the next tile waits for its place."""
    rounds: Annotated[int, Within(0, 32)] = 3
    """Times that every buffer is tried elsewhere."""
    worth: Annotated[float, Within(1e-3)] = 1.0
    """Cycles that a step must save."""
    exchanged: Amount = 3
    """Buffers, where most cycles are lost, that are exchanged with others in the end."""


@dataclass(frozen=True)
class Traffic:
    """One phase in one memory."""

    phase: Phase
    memory: Memory
    streams: tuple[tuple[int, Stream], ...]
    """(task, stream) of those in this memory."""
    states: NDArray[np.bool_]
    """Combination x task: which tasks run."""
    chances: Floats
    """Of each combination."""
    times: Floats
    """Of each task, cycles of all its turns in one phase."""
    engines: Floats
    """Engine x task: 1 where the engine runs the task."""
    banks: Banks
    """How it is judged."""

    @cached_property
    def buffers(self) -> frozenset[str]:
        """Buffers that it touches."""
        return frozenset(stream.buffer for _, stream in self.streams)

    @property
    def columns(self) -> int:
        """Bank ports: once, or for each direction."""
        return self.memory.banks * (2 if self.memory.split_ports else 1)

    @cached_property
    def ports(self) -> Floats:
        """Bytes per cycle of each."""
        banks = self.memory.banks
        read = [float(self.memory.port_bytes(write=False))] * banks
        write = [float(self.memory.port_bytes(write=True))] * banks
        return np.array(read + (write if self.memory.split_ports else []))

    def demands(self, buffer: str, addresses: Ints, pitches: Ints) -> Floats:
        """Bytes per cycle (placement x task x moment x port) of one buffer's streams.

        Args:
            buffer: whose.
            addresses, pitches: of each placement.
        """
        shape = (len(addresses), len(self.times), SAMPLES, self.columns)
        found = np.zeros(shape)
        size = self.memory.bank_size
        bank = np.arange(self.memory.banks)
        for task, stream in self.streams:
            if stream.buffer != buffer:
                continue
            low = addresses[:, None] + pitches[:, None] * np.array(stream.slot)
            low = low + np.array(stream.low)
            first = np.minimum(low // size, self.memory.banks - 1)
            last = np.minimum((low + stream.length - 1) // size, self.memory.banks - 1)
            rate = stream.bytes / max(1.0, self.phase.tasks[task].cycles)
            part = rate / (last - first + 1)
            inside = (bank >= first[..., None]) & (bank <= last[..., None])
            start = self.memory.banks if stream.write and self.memory.split_ports else 0
            found[:, task, :, start : start + self.memory.banks] += inside * part[..., None]
        return found

    def lost(self, demands: Floats) -> Floats:
        """Cycles that each placement loses over all tiles.

        Args:
            demands: bytes per cycle, placement x task x moment x port.
        """
        slowed = self.times * self.slowness(demands)
        before = self.engines @ self.times
        after = slowed @ self.engines.T
        longer = after.max(axis=1) - before.max()
        return np.asarray(
            self.phase.times * (longer + self.banks.hidden * (after - before).sum(axis=1)),
            dtype=float,
        )

    def settled(self, demands: Floats) -> Traffic:
        """The same, with the times that tasks take under these demands (task x moment x port):
        whoever is slowed down is met by others less often."""
        found = self
        for _ in range(self.banks.settling):
            slowed = self.times * found.slowness(demands[None])[0]
            states, chances = _states(self.phase, slowed, self.banks.rare)
            found = replace(found, states=states, chances=chances)
        return found

    def slowness(self, demands: Floats) -> Floats:
        """By what factor each task is slower (placement x task), on average."""
        touching = demands > 0
        penalty = self.memory.conflict_penalty
        total = np.zeros((demands.shape[0], demands.shape[1]))
        weight = np.zeros(demands.shape[1])
        for state, chance in zip(self.states, self.chances, strict=True):
            tasks = np.flatnonzero(state)
            together = demands[:, tasks]
            crowd = touching[:, tasks].sum(axis=1, keepdims=True)
            room = self.ports / np.where(crowd > 1, 1 + penalty, 1.0)
            others = together.sum(axis=1, keepdims=True) - together
            # Each gets an equal share, and what the others leave of theirs.
            level = np.maximum(room / np.maximum(crowd, 1), room - others)
            slow = np.maximum(1.0, (together / level).max(axis=3)).mean(axis=2)
            total[:, tasks] += chance * slow
            weight[tasks] += chance
        return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), 1.0)


def traffic(
    phases: Sequence[Phase], names: Collection[str], memory: Memory, banks: Banks = Banks()
) -> list[Traffic]:
    """The phases as seen by one memory, which holds the buffers `names`."""
    found = []
    for whole in phases:
        least = banks.rare * whole.period
        phase = Phase(tuple(t for t in whole.tasks if t.time > least), whole.times)
        streams = tuple(
            (number, stream)
            for number, task in enumerate(phase.tasks)
            for stream in task.streams
            if stream.buffer in names
        )
        if streams:
            found.append(_traffic(phase, memory, streams, banks))
    return found


def _traffic(
    phase: Phase, memory: Memory, streams: tuple[tuple[int, Stream], ...], banks: Banks
) -> Traffic:
    owner = [[float(task.engine == engine) for task in phase.tasks] for engine in phase.engines]
    times = np.array([task.time for task in phase.tasks])
    states, chances = _states(phase, times, banks.rare)
    return Traffic(phase, memory, streams, states, chances, times, np.array(owner), banks)


def _states(phase: Phase, times: Floats, rare: float) -> tuple[NDArray[np.bool_], Floats]:
    """Which tasks run together how often, where all their turns take these `times`; without
    combinations less probable than `rare`."""
    busy = [
        [number for number, task in enumerate(phase.tasks) if task.engine == engine]
        for engine in phase.engines
    ]
    period = max(1.0, *(float(times[mine].sum()) for mine in busy))
    states, chances = [], []
    for combination in itertools.product(*([*mine, None] for mine in busy)):
        chance = 1.0
        for number, mine in zip(combination, busy, strict=True):
            idle = max(0.0, 1.0 - float(times[mine].sum()) / period)
            chance *= idle if number is None else float(times[number]) / period
        running = [number for number in combination if number is not None]
        if running and chance >= rare:
            states.append([number in running for number in range(len(phase.tasks))])
            chances.append(chance)
    found = np.array(states, dtype=bool).reshape(-1, len(phase.tasks))
    return found, np.array(chances)

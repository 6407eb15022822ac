"""The cost model: cycles of a tiled group from work, traffic and how they overlap.

Engines work side by side, so a group takes the longest of matrix, vector and memory time (never
their sum), plus what nothing hides: the first load, the last store, and the barrier between groups.
Instruction cycles come from the instructions' own methods; all arithmetic is numpy-friendly, so one
call prices thousands of candidates.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.tensor_ir.nest import HostNode, Tensor
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch, CopyEngine
from simmodel.isa import HostCall
from simmodel.isa.region import Address, Operand

Stage = tuple[Any, Any]
"""Cycles of an engine, or of a memory, for all tiles and for one."""


def path(arch: Arch, source: str, target: str) -> CopyEngine:
    """The copy engine between two memories; any, where there is none."""
    return arch.copy_[arch.copy_engine(source, target) or next(iter(arch.copy_))]


def copy_rate(arch: Arch, engine: CopyEngine, far: str = "dram") -> float:
    """Bytes per cycle that one core's copy engine sustains from or to the memory `far`."""
    rate = engine.bandwidth.at(arch.clock)
    latency = far_latency(arch, far)
    return min(rate, engine.outstanding * engine.request / latency) if latency else rate


def sustained_rate(arch: Arch, engine: CopyEngine, far: str = "") -> float:
    """Bytes per cycle of one core's copy engine that has the memory off chip `far` to itself;
    default: the one with the constants, where it reads that."""
    far = far or (arch.constants if arch.constants in engine.from_ else "dram")
    return min(copy_rate(arch, engine, far), arch.far_rates[far])


def startup_bytes(arch: Arch, engine: CopyEngine, far: str = "") -> float:
    """Bytes that a copy engine moves in the time in which a load of constants begins."""
    far = far or arch.constants
    begin = engine.startup.cycles(arch.clock) + far_latency(arch, far)
    return sustained_rate(arch, engine, far) * begin


def far_latency(arch: Arch, far: str) -> int:
    """Cycles from a request to the first byte of a memory off chip or of shared memory."""
    shared = arch.memories.shared
    if far != "shared" or shared is None:
        return arch.far_latencies.get(far, arch.dram_latency)
    return shared.latency.cycles(arch.clock)


def far_rate(arch: Arch, far: str, cores: int, *, store: bool = False) -> float:
    """Bytes per cycle that a memory off chip, or shared memory, and the links to it leave to one of
    `cores`; buses off chip are not counted."""
    shared, ends = arch.memories.shared, ("local", far) if store else (far, "local")
    if far != "shared" or shared is None:
        rate = arch.far_rates.get(far, arch.dram_bytes_per_cycle) / cores
        return min(rate, network(arch, *ends)[0])
    near = min(cores, arch.cores)
    rate = shared.bytes_per_cycle(store) / (near if shared.level == "cluster" else cores)
    users = {"chip": cores, "cluster": near, "core": 1}
    for link in arch.links.values():
        if link.topology == "bus" and far in (link.to if store else link.from_):
            rate = min(rate, link.bandwidth.at(arch.clock) / users[link.scope])
    return min(rate, network(arch, *ends)[0])


def network(arch: Arch, source: str, target: str, *, everyone: bool = False) -> tuple[float, float]:
    """What links between cores do to copies from `source` to `target`, one of each core at the same
    time: bytes per cycle that they leave to each, and the mean of the cycles that hops take.
    `everyone`: each copy reaches all cores, as those from core to core do."""
    ends = [None if role in (*OFF_CHIP, "shared") else () for role in (source, target)]
    every = (*range(arch.core_count),) if everyone or ends == [(), ()] else ends[1]
    rate, late = math.inf, 0.0
    for link in arch.links.values():
        grid = arch.grid(link)
        if grid is not None and source in link.from_ and target in link.to:
            part, hops = grid.usual(ends[0], every)
            rate = min(rate, link.bandwidth.at(arch.clock) / part) if part else rate
            late += link.latency.cycles(arch.clock) * hops
    return rate, late


def shared_rate(arch: Arch, cores: int) -> float:
    """Bytes per cycle that all shared memory which `cores` cores reach serves."""
    shared = arch.memories.shared
    if shared is None:
        return arch.dram_bytes_per_cycle
    instances = -(-cores // arch.cores) if shared.level == "cluster" else 1
    rate = shared.bytes_per_cycle()
    return instances * (rate + shared.bytes_per_cycle(True) if shared.split_ports else rate)


def far_load(arch: Arch, size: Any, run: Any, far: str = "dram", *, store: bool = False) -> Any:
    """Bytes that a memory off chip moves for `size` bytes in contiguous runs of `run` bytes, or
    could in the time that it takes; shared memory moves what it is asked for."""
    if far == "shared":
        return size
    burst = arch.memories.off_chip()[far].burst
    run = np.maximum(run, 1)
    moved = size * (np.ceil(run / burst) * burst / run)
    return arch.far_load(far, moved, size / run, write=store)


def pipelined(slots: int, stages: Sequence[Stage], memories: Collection[Stage] = ()) -> Any:
    """Cycles of tiles that pass through engines which work side by side.

        load      111222333                three tiles of 3, 2 and 1 cycles: the busiest engine's
        matrix       11 22 33              9, and what the others take for one tile, before it
        store          1  2  3             starts or after it has ended: 9 + 2 + 1

    `stages` are of engines, in the order of a tile, `memories` of what all loads and stores share.
    With one of `slots` between two engines these take turns.
    """
    behind: Any = 0.0
    for every, once in (*stages, *memories):
        behind = np.maximum(behind, every - once)
    for (every, once), (after, each) in pairwise(stages) if slots == 1 else ():
        behind = np.maximum(behind, every - once + after - each)
    return sum(once for _, once in stages) + behind


def resting(slots: int, total: Any, stages: Sequence[Stage]) -> Any:
    """Cycles of `total` behind the last load: loads run ahead of the work on their tiles by as many
    tiles as there are slots, and of the store; the load's stage is the first, the store's the
    last."""
    (load, _), *work, (_, store) = stages
    return np.minimum(total - load, slots * sum(once for _, once in work) + store)


# What groups take one after another.


StepCycles = tuple[float, float, float]
"""`total`, `lead` and `rest` of the `Estimate` of a group."""
HOST_CALL: StepCycles = (0.0, 0.0, 0.0)
"""A call of the host, with which nothing overlaps; its own cycles are the same in all orders."""


def in_turn(steps: Iterable[StepCycles], rest: float = 0.0) -> Iterator[float]:
    """What each of several steps adds to those before it, the first to one with `rest`: constants
    of a group arrive while the group before is at work on what it has."""
    for total, lead, after in steps:
        yield total - min(lead, rest)
        rest = after


# What a call of the host takes: the instruction's own cycles, on whole tensors in DRAM.


def host_cycles(node: HostNode, tensors: Mapping[str, Tensor], arch: Arch) -> int:
    """Cycles of the core's clock from the call to its last byte; none where nobody is called."""
    if node.pick is not None:
        return 0
    inputs, outputs = (
        tuple(Operand("dram", Address(0), t.shape, t.storage.strides, t.dtype) for t in side)
        for side in (map(tensors.__getitem__, names) for names in (node.inputs, node.outputs))
    )
    call = HostCall(payload=0, inputs=inputs, outputs=outputs, operations=node.operations)
    return call.startup(arch) + call.cycles(arch)

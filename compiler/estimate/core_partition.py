"""How cores would divide a layer, and what each of them computes and loads for that.

The one idea: a layer is cut by rows or by channels, whichever takes less, before anything is
scheduled:

    by rows        every core loads all constants, or a part that it gives to the others; maps stay
                   where they are
    by channels    every core loads its own part of the constants, and gets the parts of the map
                   that the others have made

Loads begin with the start-up of their engine and the latency of DRAM, which many small ones add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.cost.multicast import Cores, MulticastRoute
from compiler.cost.overlap import copy_rate, far_latency, network, path
from compiler.cost.transfer import Path
from compiler.estimate.activity import engine_events, memory_cycles
from compiler.geometry.cuts import channel_axis, cut_axes
from compiler.schedule.tiling.bounds import in_one_piece
from compiler.schedule_ir.layer import Layer
from compiler.target.layout import left_order
from simmodel.arch.record import Arch
from simmodel.isa.copy import link_latency
from simmodel.trace import Events

Sizes = tuple[int, ...]


def by_rows(shape: Sizes, cores: int) -> Sizes:
    """The largest part of a result where cores take positions each, batch first."""
    left, part = cores, list(shape)
    for axis in cut_axes(shape):
        taken = min(left, part[axis])
        part[axis] = -(-part[axis] // taken)
        left //= taken
    return tuple(part)


def by_channels(shape: Sizes, cores: int) -> Sizes:
    """The largest part of a result where cores take channels each."""
    axis = channel_axis(len(shape))
    return tuple(-(-n // min(n, cores)) if d == axis else n for d, n in enumerate(shape))


@dataclass(frozen=True)
class Computed:
    """Cycles of the busier engine of a layer or of a memory on the chip, on the core with the
    largest part."""

    whole: float
    """Where one core does it all."""
    rows: float
    channels: float
    events: Events = field(default_factory=Events)
    """What its engines do."""


def computed(layer: Layer, slots: int, arch: Arch) -> Computed:
    """Of a layer in one piece, without halos."""
    events, shape, cores = engine_events(layer, arch), layer.result.shape, arch.core_count
    # What a core takes of the cycles of a layer that all of them share.
    parts = (shape, by_rows(shape, cores), by_channels(shape, cores)) if cores > 1 else ()
    engines, *shares = in_one_piece(layer, arch, slots, (None, *parts))
    whole = max(engines, memory_cycles(events, arch))
    if not any(shares[:1]):
        return Computed(whole, whole, whole, events)
    every, rows, channels = shares
    return Computed(whole, whole * rows / every, whole * channels / every, events)


@dataclass(frozen=True)
class LayerPartition:
    """A layer as it is divided."""

    computing: float
    """Cycles of the busier engine."""
    loading: float
    """Cycles in which each core loads the constants that nobody has loaded before."""
    held: float
    """Bytes of these on the chip, in all cores."""
    passing: float
    """Cycles until each core has what the others made of the map."""
    moved: float
    """Bytes off chip that bring the constants."""
    spread: float = 0.0
    """Bytes of maps that each core takes from the others."""


class CorePartition:
    """Layers of a network on some cores of one machine."""

    def __init__(self, arch: Arch, cores: int, way: MulticastRoute | None) -> None:
        """`way`: how one core's load reaches others."""
        self._arch, self._way, self._count = arch, way, cores
        matrix = arch.matrix
        self._near = matrix.weights if matrix.present else "local"
        self._first = far_latency(arch, "dram") + min(
            engine.startup.cycles(arch.clock)
            for engine in arch.copy_.values()
            if "dram" in engine.from_
        )

    def of(
        self, work: Sequence[Computed], new: Sequence[Sequence[int]], maps: Sequence[int]
    ) -> list[LayerPartition]:
        """Each layer of a network the way it is done in the least time.

        Args:
            work: what they take of engines.
            new: of each, bytes of each of the constants that it is the first to read.
            maps: of each, bytes of what it reads besides.
        """
        sizes = np.array([size for own in new for size in own], dtype=float)
        ends = np.cumsum([0, *map(len, new)])
        every, own = (np.cumsum(np.pad(self._loads(sizes, alike), ((0, 0), (1, 0))), axis=1)
                      for alike in (True, False))  # fmt: skip
        (whole, crossed), (parts, _) = (np.diff(each[:, ends]).tolist() for each in (every, own))
        found, passing = [], self._passing(np.array(maps, dtype=float)).tolist()
        for at, cycles in enumerate(work):
            size, loading = sum(new[at]), whole[at]
            if self._count == 1:
                found.append(LayerPartition(cycles.whole, loading, size, 0.0, size))
                continue
            held = size * self._count
            rows = LayerPartition(cycles.rows, loading, held, 0.0, crossed[at])
            apart = LayerPartition(cycles.channels, parts[at], size, passing[at], size, maps[at])
            found.append(min(rows, apart, key=lambda p: max(p.computing, p.loading) + p.passing))
        return found

    def _loads(self, sizes: Any, alike: bool) -> Any:
        """Of loads of constants, of all of them by each core or of a part: cycles, and bytes that
        cross DRAM."""
        cores = Cores(self._count, way=self._way if alike else None)
        far = self._arch.constants
        among = min(self._count, (self._way.reach if self._way else 0) or self._count)
        way = Path.load(self._arch, cores, far, self._near, among if alike else 1)
        once = way.run(sizes if alike else sizes / self._count)
        return np.stack([once.busy, once.bytes * self._count])

    def _passing(self, sizes: Any) -> Any:
        """Cycles until every core has all of maps of so many bytes, of which it has made a part."""
        arch, count = self._arch, self._count
        between = arch.copy_engine("local", "local")
        if between is not None:
            engine = arch.copy_[between]
            rate, hops = network(arch, "local", "local")
            once = engine.startup.cycles(arch.clock) + link_latency(arch, "local", "local") + hops
            sent = sizes / count * (1 if engine.broadcast else count - 1)
            return once + sent / min(engine.bandwidth.at(arch.clock), rate)
        far = "dram" if arch.memories.shared is None else "shared"
        store = Path(arch, count, far, "local", store=True).run(sizes / count)
        return store.cycles + Path(arch, count, far, "local").run(sizes).cycles

    def copies(
        self, parts: Sequence[LayerPartition], crossing: tuple[Any, Any], kept: Any
    ) -> Iterator[tuple[str, str, Any]]:
        """Bytes from one memory to another for each layer: its constants, what is `crossing` DRAM
        in and out, what cores pass on, and what is `kept` on the chip for its reader."""
        constants = [(part.moved, part.held, part.spread) for part in parts]
        moved, held, spread = np.array(constants, dtype=float).reshape(-1, 3).T
        passed = spread * (self._count - 1)
        yield self._arch.constants, self._near, moved
        yield self._near, self._near, held - moved
        yield "dram", "local", crossing[0]
        yield "local", "dram", crossing[1]
        if self._arch.memories.shared is not None:
            yield "local", "shared", kept
            yield "shared", "local", kept + passed
        elif self._count > 1:
            yield "local", "local", passed

    def ahead(self, free: Any) -> Any:
        """Bytes of constants that may wait, where the memories have so many `free` beside what a
        layer holds: where a memory is for weights alone, it is that one."""
        if self._near == "local":
            return free
        size = self._arch.memories.on_chip()[self._near].size * self._count
        return np.full_like(free, size)

    def input_load_cycles(self, layer: Layer, name: str) -> float:
        """Cycles in which a core loads its part of a map of the network's inputs: where the array
        walks it in another order than it lies, element by element."""
        tensor, arch = layer.tensors[name], self._arch.with_array(layer.binding.array)
        sizes = by_rows(tensor.shape, self._count)
        on_array = layer.binding.engine == "matrix" and layer.head.operands[0].tensor == name
        near = arch.matrix.input if on_array else "local"
        order = left_order(tensor, layer.head, arch) if on_array else ()
        return float(Path(arch, self._count, "dram", near).box(tensor, sizes, order).cycles)

    def dram_cycles(self, count: Any, size: Any) -> Any:
        """Cycles of `size` bytes of `count` maps between DRAM and all cores."""
        arch = self._arch
        rate = self._count * copy_rate(arch, path(arch, "dram", "local"))
        return count * self._first + size / min(arch.dram_bytes_per_cycle, rate)

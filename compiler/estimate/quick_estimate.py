"""What a network should take, layer by layer, without a schedule: milliseconds on each machine of
a sweep.

The one idea: each layer takes the longest of its engines, priced in one piece as the search's own
bounds are and divided among cores (`compiler.estimate.core_partition`), and of what must cross DRAM
for it:

    constants    once, and while layers before are at work, as far as the memories have room
    maps         where they have no room for it as a whole, nor, between neighbours, for some rows
                 beside the constants of both
    again        what neither stays as a whole nor goes with the rest as a whole, piece by piece

What is read and written in a memory on the chip takes at least what the peak of its banks and ports
gives. Nothing is cut, placed or ordered, so halos, banks that several want at once and what
schedules lose are not known; no network takes less than `compiler.estimate.network_bound` says.
What takes energy is counted along (`compiler.estimate.activity`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from compiler.context import CompileOptions, Context
from compiler.cost.overlap import host_cycles
from compiler.cost.work import product_startup
from compiler.estimate.activity import copy_events
from compiler.estimate.core_partition import Computed, CorePartition, LayerPartition, computed
from compiler.estimate.network_bound import Demands, NetworkEstimate, attainable, room
from compiler.pipeline import bind, fuse_tails, nests
from compiler.schedule.tracking import TrackedCache
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch
from simmodel.trace import Events

_KEPT = 0.5
"""Share of the memories on the chip that a map may take and stay there."""
_ROWS = 4
"""Rows of a map that neighbours hand on at once."""
_MOST = 64
"""Forms of one network that are remembered."""


@dataclass(frozen=True)
class _Bound(Demands):
    """A network that is bound, what its layers take of engines by what that reads of them, and what
    they read from memory."""

    engines: TrackedCache[tuple[Computed, ...]] = field(
        default_factory=lambda: TrackedCache(_MOST), compare=False, repr=False
    )

    @cached_property
    def stored(self) -> dict[str, int]:
        """Bytes of each tensor."""
        return {name: tensor.stored for name, tensor in self.graph.tensors.items()}

    @cached_property
    def maps(self) -> list[list[str]]:
        """What each layer reads that is no constant."""
        tensors = self.graph.tensors
        return [[n for n in layer.inputs if tensors[n].data is None] for layer in self.layers]

    @cached_property
    def constants(self) -> list[list[str]]:
        """The constants that each layer reads."""
        pairs = zip(self.layers, self.maps, strict=True)
        return [[name for name in layer.inputs if name not in maps] for layer, maps in pairs]

    @cached_property
    def new(self) -> list[list[int]]:
        """Bytes of each of the constants of a layer that none before it has loaded."""
        loaded, found = set[str](), []
        for names in self.constants:
            own = {self.graph.buffer_of(n): self.stored[n] for n in names}
            found.append([size for buffer, size in own.items() if buffer not in loaded])
            loaded |= own.keys()
        return found

    @cached_property
    def far(self) -> set[str]:
        """Maps that are in DRAM in any case: those of the network's ends, and of the host."""
        graph = self.graph
        calls = [step for step in graph.steps if isinstance(step, HostNode)]
        ends = (*graph.inputs, *graph.outputs)
        return {*ends, *(name for call in calls for name in (*call.inputs, *call.outputs))}

    @cached_property
    def handed_on(self) -> dict[str, int]:
        """Maps that nobody reads but the layer behind the one that makes them -> its number."""
        last = {name: number for number, maps in enumerate(self.maps) for name in maps}
        makers = enumerate(layer.result.name for layer in self.layers)
        return {name: at for at, name in makers if last.get(name) == at + 1}

    def computed(self, arch: Arch, slots: int) -> tuple[Computed, ...]:
        """What each layer takes of the engines of a machine."""
        return self.engines.of(slots, arch, {}, lambda seen: computed(self.layers, slots, seen))


@dataclass
class QuickEstimator:
    """A network (of `prepared`) on any machines: as it is bound to engines, it is remembered by
    what that has read of the machine."""

    model: ir.Model
    bound: TrackedCache[_Bound] = field(default_factory=lambda: TrackedCache(_MOST))

    def on(self, arch: Arch, options: CompileOptions) -> NetworkEstimate:
        """What it should take on `arch`. Raises UnsupportedModel for operators that can run
        nowhere."""
        dtype = options.dtype or arch.types[0]

        def bound(seen: Arch) -> _Bound:
            ctx = Context(seen, options)
            network = bind(fuse_tails(nests(self.model, ctx), ctx), ctx)
            return _Bound(network.graph, network.parts)

        asked = dtype, options.host, repr(options.stages)
        demands = self.bound.of(asked, arch, {}, bound)
        graph, work = demands.graph, demands.works(arch)
        # A compiler leaves cores idle that would not help.
        every = (_taken(demands, arch, options, cores) for cores in sorted({1, arch.core_count}))
        total, events = min(every, key=itemgetter(0))
        calls = [step for step in graph.steps if isinstance(step, HostNode)]
        total += sum(host_cycles(call, graph.tensors, arch) for call in calls)
        host = sum(call.pick is None for call in calls)
        least = attainable(demands, work, arch)
        macs = sum(demands.least.macs.values())
        return NetworkEstimate(max(total, float(least.cycles)), host, least, events, macs)


def _taken(
    demands: _Bound, arch: Arch, options: CompileOptions, cores: int
) -> tuple[float, Events]:
    """Cycles of all layers on so many cores, and what happens there."""
    crossing = _Crossing(demands, arch, cores)
    parts = CorePartition(arch, cores, options.stages.share.multicast_route(arch))
    computing = demands.computed(arch, options.stages.plan.slots)
    maps = [sum(map(demands.stored.__getitem__, names)) for names in demands.maps]
    divided = parts.of(computing, demands.new, maps)
    moved = [crossing.of(number, parts) for number in range(len(computing))]
    cycles = [each.cycles for each in moved]
    free = (room(arch, cores) - np.array([each.held for each in moved])).clip(0.0)
    copies = (
        copy for part, each in zip(divided, moved, strict=True)
        for copy in parts.copies(part, (each.read, each.written), each.kept)
    )  # fmt: skip
    events = Events.total([*(each.events for each in computing), copy_events(copies, arch)])
    # The first result of a layer goes through both engines before it can go on.
    first = arch.vector.startup.cycles(arch.clock)
    first += product_startup(arch) if arch.matrix.present else 0
    return _in_turn(divided, cycles, first, _KEPT * parts.ahead(free)), events


def _in_turn(
    parts: Sequence[LayerPartition], crossing: Sequence[float], first: float, space: Any
) -> float:
    """Cycles of layers one after another, whose maps are `crossing` DRAM for so long: while one
    computes, constants of those behind it arrive, as many bytes as there is `space` for."""
    held = np.cumsum([0.0, *(part.held for part in parts)])
    loading = np.cumsum([0.0, *(part.loading for part in parts)])
    most = np.interp(held[1:] + space, held, loading) - loading[1:]
    total = ahead = 0.0
    for part, maps, limit in zip(parts, crossing, most.tolist(), strict=True):
        here = min(ahead, part.loading)
        wanted = part.loading - here + maps
        time = max(first + part.computing, wanted)
        ahead = min(ahead - here + time - wanted, limit)
        total += time + part.passing
    return total


class _LayerTraffic(NamedTuple):
    """What a layer moves besides its constants."""

    cycles: float
    """In which maps cross DRAM, both ways."""
    held: float
    """Bytes of maps and constants on the chip while it runs."""
    read: float
    """Bytes of DRAM."""
    written: float
    kept: float
    """Bytes of a result that stays on the chip."""


class _Crossing:
    """What stays on the chip between the layers of a network, and what each of them moves."""

    def __init__(self, demands: _Bound, arch: Arch, cores: int) -> None:
        self._demands, self._stored = demands, demands.stored
        self._room = _KEPT * room(arch, cores)
        self._core = self._room / cores

    def of(self, number: int, parts: CorePartition) -> _LayerTraffic:
        """What one layer moves besides its constants."""
        demands, layer = self._demands, self._demands.layers[number]
        maps = [*demands.maps[number], layer.result.name]
        names = [name for name in maps if self._crosses(name)]
        result = self._stored[layer.result.name]
        written = result if layer.result.name in names else 0
        read = sum(self._stored[name] for name in names) - written + self._again(number)
        cycles = parts.dram_cycles(len(names), read + written) if names else 0.0
        given = (name for name in layer.inputs if name in demands.graph.inputs)
        entering = max((parts.input_load_cycles(layer, name) for name in given), default=0.0)
        held = sum(map(self._row_bytes, maps)) + self._constant_bytes(number)
        return _LayerTraffic(max(cycles, entering), held, read, written, result - written)

    def _again(self, number: int) -> float:
        """Bytes that a layer loads again, whose operands both take more than half of the room: all
        of the one for each piece of the other."""
        weights, half = self._constant_bytes(number), self._core
        source = max(map(self._stored.__getitem__, self._demands.maps[number]), default=0)
        if not self._demands.layers[number].product or weights <= half or source <= half:
            return 0.0
        return min((weights / half - 1) * source, (source / half - 1) * weights)

    def _constant_bytes(self, number: int) -> int:
        return sum(map(self._stored.__getitem__, self._demands.constants[number]))

    def _crosses(self, name: str) -> bool:
        """Whether a map goes through DRAM between those who make and read it."""
        if name in self._demands.far or self._stored[name] <= self._room:
            return name in self._demands.far
        maker = self._demands.handed_on.get(name)
        if maker is None:
            return True
        both = self._constant_bytes(maker) + self._constant_bytes(maker + 1)
        return both + 2 * self._row_bytes(name) > self._core

    def _row_bytes(self, name: str) -> float:
        """Bytes of some rows of a map, or of all of a small one."""
        tensor = self._demands.graph.tensors[name]
        lines = tensor.shape[2] if len(tensor.shape) > 2 else 1
        return self._stored[name] * min(1.0, _ROWS / lines)

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
from compiler.schedule_ir.layer import Layer
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
    """A network that is bound, and what its layers take of engines by what that reads of them."""

    engines: TrackedCache[tuple[Computed, ...]] = field(
        default_factory=lambda: TrackedCache(_MOST), compare=False, repr=False
    )

    @cached_property
    def stored(self) -> dict[str, int]:
        """Bytes of each tensor."""
        return {name: tensor.stored for name, tensor in self.graph.tensors.items()}

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


def quick_estimate(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on one machine."""
    return QuickEstimator(model).on(arch, options)


def _taken(
    demands: _Bound, arch: Arch, options: CompileOptions, cores: int
) -> tuple[float, Events]:
    """Cycles of all layers on so many cores, and what happens there."""
    crossing = _Crossing(demands, arch, cores)
    parts = CorePartition(arch, cores, options.stages.share.multicast_route(arch))
    computing = demands.computed(arch, options.stages.plan.slots)
    numbers = range(len(computing))
    new, maps = [crossing.new(n) for n in numbers], [crossing.read(n) for n in numbers]
    divided = parts.of(computing, new, maps)
    moved = [crossing.of(number, parts) for number in numbers]
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
        graph, self._layers = demands.graph, demands.layers
        self._tensors, self._stored = graph.tensors, demands.stored
        self._room = room(arch, cores)
        self._core = self._room / cores
        self._given = {*graph.inputs}
        self._ends = {*graph.inputs, *graph.outputs}
        self._constants = [
            sum(self._stored[n] for n in layer.inputs if self._tensors[n].data is not None)
            for layer in self._layers
        ]
        self._makers = {layer.result.name: at for at, layer in enumerate(self._layers)}
        self._last = {name: at for at, layer in enumerate(self._layers) for name in layer.inputs}
        self._seen: set[str] = set()

    def of(self, number: int, parts: CorePartition) -> _LayerTraffic:
        """What one layer moves besides its constants."""
        layer = self._layers[number]
        maps = [*self._maps(layer), layer.result.name]
        names = [name for name in maps if self._crosses(name)]
        result = self._stored[layer.result.name]
        written = result if layer.result.name in names else 0
        read = sum(self._stored[name] for name in names) - written + self._again(number)
        cycles = parts.dram_cycles(len(names), read + written) if names else 0.0
        given = (name for name in layer.inputs if name in self._given)
        entering = max((parts.input_load_cycles(layer, name) for name in given), default=0.0)
        held = sum(map(self._row_bytes, maps)) + self._constants[number]
        return _LayerTraffic(max(cycles, entering), held, read, written, result - written)

    def _again(self, number: int) -> float:
        """Bytes that a layer loads again, whose operands both take more than half of the room: all
        of the one for each piece of the other."""
        layer, half = self._layers[number], _KEPT * self._core
        weights = self._constants[number]
        source = max((self._stored[name] for name in self._maps(layer)), default=0)
        if not layer.product or weights <= half or source <= half:
            return 0.0
        return min((weights / half - 1) * source, (source / half - 1) * weights)

    def new(self, number: int) -> list[int]:
        """Bytes of each of the constants that no layer before has loaded."""
        found = []
        for name in self._layers[number].inputs:
            tensor = self._tensors[name]
            if tensor.data is not None and tensor.storage.buffer not in self._seen:
                self._seen.add(tensor.storage.buffer)
                found.append(self._stored[name])
        return found

    def read(self, number: int) -> int:
        """Bytes of maps that a layer reads."""
        return sum(self._stored[name] for name in self._maps(self._layers[number]))

    def _maps(self, layer: Layer) -> list[str]:
        return [name for name in layer.inputs if self._tensors[name].data is None]

    def _crosses(self, name: str) -> bool:
        """Whether a map goes through DRAM between those who make and read it."""
        if name in self._ends:
            return True
        if self._stored[name] <= _KEPT * self._room:
            return False
        maker = self._makers.get(name)
        if maker is None or self._last.get(name) != maker + 1:
            return True
        both = self._constants[maker] + self._constants[maker + 1]
        return both + 2 * self._row_bytes(name) > _KEPT * self._core

    def _row_bytes(self, name: str) -> float:
        """Bytes of some rows of a map, or of all of a small one."""
        tensor = self._tensors[name]
        lines = tensor.shape[2] if len(tensor.shape) > 2 else 1
        return self._stored[name] * min(1.0, _ROWS / lines)

"""What a network should take, layer by layer, without a schedule: milliseconds on each machine of
a sweep.

The one idea: each layer takes the longest of its engines, priced in one piece as the search's own
bounds are, and of the bytes that must cross DRAM for it:

    constants    once, and while layers before are at work, as far as the memories have room
    maps         where they have no room for it as a whole, nor, between neighbours, for some rows
                 beside the constants of both
    again        what neither stays as a whole nor goes with the rest as a whole, piece by piece

Nothing is cut, placed or ordered, so halos and what schedules lose are not known; no network takes
less than `compiler.attainable` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from compiler.attainable import Demands, attainable, room
from compiler.bind.machine import product_startup
from compiler.cost.host import host_cycles
from compiler.cost.rates import copy_rate, path
from compiler.driver import CompileOptions, layers, nests
from compiler.estimate import NetworkEstimate
from compiler.fuse.outline import Outlines
from compiler.layer import Layer
from compiler.nest.ir import HostNode
from compiler.remember import Remembered
from compiler.tile.bound import Bounds
from simmodel.arch import Arch

_KEPT = 0.5
"""Share of the memories on the chip that a map may take and stay there."""
_ROWS = 4
"""Rows of a map that neighbours hand on at once."""
_MOST = 64
"""Forms of one network that are remembered."""


@dataclass(frozen=True)
class _Bound(Demands):
    """A network that is bound, and what its layers take of engines by what that reads of them."""

    engines: Remembered[tuple[float, ...]] = field(
        default_factory=lambda: Remembered(_MOST), compare=False, repr=False
    )

    def alone(self, arch: Arch, slots: int) -> tuple[float, ...]:
        """Of each layer, cycles of its busier engine on one core, in one piece."""

        def make(seen: Arch) -> tuple[float, ...]:
            outlines, known = Outlines(), dict[int, float]()
            bounds = Bounds(seen, slots, outlines)
            for layer in self.layers:
                number = outlines.layer(layer).number
                if number not in known:
                    known[number] = max(bounds.whole(layer))
            return tuple(known[outlines.layer(layer).number] for layer in self.layers)

        return self.engines.of(slots, arch, {}, make)


@dataclass
class Outlook:
    """A network (of `prepared`) on any machines: as it is bound to engines, it is remembered by
    what that has read of the machine."""

    model: ir.Model
    bound: Remembered[_Bound] = field(default_factory=lambda: Remembered(_MOST))

    def on(self, arch: Arch, options: CompileOptions) -> NetworkEstimate:
        """What it should take on `arch`. Raises UnsupportedModel for operators that can run
        nowhere."""
        dtype = options.dtype or arch.types[0]

        def bind(seen: Arch) -> _Bound:
            graph = nests(self.model, seen, dtype, options)
            return _Bound(graph, layers(graph, seen, options.stages))

        asked = dtype, options.host, repr(options.stages)
        demands = self.bound.of(asked, arch, {}, bind)
        graph, work = demands.graph, demands.works(arch)
        alone, first = demands.alone(arch, options.stages.plan.slots), _first(arch)
        computing = [first + cycles / arch.core_count for cycles in alone]
        crossing = _Crossing(demands, arch)
        moved = [crossing.of(number) for number in range(len(computing))]
        total = _in_turn(computing, moved, arch)
        calls = [step for step in graph.steps if isinstance(step, HostNode)]
        total += sum(host_cycles(call, graph.tensors, arch) for call in calls)
        host = sum(call.pick is None for call in calls)
        return NetworkEstimate(max(total, float(attainable(demands, work, arch).cycles)), host)


def outlook(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on one machine."""
    return Outlook(model).on(arch, options)


def _first(arch: Arch) -> float:
    """Cycles before the first result of a layer can go on: its first operand is loaded, goes
    through both engines and is handed on."""
    loads = [e for e in arch.copy_.values() if "dram" in e.from_]
    load = min(e.startup.cycles(arch.clock) for e in loads) + arch.dram_latency
    array = product_startup(arch) if arch.matrix.present else 0
    return load + array + arch.vector.startup.cycles(arch.clock)


def _rate(arch: Arch) -> float:
    """Bytes a cycle that cross DRAM: what it gives, or what the copy engines of all cores take."""
    engine = path(arch, "dram", "local")
    return min(arch.dram_bytes_per_cycle, arch.core_count * copy_rate(arch, engine))


@dataclass(frozen=True)
class _Moved:
    """Bytes of one layer."""

    constants: int
    """That cross DRAM for it first."""
    maps: float
    """That cross DRAM, both ways."""
    held: float
    """On the chip, of both, while it runs."""


def _in_turn(computing: Sequence[float], moved: Sequence[_Moved], arch: Arch) -> float:
    """Cycles of layers one after another: while one computes, constants of those behind it arrive,
    where there is room beside what it holds."""
    rate, size = _rate(arch), room(arch)
    left = sum(layer.constants for layer in moved)
    total = ahead = 0.0
    for cycles, layer in zip(computing, moved, strict=True):
        left -= layer.constants
        here = min(ahead, layer.constants)
        wanted = layer.constants - here + layer.maps
        time = max(cycles, wanted / rate)
        ahead += time * rate - wanted - here
        ahead = max(0.0, min(ahead, left, _KEPT * (size - layer.held)))
        total += time
    return total


class _Crossing:
    """What stays on the chip between the layers of a network, and what each of them moves."""

    def __init__(self, demands: Demands, arch: Arch) -> None:
        graph, self._layers = demands.graph, demands.layers
        self._tensors = graph.tensors
        self._room = room(arch)
        self._core = self._room / arch.core_count
        self._ends = {*graph.inputs, *graph.outputs}
        self._constants = [self._of_constants(layer) for layer in self._layers]
        self._makers = {layer.result.name: at for at, layer in enumerate(self._layers)}
        self._last = {name: at for at, layer in enumerate(self._layers) for name in layer.inputs}
        self._seen: set[str] = set()

    def of(self, number: int) -> _Moved:
        """Of one layer."""
        layer = self._layers[number]
        maps = [name for name in layer.inputs if self._tensors[name].data is None]
        maps.append(layer.result.name)
        crossing = sum(self._stored(name) for name in maps if self._crosses(name))
        held = sum(self._rows(name) for name in maps) + self._constants[number]
        return _Moved(self._first(layer), crossing + self._again(number), held)

    def _again(self, number: int) -> float:
        """Bytes that a layer loads again, whose operands both take more than half of the room: all
        of the one for each piece of the other."""
        layer, half = self._layers[number], _KEPT * self._core
        weights = self._constants[number]
        read = [self._stored(name) for name in layer.inputs if self._tensors[name].data is None]
        source = max(read, default=0)
        if not layer.product or weights <= half or source <= half:
            return 0.0
        return min((weights / half - 1) * source, (source / half - 1) * weights)

    def _first(self, layer: Layer) -> int:
        """Bytes of constants that no layer before has loaded."""
        found = 0
        for name in layer.inputs:
            tensor = self._tensors[name]
            if tensor.data is not None and tensor.storage.buffer not in self._seen:
                self._seen.add(tensor.storage.buffer)
                found += tensor.stored
        return found

    def _of_constants(self, layer: Layer) -> int:
        found = (self._tensors[name] for name in layer.inputs)
        return sum(tensor.stored for tensor in found if tensor.data is not None)

    def _crosses(self, name: str) -> bool:
        """Whether a map goes through DRAM between those who make and read it."""
        if name in self._ends:
            return True
        if self._stored(name) <= _KEPT * self._room:
            return False
        maker = self._makers.get(name)
        if maker is None or self._last.get(name) != maker + 1:
            return True
        both = self._constants[maker] + self._constants[maker + 1]
        return both + 2 * self._rows(name) > _KEPT * self._core

    def _rows(self, name: str) -> float:
        """Bytes of some rows of a map, or of all of a small one."""
        tensor = self._tensors[name]
        lines = tensor.shape[2] if len(tensor.shape) > 2 else 1
        return tensor.stored * min(1.0, _ROWS / lines)

    def _stored(self, name: str) -> int:
        return self._tensors[name].stored

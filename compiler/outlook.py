"""What a network should take, layer by layer, without a schedule: milliseconds on each machine of
a sweep.

The one idea: each layer takes the longest of its engines and of the bytes that must cross DRAM for
it; constants cross once, a map crosses where no memory on the chip has room for half of it beside
others. Nothing is cut, placed or ordered, so halos, start-ups, banks and what schedules lose
are not known; no network takes less than `compiler.attainable` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from compiler.attainable import Demands, Work, attainable, room
from compiler.bind.machine import product_startup
from compiler.cost.host import host_cycles
from compiler.driver import CompileOptions, layers, nests
from compiler.estimate import NetworkEstimate
from compiler.layer import Layer
from compiler.nest.ir import HostNode
from compiler.remember import Remembered
from simmodel.arch import Arch

_KEPT = 0.5
"""Share of the memories on the chip that a map may take and stay there."""
_MOST = 64
"""Forms of one network that are remembered."""


@dataclass
class Outlook:
    """A network (of `prepared`) on any machines: as it is bound to engines, it is remembered by
    what that has read of the machine."""

    model: ir.Model
    bound: Remembered[Demands] = field(default_factory=lambda: Remembered(_MOST))

    def on(self, arch: Arch, options: CompileOptions) -> NetworkEstimate:
        """What it should take on `arch`. Raises UnsupportedModel for operators that can run
        nowhere."""
        dtype = options.dtype or arch.types[0]

        def bind(seen: Arch) -> Demands:
            graph = nests(self.model, seen, dtype, options)
            return Demands(graph, layers(graph, seen, options.stages))

        asked = dtype, options.host, repr(options.stages)
        demands = self.bound.of(asked, arch, {}, bind)
        work, crossing = demands.works(arch), _Crossing(demands, arch)
        first, rate = _first(arch), arch.dram_bytes_per_cycle
        total = sum(
            max(first + _computing(part, work) / arch.core_count, crossing.bytes(part) / rate)
            for part in demands.layers
        )
        graph = demands.graph
        calls = [step for step in graph.steps if isinstance(step, HostNode)]
        total += sum(host_cycles(call, graph.tensors, arch) for call in calls)
        host = sum(call.pick is None for call in calls)
        return NetworkEstimate(max(total, float(attainable(demands, work, arch).cycles)), host)


def outlook(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on one machine."""
    return Outlook(model).on(arch, options)


def _computing(layer: Layer, work: dict[str, Work]) -> float:
    """Cycles of the engines of one core alone, those of each kind one after another."""
    found = [work[nest.tensor] for nest in layer.nests]
    both = [work for work in found if not work.either]
    quicker = sum(min(work.matrix, work.vector) for work in found if work.either)
    engines = max(sum(work.matrix for work in both), sum(work.vector for work in both))
    return engines + quicker


def _first(arch: Arch) -> float:
    """Cycles before the first result of a layer can go on: its first operand is loaded, goes
    through both engines and is handed on."""
    loads = [e for e in arch.copy_.values() if "dram" in e.from_]
    load = min(e.startup.cycles(arch.clock) for e in loads) + arch.dram_latency
    array = product_startup(arch) if arch.matrix.present else 0
    return load + array + arch.vector.startup.cycles(arch.clock)


class _Crossing:
    """Bytes that cross DRAM, each constant for the first layer that reads it."""

    def __init__(self, demands: Demands, arch: Arch) -> None:
        graph = demands.graph
        self._tensors = graph.tensors
        self._room = _KEPT * room(arch)
        self._ends = {*graph.inputs, *graph.outputs}
        self._seen: set[str] = set()

    def bytes(self, layer: Layer) -> int:
        """Of one layer."""
        return sum(self._read(layer)) + self._moved(layer.result.name)

    def _read(self, layer: Layer) -> Iterator[int]:
        for name in dict.fromkeys(a.tensor for nest in layer.nests for a in nest.reads):
            tensor = self._tensors[name]
            if name in layer.inside:
                continue
            if tensor.data is None:
                yield self._moved(name)
            elif tensor.storage.buffer not in self._seen:
                self._seen.add(tensor.storage.buffer)
                yield tensor.stored

    def _moved(self, name: str) -> int:
        """Bytes of a map each time that it is read or written; 0 where it stays on the chip."""
        size = self._tensors[name].stored
        return size if name in self._ends or size > self._room else 0

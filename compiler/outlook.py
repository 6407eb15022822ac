"""What a network should take, layer by layer, without a schedule: tens of milliseconds.

The one idea: each layer takes the longest of its engines and of the bytes that must cross DRAM for
it; constants cross once, a map crosses where no memory on the chip has room for half of it beside
others. Nothing is cut, placed or ordered, so halos, start-ups, banks and what schedules lose
are not known; no network takes less than `compiler.attainable` says.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from compiler.attainable import attainable, room, works
from compiler.bind.machine import product_startup
from compiler.cost.host import host_cycles
from compiler.driver import CompileOptions, layers, nests
from compiler.estimate import NetworkEstimate
from compiler.layer import Layer
from compiler.nest.demand import Demanded, demanded
from compiler.nest.ir import HostNode, NestGraph
from simmodel.arch import Arch

_KEPT = 0.5
"""Share of the memories on the chip that a map may take and stay there."""


def outlook(model: ir.Model, arch: Arch, options: CompileOptions) -> NetworkEstimate:
    """What `model` (of `prepared`) should take on `arch`, layer by layer.

    Raises UnsupportedModel for operators that can run nowhere.
    """
    graph = nests(model, arch, options.dtype or arch.types[0], options)
    parts = layers(graph, arch, options.stages)
    least = demanded(graph)
    crossing = _Crossing(graph, arch)
    total = sum(
        max(_computing(part, least, arch), crossing.bytes(part) / arch.dram_bytes_per_cycle)
        for part in parts
        if isinstance(part, Layer)
    )
    calls = [step for step in graph.steps if isinstance(step, HostNode)]
    total += sum(host_cycles(call, graph.tensors, arch) for call in calls)
    host = sum(call.pick is None for call in calls)
    return NetworkEstimate(max(total, float(attainable(graph, parts, arch).cycles)), host)


def _computing(layer: Layer, least: Demanded, arch: Arch) -> float:
    """Cycles of the engines of all cores together, those of each kind one after another."""
    found = [work for _, work in works(layer, least, arch)]
    both = [work for work in found if not work.either]
    quicker = sum(min(work.matrix, work.vector) for work in found if work.either)
    engines = max(sum(work.matrix for work in both), sum(work.vector for work in both))
    return _first(arch) + (engines + quicker) / arch.core_count


def _first(arch: Arch) -> float:
    """Cycles before the first result of a layer can go on: its first operand is loaded, goes
    through both engines and is handed on."""
    loads = [e for e in arch.copy_.values() if "dram" in e.from_]
    load = min(e.startup.cycles(arch.clock) for e in loads) + arch.dram_latency
    array = product_startup(arch) if arch.matrix.present else 0
    return load + array + arch.vector.startup.cycles(arch.clock)


class _Crossing:
    """Bytes that cross DRAM, each constant for the first layer that reads it."""

    def __init__(self, graph: NestGraph, arch: Arch) -> None:
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

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

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from compiler.schedule.fusion.partition import Outline, Outlines
from compiler.schedule_ir.layer import Layer
from compiler.target.tracking import Same, TrackedMemo
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property
from simmodel.trace import Events

_KEPT = 0.5
"""Share of the memories on the chip that a map may take and stay there."""
_ROWS = 4
"""Rows of a map that neighbours hand on at once."""
_MOST = 1 << 14
"""What is remembered of one network: stages of lowering, and layers on kinds of engines."""


@dataclass(frozen=True)
class _Bound(Demands):
    """A network that is bound, and what its layers read from memory."""

    numbers: dict[Outline, int] = field(default_factory=dict, compare=False, repr=False)
    """Of all kinds of layers."""

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

    @cached_property
    def row_bytes(self) -> dict[str, float]:
        """Bytes of some rows of each tensor, or of all of a small one."""
        shapes = {name: tensor.shape for name, tensor in self.graph.tensors.items()}
        lines = {name: shape[2] if len(shape) > 2 else 1 for name, shape in shapes.items()}
        return {name: size * min(1.0, _ROWS / lines[name]) for name, size in self.stored.items()}

    @cached_property
    def constant_bytes(self) -> Any:
        """Of all constants that each layer reads."""
        return np.array([sum(map(self.stored.__getitem__, names)) for names in self.constants])

    @cached_property
    def largest_map(self) -> Any:
        """Bytes of the largest map that each product reads; nothing for other layers."""
        pairs = zip(self.layers, self.maps, strict=True)
        sizes = [[self.stored[name] for name in maps if layer.product] for layer, maps in pairs]
        return np.array([max(own, default=0) for own in sizes])

    @cached_property
    def passages(self) -> tuple[Any, ...]:
        """Of each map that a layer reads, and then of each result: the layer's number, bytes, how
        many of them have to fit for it to stay on the chip as a whole, and how many on a core for
        neighbours to hand on some rows of it."""
        numbered = [(number, name) for number, maps in enumerate(self.maps) for name in maps]
        numbered += [(number, layer.result.name) for number, layer in enumerate(self.layers)]
        names = [name for _, name in numbered]
        sizes = np.array([self.stored[name] for name in names])
        whole = np.where([name in self.far for name in names], np.inf, sizes)
        handed = [self._rows_in_passing(name) for name in names]
        return np.array([number for number, _ in numbered]), sizes, whole, np.array(handed)

    def _rows_in_passing(self, name: str) -> float:
        """Bytes of some rows of a map for both neighbours, and of their constants."""
        maker = self.handed_on.get(name)
        if name in self.far or maker is None:
            return math.inf
        return float(self.constant_bytes[maker : maker + 2].sum() + 2 * self.row_bytes[name])

    @cached_property
    def held_bytes(self) -> Any:
        """Bytes of maps and constants on the chip while each layer runs."""
        pairs = zip(self.layers, self.maps, strict=True)
        maps = [sum(map(self.row_bytes.__getitem__, (*m, la.result.name))) for la, m in pairs]
        return np.array(maps) + self.constant_bytes

    @cached_property
    def kinds(self) -> list[int]:
        """Of each layer, the number of all that take the same."""
        outlines, known = Outlines(), self.numbers
        found = (outlines.layer(layer).outline for layer in self.layers)
        return [known.setdefault(outline, len(known)) for outline in found]

    def computed(self, known: TrackedMemo, slots: int, arch: Arch) -> tuple[list[Computed], Events]:
        """What each layer takes of the engines of a machine, and what all of them do; what is
        `known` of layers on other machines serves again."""
        found = {
            kind: known.ask("layer", (kind, slots), arch, partial(computed, layer, slots))
            for kind, layer in dict(zip(self.kinds, self.layers, strict=True)).items()
        }
        each = [found[kind] for kind in self.kinds]
        return each, Events.total(one.events for one in each)


@dataclass
class QuickEstimator:
    """A network (of `prepared`) on any machines: stages of lowering and layers are remembered by
    what has been read of the machine for them."""

    model: ir.Model
    memos: dict[Hashable, TrackedMemo] = field(default_factory=dict)
    """What stages have made and layers take, by options."""
    numbers: dict[Outline, int] = field(default_factory=dict)
    """Of kinds of layers."""

    def on(self, arch: Arch, options: CompileOptions) -> NetworkEstimate:
        """What it should take on `arch`. Raises UnsupportedModel for operators that can run
        nowhere."""
        asked = options.dtype or arch.types[0], options.host, repr(options.stages)
        memo = self.memos.setdefault(asked, TrackedMemo(_MOST))
        ctx = Context(arch, options, memo=memo)
        network = bind(fuse_tails(nests(self.model, ctx), ctx), ctx)

        def bound(parts: Sequence[Layer | HostNode], _: Arch) -> _Bound:
            return _Bound(network.graph, parts, self.numbers)

        demands = ctx.result_of("demands", bound, network.parts)
        graph, work = demands.graph, memo.ask("works", Same(demands), arch, demands.works)
        done = demands.computed(memo, options.stages.plan.slots, arch)
        # A compiler leaves cores idle that would not help.
        counts = sorted({1, arch.core_count})
        every = (_taken(demands, done, arch, options, cores) for cores in counts)
        total, events = min(every, key=itemgetter(0))
        calls = [step for step in graph.steps if isinstance(step, HostNode)]
        total += arch.host_cycles(graph.port_bytes)
        total += sum(host_cycles(call, graph.tensors, arch) for call in calls)
        host = sum(call.pick is None for call in calls)
        least = attainable(demands, work, arch)
        macs = sum(demands.least.macs.values())
        return NetworkEstimate(max(total, float(least.cycles)), host, least, events, macs)


def _taken(
    demands: _Bound, done: tuple[list[Computed], Events], arch: Arch, options: CompileOptions,
    cores: int,
) -> tuple[float, Events]:  # fmt: skip
    """Cycles of all layers on so many cores, and what happens there."""
    parts = CorePartition(arch, cores, options.stages.share.multicast_route(arch))
    computing, engines = done
    maps = [sum(map(demands.stored.__getitem__, names)) for names in demands.maps]
    divided = parts.of(computing, demands.new, maps)
    moved = _traffic(demands, arch, parts, cores)
    free = (room(arch, cores) - demands.held_bytes).clip(0.0)
    copies = parts.copies(divided, (moved.read, moved.written), moved.kept)
    # The first result of a layer goes through both engines before it can go on.
    first = arch.vector.startup.cycles(arch.clock)
    first += product_startup(arch) if arch.matrix.present else 0
    cycles = _in_turn(divided, moved.cycles.tolist(), first, _KEPT * parts.ahead(free))
    return cycles, Events.total([engines, copy_events(copies, arch)])


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
    """What each layer moves besides its constants."""

    cycles: Any
    """In which maps cross DRAM, both ways."""
    read: Any
    """Bytes of DRAM."""
    written: Any
    kept: Any
    """Bytes of a result that stays on the chip."""


def _traffic(demands: _Bound, arch: Arch, parts: CorePartition, cores: int) -> _LayerTraffic:
    """What stays on the chip between the layers of a network, and what each of them moves."""
    space, count = _KEPT * room(arch, cores), len(demands.layers)
    core = space / cores
    number, sizes, whole, rows = demands.passages
    crosses = (whole > space) & (rows > core)
    crossing = np.where(crosses, sizes, 0)
    maps, written = crossing[:-count], crossing[-count:]
    read = np.bincount(number[:-count], maps, count) + _loaded_again(demands, core)
    many = np.bincount(number, crosses, count)
    cycles = np.where(many > 0, parts.dram_cycles(many, read + written), 0.0)
    for at, layer in enumerate(demands.layers):
        for name in {*demands.graph.inputs} & {*layer.inputs}:
            cycles[at] = max(cycles[at], parts.input_load_cycles(layer, name))
    return _LayerTraffic(cycles, read, written, sizes[-count:] - written)


def _loaded_again(demands: _Bound, half: float) -> Any:
    """Bytes that each layer loads again, whose operands both take more than half of the room: all
    of the one for each piece of the other."""
    weights, source = demands.constant_bytes, demands.largest_map
    again = np.minimum((weights / half - 1) * source, (source / half - 1) * weights)
    return np.where((weights > half) & (source > half), again, 0.0)

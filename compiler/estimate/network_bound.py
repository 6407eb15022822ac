"""The least that a network takes on a machine, whatever its schedule; a roofline knows less.

Each resource is asked for its own least; the longest of these is the bound, and its name says what
would have to be different:

    matrix     exact cycles of the arrays, each layer as one product per batch, its kernel positions
               joined to its reduction, no array filled or drained between layers, all cores busy
    vector     elements over lanes, at the cost of their functions
    bandwidth  compulsory bytes of DRAM, each direction at its rate
    flash      the same of flash, which has the constants where there is one
    copies     compulsory bytes over the rates of all copy engines, or links, that can carry them
    weights    constants of products, in the order in which layers can end, through the room on chip
    host       what it takes for an inference, and its calls, one after another

All else begins when the host has done what it does for the inference. Depthwise products may run on
two engines: they count where both together take least. No figure leaves out tiles that are cheaper
than a whole layer: cutting never saves a fold, a lane or a start-up. What is not known here: halos,
ports and banks, latencies, the order of a single core.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from compiler.context import CompileResult
from compiler.cost.overlap import copy_rate, host_cycles, in_turn
from compiler.schedule_ir.layer import Layer
from compiler.target.bind import depthwise_each
from compiler.target.machine import array_of, array_takes, on_its_array, rate_type
from compiler.target.vector import VectorWork
from compiler.tensor_ir.demand import Demanded, Precedence, Shares, demanded
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property
from simmodel.trace import Events

_TINY = 1e-9


@dataclass(frozen=True)
class Attainable:
    """Cycles below which no schedule of a network gets on one machine."""

    matrix: float
    vector: float
    bandwidth: float
    weights: float
    host: float
    """Of its calls, and `before`."""
    flash: float = 0.0
    copies: float = 0.0
    before: float = 0.0
    """What the host takes for an inference, until all else begins."""

    @property
    def cycles(self) -> int:
        """The longest of them, behind what the host does before; cycles are whole."""
        by = self.by
        longest = max(self.before + max(by[name] for name in by if name != "host"), self.host)
        return math.ceil(longest - 1e-6)

    @property
    def by(self) -> Mapping[str, float]:
        """Resource -> cycles."""
        return {name: cycles for name, cycles in vars(self).items() if name != "before"}

    @property
    def resource(self) -> str:
        return max(self.by, key=lambda name: self.by[name])


@dataclass(frozen=True)
class EngineWork:
    """What one nest takes of the chip's engines, in cycles of all cores together."""

    matrix: float
    vector: float
    either: bool = False
    """Whether it is one or the other, not both."""
    array: str = "matrix"
    """The matrix engine that it is bound to, or would be."""


@dataclass(frozen=True)
class Demands:
    """A network as it is bound to engines: what it takes on every machine that binds it alike."""

    graph: NestGraph
    parts: Sequence[Layer | HostNode]

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers in order, without calls of the host."""
        return tuple(part for part in self.parts if isinstance(part, Layer))

    @cached_property
    def least(self) -> Demanded:
        """The least work that gives all outputs."""
        return demanded(self.graph)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Product -> bytes of the constants that it reads whole, as the last one that does."""
        last: dict[str, tuple[str, int]] = {}
        for nest in (step for step in self.graph.steps if isinstance(step, Nest)):
            whole = self.least.results.get(nest.tensor) == math.prod(nest.shape)
            if nest.contraction and whole:
                weights = self.graph.tensors[nest.operands[1].tensor]
                if weights.data is not None:
                    last[weights.storage.buffer] = nest.tensor, weights.stored
        return dict(last.values())

    @cached_property
    def names(self) -> list[str]:
        """What each step makes; nothing for calls of the host."""
        return [step.tensor if isinstance(step, Nest) else "" for step in self.graph.steps]

    @cached_property
    def before(self) -> dict[str, Shares]:
        """What is over when each product of `sizes` can be done with some of its weights."""
        order = Precedence(self.graph, self.least)
        return {
            name: order.before(number)
            for number, name in enumerate(self.names)
            if name in self.sizes
        }

    def works(self, arch: Arch) -> dict[str, EngineWork]:
        """By its result, what each nest takes of the engines of a machine."""
        return dict(pair for layer in self.layers for pair in works(layer, self.least, arch))


def bound_of(result: CompileResult, arch: Arch) -> Attainable:
    """The bound of the network that was compiled, as it is bound to engines, on `arch`."""
    assert result.search is not None
    whole = result.search.undivided
    demands = Demands(whole.graph, whole.parts)
    return attainable(demands, demands.works(arch), arch)


def attainable(demands: Demands, work: Mapping[str, EngineWork], arch: Arch) -> Attainable:
    """The bound of a network whose nests take `work` of the engines."""
    graph, least = demands.graph, demands.least
    matrix, vector = _engines(tuple(work.values()), arch.core_count)
    calls = (step for step in graph.steps if isinstance(step, HostNode))
    moved, before = least.transfers(arch.constants), arch.host_cycles(graph.port_bytes)
    far = {
        role: sum(
            arch.far_load(role, size, 0, write=write)
            for (where, write), size in moved.items()
            if where == role
        ) / rate
        for role, rate in arch.far_rates.items()
    }  # fmt: skip
    return Attainable(
        matrix,
        vector,
        far["dram"],
        _weight_load_cycles(demands, work, arch),
        before + sum(host_cycles(call, graph.tensors, arch) for call in calls),
        far.get("flash", 0.0),
        max((size / _carry_rate(kinds, arch) for kinds, size in _combined(moved)), default=0.0),
        before,
    )


Transfers = tuple[tuple[str, bool], ...]
"""Kinds of transfers: memory off chip, and whether it is written."""


def _combined(moved: Mapping[tuple[str, bool], int]) -> Iterator[tuple[Transfers, int]]:
    """Every choice of kinds of transfers, and their bytes: what carries one may carry others."""
    some = [kind for kind, size in moved.items() if size]
    for count in range(1, len(some) + 1):
        for kinds in combinations(some, count):
            yield kinds, sum(moved[kind] for kind in kinds)


def _carry_rate(kinds: Transfers, arch: Arch) -> float:
    """Bytes of these kinds that all copy engines, and the links that they cross, carry in a cycle;
    what goes from one memory off chip to another is a read and a write at once."""
    engines, lanes = 0.0, dict[tuple[str, bool], float]()
    for engine in arch.copy_.values():
        paths = [
            (far, near, write)
            for far, write in kinds
            if far in (engine.to if write else engine.from_)
            for near in (engine.from_ if write else engine.to)
        ]
        for far, near, write in paths:
            # Of several buses on a path the narrowest; each counts once, whatever goes over it. Of
            # links between neighbours no bytes need to cross any.
            start, end = (near, far) if write else (far, near)
            crossed = [
                (link.bandwidth.at(arch.clock) * arch.scopes(link.scope), name, link.duplex & write)
                for name, link in arch.links.items()
                if link.topology == "bus"
                and start in link.from_
                and end in link.to
                and near not in OFF_CHIP
            ]
            rate, name, outward = min(crossed, default=(math.inf, near, False))
            lanes[name, outward] = rate
        rates = [
            copy_rate(arch, engine, far) * (2 if (near, not write) in kinds else 1)
            for far, near, write in paths
        ]
        engines += arch.core_count * max(rates, default=0.0)
    return min(engines, sum(lanes.values()))


def load_rate(arch: Arch) -> float:
    """Bytes of constants that reach the chip in a cycle."""
    constants = arch.constants
    return min(arch.far_rates[constants], _carry_rate(((constants, False),), arch))


def _engines(work: tuple[EngineWork, ...], cores: int) -> tuple[float, float]:
    """Least cycles of the busiest matrix engine and of the vector engines."""
    found = [(0.0, 0.0)]
    for array in dict.fromkeys(each.array for each in work):
        others = (replace(w, matrix=0.0) for w in work if w.array != array and not w.either)
        own = (each for each in work if each.array == array)
        found.append(_two_engines((*own, *others), cores))
    matrix, vector = (max(side) for side in zip(*found, strict=True))
    return matrix, vector


def _two_engines(work: tuple[EngineWork, ...], cores: int) -> tuple[float, float]:
    """Least cycles of a matrix and of the vector engines, where what either can do is shared.

    Where both end together is where any weighting of their times is largest (duality); what one
    engine alone cannot avoid is the weighting that counts the other for nothing.
    """
    fixed = [each for each in work if not each.either]
    shared = [each for each in work if each.either and each.matrix + each.vector]
    matrix, vector = (sum(side) / cores for side in (
        (each.matrix for each in fixed), (each.vector for each in fixed)
    ))  # fmt: skip
    together = 0.0
    for weight in (each.vector / (each.matrix + each.vector) for each in shared):
        least = sum(min(weight * w.matrix, (1 - weight) * w.vector) for w in shared)
        together = max(together, weight * matrix + (1 - weight) * vector + least / cores)
    return (max(matrix, together), vector) if matrix >= vector else (matrix, max(vector, together))


def works(layer: Layer, least: Demanded, arch: Arch) -> Iterator[tuple[str, EngineWork]]:
    """By its result, what each nest of a layer takes."""
    lanes = arch.vector.most_elements
    for nest, way in zip(layer.nests, layer.bindings, strict=True):
        share = least.results.get(nest.tensor, 0) / max(1, math.prod(nest.shape))
        macs, vector = least.macs.get(nest.tensor, 0), 0.0
        if way.engine != "copy":
            vectors = VectorWork(nest, layer.tensors, arch, way, layer.inside, nest.shape)
            vector = share * vectors.least
        if way.engine != "matrix" and not nest.depthwise:
            cost = arch.factor("vector.product", "multiply")
            added = (macs if way.product else 0) * cost / lanes
            yield nest.tensor, EngineWork(0.0, vector + added)
            continue
        name = way.array if way.engine == "matrix" else array_of(nest, layer.tensors, arch)
        seen = arch.with_array(name)
        dtype = rate_type(nest, layer.tensors, seen)
        peak = seen.matrix.units * seen.matrix.peak(dtype)
        if nest.depthwise:
            lane_cycles = macs * arch.vector.cost.multiply / lanes
            array = macs / peak if peak else lane_cycles
            yield nest.tensor, EngineWork(array, lane_cycles, True, name)
        else:
            array = macs / peak if share < 1 else array_takes(nest, dtype, seen)
            yield nest.tensor, EngineWork(array, vector, array=name)


def _weight_load_cycles(demands: Demands, work: Mapping[str, EngineWork], arch: Arch) -> float:
    """Cycles until the last weights have come: at any time those that a product is not done with
    are on chip or still have to be loaded."""
    held, rate, sizes = room(arch), load_rate(arch), demands.sizes
    left = sum(sizes.values()) - held
    if left <= 0:
        return 0.0
    # Where arrays are unlike, the share of each of all work bounds what they do at the same time.
    total, own = sum(w.matrix for w in work.values()), dict[str, float]()
    for each in work.values():
        own[each.array] = own.get(each.array, 0.0) + each.matrix
    weights_of = {name: cycles / total if total else 1.0 for name, cycles in own.items()}
    alone = {
        name: weights_of[w.array] * w.matrix / arch.core_count
        for name, w in work.items()
        if not w.either
    }
    busy = np.array([alone.get(name, 0.0) for name in demands.names])
    ready = sorted(
        (float(shares @ busy), alone.get(name, 0.0), sizes[name])
        for name, shares in demands.before.items()
    )
    starts, cycles, weights = np.array(ready, dtype=float).reshape(-1, 3).T
    # By cycles for each byte, those of the least first, as far as they have started at a time.
    order = np.lexsort((weights, cycles, cycles / weights))
    begun = np.tri(len(ready))[:, order]
    cycles, weights = cycles[order], weights[order]
    before = np.cumsum(begun * cycles, axis=1) - begun * cycles
    longest = left / rate
    # Between two starts the gain of waiting falls with time, then rises: its ends are the most.
    for ends in (starts, np.append(starts[1:], starts[-1:])):
        # At each, the share of each product that can be done by then.
        spent = np.clip(ends[:, None] - before, 0.0, cycles)
        done = (begun * np.where(cycles > 0, spent / np.maximum(cycles, _TINY), 1.0)) @ weights
        longest = max(longest, float((ends + (left - done) / rate).max(initial=0.0)))
    return longest


def room(arch: Arch, cores: int | None = None) -> int:
    """Bytes of all memories on chip, or of those that so many `cores` reach: weights may wait in
    any of them, a part in each core."""
    shared, count = arch.memories.shared, cores or arch.core_count
    found = sum(
        memory.size * count for role, memory in arch.memories.on_chip().items() if role != "shared"
    )
    if shared is not None:
        found += shared.size * (-(-count // arch.cores) if shared.level == "cluster" else 1)
    return found


# What a network should take, before it is run.


@dataclass(frozen=True)
class NetworkEstimate:
    """Of one inference of the whole batch."""

    cycles: float
    """Of its groups, and of the host's calls between them."""
    host_ops: int
    bound: Attainable | None = None
    """What no schedule undercuts; None where nobody asked."""
    events: Events | None = None
    """What takes energy, as far as it is known without a schedule; None where nobody asked."""
    macs: int = 0
    """Least multiply-accumulates."""


def expected(result: CompileResult, arch: Arch) -> float:
    """Cycles that the program of `result` should take on `arch`.

    Raises ValueError for a result that has lost its search.
    """
    if result.search is None:
        raise ValueError("this result does not say what it was chosen among")
    graph = result.search.graph
    steps = (
        (host_cycles(step, graph.tensors, arch), 0.0, 0.0)
        if isinstance(step, HostNode)
        else step.plan.schedule.estimate.step
        for step in result.steps
    )
    return arch.host_cycles(graph.port_bytes) + sum(in_turn(steps))


@dataclass(frozen=True)
class ProductCycles:
    """Cycles of the engines of all cores together, by origin."""

    dense: dict[str, float]
    """Of products on arrays."""
    depthwise: dict[str, float]
    """Of depthwise ones, on the quicker engine that the other machine has for them; missing where
    it has none, or that is the vector engine, which has them already."""


def product_cycles_on(result: CompileResult, other: Arch) -> ProductCycles:
    """What the products of `result` would take on `other`: those of arrays, and depthwise ones."""
    assert result.search is not None
    found = ProductCycles({}, {})
    for layer in (part for part in result.search.undivided.parts if isinstance(part, Layer)):
        for nest, way in zip(layer.nests, layer.bindings, strict=True):
            if nest.depthwise:
                array, lanes = depthwise_each(nest, layer.tensors, other)
                seen = on_its_array(nest, layer.tensors, other)
                array = array if seen.matrix.depthwise else math.inf
                if array < lanes or (way.engine != "vector" and lanes < math.inf):
                    found.depthwise[nest.origin] = min(array, lanes)
            elif way.engine == "matrix":
                seen = on_its_array(nest, layer.tensors, other)
                kind = rate_type(nest, layer.tensors, seen)
                found.dense[nest.origin] = array_takes(nest, kind, seen)
    return found

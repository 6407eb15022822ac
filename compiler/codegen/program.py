"""The whole program: groups one after another on every core, host calls between them, constants.

A step waits for what it needs and no more: for the steps that stored what it loads, and for those
that used the memory that it writes. Between the engines of a core tokens do that, whatever group
they work on; between cores, and for the host, every step that touches memory has a barrier.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product

import numpy as np

from compiler.codegen.constants import PackedWeights, packed, packed_bytes
from compiler.codegen.copies import sources
from compiler.codegen.group import GroupEmitter
from compiler.codegen.handover import with_handovers
from compiler.codegen.issue_order.order import OrderInstructions
from compiler.codegen.layer import EmissionContext
from compiler.codegen.legalize import Names
from compiler.codegen.multicast import ShareLoads, Stage, tokens_between
from compiler.codegen.nodes import EngineStep, Node, instructions, renamed
from compiler.codegen.split_loads import SplitLoads
from compiler.codegen.tile import Places, far_operand
from compiler.codegen.tokens import SHARING, TURNS, Sharing, Synchronizer
from compiler.errors import TooFewTokens
from compiler.geometry.boxes import Range
from compiler.memory.on_chip import Place
from compiler.plan.plan import Plan
from compiler.plan.symbolic_parts import following
from compiler.schedule.residency.buffer import GRAIN, LiveRange, lowest, place
from compiler.schedule_ir.group import Shared
from compiler.tensor_ir.demand import Demanded, demanded
from compiler.tensor_ir.nest import Array, HostNode, NestGraph, Tensor
from simmodel.arch.dtype import product_type, size_of
from simmodel.arch.record import Arch
from simmodel.isa import HOST, Arrive, Await, HostCall, Item
from simmodel.isa.region import Register
from simmodel.program.program import Buffer, Constant, Demand, Origin, Port, Program, TileKind


@dataclass(frozen=True)
class PlacedGroup:
    """A planned group with addresses."""

    plan: Plan
    places: dict[str, Place]


Step = PlacedGroup | HostNode


def demand_of(graph: NestGraph, steps: Sequence[Step], least: Demanded) -> Demand:
    """What the outputs of `graph` take in products over channels, by element type, and of DRAM,
    where `steps` compute it."""
    products: dict[str, int] = {}
    tensors = graph.tensors
    plans = (step.plan for step in steps if isinstance(step, PlacedGroup))
    for compute in (c for plan in plans for layer in plan.layers for c in layer.computes):
        macs = least.macs.get(compute.nest.tensor, 0)  # a trial of one group has no outputs
        if macs and compute.binding.product:
            kind = product_type(tensors[compute.nest.operands[0].tensor].dtype)
            products[kind] = products.get(kind, 0) + macs
    return Demand(tuple(products.items()), least.read, least.written)


@dataclass
class ProgramEmitter:
    """Collects streams, constants and records while it walks the steps."""

    graph: NestGraph
    arch: Arch
    steps: Sequence[Step]
    order: OrderInstructions = field(default_factory=OrderInstructions)
    share: ShareLoads = field(default_factory=ShareLoads)
    split: SplitLoads = field(default_factory=SplitLoads)
    tokens: dict[str, int] = field(default_factory=dict)
    barriers: dict[str, int] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.emitted: Program
        self.nodes: list[list[Node]] = [[] for _ in range(self.arch.core_count)]
        self.packs: list[tuple[PackedWeights | None, ...]] = [
            tuple(packed(layer, s.plan.walked) for layer in s.plan.layers)
            if isinstance(s, PlacedGroup)
            else ()
            for s in self.steps
        ]
        self._awaited: set[tuple[int, str, int]] = set()
        self._passed: dict[tuple[object, ...], int] = {}
        self._stages: dict[str, tuple[int, LiveRange]] = {}
        self.tiles: tuple[TileKind, ...] = ()
        plans = {n: s.plan for n, s in enumerate(self.steps) if isinstance(s, PlacedGroup)}
        self.following = following(plans, self.graph.registers)
        self.names = Names()
        self.data = self._constant_data()
        self.shared = self._shared_buffers()
        self.dram = self._dram()

    def program(self) -> Program:
        """The program; TooFewTokens where tokens are too few."""
        for number, (step, packs) in enumerate(zip(self.steps, self.packs, strict=True)):
            if isinstance(step, HostNode):
                self._emit_host_call(number, step)
            else:
                self._emit_group(number, step, packs)
        streams = self._streams()
        least = demanded(self.graph)
        return Program(
            name=self.graph.name,
            arch=self.arch.name,
            cores=streams,
            tokens=tuple(dict(self.tokens) for _ in streams),
            barriers=self.barriers,
            constants=tuple(
                Constant(name, self.dram[name], data.reshape(-1), data.nbytes)
                for name, data in self.data.items()
            ),
            buffers=tuple(self.buffers),
            inputs=tuple(self.port(name) for name in self.graph.inputs),
            outputs=tuple(self.port(name) for name in self.graph.outputs),
            origins=tuple(self.origins),
            payloads=tuple(self.payloads),
            macs=sum(least.macs.values()),
            demand=demand_of(self.graph, self.steps, least),
            tiles=self.tiles,
            registers=self.registers,
        )

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """Lengths that are known when it runs, and shares of them that there are of windows or that
        cores have."""
        shares = (r for each in self.following.values() for r in each.registers)
        return tuple(dict.fromkeys((*self.graph.registers, *shares)))

    def _streams(self) -> tuple[tuple[Item, ...], ...]:
        """All cores' instructions, with as many tokens as there are; TooFewTokens where these are
        too few."""
        front_end = self.arch.front_end
        cores = [self.split.apply(nodes, self.arch) for nodes in self.nodes]
        kinds = ("matrix", "vector")
        first = {name: kind for kind in kinds for name in self.arch.units(kind)}
        for sharing in (TURNS,) if self.order.turns else SHARING:
            if sharing.alone:
                cores = [[renamed(node, first) for node in nodes] for nodes in cores]
            sync = Synchronizer(front_end.sync == "tokens", sharing)
            streams = tuple(tuple(sync.stream(nodes)) for nodes in cores)
            between = dict.fromkeys(tokens_between(streams), 0)
            self.tokens = sync.initial | between
            if len(self.tokens) <= front_end.tokens:
                break
        else:
            refusal = _too_few(self.tokens, self.graph.name, front_end.tokens, sharing)
            refusal.by_step = self._tokens_of_steps(streams)
            raise refusal
        self.barriers |= sync.barriers
        self.tiles = tuple(sync.tiles)
        given = [dict(sync.initial) for _ in streams]
        return tuple(self.order.apply_all(streams, self.arch, given, self.registers))

    def _tokens_of_steps(self, streams: Sequence[Sequence[Item]]) -> dict[int, int]:
        """Step -> tokens that its instructions wait for or give."""
        found: dict[int, set[str]] = {}
        for item in instructions(item for stream in streams for item in stream):
            names = (name for name, _ in (*item.waits, *item.signals))
            found.setdefault(self.origins[item.origin].group, set()).update(names)
        return {step: len(names) for step, names in found.items()}

    def port(self, name: str) -> Port:
        """The tensor `name` as the model's user sees it, where it lies in memory."""
        tensor = self.graph.tensors[name]
        whole = tuple(Range(0, extent) for extent in tensor.shape)
        operand = far_operand(tensor, whole, self._cluster_addresses({}, 0))
        if name in self.graph.codes:
            scale, zero = self.graph.codes[name]
            operand = replace(operand, scale=scale, zero=zero)
        kind = self.graph.ports.get(name, tensor.dtype)
        return Port(name, operand, tensor.shape, kind, self.graph.sized.get(name, ""))

    def _constant_data(self) -> dict[str, Array]:
        """DRAM buffer -> raw elements, packed weights included; only what is read."""
        data: dict[str, Array] = {}
        loaded = {(number, name) for (name, _), (number, _) in self._pinned.items()}
        for number, (step, packs) in enumerate(zip(self.steps, self.packs, strict=True)):
            if isinstance(step, HostNode):
                for name in _touched(step):
                    self._add_constant(data, self.graph.tensors[name])
                continue
            for name in step.plan.schedule.group.stored:
                self._add_constant(data, sources(self.graph.tensors[name])[-1])
            group = step.plan.schedule.group
            for layer, pack in zip(step.plan.layers, packs, strict=True):
                for name, weights in _layer_inputs(step.plan, layer.position):
                    if name in group.pinned and (number, name) not in loaded:
                        continue
                    tensor = self.graph.tensors[name]
                    if pack is not None and weights and tensor.data is not None:
                        data |= packed_bytes(pack, layer, tensor.data)
                    else:
                        for source in sources(tensor):
                            self._add_constant(data, source)
        for name in self.graph.outputs:
            self._add_constant(data, self.graph.tensors[name])
        return data

    @cached_property
    def _pinned(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Constant that stays for several groups, and core that has it -> the step in which that
        loads it, and the last one in which it reads it."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for number, step in enumerate(self.steps):
            if isinstance(step, HostNode):
                continue
            schedule = step.plan.schedule
            for key in product(schedule.group.pinned, range(len(schedule.parts))):
                found[key] = found.get(key, (number, number))[0], number
        return found

    def _add_constant(self, data: dict[str, Array], tensor: Tensor) -> None:
        buffer = tensor.storage.buffer
        if tensor.data is None or buffer in data:
            return
        owner = self.graph.tensors[buffer]
        assert owner.data is not None
        data[buffer] = np.ascontiguousarray(owner.data)

    def _dram(self) -> dict[str, int]:
        """Addresses of everything in DRAM."""
        address = 0
        fixed: dict[str, int] = {}
        for name, data in self.data.items():
            fixed[name] = address
            address = -(-(address + data.nbytes) // GRAIN) * GRAIN
        spans = [span for span in self._live_ranges() if span.name not in self.shared]
        placed, end = place(spans, address)
        for span in spans:
            self.buffers.append(
                Buffer(span.name, "dram", placed[span.name], span.size, None, span.first, span.last)
            )
        self._record_shared()
        last = max(0, len(self.steps) - 1)
        for name, data in self.data.items():
            self.buffers.append(Buffer(name, "dram", fixed[name], data.nbytes, None, 0, last))
        self.end = end
        return fixed | placed

    def _shared_buffers(self) -> dict[str, Shared]:
        """Buffers in shared memory."""
        groups = [s.plan.schedule.group for s in self.steps if isinstance(s, PlacedGroup)]
        return {
            group.tensors[name].storage.buffer: home
            for group in groups
            for name, home in group.shared.items()
        }

    def _record_shared(self) -> None:
        for span in self._live_ranges():
            home = self.shared.get(span.name)
            if home is None:
                continue
            for cluster in range(home.slices):
                core = cluster * self.arch.cores if home.slices > 1 else None
                self.buffers.append(
                    Buffer(
                        span.name, "shared", home.address, home.bytes, core, span.first, span.last
                    )
                )

    def _cluster_addresses(self, chip: Mapping[str, tuple[int, int]], cluster: int) -> Places:
        """Where everything lies for the cores of a cluster."""
        near = {
            name: home.address - (cluster * home.bytes if home.slices > 1 else 0)
            for name, home in self.shared.items()
        }
        return Places(chip, self.dram, near)

    def _live_ranges(self) -> list[LiveRange]:
        born: dict[str, int] = {}
        dies: dict[str, int] = {}
        last = max(0, len(self.steps) - 1)
        dtypes: dict[str, str] = {}

        def touch(name: str, step: int) -> None:
            tensor = self.graph.tensors[name]
            if tensor.data is not None:
                return
            buffer = tensor.storage.buffer
            dtypes[buffer] = tensor.dtype
            born[buffer] = min(born.get(buffer, step), step)
            dies[buffer] = max(dies.get(buffer, step), step)

        for number, step in enumerate(self.steps):
            for name in _touched(step):
                touch(name, number)
        for name in (*self.graph.inputs, *self.graph.outputs):  # theirs alone, see `relocation`
            touch(name, 0)
            touch(name, last)
        sizes = self.graph.buffers
        return [
            LiveRange(name, sizes[name] * size_of(dtypes[name]), born[name], dies[name])
            for name in born
        ]

    def _emit_group(
        self, number: int, step: PlacedGroup, packs: Sequence[PackedWeights | None]
    ) -> None:
        plan = step.plan
        origins = []
        for layer in plan.schedule.group.layers:
            first = len(self.origins)
            self.origins += [Origin(nest.origin, number, nest.kind) for nest in layer.nests]
            origins.append(tuple(range(first, len(self.origins))))

        def awaited(buffer: str) -> list[str]:
            return [f"step{s}" for s in self._writers.get(buffer, ()) if s < number]

        def lacking(name: str, core: int) -> bool:
            return self._pinned[name, core][0] == number

        around = EmissionContext(
            self.arch, self._cluster_addresses(step.places, 0), self.names, number,
            len(plan.schedule.loops), self.barriers, awaited, self._picks(number, plan), lacking,
        )  # fmt: skip
        follows = self.following[number]
        emitter = GroupEmitter(around, plan, packs, origins, follows)
        trees = []
        for core in range(len(plan.schedule.parts)):
            if core and core % self.arch.cores == 0:
                places = self._cluster_addresses(step.places, core // self.arch.cores)
                emitter = replace(emitter, around=replace(around, places=places))
            trees.append(emitter.nodes(core))
            self._record(number, core, step)
        shared = self.share.apply(trees, self.arch, self.names, partial(self._allot, number))
        whole = with_handovers(shared, plan, around, origins[-1][-1], follows)
        for core, nodes in enumerate(whole):
            self._add(core, number, nodes)

    def _picks(self, number: int, plan: Plan) -> dict[str, int]:
        """Origins of what step `number` reads in tables, by tensor."""
        found = {}
        for name in plan.schedule.group.inputs:
            picked = self.graph.tensors[name].picked
            if picked is not None:
                found[name] = len(self.origins)
                self.origins.append(Origin(picked.origin, number, picked.kind))
        return found

    def _add(self, core: int, number: int, nodes: Sequence[Node]) -> None:
        """`nodes` of one step, each behind what other steps must have done off chip."""
        # Behind what a step writes is what it has read for that; what it reads after its last write
        # stays on chip, so the reader says itself when it is over.
        engines: dict[str, None] = {}
        late: dict[str, None] = {}
        for leaf in _leaves(nodes):
            if leaf.writes:
                engines |= {leaf.engine: None}
                late = {}
            elif leaf.reads:
                late |= {leaf.engine: None}
        # Others read what it stages, and it what they do, whatever it writes itself.
        engines |= late | {leaf.engine: None for leaf in _leaves(nodes) if leaf.staged}
        for node in nodes:
            for leaf in node.leaves:
                for barrier in self._before(core, number, leaf):
                    self._await(core, leaf.engine, barrier, leaf.origin)
            self.nodes[core].append(node)
        for engine in engines:
            name = f"step{number}"
            arrive = Arrive(engine=engine, barrier=name, origin=nodes[-1].origin)
            self.nodes[core].append(EngineStep(engine, (arrive,), origin=nodes[-1].origin))
            self.barriers[name] = self.barriers.get(name, 0) + 1

    def _await(self, core: int, engine: str, step: int, origin: int) -> None:
        if (core, engine, step) in self._awaited:
            return
        self._awaited.add((core, engine, step))
        wait = Await(engine=engine, barrier=f"step{step}", origin=origin)
        self.nodes[core].append(EngineStep(engine, (wait,), origin=origin))

    def _before(self, core: int, number: int, leaf: EngineStep) -> Iterator[int]:
        """Steps that must be over before `leaf` of step `number` touches memory, without those that
        its engine has awaited for the same buffer: a sequence is written by step after step."""

        def earlier(steps: Mapping[str, Sequence[int]], buffer: str) -> Sequence[int]:
            found = steps.get(buffer, ())
            key = core, leaf.engine, buffer, steps is self._writers
            first, end = self._passed.get(key, 0), bisect_left(found, number)
            self._passed[key] = end
            return found[first:end]

        for buffer in sorted(() if leaf.waited else leaf.reads):
            yield from earlier(self._writers, buffer)
        for buffer in sorted(leaf.writes):
            for other in (*self._neighbours(buffer), *(self._tables & {buffer})):
                yield from earlier(self._users, other)
            if buffer in self.shared:
                home = self.shared[buffer]
                yield from self._staged_at(home.address, home.bytes, number)
        if leaf.staged:
            low, span = self._stages[leaf.staged]
            yield from self._staged_at(low, span.size, number)
            for buffer, home in self.shared.items():
                if home.address < low + span.size and low < home.address + home.bytes:
                    yield from earlier(self._users, buffer)

    def _staged_at(self, low: int, size: int, number: int) -> Iterator[int]:
        """Steps before `number` whose cores pass on what they load through these bytes of shared
        memory."""
        for start, span in self._stages.values():
            if span.last < number and low < start + span.size and start < low + size:
                yield span.last

    def _allot(self, number: int, buffer: str, size: int) -> Stage | None:
        """Room in shared memory for what is on its way in a step: other than that of the step
        before, if there is so much."""
        memory = self.arch.memories.shared
        assert memory is not None
        alive = {span.name: span for span in self._live_ranges()}
        homes = [
            (home.address, replace(alive[name], size=home.bytes))
            for name, home in self.shared.items()
        ]
        grain = math.lcm(GRAIN, memory.alignment)
        for first in (number - 1, number):
            span = LiveRange(f"step{number}.{buffer}", size, first, number)
            address = lowest(span, [*homes, *self._stages.values()], grain)
            if address + size <= memory.size:
                self._stages[span.name] = address, replace(span, first=number)
                self._record_stage(span.name, address, size, number)
                return span.name, address
        return None

    def _record_stage(self, name: str, address: int, size: int, number: int) -> None:
        memory = self.arch.memories.shared
        clustered = memory is not None and memory.level == "cluster"
        firsts = range(0, self.arch.core_count, self.arch.cores) if clustered else (None,)
        for core in firsts:
            self.buffers.append(Buffer(name, "shared", address, size, core, number, number))

    @cached_property
    def _tables(self) -> frozenset[str]:
        """Buffers in which rows are changed that others may have read or written before."""
        placed = (t.placed for t in self.graph.tensors.values() if t.placed is not None)
        return frozenset(each.table.storage.buffer for each in placed)

    @cached_property
    def _writers(self) -> dict[str, list[int]]:
        """Buffer off chip or in shared memory -> steps that write it."""
        return self._steps_by(_writes)

    @cached_property
    def _users(self) -> dict[str, list[int]]:
        """Buffer off chip or in shared memory -> steps that read or write it."""
        return self._steps_by(_touched)

    def _steps_by(self, names: Callable[[Step], tuple[str, ...]]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, step in enumerate(self.steps):
            for name in names(step):
                tensor = self.graph.tensors[name]
                if tensor.data is None:
                    found.setdefault(tensor.storage.buffer, []).append(number)
        return found

    def _neighbours(self, buffer: str) -> list[str]:
        """Buffers that share bytes with `buffer`, which lives later: all but itself."""
        return [name for name in self._overlaps[buffer] if name != buffer]

    @cached_property
    def _overlaps(self) -> dict[str, list[str]]:
        ends: dict[str, tuple[str, int, int]] = {}
        for span in self._live_ranges():
            home = self.shared.get(span.name)
            low = self.dram[span.name] if home is None else home.address
            size = span.size if home is None else home.bytes
            ends[span.name] = "dram" if home is None else "shared", low, low + size
        return {
            a: [
                b
                for b, (where, low, high) in ends.items()
                if where == memory and low < end and start < high
            ]
            for a, (memory, start, end) in ends.items()
        }

    def _record(self, number: int, core: int, step: PlacedGroup) -> None:
        for buffer in step.plan.buffers.values():
            address, pitch = step.places[buffer.name]
            name = "" if buffer.key is None else buffer.key[0]
            if buffer.address is not None and (name, core) in self._pinned:
                first, last = self._pinned[name, core]
                if first == number:
                    self.buffers.append(
                        Buffer(name, buffer.role, address, buffer.bytes, core, first, last)
                    )
                continue
            for slot in range(buffer.slots):
                self.buffers.append(
                    Buffer(
                        f"{buffer.name}[{slot}]" if buffer.slots > 1 else buffer.name,
                        buffer.role, address + slot * pitch, buffer.bytes, core, number, number,
                    )
                )  # fmt: skip

    def _emit_host_call(self, number: int, node: HostNode) -> None:
        if node.pick is not None:
            return
        origin = len(self.origins)
        self.origins.append(Origin(node.origin, number, node.kind))
        places = self._cluster_addresses({}, 0)

        def whole(name: str) -> Tensor:
            return self.graph.tensors[name]

        operands = [
            tuple(
                far_operand(whole(name), tuple(Range(0, n) for n in whole(name).shape), places)
                for name in names
            )
            for names in (node.inputs, node.outputs)
        ]
        call = HostCall(
            payload=len(self.payloads), inputs=operands[0], outputs=operands[1],
            operations=node.operations, origin=origin,
        )  # fmt: skip
        self.payloads.append(node.payload)
        reads, writes = (
            frozenset(whole(n).storage.buffer for n in names if whole(n).data is None)
            for names in (node.inputs, node.outputs)
        )
        leaf = EngineStep(HOST, (call,), origin=origin, reads=reads, writes=writes)
        self._add(0, number, [leaf])


def _too_few(tokens: Mapping[str, int], where: str, bound: int, sharing: Sharing) -> TooFewTokens:
    """Pairs of engines that share buffers take tokens at every loop depth, or engines one each."""
    demand, empty = len(tokens), sum(count > 0 for count in tokens.values())
    terms = ("full buffers", demand - empty), ("empty buffers", empty)
    return TooFewTokens(
        demand=demand,
        bound=bound,
        unit="tokens",
        terms=(("engines that take turns", demand),) if sharing.turns else terms,
        levers=(f"front_end.tokens of at least {demand}", "front_end.sync: interlock"),
        where=f"{where}: tokens of a core",
    )


def _leaves(nodes: Sequence[Node]) -> Iterator[EngineStep]:
    return (leaf for node in nodes for leaf in node.leaves)


def _layer_inputs(plan: Plan, position: int) -> tuple[tuple[str, bool], ...]:
    """What a layer reads from memory, and whether it reads it as weights of a product."""
    keys = (
        b.key
        for b in plan.buffers.values()
        if b.key is not None and (b.first if b.layer is None else b.layer) == position
    )
    return tuple(dict.fromkeys((key[0], key[2]) for key in keys))


def _writes(step: Step) -> tuple[str, ...]:
    if isinstance(step, HostNode):
        return step.outputs if step.pick is None else ()
    group = step.plan.schedule.group
    return tuple(sources(group.tensors[name])[0].name for name in group.stored)


def _touched(step: Step) -> tuple[str, ...]:
    """Tensors that it reads or writes off chip: of those that lie in a table, that and the list."""
    if isinstance(step, HostNode):
        return (*step.inputs, *step.outputs) if step.pick is None else ()
    group = step.plan.schedule.group
    names = (*(name for name in group.inputs if name not in group.kept), *group.stored)
    return tuple(source.name for name in names for source in sources(group.tensors[name]))

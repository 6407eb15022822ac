"""The instructions of a program: the trees of its steps one after another on every core, host calls
between them, then one stream for each core.

A step waits for what it needs and no more: for the steps that stored what it loads, and for those
that used the memory that it writes. Between the engines of a core tokens do that, whatever group
they work on; between cores, and for the host, every step that touches memory has a barrier.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from compiler.codegen.constants import PackedWeights, constants_of, packed_by_step
from compiler.codegen.group import GroupEmitter
from compiler.codegen.host_pieces import HostPieces, called_in_time, pieces_of
from compiler.codegen.legalize import Names
from compiler.codegen.loop_loads import StepTimes
from compiler.codegen.multicast import ShareLoads, Stage, tokens_between
from compiler.codegen.nodes import (
    EngineStep,
    Node,
    SegmentedLoop,
    instructions,
    renamed,
    step_barrier,
)
from compiler.codegen.relocate import CoreParts, EmittedGroup, EmittedGroups, GroupSite
from compiler.codegen.split_loads import Bundles
from compiler.codegen.tile import EmissionContext, Places, far_operand
from compiler.codegen.tokens import Sharing, Synchronizer
from compiler.errors import TooFewTokens
from compiler.geometry.boxes import Range
from compiler.memory.load_plan import joined_loads
from compiler.memory.off_chip import OffChip, pinned_steps
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.plan.make_plan import Plan
from compiler.plan.symbolic_parts import STILL, Following, following
from compiler.schedule.fusion.partition import Outlines
from compiler.schedule.residency.buffer import GRAIN, LiveRange, lowest
from compiler.schedule_ir.group import Group
from compiler.target.machine import rate_type
from compiler.tensor_ir.demand import Demanded, demanded
from compiler.tensor_ir.nest import HostNode, NestGraph, Tensor
from simmodel.arch.element_types import size_of
from simmodel.arch.record import Arch
from simmodel.isa import HOST, Arrive, Await, HostCall, Item
from simmodel.isa.region import Operand, Register, cached_property
from simmodel.program.program import Buffer, Constant, Demand, Origin, Port, Program, TileKind


def demand_of(graph: NestGraph, steps: Sequence[Step], least: Demanded, arch: Arch) -> Demand:
    """What the outputs of `graph` take in products over channels and of DRAM, where `steps` compute
    it."""
    products: dict[str, int] = {}
    total = 0
    tensors = graph.tensors
    plans = (step.plan for step in steps if isinstance(step, PlacedGroup))
    for compute in (c for plan in plans for layer in plan.layers for c in layer.computes):
        macs = least.macs.get(compute.nest.tensor, 0)  # a trial of one group has no outputs
        if not macs or not compute.binding.product:
            continue
        total += macs
        if compute.binding.engine == arch.multiplier:
            kind = rate_type(compute.nest, tensors, arch.with_array(compute.binding.array))
            products[kind] = products.get(kind, 0) + macs
    flash = 0 if arch.constants == "dram" else least.constants
    return Demand(tuple(products.items()), total, least.read, least.written, flash)


@dataclass(frozen=True)
class StepCode:
    """The work of one step: a tree for each core, empty for those that take no part."""

    code: ProgramCode
    number: int
    trees: list[list[Node]]
    plan: Plan | None = None
    """None: a call of the host."""
    around: EmissionContext | None = None
    origin: int = 0
    """Of what belongs to no layer but the last."""
    follows: Following = STILL


@dataclass(frozen=True)
class ProgramCode(OffChip):
    """A program on its way: where everything lies, then the trees of all cores, then streams."""

    packs: Sequence[Sequence[PackedWeights | None]]
    """How weights are packed, by step and layer."""
    following: Mapping[int, Following]
    """By step, how the cores' parts follow lengths."""
    cores: Sequence[list[Node]]
    """The trees of each core, step after step."""
    buffers: list[Buffer] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    origins: list[Origin] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    barriers: dict[str, int] = field(default_factory=dict)
    """With their arrivals."""
    streams: tuple[tuple[Item, ...], ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Between engines of each core, with their counts at the start."""
    between: tuple[dict[str, int], ...] = ()
    """Of each core, tokens that others give it."""
    tiles: tuple[TileKind, ...] = ()
    emitted: EmittedGroups = field(default_factory=EmittedGroups)
    """Groups of this and of other programs for the machine."""
    bundled: tuple[Constant, ...] = ()
    """Copies of small constants, for one load of several."""
    _bare: Outlines = field(default_factory=lambda: Outlines(values=True, bare=True))
    _classes: dict[Hashable, Hashable] = field(default_factory=dict)
    """What groups depend on without the numbers of encodings and clips, by the same with them."""
    alike: dict[int, tuple[tuple[Hashable, ...], GroupSite]] = field(default_factory=dict)
    """By step, what all have in common that do the same with other values and encodings, and where
    it stands."""
    _awaited: set[tuple[int, str, int]] = field(default_factory=set)
    _passed: dict[tuple[object, ...], int] = field(default_factory=dict)
    _over: dict[tuple[int, str, int], set[str]] = field(default_factory=dict)
    """By core, engine and inference, buffers of which the engine has awaited all users."""
    _stages: dict[str, tuple[int, LiveRange]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, graph: NestGraph, arch: Arch, steps: Sequence[Step], inferences: int,
        emitted: EmittedGroups,
    ) -> ProgramCode:  # fmt: skip
        """Constants packed, and everything off chip with an address; no instructions yet."""
        packs = packed_by_step(steps, arch)
        plans = {n: s.plan for n, s in enumerate(steps) if isinstance(s, PlacedGroup)}
        cores: list[list[Node]] = [[] for _ in range(arch.core_count)]
        code = cls(
            graph, arch, steps, constants_of(graph, steps, packs), inferences, packs,
            following(plans, graph.registers), cores, emitted=emitted,
        )  # fmt: skip
        code.check()
        code.buffers.extend(code.memory_map())
        return code

    @cached_property
    def program(self) -> Program:
        """What the streams of all cores are with everything that they need."""
        least = demanded(self.graph)
        return Program(
            name=self.graph.name,
            arch=self.arch.name,
            cores=self.streams,
            tokens=tuple({**self.tokens, **others} for others in self.between),
            barriers=self.barriers,
            constants=tuple(
                Constant(name, self.far[name][1], data, data.nbytes, self.far[name][0])
                for name, data in self.constants.items()
            )
            + tuple(self.bundled),
            buffers=tuple(self.buffers),
            inputs=tuple(self.port(name) for name in self.graph.inputs),
            outputs=tuple(self.port(name) for name in self.graph.outputs),
            origins=tuple(self.origins),
            payloads=tuple(self.payloads),
            macs=sum(least.macs.values()) * self.inferences,
            demand=demand_of(self.graph, self.steps, least, self.arch),
            tiles=self.tiles,
            registers=self.registers,
        )

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """Lengths that are known when it runs, and shares of them that there are of windows or that
        cores have."""
        shares = (r for each in self.following.values() for r in each.registers)
        return tuple(dict.fromkeys((*self.graph.registers, *shares)))

    def port(self, name: str) -> Port:
        """The tensor `name` as the model's user sees it, where it lies in memory."""
        tensor = self.graph.tensors[name]
        operand = self._far_operand(tensor, self.inferences - 1)
        if name in self.graph.codes:
            scale, zero = self.graph.codes[name]
            operand = replace(operand, scale=scale, zero=zero)
        kind = self.graph.ports.get(name, tensor.dtype)
        return Port(name, operand, tensor.shape, kind, self.graph.sized.get(name, ""))

    @cached_property
    def _pinned(self) -> dict[tuple[str, int], tuple[int, int]]:
        return pinned_steps(self.steps)

    def cluster_addresses(
        self, chip: Mapping[str, tuple[int, int]], cluster: int, inference: int
    ) -> Places:
        """Where everything lies for the cores of a cluster in an inference."""
        near = {
            name: ("shared", home.address - (cluster * home.bytes if home.slices > 1 else 0))
            for name, home in self.shared.items()
        }
        return Places(chip, {**self.far_by_inference[inference], **near})

    def emit_steps(
        self, share: ShareLoads, multicast: Callable[[StepCode], StepCode]
    ) -> Iterator[StepCode]:
        """The trees of each step, one after another: loop variables are numbered in this order;
        `multicast` shares loads as `share` says."""
        for number, step in enumerate([*self.steps] * self.inferences):
            if isinstance(step, PlacedGroup):
                yield self._emit_group(number, step, share, multicast)
            elif step.pick is None:
                yield StepCode(self, number, [[*self._host_calls(number, step)]])

    def _emit_group(
        self, number: int, step: PlacedGroup, share: ShareLoads,
        multicast: Callable[[StepCode], StepCode],
    ) -> StepCode:  # fmt: skip
        plan, names, (inference, index) = step.plan, self.names, divmod(number, len(self.steps))
        follows, cores = self.following[index], plan.schedule.cores
        key, site = self._site(number, step)
        origins, layers = [], plan.schedule.group.layers
        for layer in layers:
            first = len(self.origins)
            self.origins.extend(Origin(nest.origin, number, nest.kind) for nest in layer.nests)
            origins.append(tuple(range(first, len(self.origins))))
        picks, pieces = self._picks(number, plan), self._pieces_read(number, plan)
        contexts = [
            EmissionContext(
                self.arch, self.cluster_addresses(step.places, cluster, inference), names, number,
                len(plan.schedule.loops), partial(self._steps_before, number), picks,
                partial(self._lacking, number), pieces,
            )
            for cluster in range(self.arch.clusters)
        ]  # fmt: skip
        named = {nest.tensor: nest.origin for layer in layers for nest in layer.nests}

        def waits_for_steps(made: EmittedGroup) -> bool:
            """Whether shared loads depend on the steps around."""
            return made.waits or share.staged(self.arch)

        def code() -> StepCode:
            return StepCode(self, number, trees, plan, contexts[0], origins[-1][-1], follows)

        known = None if pieces else self.emitted.kept.get((key, share))
        if known is None:
            before, packs = (len(names.works), len(names.offers)), self.packs[index]
            parts, same = CoreParts(plan, packs), dict[Hashable, EmittedGroup]()
            trees: list[list[Node]] = [[] for _ in range(cores.start)]
            for part, core in enumerate(cores):
                around = contexts[core // self.arch.cores]
                form, here = self._core_site(number, parts, part, around, site)
                if (other := same.get(form)) is not None:
                    trees += other.at(here, names, named, around.awaited)
                    continue
                so_far = len(names.works), len(names.offers)
                trees.append(GroupEmitter(around, plan, packs, origins, follows, part).nodes())
                same[form] = EmittedGroup.of(here, trees[-1:], names, *so_far)
            known = EmittedGroup.of(site, trees, names, *before)
            if not waits_for_steps(known):
                trees = multicast(code()).trees
                known = EmittedGroup.of(site, trees, names, *before)
            if not pieces:
                self.emitted.put((key, share), known)
        else:
            trees = known.at(site, names, named, contexts[0].awaited)
        alike = self._classes.get(key[0])
        if alike is None:
            bare, *_ = self._bare.with_names(plan.schedule.group)
            alike = self._classes[key[0]] = (bare, *key[0][1:])
        self.alike[number] = (alike, _scalars(plan.schedule.group)), site
        for core in cores:
            self._record(number, core, step)
        return multicast(code()) if waits_for_steps(known) else code()

    def _site(
        self, number: int, step: PlacedGroup
    ) -> tuple[tuple[tuple[Hashable, ...], tuple[int, ...]], GroupSite]:
        """What a group's trees depend on but for names and numbers, of which the order is the last;
        and what these are."""
        plan, (inference, index) = step.plan, divmod(number, len(self.steps))
        follows = self.following[index]
        schedule, buffers = plan.schedule, tuple(plan.buffers)
        outline, tensors, far = self.emitted.alike.with_names(schedule.group)
        packed = (pack for pack in self.packs[index] if pack is not None)
        far += tuple(name for pack in packed for name in pack.buffers)
        places = tuple(self._place(name, inference) for name in far)
        known = schedule.group.tensors
        lies = [each for name in tensors for each in (known[name], *known[name].sources)]
        starts = [
            (self._place(each.storage.buffer, inference), each.storage.offset * size_of(each.dtype))
            for each in lies
        ]
        # Each core finds its slice of a buffer in a way of its own.
        sliced = (home.address for home in self.shared.values() if home.slices > 1)
        firsts = {("shared", address): 0 for address in sliced}
        for place, start in starts:
            if place is not None:
                firsts[place] = min(firsts.get(place, start), start)
        site = GroupSite(
            number, len(self.origins), self.names.number, tensors, buffers, far, places,
            tuple(firsts.get(place, 0) if place else 0 for place in places),
        )  # fmt: skip
        alike = (
            outline, schedule.parts, schedule.loops, schedule.first_core, plan.slots,
            tuple((tiled.loops, tiled.resident) for tiled in schedule.layers),
            tuple(step.places[name] for name in buffers),
            tuple(map(places.index, places)), tuple(map(self.shared.get, far)),
            tuple(place and start - firsts[place] for place, start in starts),
            tuple(
                self._lacking(number, name, part)
                for name in schedule.group.pinned for part in range(len(schedule.parts))
            ),
            tuple(
                tuple(map(core.get, tensors)) for core in (*follows.works, *follows.holds)
            ),
        )  # fmt: skip
        order = sorted(range(len(buffers)), key=buffers.__getitem__)  # in which uses are
        return (alike, tuple(order)), site

    def _core_site(
        self, number: int, parts: CoreParts, part: int, around: EmissionContext, site: GroupSite
    ) -> tuple[Hashable, GroupSite]:
        """What the tree of the core with one part of the group at `site` depends on but for names
        and places, and what these are; parts that follow lengths are each of their own."""
        if self.graph.registers:
            return part, site
        form, firsts = parts.of(part, around.places)
        pinned = parts.plan.schedule.group.pinned
        lacking = tuple(self._lacking(number, name, part) for name in pinned)
        starts = tuple(firsts.get(name, 0) for name in site.far)
        return (form, lacking), replace(site, variable=self.names.number, firsts=starts)

    def _place(self, buffer: str, inference: int) -> tuple[str, int] | None:
        """Memory and address of a buffer; None: all that is touched of it is on chip."""
        home = self.shared.get(buffer)
        if home is not None:
            return "shared", home.address
        return self.far_by_inference[inference].get(buffer)

    def _steps_before(self, number: int, buffer: str) -> list[int]:
        """Steps of the same inference before `number` that write a buffer off chip."""
        start = number - number % len(self.steps)
        return [start + step for step in self.writers.get(buffer, ()) if start + step < number]

    @cached_property
    def _readers(self) -> dict[str, dict[int, int]]:
        """By tensor, the steps that read it in order, and the first layer there that does."""
        found: dict[str, dict[int, int]] = {}
        for index, step in enumerate(self.steps):
            layers = step.plan.schedule.group.layers if isinstance(step, PlacedGroup) else ()
            for position, layer in enumerate(layers):
                for name in layer.inputs:
                    found.setdefault(name, {}).setdefault(index, position)
        return found

    def first_reader(self, number: int, name: str) -> tuple[int, int]:
        """Steps to the next reader of a tensor behind `number`, and the layer there."""
        behind, readers = number % len(self.steps) + 1, self._readers.get(name, {})
        ahead = next((index for index in readers if index >= behind), len(self.steps))
        return ahead - behind, readers.get(ahead, 0)

    def _lacking(self, number: int, name: str, part: int) -> bool:
        """Whether a constant that stays for several groups is not there yet, on the core that has
        one part of a step."""
        step = self.steps[number % len(self.steps)]
        assert isinstance(step, PlacedGroup)
        core = step.plan.schedule.cores[part]
        start = 0 if (name, core) in self._lasting else number - number % len(self.steps)
        return start + self._pinned[name, core][0] == number

    @cached_property
    def _lasting(self) -> frozenset[tuple[str, int]]:
        """Constants that one inference leaves to the next: nothing else lies at their bytes, on
        this core."""
        found: dict[tuple[str, int], tuple[str, int, int]] = {}
        taken: set[tuple[int, str, int, int]] = set()
        for step in self.steps:
            if not isinstance(step, PlacedGroup):
                continue
            for buffer in step.plan.buffers.values():
                address, pitch = step.places[buffer.name]
                span = buffer.role, address, address + (buffer.slots - 1) * pitch + buffer.bytes
                name = "" if buffer.key is None else buffer.key[0]
                for core in step.plan.schedule.cores:
                    if name in step.plan.schedule.group.pinned:
                        found[name, core] = span
                    else:
                        taken.add((core, *span))
        return frozenset(
            (name, core)
            for (name, core), (memory, low, high) in found.items()
            if not any(t[:2] == (core, memory) and t[2] < high and low < t[3] for t in taken)
        )

    def _picks(self, number: int, plan: Plan) -> dict[str, int]:
        """Origins of what step `number` reads in tables, by tensor."""
        found = {}
        for name in plan.schedule.group.inputs:
            picked = self.graph.tensors[name].picked
            if picked is not None:
                found[name] = len(self.origins)
                self.origins.append(Origin(picked.origin, number, picked.kind))
        return found

    def append(self, step: StepCode) -> None:
        """Put the trees of a step behind those before it, each step of an engine behind what other
        steps must have done off chip."""
        for core, nodes in enumerate(step.trees):
            self._append(core, step.number, nodes)

    def _append(self, core: int, number: int, nodes: Sequence[Node]) -> None:
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
        asked: set[Hashable] = set()
        for node in nodes:
            for leaf in node.leaves:
                touched = leaf.engine, leaf.reads, leaf.writes, leaf.waited, leaf.staged
                if touched in asked:
                    continue
                asked.add(touched)
                for step in self._before(core, number, leaf):
                    if (core, leaf.engine, step) not in self._awaited:
                        self._awaited.add((core, leaf.engine, step))
                        wait = Await(
                            engine=leaf.engine, barrier=step_barrier(step), origin=leaf.origin
                        )
                        waiting = EngineStep(leaf.engine, (wait,), origin=leaf.origin)
                        self.cores[core].append(waiting)
            self.cores[core].append(node)
        for engine in engines:
            name, origin = step_barrier(number), nodes[-1].origin
            arrive = Arrive(engine=engine, barrier=name, origin=origin)
            self.cores[core].append(EngineStep(engine, (arrive,), origin=origin))
            self.barriers[name] = self.barriers.get(name, 0) + 1

    def drop_idle_arrivals(self) -> None:
        """Leave out arrivals at barriers that nobody awaits: they are issued behind all that other
        cores wait for before them, and so are the loads of their engine."""
        items = (item for nodes in self.cores for leaf in _leaves(nodes) for item in leaf.items)
        awaited = {item.barrier for item in items if isinstance(item, Await)}
        idle = self.barriers.keys() - awaited
        for nodes in self.cores:
            nodes[:] = (node for node in nodes if _arrival(node) not in idle)
        for name in idle:
            del self.barriers[name]

    def _before(self, core: int, number: int, leaf: EngineStep) -> Iterator[int]:
        """Steps that must be over before `leaf` of step `number` touches memory, without those that
        its engine has awaited for the same buffer: a sequence is written by step after step."""

        start = number - number % len(self.steps)
        over = self._over.setdefault((core, leaf.engine, start), set())

        def earlier(steps: Mapping[str, Sequence[int]], buffer: str) -> Iterator[int]:
            found = steps.get(buffer, ())
            key = core, leaf.engine, buffer, steps is self.writers, start
            first, end = self._passed.get(key, 0), bisect_left(found, number - start)
            self._passed[key] = end
            if steps is self.users and end == len(found):
                over.add(buffer)
            return (start + step for step in found[first:end])

        def before_that(buffers: Iterable[str]) -> Iterator[int]:
            """All that the inference before does with them, of those that had the same bytes."""
            return (
                since + step
                for buffer in buffers
                if (since := start - self.turns.get(buffer, 1) * len(self.steps)) >= 0
                for step in self.users.get(buffer, ())
            )

        for buffer in sorted(() if leaf.waited else leaf.reads):
            yield from earlier(self.writers, buffer)
            yield from before_that(self.tables & {buffer})
        for buffer in sorted(leaf.writes):
            # Buffers that share bytes with this one, which lives later.
            overlaps = (name for name in self.overlaps[buffer] if name not in over)
            beside = (name for name in overlaps if name != buffer)
            for other in (*beside, *(self.tables & {buffer})):
                yield from earlier(self.users, other)
            yield from before_that(self.overlaps[buffer])
            if buffer in self.shared:
                home = self.shared[buffer]
                yield from self._staged_at(home.address, home.bytes, number)
        if leaf.staged:
            low, span = self._stages[leaf.staged]
            yield from self._staged_at(low, span.size, number)
            for buffer, home in self.shared.items():
                if home.address < low + span.size and low < home.address + home.bytes:
                    yield from earlier(self.users, buffer)
                    yield from before_that((buffer,))

    def _staged_at(self, low: int, size: int, number: int) -> Iterator[int]:
        """Steps before `number` whose cores pass on what they load through these bytes of shared
        memory."""
        for start, span in self._stages.values():
            if span.last < number and low < start + span.size and start < low + size:
                yield span.last

    def allot(self, number: int, buffer: str, size: int) -> Stage | None:
        """Room in shared memory for what is on its way in a step: other than that of the step
        before, if there is so much."""
        memory = self.arch.memories.shared
        assert memory is not None
        start = number - number % len(self.steps)
        homes = [
            (home.address, LiveRange(s.name, home.bytes, start + s.first, start + s.last, 1))
            for s in self.live_ranges
            if (home := self.shared.get(s.name)) is not None
        ]
        grain = math.lcm(GRAIN, memory.alignment)
        for first in (number - 1, number):
            span = LiveRange(f"step{number}.{buffer}", size, first, number, grain)
            address = lowest(span, [*homes, *self._stages.values()])
            if address + size <= memory.size:
                self._stages[span.name] = address, replace(span, first=number)
                every = range(0, self.arch.core_count, self.arch.cores)
                self.buffers.extend(
                    Buffer(span.name, "shared", address, size, core, number, number)
                    for core in (every if memory.level == "cluster" else (None,))
                )
                return span.name, address
        return None

    def _record(self, number: int, core: int, step: PlacedGroup) -> None:
        for buffer in step.plan.buffers.values():
            address, pitch = step.places[buffer.name]
            name = "" if buffer.key is None else buffer.key[0]
            if buffer.address is not None and (name, core) in self._pinned:
                first, last = self._pinned[name, core]
                if self._lacking(number, name, core - step.plan.schedule.first_core):
                    stays = (name, core) in self._lasting
                    last = self.numbers - 1 if stays else number - first + last
                    self.buffers.append(
                        Buffer(name, buffer.role, address, buffer.bytes, core, number, last)
                    )
                continue
            for slot in range(buffer.slots):
                self.buffers.append(
                    Buffer(
                        f"{buffer.name}[{slot}]" if buffer.slots > 1 else buffer.name,
                        buffer.role, address + slot * pitch, buffer.bytes, core, number, number,
                    )
                )  # fmt: skip

    def _pieces_read(self, number: int, plan: Plan) -> dict[str, Mapping[int, str]]:
        """By tensor that the host makes in pieces for a step: tile -> the barrier of what it is the
        first to read; trees with such waits are of this program alone."""
        first = number - number % len(self.steps)
        made = ((first + n, pieces) for n, pieces in enumerate(self._host_pieces) if pieces)
        return {p.tensor: p.awaited(step) for step, p in made if p.tensor in plan.held}

    @cached_property
    def _host_pieces(self) -> list[HostPieces | None]:
        return [pieces_of(self, number) for number in range(len(self.steps))]

    def _host_calls(self, number: int, node: HostNode) -> Iterator[EngineStep]:
        origin = len(self.origins)
        self.origins.append(Origin(node.origin, number, node.kind))
        ends = [
            [self.graph.tensors[name] for name in names] for names in (node.inputs, node.outputs)
        ]
        inference, index = divmod(number, len(self.steps))
        reads, writes = (frozenset(t.storage.buffer for t in end if t.data is None) for end in ends)
        pieces = self._host_pieces[index]
        payload = node.of_boxes if pieces else node.payload
        if payload not in self.payloads:  # an inference before this one made the same call
            self.payloads.append(payload)
        boxes = pieces.boxes if pieces else (None,)
        for piece, box in enumerate(boxes):
            inputs, outputs = (
                tuple(self._far_operand(tensor, inference, box) for tensor in end) for end in ends
            )
            call = HostCall(
                payload=self.payloads.index(payload), inputs=inputs, outputs=outputs,
                operations=node.operations // len(boxes), origin=origin,
            )  # fmt: skip
            items: tuple[Item, ...] = (call,)
            if pieces and piece < len(boxes) - 1:
                barrier = pieces.barrier(piece, number)
                items = (call, Arrive(engine=HOST, barrier=barrier, origin=origin))
                self.barriers[barrier] = 1
            yield EngineStep(HOST, items, origin=origin, reads=reads, writes=writes)

    def _far_operand(
        self, tensor: Tensor, inference: int, box: tuple[Range, ...] | None = None
    ) -> Operand:
        """A tensor, or a box of it, where it lies for the first cluster in an inference."""
        box = box or tuple(Range(0, extent) for extent in tensor.shape)
        return far_operand(tensor, box, self.cluster_addresses({}, 0, inference))

    def loop_cycles(self, loop: SegmentedLoop) -> float:
        """Cycles that all turns of a loop over tiles are expected to take; 0 of other loops."""
        step = self.steps[self.origins[loop.origin].group % len(self.steps)]
        if not isinstance(step, PlacedGroup) or not step.plan.schedule.loops:
            return 0.0
        expected = step.plan.schedule.estimate
        return expected.total - expected.lead

    @property
    def step_times(self) -> StepTimes:
        """What steps are expected to take; calls of the host nothing."""
        own = [
            step.plan.schedule.estimate.total if isinstance(step, PlacedGroup) else 0.0
            for step in self.steps
        ]
        cycles = {step_barrier(n): total for n, total in enumerate(own * self.inferences)}
        return StepTimes(cycles, lambda origin: step_barrier(self.origins[origin].group))

    @property
    def bundles(self) -> Bundles:
        """Constants of which copies may lie side by side, and where there is room for these."""
        held = [(self.far[name][1], data) for name, data in self.constants.items()]
        end, count = self._layout[1][self.arch.constants], len(self.steps)
        end = -(-end // GRAIN) * GRAIN

        joined = joined_loads(self.steps, self.arch)

        def joins_earlier(step: int, dst: Operand) -> bool:
            return (step % count, dst.memory, dst.address.base) in joined

        held.sort(key=lambda each: each[0])
        return Bundles(held, end, lambda origin: self.origins[origin].group, joins_earlier)

    def with_bundles(self, cores: Sequence[list[Node]], bundles: Bundles) -> ProgramCode:
        """With loads of these `bundles` on its cores."""
        home, last, alike = self.arch.constants, max(0, self.numbers - 1), dict(self.alike)
        made: list[Constant] = []
        for address, data, origin in bundles.made.values():
            name, number = f"bundle{len(made)}", self.origins[origin].group
            made.append(Constant(name, address, data, data.nbytes, home))
            self.buffers.append(Buffer(name, home, address, data.nbytes, None, 0, last))
            if number in alike:  # whose load reads it, as that of an equal layer reads another one
                key, site = alike[number]
                alike[number] = (*key, "bundle"), site.beside(name, (home, address))
        return replace(self, cores=cores, bundled=tuple(made), alike=alike)

    @property
    def shared_end(self) -> int:
        """Bytes of shared memory in use: tensors between steps, and what cores pass on there."""
        stages = (low + span.size for low, span in self._stages.values())
        return max(*(h.address + h.bytes for h in self.shared.values()), *stages, 0, 0)

    def synchronized(self, *, turns: bool = False) -> ProgramCode:
        """With the instructions of each core in one stream, and as many tokens as there are; with
        `turns` one engine of a core works at a time.

        Raises TooFewTokens.
        """
        front_end, cores = self.arch.front_end, self.cores
        kinds = *self.arch.arrays, "vector"
        first = {name: kind for kind in kinds for name in self.arch.units(kind)}
        for sharing in (Sharing.TURNS,) if turns else [*Sharing][:-1]:
            if sharing >= Sharing.ALONE:
                cores = [[renamed(node, first) for node in nodes] for nodes in cores]
            sync = Synchronizer(front_end.sync == "tokens", sharing)
            streams = tuple(tuple(called_in_time(sync.stream(nodes))) for nodes in cores)
            between = tokens_between(streams)
            counts = max((sync.initial | others for others in between), key=len)
            if len(counts) <= front_end.tokens:
                return replace(
                    self, streams=streams, tokens=sync.initial, between=between,
                    tiles=tuple(sync.tiles), barriers=self.barriers | sync.barriers,
                )  # fmt: skip
        refusal = _too_few(counts, self.graph.name, front_end.tokens, sharing)
        refusal.by_step = self._tokens_of_steps(streams)
        raise refusal

    def _tokens_of_steps(self, streams: Sequence[Sequence[Item]]) -> dict[int, int]:
        """Step -> tokens that its instructions wait for or give."""
        found: dict[int, set[str]] = {}
        for item in instructions(item for stream in streams for item in stream):
            names = (name for name, _ in (*item.waits, *item.signals))
            found.setdefault(self.origins[item.origin].group, set()).update(names)
        return {step: len(names) for step, names in found.items()}


def _too_few(tokens: Mapping[str, int], where: str, bound: int, sharing: Sharing) -> TooFewTokens:
    """Pairs of engines that share buffers take tokens at every loop depth, or engines one each."""
    demand, empty = len(tokens), sum(count > 0 for count in tokens.values())
    terms = ("full buffers", demand - empty), ("empty buffers", empty)
    return TooFewTokens(
        demand=demand,
        bound=bound,
        unit="tokens",
        terms=(("engines that take turns", demand),) if sharing is Sharing.TURNS else terms,
        levers=(f"front_end.tokens of at least {demand}", "front_end.sync: interlock"),
        where=f"{where}: tokens of a core",
    )


def _arrival(node: Node) -> str:
    """The barrier at which a node does nothing but arrive; empty: it does something else."""
    item = node.items[0] if isinstance(node, EngineStep) and len(node.items) == 1 else None
    return item.barrier if isinstance(item, Arrive) else ""


def _leaves(nodes: Sequence[Node]) -> Iterator[EngineStep]:
    return (leaf for node in nodes for leaf in node.leaves)


def _scalars(group: Group) -> tuple[bytes, ...]:
    """Constants of one element, which are no weights or encodings but attributes."""
    nests = [nest for layer in group.layers for nest in layer.nests]
    read = dict.fromkeys(a.tensor for n in nests for a in n.reads if a is not n.multiplier)
    data = (group.tensors[name].data for name in read if group.tensors[name].elements == 1)
    return tuple(np.asarray(each).tobytes() for each in data if each is not None)

"""The plan of a group: buffers on chip, and the steps that fill, use and empty them.

    load     a region of a tensor from memory into a buffer, before the loops that do not move it
    compute  one nest of a layer on its engine
    store    a tile from its buffer to memory

A buffer has `slots` tiles in turn, so the step that fills the next one need not wait for the steps
that still use this one. Buffers of a layer turn in the layer's loops and carry its position; those
of the group (what passes between layers, constants that stay) turn in the outer loops. `level` is
the number of these loops around a buffer's turn.

What passes between layers is held by the group, with the borders that its readers expect. A layer
that is alone holds nothing: it loads what it reads and stores what it makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from compiler.cost.multicast import EARLY
from compiler.errors import DoesNotFit
from compiler.geometry.boxes import Key, Range, Region, keys_of, needs
from compiler.geometry.tile_trace import TileTrace, TraceCache, largest, trace_parts
from compiler.passes import Count, within
from compiler.schedule.residency.buffer import (
    BufferList,
    GroupBufferMaker,
    GroupBuffers,
    TileBuffer,
    alive,
    engine_between,
    in_use,
    loads_own_channels,
)
from compiler.schedule_ir.layer import Binding, Layer
from compiler.schedule_ir.schedule import Schedule, Tiled
from compiler.target.array_mapping import roles
from compiler.target.group_facts import Facts
from compiler.target.layout import input_strides, links_of, loaded_once, role_of, room_of, started
from compiler.target.machine import between_type, slots_of_sums, temporary_type
from compiler.target.start_sums import factors_of
from compiler.tensor_ir.nest import Access, Nest, dense, order_of
from simmodel.arch.element_types import accumulator_of, is_float, size_of
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch
from simmodel.isa.region import replace


@dataclass(frozen=True)
class Compute:
    """One nest on its engine; buffers by name."""

    nest: Nest
    position: int
    """Position of the nest in the layer."""
    binding: Binding
    level: int
    reads: tuple[str, ...]
    """Buffer of every access, in the order of `nest.reads`."""
    steps: tuple[tuple[int, ...], ...]
    """For every access, bytes by which each loop of the nest moves it within its buffer."""
    writes: str
    sums: str | None = None
    """Buffer of partial sums (matrix engine) or of intermediate values (vector engine)."""
    scratch: tuple[str, ...] = ()
    """Buffers for intermediate values between the vector instructions of this nest."""
    start: tuple[str, ...] = ()
    """Buffers of the row that sums start from, and of the factors of its digits."""

    def of(self, layer: Layer, buffers: Mapping[str, str]) -> Compute:
        """The same of a layer that is like its own, with other `buffers` for those that it has."""
        return replace(
            self,
            nest=layer.nests[self.position],
            reads=tuple([buffers[name] for name in self.reads]),
            writes=buffers[self.writes],
            sums=self.sums and buffers[self.sums],
            scratch=tuple([buffers[name] for name in self.scratch]),
            start=tuple([buffers[name] for name in self.start]),
        )


@dataclass(frozen=True)
class LayerPlan:
    """Steps of one layer, within the outer loops."""

    tiled: Tiled
    position: int
    buffers: dict[str, TileBuffer]
    """All buffers of the group."""
    loads: tuple[tuple[str, str], ...]
    """(buffer, copy engine) of the layer's own buffers, in the order in which they are issued."""
    computes: tuple[Compute, ...]
    result: str
    """Buffer that gets the layer's result."""
    store: str | None
    """Copy engine that stores it piece by piece; None where it stays, or the group stores it."""
    out_level: int
    """Loops of the layer around one piece of the result."""


@dataclass(frozen=True)
class Plan:
    """Buffers and steps of a group."""

    schedule: Schedule
    buffers: dict[str, TileBuffer]
    layers: tuple[LayerPlan, ...]
    loads: tuple[tuple[str, str], ...] = ()
    """(buffer, copy engine) of the group's own buffers that come from memory."""
    stores: tuple[tuple[str, str], ...] = ()
    """(result held on chip, copy engine)."""
    walked: tuple[TileTrace, ...] = ()
    """For every core that takes part, what each tile needs; empty for a layer alone."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> buffer of the group that holds it."""
    slots: int = 1
    """Of streamed buffers."""

    def of(self, schedule: Schedule, names: Mapping[str, str]) -> Plan:
        """The same for a group that is like this one but for its names; `names` has them by those
        of this one."""
        own = {}
        for name in self.buffers:  # that of a tensor, and what the buffer holds of it
            tensor = max(filter(name.startswith, names), key=len)
            own[name] = names[tensor] + name.removeprefix(tensor)

        def renamed(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
            return tuple([(own[name], engine) for name, engine in pairs])

        buffers = {}
        for name, buffer in self.buffers.items():
            key = buffer.key and (names[buffer.key[0]], *buffer.key[1:])
            buffers[own[name]] = replace(buffer, name=own[name], key=key)
        layers = []
        for planned, tiled in zip(self.layers, schedule.layers, strict=True):
            computes = [each.of(tiled.layer, own) for each in planned.computes]
            layers.append(
                replace(
                    planned, tiled=replace(planned.tiled, layer=tiled.layer), buffers=buffers,
                    loads=renamed(planned.loads), computes=tuple(computes),
                    result=own[planned.result],
                )
            )  # fmt: skip
        return Plan(
            schedule, buffers, tuple(layers), renamed(self.loads), renamed(self.stores),
            tuple([walked.renamed(names) for walked in self.walked]),
            {names[name]: own[buffer] for name, buffer in self.held.items()}, self.slots,
        )  # fmt: skip


# The plan of one layer: its own buffers and steps, within what its group holds on chip.


def variable(level: int) -> str:
    """Name of the loop variable of a layer's tile loop `level`."""
    return f"t{level}"


def part_sizes(tiled: Tiled) -> Iterator[tuple[int, ...]]:
    """By dimension of the result, the sizes that cores have of it."""
    return zip(*((size for _, size in part) for part in tiled.parts), strict=True)


def symbolic(tiled: Tiled) -> tuple[tuple[Range, ...], dict[int, Range]]:
    """Ranges of the largest tile with every loop moving: output dims, and split reductions."""
    out = [Range(0, max(sizes)) for sizes in part_sizes(tiled)]
    split: dict[int, Range] = {}
    for level, loop in enumerate(tiled.loops):
        moving = Range(0, loop.size, ((variable(level), loop.size),))
        if loop.reduction:
            split[loop.dim] = moving
        else:
            out[loop.dim] = moving
    return tuple(out), split


class LayerPlanner(BufferList):
    """Collects the buffers of one layer, of a group that holds `held`, while it walks its nests."""

    def __init__(
        self, schedule: Schedule, tiled: Tiled, position: int, slots: int, held: GroupBuffers,
        group: BufferList,
    ) -> None:  # fmt: skip
        super().__init__(group.arch.with_array(tiled.layer.binding.array), group.buffers)
        self.tiled, self.position, self.slots, self.held = tiled, position, slots, held
        self.layer: Layer = tiled.layer
        self.home_of = partial(schedule.group.home, arch=group.arch)
        self.stored = self.layer.result.name in schedule.group.results
        self.looped, self.last = bool(schedule.loops), len(schedule.layers) - 1
        self.ahead = schedule.ahead(position) > 0
        self.depth = len(tiled.loops)
        self.out_level = sum(not loop.reduction for loop in tiled.loops)
        out, split = symbolic(tiled)
        self.needs = needs(self.layer, out, split)
        self.whole = needs(self.layer, [Range(0, max(n)) for n in part_sizes(tiled)], {})
        self.weights = next((key for key in keys_of(self.layer.head) if key[2]), None)
        self.bindings = self.layer.bindings
        stays = tiled.resident and loads_own_channels(schedule)
        constants = Facts(group.arch).layer(tiled.layer).constants if stays else ()
        self.staying = {constant.key for constant in constants}
        shape, strides = self.layer.result.shape, self.layer.result.storage.strides
        self.order = order_of(shape, strides)

    def plan(self) -> LayerPlan:
        """Everything, in order."""
        on_chip = self.layer.result.name in self.held.tensors
        read = any(name in self.held.tensors for name in self.layer.inputs)
        moves_only = self.layer.copies and not on_chip and not read
        if not moves_only:
            moved = Binding("vector")
            self.bindings = tuple(moved if b.engine == "copy" else b for b in self.bindings)
        own = [key for key in self._keys() if self._home(key) is None]
        inputs = {key: self._input(key) for key in own}
        names = {key: buffer.name for key, buffer in inputs.items()}
        names |= {key: home for key in self._keys() if (home := self._home(key)) is not None}
        computes = () if moves_only else self._computes(names)
        result = next(iter(names.values())) if moves_only else self.computes_into
        loads = [
            (b.name, self._copy_engine(self.home_of(key[0]), b.role)) for key, b in inputs.items()
        ]
        loads.sort(key=lambda pair: self.buffers[pair[0]].level)
        stays = on_chip or not self.stored
        home = self.home_of(self.layer.result.name)
        store = None if stays else self._copy_engine(self.buffers[result].role, home)
        return LayerPlan(
            self.tiled, self.position, self.buffers, tuple(loads), computes, result, store,
            self.out_level,
        )  # fmt: skip

    def _keys(self) -> list[Key]:
        keys = (key for nest in self.layer.nests for key in keys_of(nest))
        return [k for k in dict.fromkeys(keys) if k[0] not in self.layer.inside]

    def _home(self, key: Key) -> str | None:
        """The group's buffer that holds `key`, if one does."""
        found = self.held.tensors.get(key[0])
        return found or self.held.constants.get((self.position, key))

    def _copy_engine(self, source: str, target: str) -> str:
        return engine_between(source, target, self.arch, self.layer.name)

    def _input(self, key: Key) -> TileBuffer:
        region = self._region(key)
        level = self._level(region)
        turns = math.prod(self.tiled.turns[:level])
        name = key[0] if key[1] is None else f"{key[0]}+border"
        return self._own(
            name, role_of(self.layer, key, self.arch), self.layer.tensors[key[0]].dtype,
            region.padded, input_strides(self.layer, key, region, self.arch),
            slots=self._slots_of(key) if turns > 1 else 1, level=level, key=key,
            room=int(room_of(self.layer, key, region.padded)),
        )  # fmt: skip

    def _slots_of(self, key: Key) -> int:
        """Of what is loaded piece by piece."""
        operands = [operand.tensor for operand in self.layer.head.operands[:2]]
        early = any(loop.ahead for loop in self.tiled.loops) and key[0] in operands
        return max(self.slots, EARLY) if early and self.home_of(key[0]) != "shared" else self.slots

    def _own(self, *of: Any, **fields: Any) -> TileBuffer:
        """A buffer that is in use while the layer runs."""
        here = self.position
        # What is ahead does not wait for places of the layers that work beside it.
        fields = {"lasting": self.ahead, **fields}
        return self.add(*of, layer=here, first=here, last=here, **fields)

    def _region(self, key: Key) -> Region:
        """What a buffer holds of `key` at a time: the need of a tile, or of all tiles at once."""
        tile, whole = self.needs.regions[key], self.whole.regions[key]
        tensor = self.layer.tensors[key[0]]
        if tensor.data is None or tile.bordered:
            return tile
        if key in self.staying or key == self.weights:
            return whole if key in self.staying else tile
        size = math.prod(whole.padded) * size_of(tensor.dtype)
        return whole if loaded_once(size, self._streamed()) else tile

    def _streamed(self) -> int:
        """Bytes of constant weights that are on chip while they pass through."""
        key = self.weights
        if key is None or key in self.staying or self._home(key) is not None:
            return 0
        tensor, region = self.layer.tensors[key[0]], self.needs.regions[key]
        if tensor.data is None or not self._level(region):
            return 0
        return self.slots * math.prod(region.padded) * size_of(tensor.dtype)

    def _level(self, region: Region) -> int:
        moved = {name for span in region.ranges for name, _ in span.terms}
        levels = [i + 1 for i in range(self.depth) if variable(i) in moved]
        return max(levels, default=0)

    def _result_buffer(self, name: str, dtype: str, position: int, role: str, *, slots: int) -> str:
        nest = self.layer.nests[position]
        shape = tuple(span.size for span in self.needs.loops[position][: nest.rank])
        order = self.order if len(self.order) == nest.rank else tuple(range(nest.rank))
        strides = tuple(size_of(dtype) * s for s in dense(shape, order))
        return self._own(name, role, dtype, shape, strides, slots=slots, level=self.out_level).name

    def _computes(self, inputs: Mapping[Key, str]) -> tuple[Compute, ...]:
        computes = []
        inside: dict[str, str] = {}
        for position, (nest, way) in enumerate(zip(self.layer.nests, self.bindings, strict=True)):
            reads = tuple(
                inside[key[0]] if key[0] in self.layer.inside else inputs[key]
                for key in keys_of(nest)
            )
            result = None if way.bare else self._output_buffer(position, nest)
            sums = self._sums(position, nest, way)
            inside[nest.tensor] = writes = result or str(sums)
            scratch = self._scratch(position, nest, way)
            start = self._started_from(nest, way, reads)
            level = self.depth if way.product else self.out_level
            steps = tuple(
                moves(access, self.buffers[name].strides, len(nest.dims))
                for access, name in zip(nest.reads, reads, strict=True)
            )
            computes.append(
                Compute(nest, position, way, level, reads, steps, writes, sums, scratch, start)
            )
        self.computes_into = writes
        return tuple(computes)

    def _output_buffer(self, position: int, nest: Nest) -> str:
        last = position == len(self.layer.nests) - 1
        if last:
            held = self.held.tensors.get(nest.tensor)
            if held is not None:
                return held
            dtype = self.layer.tensors[nest.tensor].dtype
            slots = self.slots if self.depth or self.looped else 1
            return self._result_buffer(nest.tensor, dtype, position, "local", slots=slots)
        crossing = self.depth > 0 and nest.tensor in self.layer.handed_over
        slots = self.slots if crossing else 1
        return self._result_buffer(
            nest.tensor, self._inside_type(nest), position, "local", slots=slots
        )

    def _inside_type(self, nest: Nest) -> str:
        """Integers keep their type; real values are as wide as the vector engine allows."""
        dtype = self.layer.tensors[nest.tensor].dtype
        wide = temporary_type(self.arch)
        return wide if is_float(dtype) and size_of(wide) > size_of(dtype) else dtype

    def _sums(self, position: int, nest: Nest, way: Binding) -> str | None:
        if not way.product:
            return None
        kind = accumulator_of(self.layer.tensors[nest.operands[0].tensor].dtype)
        if way.direct and not self._accumulates(nest):
            return None
        size = size_of(kind) * math.prod(r.size for r in self.needs.loops[position][: nest.rank])
        slots = int(slots_of_sums(way, self.arch, size, self.slots)) if self.out_level else 1
        return self._result_buffer(f"{nest.tensor}+sums", kind, position, way.sums, slots=slots)

    def _accumulates(self, nest: Nest) -> bool:
        """Whether sums outlive one instruction: a split reduction, or taps one by one."""
        if any(loop.reduction for loop in self.tiled.loops):
            return True
        grain = self.arch.matrix.granularity
        found = roles(nest)
        positions = math.prod(nest.dims[tap.dim].extent for tap in found.taps)
        if grain == "conv" or (nest.depthwise and self.arch.matrix.depthwise):
            return False
        if positions > 1 or grain == "gemm":
            return positions > 1
        depth = self.needs.loops[0][found.k].size if found.k is not None else 1
        return depth > tile_limits(self.arch.matrix)[0]

    def _started_from(self, nest: Nest, way: Binding, reads: tuple[str, ...]) -> tuple[str, ...]:
        """Space for the bias that sums start from, as its digits lie, and the group's factors."""
        if nest.bias is None or not started(nest, self.layer.tensors):
            return ()
        digits, near = self.buffers[reads[nest.reads.index(nest.bias)]], self.arch.matrix.input
        bias = self.layer.tensors[nest.bias.tensor]
        kind, factors = bias.digits, factors_of(bias)
        wide = accumulator_of(kind)
        row = self.add(  # made while the layer before is finished
            f"{nest.tensor}+start", way.sums, wide, digits.shape,
            tuple(s * size_of(wide) // size_of(digits.dtype) for s in digits.strides),
            slots=digits.slots, level=digits.level, layer=digits.layer,
            first=max(0, self.position - 1), last=self.position, lasting=digits.lasting,
        )  # fmt: skip
        made = (b for b in self.buffers.values() if b.name.endswith("+factors"))
        there = next((b for b in made if (b.role, b.dtype) == (near, kind)), None) or self.add(
            f"{nest.tensor}+factors", near, kind, (len(factors),), (size_of(kind),), slots=1,
            level=0, last=self.last, lasting=True,
        )  # fmt: skip
        return row.name, there.name

    def _scratch(self, position: int, nest: Nest, way: Binding) -> tuple[str, ...]:
        """Space for values between the vector instructions of one nest."""
        if len(links_of(nest, self.layer.tensors, way, self.arch)) <= 1:
            return ()
        kind = between_type(self.arch)
        return (self._result_buffer(f"{nest.tensor}+scratch", kind, position, "local", slots=1),)


def moves(access: Access, strides: tuple[int, ...], loops: int) -> tuple[int, ...]:
    """Bytes by which each of `loops` loops moves `access` in a buffer of these strides."""
    steps = [0] * loops
    for affine, stride in zip(access.index, strides, strict=True):
        for dim, factor in affine.terms:
            steps[dim] += factor * stride
    return tuple(steps)


DOUBLE = 2
"""Slots of a buffer that one engine fills while another empties it."""


def outer(level: int) -> str:
    """Name of the loop variable of a group's outer loop `level`."""
    return f"o{level}"


@dataclass(frozen=True)
class MakePlan:
    """Lay out buffers and steps for one schedule.

    before:
        for t0: for t1: tile of {conv; add}
    after:
        load w (1 level), load x (2 levels), conv on matrix, load r, add on vector, store y
    """

    slots: Annotated[int, within(1, 16)] = DOUBLE
    """Slots of streamed buffers."""
    attempts: Count = 6
    """Schedules of a group that are planned and placed before it is given up."""

    def apply(self, schedule: Schedule, arch: Arch) -> Plan:
        """The plan; DoesNotFit when buffers that are in use together are larger than a memory,
        Unwalkable or Unholdable where the group's layers do not go together like this."""
        plan = _plan_group(schedule, arch, self.slots)
        memories = arch.memories.on_chip()
        there = [*in_use(plan.buffers.values(), len(plan.layers), memories)]
        for role, memory in memories.items():
            size = schedule.group.room(role, memory.size)
            if (demand := max(each[role] for each in there)) > size:
                raise too_large(plan, role, demand, size)
        return plan


def too_large(plan: Plan, role: str, demand: int, bound: int) -> DoesNotFit:
    """The refusal that lists the buffers of the plan in one memory where it is fullest."""
    last = len(plan.layers) - 1
    buffers = [b for b in plan.buffers.values() if b.role == role]
    live = ([b for b in buffers if alive(b, p, last)] for p in range(last + 1))
    fullest = max(live, key=lambda some: sum(b.bytes * b.slots for b in some))
    terms = [
        (f"{b.name} x {b.slots}" if b.slots > 1 else b.name, b.bytes * b.slots) for b in fullest
    ]
    # Buffers lie below what stays on chip between groups.
    below = f" below {bound}" if plan.schedule.group.reserved.get(role) else ""
    return DoesNotFit(
        demand=demand, bound=bound, unit="B",
        terms=tuple(sorted(terms, key=lambda term: -term[1])),
        levers=(f"memories.{role}.size of at least {demand} B", "a smaller batch or input"),
        where=f"{plan.schedule.group.name}: {role} memory{below}",
    )  # fmt: skip


def _plan_group(schedule: Schedule, arch: Arch, slots: int) -> Plan:
    """Buffers of the group, then those of layer after layer."""
    group = schedule.group
    walked: tuple[TileTrace, ...] = ()
    stays = any(tiled.resident for tiled in schedule.layers)
    if schedule.loops or not group.alone or (stays and not loads_own_channels(schedule)):
        walked = trace_parts(group, schedule.loops, schedule.parts, TraceCache())
    maker = GroupBufferMaker(schedule, slots, Facts(arch))
    held = maker.make_buffers(walked)
    layers = []
    for position, tiled in enumerate(schedule.layers):
        if walked:
            part = largest([w.work[position] for w in walked], len(tiled.layer.result.shape))
            tiled = replace(tiled, parts=(tuple((0, size) for size in part),))
        layers.append(LayerPlanner(schedule, tiled, position, slots, held, maker).plan())
    stores = tuple(
        (held.tensors[name], engine_between("local", group.home(name, arch), arch, group.name))
        for name in group.stored
        if name in held.tensors
    )
    loads = tuple(maker.loads)
    return Plan(schedule, maker.buffers, tuple(layers), loads, stores, walked, held.tensors, slots)

"""From a tiled group to its plan: which buffers, how many slots, at which loop level.

A buffer is refilled inside the innermost loop that moves its region and kept across deeper ones, so
loop order alone decides what is streamed and what stays resident.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.errors import DoesNotFit
from compiler.fuse.layer import Layer
from compiler.nest.ir import Access, Nest, dense, order_of
from compiler.plan.ir import Buffer, Compute, Plan
from compiler.plan.ranges import Key, Range, Region, keys_of, needs
from compiler.tile.ir import Tiled
from compiler.tile.machine import Route, adds_up_in_pieces, route, temporary_type
from compiler.tile.roles import roles
from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, is_float, size_of

DOUBLE = 2
"""Slots of a buffer that one engine fills while another empties it."""


def variable(level: int) -> str:
    """Name of the loop variable of tile loop `level`."""
    return f"t{level}"


def symbolic(tiled: Tiled) -> tuple[tuple[Range, ...], dict[int, Range]]:
    """Ranges of the largest tile with every loop moving: output dims, and split reductions."""
    extents = zip(*((size for _, size in part) for part in tiled.parts), strict=True)
    out = [Range(0, max(sizes)) for sizes in extents]
    split: dict[int, Range] = {}
    for level, loop in enumerate(tiled.loops):
        moving = Range(0, loop.size, ((variable(level), loop.size),))
        if loop.reduction:
            split[loop.dim] = moving
        else:
            out[loop.dim] = moving
    return tuple(out), split


@dataclass(frozen=True)
class MakePlan:
    """Lay out buffers and steps for one tiled group.

    before:
        for t0: for t1: tile of {conv; add}
    after:
        load w (1 level), load x (2 levels), conv on matrix, load r, add on vector, store y
    """

    slots: int = DOUBLE
    """Slots of streamed buffers."""

    def apply(self, tiled: Tiled, arch: Arch) -> Plan:
        """The plan; DoesNotFit when it is larger than a memory."""
        plan = _Planner(tiled, arch, self.slots).plan()
        for role, memory in arch.memories.on_chip().items():
            demand = plan.bytes_in(role)
            if demand > memory.size:
                raise too_large(plan, role, demand, memory.size)
        return plan


def too_large(plan: Plan, role: str, demand: int, bound: int) -> DoesNotFit:
    """The refusal that lists every buffer of the plan in one memory."""
    terms = [
        (f"{b.name} x {b.slots}" if b.slots > 1 else b.name, b.bytes * b.slots)
        for b in plan.buffers.values()
        if b.role == role
    ]
    return DoesNotFit(
        demand=demand,
        bound=bound,
        unit="B",
        terms=tuple(sorted(terms, key=lambda term: -term[1])),
        levers=(f"memories.{role}.size of at least {demand} B", "a smaller batch or input"),
        where=f"{plan.tiled.group.name}: {role} memory",
    )


class _Planner:
    """Collects buffers while it walks the group's nests."""

    def __init__(self, tiled: Tiled, arch: Arch, slots: int) -> None:
        self.tiled = tiled
        self.group: Layer = tiled.group
        self.arch = arch
        self.slots = slots
        self.buffers: dict[str, Buffer] = {}
        self.depth = len(tiled.loops)
        self.out_level = sum(not loop.reduction for loop in tiled.loops)
        out, split = symbolic(tiled)
        self.needs = needs(self.group, out, split)
        self.routes = [route(nest, self.group.tensors, arch) for nest in self.group.nests]
        self.order = order_of(self.group.result.shape, self.group.result.storage.strides)

    def plan(self) -> Plan:
        """Everything, in order."""
        copying = len(self.group.nests) == 1 and self.routes[0].engine == "copy"
        if not copying:
            self.routes = [Route("vector") if r.engine == "copy" else r for r in self.routes]
        users = self._users()
        inputs = {key: self._input(key, users[key]) for key in self._keys()}
        computes = () if copying else self._computes(inputs)
        result = self._result(inputs, copying=copying)
        loads = tuple((b.name, b.writer) for b in inputs.values())
        store = self._copy_engine(self.buffers[result].role, "dram")
        loads = tuple(sorted(loads, key=lambda pair: self.buffers[pair[0]].level))
        return Plan(
            self.tiled, self.buffers, loads, computes, (result, store), self.out_level, self.slots
        )

    def _keys(self) -> list[Key]:
        keys = (key for nest in self.group.nests for key in keys_of(nest))
        return [k for k in dict.fromkeys(keys) if k[0] not in self.group.inside]

    def _users(self) -> dict[Key, tuple[str, ...]]:
        found: dict[Key, dict[str, None]] = {}
        for nest, way in zip(self.group.nests, self.routes, strict=True):
            for access, key in zip(nest.reads, keys_of(nest), strict=True):
                late = access in (nest.bias, nest.multiplier) and not way.direct
                engine = "vector" if late else way.engine
                found.setdefault(key, {})[engine] = None
        return {key: tuple(engines) for key, engines in found.items()}

    def _copy_engine(self, source: str, target: str) -> str:
        engine = self.arch.copy_engine(source, target)
        if engine is None:
            raise DoesNotFit(
                demand=1, bound=0, unit="path", terms=((f"{source} -> {target}", 1),),
                levers=(f"a copy engine from {source} to {target}",), where=self.group.name,
            )  # fmt: skip
        return engine

    def _input(self, key: Key, users: tuple[str, ...]) -> Buffer:
        region = self.needs.regions[key]
        role = self._role(key)
        level = self._level(region)
        tensor = self.group.tensors[key[0]]
        strides = self._input_strides(key, region)
        turns = math.prod(self._count(loop) for loop in range(level))
        name = key[0] if key[1] is None else f"{key[0]}+border"
        same = sum(
            buffer.key is not None and buffer.key[0] == key[0] for buffer in self.buffers.values()
        )
        name = f"{name}+{same}" if same else name
        return self._add(
            name, role, tensor.dtype, region.padded, strides,
            slots=self.slots if turns > 1 else 1, level=level,
            writer=self._copy_engine("dram", role), readers=users, key=key,
        )  # fmt: skip

    def _role(self, key: Key) -> str:
        head, way = self.group.head, self.routes[0]
        if way.engine != "matrix":
            return "local"
        if key[2]:
            return self.arch.matrix.weights
        return self.arch.matrix.input if key == keys_of(head)[0] else "local"

    def _level(self, region: Region) -> int:
        moved = {name for span in region.ranges for name, _ in span.terms}
        levels = [i + 1 for i in range(self.depth) if variable(i) in moved]
        return max(levels, default=0)

    def _count(self, level: int) -> int:
        loop = self.tiled.loops[level]
        if loop.reduction:
            extent = self.group.head.dims[loop.dim].extent
        else:
            extent = max(part[loop.dim][1] for part in self.tiled.parts)
        return -(-extent // loop.size)

    def _input_strides(self, key: Key, region: Region) -> tuple[int, ...]:
        """Channels last for the matrix engine's left operand, packed order for constant weights."""
        tensor = self.group.tensors[key[0]]
        order = list(order_of(tensor.shape, tensor.storage.strides))
        head, way = self.group.head, self.routes[0]
        if way.engine == "matrix" and key == keys_of(head)[0]:
            last = _axis_of(head.operands[0], self._innermost(head))
            order = [axis for axis in order if axis != last] + ([last] if last is not None else [])
        if self._packed(key):
            order = list(packed_order(head))
        return tuple(size_of(tensor.dtype) * s for s in dense(region.padded, tuple(order)))

    def _packed(self, key: Key) -> bool:
        constant = self.group.tensors[key[0]].data is not None
        return constant and key[2] and self.routes[0].engine == "matrix"

    @staticmethod
    def _innermost(head: Nest) -> int | None:
        found = roles(head)
        if found.k is not None:
            return found.k
        return found.batch[-1] if found.batch else None

    def _add(
        self, name: str, role: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...],
        *, slots: int, level: int, writer: str, readers: tuple[str, ...], key: Key | None = None,
    ) -> Buffer:  # fmt: skip
        memory = self.arch.memories.on_chip()[role]
        grain = math.lcm(memory.alignment, size_of(dtype))
        aligned = -(-math.prod(shape) * size_of(dtype) // grain) * grain
        buffer = Buffer(
            name, role, dtype, shape, strides, aligned, slots, level, writer, readers, key
        )
        self.buffers[name] = buffer
        return buffer

    def _tile(
        self, name: str, dtype: str, position: int, role: str,
        *, slots: int, writer: str, readers: tuple[str, ...],
    ) -> str:  # fmt: skip
        """A buffer for the result of the nest at `position`."""
        nest = self.group.nests[position]
        shape = tuple(span.size for span in self.needs.loops[position][: nest.rank])
        order = self.order if len(self.order) == nest.rank else tuple(range(nest.rank))
        strides = tuple(size_of(dtype) * s for s in dense(shape, order))
        self._add(
            name, role, dtype, shape, strides, slots=slots, level=self.out_level, writer=writer,
            readers=readers,
        )  # fmt: skip
        return name

    def _computes(self, inputs: Mapping[Key, Buffer]) -> tuple[Compute, ...]:
        computes = []
        for position, (nest, way) in enumerate(zip(self.group.nests, self.routes, strict=True)):
            reads = tuple(
                key[0] if key[0] in self.group.inside else inputs[key].name for key in keys_of(nest)
            )
            writes = self._written(position, nest, way)
            sums = self._sums(position, nest, way)
            scratch = self._scratch(position, nest, way)
            level = self.depth if way.engine == "matrix" else self.out_level
            steps = tuple(
                moves(access, self.buffers[name].strides, len(nest.dims))
                for access, name in zip(nest.reads, reads, strict=True)
            )
            computes.append(
                Compute(nest, position, way, level, reads, steps, writes, sums, scratch)
            )
        return tuple(computes)

    def _finisher(self, way: Route) -> str:
        return "matrix" if way.engine == "matrix" and way.direct else "vector"

    def _written(self, position: int, nest: Nest, way: Route) -> str:
        writer = self._finisher(way)
        last = position == len(self.group.nests) - 1
        if last:
            store = self._copy_engine("local", "dram")
            dtype = self.group.tensors[nest.tensor].dtype
            return self._tile(
                nest.tensor, dtype, position, "local",
                slots=self.slots if self.depth else 1, writer=writer, readers=(store,),
            )  # fmt: skip
        crossing = writer == "matrix" and self.depth > 0
        return self._tile(
            nest.tensor, self._inside_type(nest), position, "local",
            slots=self.slots if crossing else 1, writer=writer, readers=("vector",),
        )  # fmt: skip

    def _inside_type(self, nest: Nest) -> str:
        """Integers keep their type; real values are as wide as the vector engine allows."""
        dtype = self.group.tensors[nest.tensor].dtype
        wide = temporary_type(self.arch)
        return wide if is_float(dtype) and size_of(wide) > size_of(dtype) else dtype

    def _sums(self, position: int, nest: Nest, way: Route) -> str | None:
        if way.engine != "matrix":
            return None
        kind = accumulator_of(self.group.tensors[nest.operands[0].tensor].dtype)
        name = f"{nest.tensor}+sums"
        readers = ("matrix",) if way.direct else ("vector",)
        slots = 1 if way.direct or not self.out_level else self.slots
        if way.direct and not self._accumulates(nest):
            return None
        return self._tile(
            name, kind, position, way.sums, slots=slots, writer="matrix", readers=readers
        )

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
        engine = self.arch.matrix
        return depth > (engine.depth if engine.kind == "cube" else engine.rows)

    def _scratch(self, position: int, nest: Nest, way: Route) -> tuple[str, ...]:
        """Space for values between the vector instructions of one nest."""
        steps = vector_steps(nest, way, self.arch)
        if steps <= 1:
            return ()
        name = f"{nest.tensor}+scratch"
        return (
            self._tile(
                name, temporary_type(self.arch), position, "local",
                slots=1, writer="vector", readers=("vector",),
            ),
        )  # fmt: skip

    def _result(self, inputs: Mapping[Key, Buffer], *, copying: bool) -> str:
        if not copying:
            return self.group.result.name
        (key,) = inputs
        source = inputs[key]
        store = self._copy_engine("local", "dram")
        self._add(
            source.name, source.role, source.dtype, source.shape, source.strides,
            slots=source.slots, level=source.level, writer=source.writer, readers=(store,), key=key,
        )  # fmt: skip
        return source.name


def moves(access: Access, strides: tuple[int, ...], loops: int) -> tuple[int, ...]:
    """Bytes by which each of `loops` loops moves `access` in a buffer of these strides."""
    steps = [0] * loops
    for affine, stride in zip(access.index, strides, strict=True):
        for dim, factor in affine.terms:
            steps[dim] += factor * stride
    return tuple(steps)


def vector_steps(nest: Nest, way: Route, arch: Arch) -> int:
    """Vector instructions that one nest takes one after another over the same tile."""
    if way.engine == "matrix":
        return 0 if way.direct else max(1, sum(a is not None for a in (nest.bias, nest.multiplier)))
    late = sum(access is not None for access in (nest.bias, nest.multiplier))
    windowed = nest.reduce is not None and bool(roles(nest).taps)
    taps = math.prod(dim.extent for dim in nest.dims[nest.rank :]) if windowed else 1
    if adds_up_in_pieces(nest, arch):
        return max(late, 1) + 1
    return late + (taps if windowed and not arch.vector.window else 1)


def _axis_of(access: Access, dim: int | None) -> int | None:
    if dim is None:
        return None
    axes = [axis for axis, affine in enumerate(access.index) if affine.coefficient(dim)]
    return axes[0] if axes else None


def packed_order(head: Nest) -> tuple[int, ...]:
    """Axes of constant weights as they are packed: batch, taps, reduction, columns last."""
    found = roles(head)
    weights = head.operands[1]
    batch, inner = (
        [axis for dim in dims if (axis := _axis_of(weights, dim)) is not None]
        for dims in (found.batch, (*(tap.dim for tap in found.taps), *found.inner, *found.cols))
    )
    rest = [axis for axis in range(len(weights.index)) if axis not in (*batch, *inner)]
    return (*batch, *rest, *inner)

"""The whole program: groups one after another on every core, host calls between them, constants.

Steps are separated by barriers: a core's loads of step n+1 wait until every core that works in step
n has stored. That orders memory traffic between cores and lets on-chip space be used anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.alloc.off_chip import GRAIN, Span, place
from compiler.alloc.on_chip import Place
from compiler.emit.constants import Packed, packed, packed_data
from compiler.emit.group import GroupEmitter
from compiler.emit.legal import Names
from compiler.emit.sync import Edge
from compiler.emit.tile import Places, dram_operand
from compiler.nest.ir import Array, HostNode, NestGraph, Tensor
from compiler.plan.ir import Plan
from compiler.plan.ranges import Range
from simmodel.arch import Arch
from simmodel.dtype import size_of
from simmodel.isa import HOST, Arrive, Await, HostCall, Item
from simmodel.program import Buffer, Constant, Origin, Port, Program


@dataclass(frozen=True)
class Placed:
    """A planned group with addresses."""

    plan: Plan
    places: dict[str, Place]


Step = Placed | HostNode


@dataclass
class ProgramEmitter:
    """Collects streams, constants and records while it walks the steps."""

    graph: NestGraph
    arch: Arch
    steps: Sequence[Step]
    streams: list[list[Item]] = field(init=False)
    tokens: dict[str, int] = field(default_factory=dict)
    barriers: dict[str, int] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.streams = [[] for _ in range(self.arch.core_count)]
        self.packs = [packed(s.plan) if isinstance(s, Placed) else None for s in self.steps]
        self.names = Names()
        self.data = self._constants()
        self.dram = self._dram()

    def program(self) -> Program:
        """The program."""
        for number, (step, pack) in enumerate(zip(self.steps, self.packs, strict=True)):
            if isinstance(step, HostNode):
                self._host(number, step)
            else:
                self._group(number, step, pack)
        macs = sum(s.macs for step in self.steps if isinstance(step, Placed)
                   for s in step.plan.tiled.group.nests)  # fmt: skip
        return Program(
            name=self.graph.name,
            arch=self.arch.name,
            cores=tuple(tuple(stream) for stream in self.streams),
            tokens=tuple(dict(self.tokens) for _ in self.streams),
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
            macs=macs,
        )

    def port(self, name: str) -> Port:
        """The tensor `name` as the model's user sees it, where it lies in DRAM."""
        tensor = self.graph.tensors[name]
        whole = tuple(Range(0, extent) for extent in tensor.shape)
        operand = dram_operand(tensor, whole, Places({}, self.dram))
        return Port(name, operand, tensor.shape, self.graph.ports.get(name, tensor.dtype))

    def _constants(self) -> dict[str, Array]:
        """DRAM buffer -> raw elements, packed weights included; only what is read."""
        data: dict[str, Array] = {}
        for step, pack in zip(self.steps, self.packs, strict=True):
            if isinstance(step, HostNode):
                for name in step.inputs:
                    self._keep(data, self.graph.tensors[name])
                continue
            for name, weights in _read(step.plan):
                tensor = self.graph.tensors[name]
                if pack is not None and weights and tensor.data is not None:
                    data[pack.buffer] = packed_data(pack, step.plan, tensor.data)
                else:
                    self._keep(data, tensor)
        for name in self.graph.outputs:
            self._keep(data, self.graph.tensors[name])
        return data

    def _keep(self, data: dict[str, Array], tensor: Tensor) -> None:
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
        spans = self._spans()
        placed, end = place(spans, address)
        for span in spans:
            self.buffers.append(
                Buffer(span.name, "dram", placed[span.name], span.size, None, span.first, span.last)
            )
        last = max(0, len(self.steps) - 1)
        for name, data in self.data.items():
            self.buffers.append(Buffer(name, "dram", fixed[name], data.nbytes, None, 0, last))
        self.end = end
        return fixed | placed

    def _spans(self) -> list[Span]:
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
        for name in self.graph.inputs:
            touch(name, 0)
            touch(name, last)
        for name in self.graph.outputs:
            touch(name, last)
        sizes = self.graph.buffers
        return [
            Span(name, sizes[name] * size_of(dtypes[name]), born[name], dies[name]) for name in born
        ]

    def _group(self, number: int, step: Placed, pack: Packed | None) -> None:
        group = step.plan.tiled.group
        first = len(self.origins)
        self.origins += [Origin(nest.origin, number, nest.kind) for nest in group.nests]
        emitter = GroupEmitter(
            self.arch, step.plan, Places(step.places, self.dram), pack, self.names,
            tuple(range(first, first + len(group.nests))),
        )  # fmt: skip
        parts = step.plan.tiled.parts
        loads = tuple(dict.fromkeys(engine for _, engine in step.plan.loads))
        store = step.plan.store[1]
        name = f"step{number}"
        for core, part in enumerate(parts):
            stream = self.streams[core]
            stream += self._await(number, loads, first)
            stream += emitter.items(part)
            stream.append(Arrive(engine=store, barrier=name, origin=first))
            self._record(number, core, step)
        self.barriers[name] = len(parts)
        self._merge_tokens(emitter.edges, step.plan.slots)

    def _await(self, number: int, engines: Sequence[str], origin: int) -> list[Item]:
        if number == 0:
            return []
        barrier = f"step{number - 1}"
        return [Await(engine=engine, barrier=barrier, origin=origin) for engine in engines]

    def _merge_tokens(self, found: tuple[Edge, ...], slots: int) -> None:
        for edge in found:
            self.tokens[edge.full] = 0
            self.tokens[edge.empty] = slots

    def _record(self, number: int, core: int, step: Placed) -> None:
        for buffer in step.plan.buffers.values():
            address, pitch = step.places[buffer.name]
            for slot in range(buffer.slots):
                self.buffers.append(
                    Buffer(
                        f"{buffer.name}[{slot}]" if buffer.slots > 1 else buffer.name,
                        buffer.role, address + slot * pitch, buffer.bytes, core, number, number,
                    )
                )  # fmt: skip

    def _host(self, number: int, node: HostNode) -> None:
        origin = len(self.origins)
        self.origins.append(Origin(node.origin, number, node.kind))
        places = Places({}, self.dram)

        def whole(name: str) -> Tensor:
            return self.graph.tensors[name]

        operands = [
            tuple(
                dram_operand(whole(name), tuple(Range(0, n) for n in whole(name).shape), places)
                for name in names
            )
            for names in (node.inputs, node.outputs)
        ]
        call = HostCall(
            payload=len(self.payloads), inputs=operands[0], outputs=operands[1],
            operations=node.operations, origin=origin,
        )  # fmt: skip
        self.payloads.append(node.payload)
        stream = self.streams[0]
        stream += self._await(number, (HOST,), origin)
        stream += [call, Arrive(engine=HOST, barrier=f"step{number}", origin=origin)]
        self.barriers[f"step{number}"] = 1


def _read(plan: Plan) -> tuple[tuple[str, bool], ...]:
    """What a group reads from memory, and whether it reads it as weights of a product."""
    keys = (b.key for b in plan.buffers.values() if b.key is not None)
    return tuple(dict.fromkeys((key[0], key[2]) for key in keys))


def _touched(step: Step) -> tuple[str, ...]:
    if isinstance(step, HostNode):
        return (*step.inputs, *step.outputs)
    group = step.plan.tiled.group
    return (*group.inputs, group.result.name)

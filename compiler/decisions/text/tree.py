"""A tree: the schedule of a network by names alone, before it is bound to layers and machine.

    homes    tensors that lie on chip between steps
    steps    in the order in which they run: groups of layers that share loops, or calls of the host

What a tree leaves out is the compiler's to decide: the tiles of a step without cores, the addresses
of a step without buffers. A tree is plain data, equal to another one where it says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Literal

from compiler.schedule.fusion.dependence import Dependences, dependences, made_by, members
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.base import near

Memory = Literal["local", "shared", "weights", "accumulators"]


@dataclass(frozen=True)
class Span:
    """A core's part of a step's result, or of what stays on chip, along one dimension."""

    dim: str
    start: int
    stop: int
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Home:
    """A tensor that does not go through DRAM between the steps that make and read it; a constant
    that comes from there once for all steps that read it."""

    tensor: str
    memory: Memory
    address: int | None = None
    """Of its first byte, border included; None: the lowest that is free."""
    cores: tuple[tuple[Span, ...], ...] = ()
    """By core, the slice that it keeps in its local memory; none: all of it on the one core, or cut
    as the compiler chooses."""
    passed: bool = False
    """Whether cores pass each other what they keep beside what they make."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class For:
    """A loop over tiles along a dimension; the last tile may have fewer positions."""

    dim: str
    size: int
    rolling: bool = False
    """Of a step: keep what neighbouring tiles share instead of computing it again."""
    ahead: bool = False
    """Of a layer's innermost loop: see `TileLoop.ahead`."""
    stages: tuple[int, ...] = ()
    """Of a step's innermost loop: see `OuterLoop.ahead`."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class StepLayer:
    """One layer of a step: its operators by the tensors that they make, the last one its result."""

    nests: tuple[str, ...]
    loops: tuple[For, ...] = ()
    """Outermost first."""
    resident: bool = False
    """Its constants are loaded once, before the loops of the step."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class BufferAddress:
    """Where a buffer of a step lies in its memory."""

    buffer: str
    start: int
    """Byte."""
    pitch: int
    """Bytes from slot to slot."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class ScheduleStep:
    """Layers that share loops over tiles of their last result."""

    layers: tuple[StepLayer, ...]
    cores: tuple[tuple[Span, ...], ...] = ()
    """For each core that takes part, in order: its part of the last layer's result; dimensions that
    are left out are whole. Without cores, the compiler chooses tiles and cores."""
    loops: tuple[For, ...] = ()
    """Outermost first."""
    slots: int | None = None
    """Tiles of a streamed buffer that are there at once; None: as many as the compiler takes."""
    buffers: tuple[BufferAddress, ...] = ()
    """All buffers of the step, or none: then the compiler places them."""
    among: tuple[int, int] | None = None
    """The first core that may take part, and the one behind the last; None: all may."""
    instances: int = 1
    """Parts of the batch that it does one at a time, each as far as the steps behind it need it."""
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Call:
    """A call of the host, by the tensors that it makes."""

    outputs: tuple[str, ...]
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Tree:
    """The schedule of a network."""

    network: str
    steps: tuple[ScheduleStep | Call, ...]
    homes: tuple[Home, ...] = ()

    @property
    def addressed(self) -> bool:
        """Whether it says where buffers of any step lie."""
        return any(isinstance(step, ScheduleStep) and step.buffers for step in self.steps)

    @property
    def instances(self) -> dict[str, int]:
        """By tensor that a step makes, how often it does, where that is more than once."""
        steps = (step for step in self.steps if isinstance(step, ScheduleStep))
        return {n: s.instances for s in steps if s.instances > 1 for w in s.layers for n in w.nests}


# From the names of a tree to the layers of a network: all of them, once each, in an order in
# which they can run.

Part = Layer | HostNode


@dataclass
class Layers:
    """Finds the parts of a network that a tree names.

    `parts` are the compiler's own layers and calls of the host. A layer of a tree is one of them,
    or operators of one in a row: what may work on one tile has been found out for these.
    """

    graph: NestGraph
    parts: Sequence[Part]
    mistakes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.homes = {
            nest.tensor: (layer, position)
            for layer in self.parts
            if isinstance(layer, Layer)
            for position, nest in enumerate(layer.nests)
        }
        self.calls = {part.outputs: part for part in self.parts if isinstance(part, HostNode)}
        self.lines: dict[str, int] = {}

    def groups(self, tree: Tree) -> list[Group | HostNode]:
        """A group for each step; with `mistakes` these are incomplete."""
        found: list[list[Part]] = [list(self._step_parts(step)) for step in tree.steps]
        left = sorted({*self.homes, *(names[0] for names in self.calls)} - self.lines.keys())
        if left and not self.mistakes:
            self.mistakes.append(f"no step makes {', '.join(left)}")
        flat = [part for parts in found for part in parts]
        if not self.mistakes:
            self._check_order(flat)
        if self.mistakes:
            return []
        net = dependences(flat, self.graph)
        ends = accumulate(map(len, found), initial=0)
        masks = ((1 << end) - (1 << start) for start, end in pairwise(ends))
        return [
            self._step_group(net, mask, step) for mask, step in zip(masks, tree.steps, strict=True)
        ]

    def _step_group(
        self, net: Dependences, mask: int, step: ScheduleStep | Call
    ) -> Group | HostNode:
        if isinstance(step, ScheduleStep) and not net.legal(mask):
            apart = next(i for i in members(mask) if net.apart[i] & mask)
            name = made_by(net.parts[apart])[0]
            self._say(
                step.line, f"{name} may not share this step with layers that see the same bytes "
                "as another tensor (slices of a concatenation, a view): those meet in memory",
            )  # fmt: skip
        return net.built(mask)

    def _step_parts(self, step: ScheduleStep | Call) -> Iterator[Part]:
        if isinstance(step, Call):
            call = self.calls.get(step.outputs)
            if call is None:
                names = [", ".join(outputs) for outputs in self.calls]
                said = ", ".join(step.outputs)
                self._say(step.line, f"no call of the host makes {said}{near(said, names)}")
                return
            self._claim_name(step.outputs[0], step.line)
            yield call
            return
        for work in step.layers:
            layer = self._find_layer(work)
            if layer is not None:
                yield layer

    def _find_layer(self, work: StepLayer) -> Layer | None:
        unknown = [name for name in work.nests if name not in self.homes]
        for name in unknown:
            self._say(work.line, f"no operator makes {name!r}{near(name, self.homes)}")
        if unknown:
            return None
        for name in work.nests:
            self._claim_name(name, work.line)
        layer, first = self.homes[work.nests[0]]
        found = layer.part(first, len(work.nests))
        if tuple(nest.tensor for nest in found.nests) != work.nests:
            whole = ", ".join(nest.tensor for nest in layer.nests)
            self._say(
                work.line, f"a layer is one that the compiler made, or a run of its operators: "
                f"{work.nests[0]} is of the layer {whole}",
            )  # fmt: skip
            return None
        return layer if found.nests == layer.nests else found

    def _claim_name(self, name: str, line: int) -> None:
        if name in self.lines:
            self._say(line, f"{name} is made in line {self.lines[name]} already")
        self.lines[name] = line

    def _check_order(self, flat: Sequence[Part]) -> None:
        """Check that everything stands behind what it needs."""
        made = ([*made_by(p)[:1]] if isinstance(p, HostNode) else [n.tensor for n in p.nests]
                for p in self.parts)  # fmt: skip
        order = {name: number for number, name in enumerate(chain.from_iterable(made))}
        pieces = sorted(flat, key=lambda part: order[made_by(part)[0]])
        net = dependences(pieces, self.graph)
        place = {made_by(part)[0]: position for position, part in enumerate(flat)}
        for position, part in enumerate(pieces):
            name = made_by(part)[0]
            for need in members(net.before[position]):
                needed = made_by(pieces[need])[0]
                if place[needed] > place[name]:
                    said = f"{name} runs before {needed}, for which it has to wait"
                    self._say(self.lines[name], said)

    def _say(self, line: int, what: str) -> None:
        self.mistakes.append(f"line {line}: {what}")

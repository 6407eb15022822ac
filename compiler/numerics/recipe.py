"""The recipe of a program, for whoever checks it: its stages, what each computes and stores, and
what its tensors are to the model.

The one idea: what is to be looked at, and from what on nobody reads a buffer again, follows from
the recipe alone, before anything is computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from compiler.frontend.rewrite import names_of, origin_of, runs_of
from compiler.numerics.host_error import decoded_beside, read_on
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.interpreter import TensorViews, raw_move, view_of
from compiler.tensor_ir.nest import Array, HostNode, Nest, NestGraph, Put, Tensor
from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import FLOATS
from simmodel.arch.lazy_array import AnyArray, in_pieces

# Which value of the model each tensor of a program holds, by the model's names: it is compared in
# the model's shape, even where the compiler has split an axis of the model into several.


class SourceValue(NamedTuple):
    """A value of the model."""

    name: str
    dtype: str
    """Element type in the model."""
    node: int
    """Index of the model's node that computes it: several values of one node may share bytes."""
    origin: str
    """That node as nests name where they come from."""
    runs: tuple[int, ...] = ()
    """By axis of the value, how many axes of the tensor it consists of; empty: the same axes."""

    def shaped(self, values: Array) -> Array:
        """A tensor's values in the shape of the model."""
        if not self.runs:
            return values
        parts = np.split(np.array(values.shape), np.cumsum(self.runs)[:-1])
        return values.reshape([int(part.prod()) for part in parts])


Known = Mapping[str, Sequence[SourceValue]]
"""Tensor -> each value of the model that it holds, in the model's order."""


_SOURCE = "archgen.source"


def mark_source(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Note in `model` which node of `proto` makes each of its values."""
    model.meta[_SOURCE] = {
        name: number for number, node in enumerate(proto.graph.node) for name in node.output
    }


def source_values(model: ir.Model) -> Known:
    """Each value's names in the source model, in its order, and its element type."""
    source: dict[str, int] = model.meta.get(_SOURCE, {})
    order = {name: position for position, name in enumerate(source)}
    return {
        str(value.name): [
            SourceValue(
                name,
                NAMES[value.dtype.numpy()],
                source[name],
                origin_of(node),
                runs_of(model.graph, name),
            )
            for name in sorted(source.keys() & set(names_of(value)), key=order.__getitem__)
        ]
        for node in model.graph
        for value in node.outputs
        if value.name and value.dtype is not None and value.dtype.numpy() in NAMES
    }


# Constants whose element type on the machine cannot hold them.


def lost_constant(tensor: Tensor, data: AnyArray, exact: AnyArray) -> str | None:
    """That a constant underflows in its element type, or exceeds it, in words."""
    limit = float(ml_dtypes.finfo(data.dtype).max)  # type: ignore[no-untyped-call]
    ends = [(each.min(initial=0), each.max(initial=0)) for _, each in in_pieces(exact)]
    exceeds = not all(-limit <= low <= high <= limit for low, high in ends)
    if not exceeds and any(np.any(each) for _, each in in_pieces(data)):
        return None
    data, exact = np.asarray(data), np.asarray(exact)
    lost = np.isfinite(exact) & (np.abs(exact) > limit)
    if not lost.any() and not np.any(data):
        lost = exact != 0
    if not lost.any():
        return None
    at = int(np.argmax(lost))
    was, became = float(exact.flat[at]), float(data.flat[at])
    return f"{tensor.storage.buffer}: {was:.3g} is {became:.3g} in {tensor.dtype}"


@dataclass(frozen=True)
class Stage:
    """A step of the program: nests or a host call, and the tensors it stores in DRAM."""

    nests: tuple[Nest, ...]
    """Empty for a host call."""
    stored: tuple[str, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Element types on chip of tensors that are not stored; default as in memory."""
    sums: Mapping[str, str] = field(default_factory=dict)
    """Element types of partial sums, by the tensor they belong to; default fp32."""
    host: HostNode | None = None
    pinned: tuple[str, ...] = ()
    """Constants that stay on chip from the first step that names them to the last."""
    alike: int | None = None
    """The first step with the same instructions but for addresses; None: not known."""
    kept: tuple[str, ...] = ()
    """Tensors that stay on chip when it ends, and are to be seen there."""
    copies: Mapping[str, Mapping[str, Box]] = field(default_factory=dict)
    """Of those of which cores have the same elements: what each core has, by its name and as first
    element and size on each axis. Cores that compute an element add up in orders of their own."""
    starts: tuple[tuple[str, int] | None, ...] = ()
    """Memory and first byte of what it touches off chip; steps that are alike have one order."""

    @property
    def read(self) -> tuple[str, ...]:
        """Every tensor that an operator of it reads, in order."""
        within = tuple(access.tensor for nest in self.nests for access in nest.reads)
        return within + (() if self.host is None else self.host.inputs)

    @property
    def computed_tensors(self) -> tuple[str, ...]:
        picked = self.host.outputs if self.host is not None and self.host.pick is not None else ()
        return tuple(nest.tensor for nest in self.nests) or picked or self.stored


@dataclass(frozen=True)
class VerificationPlan:
    """Steps of a program, and what each of them computes."""

    graph: NestGraph
    stages: tuple[Stage, ...]
    known: Known
    kernels: Mapping[str, str] = field(default_factory=dict)
    """Tensor -> the user's kernel that computes it, and its source location."""


def read_within(recipe: VerificationPlan) -> dict[str, str]:
    """Tensors that pass between operators of one node of the model, and that node.

    A tensor without a producer is a view; its producers are the steps that wrote those elements of
    the shared buffer.
    """
    graph = recipe.graph
    steps = [step for stage in recipe.stages for step in _reads_and_writes(recipe, stage)]
    named = {written for _, _, written in steps if written is not None}
    viewed = {graph.buffer_of(name) for _, read, _ in steps for name in read if name not in named}
    viewed &= {graph.buffer_of(name) for name in named}
    last_step = {
        graph.buffer_of(name): number
        for number, (_, read, written) in enumerate(steps, 1)
        for name in (*read, written)
        if name is not None
    }
    painted = _Marks(graph, 0)
    makers: dict[str, dict[str, None]] = {}
    found: dict[str, str] = {}
    for number, (nodes, read, written) in enumerate(steps, 1):
        for name in read:
            made = makers.get(name, {})
            if graph.buffer_of(name) in viewed and name not in named:
                marks = painted(name)  # most tensors are made by one step
                last = np.unique(marks) if marks.size and np.ptp(marks) else marks.flat[:1]
                made = dict.fromkeys(n for i in last if i for n in steps[i - 1][0])
            own = next((maker for maker in made if maker in nodes), None)
            if own is not None:
                found[name] = own
        if written is not None:
            makers.setdefault(written, {}).update(dict.fromkeys(nodes))
            if graph.buffer_of(written) in viewed:
                painted(written)[...] = number
        for name in (*read, *filter(None, [written])):
            if last_step[graph.buffer_of(name)] == number:
                painted.drop(graph.buffer_of(name))
    return found


def _reads_and_writes(
    recipe: VerificationPlan, stage: Stage
) -> Iterator[tuple[list[str], Sequence[str], str | None]]:
    """For each operator: its nodes, what it reads, and writes. A host call may contain several
    nodes, one of which produces a tensor with a name in the model."""
    for nest in stage.nests:
        yield nest.origin.split("+"), [access.tensor for access in nest.reads], nest.tensor
    if (host := stage.host) is not None:
        yield host.origin.split("+"), host.inputs, None
        for name in host.outputs:
            known = recipe.known.get(name)
            yield (known[0].origin if known else host.origin).split("+"), (), name


def stored_copies(recipe: VerificationPlan, tensors: TensorViews) -> dict[str, list[Nest]]:
    """By buffer, nests that store what lies there, from which it can be had again: as it is, or
    the real values of its steps."""
    found: dict[str, list[Nest]] = {}
    for stage in recipe.stages:
        for nest in stage.nests:
            read = nest.operands[0]
            if nest.tensor not in stage.stored:
                continue
            source, target = tensors.dtype(read.tensor), tensors.dtype(nest.tensor)
            plain = replace(nest, operands=(replace(read, scale=None, zero=0),))
            decodes = read.scale is not None and raw_move(plain, target, target)
            if raw_move(nest, source, target) or (decodes and NAMES[target] in FLOATS):
                found.setdefault(recipe.graph.buffer_of(read.tensor), []).append(nest)
    return found


def last_used(recipe: VerificationPlan, copies: Mapping[str, Sequence[Nest]]) -> list[list[str]]:
    """By nest or other step, buffers that no later one touches, not even as stored `copies`."""
    last: dict[str, int] = {}
    count = 0
    for stage in recipe.stages:
        steps = [
            [
                nest.tensor,
                *(access.tensor for access in nest.reads),
                *(copy.tensor for copy in copies.get(recipe.graph.buffer_of(nest.tensor), ())),
            ]
            for nest in stage.nests
        ]
        given = () if stage.host is None else (*stage.host.inputs, *stage.host.outputs)
        for names in steps or [[*stage.stored, *stage.computed_tensors, *given]]:
            last |= dict.fromkeys(map(recipe.graph.buffer_of, names), count)
            count += 1
    found: list[list[str]] = [[] for _ in range(count)]
    for buffer, number in last.items():
        found[number].append(buffer)
    return found


class _Marks:
    """A number for each element of buffers, at first `nothing`, as the view of any tensor. They
    take memory as long as they are not dropped."""

    def __init__(self, graph: NestGraph, nothing: int) -> None:
        self._graph, self._nothing = graph, nothing
        self._flat: dict[str, Array] = {}

    def __call__(self, name: str) -> Array:
        buffer = self._graph.buffer_of(name)
        if buffer not in self._flat:
            size = self._graph.buffers[buffer]
            self._flat[buffer] = np.full(size, self._nothing, np.int32)
        return view_of(self._graph.tensors[name], self._flat[buffer])

    def drop(self, buffer: str) -> None:
        self._flat.pop(buffer, None)


def bypassed(recipe: VerificationPlan) -> set[str]:
    """Values that some operators read as they are stored, and others before they were rounded: the
    model's own operator, which rounds nothing, is what both have in common. Other values that hold
    the same elements are made of them without a rounding, and nobody gets them as stored either."""
    graph = recipe.graph
    nests = [nest for stage in recipe.stages for nest in stage.nests]
    hosts = [stage.host for stage in recipe.stages if stage.host is not None]
    again = {name for host in hosts for name in read_on(host)}
    readers = Counter(access.tensor for nest in nests for access in nest.reads)
    readers.update(name for host in hosts for name in {*host.inputs})
    found = {name for host in hosts for name in decoded_beside(host, readers)}
    for name in again:  # read by the call that makes it, in a wider type than in memory, or as
        stored = graph.tensors[name].dtype  # integers that a tie may round the other way
        known = recipe.known.get(name, ())
        if known and (stored not in FLOATS or any(each.dtype != stored for each in known)):
            found.add(name)
    for nest in nests:  # dequantized, which others read before the conversion, also as codes
        read = nest.operands[0]
        converts = nest.function == "move" and read.scale is not None and nest.scale is None
        if converts and (read.tensor in again or readers[read.tensor] > 1):
            found.add(nest.tensor)
    buffers = {graph.buffer_of(name) for name in found}
    marked = _Marks(graph, 0)
    for name in found:
        marked(name)[...] = 1
    named = (name for name, values in recipe.known.items() if values and name in graph.tensors)
    return found | {n for n in named if graph.buffer_of(n) in buffers and marked(n).any()}


def views_to_record(recipe: VerificationPlan, bypassed: Collection[str]) -> dict[str, list[str]]:
    """For each tensor that is made, those to look at then: itself, as far as the model names it;
    and views of what is complete with it, where what lies there is no value of the model, or one
    that is not handed on: those of the first node that has such a view, but no table as it was
    before rows were put into it."""
    graph, nobody = recipe.graph, -1
    made = [name for stage in recipe.stages for name in stage.computed_tensors]
    seen = {name: [name] if recipe.known.get(name) else [] for name in made}
    node_of = {name: values[0].node for name, values in recipe.known.items() if values}
    views = {
        name: node
        for name, node in node_of.items()
        if name in graph.tensors and name not in graph.codes and name not in seen
    }
    open_buffers = {graph.buffer_of(n) for n in made if n not in node_of or n in bypassed}
    open_buffers &= set(map(graph.buffer_of, views))
    places = {value.origin: value.node for values in recipe.known.values() for value in values}
    hosts = (stage.host for stage in recipe.stages if stage.host is not None)
    puts = {h.outputs[0]: places.get(h.origin, nobody) for h in hosts if isinstance(h.pick, Put)}
    within: dict[str, tuple[list[int], list[str]]] = {n: ([], []) for n in open_buffers}
    for number, name in enumerate(made):
        if (buffer := graph.buffer_of(name)) in within:
            within[buffer][0].append(number)
    for name in sorted(views, key=views.__getitem__):
        if (buffer := graph.buffer_of(name)) in within and graph.tensors[name].elements:
            within[buffer][1].append(name)
    for numbers, names in within.values():
        told, makers = (_Marks(graph, nobody) for _ in range(2))
        for number in numbers:
            name = made[number]
            makers(name)[...] = number
            told(name)[...] = nobody if name in bypassed else node_of.get(name, nobody)
        for name in names:
            teller, last = told(name), makers(name).max()
            mine = (teller == nobody) | (teller == node_of[name])
            if last == nobody or not (mine.any() or name in bypassed):
                continue
            if node_of[name] < puts.get(made[last], nobody):
                continue
            seen[made[last]].append(name)
            if name not in bypassed:
                teller[mine] = node_of[name]
    return seen

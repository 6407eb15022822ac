"""One nest graph for all lengths in some ranges, inferred from the graphs of a few lengths.

The one idea: how numbers depend on a length shows near the maximum of its range, where the network
is decomposed as at the maximum, and for strided windows a few strides below. At smaller lengths the
decomposition may differ but must compute the same: the minimum is computed both ways and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import itemgetter

import numpy as np
import onnx_ir as ir

from compiler.errors import UnsupportedModel
from compiler.symbolic.buffer_views import unwritten
from compiler.symbolic.ceil_div import extents_at, with_ceil_div_registers
from compiler.symbolic.constants import Constants, with_host_constants
from compiler.symbolic.merge import merge_graphs, other_structure, refusal
from compiler.symbolic.specialize import at_length
from compiler.tensor_ir.bounds import needed, raw_value
from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.interpreter import Host, run
from compiler.tensor_ir.join import JoinConcat
from compiler.tensor_ir.nest import Access, Array, Nest, NestGraph, Step, Tensor, order_of
from compiler.tensor_ir.registers import (
    Point,
    edge_of,
    from_where,
    lengths_among,
    point_text,
    sizes_at,
    with_size,
)
from compiler.tensor_ir.rewrite import writes_of
from simmodel.arch.dtype import NUMPY
from simmodel.errors import HostFailed
from simmodel.isa.region import Register, cached_property

# Padding around dimensions whose length is known only at run time: rows of a buffer.
#
#     y[l] = sum over k of x[l + k - 1] * w[k], 0 outside      x.bordered = 0, x[0 .. n - 1], 0
#                                                         =>   y[l] = sum over k of
#                                                                     x.bordered[l + k] * w[k]
#
# The end of the data moves with the length, as does the new row of a growing cache. So padding is
# handled as such a row: a concatenation, into whose buffer the producer writes directly.

Key = tuple[str, float]
"""A tensor, and the border's value in its element type."""


@dataclass
class _Wanted:
    """Border of one tensor."""

    first: int
    """Number of the first operator that reads the border, at any length."""
    order: tuple[int, ...]
    """Of the tensor's axes, slowest first, where all are as long as they get."""
    before: dict[int, int] = field(default_factory=dict)
    """Rows, by axis."""
    after: dict[int, int] = field(default_factory=dict)


def with_borders(graphs: Mapping[Point, NestGraph]) -> dict[Point, NestGraph]:
    """`graphs` of one network at several lengths with the same operators, in which windows that
    leave a dimension of varying length read rows of a border."""
    wanted: dict[Key, _Wanted] = {}
    readers: dict[tuple[int, int], Key] = {}
    for graph in graphs.values():
        nests = ((n, step) for n, step in enumerate(graph.steps) if isinstance(step, Nest))
        for number, step in nests:
            for position, access in enumerate(step.operands):
                for axis, before, after in _outside(step, access, graph, graphs):
                    dtype = graph.tensors[access.tensor].dtype
                    assert access.pad is not None
                    value = raw_value(access.pad, dtype, access.scale, access.zero)
                    key = (access.tensor, value)
                    same = [g.tensors[access.tensor] for g in graphs.values()]
                    longest = max(same, key=lambda tensor: tensor.elements)
                    order = order_of(longest.shape, longest.storage.strides)
                    border = wanted.setdefault(key, _Wanted(number, order))
                    border.first = min(border.first, number)
                    border.before[axis] = max(border.before.get(axis, 0), before)
                    border.after[axis] = max(border.after.get(axis, 0), after)
                    readers[number, position] = key
    if not wanted:
        return dict(graphs)
    return {point: _bordered(graph, wanted, readers) for point, graph in graphs.items()}


def _outside(
    nest: Nest, access: Access, graph: NestGraph, graphs: Mapping[Point, NestGraph]
) -> Iterator[tuple[int, int, int]]:
    """Varying axes that `access` leaves, and by how many rows in front and behind."""
    if access.pad is None:
        return
    box = needed(access, [(0, dim.extent) for dim in nest.dims])
    for axis, (start, size) in enumerate(box):
        extent = graph.tensors[access.tensor].shape[axis]
        differs = len({*extents_at(graphs, access.tensor, axis).values()}) > 1
        if differs and (start < 0 or start + size > extent):
            yield axis, max(0, -start), max(0, start + size - extent)


def _bordered(
    graph: NestGraph, wanted: Mapping[Key, _Wanted], readers: Mapping[tuple[int, int], Key]
) -> NestGraph:
    """One graph in which `readers` (number of the operator, its operand) read borders."""
    tensors, buffers = dict(graph.tensors), dict(graph.buffers)
    made: dict[int, list[Step]] = {}
    makers = {
        graph.buffer_of(name): step.origin for step in graph.steps for name in writes_of(step)
    }
    for key, border in wanted.items():
        # Of the node that makes what lies inside: its readers are given what it has stored.
        inner = graph.tensors[key[0]]
        origin = makers.get(inner.storage.buffer) or graph.steps[border.first].origin
        build = NestGraphBuilder(graph.name, inner.dtype, origin=origin, kind="Concat")
        _concatenate(build, key, border, inner)
        made.setdefault(border.first, []).extend(build.steps)
        tensors |= build.tensors
        buffers |= build.buffers
    steps = []
    for number, step in enumerate(graph.steps):
        steps += made.get(number, [])
        if isinstance(step, Nest):
            operands = list(step.operands)
            for position, access in enumerate(operands):
                if (read := readers.get((number, position))) is not None:
                    operands[position] = _bordered_access(access, wanted[read], read, tensors, step)
            step = replace(step, operands=tuple(operands))
        steps.append(step)
    changed = replace(graph, tensors=tensors, buffers=buffers, steps=tuple(steps))
    return JoinConcat().apply(changed).ir


def _bordered_name(key: Key) -> str:
    return f"{key[0]}.bordered:{key[1]:g}"


def _concatenate(build: NestGraphBuilder, key: Key, border: _Wanted, inner: Tensor) -> None:
    """Append operators that write `inner` and its border into one tensor."""
    name = _bordered_name(key)
    starts = [border.before.get(axis, 0) for axis in range(len(inner.shape))]
    shape = tuple(
        before + extent + border.after.get(axis, 0)
        for axis, (before, extent) in enumerate(zip(starts, inner.shape, strict=True))
    )
    whole = build.create(name, shape, inner.dtype, border.order)
    done = [*zip(starts, inner.shape, strict=True)]
    boxes = {"inside": list(done)}
    for axis in border.before:
        ends = {"before": (0, starts[axis]), "after": (sum(done[axis]), border.after[axis])}
        for side, span in ends.items():
            if span[1]:
                boxes[f"{side}{axis}"] = [*done[:axis], span, *done[axis + 1 :]]
        done[axis] = (0, shape[axis])
    for part, box in boxes.items():
        extents = tuple(extent for _, extent in box)
        cut = tuple(slice(start, start + extent) for start, extent in box)
        source = inner
        if part != "inside":
            rows = np.full(extents, key[1], NUMPY[inner.dtype])
            source = build.constant(f"{name}.{part}.rows", rows, inner.dtype)
        build.copied(build.view(f"{name}.{part}", whole, itemgetter(cut)), source)


def _bordered_access(
    access: Access, border: _Wanted, key: Key, tensors: Mapping[str, Tensor], nest: Nest
) -> Access:
    """`access` to the tensor with its border; the pad value stays for axes that do not differ."""
    index = tuple(
        replace(affine, constant=affine.constant + border.before.get(axis, 0))
        for axis, affine in enumerate(access.index)
    )
    made = replace(access, tensor=_bordered_name(key), index=index)
    box = needed(made, [(0, dim.extent) for dim in nest.dims])
    spans = zip(box, tensors[made.tensor].shape, strict=True)
    inside = all(start >= 0 and start + size <= extent for (start, size), extent in spans)
    return replace(made, pad=None) if inside else made


@dataclass(frozen=True)
class SymbolicModel:
    """A model for each length within some ranges."""

    registers: tuple[Register, ...]
    prepare: Callable[[Mapping[str, int]], ir.Model | None] = field(repr=False)
    """The model at one length of each register, also beyond the ranges; None if there is none. All
    have the same constants, except those that depend on the lengths."""
    host: Host = field(repr=False)
    """Runs operators that are left to the host."""
    constants: Constants | None = field(default=None, repr=False)
    """Values of constants that depend on the lengths."""

    def at(self, values: Mapping[str, int]) -> ir.Model | None:
        """The model at these lengths; the one at the maximum is prepared once."""
        edge = all(values[register.name] == register.high for register in self.registers)
        return self.edge if edge else self.prepare(values)

    @cached_property
    def edge(self) -> ir.Model:
        """The model at the upper edge of all ranges.

        Raises ValueError where there is none.
        """
        model = self.prepare({register.name: register.high for register in self.registers})
        if model is None:
            raise ValueError("there is no network at the upper edge")
        return model


Make = Callable[[Mapping[str, int]], NestGraph | None]
"""The network at one length of each register; None where it has none."""

_STEPS = (-1, -2, 1, 2, -3)
"""Steps from the maximum to lengths that are tried until two are found, also beyond the range."""
_WANTED = 2
_SHARE = 0.05
"""Tolerance between two ways to compute a value in small types, as a share of the mean."""


def for_lengths(
    make: Make, registers: tuple[Register, ...], host: Host, constants: Constants | None = None,
    real: str = "fp32",
) -> NestGraph:  # fmt: skip
    """The nest graph for all lengths of `registers`.

    Args:
        make: the network at one point.
        host: runs host nodes, to compare what is computed.
        constants: for those that depend on a length.
        real: element type of numbers by which means differ from length to length.

    Raises UnsupportedModel with every reason why there is no such graph.
    """
    edge = edge_of(registers)
    graphs = {edge: _at(make, registers, edge)}
    mistakes: list[str] = []
    near = [
        _graphs_near_edge(make, registers, position, graphs, mistakes)
        for position, register in enumerate(registers)
        if register.low < register.high
    ]
    if mistakes:
        raise refusal(graphs[edge].name, registers, mistakes)
    if len(near) > 1:
        _add_mixed(make, registers, near, graphs)
    every = _with_shares(make, registers, graphs)
    made = merge_graphs(with_host_constants(with_borders(graphs)), every, constants, real)
    for point in product(*((r.low, r.high) for r in registers)):
        _check_reads(made, registers, point)
    for point in _checked(made.registers):
        if point not in graphs:
            _check_point(made, make, host, point)
    return made


def _at(make: Make, registers: Sequence[Register], point: Point) -> NestGraph:
    made = make(sizes_at(registers, point))
    if made is None:
        raise UnsupportedModel(f"the network has no {point_text(registers, point)}")
    return made


def _graphs_near_edge(
    make: Make, registers: tuple[Register, ...], position: int, graphs: dict[Point, NestGraph],
    mistakes: list[str],
) -> list[Point]:  # fmt: skip
    """Add graphs next to the maximum of one register to `graphs`, with the same operators; returns
    their points. Reasons for failure go to `mistakes`."""
    edge, register = edge_of(registers), registers[position]
    found: list[Point] = []
    said = ""
    for step in _STEPS:
        value = register.high + step
        if len(found) == min(_WANTED, register.high - register.low) or value < 1:
            continue
        point = with_size(edge, position, value)
        graph = make(sizes_at(registers, point))
        if graph is None:
            continue
        other = other_structure(graphs[edge], graph)
        if other is None:
            found.append(point)
            graphs[point] = graph
        said = said or f"at {register.name}={value} {other}"
    if not found:
        mistakes.append(said or f"there is no {register.name} next to {register.high}")
    return found


def _add_mixed(
    make: Make, registers: tuple[Register, ...], near: Sequence[Sequence[Point]],
    graphs: dict[Point, NestGraph],
) -> None:  # fmt: skip
    """Add a graph with all registers below the maximum, if one has the same operators: it reveals
    products of lengths."""
    edge = edge_of(registers)
    for points in product(*near):
        together = zip(*points, strict=True)
        mixed = tuple(
            next((value for value in values if value != high), high)
            for values, high in zip(together, edge, strict=True)
        )
        graph = _at(make, registers, mixed)
        if other_structure(graphs[edge], graph) is None:
            graphs[mixed] = graph
            return


def _with_shares(
    make: Make, registers: tuple[Register, ...], graphs: dict[Point, NestGraph]
) -> tuple[Register, ...]:
    """`registers`, and a register for each ceiling division. Graphs that were needed are added to
    `graphs`."""
    edge = graphs[edge_of(registers)]
    lost: dict[Point, str] = {}
    while (found := with_ceil_div_registers(graphs, registers, lost)).asked:
        point = found.asked[0]
        graph = make(sizes_at(registers, point))
        other = "there is no such network" if graph is None else other_structure(edge, graph)
        if graph is None or other is not None:
            lost[point] = f"at {point_text(registers, point)} {other}"
        else:
            graphs[point] = graph
    if found.untold:
        raise refusal(edge.name, registers, [lost[point] for point in found.untold])
    low = tuple(register.low for register in registers)

    def no_window(part: Register) -> str:
        there = from_where(lambda at: part.share(sizes_at(registers, at)) > 0, registers, low)
        return f"at {point_text(registers, low)} steps of {part.parts} leave no window{there}"

    empty = [no_window(register) for register in found.registers if register.low < 1]
    if empty:
        raise refusal(edge.name, registers, empty)
    return found.registers


def _checked(registers: Sequence[Register]) -> Iterator[Point]:
    """Points to check: the minimum of all ranges and, with strided windows, a point above it with
    another remainder than the maximum."""
    lengths = lengths_among(registers)
    yield tuple(register.low for register in lengths)
    steps = {name: each.parts for each in registers for name, _ in each.terms}
    above = []
    for each in lengths:
        step = steps.get(each.name)
        value = each.low if step is None else each.low + step + 1
        above.append(min(value + bool(step and (each.high - value) % step == 0), each.high))
    if steps:
        yield tuple(above)


def _check_reads(made: NestGraph, lengths: Sequence[Register], point: Point) -> None:
    """Raise UnsupportedModel if a step reads unwritten elements at one point. Ends of reads and
    writes are linear in lengths, so the ends of the ranges suffice."""
    said = _lacking(made, lengths, point)
    if said is None:
        return
    there = from_where(lambda other: _lacking(made, lengths, other) is None, lengths, point)
    raise refusal(made.name, lengths, [f"at {point_text(lengths, point)} {said}{there}"])


def _lacking(made: NestGraph, lengths: Sequence[Register], point: Point) -> str | None:
    try:
        return unwritten(at_length(made, sizes_at(lengths, point)))
    except ValueError:  # an array that no buffer holds, or a read without a value outside
        return "what follows from longer inputs reaches beyond what is there"


def _check_point(made: NestGraph, make: Make, host: Host, point: Point) -> None:
    """Raise UnsupportedModel if the graph at one point computes something else than `made`."""
    lengths = lengths_among(made.registers)
    own, shown = _at(make, lengths, point), point_text(lengths, point)
    cut = at_length(made, sizes_at(lengths, point))
    inputs, right = _computed(own, host)
    try:
        ours = run(cut, inputs, host)
    except ValueError as why:
        said = f"at {shown} what follows from longer inputs cannot be computed: {why}"
        raise refusal(made.name, lengths, [said]) from why
    wrong = [
        f"at {shown} the output {name} is another one than what follows from longer inputs"
        for name, values in right.items()
        if ours[name].shape != values.shape or not _close(ours[name], values)
    ]
    if wrong:
        raise refusal(made.name, lengths, wrong)


def _computed(graph: NestGraph, host: Host) -> tuple[dict[str, Array], dict[str, Array]]:
    """Sample inputs, and the outputs of `graph`. Integers are 1, because a row that is masked out
    entirely divides rounding errors by rounding errors; 0 if a table has one row."""
    inputs = _some(graph, 1)
    try:
        return inputs, run(graph, inputs, host)
    except (HostFailed, IndexError):
        inputs = _some(graph, 0)
        return inputs, run(graph, inputs, host)


def _some(graph: NestGraph, number: int) -> dict[str, Array]:
    """Sample inputs: normal numbers, and `number` for indices, lengths and masks."""
    random = np.random.default_rng(0)
    made = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        kind = NUMPY[graph.ports.get(name, tensor.dtype)]
        whole = np.issubdtype(kind, np.integer) or kind == np.bool_
        values = np.full(tensor.shape, number) if whole else random.normal(size=tensor.shape)
        made[name] = values.astype(kind)
    return made


def _close(ours: Array, right: Array) -> bool:
    a, b = (np.nan_to_num(values.astype(np.float64)) for values in (ours, right))
    return bool(np.abs(a - b).mean() <= _SHARE * np.abs(b).mean()) if a.size else True

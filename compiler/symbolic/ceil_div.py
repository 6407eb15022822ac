"""Ceiling divisions of a length: numbers of strided windows.

    windows of 3 in steps of 2 along `time` positions        ceil((time - 2) / 2)
    and once more along what they leave                      ceil((time - 6) / 4)

The one idea: a stride divides the length, and nested ceiling divisions are one ceiling division by
the product. So the strides of the network give the divisor, and a few lengths near the maximum give
the remainder at which the number steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import lt

import onnx

from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from compiler.tensor_ir.registers import (
    Count,
    Point,
    below,
    counted,
    edge_of,
    lengths_among,
    share,
    values_at_point,
    with_size,
)
from simmodel.isa.region import Register, cached_property


@dataclass(frozen=True)
class StridedWindows:
    """Windows along one dimension of a tensor."""

    windows: Mapping[Point, int]
    positions: Mapping[Point, int]
    step: int
    bordered: bool
    """Whether they may leave the tensor."""


def extents_at(graphs: Mapping[Point, NestGraph], name: str, axis: int) -> dict[Point, int]:
    """How long a tensor is along an axis, at each point."""
    return {point: graph.tensors[name].shape[axis] for point, graph in graphs.items()}


def strided_windows(graphs: Mapping[Point, NestGraph], edge: Point) -> Iterator[StridedWindows]:
    """Those along dimensions that differ, in the order of operators."""
    for number, step in enumerate(graphs[edge].steps):
        reads = [a.tensor for a in step.operands] if isinstance(step, Nest) else step.inputs
        own = _of_nest(graphs, step, number) if isinstance(step, Nest) else _of_host(graphs, step)
        every = chain(*(_of_view(graphs, edge, name) for name in reads), own)
        yield from (w for w in every if w.step > 1 and len({*w.positions.values()}) > 1)


def _of_view(graphs: Mapping[Point, NestGraph], edge: Point, name: str) -> Iterator[StridedWindows]:
    """Of every so many positions of a tensor that are another one, as `Slice` with steps picks."""
    view = graphs[edge].tensors[name]
    for whole in graphs[edge].tensors.values():
        if whole.storage.buffer != view.storage.buffer or len(whole.shape) != len(view.shape):
            continue
        apart = zip(whole.storage.strides, view.storage.strides, strict=True)
        for axis, (unit, step) in enumerate(apart):
            if unit and step % unit == 0:
                windows, positions = (extents_at(graphs, n, axis) for n in (name, whole.name))
                yield StridedWindows(windows, positions, step // unit, bordered=False)


def _of_nest(
    graphs: Mapping[Point, NestGraph], edge: Nest, number: int
) -> Iterator[StridedWindows]:
    nests = {p: n for p, g in graphs.items() if isinstance(n := g.steps[number], Nest)}
    for access in edge.operands:
        for axis, affine in enumerate(access.index):
            positions = extents_at(graphs, access.tensor, axis)
            for dim, factor in affine.terms:
                if dim < edge.rank:
                    windows = {point: nest.dims[dim].extent for point, nest in nests.items()}
                    yield StridedWindows(windows, positions, factor, access.pad is not None)


def _of_host(graphs: Mapping[Point, NestGraph], call: HostNode) -> Iterator[StridedWindows]:
    """Of what a call reads first, by the steps of all its operators together."""
    if call.pick is not None or not call.inputs:
        return
    nodes = onnx.load_model_from_string(call.payload).graph.node
    given = [a.ints for node in nodes for a in node.attribute if a.name == "strides"]
    strides = [math.prod(steps) for steps in zip(*given, strict=False)]
    ends = (call.outputs[0], call.inputs[0])
    rank = min(len(graph.tensors[name].shape) for graph in graphs.values() for name in ends)
    for axis, step in enumerate(strides[: max(0, rank - _SPATIAL)], _SPATIAL):
        windows, positions = (extents_at(graphs, name, axis) for name in ends)
        yield StridedWindows(windows, positions, step, bordered=False)


_SPATIAL = 2
"""The first dimension along which ONNX's windows go."""


@dataclass(frozen=True)
class CeilDivRegisters:
    """Registers that follow from lengths by ceiling divisions."""

    registers: tuple[Register, ...]
    """The lengths, then a register for each ceiling division."""
    asked: tuple[Point, ...] = ()
    """Further points, any of which would settle an open division, the likeliest first; empty: none
    is open."""
    untold: tuple[Point, ...] = ()
    """Points without which a division stays open."""


def with_ceil_div_registers(
    graphs: Mapping[Point, NestGraph], lengths: tuple[Register, ...], lost: Collection[Point] = ()
) -> CeilDivRegisters:
    """Registers for the numbers of windows that are no linear function of lengths.

    Args:
        graphs: of one network, for the upper edge of all lengths and for other points.
        lengths: the registers of the points.
        lost: points at which there is no such graph.
    """
    made, untold = lengths, []
    for walk in strided_windows(graphs, edge_of(lengths)):
        division = _division(walk, made)
        if division is None:
            continue
        points = division.points()
        if there := _there(points, lengths, lost):
            return CeilDivRegisters(made, there)
        found = None if division.known else division.register()
        if found is not None:
            made = (*made, found)
        elif not division.known:
            untold += [point for point in points if point in lost][:1]
    return CeilDivRegisters(made, _there(_for_sums(graphs, made), lengths, lost), tuple(untold))


def _there(
    points: Sequence[Point], lengths: Sequence[Register], lost: Collection[Point]
) -> tuple[Point, ...]:
    """Those of `points` that are possible, below the range of a length last."""

    low = [length.low for length in lengths]
    able = (point for point in points if point not in lost and min(point) > 0)
    return tuple(sorted(able, key=lambda point: any(map(lt, point, low))))


def _for_sums(
    graphs: Mapping[Point, NestGraph], registers: Sequence[Register]
) -> tuple[Point, ...]:
    """Points that would show of which registers an extent is the sum."""
    edge = edge_of(registers)
    shares = registers[len(edge) :]
    if not shares or len(graphs) > len(registers) + 1:
        return ()
    extents = (
        extents_at(graphs, name, axis)
        for name, tensor in graphs[edge].tensors.items()
        for axis in range(len(tensor.shape))
    )
    if all(counted(known, registers) is not None for known in extents):
        return ()
    at = [register.name for register in registers].index(shares[0].terms[0][0])
    steps = range(1, 4 * len(registers))
    points = (with_size(edge, at, edge[at] - step) for step in steps)
    return tuple(point for point in points if point not in graphs)


def _division(walk: StridedWindows, registers: tuple[Register, ...]) -> _Division | None:
    """The division between windows and positions; None if they are proportional, or no division
    fits."""
    positions, windows = (counted(n, registers) for n in (walk.positions, walk.windows))
    if positions is None:
        return None
    if windows is not None:  # always exactly so many times fewer than positions?
        scaled = tuple((name, factor * walk.step) for name, factor in windows.terms)
        if scaled == positions.terms:
            return None
    of = share(positions, walk.step, registers)
    if of is None or any(factor < 1 for _, factor in of.terms):
        return None
    return _Division(walk, of, lengths_among(registers), known=windows is not None)


@dataclass(frozen=True)
class _Division:
    """Windows as a function of positions, as far as the points show."""

    walk: StridedWindows
    of: Register
    """Steps, with an unknown offset."""
    lengths: tuple[Register, ...]
    known: bool
    """Whether the registers express the windows already."""

    def register(self) -> Register | None:
        """The register that counts one more per window; None: no division fits, or several do."""
        offsets = self._possible_edge_offsets
        if not offsets or self._distinguishing_step:
            return None
        return share(Count(self._base(offsets[0]), self.of.terms), self.of.parts, self.lengths)

    def points(self) -> tuple[Point, ...]:
        """Points, any of which would show more."""
        parts, factor = self.of.parts, self._factor
        seen = {self._less(point) for point in self.walk.windows}
        far = self._far
        if max(map(abs, seen)) < min(parts, far * factor):
            return self._below_edge(far, -far, 2 * far, -2 * far)
        if step := self._distinguishing_step:
            return self._below_edge(step, step - parts, step + parts)
        if not self.walk.bordered or not self._possible_edge_offsets:
            return ()
        # There windows reach farthest, and so does their border.
        first = self._possible_edge_offsets[0]
        farthest = [step for step in range(far + 1) if (step * factor - first) % parts == 0]
        if not farthest or any((less - first) % parts == 0 for less in seen):
            return ()
        return self._below_edge(farthest[0], farthest[0] - parts, farthest[0] + parts)

    @cached_property
    def _possible_edge_offsets(self) -> tuple[int, ...]:
        """Possible offsets of the maximum within its step."""
        return tuple(
            behind
            for behind in range(self.of.parts)
            if (self._base(behind) - self.of.base) % (self.of.parts // self.walk.step) == 0
            and all(
                self._windows(behind, self._less(point)) == number
                for point, number in self.walk.windows.items()
            )
        )

    def _base(self, behind: int) -> int:
        edge = edge_of(self.lengths)
        values = {register.name: register.high for register in self.lengths}
        windows = self.walk.windows[edge]
        return self.of.parts * (windows - 1) + behind + 1 - Count(0, self.of.terms).at(values)

    def _windows(self, behind: int, less: int) -> int:
        """Windows over so many positions less than at the maximum."""
        return self.walk.windows[edge_of(self.lengths)] + (behind - less) // self.of.parts

    @cached_property
    def _far(self) -> int:
        """Distance below the maximum at which all steps repeat, or the range ends."""
        low = tuple(register.low for register in self.lengths)
        return -(-min(self.of.parts, self._less(low)) // self._factor)

    @cached_property
    def _distinguishing_step(self) -> int:
        """Distance below the maximum at which windows distinguish most offsets; 0: none does."""

        def distinguished(step: int) -> int:
            seen = [
                self._windows(behind, step * self._factor) for behind in self._possible_edge_offsets
            ]
            return len(seen) - max(map(seen.count, seen), default=0)

        return max(range(self._far + 1), key=distinguished)

    def _less(self, point: Point) -> int:
        return below(self.of.terms, self.lengths, values_at_point(self.lengths, point))

    def _below_edge(self, *steps: int) -> tuple[Point, ...]:
        """Points at that distance below the maximum, along one length."""
        edge, at = edge_of(self.lengths), self._along
        return tuple(with_size(edge, at, edge[at] - step) for step in steps)

    @cached_property
    def _along(self) -> int:
        """Index of a length on which the positions depend."""
        names = {name for name, _ in self.of.terms}
        return next(i for i, r in enumerate(self.lengths) if r.name in names and r.low < r.high)

    @cached_property
    def _factor(self) -> int:
        return dict(self.of.terms)[self.lengths[self._along].name]

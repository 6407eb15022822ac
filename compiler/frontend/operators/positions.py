"""Operators that ask where something stands, as comparisons with constant positions.

The one idea: a *ramp*, the numbers 0, 1, 2, ... along an axis, is a constant. Where an index equals
the ramp is a mask of one place, so finding, marking and picking by index are comparisons, choices
and reductions, which the vector engine does; running sums are sums of shifted copies, each step
reaching twice as far. Positions are counted in int32, whatever real values are stored in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.operators.windows import every
from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    const,
    input_of,
    int_attr,
    required,
    scalar,
    static_shape,
)
from compiler.passes import Count

Expansion = Callable[[ir.Node, Rewriter], ir.Value | None]

INDEX = ir.DataType.INT32


@dataclass(frozen=True)
class DecomposePositions(GraphPass):
    """ArgMax, ArgMin, Hardmax, OneHot, CumSum, CumProd, GatherElements.

       y = ArgMax <axis=1, keepdims=0> (x)          # x of [2, 3]
    =>
       m = ReduceMax(x, [1]); h = Equal(x, m); p = Where(h, [[0, 1, 2]], 3)
       i = ReduceMin(p, [1]); y = Cast <to=INT64> (i)
    """

    compared: Count = 8
    """Positions that an index may be compared with for each element that is read or made; what
    needs more is left as it is."""

    leaves_none_of: ClassVar[frozenset[str]] = frozenset({"ArgMax", "ArgMin", "Hardmax"})

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one operator, where its parameters are constants."""
        if node.domain:
            return False
        expand = EXPANSIONS.get(node.op_type)
        if expand is None or (node.op_type == "GatherElements" and self._too_many(node)):
            return False
        make = Rewriter(node, composite=node.name)
        made = expand(node, make)
        if made is None:
            return False
        make.replace(made)
        return True

    def _too_many(self, node: ir.Node) -> bool:
        data, made = (static_shape(value) for value in (required(node, 0), node.outputs[0]))
        along = data[_axis_attribute(node, 0)]
        compared = prod(made) * along
        return along > LONGEST or compared > self.compared * (prod(data) + prod(made))


def ramp(
    make: Rewriter, extent: int, axis: int, rank: int, dtype: ir.DataType, first: int = 0
) -> ir.Value:
    """The constant first, first + 1, ... along `axis` of `rank` dimensions."""
    shape = [1] * rank
    shape[axis] = extent
    return make.constant(np.arange(first, first + extent).reshape(shape), dtype)


_UNSUMMED = frozenset(
    (ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16)
)
"""Types that ONNX's sums do not take."""


def pick(make: Rewriter, chosen: ir.Value, data: ir.Value, axis: int) -> ir.Value:
    """The element of `data` along `axis` that the mask `chosen` marks, or zero; the axis stays."""
    kind = data.dtype
    if kind in _UNSUMMED:
        data = make.op("Cast", [data], {"to": int(ir.DataType.INT32)})
    nothing = make.constant(np.zeros(()), data.dtype)
    picked = reduced(make, "ReduceSum", make.op("Where", [chosen, data, nothing]), axis)
    return make.op("Cast", [picked], {"to": int(kind)}) if kind in _UNSUMMED else picked


def reduced(make: Rewriter, op_type: str, data: ir.Value, axis: int, keep: int = 1) -> ir.Value:
    """`data` reduced along one axis, which stays with extent 1 unless `keep` is 0."""
    attributes = {"keepdims": keep, "noop_with_empty_axes": 0}
    return make.op(op_type, [data, make.axes([axis])], attributes)


def _axis_attribute(node: ir.Node, default: int) -> int:
    return int_attr(node, "axis", default) % len(static_shape(required(node, 0)))


def _extreme_index(node: ir.Node, make: Rewriter, axis: int, keep: int) -> ir.Value:
    """Where the extreme along `axis` stands: the first of equals, or the last."""
    x = required(node, 0)
    shape = static_shape(x)
    smallest, last = node.op_type == "ArgMin", bool(int_attr(node, "select_last_index", 0))
    best = reduced(make, "ReduceMin" if smallest else "ReduceMax", x, axis)
    places = ramp(make, shape[axis], axis, len(shape), INDEX)
    nowhere = make.constant(np.asarray(-1 if last else shape[axis]), INDEX)
    found = make.op("Where", [make.op("Equal", [x, best]), places, nowhere])
    return reduced(make, "ReduceMax" if last else "ReduceMin", found, axis, keep)


def _arg(node: ir.Node, make: Rewriter) -> ir.Value:
    place = _extreme_index(node, make, _axis_attribute(node, 0), int_attr(node, "keepdims", 1))
    return make.op("Cast", [place], {"to": int(ir.DataType.INT64)})


def _hardmax(node: ir.Node, make: Rewriter) -> ir.Value:
    """One where the largest stands, zero elsewhere."""
    x, axis = required(node, 0), _axis_attribute(node, -1)
    shape = static_shape(x)
    place = _extreme_index(node, make, axis, keep=1)
    chosen = make.op("Equal", [place, ramp(make, shape[axis], axis, len(shape), INDEX)])
    one, zero = (make.like(np.asarray(number), x) for number in (1, 0))
    return make.op("Where", [chosen, one, zero])


def marked(make: Rewriter, index: ir.Value, extent: int, axis: int) -> ir.Value:
    """Whether `index`, of extent 1 along `axis`, stands for each of `extent` positions; negative
    ones count from the end."""
    if index.dtype is None:
        raise ValueError(f"{index.name} has no element type")
    rank = len(static_shape(index))
    masks = [
        make.op("Equal", [index, ramp(make, extent, axis, rank, index.dtype, first)])
        for first in (0, -extent)
    ]
    return make.op("Or", masks)


def _one_hot(node: ir.Node, make: Rewriter) -> ir.Value | None:
    index, depth, values = required(node, 0), scalar(input_of(node, 1)), required(node, 2)
    if depth is None:
        return None
    shape = list(static_shape(index))
    axis = int_attr(node, "axis", -1) % (len(shape) + 1)
    if index.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        index = make.op("Cast", [index], {"to": int(INDEX)})
    apart = make.op("Reshape", [index, make.axes([*shape[:axis], 1, *shape[axis:]])])
    off, on = (_element(make, values, place) for place in (0, 1))
    return make.op("Where", [marked(make, apart, int(depth), axis), on, off])


def _element(make: Rewriter, values: ir.Value, place: int) -> ir.Value:
    """One number of a vector, as a scalar."""
    numbers = const(values)
    if numbers is not None:
        return make.constant(numbers[place])
    return make.op("Gather", [values, make.constant(np.asarray(place, np.int64))], {"axis": 0})


def _gather_elements(node: ir.Node, make: Rewriter) -> ir.Value | None:
    data, index = required(node, 0), required(node, 1)
    axis, wanted = _axis_attribute(node, 0), static_shape(index)
    extent = static_shape(data)[axis]
    kept = [axis for axis, n in enumerate(wanted) if n < static_shape(data)[axis]]
    kept = [other for other in kept if other != axis]
    if kept:
        bounds = ([0] * len(kept), [wanted[a] for a in kept], kept)
        data = make.op("Slice", [data, *map(make.axes, bounds)])
    if wanted[axis] == 1:
        return pick(make, marked(make, index, extent, axis), data, axis)
    rows = make.op("Reshape", [index, make.axes([*wanted[: axis + 1], 1, *wanted[axis + 1 :]])])
    source = make.op("Unsqueeze", [data, make.axes([axis])])
    picked = pick(make, marked(make, rows, extent, axis + 1), source, axis + 1)
    return make.op("Reshape", [picked, make.axes(wanted)])


@dataclass(frozen=True)
class _Shift:
    """Moves values along one axis."""

    make: Rewriter
    axis: int
    back: bool
    """Towards the start, else towards the end."""
    open: bool
    """Whether the axis may have fewer positions than they are moved by: what is left of them are
    then some of the fill."""
    fill: ir.Value

    def by(self, x: ir.Value, places: int) -> ir.Value:
        """`x` moved by `places`."""
        shape, pads = static_shape(x), [0] * (2 * len(static_shape(x)))
        front, end = self.axis, len(shape) + self.axis
        pads[front], pads[end] = (-places, places) if self.back else (places, -places)
        if self.open:
            pads = [max(0, pad) for pad in pads]
        moved = self.make.op("Pad", [x, self.make.axes(pads), self.fill], {"mode": "constant"})
        if not self.open:
            return moved
        return every(self.make, moved, self.axis, pads[end], shape[self.axis], 1)


def _running(op_type: str, neutral: int) -> Expansion:
    """Sums or products of all elements up to each: with every step of twice as many."""

    def expand(node: ir.Node, make: Rewriter) -> ir.Value | None:
        x, given = required(node, 0), scalar(input_of(node, 1))
        if given is None:
            return None
        shape = static_shape(x)
        axis = int(given) % len(shape)
        fill = make.constant(np.asarray(neutral), x.dtype)
        open_ = axis in open_of(x) | open_of(node.outputs[0])
        shift = _Shift(make, axis, bool(int_attr(node, "reverse", 0)), open_, fill)
        total = x
        if int_attr(node, "exclusive", 0):
            if shape[axis] == 1 and not open_:
                return make.constant(np.full(shape, neutral), x.dtype)
            total = shift.by(x, 1)
        reach = 1
        while reach < shape[axis]:
            total = make.op(op_type, [total, shift.by(total, reach)])
            reach *= 2
        return total

    return expand


LONGEST = 1024
"""Positions along an axis that GatherElements compares an index with, at most: of a longer one the
host reads what is chosen alone."""

EXPANSIONS: dict[str, Expansion] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumProd": _running("Mul", 1),
    "CumSum": _running("Add", 0),
    "GatherElements": _gather_elements,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
}

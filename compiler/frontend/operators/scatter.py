"""Writing to computed places, and reading from places of several dimensions, by comparing.

The one idea: every update is compared with every place, so that each place picks those which are
for it: a mask [place, update]. That is worth it where there are few of either. Places of several
dimensions become one number each, as they lie row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import Pieces, has_gaps, open_of, pieces_of
from compiler.frontend.operators.positions import INDEX, marked, pick, reduced
from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    const,
    int_attr,
    is_op,
    required,
    static_shape,
    str_attr,
)
from compiler.passes import Count


@dataclass(frozen=True)
class DecomposeScatters(GraphPass):
    """ScatterElements, ScatterND and GatherND of few elements; GatherND of rows as Gather.

       y = ScatterElements(x, i, u)                     # x of [4], i and u of [2]
    =>
       m = Equal(i, [[0], [1], [2], [3]])               # also counted from the end
       s = ReduceSum(Where(m, u, 0), [1]); c = ReduceMax(Where(m, 1, 0), [1])
       y = Where(Equal(c, 1), s, x)
    """

    compared: Count = 8
    """As of `decompose_positions`."""

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one operator with few places or few updates."""
        made = None
        if is_op(node, "Scatter", "ScatterElements"):
            made = self._elements(node)
        elif is_op(node, "ScatterND"):
            made = self._scatter_nd(node)
        elif is_op(node, "GatherND"):
            made = self._gather_nd(node)
        return made is not None

    def _worth(self, compared: int, *values: ir.Value) -> bool:
        numbers = all(value.dtype not in (ir.DataType.BOOL, ir.DataType.STRING) for value in values)
        return numbers and compared <= self.compared * sum(prod(static_shape(v)) for v in values)

    def _elements(self, node: ir.Node) -> ir.Value | None:
        data, index, updates = (required(node, i) for i in range(3))
        shape = static_shape(data)
        axis = int_attr(node, "axis", 0) % len(shape)
        count = static_shape(index)[axis]
        if not self._worth(prod(shape) * count, data, updates):
            return None
        make = Rewriter(node, composite=node.name)
        index = _filled(make, index, shape, axis, shape[axis])  # a place that there is not
        updates = _filled(make, updates, shape, axis, 0)
        pieces = pieces_of(shape, open_of(node.outputs[0]))
        before, behind = _collapsed_extents(pieces[:axis]), _collapsed_extents(pieces[axis + 1 :])
        rows = make.axes([*before, 1, count, *behind])
        return _scattered(
            node, make, (before, shape[axis], behind),
            make.op("Reshape", [index, rows]), make.op("Reshape", [updates, rows]),
        )  # fmt: skip

    def _scatter_nd(self, node: ir.Node) -> ir.Value | None:
        data, index, updates = (required(node, i) for i in range(3))
        shape, places = static_shape(data), static_shape(index)
        depth, count = places[-1], prod(places[:-1])
        extent, behind = prod(shape[:depth]), prod(shape[depth:])
        if not self._worth(extent * count * behind, data, updates):
            return None
        make = Rewriter(node, composite=node.name)
        flat = _flat(make, index, shape[:depth])
        return _scattered(
            node, make, ((1,), extent, (behind,)),
            make.op("Reshape", [flat, make.axes([1, 1, count, 1])]),
            make.op("Reshape", [updates, make.axes([1, 1, count, behind])]),
        )  # fmt: skip

    def _gather_nd(self, node: ir.Node) -> ir.Value | None:
        data, index, made = required(node, 0), required(node, 1), node.outputs[0]
        shape, places = static_shape(data), static_shape(index)
        shared = int_attr(node, "batch_dims", 0)
        batch, depth = prod(shape[:shared]), places[-1]
        extents, behind = shape[shared : shared + depth], prod(shape[shared + depth :])
        count = prod(places[shared:-1])
        if shared == 0 and depth == 1:  # whole rows, which copy engines may take
            make, numbers = Rewriter(node), const(index)
            if numbers is None:
                rows = make.op("Reshape", [index, make.axes(places[:-1])])
            else:
                rows = make.constant(numbers.reshape(places[:-1]), index.dtype)
            result = make.op("Gather", [data, rows], {"axis": 0})
            make.replace(result)
            return result
        if not self._worth(batch * count * prod(extents) * behind, data, made):
            return None
        make = Rewriter(node, composite=node.name)
        rows = make.axes([batch, count, 1, 1])
        flat = make.op("Reshape", [_flat(make, index, extents), rows])
        source = make.op("Reshape", [data, make.axes([batch, 1, prod(extents), behind])])
        picked = pick(make, marked(make, flat, prod(extents), 2), source, 2)
        result = make.op("Reshape", [picked, make.axes(static_shape(made))])
        make.replace(result)
        return result


def _collapsed_extents(pieces: Pieces) -> tuple[int, ...]:
    """The extents of axes, as one where a buffer has one for all of them."""
    extents = [piece.extent for piece in pieces]
    return tuple(extents) if has_gaps(pieces) else (prod(extents),)


def _filled(make: Rewriter, x: ir.Value, shape: tuple[int, ...], axis: int, fill: int) -> ir.Value:
    """`x` as large as `shape` along every axis but `axis`."""
    own = static_shape(x)
    lacks = [0 if a == axis else n - m for a, (n, m) in enumerate(zip(shape, own, strict=True))]
    if not any(lacks):
        return x
    pads = make.axes([*(0 for _ in own), *lacks])
    return make.op("Pad", [x, pads, make.constant(np.asarray(fill), x.dtype)], {"mode": "constant"})


def _flat(make: Rewriter, index: ir.Value, extents: tuple[int, ...]) -> ir.Value:
    """Places [..., dimension] as one number each, none of them from the end."""
    if index.dtype is None:
        raise ValueError(f"{index.name} has no element type")
    steps = [prod(extents[axis + 1 :]) for axis in range(len(extents))]
    wide, weights = (make.constant(np.asarray(n), index.dtype) for n in (extents, steps))
    behind = make.op("Less", [index, make.constant(np.zeros(()), index.dtype)])
    places = make.op("Where", [behind, make.op("Add", [index, wide]), index])
    last = len(static_shape(index)) - 1
    return reduced(make, "ReduceSum", make.op("Mul", [places, weights]), last)


NEUTRAL = {"none": 0.0, "add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}
"""What changes nothing, by how updates are joined with what they meet."""

JOINED = {"none": "Sum", "add": "Sum", "mul": "Prod", "max": "Max", "min": "Min"}


def _scattered(
    node: ir.Node, make: Rewriter, shape: tuple[tuple[int, ...], int, tuple[int, ...]],
    index: ir.Value, updates: ir.Value,
) -> ir.Value:  # fmt: skip
    """Updates [*before, 1, count, *behind] at their places in the data, seen as `shape`: of the
    axes before, the places and the axes behind them."""
    before, extent, behind = shape
    axis = len(before)
    data, how = required(node, 0), str_attr(node, "reduction", "none")
    if data.dtype is None:
        raise ValueError(f"{data.name} has no element type")
    mask = marked(make, index, extent, axis)
    neutral = NEUTRAL[how]
    if np.isinf(neutral) and not data.dtype.is_floating_point():
        neutral = float(data.dtype.min if neutral < 0 else data.dtype.max)
    chosen = make.op("Where", [mask, updates, make.constant(np.asarray(neutral), data.dtype)])
    joined = reduced(make, f"Reduce{JOINED[how]}", chosen, axis + 1, keep=0)
    own = make.op("Reshape", [data, make.axes([*before, extent, *behind])])
    if how == "none":
        one, zero = (make.constant(np.asarray(number), INDEX) for number in (1, 0))
        met = reduced(make, "ReduceMax", make.op("Where", [mask, one, zero]), axis + 1, keep=0)
        made = make.op("Where", [make.op("Equal", [met, one]), joined, own])
    else:
        made = make.op({"Sum": "Add", "Prod": "Mul"}.get(JOINED[how], JOINED[how]), [own, joined])
    result = make.op("Reshape", [made, make.axes(static_shape(data))])
    make.replace(result)
    return result

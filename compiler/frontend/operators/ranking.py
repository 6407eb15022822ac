"""The best few of many, one after another: each is found, then left out of the search.

That takes a handful of passes over the data for each, however many they are chosen from. What was
found is left out by value and by place, so that elements that are all lowest are found once each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import onnx_ir as ir

from compiler.frontend.operators.positions import INDEX, ramp, reduced
from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    input_of,
    int_attr,
    is_op,
    required,
    scalar,
    static_shape,
)
from compiler.passes import Count


@dataclass(frozen=True)
class DecomposeRanks(GraphPass):
    """TopK of few, as maxima of what is left.

       v, i = TopK(x, [2])                                        # x of [9]
    =>
       v0 = ReduceMax(x); i0 = ReduceMin(Where(Equal(x, v0), places, 9))
       w = Where(Equal(places, i0), lowest, x); v1 = ReduceMax(w); ...
       v = Concat(v0, v1); i = Concat(i0, i1)
    """

    longest: Count = 8
    """How many may be wanted, at most; longer lists are left as they are."""

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one TopK of a few."""
        count = scalar(input_of(node, 1)) if is_op(node, "TopK") else None
        if count is None or not 0 < count <= self.longest:
            return False
        make = Rewriter(node, composite=node.name)
        values, places = _top_k(node, make, int(count))
        make.replace(values, make.op("Cast", [places], {"to": int(ir.DataType.INT64)}))
        return True


def _top_k(node: ir.Node, make: Rewriter, count: int) -> tuple[ir.Value, ir.Value]:
    x = required(node, 0)
    shape = static_shape(x)
    axis = int_attr(node, "axis", -1) % len(shape)
    largest = bool(int_attr(node, "largest", 1))
    worst = make.constant(np.asarray(_worst(x, largest)), x.dtype)
    left = ramp(make, shape[axis], axis, len(shape), INDEX)
    nowhere = make.constant(np.asarray(shape[axis]), INDEX)
    values, places = [], []
    for number in range(count):
        best = reduced(make, "ReduceMax" if largest else "ReduceMin", x, axis)
        candidates = make.op("Where", [make.op("Equal", [x, best]), left, nowhere])
        place = reduced(make, "ReduceMin", candidates, axis)
        values.append(best)
        places.append(place)
        if number < count - 1:
            found = make.op("Equal", [left, place])
            x = make.op("Where", [found, worst, x])
            left = make.op("Where", [found, nowhere, left])
    if count == 1:
        return values[0], places[0]
    return make.op("Concat", values, {"axis": axis}), make.op("Concat", places, {"axis": axis})


def _worst(x: ir.Value, largest: bool) -> float | int:
    if x.dtype is None:
        raise ValueError(f"{x.name} has no element type")
    if x.dtype.is_floating_point():
        return -inf if largest else inf
    return int(x.dtype.min if largest else x.dtype.max)

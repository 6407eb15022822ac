"""Sampling at computed places as a product with computed weights.

The one idea: along each axis an element weighs what the kernel gives it at the place, which is one,
two or four comparisons of positions with a ramp. Weights of axes multiply to those of the image,
and the image times its weights is the sample. So many products are worth it for small images alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.decompose_positions import ramp
from compiler.graph.rewrite import (
    Rewriter,
    const,
    int_attr,
    is_op,
    required,
    say_terms,
    static_shape,
    str_attr,
)
from compiler.options import Count


@dataclass(frozen=True)
class DecomposeSamples(GraphPass):
    """GridSample of small images.

       y = GridSample(x, g)                 # x of [1, 8, 5, 6], g of [1, 3, 4, 2]
    =>
       w = Mul(rows of [1, 5, 1, 12], columns of [1, 1, 6, 12])
       y = Reshape(MatMul(Reshape(x, [1, 8, 30]), Reshape(w, [1, 30, 12])), [1, 8, 3, 4])
    """

    largest: Count = 1 << 20
    """Weights that are computed, at most; with more the operator is left as it is."""

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one GridSample."""
        if not is_op(node, "GridSample"):
            return False
        shape, made = static_shape(required(node, 0)), static_shape(node.outputs[0])
        batch, channels, extents, points = *shape[:2], shape[2:], prod(made[2:])
        if batch * prod(extents) * points > self.largest:
            return False
        make = Rewriter(node, composite=node.name)
        axes = [_weights(node, make, axis, extents, points) for axis in range(len(extents))]
        weights = reduce(lambda a, b: make.op("Mul", [a, b]), axes)
        flat = make.op("Reshape", [weights, make.axes([batch, prod(extents), points])])
        say_terms(flat, _terms(node, extents))
        images = make.axes([batch, channels, prod(extents)])
        product = make.op("MatMul", [make.op("Reshape", [required(node, 0), images]), flat])
        make.replace(make.op("Reshape", [product, make.axes(made)]))
        return True


def _terms(node: ir.Node, extents: tuple[int, ...]) -> float:
    """What the weights at constant places may be off by, as in `terms_of`.

    Libraries find places in fp32 in steps of their own, each rounded at the size of the places,
    and along each axis a weight moves by up to twice as much as its place: also one that is 0,
    beside a place that is nearly an element's. Where the nearest element is taken, nothing moves.
    """
    places = const(required(node, 1))
    if places is None or str_attr(node, "mode", "linear") == "nearest":
        return 0.0
    reach = np.abs(places[np.isfinite(places)]).max(initial=1.0)
    return 2.0 * sum(extents) * float(reach)


def _weights(
    node: ir.Node, make: Rewriter, axis: int, extents: tuple[int, ...], points: int
) -> ir.Value:
    """What each position along `axis` weighs: [batch, 1, ..., extent, ..., 1, points]."""
    rank, extent = len(extents), extents[axis]
    steps = _Steps(node, make, extent)
    apart = [1] * rank
    batch = static_shape(required(node, 1))[0]
    place = steps.place(axis, rank, (batch, *apart, points))
    ramps = ramp(make, extent, 1 + axis, rank + 2, place.dtype or ir.DataType.FLOAT)
    zero = steps.number(0)
    parts = []
    for position, weight in steps.taps(place):
        hit = make.op("Equal", [position, ramps])
        parts.append(make.op("Where", [hit, weight, zero]))
    return reduce(lambda a, b: make.op("Add", [a, b]), parts)


@dataclass(frozen=True)
class _Steps:
    """Arithmetic of places along one axis of `extent` positions."""

    node: ir.Node
    make: Rewriter
    extent: int

    @property
    def _corners(self) -> bool:
        return bool(int_attr(self.node, "align_corners", 0))

    @property
    def _bounds(self) -> tuple[float, float]:
        return (0, self.extent - 1) if self._corners else (-0.5, self.extent - 0.5)

    @property
    def _mode(self) -> str:
        return str_attr(self.node, "mode", "linear").removeprefix("bi")

    @property
    def _border(self) -> str:
        return str_attr(self.node, "padding_mode", "zeros")

    def number(self, value: float) -> ir.Value:
        """A constant of the type of the places."""
        return self.make.like(np.asarray(value), required(self.node, 1))

    def _with(self, op_type: str, x: ir.Value, value: float) -> ir.Value:
        return self.make.op(op_type, [x, self.number(value)])

    def place(self, axis: int, rank: int, shape: tuple[int, ...]) -> ir.Value:
        """Places in elements, brought inside as the node says; grids have their axes reversed."""
        column = self.make.constant(np.asarray([rank - 1 - axis]))
        last = len(static_shape(required(self.node, 1))) - 1
        grid = self.make.op("Gather", [required(self.node, 1), column], {"axis": last})
        rows = self.make.op("Reshape", [grid, self.make.axes(shape)])
        low, high = self._bounds
        places = self._with("Add", self._with("Mul", rows, (high - low) / 2), (high + low) / 2)
        if self._mode == "nearest":
            places = self.make.op("Round", [places])
        # Cubic kernels reach over the border from places beyond it, as frameworks have it.
        kept = self._mode == "cubic" and self._border == "border"
        return places if kept else self._inside(places)

    def _inside(self, x: ir.Value) -> ir.Value:
        """`x` at the border, or mirrored there, where it is outside."""
        low, high = self._bounds
        if self._border == "border":
            return self.make.op("Clip", [x, self.number(0), self.number(self.extent - 1)])
        if self._border == "reflection" and high > low:
            around = self._with("Sub", x, low)
            turns = self.make.op("Floor", [self._with("Mul", around, 1 / (2 * (high - low)))])
            rest = self.make.op("Sub", [around, self._with("Mul", turns, 2 * (high - low))])
            back = self.make.op("Abs", [self._with("Sub", rest, high - low)])
            return self.make.op("Sub", [self.number(high), back])
        return x

    def taps(self, place: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        """Positions around each place, and what they weigh."""
        if self._mode == "nearest":
            return [(self.make.op("Round", [place]), self.number(1))]
        floor = self.make.op("Floor", [place])
        away = self.make.op("Sub", [place, floor])
        left = self.make.op("Sub", [self.number(1), away])
        if self._mode == "linear":
            found = [(0, left), (1, away)]
        else:
            found = [
                (-1, self._far(self._with("Add", away, 1))), (0, self._near(away)),
                (1, self._near(left)), (2, self._far(self._with("Add", left, 1))),
            ]  # fmt: skip
        return [
            (self.make.op("Round", [self._inside(self._with("Add", floor, step))]), weight)
            for step, weight in found
        ]

    def _near(self, d: ir.Value, a: float = -0.75) -> ir.Value:
        """Keys' kernel up to distance 1: ((a + 2) d - (a + 3)) d^2 + 1."""
        inner = self._with("Add", self._with("Mul", d, a + 2), -(a + 3))
        return self._with("Add", self.make.op("Mul", [inner, self.make.op("Mul", [d, d])]), 1)

    def _far(self, d: ir.Value, a: float = -0.75) -> ir.Value:
        """Keys' kernel from distance 1 to 2: ((a d - 5 a) d + 8 a) d - 4 a."""
        total = self._with("Add", self._with("Mul", d, a), -5 * a)
        for term in (8 * a, -4 * a):
            total = self._with("Add", self.make.op("Mul", [total, d]), term)
        return total

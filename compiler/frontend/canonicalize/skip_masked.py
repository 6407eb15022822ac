"""Attention with a constant mask, such as a causal one or a window, without what the mask hides.

The one idea: the first half of the queries needs half of the keys, if none sees what comes later.
Each half is an attention like any other, with scores of its own width, and halved again as long as
that leaves out enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.frontend.canonicalize.symbolic_axes import open_of
from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    const,
    ints_attr,
    is_op,
    required,
    scalar,
    sole_consumer,
    static_shape,
)
from compiler.passes import Count, Omittable

Seen = npt.NDArray[np.bool_]
"""Which columns each row may see."""
HIDDEN = -1e4
"""What is added to a score to hide it beside others, at most: its share is 0 in any type."""
WORTH = 0.9
"""Two blocks have at most such a share of the scores that one has."""
GRAIN = 32
"""Blocks begin and end at multiples of it, where they are not at the edge."""


class ScoreBlock(NamedTuple):
    """Rows `top` .. `bottom` - 1 of scores, and the columns that any of them may see."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def area(self) -> int:
        """How many scores."""
        return (self.bottom - self.top) * (self.right - self.left)


@dataclass(frozen=True)
class SkipMasked(GraphPass, Omittable):
    """Leave out blocks of scores that a constant mask hides, and their values.

       w = Softmax(MatMul(q, k) + mask); y = MatMul(w, v)    # mask hides all above the diagonal
    =>
       w0 = Softmax(MatMul(q[:256], k[:, :256]) + mask[:256, :256]); y0 = MatMul(w0, v[:256])
       w1 = Softmax(MatMul(q[256:], k) + mask[256:]); y1 = MatMul(w1, v)
       y = Concat(y0, y1)
    """

    rows: Count = 256
    """Queries of a block at least: fewer leave arrays and cores without work."""

    def rewrite(self, node: ir.Node) -> bool:
        if not is_op(node, "Softmax") or open_of(node.outputs[0]):
            return False
        shape, steps = static_shape(node.outputs[0]), [node]
        reader = sole_consumer(node.outputs[0])
        if reader and is_op(reader, "QuantizeLinear") and scalar(required(reader, 1)) is not None:
            steps.append(reader)
            reader = sole_consumer(reader.outputs[0])
        if node.attributes.get_int("axis", -1) % len(shape) != len(shape) - 1 or not _is_product(
            reader
        ):
            return False
        chain = _chain(required(node, 0)) if reader.inputs[0] is steps[-1].outputs[0] else []
        seen = _visible(chain, shape[-2:]) if chain else None
        blocks = () if seen is None else _halves(seen, self.rows)
        if not blocks:
            return False
        views, axis = _views(reader, len(shape) - 2)
        make = Rewriter([reader, *views][-1], (*steps, reader))
        scores, made = _Scores(make, frozenset(chain)), []
        for block in blocks:
            part = scores.part(required(node, 0), block)
            for step in steps:
                part = _again(make, step, [part, *step.inputs[1:]])
            values = _cut(make, required(reader, 1), -2, block.left, block.right)
            part = _again(make, reader, [part, values])
            made.append(reduce(partial(_view_of, make), views, part))
        make.replace(make.op("Concat", made, {"axis": axis}))
        return True


def _is_product(node: ir.Node | None) -> TypeGuard[ir.Node]:
    """Of two values, no bias and no scale for each column."""
    if node is None or len(node.inputs) != 2:
        return False
    quantized = is_op(node, "QMatMul", domain=ARCHGEN)
    return is_op(node, "MatMul") or (quantized and len(node.attributes["b_scale"].value) == 1)


def _again(make: Rewriter, node: ir.Node, inputs: Sequence[ir.Value | None]) -> ir.Value:
    """The operator of `node` on parts of its inputs."""
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    if not node.domain:
        return make.op(node.op_type, inputs, attributes)
    left, right = (static_shape(each) for each in inputs if each is not None)
    made = node.outputs[0]
    shape = (*static_shape(made)[:-2], left[-2], right[-1])
    kind = made.dtype or ir.DataType.UNDEFINED
    return make.op(node.op_type, inputs, attributes, domain=node.domain, out=(kind, shape))


def _views(product: ir.Node, axis: int) -> tuple[list[ir.Node], int]:
    """What alone reads `product`, one after another, and only moves its axes or joins those behind
    the rows; and which axis the rows, `axis` of the product, are at the end. Each block is seen so
    by itself, where it is made."""
    found: list[ir.Node] = []
    while (node := sole_consumer([product, *found][-1].outputs[0])) is not None:
        before, after = (static_shape(value) for value in (required(node, 0), node.outputs[0]))
        perm = ints_attr(node, "perm") if is_op(node, "Transpose") else None
        if perm is not None:
            axis = perm.index(axis)
        elif not is_op(node, "Reshape") or before[: axis + 1] != after[: axis + 1]:
            break
        found.append(node)
    return found, axis


def _view_of(make: Rewriter, value: ir.Value, view: ir.Node) -> ir.Value:
    """`view`, one of `_views`, of what belongs to a block."""
    if is_op(view, "Transpose"):
        return _again(make, view, [value])
    shape, own = static_shape(view.outputs[0]), static_shape(value)
    axis = next(axis for axis, size in enumerate(own) if size != shape[axis])
    return make.op("Reshape", [value, make.axes((*own[: axis + 1], *shape[axis + 1 :]))])


def _chain(scores: ir.Value) -> list[ir.Node]:
    """What makes `scores` of a product, element by element, the last operator first; nothing where
    they are made otherwise."""
    node = scores.producer()
    if node is None or sole_consumer(scores) is None:
        return []
    if _is_product(node):
        return [node]
    if is_op(node, "Add", "Sub", "Mul", "Div", "Where", "Cast"):
        for value in node.inputs:
            if value is not None and value.shape == scores.shape and (found := _chain(value)):
                return [node, *found]
    return []


def _visible(chain: Sequence[ir.Node], shape: Sequence[int]) -> Seen | None:
    """Which scores no mask hides at the end of `chain`; None where a row has none."""
    added = np.zeros(tuple(shape), np.float32)
    for node in chain:
        numbers = [const(value) for value in node.inputs]
        if is_op(node, "Where"):
            given, one, other = numbers
            for each, chosen in ((one, given), (other, given if given is None else ~given)):
                if each is not None and chosen is not None:
                    added = np.where(chosen & (each <= HIDDEN), -np.inf, added)
        elif is_op(node, "Add"):
            with np.errstate(over="ignore"):
                added = sum((each for each in numbers if each is not None), added)
        else:
            break
    best = added.max(-1, keepdims=True)
    seen: Seen = (added > best + HIDDEN).reshape(-1, *shape).any(0)
    return seen if np.isfinite(best).all() else None


def _halves(seen: Seen, least: int) -> tuple[ScoreBlock, ...]:
    """The upper and the lower half, where both leave out enough."""
    rows, columns = seen.shape
    if rows < 2 * least:
        return ()
    found, middle = [], max(least, rows // 2 // GRAIN * GRAIN)
    for top, bottom in ((0, middle), (middle, rows)):
        some = np.flatnonzero(seen[top:bottom].any(0))
        left, right = some[0] // GRAIN * GRAIN, -(-(some[-1] + 1) // GRAIN) * GRAIN
        found.append(ScoreBlock(top, bottom, int(left), min(int(right), columns)))
    area = sum(block.area for block in found)
    return tuple(found) if area <= WORTH * rows * columns else ()


@dataclass(frozen=True)
class _Scores:
    """Makes parts of scores."""

    make: Rewriter
    chain: frozenset[ir.Node]

    def part(self, value: ir.Value, block: ScoreBlock) -> ir.Value:
        """`block` of `value`, which may be broadcast."""
        node, make = value.producer(), self.make
        if node is None or node not in self.chain:
            part = _cut(make, value, -2, block.top, block.bottom)
            return _cut(make, part, -1, block.left, block.right)
        if _is_product(node):
            rows = _cut(make, required(node, 0), -2, block.top, block.bottom)
            columns = _cut(make, required(node, 1), -1, block.left, block.right)
            return _again(make, node, [rows, columns])
        return _again(make, node, [each and self.part(each, block) for each in node.inputs])


def _cut(make: Rewriter, value: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    """Positions `start` .. `end` - 1 of an axis; `value` itself where it is broadcast along it or
    these are all."""
    shape = static_shape(value)
    if len(shape) < -axis or shape[axis] == 1 or (start, end) == (0, shape[axis]):
        return value
    numbers = const(value)
    if numbers is not None:
        part = numbers[start:end] if axis == -len(shape) else numbers.take(range(start, end), axis)
        return make.like(part, value)
    ends = (make.axes([each]) for each in (start, end, axis % len(shape)))
    return make.op("Slice", [value, *ends])

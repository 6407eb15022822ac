"""Axes that are open stay axes of their own, where a network makes one of several.

The one idea: a Reshape that merges open axes moves down through whatever computes for each position
of the merged axis alone, until the Reshape that splits it again: both together merge nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from compiler.graph.apart import RULES, Axes, Operand, Step
from compiler.graph.base import GraphPass
from compiler.graph.merged_axes import Pieces, extents, merged, pieces_of
from compiler.graph.open_axes import open_of, say_open
from compiler.graph.rewrite import Rewriter, hand_names, is_op, required, static_shape

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class KeepAxesApart(GraphPass):
    """Operators between a Reshape that merges open axes and one that splits them do without both.

       m = Reshape(x, [256, 16])            # x of [batch=4, seq=64, 16]
       p = MatMul(m, w)
       y = Reshape(p, [4, 64, 2, 6])
    =>
       p = MatMul(x, w)
       y = Reshape(p, [4, 64, 2, 6])

    Which axes are open is known of networks for ranges of lengths (`graph/open_axes.py`); one of
    fixed sizes has none. What combines positions of a merged axis, or gives it to the outside,
    keeps its Reshape.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Let one operator work on axes that are apart."""
        if is_op(node, *_VIEWS):
            return _view(node)
        rule = RULES.get((node.domain, node.op_type))
        operands = [None if value is None else _operand(value) for value in node.inputs]
        if rule is None or not any(each is not None and each.merged for each in operands):
            return False
        make = Rewriter(node)
        results = rule(Step(make, operands))
        if results is None:
            return False
        made = [*zip(node.outputs, results, strict=True)]
        for old, (value, axes) in made:
            _say_apart(value, old, axes)
        again = [_merged(make, old, value, axes) for old, (value, axes) in made]
        make.replace(*again)
        for old, (value, axes) in zip(again, results, strict=True):
            if old is not value and not old.is_graph_output():
                hand_names(old, value, [len(pieces) for pieces in axes])
        return True


def _view(node: ir.Node) -> bool:
    """Let a Reshape, and another one before it that merges, merge as little as they can, and
    nothing else."""
    source, old = required(node, 0), node.outputs[0]
    inner = _operand(source)
    axes = merged(_pieces(inner.value), _pieces(old))
    if axes is None:
        return False
    kept = extents(axes)
    done = kept in (static_shape(inner.value), static_shape(old))
    if not inner.merged and done:
        return False
    make = Rewriter(node)
    value = inner.value
    if kept != static_shape(value):
        value = make.op("Reshape", [value, make.axes(kept)])
        _say_apart(value, old, axes)
    make.replace(_merged(make, old, value, axes))
    return True


def _operand(value: ir.Value) -> Operand:
    """`value` apart, where it is made by a Reshape that merges open axes and does nothing else."""
    node = value.producer()
    if node is not None and is_op(node, *_VIEWS):
        source = required(node, 0)
        axes = merged(_pieces(source), _pieces(value))
        if axes is not None and extents(axes) == static_shape(source) and _merges(axes):
            return Operand(source, axes)
    return Operand(value, tuple((piece,) for piece in _pieces(value)))


def _merges(axes: Axes) -> bool:
    return any(len(pieces) > 1 for pieces in axes)


def _pieces(value: ir.Value) -> Pieces:
    return pieces_of(static_shape(value), open_of(value))


def _say_apart(value: ir.Value, old: ir.Value, axes: Axes) -> None:
    """Say which axes of `value` are open, of which those of `old` are made."""
    ours = open_of(old)
    flat = [
        piece.open if len(pieces) > 1 else axis in ours
        for axis, pieces in enumerate(axes)
        for piece in pieces
    ]
    say_open(value, (axis for axis, is_open in enumerate(flat) if is_open))


def _merged(make: Rewriter, old: ir.Value, value: ir.Value, axes: Axes) -> ir.Value:
    """`value` in the shape of `old`, each of whose axes is made of some of its own."""
    if not _merges(axes):
        return value
    made = make.op("Reshape", [value, make.axes(static_shape(old))])
    say_open(made, open_of(old))
    return made

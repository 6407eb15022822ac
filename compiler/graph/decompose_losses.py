"""Losses over classes: the score of the right class, picked by comparing with all of them.

A class that is to be ignored has no place among the positions that labels are compared with, so
its samples pick nothing: no score and no weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.decompose_positions import pick
from compiler.graph.rewrite import (
    Rewriter,
    const,
    input_of,
    required,
    static_shape,
    str_attr,
)


@dataclass(frozen=True)
class DecomposeLosses(GraphPass):
    """NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss as masks and sums.

       l = NegativeLogLikelihoodLoss <reduction="sum"> (x, t)
    =>
       u = Reshape(t, [n, 1, ...]); h = Equal(u, [[0, 1, ...]]); p = Where(h, x, 0)
       s = ReduceSum(p, [1]); d = Neg(s); l = ReduceSum(d)
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset(
        {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
    )

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one loss."""
        if node.domain or node.op_type not in self.leaves_none_of:
            return False
        make = Rewriter(node, composite=node.name)
        scores = required(node, 0)
        if node.op_type == "NegativeLogLikelihoodLoss":
            make.replace(_loss(node, make, scores))
            return True
        likelihoods = make.op("LogSoftmax", [scores], {"axis": 1})
        make.replace(_loss(node, make, likelihoods), likelihoods)
        return True


IGNORED = -1
"""Stands in the place of a class that is ignored: no valid label has this number."""


def _loss(node: ir.Node, make: Rewriter, likelihoods: ir.Value) -> ir.Value:
    """The loss of each sample, or of all."""
    shape = static_shape(likelihoods)
    chosen, ignores = _chosen(node, make, shape)
    loss = make.op("Neg", [pick(make, chosen, likelihoods, 1)])
    how = str_attr(node, "reduction", "mean")
    weights = _weights(node, make, shape, likelihoods, ignores and how == "mean")
    if weights is not None:
        weights = pick(make, chosen, weights, 1)
        if input_of(node, 2) is not None:
            loss = make.op("Mul", [loss, weights])
    if how == "none":
        return make.op("Reshape", [loss, make.axes([shape[0], *shape[2:]])])
    if weights is None and how == "mean":
        return _total(make, "ReduceMean", loss)
    total = _total(make, "ReduceSum", loss)
    if how == "sum" or weights is None:
        return total
    return make.op("Div", [total, _total(make, "ReduceSum", weights)])


def _chosen(node: ir.Node, make: Rewriter, shape: tuple[int, ...]) -> tuple[ir.Value, bool]:
    """Which class each sample has, as a mask, and whether some have none."""
    labels = required(node, 1)
    classes = np.arange(shape[1])
    ignored = node.attributes.get("ignore_index")
    if ignored is not None:
        classes[classes == ignored.as_int()] = IGNORED
    column = [1, -1, *(1,) * (len(shape) - 2)]
    numbers = make.constant(classes.reshape(column), labels.dtype)
    apart = make.op("Reshape", [labels, make.axes([shape[0], 1, *shape[2:]])])
    return make.op("Equal", [apart, numbers]), ignored is not None


def _weights(
    node: ir.Node, make: Rewriter, shape: tuple[int, ...], like: ir.Value, counted: bool
) -> ir.Value | None:
    """The weight of each class, shaped as the classes; ones where samples have to be counted."""
    given = input_of(node, 2)
    column = [1, shape[1], *(1,) * (len(shape) - 2)]
    if given is None:
        return make.like(np.ones(column), like) if counted else None
    numbers = const(given)
    if numbers is not None:
        return make.constant(numbers.reshape(column))
    return make.op("Reshape", [given, make.axes(column)])


def _total(make: Rewriter, op_type: str, data: ir.Value) -> ir.Value:
    axes = make.axes(range(len(static_shape(data))))
    return make.op(op_type, [data, axes], {"keepdims": 0, "noop_with_empty_axes": 0})

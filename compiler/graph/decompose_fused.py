"""What ONNX Runtime's optimizer fused, taken apart: com.microsoft's normalizations behind a sum,
embeddings with their normalization, products with a factor or a transposition, and QuickGelu.

Its attentions are in `decompose_attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.decompose_n_bits import matmul_n_bits
from compiler.graph.rewrite import (
    MICROSOFT,
    Rewriter,
    float_attr,
    input_of,
    int_attr,
    required,
    static_shape,
)

Results = tuple[ir.Value | None, ...]
Expansion = Callable[[ir.Node, Rewriter], Results | None]


@dataclass(frozen=True)
class DecomposeFused(GraphPass):
    """Skip(Simplified)LayerNormalization, EmbedLayerNormalization, FusedMatMul, MatMulNBits and
    QuickGelu.

       y, _, _, sum = SkipLayerNormalization(x, skip, gamma, beta)
    =>
       sum = Add(x, skip); y = LayerNormalization(sum, gamma, beta)
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Take one operator apart, unless something is asked of it that no standard one makes."""
        expand = EXPANSIONS.get(node.op_type) if node.domain == MICROSOFT else None
        made = None if expand is None else expand(node, Rewriter(node))
        if made is None:
            return False
        padded = (*made, *[None] * len(node.outputs))
        for out, value in zip(node.outputs, padded, strict=False):
            if value is None and (out.uses() or out.is_graph_output()):
                return False
        Rewriter(node).replace(*made)
        return True


def _added(make: Rewriter, *values: ir.Value | None) -> ir.Value:
    first, *rest = (value for value in values if value is not None)
    for value in rest:
        first = make.op("Add", [first, value])
    return first


def _normalized(
    node: ir.Node, make: Rewriter, x: ir.Value, gamma: ir.Value, beta: ir.Value | None
) -> ir.Value:
    attributes = {"axis": -1, "epsilon": float_attr(node, "epsilon", 1e-12)}
    inputs = [x, gamma] if beta is None else [x, gamma, beta]
    return make.op("LayerNormalization", inputs, attributes)


def _skip_norm(node: ir.Node, make: Rewriter) -> Results:
    gamma, beta = required(node, 2), input_of(node, 3)
    total = _added(make, required(node, 0), required(node, 1), input_of(node, 4))
    return _normalized(node, make, total, gamma, beta), None, None, total


def _skip_simplified(node: ir.Node, make: Rewriter) -> Results:
    total = _added(make, required(node, 0), required(node, 1), input_of(node, 3))
    attributes = {"axis": -1, "epsilon": float_attr(node, "epsilon", 1e-12)}
    inputs = [total, required(node, 2)]
    return make.op("SimplifiedLayerNormalization", inputs, attributes), None, None, total


def _embeddings(node: ir.Node, make: Rewriter) -> Results | None:
    ids, segments = required(node, 0), input_of(node, 1)
    batch, tokens = static_shape(ids)
    places, mask = input_of(node, 8), input_of(node, 7)
    if places is None:
        places = make.constant(np.arange(tokens)[None].repeat(batch, 0), ids.dtype)
    pairs = [(required(node, 2), ids), (required(node, 3), places)]
    table = input_of(node, 4)
    if table is not None and segments is not None:
        pairs.append((table, segments))
    total = _added(make, *(make.op("Gather", [t, i], {"axis": 0}) for t, i in pairs))
    made = _normalized(node, make, total, required(node, 5), required(node, 6))
    if mask is None:
        counted = make.constant(np.zeros(batch), ir.DataType.INT32)
    else:
        counted = make.op("ReduceSum", [mask, make.axes([1])], {"keepdims": 0})
    kind = int_attr(node, "mask_index_type", 1)
    return made, counted if kind == 1 else None, total


def _fused_product(node: ir.Node, make: Rewriter) -> Results | None:
    if int_attr(node, "transBatchA", 0) or int_attr(node, "transBatchB", 0):
        return None
    operands = []
    for index, name in enumerate(("transA", "transB")):
        x = required(node, index)
        rank = len(static_shape(x))
        if int_attr(node, name, 0) and rank > 1:
            perm = [*range(rank - 2), rank - 1, rank - 2]
            x = make.op("Transpose", [x], {"perm": perm})
        operands.append(x)
    made = make.op("MatMul", operands)
    factor = float_attr(node, "alpha", 1.0)
    return (made if factor == 1 else make.op("Mul", [made, make.like(np.asarray(factor), made)]),)


def _quick_gelu(node: ir.Node, make: Rewriter) -> Results:
    x = required(node, 0)
    factor = make.like(np.asarray(float_attr(node, "alpha", 1.702)), x)
    return (make.op("Mul", [x, make.op("Sigmoid", [make.op("Mul", [x, factor])])]),)


EXPANSIONS: dict[str, Expansion] = {
    "MatMulNBits": matmul_n_bits,
    "EmbedLayerNormalization": _embeddings,
    "FusedMatMul": _fused_product,
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified,
}

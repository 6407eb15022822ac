"""Whatever has constant inputs by now is a constant."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.fold import FOLD_LIMIT, Bytes, folded
from compiler.graph.narrow import NARROW, narrow_result
from compiler.graph.rewrite import Rewriter, is_op


@dataclass(frozen=True)
class FoldConstants(GraphPass):
    """Evaluate nodes whose inputs are constants.

    t = Transpose(w)                    =>    y = MatMul(x, t)     # t is an initializer
    y = MatMul(x, t)
    """

    keep: tuple[str, ...] = ()
    """Operators to leave as they are, for a later pass to see."""
    limit: Bytes = FOLD_LIMIT
    """Bytes of new arrays that one node may become; more only where its inputs are as large."""

    def rewrite(self, node: ir.Node) -> bool:
        """Replace one node by initializers."""
        if node.graph is None or is_op(node, "Identity"):
            return False
        values = folded(node, node.graph.opset_imports, frozenset(self.keep), self.limit)
        if values is None:
            return False
        make, narrow = Rewriter(node), narrow_result(node)
        made = [
            make.like(value.values, output, value.terms)
            for output, value in zip(node.outputs, values, strict=False)
        ]
        if narrow is not None:
            made[0].meta[NARROW] = narrow
        make.replace(*made)
        return True

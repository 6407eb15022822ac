"""BatchNormalization with constant statistics is a multiplication and an addition per channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.linear import Floats, absorb, absorbing_producer
from compiler.graph.rewrite import Rewriter, const, float_attr, int_attr, is_op, required


@dataclass(frozen=True)
class FoldBatchNorm(GraphPass):
    """Fold into the linear operator before it, else leave one Mul and one Add.

        c = Conv(x, w, b)                        y = Conv(x, w * f, b * f + s)
        y = BatchNormalization(c, ...)     =>

        y = BatchNormalization(x, ...)     =>    m = Mul(x, f); y = Add(m, s)

    with f = scale / sqrt(var + epsilon) and s = bias - mean * f, per channel.
    """

    absorb: bool = True
    """False: always a Mul and an Add (which `fold-affine` may still take in)."""

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one BatchNormalization in inference form."""
        if not is_op(node, "BatchNormalization") or int_attr(node, "training_mode", 0):
            return False
        affine = _affine(node)
        if affine is None or any(output.uses() for output in node.outputs[1:]):
            return False
        data = required(node, 0)
        linear = absorbing_producer(data) if self.absorb else None
        if linear is not None:
            absorb(linear, *affine.parts, source=node, terms=affine.terms)
            return True
        make = Rewriter(node)
        rank = 1 if data.shape is None else len(data.shape)
        shape = (-1, *(1,) * (rank - 2))
        factor = make.like(affine.factor.reshape(shape), data)
        shift = make.like(affine.shift.reshape(shape), data, affine.terms)
        make.replace(make.op("Add", [make.op("Mul", [data, factor]), shift]))
        return True


@dataclass(frozen=True)
class _Affine:
    """x * factor + shift, per channel."""

    factor: Floats
    shift: Floats
    terms: float
    """Magnitude of what `shift` was added up from."""

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """Factor and shift."""
        return self.factor, self.shift


def _affine(node: ir.Node) -> _Affine | None:
    arrays = [const(value) for value in node.inputs[1:5]]
    present = [array.astype(np.float64) for array in arrays if array is not None]
    if len(present) != 4:
        return None
    scale, bias, mean, variance = present
    factor = scale / np.sqrt(variance + float_attr(node, "epsilon", 1e-5))
    moved = mean * factor
    terms = float(np.abs(bias).max(initial=0.0) + np.abs(moved).max(initial=0.0))
    return _Affine(factor, bias - moved, terms)

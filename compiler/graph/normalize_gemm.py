"""Gemm as a MatMul with a [K, N] right operand and an Add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.narrow import NARROW, narrow_of
from compiler.graph.rewrite import (
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    is_op,
    required,
)


@dataclass(frozen=True)
class NormalizeGemm(GraphPass):
    """Transpositions and factors move into constants where there are any.

    y = Gemm <alpha=2, transB=1> (a, w, c)     =>     p = MatMul(a, 2 * w.T); y = Add(p, c)
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset({"Gemm"})

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one Gemm."""
        if not is_op(node, "Gemm"):
            return False
        make = Rewriter(node)
        left = _transposed(make, required(node, 0), bool(int_attr(node, "transA", 0)))
        make.replace(product_of(make, left))
        return True


def product_of(make: Rewriter, left: ir.Value) -> ir.Value:
    """The Gemm that `make` stands at as a MatMul and an Add, of `left` in the place of its first
    operand, which may have more axes."""
    node = make.anchor
    right = _transposed(make, required(node, 1), bool(int_attr(node, "transB", 0)))
    alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
    bias = input_of(node, 2)
    if const(right) is not None:
        made = make.op("MatMul", [left, _scaled(make, right, alpha)])
    else:
        made = _scaled(make, make.op("MatMul", [left, right]), alpha)
    if bias is not None and beta != 0:
        made = make.op("Add", [made, _scaled(make, bias, beta)])
    return made


def _transposed(make: Rewriter, value: ir.Value, needed: bool) -> ir.Value:
    if not needed:
        return value
    numbers = const(value)
    if numbers is not None:
        made, narrow = make.constant(numbers.T), narrow_of(value)
        if narrow is not None:
            made.meta[NARROW] = narrow.transposed((1, 0))
        return made
    return make.op("Transpose", [value], {"perm": [1, 0]})


def _scaled(make: Rewriter, value: ir.Value, factor: float) -> ir.Value:
    if factor == 1.0:
        return value
    numbers = const(value)
    if numbers is not None:
        return make.like(numbers * np.asarray(factor, dtype=numbers.dtype), value)
    return make.op("Mul", [value, make.like(np.asarray(factor), value)])

"""Parameters with which an operator is undefined: a bound or a scale that is no number.

The one idea: such a constant is a mistake of whoever wrote the model, found before anything is
computed with it, and said with the node, the input and the value.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from compiler.graph.rewrite import const, input_of, is_op


def refuse_undefined(node: ir.Node) -> None:
    """Raises ValueError where a constant parameter of `node` makes it undefined."""
    if is_op(node, "Clip"):
        _refuse_bounds(node)
    elif is_op(node, "QuantizeLinear", "DequantizeLinear"):
        _refuse_scales(node)


def _refuse_bounds(node: ir.Node) -> None:
    for position, which in ((1, "lower"), (2, "upper")):
        bound = const(input_of(node, position))
        if bound is not None and np.isnan(bound.astype(np.float64)).any():
            raise ValueError(
                f"its {which} bound is NaN, which limits nothing; give it a number, or leave it out"
            )


def _refuse_scales(node: ir.Node) -> None:
    """One scale for all is positive; of scales by channel, those of empty channels may be 0."""
    found = const(input_of(node, 1))
    if found is None:
        return
    scales = found.astype(np.float64).ravel()
    wrong = ~np.isfinite(scales)
    if scales.size == 1 and const(input_of(node, 0)) is None:
        wrong |= scales <= 0
    if wrong.any():
        raise ValueError(
            f"its scale is {scales[wrong][0]:.3g}, expected a positive number; quantize the model "
            "again"
        )

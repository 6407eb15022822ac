"""Padding that a window operator can do itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.frontend.rewrite import (
    ARCHGEN,
    ORIGIN,
    GraphPass,
    const,
    input_of,
    int_attr,
    ints_attr,
    is_op,
    origin_of,
    required,
    scalar,
    set_attrs,
    static_shape,
    str_attr,
)
from compiler.passes import Omittable

NON_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs")


@dataclass(frozen=True)
class FoldPad(GraphPass, Omittable):
    """A constant Pad of the spatial dimensions moves into the operator that reads it.

        p = Pad <mode="constant"> (x, [0, 0, 1, 1, 0, 0, 1, 1], 0)
        y = Conv <pads=[0, 0, 0, 0]> (p, w)
     =>
        y = Conv <pads=[1, 1, 1, 1]> (x, w)

    Legal for Conv with zero, for QConv with its zero point, for AveragePool with zero if padding
    is counted, for MaxPool with -inf, or with zero if no input is negative and no window lies in
    the padding alone.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Fold the Pad that feeds `node`."""
        if not _takes_pads(node):
            return False
        pad = required(node, 0).producer()
        if pad is None or not is_op(pad, "Pad") or str_attr(pad, "mode", "constant") != "constant":
            return False
        spatial = _spatial_pads(pad)
        if spatial is None or not _legal(node, pad, spatial):
            return False
        own = ints_attr(node, "pads", [0] * len(spatial)) or [0] * len(spatial)
        set_attrs(node, {"pads": [a + b for a, b in zip(own, spatial, strict=True)]})
        if is_op(node, "AveragePool"):  # what was a zero of the input is still one of the mean
            set_attrs(node, {"count_include_pad": 1})
        node.metadata_props[ORIGIN] = origin_of(pad, node)
        node.replace_input_with(0, required(pad, 0))
        return True


def _takes_pads(node: ir.Node) -> bool:
    if is_op(node, "QConv", domain=ARCHGEN):
        return True
    return (
        is_op(node, "Conv", "AveragePool", "MaxPool")
        and len(node.outputs) == 1
        and not int_attr(node, "ceil_mode", 0)
        and str_attr(node, "auto_pad", "NOTSET") == "NOTSET"
    )


def _spatial_pads(pad: ir.Node) -> list[int] | None:
    """Begins, then ends, of the spatial dimensions; None where the Pad does anything else."""
    amounts, axes = const(input_of(pad, 1)), const(input_of(pad, 3))
    if amounts is None or (input_of(pad, 3) is not None and axes is None):
        return None
    rank = len(static_shape(required(pad, 0)))
    where = list(range(rank)) if axes is None else [int(axis) % rank for axis in axes]
    begins, ends = [0] * rank, [0] * rank
    for position, axis in enumerate(where):
        begins[axis] = int(amounts[position])
        ends[axis] = int(amounts[position + len(where)])
    # Windows have no pads in batch and channels, and negative ones would crop.
    if any(begins[:2]) or any(ends[:2]) or min(begins + ends) < 0:
        return None
    return begins[2:] + ends[2:]


def _legal(node: ir.Node, pad: ir.Node, pads: list[int]) -> bool:
    value = 0.0 if input_of(pad, 2) is None else scalar(input_of(pad, 2))
    if value is None:
        return False
    if is_op(node, "QConv", domain=ARCHGEN):
        return value == int_attr(node, "x_zero", 0)
    own = ints_attr(node, "pads") or []
    if is_op(node, "AveragePool"):
        return value == 0 and (bool(int_attr(node, "count_include_pad", 0)) or not any(own))
    if is_op(node, "MaxPool"):
        return not any(own) and _legal_maximum(node, pad, pads, value)
    return value == 0


def _legal_maximum(node: ir.Node, pad: ir.Node, pads: list[int], value: float) -> bool:
    dtype = required(pad, 0).dtype
    if dtype is None or not dtype.is_floating_point():
        return False
    if value == -np.inf or value <= float(np.finfo(dtype.numpy()).min):
        return True
    # A zero changes no maximum of what is not negative, unless a window sees zeros alone.
    kernel = ints_attr(node, "kernel_shape") or []
    smaller = all(max(pads[i], pads[i + len(kernel)]) < n for i, n in enumerate(kernel))
    source = required(pad, 0).producer()
    return value == 0 and smaller and is_op(source, *NON_NEGATIVE)

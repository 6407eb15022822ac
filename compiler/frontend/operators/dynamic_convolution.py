"""Convolutions whose weights are computed, as matrix products: nothing lays such weights out.

    y[o, p] = sum c, t: w[o, c, t] * x[c, p + t]        columns of x times w of [o, c * t]

The one idea: a position of the kernel sees a shifted, strided part of the input, which is a view.
These parts side by side are the columns that a product with the weights, flat as they lie, makes
the result of. Where each channel has a kernel of its own, there are no columns: the parts, each
times its weights, are added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

import onnx_ir as ir

from compiler.frontend.operators.windows import WindowAttributes, every, padded, reshaped
from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    const,
    input_of,
    is_op,
    required,
    static_shape,
)
from compiler.passes import Count


@dataclass(frozen=True)
class DecomposeKernels(GraphPass):
    """Conv with computed weights.

       y = Conv <kernel_shape=[2]> (x, w)               # x of [1, 4, 9], w of [6, 4, 2]
    =>
       a = x[:, :, 0:8]; b = x[:, :, 1:9]; c = Concat(a, b) of [1, 4, 2, 8]
       y = Transpose(MatMul(Transpose(Reshape(c, [1, 8, 8])), Transpose(Reshape(w, [6, 8]))))
    """

    largest: Count = 128
    """Positions of a kernel, at most; with more the operator is left as it is."""

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one convolution, whose attributes are all written out."""
        integers = is_op(node, "QConv", domain=ARCHGEN)
        if not integers and not is_op(node, "Conv"):
            return False
        shapes = [static_shape(required(node, i)) for i in (0, 1)]
        few = prod(shapes[1][2:]) <= self.largest and 0 not in (*shapes[0], *shapes[1])
        if const(required(node, 1)) is not None or not few:
            return False
        make = Rewriter(node, composite=node.name)
        if integers:
            made = _integers(node, make)
        elif shapes[1][:2] == (shapes[0][1], 1):
            made = _with_bias(node, make, _by_channel(node, make))
        else:
            made = _with_bias(node, make, _gathered(node, make))
        if made is not None:
            make.replace(made)
        return made is not None


def _with_bias(node: ir.Node, make: Rewriter, made: ir.Value) -> ir.Value:
    bias = input_of(node, 2)
    if bias is None:
        return made
    spatial = len(static_shape(made)) - 2
    return make.op("Add", [made, reshaped(make, bias, -1, *(1,) * spatial)])


def _parts(node: ir.Node, make: Rewriter, fill: float) -> list[ir.Value]:
    """What each position of the kernel sees: [batch, channels, places], `fill` around the input."""
    window, extents = WindowAttributes.of(node), static_shape(node.outputs[0])[2:]
    around = required(node, 0)
    for axis, by in enumerate(zip(window.before, window.behind, strict=True)):
        around = padded(make, around, 2 + axis, by, fill)
    found = []
    for tap in product(*map(range, window.kernel)):
        part = around
        for axis, at in enumerate(tap):
            first, step = at * window.dilations[axis], window.strides[axis]
            if (static_shape(part)[2 + axis], step) != (extents[axis], 1):
                part = every(make, part, 2 + axis, first, extents[axis], step)
        found.append(reshaped(make, part, *static_shape(around)[:2], prod(extents)))
    return found


def _by_channel(node: ir.Node, make: Rewriter) -> ir.Value:
    """One kernel for each channel: its numbers times what they see, added up."""
    parts = _parts(node, make, 0)
    channels = static_shape(parts[0])[1]
    weights = reshaped(make, required(node, 1), channels, len(parts))
    terms = [
        make.op("Mul", [part, every(make, weights, 1, at, 1, 1)]) for at, part in enumerate(parts)
    ]
    total = reduce(lambda a, b: make.op("Add", [a, b]), terms)
    return reshaped(make, total, *static_shape(node.outputs[0]))


def _im2col(node: ir.Node, make: Rewriter, fill: float) -> tuple[ir.Value, ir.Value]:
    """What each place sees, [batch, groups, places, numbers], and the weights of these numbers,
    [groups, numbers, channels]; with one group, the latter as a matrix."""
    w, shape = required(node, 1), static_shape(node.outputs[0])
    made, across, *kernel = static_shape(w)
    groups, numbers = WindowAttributes.of(node).more["group"], across * prod(kernel)
    parts = _parts(node, make, fill)
    places = prod(shape[2:])
    apart = [reshaped(make, part, shape[0], groups, across, 1, places) for part in parts]
    joined = apart[0] if len(apart) == 1 else make.op("Concat", apart, {"axis": 3})
    rows = reshaped(make, joined, shape[0], groups, numbers, places)
    left = make.op("Transpose", [rows], {"perm": [0, 1, 3, 2]})
    if groups == 1:
        return left, make.op("Transpose", [reshaped(make, w, made, numbers)], {"perm": [1, 0]})
    weights = reshaped(make, w, groups, made // groups, numbers)
    return left, make.op("Transpose", [weights], {"perm": [0, 2, 1]})


def _channels_first(node: ir.Node, make: Rewriter, result: ir.Value) -> ir.Value:
    """[batch, groups, places, channels] as the result of `node`."""
    turned = make.op("Transpose", [result], {"perm": [0, 1, 3, 2]})
    return reshaped(make, turned, *static_shape(node.outputs[0]))


def _gathered(node: ir.Node, make: Rewriter) -> ir.Value:
    """Columns of what they see times the weights, group by group."""
    return _channels_first(node, make, make.op("MatMul", [*_im2col(node, make, 0)]))


def _integers(node: ir.Node, make: Rewriter) -> ir.Value | None:
    """Bytes times bytes, of which the border holds the zero point."""
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    shape, groups = static_shape(node.outputs[0]), given["group"]
    if groups > 1 and len(given["w_zero"]) + len(given["w_scale"]) > 2:
        return None
    kept = {name: value for name, value in given.items() if name.startswith(("y_", "clip_"))}
    attributes = {
        "a_zero": given["x_zero"], "a_scale": given["x_scale"],
        "b_zero": given["w_zero"], "b_scale": given["w_scale"], **kept,
    }  # fmt: skip
    operands = [*_im2col(node, make, given["x_zero"]), *node.inputs[2:3]]
    kind = node.outputs[0].dtype or ir.DataType.INT32
    out = (kind, (shape[0], groups, prod(shape[2:]), shape[1] // groups))
    made = make.op("QMatMul", operands, attributes, domain=ARCHGEN, out=out)
    return _channels_first(node, make, made)

"""Operators that are a few reductions and element-wise steps, written as those.

Every node made from one composite carries its name in `metadata_props["composite"]`, so that
fusion can keep them together. Statistics are computed in float32 where the operator says so
(`stash_type`), with a Cast on either side. Dividing a whole tensor by a reduced one is written as
Reciprocal of the small one and Mul.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.frontend.rewrite import (
    GraphPass,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    required,
    static_shape,
)

Results = ir.Value | tuple[ir.Value, ...]
Expansion = Callable[[ir.Node, Rewriter], Results]


@dataclass(frozen=True)
class DecomposeComposites(GraphPass):
    """Normalizations, Softmax, global pools and variadic operators as simpler ones.

        y = Softmax <axis=-1> (x)
     =>
        m = ReduceMax(x, [-1]); d = Sub(x, m); e = Exp(d)
        s = ReduceSum(e, [-1]); r = Reciprocal(s); y = Mul(e, r)

    Flatten, Squeeze and Unsqueeze become Reshape to a constant shape.
    """

    leaves_none_of: ClassVar[frozenset[str]] = frozenset(
        {"Softmax", "LogSoftmax", "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Squeeze",
         "Unsqueeze", "LayerNormalization", "InstanceNormalization", "Sum", "Mean",
         "DynamicQuantizeLinear"}
    )  # fmt: skip

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one composite, unless an output is wanted that its expansion does not make."""
        expand = EXPANSIONS.get((node.domain, node.op_type))
        if node.op_type in ("Max", "Min") and not node.domain and len(node.inputs) != 2:
            expand = _chain(node.op_type)
        wanted = any(out.uses() or out.is_graph_output() for out in node.outputs[1:])
        if expand is None or (wanted and node.op_type not in SEVERAL):
            return False
        make = Rewriter(node, composite=None if node.op_type in PLAIN else node.name)
        made = expand(node, make)
        make.replace(*(made if isinstance(made, tuple) else (made,)))
        return True


SEVERAL = frozenset({"DynamicQuantizeLinear", "LayerNormalization"})
"""Operators whose expansion makes every output."""


PLAIN = frozenset({"Flatten", "Squeeze", "Unsqueeze", "Sum", "Mean", "Max", "Min",
                   "GlobalAveragePool", "GlobalMaxPool"})  # fmt: skip
"""Operators that become other spellings of one step, not a group of steps."""


def _reduce(
    make: Rewriter, op_type: str, data: ir.Value, axes: Sequence[int], keepdims: int = 1
) -> ir.Value:
    attributes = {"keepdims": keepdims, "noop_with_empty_axes": 0}
    return make.op(op_type, [data, make.axes(axes)], attributes)


def _divide_by(make: Rewriter, data: ir.Value, small: ir.Value) -> ir.Value:
    return make.op("Mul", [data, make.op("Reciprocal", [small])])


def _as_float32(make: Rewriter, node: ir.Node, data: ir.Value) -> ir.Value:
    """`data` in the type in which `node` computes its statistics."""
    wide = ir.DataType(int_attr(node, "stash_type", int(ir.DataType.FLOAT)))
    if data.dtype == wide:
        return data
    return make.op("Cast", [data], {"to": int(wide)})


def _cast_like(make: Rewriter, value: ir.Value, like: ir.Value) -> ir.Value:
    if value.dtype == like.dtype or like.dtype is None:
        return value
    return make.op("Cast", [value], {"to": int(like.dtype)})


def _plus_epsilon(make: Rewriter, value: ir.Value, epsilon: float) -> ir.Value:
    return make.op("Add", [value, make.like(np.asarray(epsilon), value)])


def _standardize(
    make: Rewriter, data: ir.Value, axes: Sequence[int], epsilon: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """(data - mean) / sqrt(variance + epsilon) over `axes`; the mean; 1 / sqrt(...)."""
    mean = _reduce(make, "ReduceMean", data, axes)
    centered = make.op("Sub", [data, mean])
    variance = _reduce(make, "ReduceMean", make.op("Mul", [centered, centered]), axes)
    deviation = make.op("Sqrt", [_plus_epsilon(make, variance, epsilon)])
    inverse = make.op("Reciprocal", [deviation])
    return make.op("Mul", [centered, inverse]), mean, inverse


def _by_rms(make: Rewriter, data: ir.Value, axes: Sequence[int], epsilon: float) -> ir.Value:
    """data / sqrt(mean of squares + epsilon) over `axes`."""
    squares = _reduce(make, "ReduceMean", make.op("Mul", [data, data]), axes)
    return _divide_by(make, data, make.op("Sqrt", [_plus_epsilon(make, squares, epsilon)]))


def _scale_and_shift(
    make: Rewriter, value: ir.Value, scale: ir.Value | None, bias: ir.Value | None
) -> ir.Value:
    if scale is not None:
        value = make.op("Mul", [value, scale])
    return value if bias is None else make.op("Add", [value, bias])


def _tail_axes(node: ir.Node) -> list[int]:
    rank = len(static_shape(required(node, 0)))
    return list(range(int_attr(node, "axis", -1) % rank, rank))


def _layer_norm(node: ir.Node, make: Rewriter) -> tuple[ir.Value, ...]:
    """LayerNormalization: the result, the means, the inverses of the standard deviations."""
    x = required(node, 0)
    wide = _as_float32(make, node, x)
    epsilon = float_attr(node, "epsilon", 1e-5)
    normal, mean, inverse = _standardize(make, wide, _tail_axes(node), epsilon)
    narrow = _cast_like(make, normal, x)
    return _scale_and_shift(make, narrow, input_of(node, 1), input_of(node, 2)), mean, inverse


def _rms_norm(node: ir.Node, make: Rewriter) -> ir.Value:
    x = required(node, 0)
    wide = _as_float32(make, node, x)
    epsilon = float_attr(node, "epsilon", 1e-5)
    normal = _cast_like(make, _by_rms(make, wide, _tail_axes(node), epsilon), x)
    return _scale_and_shift(make, normal, input_of(node, 1), None)


def _per_channel(make: Rewriter, value: ir.Value, rank: int) -> ir.Value:
    """A vector over channels, shaped to broadcast against [N, C, ...]."""
    numbers = const(value)
    shape = [-1, *(1,) * (rank - 2)]
    if numbers is not None:
        return make.constant(numbers.reshape(shape))
    return make.op("Reshape", [value, make.axes(shape)])


def _instance_norm(node: ir.Node, make: Rewriter) -> ir.Value:
    x = required(node, 0)
    rank = len(static_shape(x))
    normal, _, _ = _standardize(make, x, range(2, rank), float_attr(node, "epsilon", 1e-5))
    scale, bias = (_per_channel(make, required(node, i), rank) for i in (1, 2))
    return _scale_and_shift(make, normal, scale, bias)


def _group_norm(node: ir.Node, make: Rewriter) -> ir.Value:
    x = required(node, 0)
    shape = static_shape(x)
    groups = node.attributes["num_groups"].as_int()
    wide = _as_float32(make, node, x)
    rows = make.op("Reshape", [wide, make.axes([shape[0], groups, -1])])
    normal, _, _ = _standardize(make, rows, [2], float_attr(node, "epsilon", 1e-5))
    restored = _cast_like(make, make.op("Reshape", [normal, make.axes(shape)]), x)
    scale, bias = (_per_channel(make, required(node, i), len(shape)) for i in (1, 2))
    return _scale_and_shift(make, restored, scale, bias)


def _lp_norm(node: ir.Node, make: Rewriter) -> ir.Value:
    x = required(node, 0)
    op_type = "ReduceL1" if int_attr(node, "p", 2) == 1 else "ReduceL2"
    norm = _reduce(make, op_type, x, [int_attr(node, "axis", -1)])
    one = make.like(np.asarray(1), x)
    is_zero = make.op("Sub", [one, make.op("Sign", [norm])])
    return make.op("Div", [x, make.op("Add", [norm, is_zero])])  # a vector of zeros stays one


def _shifted(node: ir.Node, make: Rewriter) -> tuple[ir.Value, list[int]]:
    """x minus its maximum along the axis, and that axis."""
    x = required(node, 0)
    axes = [int_attr(node, "axis", -1)]
    return make.op("Sub", [x, _reduce(make, "ReduceMax", x, axes)]), axes


def _softmax(node: ir.Node, make: Rewriter) -> ir.Value:
    shifted, axes = _shifted(node, make)
    powers = make.op("Exp", [shifted])
    return _divide_by(make, powers, _reduce(make, "ReduceSum", powers, axes))


def _log_softmax(node: ir.Node, make: Rewriter) -> ir.Value:
    shifted, axes = _shifted(node, make)
    total = _reduce(make, "ReduceSum", make.op("Exp", [shifted]), axes)
    return make.op("Sub", [shifted, make.op("Log", [total])])


def _global_pool(op_type: str) -> Expansion:
    def expand(node: ir.Node, make: Rewriter) -> ir.Value:
        x = required(node, 0)
        return _reduce(make, op_type, x, range(2, len(static_shape(x))))

    return expand


def _chain(op_type: str, mean: bool = False) -> Expansion:
    """A variadic operator as binary ones from left to right."""

    def expand(node: ir.Node, make: Rewriter) -> ir.Value:
        operands = [value for value in node.inputs if value is not None]
        total = reduce(lambda a, b: make.op(op_type, [a, b]), operands)
        if not mean or len(operands) == 1:
            return total
        return make.op("Mul", [total, make.like(np.asarray(1 / len(operands)), total)])

    return expand


def _dynamic_quantize(node: ir.Node, make: Rewriter) -> tuple[ir.Value, ...]:
    """DynamicQuantizeLinear: the integers, their scale (1 where all is zero), their zero point."""
    x = required(node, 0)
    zero = make.like(np.asarray(0), x)
    axes = range(len(static_shape(x)))
    low = make.op("Min", [_reduce(make, "ReduceMin", x, axes, keepdims=0), zero])
    high = make.op("Max", [_reduce(make, "ReduceMax", x, axes, keepdims=0), zero])
    width = make.op("Sub", [high, low])
    nothing = make.op("Sub", [make.like(np.asarray(1), x), make.op("Sign", [width])])
    scale = make.op("Max", [make.op("Div", [width, make.like(np.asarray(255), x)]), nothing])
    steps = make.op("Round", [make.op("Sub", [zero, make.op("Div", [low, scale])])])
    bounds = [make.like(np.asarray(bound), x) for bound in (0, 255)]
    point = make.op("Clip", [steps, *bounds])
    byte = make.op("Cast", [point], {"to": int(ir.DataType.UINT8)})
    return make.op("QuantizeLinear", [x, scale, byte]), scale, byte


def _reshape(node: ir.Node, make: Rewriter) -> ir.Value:
    return make.op("Reshape", [required(node, 0), make.axes(static_shape(node.outputs[0]))])


EXPANSIONS: dict[tuple[str, str], Expansion] = {
    ("", "DynamicQuantizeLinear"): _dynamic_quantize,
    ("", "Flatten"): _reshape,
    ("", "GlobalAveragePool"): _global_pool("ReduceMean"),
    ("", "GlobalMaxPool"): _global_pool("ReduceMax"),
    ("", "GroupNormalization"): _group_norm,
    ("", "InstanceNormalization"): _instance_norm,
    ("", "LayerNormalization"): _layer_norm,
    ("", "LogSoftmax"): _log_softmax,
    ("", "LpNormalization"): _lp_norm,
    ("", "Mean"): _chain("Add", mean=True),
    ("", "RMSNormalization"): _rms_norm,
    ("", "SimplifiedLayerNormalization"): _rms_norm,
    ("", "Softmax"): _softmax,
    ("", "Squeeze"): _reshape,
    ("", "Sum"): _chain("Add"),
    ("", "Unsqueeze"): _reshape,
}

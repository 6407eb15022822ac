"""What a folded DequantizeLinear was made of: remembered beside the constant, for machines that
keep the narrow numbers in memory.

It stands in the metadata of the constant and moves with it through a transposition; whatever else
makes a constant of it forgets it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from compiler.graph.rewrite import Array, const, input_of, int_attr, ints_attr, is_op, required
from compiler.narrow import Narrow
from simmodel.dtype import NAMES, is_float

NARROW = "archgen.narrow"
"""Key in the metadata of a constant."""
TYPES = ("int4", "uint4", "int8", "uint8", "fp8e4m3", "fp8e5m2")
"""Element types of constants that memory may hold in the place of real values."""


def narrow_of(value: ir.Value) -> Narrow | None:
    """The narrow numbers that constant `value` was made of, where they are known."""
    found: Narrow | None = value.meta.get(NARROW)
    return found


def narrow_result(node: ir.Node) -> Narrow | None:
    """The narrow numbers behind the result of `node`, whose inputs are constants."""
    if is_op(node, "DequantizeLinear"):
        return _dequantized(node)
    source = node.inputs[0] if node.inputs else None
    known = None if source is None else narrow_of(source)
    if known is None or not is_op(node, "Transpose"):
        return None
    reverse = tuple(range(known.values.ndim))[::-1]
    return known.transposed(ints_attr(node, "perm") or reverse)


def _dequantized(node: ir.Node) -> Narrow | None:
    values, scales = const(required(node, 0)), const(required(node, 1))
    zeros = const(input_of(node, 2))
    if values is None or scales is None or values.ndim < 2:
        return None
    kind = NAMES.get(values.dtype, "")
    if kind not in TYPES or NAMES.get(scales.dtype) not in ("fp32", "fp16"):
        return None
    axis = int_attr(node, "axis", 1) % values.ndim
    shaped = _shaped(scales, values, axis, int_attr(node, "block_size", 0))
    points = None if zeros is None else _shaped(zeros, values, axis, 1)
    if shaped is None or (points is not None and points.shape != shaped.shape):
        return None
    if points is None or not np.any(points.astype(np.float32)):
        return Narrow(kind, values, shaped)
    if is_float(kind):
        return None
    whole = points.astype(np.uint8 if kind.startswith("u") else np.int8)
    if np.all(whole == whole.reshape(-1)[0]):
        return Narrow(kind, values, shaped, None, int(whole.reshape(-1)[0]))
    return Narrow(kind, values, shaped, whole)


def _shaped(scales: Array, values: Array, axis: int, block: int) -> Array | None:
    """Scales with an axis for each of the values'; None where blocks do not divide them."""
    if scales.size == 1:
        return scales.reshape((1,) * values.ndim)
    if scales.ndim == 1:
        shape = [1] * values.ndim
        shape[axis] = scales.size
        return scales.reshape(shape) if scales.size == values.shape[axis] else None
    fits = scales.ndim == values.ndim and block > 0
    if not fits or any(n % m for n, m in zip(values.shape, scales.shape, strict=True)):
        return None
    return scales

"""MatMulNBits, ONNX Runtime's product with packed weights, in standard operators.

Its weights lie transposed, block after block along the reduction, elements of four bits two to a
byte, the first in the lower half. They are unpacked here; DequantizeLinear keeps them narrow for
machines that hold them so in memory.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from compiler.graph.rewrite import Array, Rewriter, const, input_of, int_attr, required
from simmodel.dtype import unpack

Results = tuple[ir.Value | None, ...]
SIGNED = {4: ml_dtypes.int4, 8: np.int8}
UNSIGNED = {4: ml_dtypes.uint4, 8: np.uint8}


def matmul_n_bits(node: ir.Node, make: Rewriter) -> Results | None:
    """y = a MatMul DequantizeLinear(weights) (+ bias); None where weights are computed, or are of
    other bits than 4 or 8, or come in another order."""
    bits, block = int_attr(node, "bits", 4), int_attr(node, "block_size", 0)
    deep, wide = int_attr(node, "K", 0), int_attr(node, "N", 0)
    packed, scales = const(input_of(node, 1)), const(input_of(node, 2))
    points = const(input_of(node, 3))
    unknown = input_of(node, 3) is not None and points is None
    ordered = input_of(node, 4) is not None
    if packed is None or scales is None or unknown or ordered or bits not in SIGNED or not block:
        return None
    if points is not None and points.dtype != np.uint8:
        return None
    blocks = -(-deep // block)
    values = _elements(packed.reshape(wide, -1), bits, blocks * block).T
    scales = scales.reshape(wide, blocks).T
    zeros = None if points is None else _elements(points.reshape(wide, -1), bits, blocks).T
    weights = _weights(make, values, scales, zeros, (deep, block, bits))
    product = make.op("MatMul", [required(node, 0), weights])
    bias = input_of(node, 5)
    return (product if bias is None else make.op("Add", [product, bias]),)


def _elements(raw: Array, bits: int, count: int) -> Array:
    """`count` numbers of each row of bytes."""
    return raw[:, :count] if bits == 8 else unpack(raw, "uint4", count)


def _weights(
    make: Rewriter, values: Array, scales: Array, zeros: Array | None, sizes: tuple[int, int, int]
) -> ir.Value:
    """The weights behind their DequantizeLinear; as they are where the last block is not full."""
    deep, block, bits = sizes
    middle = 1 << (bits - 1)
    if deep % block:
        points = np.asarray(middle if zeros is None else zeros.repeat(block, 0), np.float32)
        real = (values - points) * scales.repeat(block, 0).astype(np.float32)
        return make.constant(real[:deep].astype(scales.dtype))
    if zeros is None:
        values, parameters = (values.astype(np.int16) - middle).astype(SIGNED[bits]), []
    else:
        values = values.astype(UNSIGNED[bits])
        parameters = [make.constant(zeros.astype(UNSIGNED[bits]))]
    inputs = [make.constant(values), make.constant(scales), *parameters]
    return make.op("DequantizeLinear", inputs, {"axis": 0, "block_size": block})

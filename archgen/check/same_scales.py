"""A network quantized like another one of the same weights and other lengths.

    edge:   x_scale = 0.031 (calibrated)          at another length: x_scale = 0.031 as well

The one idea: numbers that quantization has measured on samples, scales and what is in steps of
them, are those of the edge, so that networks of all lengths compute with the same integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]
_STEPS = ("QuantizeLinear", "DequantizeLinear")


def with_scales_of(edge: onnx.ModelProto, given: onnx.ModelProto) -> onnx.ModelProto:
    """``given`` with scales, zero points and quantized constants of ``edge``, by their names, as
    far as they stand for the same numbers."""
    made = onnx.ModelProto()
    made.CopyFrom(given)
    known = {tensor.name: tensor for tensor in edge.graph.initializer}
    own = {tensor.name: tensor for tensor in given.graph.initializer}
    replaced: dict[str, onnx.TensorProto] = {}
    for node in given.graph.node:
        if node.op_type not in _STEPS or not {*node.input[1:]} <= known.keys():
            continue
        data = node.input[0]
        if data not in own:
            replaced |= {name: known[name] for name in node.input[1:]}
        elif data in known:
            tensor = _beginning(node, own, known)
            if tensor is not None:
                replaced |= {data: tensor, **{name: known[name] for name in node.input[1:]}}
    for tensor in made.graph.initializer:
        if tensor.name in replaced:
            tensor.CopyFrom(replaced[tensor.name])
    return made


def _beginning(
    node: onnx.NodeProto,
    own: dict[str, onnx.TensorProto],
    known: dict[str, onnx.TensorProto],
) -> onnx.TensorProto | None:
    """The edge's integers of a constant, as many as ``own`` has; None where they stand for other
    numbers."""
    ours, theirs = (_real(node, held) for held in (own, known))
    if ours is None or theirs is None or ours[0].ndim != theirs[0].ndim:
        return None
    (values, step), (edge, wide) = ours, theirs
    if any(n > m for n, m in zip(values.shape, edge.shape, strict=True)):
        return None
    cut = tuple(slice(0, extent) for extent in values.shape)
    if np.any(
        np.abs(values - edge[cut]) > np.maximum(step, 0) + np.broadcast_to(wide, edge.shape)[cut]
    ):
        return None
    integers = numpy_helper.to_array(known[node.input[0]])[cut]
    return numpy_helper.from_array(np.ascontiguousarray(integers), node.input[0])


def _real(node: onnx.NodeProto, held: dict[str, onnx.TensorProto]) -> tuple[Array, Array] | None:
    """The real values of a constant, and its scales over them."""
    if not {*node.input} <= held.keys():
        return None
    data, scale, *zero = (numpy_helper.to_array(held[name]) for name in node.input)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    if scale.size == 1:  # by tensor, also where it is a list of one, as of a single channel
        scale, zero = scale.reshape(()), [each.reshape(()) for each in zero]
    elif scale.ndim == 1 and data.ndim:
        if scale.size != data.shape[axis]:
            return None
        along = [1] * data.ndim
        along[axis] = -1
        scale, zero = scale.reshape(along), [each.reshape(along) for each in zero]
    steps = data.astype(np.float64) - (zero[0] if zero else 0)
    return steps * scale, np.broadcast_to(scale, data.shape).astype(np.float64)

"""Products of bytes that ONNX Runtime adds up without loss, whichever processor it runs on.

The one idea: on a processor without VNNI its kernels for unsigned by signed bytes add each two
neighbouring products in 16 bits, where 2 * 255 * 127 saturates. Its kernels for unsigned bytes do
not. So a signed operand beside an unsigned one becomes unsigned: 128 more, as is its zero point.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper, shape_inference

from archgen.zoo.shapes import all_graphs, bodies

_OPERANDS: dict[str, tuple[int | None, tuple[tuple[int, int], ...]]] = {
    "MatMulInteger": (0, ((1, 3),)),
    "ConvInteger": (1, ((0, 2),)),  # its product has the weights on the left
    "QLinearMatMul": (0, ((3, 5),)),
    "QLinearConv": (0, ((3, 5),)),
    "QGemm": (0, ((3, 5),)),
    "MatMulIntegerToFloat": (0, ((1, 5),)),
    "QAttention": (0, ((1, 7),)),
    "DynamicQuantizeMatMul": (None, ((1, 3),)),
    "DynamicQuantizeLSTM": (None, ((1, 9), (2, 11))),
}
"""By operator: the left operand, None where the operator makes unsigned bytes itself; and the right
ones, each with its zero point."""
_MORE = 128


def serialized_with_exact_products(model: bytes) -> bytes:
    """The same for a serialized `model`; what is none stays as it is."""
    if not any(name.encode() in model for name in _OPERANDS):
        return model
    try:
        proto = onnx.load_model_from_string(model)
    except DecodeError:
        return model  # ONNX Runtime says so
    exact: bytes = with_exact_products(proto).SerializeToString()
    return exact


def with_exact_products(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` without products of unsigned by signed bytes; `proto` itself where it has none."""
    nodes = (node for graph in all_graphs(proto.graph) for node in graph.node)
    if not any(node.op_type in _OPERANDS for node in nodes):
        return proto
    try:
        exact = shape_inference.infer_shapes(proto)
    except shape_inference.InferenceError:
        return proto  # ONNX Runtime says what is wrong
    _make_exact(exact.graph, {})
    return exact


def _make_exact(graph: onnx.GraphProto, outside: Mapping[str, int]) -> None:
    """Rewrite the nodes of `graph`, which reads values of the element types `outside`."""
    values = (*graph.input, *graph.value_info, *graph.output)
    types = {**outside, **{value.name: value.type.tensor_type.elem_type for value in values}}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in bodies(node):
            _make_exact(body, types)
        left, right = _OPERANDS.get(node.op_type, (None, ()))
        read = dict(enumerate(types.get(name) for name in node.input))
        unsigned = left is None or read.get(left) == TensorProto.UINT8
        for value, zero in right:
            if unsigned and read.get(value) == TensorProto.INT8:
                nodes += _shifted(graph, node, value)
                nodes += _shifted(graph, node, zero)
        nodes.append(node)
    graph.ClearField("node")
    graph.node.extend(nodes)


def _shifted(graph: onnx.GraphProto, node: onnx.NodeProto, position: int) -> list[onnx.NodeProto]:
    """Nodes that make an operand of `node`, which reads theirs instead, unsigned."""
    node.input.extend([""] * (position + 1 - len(node.input)))
    read, name = node.input[position], f"{node.output[0]}__unsigned{position}"
    node.input[position] = name
    if not read:
        graph.initializer.append(numpy_helper.from_array(np.array(_MORE, np.uint8), name))
        return []
    graph.initializer.append(numpy_helper.from_array(np.array(_MORE, np.int32), f"{name}.more"))
    return [
        helper.make_node("Cast", [read], [f"{name}.wide"], to=TensorProto.INT32),
        helper.make_node("Add", [f"{name}.wide", f"{name}.more"], [f"{name}.sum"]),
        helper.make_node("Cast", [f"{name}.sum"], [name], to=TensorProto.UINT8),
    ]

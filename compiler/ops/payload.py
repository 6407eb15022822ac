"""Payloads: nodes of a model cut out as a small model of their own, for the host to run.

Whoever executes the program needs nothing but the payload and its inputs: constants are inside,
and what subgraphs read from around them are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from compiler.graph.rewrite import ARCHGEN
from compiler.ops.node import static_shape
from compiler.ops.standard import standard


def payload_of(
    nodes: Sequence[ir.Node], model: ir.Model, outputs: Sequence[ir.Value] | None = None
) -> tuple[bytes, tuple[str, ...]]:
    """A serialized model of `nodes`, and the names of its inputs in order.

    Args:
        nodes: in an order in which they can run.
        model: where they come from.
        outputs: results of the payload; default: the named ones of the last node.
    """
    if outputs is None:
        outputs = [output for output in nodes[-1].outputs if output.name]
    made = {str(o.name) for node in nodes for o in node.outputs}
    inputs: dict[str, ir.Value] = {}
    constants: dict[str, ir.Value] = {}
    for value in (v for node in nodes for v in reads(node) if str(v.name) not in made):
        computed = value.const_value is None and 0 not in static_shape(value)
        target = inputs if computed else constants
        target[str(value.name)] = value
    initializers = [_initializer(value) for value in constants.values()]
    protos: list[onnx.NodeProto] = []
    for node in nodes:
        found, more = standard(node)
        protos += found
        initializers += more
    opset = dict(model.opset_imports)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            protos,
            "payload",
            [_info(value) for value in inputs.values()],
            [_info(output) for output in outputs],
            initializers,
        ),
        opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in opset.items() if d != ARCHGEN],
        ir_version=10,
    )
    return proto.SerializeToString(), tuple(inputs)


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Values of its graph that `node` reads, also from inside its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from _captured(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                yield from _captured(graph)


def _captured(graph: ir.Graph) -> Iterator[ir.Value]:
    """Values that `graph` takes from around it."""
    own = {*graph.inputs, *graph.initializers.values()}
    own |= {output for node in graph for output in node.outputs}
    read = [value for node in graph for value in reads(node)]
    yield from (value for value in (*read, *graph.outputs) if value not in own)


def _info(value: ir.Value) -> onnx.ValueInfoProto:
    dtype = value.dtype.value if value.dtype is not None else 0
    return onnx.helper.make_tensor_value_info(str(value.name), dtype, static_shape(value))


def _initializer(value: ir.Value) -> onnx.TensorProto:
    """Constant data of `value`; one without elements is constant whoever computes it."""
    data, kind = value.const_value, value.dtype
    assert kind is not None
    array = np.zeros(static_shape(value), kind.numpy()) if data is None else data.numpy()
    return onnx.numpy_helper.from_array(array, str(value.name))


def operations(node: ir.Node) -> int:
    """Arithmetic operations of a node: two per multiply-accumulate, else one per element."""
    elements = sum(_elements(output) for output in node.outputs if output.name)
    if node.op_type in ("LSTM", "GRU", "RNN"):
        x, w, r = (node.inputs[position] for position in range(3))
        assert x is not None and w is not None and r is not None
        steps = math.prod(static_shape(x)[:2])
        return 2 * steps * (_elements(w) + _elements(r))
    if node.op_type in ("Conv", "QConv", "ConvInteger", "ConvTranspose"):
        w = node.inputs[1]
        assert w is not None
        pixels = node.inputs[0] if node.op_type == "ConvTranspose" else node.outputs[0]
        assert pixels is not None
        return 2 * _elements(pixels) * (_elements(w) // max(1, static_shape(w)[0]))
    if node.op_type in ("MatMul", "QMatMul", "MatMulInteger", "Gemm"):
        a = node.inputs[0]
        assert a is not None
        transposed = node.op_type == "Gemm" and "transA" in node.attributes
        depth = static_shape(a)[0 if transposed and node.attributes["transA"].value else -1]
        return 2 * elements * depth
    inputs = (value for value in node.inputs if value is not None and value.const_value is None)
    return max([elements, *(_elements(value) for value in inputs if value.shape is not None)])


def _elements(value: ir.Value) -> int:
    return math.prod(static_shape(value))

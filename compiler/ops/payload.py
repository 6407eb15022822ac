"""Payloads: nodes of a model cut out as a small model of their own, for the host to run.

Whoever executes the program needs nothing but the payload and its inputs: constants are inside,
and what subgraphs read from around them are inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from compiler.graph.rewrite import ARCHGEN
from compiler.graph.subgraphs import has_body, reads
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
    ports = [_Port(value) for value in inputs.values()]
    results = [_Port(value) for value in outputs]
    protos = [cast for port in ports for cast in port.read()] + protos
    protos += [cast for port in results for cast in port.written()]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(
            protos,
            "payload",
            [port.info() for port in ports],
            [port.info() for port in results],
            initializers,
        ),
        opset_imports=_opsets(nodes, model),
        ir_version=10,
    )
    return proto.SerializeToString(), tuple(inputs)


def _opsets(nodes: Sequence[ir.Node], model: ir.Model) -> list[onnx.OperatorSetIdProto]:
    """Of a payload; what stands in the bodies of a node has the forms that the file gave it."""
    versions = {domain: v for domain, v in model.opset_imports.items() if domain != ARCHGEN}
    if len(nodes) == 1 and has_body(nodes[0]):
        versions[""] = nodes[0].version or versions[""]
    return [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]


@dataclass(frozen=True)
class _Port:
    """A value that crosses the border of a payload: as FLOAT where numpy has no type of its own
    for it, which holds all numbers of those that ONNX has."""

    value: ir.Value

    def info(self) -> onnx.ValueInfoProto:
        """What the host sees."""
        kind = ir.DataType.UNDEFINED if self.value.dtype is None else self.value.dtype
        dtype = ir.DataType.FLOAT if self._foreign() else kind
        return onnx.helper.make_tensor_value_info(
            self._name(), dtype.value, static_shape(self.value)
        )

    def read(self) -> list[onnx.NodeProto]:
        """From the port to the value."""
        return self._cast(self._name(), str(self.value.name), self.value.dtype)

    def written(self) -> list[onnx.NodeProto]:
        """From the value to the port."""
        return self._cast(str(self.value.name), self._name(), ir.DataType.FLOAT)

    def _foreign(self) -> bool:
        kind = self.value.dtype
        return kind is not None and kind.numpy().isbuiltin != 1

    def _name(self) -> str:
        return f"{self.value.name}.float" if self._foreign() else str(self.value.name)

    def _cast(self, source: str, target: str, kind: ir.DataType | None) -> list[onnx.NodeProto]:
        if not self._foreign() or kind is None:
            return []
        return [onnx.helper.make_node("Cast", [source], [target], to=kind.value)]


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
    if node.op_type in ("Conv", "QConv", "ConvInteger", "ConvTranspose", "QConvTranspose"):
        w = node.inputs[1]
        assert w is not None
        pixels = node.inputs[0] if node.op_type.endswith("Transpose") else node.outputs[0]
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

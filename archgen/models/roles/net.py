"""The graph of a model as roles see it: one list of nodes and the shapes of all values.

The one idea: what happens inside of a subgraph or a function happens to the input as well. So
nodes of subgraphs stand in the list of all nodes, and what a branch hands back goes on by an
`Identity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import checker, helper, numpy_helper, shape_inference

from archgen.zoo.shapes import (
    all_graphs,
    bodies,
    has_data,
    known_shapes,
    use_stand_ins,
    without_data,
)
from simmodel.arch.dtype import Array

Dim = int | str | None
"""An extent, the name of a free one, or unknown."""
Dims = tuple[Dim, ...]

ANONYMOUS = ("", "?", "-1", "None")
"""What exporters write for a dimension they know nothing about."""


_OF_SHAPES = ("Shape", "Size", "ConstantOfShape")


@dataclass(frozen=True)
class ModelPort:
    """An input or output: `dims` has a name for each free dimension, `name:axis` at the least."""

    name: str
    elem_type: int
    dims: Dims


@dataclass(frozen=True)
class Net:
    """A model's nodes in order, its ports and what is known of its values."""

    proto: onnx.ModelProto
    nodes: tuple[onnx.NodeProto, ...]
    inputs: Mapping[str, ModelPort]
    outputs: Mapping[str, ModelPort]
    shapes: Mapping[str, Dims]
    types: Mapping[str, int]
    """Element types, as ONNX numbers them."""
    constants: Mapping[str, Array]
    """Values of small constants, flat."""
    weights: frozenset[str]
    """Values that are constants, small or not."""
    opset: int

    @cached_property
    def readers(self) -> Mapping[str, Sequence[tuple[onnx.NodeProto, int]]]:
        """For each value who reads it, in which slot."""
        found: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in self.nodes:
            for slot, name in enumerate(node.input):
                found.setdefault(name, []).append((node, slot))
        return found

    @cached_property
    def makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def valued(self) -> frozenset[str]:
        """Values that depend on what stands in the inputs, not on shapes alone."""
        found = set(self.inputs)
        for node in self.nodes:
            if node.op_type not in _OF_SHAPES and found.intersection(node.input):
                found.update(name for name in node.output if name)
        return frozenset(found)

    @cached_property
    def _computed(self) -> Mapping[str, tuple[int, ...]]:
        return known_shapes(self.proto)

    def extent(self, name: str, axis: int) -> Dim:
        """Extent of `axis` of the value `name`, which may count from the end."""
        dims: Dims = self.shapes.get(name, ())
        if not -len(dims) <= axis < len(dims):
            return None
        if dims[axis] is None and name in self._computed:
            return self._computed[name][axis]
        return dims[axis]

    def rank(self, name: str) -> int | None:
        """Number of axes of the value `name`, where it is known."""
        return len(self.shapes[name]) if name in self.shapes else None


def node_label(node: onnx.NodeProto) -> str:
    """`Conv 'conv1'`; the type alone where the node has no name."""
    return f"{node.op_type} {node.name!r}" if node.name else str(node.op_type)


def op_types(names: str) -> frozenset[str]:
    """The operators that `names` lists, apart by blanks."""
    return frozenset(names.split())


CARRIERS = op_types(
    "Cast Identity Reshape Unsqueeze Squeeze Flatten Transpose Slice Expand QuantizeLinear "
    "DequantizeLinear Dropout Tile Gather Split"
)
"""Operators whose result is their first operand's values, perhaps in other places."""


def read_net(proto: onnx.ModelProto) -> Net:
    """The graph of `proto`, bound or not; its weights are not looked at."""
    light = without_data(proto)
    use_stand_ins(light.graph)
    graph = light.graph
    given = {tensor.name for tensor in graph.initializer}
    ports = []
    for value in (value for value in graph.input if value.name not in given):
        ports.append(port := _model_port(value))
        for dim, known in zip(value.type.tensor_type.shape.dim, port.dims, strict=True):
            if isinstance(known, str):  # so that shape inference carries its name on
                dim.dim_param = known
    nodes = tuple(_flat(graph))
    constants, weights = _small_constants(graph, nodes)
    shapes, types = _inferred(light)
    versions = [o.version for o in light.opset_import if o.domain in ("", "ai.onnx")]
    inputs = {port.name: port for port in ports}
    outputs = {value.name: _model_port(value) for value in graph.output}
    opset = max(versions, default=1)
    return Net(proto, nodes, inputs, outputs, shapes, types, constants, weights, opset)


def _model_port(value: onnx.ValueInfoProto) -> ModelPort:
    kind = value.type.tensor_type
    dims = tuple(_dim(dim) or f"{value.name}:{axis}" for axis, dim in enumerate(kind.shape.dim))
    return ModelPort(value.name, kind.elem_type, dims)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value > 0 else None
    return None if dim.dim_param in ANONYMOUS else str(dim.dim_param)


def _inferred(light: onnx.ModelProto) -> tuple[dict[str, Dims], dict[str, int]]:
    """Shapes and element types, as far as they are known."""
    try:
        inferred = shape_inference.infer_shapes(light, data_prop=True)
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError):
        inferred = light  # a graph that cannot be inferred still has what it says of itself
    shapes: dict[str, Dims] = {}
    types: dict[str, int] = {}
    for graph in all_graphs(inferred.graph):
        shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            if kind.elem_type:
                types.setdefault(value.name, kind.elem_type)
            if kind.HasField("shape"):
                shapes.setdefault(value.name, tuple(map(_dim, kind.shape.dim)))
    return shapes, types


def _flat(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of `graph` in order, those of subgraphs before the node that holds them; what a
    branch of an If hands back goes on by an `Identity`."""
    for node in graph.node:
        for body in bodies(node):
            yield from _flat(body)
            if node.op_type == "If":
                for inner, outer in zip(body.output, node.output, strict=True):
                    yield helper.make_node("Identity", [inner.name], [outer], name=node.name)
        yield node


# Constants.

_SAME_VALUES = {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten"}


def _small_constants(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]
) -> tuple[dict[str, Array], frozenset[str]]:
    """Values of the small constants, flat, and the names of all constants."""
    values: dict[str, Array] = {}
    names: set[str] = set()
    for part in all_graphs(graph):
        for tensor in part.initializer:
            names.add(tensor.name)
            if has_data(tensor):
                values[tensor.name] = numpy_helper.to_array(tensor).ravel()
    for node in nodes:
        given = [name for name in node.input if name]
        if node.op_type == "Constant":
            names.update(node.output)
            value = _constant_value(node)
            if value is not None:
                values[node.output[0]] = value
        elif given and all(name in names for name in given):
            names.update(node.output)
            if node.op_type in _SAME_VALUES and given[0] in values:
                values[node.output[0]] = values[given[0]]
            elif node.op_type == "Concat" and all(name in values for name in given):
                values[node.output[0]] = np.concatenate([values[name] for name in given])
    return values, frozenset(names)


def _constant_value(node: onnx.NodeProto) -> Array | None:
    value = helper.get_attribute_value(node.attribute[0])
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value).ravel() if has_data(value) else None
    return None if isinstance(value, onnx.SparseTensorProto) else np.atleast_1d(np.array(value))

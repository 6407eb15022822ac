"""What of a network is quantized already, and stays as it is when the rest is quantized.

The one idea: numbers that were integers a moment ago are recognized by walking forward from
DequantizeLinear. A product of such numbers is an integer product; whatever else reads them lies
between two quantizations that somebody has chosen, so nobody may round there again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
MOVEMENT = (
    *("Concat", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Split", "Slice"),
    *("Pad", "Resize", "DepthToSpace", "TensorScatter"),
)
_DATA = {"Concat": None, "TensorScatter": 2}
"""How many of the first inputs of movement are moved, where it is not one; None: all."""
_CLAMPS = ("Relu", "Clip")
_KEEPING = {*MOVEMENT, "Identity", "MaxPool", "Gather", "Expand"}
"""Operators whose results are elements of their first input."""
_INTEGER_PRODUCTS = (
    *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm", "QAttention"),
    "DynamicQuantizeMatMul",
)
_INTEGER = (*_INTEGER_PRODUCTS, "QLinear", "DequantizeLinear", "DynamicQuantize")
"""How the names of operators on quantized numbers begin."""
_BYTES = (TensorProto.INT8, TensorProto.UINT8)


def has_quantized_parts(proto: onnx.ModelProto) -> bool:
    """Whether any operator of ``proto`` works on quantized numbers."""
    return any(node.op_type.startswith(_INTEGER) for node in proto.graph.node)


def products(proto: onnx.ModelProto) -> tuple[int, list[onnx.NodeProto]]:
    """How many products of ``proto`` are quantized, and those that are not."""
    nodes = proto.graph.node
    quantized = _dequantized(proto.graph, nodes)
    plain = [node for node in nodes if node.op_type in PRODUCTS]
    left = [node for node in plain if not quantized.issuperset(node.input[:2])]
    integer = sum(node.op_type.startswith(_INTEGER_PRODUCTS) for node in nodes)
    return integer + len(plain) - len(left), left


def between_quantizations(proto: onnx.ModelProto) -> list[str]:
    """Names of the nodes that no quantization is to be added to: products of quantized numbers,
    what follows on quantized activations up to the next product or quantization, and clamps in
    front of one."""
    graph = proto.graph
    constants = _constants(graph)
    open_ones = {node.name for node in products(proto)[1]}
    inside: set[str] = set()
    names = []
    for node in graph.node:
        weights = node.op_type == "DequantizeLinear" and node.input[0] in constants
        begins = node.op_type.startswith(_INTEGER) and not weights
        if node.name in open_ones or node.op_type == "QuantizeLinear":
            continue
        if begins or inside.intersection(node.input):
            inside.update(filter(None, node.output))
            names.append(node.name)
    return [*names, *(node.name for node in _clamps_before_quantization(graph))]


def constant_numbers(proto: onnx.ModelProto) -> set[str]:
    """Names of initializers and of what is dequantized from them."""
    constants = _constants(proto.graph)
    dequantized = [node for node in proto.graph.node if node.op_type == "DequantizeLinear"]
    return constants | {node.output[0] for node in dequantized if node.input[0] in constants}


def unpack_weights(proto: onnx.ModelProto) -> None:
    """Makes weights in other than 8 bits, or with scales by block, float32 constants, in place:
    no product of bytes can read them."""
    graph = proto.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        names = [name for name in node.input if name]
        if node.op_type != "DequantizeLinear" or not tensors.keys() >= set(names):
            continue
        kind = tensors[names[0]].data_type
        if kind == TensorProto.INT32 or (kind in _BYTES and not _by_block(node)):
            continue
        value = onnx.ValueInfoProto(name=node.output[0])
        part = helper.make_graph([node], "weights", [], [value], [tensors[n] for n in names])
        model = helper.make_model(part, opset_imports=proto.opset_import)
        (numbers,) = ReferenceEvaluator(model).run(None, {})
        plain = numpy_helper.from_array(np.asarray(numbers), node.output[0])
        graph.initializer.append(plain)
        graph.node.remove(node)


def _by_block(node: onnx.NodeProto) -> bool:
    return any(a.name == "block_size" and a.i for a in node.attribute)


def without_second_rounding(proto: onnx.ModelProto, before: Collection[str]) -> None:
    """Takes back, in place, quantizations that were added (by nodes not named in ``before``) where
    numbers are quantized anyway: in front of a QuantizeLinear that was there, or of its clamp, and
    behind a DequantizeLinear with nothing but movement between."""
    graph = proto.graph
    makers = {name: node for node in graph.node for name in node.output}
    old = [node for node in graph.node if node.name in before]
    quantized = _dequantized(graph, old)
    rounds = {node.name for node in old if node.op_type == "QuantizeLinear"}
    rounds |= {node.name for node in _clamps_before_quantization(graph)}
    for node in old:
        for index, name in enumerate(node.input):
            source = _added(name, makers, before)
            if source and ((node.name in rounds and index == 0) or source in quantized):
                node.input[index] = source
    _sweep(graph, before)


def _added(name: str, makers: dict[str, onnx.NodeProto], before: Collection[str]) -> str | None:
    """What an added pair of QuantizeLinear and DequantizeLinear makes ``name`` from."""
    last = makers.get(name)
    first = makers.get(last.input[0]) if last is not None else None
    if last is None or first is None or last.name in before or first.name in before:
        return None
    return str(first.input[0])


def _clamps_before_quantization(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    readers = _readers(graph)
    return [
        node
        for node in graph.node
        if node.op_type in _CLAMPS and set(readers[node.output[0]]) == {"QuantizeLinear"}
    ]


def _readers(graph: onnx.GraphProto) -> dict[str, list[str]]:
    """Operators that read each value; an output of the graph is read by ''."""
    readers: dict[str, list[str]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node.op_type)
    for value in graph.output:
        readers[value.name].append("")
    return readers


def _sweep(graph: onnx.GraphProto, before: Collection[str]) -> None:
    """Removes added nodes that nothing reads: a DequantizeLinear, then what it read."""
    for _ in ("DequantizeLinear", "QuantizeLinear"):
        readers = _readers(graph)
        for node in list(graph.node):
            if node.name not in before and not any(readers[name] for name in node.output):
                graph.node.remove(node)


def _constants(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


def _dequantized(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Values that were bytes and have only been moved since, by ``nodes``."""
    wide = {t.name for t in graph.initializer if t.data_type not in _BYTES}
    found: set[str] = set()
    for node in nodes:
        count = _DATA.get(node.op_type, 1)
        if node.op_type == "DequantizeLinear":
            if not _by_block(node) and not wide.intersection((node.input[0], *node.input[2:])):
                found.update(node.output)
        elif node.op_type in _KEEPING and found.issuperset(node.input[:count]):
            found.update(node.output)
    return found

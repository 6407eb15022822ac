"""A network as ONNX Runtime's quantizer takes it: folded, nodes with names, biases in rows.

The one idea: whatever is rewritten before quantization is rewritten here, and at any length of a
network alike, so that a value has the same name at each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import AttributeProto, TensorProto, helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from archgen.zoo.shapes import attribute, copied, known_shapes
from compiler import api

# What of a network is quantized already, and stays as it is when the rest is quantized.

PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
MOVEMENT = (
    *("Concat", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Split", "Slice"),
    *("Pad", "Resize", "DepthToSpace", "TensorScatter", "ScatterND", "ScatterElements"),
)
_DATA = {
    "Concat": slice(None),
    "TensorScatter": slice(2),
    **dict.fromkeys(("ScatterND", "ScatterElements"), slice(None, None, 2)),
}
"""Which inputs of movement are moved, where it is not the first alone."""
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
_CODES = (*_BYTES, TensorProto.INT16, TensorProto.UINT16)


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
    constants = _initializer_names(graph)
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
    constants = _initializer_names(proto.graph)
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
        if kind == TensorProto.INT32 or (kind in _BYTES and not attribute(node, "block_size", 0)):
            continue
        value = onnx.ValueInfoProto(name=node.output[0])
        part = helper.make_graph([node], "weights", [], [value], [tensors[n] for n in names])
        model = helper.make_model(part, opset_imports=proto.opset_import)
        (numbers,) = ReferenceEvaluator(model).run(None, {})
        plain = numpy_helper.from_array(np.asarray(numbers), node.output[0])
        graph.initializer.append(plain)
        graph.node.remove(node)


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
            source = _quantized_source(name, makers, before)
            if source and ((node.name in rounds and index == 0) or source in quantized):
                node.input[index] = source
    _sweep(graph, before)


def _quantized_source(
    name: str, makers: dict[str, onnx.NodeProto], before: Collection[str]
) -> str | None:
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


def _initializer_names(graph: onnx.GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


def _dequantized(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Values that were bytes, or activations of 16 bits, and have only been moved since, by
    ``nodes``."""
    kinds = {t.name: t.data_type for t in graph.initializer}
    found: set[str] = set()
    for node in nodes:
        moved = node.input[_DATA.get(node.op_type, slice(1))]
        if node.op_type == "DequantizeLinear":
            given = zip(node.input[::2], (_BYTES, _CODES), strict=False)
            narrow = all(kinds.get(name, _BYTES[0]) in able for name, able in given)
            if narrow and not attribute(node, "block_size", 0):
                found.update(node.output)
        elif node.op_type in _KEEPING and found.issuperset(moved):
            found.update(node.output)
    return found


_PER_CHANNEL_OPSET = 13
_FREE_INITIALIZERS = 4
"""The first IR version whose initializers need not be inputs."""


def folded(
    name: str, proto: onnx.ModelProto, load: api.Load, directory: Path
) -> tuple[onnx.ModelProto, bool]:
    """``proto``, called ``name``, before quantization, and whether what hides products is written
    out by ``load``, as it is unless parts are quantized; files go to ``directory``."""
    given = _without_given_weights(proto)
    written_out = None
    if api.hides_products(proto) and not has_quantized_parts(proto):
        written_out = api.in_standard_operators(given, name, load)
    made = _name_nodes(_rewritten(written_out or _modern(given), directory))
    unpack_weights(made)
    _write_out_products(made)
    _plain_gemms(made)
    _declare_foreign_types(made)
    return made, written_out is not None


def _without_given_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without initializers among its inputs, where old files list them: what can be
    computed from such an input is no constant to ONNX Runtime."""
    initialized = {tensor.name for tensor in proto.graph.initializer}
    if not any(value.name in initialized for value in proto.graph.input):
        return proto
    free = (value for value in proto.graph.input if value.name not in initialized)
    copy = copied(proto, input=free)
    copy.ir_version = max(copy.ir_version, _FREE_INITIALIZERS)
    return copy


def _modern(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` in an operator set that has quantization by channel."""
    opsets = [opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx")]
    if opsets and opsets[0] < _PER_CHANNEL_OPSET:
        given = copied(proto)
        given.ir_version = max(given.ir_version, _FREE_INITIALIZERS)  # or it takes inputs alone
        return version_converter.convert_version(given, _PER_CHANNEL_OPSET)
    return proto


def _rewritten(proto: onnx.ModelProto, directory: Path) -> onnx.ModelProto:
    """``proto`` after ONNX Runtime's basic rewriting: BatchNormalization folded into Conv, shape
    arithmetic computed. MatMul and Add stay apart, as in the source, and it quantizes nothing in a
    way of its own."""
    options = api.session_options()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(directory / "folded.onnx")
    options.add_session_config_entry("session.disable_prepacking", "1")  # nothing is run
    onnxruntime.InferenceSession(
        proto.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["MatMulAddFusion", "WeightBiasQuantization"],
    )
    folded = onnx.load_model(options.optimized_model_filepath)
    used = {node.domain for node in folded.graph.node} | {""}
    kept = [opset for opset in folded.opset_import if opset.domain in used]
    del folded.opset_import[:]
    folded.opset_import.extend(kept)
    return folded


def _name_nodes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Gives every node a name of its own: exclusion from quantization goes by name."""
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.name or node.op_type}_{index}"
        seen.add(node.name)
    return proto


def _write_out_products(proto: onnx.ModelProto) -> None:
    """Makes an Einsum of two matrices a MatMul, and turns the left side in front of a Gemm, in
    place: the quantizer takes nothing else."""
    shapes = known_shapes(proto)
    nodes: list[onnx.NodeProto] = []

    def added(node: onnx.NodeProto, kind: str, *inputs: str, **said: Any) -> str:
        name = f"{node.name}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **said))
        return name

    def reshaped(node: onnx.NodeProto, value: str, shape: list[int]) -> str:
        name = f"{node.name}_{len(nodes)}_shape"
        proto.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), name))
        return added(node, "Reshape", value, name)

    for node in proto.graph.node:
        if node.op_type == "Gemm" and attribute(node, "transA", 0):
            node.input[0] = added(node, "Transpose", node.input[0], perm=[1, 0])
            kept = [entry for entry in node.attribute if entry.name != "transA"]
            del node.attribute[:]
            node.attribute.extend(kept)
        found = _as_matrices(node, shapes) if node.op_type == "Einsum" else None
        if found is None:
            nodes.append(node)
            continue
        sides = [
            reshaped(node, added(node, "Transpose", name, perm=order), shape)
            for name, (order, shape) in zip(node.input, found[:2], strict=True)
        ]
        order, shape = found[2]
        whole = reshaped(node, added(node, "MatMul", *sides), shape)
        nodes.append(helper.make_node("Transpose", [whole], node.output, node.name, perm=order))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


_Turned = tuple[list[int], list[int]]
"""An order of axes, and a shape."""


def _as_matrices(
    node: onnx.NodeProto, shapes: Mapping[str, Sequence[int]]
) -> tuple[_Turned, _Turned, _Turned] | None:
    """How both sides of an Einsum become matrices and their product the result; None where they do
    not."""
    equation = attribute(node, "equation", b"").decode().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    sides = terms.split(",")
    known = [shapes.get(name) for name in node.input]
    if not arrow or "." in equation or len(sides) != 2 or None in known:
        return None
    pairs = {
        pair
        for term, shape in zip(sides, known, strict=True)
        for pair in zip(term, shape or (), strict=False)
    }
    sizes = dict(pairs)
    left, right, own = (set(term) for term in (*sides, result))
    alone = all(len(set(term)) == len(term) for term in (*sides, result))
    inner = [t for t in sides[0] if t in right - own]
    if not alone or not inner or not left ^ right <= own or len(pairs) > len(sizes):
        return None
    batch, rows, columns = (
        [t for t in result if t in group] for group in (left & right, left - right, right - left)
    )

    def turned(term: str, *groups: list[str]) -> _Turned:
        shape = [*(sizes[t] for t in batch), *(math.prod(sizes[t] for t in g) for g in groups)]
        return [term.index(t) for t in (*batch, *groups[0], *groups[1])], shape

    found = [*batch, *rows, *columns]
    last = [found.index(t) for t in result], [sizes[t] for t in found]
    return turned(sides[0], rows, inner), turned(sides[1], inner, columns), last


def _plain_gemms(proto: onnx.ModelProto) -> None:
    """Puts the factors of every Gemm of constants into them, and gives its bias one number per
    column, in place: the quantizer takes no others."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type != "Gemm" or not {*node.input[1:]} <= constants.keys():
            continue
        columns = constants[node.input[1]].dims[0 if attribute(node, "transB", 0) else 1]
        for place, factor in zip(range(1, len(node.input)), ("alpha", "beta"), strict=False):
            given = numpy_helper.to_array(constants[node.input[place]])
            made = given * given.dtype.type(attribute(node, factor, 1.0))
            if place == 2 and given.size == (given.shape or (1,))[-1]:
                made = np.ascontiguousarray(np.broadcast_to(made.reshape(-1), (columns,)))
            if made.shape != given.shape or attribute(node, factor, 1.0) != 1:
                name = f"{node.name}_operand_{place}"
                proto.graph.initializer.append(numpy_helper.from_array(made, name))
                node.input[place] = name
        kept = [entry for entry in node.attribute if entry.name not in ("alpha", "beta")]
        del node.attribute[:]
        node.attribute.extend(kept)


def _declare_foreign_types(proto: onnx.ModelProto) -> None:
    """Says, in place, which results of ONNX Runtime's own operators are real numbers: the quantizer
    leaves alone what reads a value whose type it does not know."""
    foreign = (node for node in proto.graph.node if node.domain not in ("", "ai.onnx"))
    outputs = [onnx.ValueInfoProto(name=name) for node in foreign for name in node.output if name]
    if not outputs:
        return
    session = onnxruntime.InferenceSession(
        copied(proto, output=outputs).SerializeToString(), api.session_options(),
        providers=["CPUExecutionProvider"],
    )  # fmt: skip
    proto.graph.value_info.extend(
        helper.make_tensor_value_info(port.name, TensorProto.FLOAT, port.shape)
        for port in session.get_outputs()
        if port.type == "tensor(float)"
    )


# Networks in 16-bit floats as networks in float32: the same graph with wider numbers.

_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
"""Attributes that hold an element type."""


def widened(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without 16-bit floats: a copy, or itself where it has none."""
    if next(_halves(proto), None) is None:
        return proto
    copy = copied(proto)
    for part, field in list(_halves(copy)):
        if isinstance(part, TensorProto):
            numbers = api.numbers_in(part).astype(np.float32)
            part.CopyFrom(numpy_helper.from_array(numbers, part.name))
        else:
            setattr(part, field, TensorProto.FLOAT)
    return copy


def widened_but_for_casts(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without operators on 16-bit floats: as ``widened`` has it, but what the main graph
    casts to such a type is rounded to it, and float32 again."""
    nodes: list[onnx.NodeProto] = []
    wide = copied(widened(proto))
    for before, node in zip(proto.graph.node, wide.graph.node, strict=True):
        nodes.append(node)
        kind = attribute(before, "to", 0)
        if node.op_type == "Cast" and kind in _HALF:
            rounded = f"{node.output[0]}.rounded"
            nodes.append(helper.make_node("Cast", [rounded], node.output, to=TensorProto.FLOAT))
            node.output[0] = rounded
            node.attribute[0].i = kind
    return copied(wide, node=nodes)


def has_bfloat16(proto: onnx.ModelProto) -> bool:
    """Whether anything in ``proto`` says or holds a bfloat16."""
    return any(getattr(part, field) == TensorProto.BFLOAT16 for part, field in _halves(proto))


def _halves(message: Message) -> Iterator[tuple[Message, str]]:
    """Everything in ``message`` that says or holds a 16-bit float, and the field that says so."""
    match message:
        case TensorProto():
            type_field = "data_type"
        case onnx.TypeProto.Tensor():
            type_field = "elem_type"
        case AttributeProto(type=AttributeProto.INT) if message.name in _TYPE_ATTRIBUTES:
            type_field = "i"
        case _:
            type_field = ""
    if type_field and getattr(message, type_field) in _HALF:
        yield message, type_field
    if isinstance(message, TensorProto):
        return  # what is in it is data
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                yield from _halves(part)

"""What ONNX Runtime says of operators that it may have to run: result types, and whether it can.

The host processor runs what no engine does, and it runs ONNX Runtime; where that has no kernel,
ONNX's own evaluator (`by_definition`). So an operator of a domain that ONNX itself does not define
is asked about there, one node at a time: with the numbers of small constants, without those of
large ones. Nothing is said on the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as native

from simmodel.arch.dtype import Array

# Types, shapes and small numbers of values, as ONNX writes them.

SMALL = 4096
"""Constants with at most this many elements take part in inference by value (shapes, axes)."""


def type_proto(value: ir.Value | None) -> onnx.TypeProto | None:
    """Type and shape of `value`; None where even the type is unknown."""
    if value is None or value.type is None:
        return None
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def small_constant(value: ir.Value) -> onnx.TensorProto | None:
    """The numbers of a constant of at most `SMALL` elements; None for every other value."""
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or tensor.size > SMALL:
        return None
    named = ir.serde.serialize_tensor(tensor)
    named.name = str(value.name)  # numbers that passes made may have none
    return named


Dims = tuple[int | None, ...] | None
"""Extents, None where one is not known; None: not even the rank is."""
DECLARED = "archgen.declared"
"""Key, in the metadata of a value, of the extents (`Dims`) that the model's file states, which may
be of other inputs."""


# Operators that no accelerator is given: classical learning, training, chance.

_DOMAINS = {
    "ai.onnx.ml": "classical machine learning and look-ups are not compiled; "
    "export the part of the model that computes with tensors",
    "ai.onnx.preview.training": "training is not compiled; export the model for inference",
    "ai.onnx.training": "training is not compiled; export the model for inference",
}
CHANCE = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike")
)  # fmt: skip


def outside(op_type: str, domain: str) -> str | None:
    """Why an operator is not compiled whatever it is given, and what would help; None: it may be.

    `domain` is empty for ONNX's own operators.
    """
    if domain or op_type not in CHANCE:
        return _DOMAINS.get(domain)
    return (
        "it makes other values in each run, which nothing can be compared with; make what it draws "
        "an input of the model"
    )


# ONNX's own evaluator, where ONNX Runtime has no kernel.


NOT_A_FUNCTION = CHANCE | {"Dropout"}
"""Operators that give another value at each run."""


def evaluator(proto: onnx.ModelProto) -> ReferenceEvaluator:
    """What computes `proto` from the definitions of its operators.

    Raises ValueError where they have none, or give another value at each run.
    """
    drawing = NOT_A_FUNCTION & {node.op_type for _, node in nodes_within(proto.graph.node)}
    if drawing:
        raise ValueError(f"{', '.join(sorted(drawing))} gives another value at each run")
    try:
        return ReferenceEvaluator(proto)
    except (NotImplementedError, RuntimeError, TypeError, ValueError, KeyError) as why:
        said = " ".join(str(why).split())
        raise ValueError(f"ONNX's own evaluator cannot run it either: {said}") from why


def evaluated(
    run: ReferenceEvaluator, names: Sequence[str], feeds: Mapping[str, Array]
) -> list[Array]:
    """Values called `names`. Raises ValueError where the evaluator fails on these inputs."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(value) for value in run.run(list(names), dict(feeds))]
    except Exception as why:  # whatever numpy says of values that no operator takes
        raise ValueError(f"ONNX's own evaluator fails: {why}") from why


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[int, onnx.NodeProto]]:
    """`nodes` with their positions, also those inside of subgraphs."""
    for index, node in enumerate(nodes):
        yield index, node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from nodes_within(body.node)


RUNTIME_ERRORS = (
    native.Fail, native.InvalidArgument, native.InvalidGraph, native.InvalidProtobuf,
    native.NotImplemented, native.RuntimeException,
)  # fmt: skip
"""What ONNX Runtime raises of its own."""
_SILENT = 4
_UNREGISTERED = "is not a registered function/op"


class NoKernel(ValueError):
    """ONNX Runtime knows no way to compute an operator that may have a definition."""


@cache
def operators_of_runtime() -> Mapping[str, frozenset[str]]:
    """Operator types that ONNX Runtime has a schema for, by domain ("" is ONNX's own)."""
    return _by_domain((each.domain, each.name) for each in native.get_all_operator_schema())


@cache
def kernels_of_runtime() -> Mapping[str, frozenset[str]]:
    """Operator types that ONNX Runtime itself computes, in some element type, by domain."""
    return _by_domain((each.domain, each.op_name) for each in native.get_all_opkernel_def())


def _by_domain(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for domain, name in pairs:
        found.setdefault(domain, set()).add(name)
    return {domain: frozenset(names) for domain, names in found.items()}


def infer_by_runtime(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set types and shapes of the outputs of `node`, as far as ONNX Runtime finds them.

    Where its inference leaves an extent open, the node is run on zeros and on ones: an extent that
    both give does not depend on numbers. Raises ValueError with the reason where it refuses.
    """
    proto = single_node_model(node, opsets)
    session = open_session(proto)
    ports = {port.name: port for port in session.get_outputs()}
    shapes = {name: port.shape for name, port in ports.items()}
    if not all(isinstance(extent, int) for shape in shapes.values() for extent in shape):
        shapes |= _by_running(session, proto)
    for value in node.outputs:
        if value.name in ports:
            kind = ports[value.name].type.removeprefix("tensor(").removesuffix(")")
            value.dtype, value.shape = ir.DataType[kind.upper()], ir.Shape(shapes[value.name])


def refusal(payload: bytes) -> str | None:
    """Why the host cannot run a serialized model, on one line; None: it can.

    Large constants are handed over as inputs, so that none is copied.
    """
    proto = onnx.ModelProto.FromString(payload)
    graph = proto.graph
    for tensor in [t for t in graph.initializer if math.prod(t.dims) > SMALL]:
        port = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        graph.input.append(port)
        graph.initializer.remove(tensor)
    try:
        open_session(proto)
    except NoKernel as why:
        try:
            evaluator(proto)
        except ValueError as more:
            return f"{why}; {more}"
    except ValueError as why:
        return str(why)
    return None


def lacks_kernel(why: Exception) -> bool:
    """Whether ONNX Runtime says of a model that it has no kernel for an operator, and nothing of
    the model."""
    return isinstance(why, native.NotImplemented) or _UNREGISTERED in str(why)


def single_node_model(node: ir.Node, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """`node` as a model: what it reads are inputs, except for small constants."""
    inputs: list[onnx.ValueInfoProto] = []
    constants: list[onnx.TensorProto] = []
    for value in dict.fromkeys(value for value in node.inputs if value is not None and value.name):
        constant, kind = small_constant(value), type_proto(value)
        if constant is not None:
            constants.append(constant)
        elif kind is None or value.shape is None or not value.shape.is_static():
            raise ValueError(f"type and shape of its input {value.name} are unknown")
        else:
            inputs.append(onnx.ValueInfoProto(name=value.name, type=kind))
    outputs = [onnx.ValueInfoProto(name=value.name) for value in node.outputs if value.name]
    proto = ir.serde.serialize_node(node)
    graph = helper.make_graph([proto], "node", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def session_options() -> onnxruntime.SessionOptions:
    """One thread, no rewriting: the same bytes everywhere. Nodes run in the order of the file, so
    that what is read at once is held no longer. Nothing is logged: the exceptions say it."""
    options = onnxruntime.SessionOptions()
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _SILENT
    return options


def open_session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime; ValueError with its reason where it refuses `proto`."""
    try:
        return onnxruntime.InferenceSession(
            proto.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
        )
    except (*RUNTIME_ERRORS, ValueError) as why:
        kind = NoKernel if lacks_kernel(why) else ValueError
        reason = str(why).rsplit(" : ", 1)[-1]  # the last part of what ONNX Runtime says
        raise kind(" ".join(reason.split())) from None


def _by_running(
    session: onnxruntime.InferenceSession, proto: onnx.ModelProto
) -> dict[str, Sequence[int]]:
    """Shapes of the outputs that are the same for inputs of zeros and of ones."""
    names = [port.name for port in session.get_outputs()]

    def shapes(fill: int) -> list[tuple[int, ...]]:
        kinds = {value.name: value.type.tensor_type for value in proto.graph.input}
        feeds = {
            name: np.full([dim.dim_value for dim in kind.shape.dim], fill,
                          helper.tensor_dtype_to_np_dtype(kind.elem_type))
            for name, kind in kinds.items()
        }  # fmt: skip
        return [np.shape(result) for result in session.run(names, feeds)]

    try:
        pairs = zip(names, shapes(0), shapes(1), strict=True)
    except (*RUNTIME_ERRORS, ValueError):
        return {}
    return {name: zeros for name, zeros, ones in pairs if zeros == ones}

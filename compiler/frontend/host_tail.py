"""Tails of a network whose sizes are known only when it runs: the host's, behind the program.

    picked = NonMaxSuppression(boxes, scores, ..); chosen = Gather(boxes, ids of picked)
 => chosen, chosen.extents = archgen.Tail(boxes, scores)

The one idea: nothing of such a tail comes back to the engines, so the program ends where it begins.
One call of the host computes all of it with the sizes that it finds. In memory a result has the
place that the most there can be takes; how much of it there is lies beside it. What may be most is
said by the operators with which a tail begins, and by all behind them on that many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx.compose import add_prefix_graph

from compiler.errors import CompilerError, UnsupportedModel
from compiler.frontend.control_flow import reads
from compiler.frontend.operators.definitions import REASON
from compiler.frontend.rewrite import (
    ARCHGEN,
    ORIGIN,
    const,
    forget_names,
    input_of,
    is_op,
    is_static,
    label_of,
    origin_of,
    required,
    static_shape,
)

TAIL = "Tail"
BODY = "body"
"""Attribute of a tail: its nodes, serialized, as a graph of its own."""
EXTENTS = ".extents"
SIZED = "archgen.sized"
"""Key, in the metadata of a model, of its outputs of unknown size: name -> that of its extents."""
_PREFIX = "tail."
_PRODUCTS = frozenset(
    ["Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "Gemm", "MatMul",
     "MatMulInteger", "QLinearMatMul", "Einsum", "LSTM", "GRU", "RNN", "Attention"]
)  # fmt: skip
_PADDED = frozenset(["FLOAT", "DOUBLE", "INT64", "INT32", "INT8", "UINT8", "BOOL"])
"""Element types that ONNX Runtime pads."""
Shapes = list[tuple[int, ...]]


def _boxes(node: ir.Node) -> Shapes:
    boxes, scores = (static_shape(required(node, index)) for index in (0, 1))
    most = const(input_of(node, 2))
    each = boxes[1] if most is None else min(boxes[1], int(most.reshape(-1)[0]))
    return [(scores[0] * scores[1] * max(each, 1), 3)]


def _nonzero(node: ir.Node) -> Shapes:
    shape = static_shape(required(node, 0))
    return [(len(shape), math.prod(shape))]


def _unique(node: ir.Node) -> Shapes:
    shape, axis = static_shape(required(node, 0)), node.attributes.get("axis")
    if axis is None:
        return [(math.prod(shape),)] * 4
    return [shape, *[(shape[axis.as_int()],)] * 3]


def _compress(node: ir.Node) -> Shapes:
    shape, axis = static_shape(required(node, 0)), node.attributes.get("axis")
    (most,) = static_shape(required(node, 1))
    if axis is None:
        return [(min(math.prod(shape), most),)]
    place = axis.as_int() % len(shape)
    return [tuple(min(n, most) if a == place else n for a, n in enumerate(shape))]


MOST: dict[str, Callable[[ir.Node], Shapes]] = {
    "Compress": _compress,
    "NonMaxSuppression": _boxes,
    "NonZero": _nonzero,
    "Unique": _unique,
}
"""Operators whose results have a size that depends on data -> the largest shapes of these."""


@dataclass(frozen=True)
class _HostTail:
    """The nodes of a tail, and what it reads."""

    nodes: Sequence[ir.Node]
    first: Sequence[ir.Node]
    """Those with which it begins."""
    read: Mapping[str, ir.Value]
    constants: Mapping[str, ir.Value]


def set_tail_apart(model: ir.Model, load: Callable[[onnx.ModelProto, str], ir.Model]) -> str | None:
    """Let one node stand for what follows operators of data-dependent size, where the host may do
    all of that; else say why not. None where there is nothing to say. `load` gives shapes to a
    model of what follows on the largest sizes."""
    graph = model.graph
    part = _data_dependent_tail(graph)
    if part is None:
        return None
    if all(value.is_graph_input() for value in part.read.values()):
        return "nothing stands before it that engines could do"
    back = next((node for node in part.nodes if node.op_type in _PRODUCTS), None)
    if back is not None:
        return f"{label_of(back)} behind it would need what has no size on the engines"
    ends = [value for value in graph.outputs if value.producer() in part.nodes]
    try:
        shapes = _largest(model, part, ends, load)
    except CompilerError as why:
        return f"how large what follows may become is not known: {why}"
    except ValueError:
        return "how large what follows may become does not follow from what it is given"
    wrong = next((v for v in ends if v.dtype is None or v.dtype.name not in _PADDED), None)
    if wrong is not None:
        return f"output {wrong.name!r} is {wrong.dtype}, of which nothing is held back"
    _replace(model, part, ends, shapes)
    return None


def _data_dependent_tail(graph: ir.Graph) -> _HostTail | None:
    """What begins with operators whose size depends on data; None where there is no such part, or
    other operators have no shape."""
    nodes: list[ir.Node] = []
    made: set[ir.Value] = set()
    first: list[ir.Node] = []
    for node in graph:
        inside = not made.isdisjoint(reads(node))
        if not inside and all(map(is_static, node.outputs)):
            continue
        if not inside:
            if not is_op(node, *MOST):
                return None
            first.append(node)
        nodes.append(node)
        made.update(node.outputs)
    read: dict[str, ir.Value] = {}
    constants: dict[str, ir.Value] = {}
    for value in (v for node in nodes for v in reads(node) if v not in made):
        (read if value.const_value is None else constants)[str(value.name)] = value
    known = all(map(is_static, (*graph.inputs, *read.values())))
    return _HostTail(nodes, first, read, constants) if nodes and known and read else None


def _largest(
    model: ir.Model, part: _HostTail, ends: Sequence[ir.Value],
    load: Callable[[onnx.ModelProto, str], ir.Model],
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The largest shape of each of `ends`: as inferred where the first operators make the most."""
    made = [pair for n in part.first for pair in zip(n.outputs, MOST[n.op_type](n), strict=False)]
    found = {value.name: shape for value, shape in made if value.name}
    given = [*((value, static_shape(value)) for value in part.read.values()), *made]
    ports = [
        helper.make_tensor_value_info(
            value.name, (value.dtype or ir.DataType.UNDEFINED).value, shape
        )
        for value, shape in given
        if value.name
    ]
    later = [node for node in part.nodes if node not in part.first]
    rest = [value for value in ends if value.name not in found]
    if rest:
        results = [onnx.ValueInfoProto(name=value.name) for value in rest]
        nodes = [ir.to_proto(node) for node in later]
        graph = helper.make_graph(nodes, "tail", ports, results, _initializers(part))
        opsets = {name: n for name, n in model.opset_imports.items() if name != ARCHGEN}
        imports = [helper.make_opsetid(*each) for each in opsets.items()]
        tail = load(helper.make_model(graph, opset_imports=imports), "tail")
        if SIZED in tail.meta:
            again = [label_of(node) for node in later if is_op(node, *MOST)]
            raise UnsupportedModel(f"sizes behind it depend on data again, at {', '.join(again)}")
        found |= {str(value.name): static_shape(value) for value in tail.graph.outputs}
        for value, end in zip(rest, tail.graph.outputs, strict=True):
            value.type = end.type
    return found


def _initializers(part: _HostTail) -> list[onnx.TensorProto]:
    return [
        numpy_helper.from_array(value.const_value.numpy(), name)
        for name, value in part.constants.items()
        if value.const_value is not None
    ]


def _replace(
    model: ir.Model, part: _HostTail, ends: Sequence[ir.Value],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:  # fmt: skip
    graph = model.graph
    made: dict[str, ir.Value] = {}
    sized: dict[str, str] = {}
    inside: list[str] = []
    for value in ends:
        name, shape = str(value.name), shapes[str(value.name)]
        size = [math.prod(shape)] if shape else []
        made[name] = ir.Value(name=name, type=value.type, shape=ir.Shape(size))
        inside.append(f"{name}.padded" if shape else name)
        if shape:
            sized[name] = name + EXTENTS
            inside.append(sized[name])
            rank, kind = ir.Shape([len(shape)]), ir.TensorType(ir.DataType.INT64)
            made[sized[name]] = ir.Value(name=sized[name], type=kind, shape=rank)
    for value in made.values():
        forget_names(value)
    flat = [each for value in ends for each in _flat(str(value.name), shapes)]
    read, results = (
        [onnx.ValueInfoProto(name=name) for name in names] for names in (part.read, inside)
    )
    body = helper.make_graph(
        [*map(ir.to_proto, part.nodes), *flat], "tail", read, results, _initializers(part)
    )
    names = ", ".join(f"{node.op_type} {node.name!r}" for node in part.first)
    most = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items() if shape)
    reason = f"sizes behind {names} are known when it runs"
    node = ir.node(
        TAIL,
        list(part.read.values()),
        {BODY: body.SerializeToString().hex()},
        domain=ARCHGEN,
        outputs=list(made.values()),
        name=f"{part.first[0].name}.tail",
        metadata_props={
            ORIGIN: origin_of(*part.nodes),
            REASON: f"{reason}; reckoned with the most there can be: {most}",
        },
    )
    kept = [made.get(str(value.name), value) for value in graph.outputs]
    for value in ends:
        value.name = f"{value.name}.inside"
    graph.outputs.clear()
    graph.remove(list(reversed(part.nodes)), safe=True)
    graph.append(node)
    graph.outputs.extend([*kept, *(made[name] for name in sized.values())])
    model.meta[SIZED] = sized


def _flat(name: str, shapes: Mapping[str, tuple[int, ...]]) -> list[onnx.NodeProto]:
    """A result as a row of as many elements as there can be, and its extents."""
    if not shapes[name]:
        return []

    def number(out: str, *values: int) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [out], value_ints=list(values))

    at = f"{name}.flat"
    return [
        helper.make_node("Shape", [name], [f"{name}{EXTENTS}"]),
        number(f"{at}.all", -1),
        helper.make_node("Reshape", [name, f"{at}.all"], [f"{at}.row"]),
        helper.make_node("Shape", [f"{at}.row"], [f"{at}.size"]),
        number(f"{at}.most", math.prod(shapes[name])),
        helper.make_node("Sub", [f"{at}.most", f"{at}.size"], [f"{at}.rest"]),
        number(f"{at}.none", 0),
        helper.make_node("Concat", [f"{at}.none", f"{at}.rest"], [f"{at}.pads"], axis=0),
        helper.make_node("Pad", [f"{at}.row", f"{at}.pads"], [f"{name}.padded"]),
    ]


def written_tail(node: ir.Node) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """The nodes of a tail for the host, and its constants."""
    graph = onnx.GraphProto.FromString(bytes.fromhex(node.attributes[BODY].as_string()))
    add_prefix_graph(graph, _PREFIX, inplace=True)  # no other node has such names
    before = [
        helper.make_node("Identity", [str(value.name)], [port.name])
        for value, port in zip(node.inputs, graph.input, strict=True)
        if value is not None
    ]
    after = [
        helper.make_node("Identity", [port.name], [str(value.name)])
        for value, port in zip(node.outputs, graph.output, strict=True)
    ]
    return [*before, *graph.node, *after], list(graph.initializer)

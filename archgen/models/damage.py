"""What is wrong with a file that parses as an ONNX model and cannot be one.

The one idea: everything behind takes names for text, types for known ones, attributes for what
their operators define, constants for as long as their shapes say, and graphs for free of cycles; a
file where they are not is turned away here, with the place that is damaged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any, TypeVar

import onnx
from onnx import AttributeProto, TensorProto, helper

from archgen.zoo.shapes import all_graphs, bodies
from compiler.api import at_node, operator_name

_TYPES = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_NARROW = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2, "FLOAT6E2M3": 6,
           "FLOAT6E3M2": 6}  # fmt: skip
"""Bits of the types of which several share a byte."""
_FULL_BYTES = ("FLOAT6E2M3", "FLOAT6E3M2")
"""Types that share bytes in raw data alone."""
_SHOWN = 6
"""Nodes of a cycle that are named."""

Place = TypeVar("Place", bound=Hashable)
Versions = Mapping[str, int]
"""Operator sets by domain."""


def data_damage(tensor: TensorProto, outside: int | None = None) -> str | None:
    """What is wrong with how much data `tensor` holds itself, or as bytes of a file `outside`;
    None: it is what its shape says."""
    kind = TensorProto.DataType.Name(tensor.data_type)
    count = prod(tensor.dims)
    packed = -(-count * _NARROW.get(kind, 8) // 8)
    raw = len(tensor.raw_data) if tensor.HasField("raw_data") else outside
    if raw is not None and kind != "STRING":
        width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        held, wanted, what = raw, packed * width, "bytes"
    else:
        held = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
        wanted, what = packed if kind not in _FULL_BYTES else count, "numbers"
        wanted *= 2 if kind.startswith("COMPLEX") else 1
    if held == wanted:
        return None
    return f"holds {held} {what} of data, and its shape {list(tensor.dims)} takes {wanted}"


def damages(proto: onnx.ModelProto) -> Iterator[str]:
    """What is damaged, in words."""
    versions = _versions(proto.opset_import)
    yield from _graph_damages(proto.graph, versions)
    for function in proto.functions:
        own = versions | _versions(function.opset_import)
        for index, node in enumerate(function.node):
            yield from _node_damages(node, f"node {index} of function {function.name!r}", own)
        yield from _cycle_mistakes(function.node, f"function {function.name!r}: ")
    yield from _recursions(proto.functions)
    for value in proto.graph.input:
        kind = value.type.tensor_type
        if value.type.HasField("tensor_type") and kind.elem_type not in _TYPES:
            known = "no element type" if not kind.elem_type else "an unknown element type"
            yield f"input {value.name!r} has {known} ({kind.elem_type})"


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {"" if each.domain == "ai.onnx" else each.domain: each.version for each in imports}


def _graph_damages(graph: onnx.GraphProto, versions: Versions) -> Iterator[str]:
    for index, node in enumerate(graph.node):
        yield from _node_damages(node, f"node {index}", versions)
    for what, values in (("input", graph.input), ("output", graph.output)):
        for index, value in enumerate(values):
            yield from _not_text(f"{what} {index}", name=value.name)
    for index, tensor in enumerate(graph.initializer):
        yield from _not_text(f"initializer {index}", name=tensor.name)
        yield from _tensor_damages(tensor, f"initializer {tensor.name!r}")
    yield from _made_twice(graph)
    yield from _cycle_mistakes(graph.node)


def _made_twice(graph: onnx.GraphProto) -> Iterator[str]:
    """Values of one name that two nodes make, or a node and the file."""
    makers: dict[str, str] = {value.name: "the model's inputs" for value in graph.input}
    makers |= {tensor.name: "the file's constants" for tensor in graph.initializer}
    for node in graph.node:
        for name in filter(None, node.output):
            if name in makers:
                yield f"{called(node)} makes {name!r}, and so do {makers[name]}"
            makers[name] = f"the results of {called(node)}"


def _tensor_damages(tensor: TensorProto, what: str) -> Iterator[str]:
    if tensor.data_type not in _TYPES:
        yield f"{what} has an unknown element type ({tensor.data_type})"
    elif any(extent < 0 for extent in tensor.dims):
        yield f"{what} has a negative extent ({list(tensor.dims)})"
    elif tensor.data_location != TensorProto.EXTERNAL and (found := data_damage(tensor)):
        yield f"{what} {found}"


def _node_damages(node: onnx.NodeProto, where: str, versions: Versions) -> Iterator[str]:
    texts = {"name": node.name, "operator type": node.op_type, "domain": node.domain}
    texts |= {f"input {index}": name for index, name in enumerate(node.input)}
    texts |= {f"output {index}": name for index, name in enumerate(node.output)}
    yield from _not_text(where, **texts)
    for attribute in node.attribute:
        yield from _not_text(where, attribute=attribute.name)
        if attribute.type == AttributeProto.TENSOR:
            yield from _tensor_damages(attribute.t, f"{where}: its {attribute.name!r}")
    for inner in bodies(node):
        yield from _graph_damages(inner, versions)
    yield from _attribute_damages(node, versions)


def _attribute_damages(node: onnx.NodeProto, versions: Versions) -> Iterator[str]:
    """Attributes of another type than the operator's definition gives them."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        known = onnx.defs.get_schema(node.op_type, versions.get(domain, 1), domain).attributes
    except onnx.defs.SchemaError:
        return  # whether anybody knows the operator is asked later
    if node.op_type == "Constant" and len(node.attribute) != 1:
        yield f"{called(node)} has {len(node.attribute)} attributes, not one value"
    for attribute in node.attribute:
        if attribute.name not in known:
            continue
        defined: Any = known[attribute.name].type  # the stubs do not tell that it is an enum
        wanted = int(defined.value)
        if attribute.type != wanted:
            held, expected = map(_attribute_type_text, (attribute.type, wanted))
            yield (
                f"{called(node)}: its attribute {attribute.name!r} holds {held} "
                f"where {expected} belongs"
            )


def _attribute_type_text(number: int) -> str:
    """`one int`, `several strings`."""
    if number == AttributeProto.UNDEFINED:
        return "a value of no type"
    name = AttributeProto.AttributeType.Name(number).lower()
    return f"several {name}" if name.endswith("s") else f"one {name}"


def _cycle_mistakes(nodes: Sequence[onnx.NodeProto], where: str = "") -> Iterator[str]:
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before = {
        index: {makers[name] for name in _names_read(node) if name in makers}
        for index, node in enumerate(nodes)
    }
    if cycle := _cycle(before):
        shown = _chain([called(nodes[index]) for index in cycle])
        yield f"{where}nodes wait for each other in a circle: {shown}"


def called(node: onnx.NodeProto) -> str:
    """How messages name a node that may have no name."""
    operator = operator_name(node.op_type, node.domain)
    made = next(filter(None, node.output), "nothing")
    return at_node(node.name, operator) if node.name else f"the {operator} that makes {made!r}"


def _names_read(node: onnx.NodeProto) -> set[str]:
    """Names that `node` reads, those among them that its subgraphs take from around them."""
    found = set(node.input)
    for graph in bodies(node):
        own = {name for inner in graph.node for name in inner.output}
        own |= {value.name for value in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            found |= _names_read(inner) - own
    return found


def _recursions(functions: Sequence[onnx.FunctionProto]) -> Iterator[str]:
    """A function that calls itself, also by way of others."""
    calls = {
        (f.domain, f.name, f.overload): {
            (node.domain, node.op_type, node.overload)
            for graph in all_graphs(onnx.GraphProto(node=f.node))
            for node in graph.node
        }
        for f in functions
    }
    known = {name: called & calls.keys() for name, called in calls.items()}
    if cycle := _cycle(known):
        shown = _chain([repr(operator_name(name, domain)) for domain, name, _ in reversed(cycle)])
        yield f"a function may not call itself, and one does: {shown}"


def _cycle(before: Mapping[Place, Iterable[Place]]) -> list[Place]:
    """Places each of which is before the next, the last the first again; empty: there are none."""
    try:
        TopologicalSorter(before).prepare()
    except CycleError as found:
        cycle: list[Place] = found.args[1]
        return cycle
    return []


def _chain(shown: Sequence[str]) -> str:
    middle = [*shown[:_SHOWN], "..."] if len(shown) > _SHOWN else shown
    return " > ".join(middle)


def _not_text(where: str, **texts: object) -> Iterator[str]:
    """protobuf gives bytes for what should be text and is not."""
    for what, text in texts.items():
        if not isinstance(text, str):
            yield f"{where}: its {what} is not text ({text!r})"

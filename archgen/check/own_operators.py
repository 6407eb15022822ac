"""A model with operators that ONNX Runtime has not: run in parts, between them.

The one idea: a model's nodes stand in an order in which they can run, so a user's operators cut it
into stretches of which ONNX Runtime runs each as a model of its own; the operators themselves are
computed by their references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from archgen.models.errors import ModelError
from archgen.zoo.shapes import names_read
from compiler.api import OperatorFailed, compute_own, is_own

Array = NDArray[Any]
RunPart = Callable[[onnx.ModelProto, Mapping[str, Array]], Mapping[str, Array]]
"""All outputs of a model by name, from its inputs."""
RunNode = Callable[[bytes, Sequence[Array]], list[Array]]


def has_own(proto: onnx.ModelProto) -> bool:
    """Whether a node of the graph has a reference that is not ONNX Runtime."""
    return any(is_own(node) for node in proto.graph.node)


def run_in_parts(
    light: onnx.ModelProto,
    proto: onnx.ModelProto,
    feeds: Mapping[str, Array],
    run: RunPart,
    run_node: RunNode,
) -> dict[str, Array]:
    """All outputs of ``light`` by name, whose constants are in ``proto``; ``run`` runs what stands
    between operators of users.

    Raises ``ModelError`` where a reference fails.
    """
    values = dict(feeds)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    wanted = {value.name for value in light.graph.output}
    nodes = list(light.graph.node)
    for start, stop in _stretches(nodes):
        part = nodes[start:stop]
        read_later = wanted | _reads(nodes[stop:])
        made = [name for node in part for name in node.output if name in read_later]
        if made:
            read = _reads(part)
            fed = {name: array for name, array in values.items() if name in read}
            values |= run(_submodel(light, part, made, fed), fed)
        if stop < len(nodes):
            own = nodes[stop]
            try:
                held = {n: numpy_helper.to_array(constants[n]) for n in own.input if n in constants}
                operands = [held[n] if n in held else values[n] if n else None for n in own.input]
                results = compute_own(own, operands, constants, run_node)
            except OperatorFailed as mistake:
                raise ModelError(str(mistake)) from mistake
            values |= zip((name for name in own.output if name), results, strict=False)
    kept = {name: numpy_helper.to_array(t) for name, t in constants.items() if name in wanted}
    return {name: kept[name] if name in kept else values[name] for name in wanted}


def _stretches(nodes: Sequence[onnx.NodeProto]) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of what stands before, between and behind operators of users."""
    start = 0
    for position, node in enumerate(nodes):
        if is_own(node):
            yield start, position
            start = position + 1
    yield start, len(nodes)


def _reads(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Names that `nodes` read, also inside of their subgraphs."""
    return names_read(onnx.GraphProto(node=nodes))


def _submodel(
    light: onnx.ModelProto,
    part: Sequence[onnx.NodeProto],
    made: Sequence[str],
    feeds: Mapping[str, Array],
) -> onnx.ModelProto:
    """A stretch as a model, whose inputs are `feeds`."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    read = _reads(part)
    graph = onnx.GraphProto(name=light.graph.name, node=part, input=inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    graph.initializer.extend(t for t in light.graph.initializer if t.name in read)
    return onnx.ModelProto(
        ir_version=light.ir_version, opset_import=light.opset_import, functions=light.functions,
        graph=graph,
    )  # fmt: skip

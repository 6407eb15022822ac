"""Constants inside of what the host runs that follow from a length: handed to it like any tensor.

    call(x), with the angles of position 32 inside, at past=32    =>    call(x, angles)

The one idea: a payload says nothing of lengths but by such constants and by the shapes that it
declares, so without them it is the same at all lengths; and a tensor may be a row of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import helper, numpy_helper

from compiler.nest.ir import HostNode, NestGraph, Storage, Tensor, row_major
from compiler.nest.registers import Point
from simmodel.dtype import NAMES


def with_host_constants(graphs: Mapping[Point, NestGraph]) -> dict[Point, NestGraph]:
    """`graphs` of one network at several lengths, of the same operators: what differs inside of
    payloads is an input of their calls."""
    made = dict(graphs)
    for number, step in enumerate(next(iter(graphs.values())).steps):
        if isinstance(step, HostNode) and step.pick is None:
            names = _differing([_call(graph, number).payload for graph in graphs.values()])
            made = {point: _handed(graph, number, names) for point, graph in made.items()}
    return made


def _call(graph: NestGraph, number: int) -> HostNode:
    step = graph.steps[number]
    assert isinstance(step, HostNode)
    return step


def _differing(payloads: Sequence[bytes]) -> list[str]:
    """Constants of payloads that are others in some of them and that memory can hold."""
    if len({*payloads}) == 1:
        return []
    known: dict[str, set[bytes]] = {}
    for payload in payloads:
        for tensor in onnx.load_model_from_string(payload).graph.initializer:
            data = tensor.SerializeToString(deterministic=True)
            if numpy_helper.to_array(tensor).dtype in NAMES:
                known.setdefault(tensor.name, set()).add(data)
    return [name for name, seen in known.items() if len(seen) > 1]


def _handed(graph: NestGraph, number: int, names: Sequence[str]) -> NestGraph:
    """`graph` with constants of a call as its inputs."""
    step = _call(graph, number)
    proto = onnx.load_model_from_string(step.payload)
    held = {tensor.name: tensor for tensor in proto.graph.initializer}
    if not names or not {*names} <= held.keys():
        return graph
    tensors, buffers = dict(graph.tensors), dict(graph.buffers)
    for name in names:
        data = numpy_helper.to_array(held[name])
        storage = Storage(name, 0, row_major(data.shape))
        if name not in tensors:
            tensors[name] = Tensor(name, data.shape, NAMES[data.dtype], storage, data)
            buffers[name] = data.size
        kind = held[name].data_type
        proto.graph.input.append(helper.make_tensor_value_info(name, kind, data.shape))
        proto.graph.initializer.remove(held[name])
    call = replace(
        step, inputs=(*step.inputs, *names), payload=proto.SerializeToString(deterministic=True)
    )
    steps = (*graph.steps[:number], call, *graph.steps[number + 1 :])
    return replace(graph, tensors=tensors, buffers=buffers, steps=steps)

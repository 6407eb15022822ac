"""Error bound of a host operator's result, against the same operator in a reference.

The one idea: a host operator is a black box, so its sensitivity is measured. It is run again with
its inputs, and its own constants, perturbed by their error bounds; the result may change as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.reference_types import nodes_within
from compiler.tensor_ir.interpreter import Host
from compiler.tensor_ir.nest import Array, HostNode
from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import EPSILON, FLOATS

_ROUNDINGS = 32.0
"""Of fp32, within an operator of the reference."""


def host_error(values: Array) -> Array | None:
    """Error bound of real results before they are rounded to their type in memory; None for
    integers."""
    if NAMES[values.dtype] not in FLOATS:
        return None
    unit = _ROUNDINGS * EPSILON["fp32"]
    sizes = np.abs(values.astype(np.float64))
    finite = np.isfinite(sizes)
    largest = float(sizes[finite].max(initial=0.0))
    return np.where(finite, unit * (sizes + largest), 0.0)


def moved_by(
    host: Host, payload: bytes, given: Sequence[Array], errors: Sequence[Array | None]
) -> tuple[list[Array], list[Array]]:
    """Results of a host operator, and the change of each element when its inputs move by their
    errors."""
    results = host(payload, list(given))
    moved = [np.zeros(np.shape(values)) for values in results]
    for sign in (-1, 1):
        ends = [
            values if error is None else (values + sign * error).astype(values.dtype)
            for values, error in zip(given, errors, strict=True)
        ]
        _widen(moved, results, host(payload, ends))
    return results, moved


def tied(host: Host, payload: bytes, given: Sequence[Array]) -> list[Array]:
    """Change of each element of a host operator when its real constants, and values that it
    quantizes, are rounded otherwise: integers at a tie may go either way."""
    results = host(payload, list(given))
    moved = [np.zeros(np.shape(values)) for values in results]
    for sign in (-1, 1):
        unit = sign * _ROUNDINGS * EPSILON["fp32"]
        for other in (_nudged(payload, 1 + unit), _shaken(payload, unit)):
            if other is not None:
                _widen(moved, results, host(other, list(given)))
    return moved


def _widen(moved: list[Array], results: Sequence[Array], others: Sequence[Array]) -> None:
    for position, (values, other) in enumerate(zip(results, others, strict=True)):
        if other.shape != values.shape:  # how much there is depends on it: a threshold was crossed
            moved[position] = np.full(values.shape, np.inf)
            continue
        change = np.abs(other.astype(np.float64) - values.astype(np.float64))
        moved[position] = np.fmax(moved[position], change)


def read_on(node: HostNode) -> list[str]:
    """Results of a host call that it reads itself."""
    if len(node.outputs) < 2:
        return []
    graph = onnx.load_model_from_string(node.payload).graph
    read = {name for _, inner in nodes_within(graph.node) for name in inner.input}
    pairs = zip(node.outputs, graph.output, strict=True)
    return [name for name, made in pairs if made.name in read]


def decoded_beside(node: HostNode, readers: Mapping[str, int]) -> list[str]:
    """Results of a host call that are decoded from integers which others, in the call or among the
    `readers` of its inputs, read as they are."""
    if b"DequantizeLinear" not in node.payload:
        return []
    graph = onnx.load_model_from_string(node.payload).graph
    given = zip((each.name for each in graph.input), node.inputs, strict=True)
    outside = {name: readers[tensor] - 1 for name, tensor in given}
    inside = Counter(name for _, inner in nodes_within(graph.node) for name in inner.input)
    decoded = {
        inner.output[0]
        for inner in graph.node
        if inner.op_type == "DequantizeLinear"
        and inside[inner.input[0]] + outside.get(inner.input[0], 0) > 1
    }
    pairs = zip(node.outputs, graph.output, strict=True)
    return [name for name, made in pairs if made.name in decoded]


_SHAPING = frozenset({"Resize", "Upsample", "Range"})
"""Operators whose real constants are extents or ratios of them, which nobody rounds."""


def _nudged(payload: bytes, factor: float) -> bytes | None:
    """A payload with its real constants multiplied by `factor`, except shapes; None if it has
    none."""
    model = onnx.load_model_from_string(payload)
    shaping = {name for n in model.graph.node if n.op_type in _SHAPING for name in n.input}
    constants = (t for t in model.graph.initializer if t.name not in shaping)
    real = [t for t in constants if t.data_type == onnx.TensorProto.FLOAT]
    for tensor in real:
        values = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model.SerializeToString() if real else None


def _shaken(payload: bytes, unit: float) -> bytes | None:
    """A payload in which the real values that it makes and then quantizes are off by `unit` of
    themselves and of the largest of them; None where there are none.

    Constants alone do not show that: one scale in front of a mean and one behind it cancel.
    """
    model = onnx.load_model_from_string(payload)
    graph = model.graph
    made = {name for node in graph.node for name in node.output}
    real = {t.name for t in graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        quantizes = node.op_type == "QuantizeLinear" and node.input[1] in real
        if quantizes and node.input[0] in made:
            nodes += _off_by(unit, node.input[0], f"{node.output[0]}.off")
            node.input[0] = nodes[-1].output[0]
        nodes.append(node)
    if len(nodes) == len(graph.node):
        return None
    whole = onnx.GraphProto()
    whole.node.extend(nodes)
    del graph.node[:]
    graph.MergeFrom(whole)
    code: bytes = model.SerializeToString()
    return code


def _off_by(unit: float, of: str, name: str) -> Iterator[onnx.NodeProto]:
    """Nodes that add `unit` of the sizes of a value, and of the largest size in it."""
    sizes, largest, both, share, factor = (f"{name}.{part}" for part in range(5))
    yield helper.make_node("Abs", [of], [sizes])
    yield helper.make_node("ReduceMax", [sizes], [largest], keepdims=1)
    yield helper.make_node("Add", [sizes, largest], [both])
    yield helper.make_node("Constant", [], [factor], value_float=unit)
    yield helper.make_node("Mul", [both, factor], [share])
    yield helper.make_node("Add", [of, share], [name])

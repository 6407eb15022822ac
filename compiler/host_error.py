"""How far the result of a host operator may be off from the same operator in a reference.

The one idea: a host operator is a black box, so its errors are measured. It is run again with what
it reads, or its own constants, moved by as much as they may be off; what moves with them may move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.nest.interp import Host
from compiler.nest.ir import Array, HostNode
from simmodel.dtype import EPSILON, FLOATS, NAMES

_ROUNDINGS = 32.0
"""Of fp32, in an operator that the reference computes among others."""


def host_error(values: Array) -> Array | None:
    """What real results may be off by before they are rounded to their type in memory; None for
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
    """Results of a host operator, and how far each element moves with what it is given."""
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
    """How far each element of a host operator moves with roundings of its real constants: integers
    that lie at a tie may go either way."""
    results = host(payload, list(given))
    moved = [np.zeros(np.shape(values)) for values in results]
    for sign in (-1, 1):
        other = _nudged(payload, 1 + sign * _ROUNDINGS * EPSILON["fp32"])
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
    """Those results of a call to the host that it reads itself."""
    if len(node.outputs) < 2:
        return []
    graph = onnx.load_model_from_string(node.payload).graph
    read = set(_reads(graph))
    pairs = zip(node.outputs, graph.output, strict=True)
    return [name for name, made in pairs if made.name in read]


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _reads(body)


_SHAPING = frozenset({"Resize", "Upsample", "Range"})
"""Operators whose real constants are extents or ratios of them, which nobody rounds."""


def _nudged(payload: bytes, factor: float) -> bytes | None:
    """A payload with its real constants multiplied by `factor`, but for those that say a shape;
    None where it has none."""
    model = onnx.load_model_from_string(payload)
    shaping = {name for n in model.graph.node if n.op_type in _SHAPING for name in n.input}
    constants = (t for t in model.graph.initializer if t.name not in shaping)
    real = [t for t in constants if t.data_type == onnx.TensorProto.FLOAT]
    for tensor in real:
        values = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model.SerializeToString() if real else None

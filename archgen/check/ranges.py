"""The ranges that the values of a network have on samples, by which an int8 network has its scales.

    at 1 token: r in -9.1 .. 3.0          at 512: r in -2.4 .. 4.2          together: -9.1 .. 4.2

The one idea: ONNX Runtime tells three numbers of each value right behind the node that makes it,
and lets the value go: its least and largest element, and the sum of all of them times zero, which
is undefined where any is infinite or undefined. One network computes at all lengths with the same
scales, so a range goes as far as the value does at any of those that are tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnxruntime.quantization.calibrate import TensorData

from archgen.check.quantized_parts import PRODUCTS
from archgen.check.reference import Detached, detached
from archgen.zoo.shapes import without_data

Array = NDArray[Any]
Sample = Mapping[str, Array]

_ALL_INPUTS = {*PRODUCTS, "Add", "Mul", "Concat"}
"""Operators that read more numbers to be rounded than their first input."""
_ZERO = "range.zero"


@dataclass(frozen=True)
class Ranges:
    """What float32 values of a network are on samples."""

    found: Mapping[str, TensorData] = field(repr=False)
    """Of each value that is no constant."""
    unscaled: frozenset[str]
    """Values and constants with infinite or undefined elements, or so large ones that a range from
    -x to x is not finite: there is no scale for them."""

    def united(self, other: Ranges) -> Ranges:
        """These, each as wide as ``other`` makes it."""
        wide = dict(self.found)
        for name in wide.keys() & other.found.keys():
            one, more = wide[name], other.found[name]
            wide[name] = TensorData(
                lowest=np.minimum(one.lowest, more.lowest),
                highest=np.maximum(one.highest, more.highest),
            )
        return Ranges(wide, self.unscaled | other.unscaled)


def observed(proto: onnx.ModelProto, kinds: Collection[str], samples: Sequence[Sample]) -> Ranges:
    """Ranges on ``samples`` of what operators of ``kinds`` read and make. Raises ``ModelError``
    where ONNX Runtime cannot run ``proto``."""
    nodes = [node for node in proto.graph.node if node.op_type in kinds]
    real = _real_values(proto)
    names = [n for n in dict.fromkeys(n for each in nodes for n in _ports(each)) if n in real]
    rounded = {name for node in nodes for name in touched(node)}
    constants = (tensor for tensor in proto.graph.initializer if tensor.name in rounded)
    unscaled = {tensor.name for tensor in constants if not _scalable(tensor)}
    lowest = {name: np.full(1, np.inf, np.float32) for name in names}
    highest = {name: np.full(1, -np.inf, np.float32) for name in names}
    runner = Detached(_probed(proto, names), proto)
    for sample in samples if names else ():
        told = runner.run(sample)
        for position, name in enumerate(names):
            low, high, nothing = (told[probe].reshape(-1) for probe in _probes(position))
            if not low.size:
                low = high = np.zeros(1, np.float32)  # of no elements
            lowest[name] = np.fmin(lowest[name], low)
            highest[name] = np.fmax(highest[name], high)
            reach = np.abs([lowest[name], highest[name]]) * np.float32(2)
            if name in rounded and not (np.isfinite(reach).all() and np.isfinite(nothing).all()):
                unscaled.add(name)
    found = {name: TensorData(lowest=lowest[name], highest=highest[name]) for name in names}
    return Ranges(found, frozenset(unscaled))


def touched(node: onnx.NodeProto) -> Iterator[str]:
    """Values that a quantizer might round for ``node``."""
    yield from node.input if node.op_type in _ALL_INPUTS else node.input[:1]
    yield from node.output


def _ports(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    yield from node.output


def _real_values(proto: onnx.ModelProto) -> set[str]:
    """Float32 values that are no constants."""
    graph = shape_inference.infer_shapes(without_data(proto)).graph
    typed = (*graph.input, *graph.value_info, *graph.output)
    real = {v.name for v in typed if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    return real - {tensor.name for tensor in proto.graph.initializer}


def _scalable(tensor: TensorProto) -> bool:
    """Whether a constant is no float32, or twice each of its elements is finite."""
    return tensor.data_type != TensorProto.FLOAT or bool(
        np.isfinite(numpy_helper.to_array(tensor) * np.float32(2)).all()
    )


def _probed(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """``proto``, detached, whose outputs are the probes of ``names``, each as early as it can be:
    values that all waited for their probes would take the memory of all of them."""
    light = detached(proto)
    light.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), _ZERO))
    position_of = {name: position for position, name in enumerate(names)}
    given = [_probe(port.name, position_of) for port in light.graph.input]
    nodes = [node for each in given for node in each]
    for node in light.graph.node:
        nodes.append(node)
        for name in node.output:
            nodes += _probe(name, position_of)
    made = onnx.ModelProto()
    made.CopyFrom(light)
    del made.graph.node[:], made.graph.output[:]
    made.graph.node.extend(nodes)
    made.graph.output.extend(
        helper.make_tensor_value_info(probe, TensorProto.FLOAT, None)
        for position in range(len(names))
        for probe in _probes(position)
    )
    return made


def _probe(name: str, position_of: Mapping[str, int]) -> list[onnx.NodeProto]:
    """Nodes that tell of a value."""
    if name not in position_of:
        return []
    low, high, nothing = _probes(position_of[name])
    return [
        helper.make_node("ReduceMin", [name], [low]),
        helper.make_node("ReduceMax", [name], [high]),
        helper.make_node("Mul", [name, _ZERO], [f"{nothing}.terms"]),
        helper.make_node("ReduceSum", [f"{nothing}.terms"], [nothing]),
    ]


def _probes(position: int) -> tuple[str, str, str]:
    """Names of what is told of a value."""
    return f"range.{position}.low", f"range.{position}.high", f"range.{position}.nothing"

"""Values of a network for which no scale can be found: infinite, undefined or huge ones.

The one idea: ONNX Runtime tells which, on the samples that set the ranges. Beside each value that a
quantizer might round one number is computed: the sum of the value, doubled, times zero. It is zero,
or undefined where any element is not finite or so large that a range from -x to x is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference

from archgen.check.quantized_parts import PRODUCTS
from archgen.check.reference import Detached, detached
from archgen.zoo.shapes import without_data

Array = NDArray[Any]

_ALL_INPUTS = {*PRODUCTS, "Add", "Mul", "Concat"}
"""Operators that read more numbers to be rounded than their first input."""
_TWO, _ZERO = "no_scale.two", "no_scale.zero"


def without_scale(
    proto: onnx.ModelProto, kinds: Collection[str], samples: Sequence[Mapping[str, Array]]
) -> set[str]:
    """Names of float32 values, read or made by operators of ``kinds``, that have infinite,
    undefined or huge elements on any of ``samples``. Raises ``ModelError`` where ONNX Runtime
    cannot run ``proto``."""
    names = _candidates(proto, kinds)
    if not names:
        return set()
    light = detached(proto)
    light.graph.initializer.append(numpy_helper.from_array(np.array(2, np.float32), _TWO))
    light.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), _ZERO))
    del light.graph.output[:]
    for position, name in enumerate(names):
        light.graph.node.extend(_probe(name, position))
        light.graph.output.append(
            helper.make_tensor_value_info(_sum(position), TensorProto.FLOAT, [])
        )
    found: set[str] = set()
    runner = Detached(light, proto)
    for sample in samples:
        sums = runner.run(sample)
        found.update(n for p, n in enumerate(names) if np.isnan(sums[_sum(p)]))
    return found


def touched(node: onnx.NodeProto) -> Iterator[str]:
    """Values that a quantizer might round for ``node``."""
    yield from node.input if node.op_type in _ALL_INPUTS else node.input[:1]
    yield from node.output


def _candidates(proto: onnx.ModelProto, kinds: Collection[str]) -> list[str]:
    """Float32 values at operators of ``kinds``, in order."""
    graph = shape_inference.infer_shapes(without_data(proto)).graph
    typed = (*graph.input, *graph.value_info, *graph.output)
    real = {v.name for v in typed if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    real |= {t.name for t in proto.graph.initializer if t.data_type == TensorProto.FLOAT}
    nodes = (node for node in proto.graph.node if node.op_type in kinds)
    return [n for n in dict.fromkeys(n for node in nodes for n in touched(node)) if n in real]


def _probe(name: str, position: int) -> list[onnx.NodeProto]:
    doubled, nothing = f"no_scale.doubled.{position}", f"no_scale.nothing.{position}"
    return [
        helper.make_node("Mul", [name, _TWO], [doubled]),
        helper.make_node("Mul", [doubled, _ZERO], [nothing]),
        helper.make_node("ReduceSum", [nothing], [_sum(position)], keepdims=0),
    ]


def _sum(position: int) -> str:
    return f"no_scale.sum.{position}"

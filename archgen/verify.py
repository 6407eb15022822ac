"""Whether executed instructions computed what the reference computes.

The one idea: a tolerance follows from the number format, never from what was observed.

- Integer outputs: one unit. Quantized outputs (behind a DequantizeLinear): one step of their scale;
  through a Softmax, what one step of its input can change.
- Floating-point outputs: every layer rounds its result to the element type (unit round-off u) and
  adds up K products in fp32 (sqrt(K) u32, as the errors are of random sign); over a chain of L
  layers such errors grow like sqrt(L). So |error| <= C (u + sqrt(K) u32) sqrt(L) max|reference|,
  with C = 4: inputs, weights and results are each rounded, and 2 standard deviations are allowed.

A reference that is constant, or varies by less than the tolerance, would accept anything: such an
output is not counted as a proof, and the note says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from simmodel.dtype import EPSILON

Array = NDArray[Any]
SAFETY = 4.0

_MOVES = frozenset({
    "Cast", "Concat", "Constant", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice",
    "Split", "Squeeze", "Transpose", "Unsqueeze", "Expand", "Shape", "DequantizeLinear",
    "QuantizeLinear", "Relu", "Clip", "MaxPool", "Dropout",
})  # fmt: skip
"""Operators that move or select values: they add no rounding error and no gain."""


@dataclass(frozen=True)
class Comparison:
    """The verdict over all outputs of a model."""

    verified: bool | None
    """None when every output was too uniform to prove anything."""
    max_abs_error: float | None
    """Of the output that comes nearest to its tolerance, in that output's unit."""
    tolerance: float | None
    """Of the same output."""
    note: str = ""


def compare(
    actual: Mapping[str, Array], expected: Mapping[str, Array], proto: onnx.ModelProto, dtype: str
) -> Comparison:
    """Compare all outputs in `expected` with those in `actual`, both by name.

    `proto` is the model that the reference ran, `dtype` the element type that was compiled. A
    missing output or another shape is a difference, not an error.
    """
    graph = Rounding(proto.graph, dtype)
    worst: tuple[float, float, float] | None = None
    notes: list[str] = []
    proved, wrong = False, False
    for name, reference in expected.items():
        if reference.dtype.kind not in "biuf" and reference.dtype.name != "bfloat16":
            notes.append(f"{name}: {reference.dtype} outputs are not compared")
            continue
        if name not in actual or actual[name].shape != reference.shape:
            shape = list(actual[name].shape) if name in actual else "missing"
            notes.append(f"{name}: is {shape}, should be {list(reference.shape)}")
            wrong = True
            continue
        tolerance = graph.tolerance(name, reference)
        error = _largest_difference(actual[name], reference)
        excess = error / tolerance if tolerance else math.inf if error else 0.0
        if worst is None or excess > worst[0]:
            worst = (excess, error, tolerance)
        wrong = wrong or excess > 1
        if _spread(reference) > tolerance:
            proved = True
        else:
            notes.append(f"{name}: the reference varies less than the tolerance, a weak comparison")
    verdict = False if wrong else True if proved else None
    if worst is None:
        return Comparison(verdict, None, None, "; ".join(notes))
    finite = worst[1] if math.isfinite(worst[1]) else None
    return Comparison(verdict, finite, worst[2], "; ".join(notes))


def _largest_difference(actual: Array, reference: Array) -> float:
    if reference.size == 0:
        return 0.0
    ours, theirs = actual.astype(np.float64), reference.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(ours - theirs))
    return math.inf if np.isnan(difference).any() else float(difference.max())


def _spread(reference: Array) -> float:
    values = reference.astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size < 2:
        return float(np.abs(values).max(initial=0.0))
    return float(values.max() - values.min())


class Rounding:
    """The rounding errors that a graph excuses in each of its outputs."""

    def __init__(self, graph: onnx.GraphProto, dtype: str) -> None:
        self.dtype = dtype
        self.producers = {name: node for node in graph.node for name in node.output}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.layers = self._chain(graph)
        self.products = max((self._reduction(node) for node in graph.node), default=1)

    def tolerance(self, name: str, reference: Array) -> float:
        """Largest excusable |error| of the output `name`, whose reference values are given."""
        if reference.dtype.kind in "biu":
            return 1.0
        finite = np.abs(reference.astype(np.float64))
        largest = float(finite[np.isfinite(finite)].max(initial=0.0))
        fine = EPSILON["fp32"] * math.sqrt(self.products)
        step, softened = self._step(name)
        if step is not None:
            slack = SAFETY * EPSILON["fp32"] * largest
            return slack + (math.expm1(2 * step) * largest if softened else step)
        coarse = EPSILON.get(self.dtype, EPSILON["fp32"])
        return SAFETY * (coarse + fine) * math.sqrt(max(self.layers, 1)) * largest

    def _step(self, name: str) -> tuple[float | None, bool]:
        """Scale of the quantization that `name` comes from, and whether through a Softmax."""
        softened = False
        while name in self.producers:
            node = self.producers[name]
            if node.op_type == "DequantizeLinear":
                return self._scale(node.input[1]), softened
            if node.op_type == "Softmax":
                softened = True
            elif node.op_type not in _MOVES and node.op_type not in ("Sigmoid", "Tanh"):
                return None, False
            if not node.input:
                return None, False
            name = node.input[0]
        return None, False

    def _scale(self, name: str) -> float | None:
        if name in self.initializers:
            return float(np.max(numpy_helper.to_array(self.initializers[name]).astype(np.float64)))
        node = self.producers.get(name)
        if node is None or node.op_type != "Constant" or not node.attribute[0].HasField("t"):
            return None
        return float(np.max(numpy_helper.to_array(node.attribute[0].t).astype(np.float64)))

    def _chain(self, graph: onnx.GraphProto) -> int:
        """Longest chain of operators that round."""
        depth: dict[str, int] = {}
        for node in graph.node:
            own = 0 if node.op_type in _MOVES else 1
            reached = own + max((depth.get(name, 0) for name in node.input), default=0)
            depth.update(dict.fromkeys(node.output, reached))
        return max((depth.get(value.name, 0) for value in graph.output), default=0)

    def _reduction(self, node: onnx.NodeProto) -> int:
        """Products added up for one element of `node`'s result, where its weights are constant."""
        if node.op_type not in ("Conv", "Gemm", "MatMul") or len(node.input) < 2:
            return 1
        weights = self.initializers.get(node.input[1])
        if weights is None:
            return 1
        dims: list[int] = list(weights.dims)
        if node.op_type == "Conv":
            return max(1, math.prod(dims[1:]))
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return max(1, dims[-1] if transposed or len(dims) < 2 else dims[-2])

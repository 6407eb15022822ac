"""Whether executed instructions computed what the reference computes.

The one idea: every value is compared with what the reference makes of the values that the program
itself had before (`archgen.fed`). So one rounding is judged at a time, and if each step of a
network is right, so is the whole. What a program keeps on chip is computed again from what it
stored (`compiler.recompute`), and what it stores after that must agree (`archgen.drift`).
Tolerances follow from the number format:

- Integers: one unit for each rounding to integers since the last value that was fed; truth values
  exactly. Quantized outputs (behind a DequantizeLinear) one step of their scale; through a Softmax,
  what one step of its input can change.
- Floating-point values: every operator rounds its result to the element type (unit round-off u) and
  adds up K products in fp32 (sqrt(K) u32, as the errors are of random sign); over a chain of L
  operators such errors grow like sqrt(L). So |error| <= C (u + sqrt(K) u32) sqrt(L) max|reference|,
  with C = 4: inputs, weights and results are each rounded, and 2 standard deviations are allowed.

End to end the differences of a deep network tell nothing: one integer that a tie rounds the other
way changes thousands behind it. They are reported, not judged.

A reference that is constant, or varies by less than the tolerance, would accept anything: such a
value is not counted as a proof, and for an output the note says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from archgen.zoo.shapes import known_shapes
from simmodel.dtype import EPSILON

Array = NDArray[Any]
SAFETY = 4.0
SHOWN = 3
"""Mistakes that a note lists one by one."""

_MOVES = frozenset({
    "Cast", "Concat", "Constant", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice",
    "Split", "Squeeze", "Transpose", "Unsqueeze", "Expand", "Shape", "DequantizeLinear",
    "QuantizeLinear", "Relu", "Clip", "MaxPool", "Dropout",
})  # fmt: skip
"""Operators that move or select values: they add no rounding error and no gain."""


@dataclass(frozen=True)
class Comparison:
    """The verdict over all compared values."""

    verified: bool | None
    """None when every value was too uniform to prove anything."""
    compared: int = 0
    """How many values were compared: outputs, and results of operators on the way."""
    excess: float | None = None
    """The largest difference as a fraction of what is excused there; more than 1 is wrong."""
    max_step_error: float | None = None
    """Largest difference of an integer value, in units."""
    max_abs_error: float | None = None
    """Of the output that comes nearest to its tolerance, in that output's unit."""
    tolerance: float | None = None
    """Of the same output."""
    note: str = ""


@dataclass(frozen=True)
class _Judged:
    """One value: how far it is off, and how far it may be."""

    name: str
    error: float
    tolerance: float
    integer: bool
    proves: bool

    @property
    def excess(self) -> float:
        if self.tolerance:
            return self.error / self.tolerance
        return math.inf if self.error else 0.0


def compare(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    proto: onnx.ModelProto,
    dtype: str,
    outputs: Collection[str] | None = None,
) -> Comparison:
    """Compare all values in `expected` with those in `actual`, both by name.

    Args:
        actual, expected: what the program and the reference computed. A missing value or another
            shape is a difference, not an error.
        proto: the model that the reference ran; where it is cut, roundings are counted from there.
        dtype: element type that was compiled.
        outputs: which values are outputs of the model; default: all.
    """
    rounding = Rounding(proto, dtype)
    judged: list[_Judged] = []
    wrong: list[str] = []
    notes: list[str] = []
    shown = set(expected if outputs is None else outputs)
    for name, reference in expected.items():
        if reference.dtype.kind not in "biuf" and reference.dtype.name != "bfloat16":
            notes.append(f"{name}: {reference.dtype} outputs are not compared")
            continue
        if name not in actual or actual[name].shape != reference.shape:
            shape = list(actual[name].shape) if name in actual else "missing"
            wrong.append(f"{name}: is {shape}, should be {list(reference.shape)}")
            continue
        found = _judged(name, actual[name], reference, rounding.tolerance(name, reference))
        judged.append(found)
        if found.excess > 1:
            wrong.append(f"{name}: off by {found.error:.3g}, tolerance {found.tolerance:.3g}")
        if not found.proves and name in shown:
            notes.append(f"{name}: the reference varies less than the tolerance, a weak comparison")
    verdict = False if wrong else True if any(each.proves for each in judged) else None
    notes = [
        *wrong[:SHOWN],
        *([f"{len(wrong)} values are wrong"] if wrong[SHOWN:] else []),
        *notes,
    ]
    return _summary(verdict, judged, shown, "; ".join(notes))


def _judged(name: str, actual: Array, reference: Array, tolerance: float) -> _Judged:
    error = largest_difference(actual, reference)
    proves = _spread(reference) > tolerance
    return _Judged(name, error, tolerance, reference.dtype.kind in "biu", proves)


def _summary(
    verdict: bool | None, judged: Sequence[_Judged], shown: Collection[str], note: str
) -> Comparison:
    outputs = [each for each in judged if each.name in shown]
    worst = max(outputs, key=lambda each: each.excess, default=None)
    return Comparison(
        verified=verdict,
        compared=len(judged),
        excess=max((each.excess for each in judged), default=None),
        max_step_error=max((each.error for each in judged if each.integer), default=None),
        max_abs_error=None if worst is None else worst.error,
        tolerance=None if worst is None else worst.tolerance,
        note=note,
    )


def end_to_end(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float | None:
    """Largest difference of any output that both have in one shape; None where there is none."""
    errors = [
        largest_difference(actual[name], reference)
        for name, reference in expected.items()
        if reference.dtype.kind in "biuf"
        and name in actual
        and actual[name].shape == reference.shape
    ]
    return max(errors, default=None)


def largest_difference(actual: Array, reference: Array) -> float:
    """Largest |actual - reference|; infinite where one of them is no number and the other is."""
    if reference.size == 0:
        return 0.0
    ours, theirs = actual.astype(np.float64), reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        difference = np.abs(ours - theirs)
    undefined = np.isnan(difference)
    if not undefined.any():
        return float(difference.max())
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if (undefined & ~same).any():
        return math.inf
    return float(difference[~undefined].max(initial=0.0))


def _spread(reference: Array) -> float:
    values = reference.astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size < 2:
        return float(np.abs(values).max(initial=0.0))
    return float(values.max() - values.min())


@dataclass(frozen=True)
class _Path:
    """What lies between a value and the inputs of the graph, at worst."""

    rounded: int = 0
    """Operators that round floating-point numbers."""
    quantized: int = 0
    """Roundings to integers."""
    products: int = 1
    """Products added up for one element."""


class Rounding:
    """The rounding errors that a graph excuses in each of its values."""

    def __init__(self, proto: onnx.ModelProto, dtype: str) -> None:
        graph = proto.graph
        self.dtype = dtype
        self.shapes = known_shapes(proto)
        self.producers = {name: node for node in graph.node for name in node.output}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.given = {value.name for value in graph.input}
        self.paths: dict[str, _Path] = {}
        for node in graph.node:
            self.paths.update(dict.fromkeys(node.output, self._path(node)))

    def tolerance(self, name: str, reference: Array) -> float:
        """Largest excusable |error| of the value `name`, whose reference is given."""
        path = self.paths.get(name, _Path())
        if reference.dtype.kind == "b":
            return 0.0
        if reference.dtype.kind in "iu":
            return float(max(path.quantized, 1))
        finite = np.abs(reference.astype(np.float64))
        largest = float(finite[np.isfinite(finite)].max(initial=0.0))
        fine = EPSILON["fp32"] * math.sqrt(path.products)
        coarse = EPSILON.get(self.dtype, EPSILON["fp32"])
        step, softened = self._step(name)
        if step is not None:
            slack = SAFETY * EPSILON["fp32"] * largest
            return slack + (math.expm1(2 * step) * largest if softened else step)
        return SAFETY * (coarse + fine) * math.sqrt(max(path.rounded, 1)) * largest

    def _step(self, name: str) -> tuple[float | None, bool]:
        """Scale of the quantization that `name` comes from, and whether through a Softmax; None
        where those integers were given."""
        softened = False
        while name in self.producers:
            node = self.producers[name]
            if node.op_type == "DequantizeLinear":
                known = node.input[0] in self.given
                return (None if known else self._scale(node.input[1])), softened
            if node.op_type == "Softmax":
                softened = True
            elif node.op_type not in _MOVES and node.op_type not in ("Sigmoid", "Tanh"):
                return None, False
            if not node.input:
                return None, False
            name = node.input[0]
        return None, False

    def _scale(self, name: str) -> float | None:
        tensor = self.initializers.get(name)
        if tensor is None:
            node = self.producers.get(name)
            if node is None or node.op_type != "Constant" or not node.attribute[0].HasField("t"):
                return None
            tensor = node.attribute[0].t
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return float(np.max(numpy_helper.to_array(tensor).astype(np.float64)))

    def _path(self, node: onnx.NodeProto) -> _Path:
        before = [self.paths[name] for name in node.input if name in self.paths]
        quantizes = node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear")
        return _Path(
            max((path.rounded for path in before), default=0) + (node.op_type not in _MOVES),
            max((path.quantized for path in before), default=0) + quantizes,
            max((self._reduction(node), *(path.products for path in before))),
        )

    def _reduction(self, node: onnx.NodeProto) -> int:
        """Products added up for one element of `node`'s result; 1 where that is not known."""
        if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            return 1
        dims = self.shapes.get(node.input[1], (1,))
        if node.op_type == "Conv":
            return math.prod(dims[1:])
        if node.op_type == "ConvTranspose":
            return math.prod(dims) // dims[1]
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return dims[-1] if transposed or len(dims) < 2 else dims[-2]

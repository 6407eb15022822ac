"""Whether what a program stored is what its operators make of the values that it had before.

The one idea: a program and its nests do the same operations, so only the order in which floats are
added up can differ (`compiler.numerics.nest_error`). Without such sums values are equal, bit for
bit. With them no element is off by more than its bound; and as roundings are independent, their
root mean square stays below half of that of the bounds, or one step of the type, which finds what
is small but everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from archgen.check.reference import detached, run_detached
from archgen.check.verify import Comparison, differences, judge, listed, noted
from archgen.zoo.shapes import bodies
from compiler.api import ExpectedValue, StoredTensorCheck, VerificationPlan
from simmodel.arch.dtype import EPSILON, NAMES

Array = NDArray[Any]
_MOST = 0.5
_USUAL = 0.5
"""Root mean square of errors that is excused, as a fraction of that of their bounds."""


def with_stored(verdict: Comparison, stored: Iterable[StoredTensorCheck]) -> Comparison:
    """`verdict`, and that everything in `stored` is as it should be."""
    deviations = [deviation(pair) for pair in stored]
    excess = max((each.excess for each in deviations), default=None)
    known = [each for each in (verdict.excess, excess) if each is not None]
    wrong = [str(each) for each in deviations if each.excess > 1]
    return noted(
        verdict,
        listed(wrong, "stored tensors differ from their operators"),
        excess=max(known, default=None),
        verified=False if wrong else verdict.verified,
    )


def with_outputs(
    verdict: Comparison, outputs: Mapping[str, Array], stored: Mapping[str, Array]
) -> Comparison:
    """`verdict`, and that `outputs` at the program's end are what was `stored` on the way."""
    lost = [
        f"{name}: changed after it was complete"
        for name, values in outputs.items()
        if name in stored and not np.array_equal(values, stored[name], equal_nan=True)
    ]
    return noted(verdict, lost, first=True, verified=False) if lost else verdict


def with_losses(
    verdict: Comparison,
    losses: Iterable[str],
    outputs: Mapping[str, Array],
    expected: Mapping[str, Array],
) -> Comparison:
    """`verdict`, and what the element types could not hold: an output that is mostly infinite or
    undefined where the reference's is not proves nothing, and is wrong where that is known."""
    verdict = noted(verdict, listed(tuple(losses), "losses of the element type"))
    empty = [
        f"{name}: not checked, mostly infinite or undefined"
        for name, values in outputs.items()
        if name in expected and _lost(values, expected[name]) > _MOST
    ]
    if not empty or verdict.verified is False:
        return verdict
    return noted(verdict, empty, first=True, verified=None)


def _lost(values: Array, expected: Array) -> float:
    """Share of elements that are no finite numbers though they should be."""
    if values.shape != expected.shape or expected.dtype.kind != "f" or not values.size:
        return 0.0
    return float((~np.isfinite(values) & np.isfinite(expected)).mean())


@dataclass(frozen=True)
class Deviation:
    """How far a stored tensor is off, and how far it may be."""

    name: str
    error: float
    tolerance: float
    """At the same element."""
    excess: float
    """Largest fraction of what is excused; more than 1 is wrong."""
    by: str = ""
    """The form or kernel that made it, where that is a user's."""

    def __str__(self) -> str:
        by = f", made by {self.by}" if self.by else ""
        return (
            f"{self.name}: stored values are off by {self.error:.3g}, tolerance "
            f"{self.tolerance:.3g}{by}"
        )


def deviation(pair: StoredTensorCheck) -> Deviation:
    """How far `pair` is off, at its worst element or on the whole."""
    worst = judge(pair.name, ExpectedValue(pair.actual, pair.error), pair.expected)
    if pair.error is None or worst.excess > 1:
        return Deviation(pair.name, worst.error, worst.tolerance, worst.excess, pair.by)
    known = np.isfinite(pair.error) & np.isfinite(pair.expected.astype(np.float64))
    mean = _root_mean_square(differences(pair.actual, pair.expected)[known])
    count = max(1, int(np.count_nonzero(known)))
    factor = min(1.0, _USUAL + 1 / math.sqrt(count))
    single = np.minimum(pair.error, _value_spacing(pair.expected))  # a tie goes either way
    usual = _root_mean_square(np.maximum(factor * pair.error, single)[known])
    share = mean / usual if usual else 0.0
    if share <= worst.excess:
        return Deviation(pair.name, worst.error, worst.tolerance, worst.excess, pair.by)
    return Deviation(pair.name, mean, usual, share, pair.by)


def _value_spacing(values: Array) -> Array:
    """Distance of neighbouring values of the type of `values`."""
    unit = EPSILON.get(NAMES[values.dtype])
    if unit is None:
        return np.ones(values.shape)
    _, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(2 * unit, exponent)


def _root_mean_square(values: Array) -> float:
    return math.sqrt(float(np.square(values.astype(np.float64)).mean())) if values.size else 0.0


# What a network computes from values that a program had: every operator judged by itself.

OWN = "__own"
"""Ending of the inputs that stand for cut values."""


def as_named(recipe: VerificationPlan, proto: onnx.ModelProto) -> VerificationPlan:
    """`recipe` with the names that `proto` has. At one length of a range a network may lack an
    operator of the upper edge, whose nests the program has: a mask that hides nothing from a
    single token. What they make is then like what lies inside of a Softmax: as wide as it was made
    until the next name, whatever the program rounds it to on the way."""
    names = {name for node in proto.graph.node for name in node.output}
    names |= {value.name for value in proto.graph.input}
    known = {
        tensor: [value for value in values if value.name in names]
        for tensor, values in recipe.known.items()
    }
    return replace(recipe, known=known)


def feedable(values: Mapping[str, Array]) -> dict[str, Array]:
    """Those of `values` whose element type can be handed to ONNX Runtime."""
    return {name: array for name, array in values.items() if array.dtype.kind in "biuf"}


def cut(proto: onnx.ModelProto, own: Mapping[str, Array]) -> onnx.ModelProto:
    """`proto` cut at the values named in `own`: their readers read inputs named `NAME__own`.

    For `run_cut` only: larger initializers stay in `proto`.
    """
    light = detached(proto)
    graph = light.graph
    renamed = {name: name + OWN for name in own}
    _rename_reads(graph.node, renamed)
    outputs = {value.name for value in graph.output}
    for name, array in own.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(renamed[name], kind, array.shape))
        if name not in outputs:
            graph.output.append(onnx.ValueInfoProto(name=name))
    return light


def _rename_reads(nodes: Iterable[onnx.NodeProto], renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in renamed:
                node.input[index] = renamed[name]
        for graph in bodies(node):
            own = {value.name for value in graph.input}
            own |= {name for inner in graph.node for name in inner.output}
            seen = {old: new for old, new in renamed.items() if old not in own}
            _rename_reads(graph.node, seen)


def run_cut(
    model: onnx.ModelProto,
    proto: onnx.ModelProto,
    inputs: Mapping[str, Array],
    own: Mapping[str, Array],
) -> dict[str, Array]:
    """All outputs of `model`, which `cut` made of `proto`, by name.

    Raises ModelError when ONNX Runtime refuses the model or the values.
    """
    return run_detached(
        model, proto, {**inputs, **{name + OWN: array for name, array in own.items()}}
    )

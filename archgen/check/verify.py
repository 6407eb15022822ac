"""Whether executed instructions computed what the reference computes.

The one idea: every value is compared with what the reference makes of the values that the program
itself had before (`run_cut`), so one operator is judged at a time, and if each step of a network is
right, so is the whole. Each element has a bound of its own: what the operator's own roundings may
change there, derived from its actual operands (`compiler.numerics.nest_error`).

- What a program stores must equal what its operators, in the machine's element types, make of what
  it stored before (`compiler.numerics.expected_values`, `deviation`).
- What these operators make in fp32 must equal what the reference makes: the element types of the
  machine excuse nothing, as both get the program's own values.

Integers are equal, but where a rounding of real values lies so near to a tie that it may go either
way. Infinite and undefined values are equal to their like alone.

End to end the differences of a deep network tell nothing: one integer that a tie rounds the other
way changes thousands behind it. They are reported, not judged.

A comparison proves something only where it would refuse a random value. An output for most of whose
elements it would not is not checked, and the verdict says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from archgen.check.reference import Detached, detached
from archgen.zoo.shapes import bodies, port_of
from compiler import api
from simmodel.arch.dtype import NAMES, NUMPY
from simmodel.arch.element_types import EPSILON

Array = NDArray[Any]
SHOWN = 3
"""Mistakes that a note lists one by one."""
_SHARP = 0.25
"""Share of a value, or of how much its neighbours vary, that a proof may excuse."""
_ENOUGH = 0.5
"""Share of the elements of a value that must be proved."""


@dataclass(frozen=True)
class Comparison:
    """The verdict over all compared values."""

    verified: bool | None
    """None: nothing is wrong, but some output could have been anything."""
    compared: int = 0
    """How many values were compared: outputs, and results of operators on the way."""
    unchecked: int = 0
    """How many of them could have been anything."""
    excess: float | None = None
    """The largest difference as a fraction of what is excused there; more than 1 is wrong."""
    max_step_error: float | None = None
    """Largest difference of an integer value, in units."""
    max_abs_error: float | None = None
    """Of the output that comes nearest to its tolerance, in that output's unit."""
    tolerance: float | None = None
    """At the same element of the same output."""
    quantization_error: float | None = None
    """Of the outputs, as a share of those of the network before it was quantized."""
    note: str = ""


@dataclass(frozen=True)
class Deviation:
    """How far one value is off, and how far it may be."""

    error: float
    tolerance: float
    """At the same element, or both as root mean squares."""
    excess: float
    """The error as a fraction of what is excused; more than 1 is wrong."""
    integer: bool
    proves: bool
    by: str = ""
    """The form or kernel that made it, where that is a user's."""

    def __str__(self) -> str:
        by = f", made by {self.by}" if self.by else ""
        return f"off by {self.error:.3g}, tolerance {self.tolerance:.3g}{by}"


def compare(
    made: Mapping[str, api.ExpectedValue],
    expected: Mapping[str, Array],
    outputs: Collection[str] | None = None,
) -> Comparison:
    """Compare all values in `expected` with those in `made`, both by name.

    Args:
        made, expected: what operators and the reference made of the same values. A missing value
            or another shape is a difference, not an error.
        outputs: which values are outputs of the model; default: all.
    """
    judged: dict[str, Deviation] = {}
    wrong: list[str] = []
    large: list[str] = []
    notes: list[str] = []
    shown = set(expected if outputs is None else outputs)
    for name, reference in expected.items():
        if reference.dtype.kind not in "biuf" and reference.dtype.name != "bfloat16":
            notes.append(f"{name}: {reference.dtype} outputs are not compared")
            continue
        if name not in made or made[name].values.shape != reference.shape:
            shape = list(made[name].values.shape) if name in made else "missing"
            wrong.append(f"{name}: is {shape}, should be {list(reference.shape)}")
            continue
        found = judged[name] = judge(made[name], reference)
        if count := np.count_nonzero(api.beyond_fp32(reference)):
            large.append(
                f"{name}: {count} of {reference.size} values are beyond fp32, in which doubles are "
                "computed"
            )
        if found.excess > 1:
            wrong.append(f"{name}: {found}")
        elif not found.proves and name in shown:
            notes.append(f"{name}: not checked, its operators may make anything of their inputs")
    ends = [found for name, found in judged.items() if name in shown]
    unproved = not judged or not all(each.proves for each in ends)
    verdict = False if wrong else None if unproved else True
    lost = listed(large, "values are beyond fp32")
    note = "; ".join([*listed(wrong, "values are wrong"), *notes, *lost])
    # By how much of its tolerance it takes, not by its error: outputs differ in scale.
    worst = max(ends, key=lambda each: each.excess, default=None)
    every = judged.values()
    return Comparison(
        verified=verdict,
        compared=len(judged),
        unchecked=sum(not each.proves for each in every),
        excess=max((each.excess for each in every), default=None),
        max_step_error=max((each.error for each in every if each.integer), default=None),
        max_abs_error=None if worst is None else worst.error,
        tolerance=None if worst is None else worst.tolerance,
        note=note,
    )


def noted(
    verdict: Comparison, notes: Iterable[str], first: bool = False, **changes: Any
) -> Comparison:
    """`verdict` with more notes behind those that it has, or as the `first` ones."""
    every = (*notes, verdict.note) if first else (verdict.note, *notes)
    return replace(verdict, note="; ".join(filter(None, every)), **changes)


def listed(mistakes: Sequence[str], what: str) -> Iterator[str]:
    """The first of `mistakes`, and how many there are."""
    yield from mistakes[:SHOWN]
    if mistakes[SHOWN:]:
        yield f"{len(mistakes)} {what}"


def judge(made: api.ExpectedValue, reference: Array) -> Deviation:
    """How far a value is off where it comes nearest to its tolerance, or farthest beyond it."""
    excused = np.zeros(reference.shape) if made.error is None else made.error
    # What is stored in a narrower type is compared with the reference rounded to it: no value of
    # that type could come nearer.
    if made.rounded is not None:
        excused = _rounded_error(reference, excused, NUMPY[made.rounded])
        with np.errstate(over="ignore"):
            reference = reference.astype(NUMPY[made.rounded]).astype(reference.dtype)
    elif reference.dtype == np.float64:
        excused = _rounded_error(reference, excused, np.dtype(np.float32))
        excused = np.where(api.beyond_fp32(reference), np.inf, excused)
        with np.errstate(over="ignore"):
            reference = reference.astype(np.float32).astype(np.float64)
    integer = reference.dtype.kind in "biu"
    if reference.size == 0:
        return Deviation(0.0, 0.0, 0.0, integer, proves=True)
    errors = differences(made.values, reference)
    shares = _shares(errors, excused)
    at = int(np.argmax(shares))
    error, tolerance, excess = (float(each.flat[at]) for each in (errors, excused, shares))
    return Deviation(error, tolerance, excess, integer, _proves(reference, excused), made.by)


def _rounded_error(values: Array, error: Array, kind: np.dtype[np.generic]) -> Array:
    """What values may be off by after they are rounded to `kind`."""
    wide = values.astype(np.float64)
    # Rounding never changes an order, so what is between the ends stays between them.
    with np.errstate(all="ignore"):
        middle = wide.astype(kind)
        ends = [(wide + sign * error).astype(kind) for sign in (-1, 1)]
    changes: Array = np.fmax(*(differences(end, middle) for end in ends))
    return changes


def differences(actual: Array, reference: Array) -> Array:
    """|actual - reference| as fp64; infinite where one of them is undefined and the other is not.
    What is infinite counts as the first number that its type cannot hold."""
    ours, theirs = api.infinities_to_limit(actual), api.infinities_to_limit(reference)
    difference: Array = np.abs(ours - theirs)
    undefined = np.isnan(difference)
    if undefined.any():
        same = np.isnan(ours) & np.isnan(theirs)
        difference = np.where(undefined, np.where(same, 0.0, np.inf), difference)
    return difference


def _shares(errors: Array, excused: Array) -> Array:
    """Errors as fractions of what is excused; infinite where nothing is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = errors / excused
    exact = (errors == 0) | np.isinf(excused)
    result: Array = np.where(exact, 0.0, np.where(np.isnan(shares), np.inf, shares))
    return result


def _proves(reference: Array, excused: Array) -> bool:
    """Whether most elements could not have been anything: an element is proved where its bound is
    small beside its own size, or beside how much the others vary."""
    values = reference.astype(np.float64)
    finite = values[np.isfinite(values)]
    spread = float(finite.max() - finite.min()) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        sharp = excused <= _SHARP * np.maximum(np.abs(values), spread)
    sharp &= ~np.isnan(values) & ~np.isinf(excused)
    return float(sharp.mean()) >= _ENOUGH


def end_to_end(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float | None:
    """Largest difference of any output that both have in one shape; None where there is none."""
    errors = [
        float(differences(actual[name], reference).max(initial=0.0))
        for name, reference in expected.items()
        if reference.dtype.kind in "biuf"
        and name in actual
        and actual[name].shape == reference.shape
    ]
    return max(errors, default=None)


# Whether what a program stored is what its operators make of the values that it had before. A
# program and its nests do the same operations, so only the order in which floats are added up can
# differ (`compiler.numerics.nest_error`). Without such sums values are equal, bit for bit. With
# them no element is off by more than its bound; and as roundings are independent, their root mean
# square stays below half of that of the bounds, or one step of the type, which finds what is small
# but everywhere.

_MOST = 0.5
_USUAL = 0.5
"""Root mean square of errors that is excused, as a fraction of that of their bounds."""


def with_stored(verdict: Comparison, stored: Iterable[api.StoredTensorCheck]) -> Comparison:
    """`verdict`, and that everything in `stored` is as it should be."""
    found = [(pair.name, deviation(pair)) for pair in stored]
    known = [excess for excess in (verdict.excess,) if excess is not None]
    wrong = [f"{name}: stored values are {each}" for name, each in found if each.excess > 1]
    return noted(
        verdict,
        listed(wrong, "stored tensors differ from their operators"),
        excess=max([*known, *(each.excess for _, each in found)], default=None),
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


def deviation(pair: api.StoredTensorCheck) -> Deviation:
    """How far `pair` is off, at its worst element or on the whole."""
    worst = judge(api.ExpectedValue(pair.actual, pair.error, by=pair.by), pair.expected)
    if pair.error is None or worst.excess > 1:
        return worst
    known = np.isfinite(pair.error) & np.isfinite(pair.expected.astype(np.float64))
    mean = _root_mean_square(differences(pair.actual, pair.expected)[known])
    count = max(1, int(np.count_nonzero(known)))
    factor = min(1.0, _USUAL + 1 / math.sqrt(count))
    single = np.minimum(pair.error, _value_spacing(pair.expected))  # a tie goes either way
    usual = _root_mean_square(np.maximum(factor * pair.error, single)[known])
    share = mean / usual if usual else 0.0
    if share <= worst.excess:
        return worst
    return replace(worst, error=mean, tolerance=usual, excess=share)


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


def as_named(recipe: api.VerificationPlan, proto: onnx.ModelProto) -> api.VerificationPlan:
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
        graph.input.append(port_of(renamed[name], array))
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
    feeds = {**inputs, **{name + OWN: array for name, array in own.items()}}
    return Detached(model, proto).run(feeds)

"""Whether executed instructions computed what the reference computes.

The one idea: every value is compared with what the reference makes of the values that the program
itself had before (`CutReference`), so one operator is judged at a time, and if each step of a
network is right, so is the whole. Each element has a bound of its own: what the operator's own
roundings may change there, derived from its actual operands (`compiler.numerics.nest_error`).

Values are compared as soon as both are there and then forgotten (`Checking`), so a network of many
layers takes as much memory as its largest one.

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
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import onnx

from archgen.check.reference import Detached, content_key, detached, reads_of, submodel
from archgen.zoo.shapes import bodies
from compiler import api
from compiler.api import numbers_in
from simmodel.arch.dtype import NAMES, NUMPY, Array
from simmodel.arch.element_types import EPSILON

Arrays = tuple[Array | None, ...]
Kept = Callable[[str, Callable[[], Arrays]], Arrays]
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
    executed: str = ""
    """Which of equal layers were executed; empty: everything was."""


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
    undefined: bool = False
    """Whether too much of the reference is NaN for anything to be proved."""

    def __str__(self) -> str:
        by = f", made by {self.by}" if self.by else ""
        return f"off by {self.error:.3g}, tolerance {self.tolerance:.3g}{by}"


@dataclass(frozen=True)
class Compared:
    """What the comparison of one value found."""

    found: Deviation | None = None
    wrong: str = ""
    note: str = ""
    large: str = ""
    """Values that no reference in fp32 can hold, in words."""


def compare_one(name: str, made: api.ExpectedValue | None, reference: Array) -> Compared:
    """Compare a value with its reference. A missing one or another shape is a difference, not an
    error."""
    if reference.dtype.kind not in "biuf" and reference.dtype.name != "bfloat16":
        return Compared(note=f"{name}: {reference.dtype} outputs are not compared")
    if made is None or made.values.shape != reference.shape:
        shape = "missing" if made is None else list(made.values.shape)
        return Compared(wrong=f"{name}: is {shape}, should be {list(reference.shape)}")
    found, large = judge(made, reference), ""
    if count := np.count_nonzero(api.beyond_fp32(reference)):
        large = (
            f"{name}: {count} of {reference.size} values are beyond fp32, in which doubles are "
            "computed"
        )
    return Compared(found, f"{name}: {found}" if found.excess > 1 else "", large=large)


def conclusion(values: Mapping[str, Compared], outputs: Collection[str]) -> Comparison:
    """The verdict over all `values`, by name, of which `outputs` are the model's."""
    judged = {name: each.found for name, each in values.items() if each.found is not None}
    wrong = [each.wrong for each in values.values() if each.wrong]
    unsure = {name for name, found in judged.items() if not found.proves and found.excess <= 1}
    notes = [
        each.note or f"{name}: not checked, {_doubt(judged[name], _ANYTHING)}"
        for name, each in values.items()
        if each.note or (name in unsure and name in outputs)
    ]
    ends = [found for name, found in judged.items() if name in outputs]
    unproved = not judged or not all(each.proves for each in ends)
    verdict = False if wrong else None if unproved else True
    lost = listed([each.large for each in values.values() if each.large], "values are beyond fp32")
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


_ANYTHING = "its operators may make anything of their inputs"


def _doubt(found: Deviation, otherwise: str) -> str:
    """Why what was `found` proves nothing."""
    return "it is NaN, as the reference is" if found.undefined else otherwise


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
    integer = reference.dtype.kind in "biu"
    if reference.size == 0:
        return Deviation(0.0, 0.0, 0.0, integer, proves=True)
    values, exact = made.values.ravel(), reference.ravel()
    known = np.zeros(exact.size) if made.error is None else made.error.ravel()
    # What is stored in a narrower type is compared with the reference rounded to it: no value of
    # that type could come nearer.
    doubles = made.rounded is None and reference.dtype == np.float64
    kind = np.dtype(np.float32) if doubles else NUMPY.get(made.rounded or "", exact.dtype)
    cuts = list(_blocks(exact.size))
    spread = _spread(_as_type(exact[cut], kind) for cut in cuts)
    worst, sharp = (0.0, 0.0, -1.0), 0
    for cut in cuts:
        part, excused = exact[cut], known[cut]
        if doubles or made.rounded is not None:
            excused = _rounded_error(part, excused, kind)
        if doubles:
            excused = np.where(api.beyond_fp32(part), np.inf, excused)
        part = _as_type(part, kind)
        errors = differences(values[cut], part)
        shares = _shares(errors, excused)
        at = int(np.argmax(shares))
        if shares[at] > worst[2]:
            worst = float(errors[at]), float(excused[at]), float(shares[at])
        sharp += _sharp_ones(part, excused, spread)
    undefined = bool(np.isnan(exact).mean() > 1 - _ENOUGH)
    return Deviation(*worst, integer, sharp / exact.size >= _ENOUGH, made.by, undefined)


_BLOCK = 1 << 16


def _blocks(size: int) -> Iterator[slice]:
    """Parts of so many elements that are looked at one after the other: their doubles lie in a
    processor's cache, and take no memory for all of them."""
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def _as_type(values: Array, kind: np.dtype[np.generic]) -> Array:
    if kind == values.dtype:
        return values
    with np.errstate(over="ignore"):
        return values.astype(kind).astype(values.dtype)


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


def _spread(parts: Iterable[Array]) -> float:
    """Distance of the largest finite value from the smallest."""
    low, high = math.inf, -math.inf
    for part in parts:
        values = part.astype(np.float64)
        finite = values[np.isfinite(values)]
        low = min(low, float(finite.min(initial=math.inf)))
        high = max(high, float(finite.max(initial=-math.inf)))
    return max(0.0, high - low)


def _sharp_ones(reference: Array, excused: Array, spread: float) -> int:
    """How many elements could not have been anything: an element is proved where its bound is
    small beside its own size, or beside how much the others vary."""
    values = reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        sharp = excused <= _SHARP * np.maximum(np.abs(values), spread)
    return int(np.count_nonzero(sharp & ~np.isnan(values) & ~np.isinf(excused)))


def end_to_end(actual: Mapping[str, Array], expected: Mapping[str, Array | None]) -> float | None:
    """Largest difference of any output that both have in one shape; None where there is none."""
    errors = [
        float(differences(actual[name], reference).max(initial=0.0))
        for name, reference in expected.items()
        if reference is not None
        and reference.dtype.kind in "biuf"
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
_NEAR = 1 / 32
"""Root mean square of errors that prove values whatever their bounds are, as a share of how much
the values vary: less than a bound that proves may be (`_SHARP`)."""


def with_stored(verdict: Comparison, stored: Iterable[tuple[str, Deviation]]) -> Comparison:
    """`verdict`, and that everything in `stored` is as it should be."""
    found = list(stored)
    known = [excess for excess in (verdict.excess,) if excess is not None]
    wrong = [f"{name}: stored values are {each}" for name, each in found if each.excess > 1]
    unsure = [
        f"{name}: not checked, "
        + _doubt(each, f"stored values are {each}, which roundings of many operators explain")
        for name, each in found
        if each.excess <= 1 and not each.proves
    ]
    verified = False if wrong else None if unsure and verdict.verified else verdict.verified
    shown = (
        *listed(wrong, "stored tensors differ from their operators"),
        *listed(
            [each for each in unsure if each not in verdict.note], "stored tensors not checked"
        ),
    )
    worst = max([*known, *(each.excess for _, each in found)], default=None)
    return noted(verdict, shown, excess=worst, verified=verified)


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
    verdict: Comparison, losses: Iterable[str], outputs: Mapping[str, Array],
    expected: Mapping[str, Array | None],
) -> Comparison:  # fmt: skip
    """`verdict`, and what the element types could not hold: an output that is mostly infinite or
    undefined where the reference's is not, or is not known, proves nothing."""
    verdict = noted(verdict, listed(tuple(losses), "losses of the element type"))
    empty = [
        f"{name}: not checked, mostly infinite or undefined"
        for name, values in outputs.items()
        if name in expected and _lost(values, expected[name]) > _MOST
    ]
    if not empty or verdict.verified is False:
        return verdict
    return noted(verdict, empty, first=True, verified=None)


def _lost(values: Array, expected: Array | None) -> float:
    """Share of elements that are no finite numbers though they should be."""
    if expected is None:
        expected = np.zeros(values.shape, values.dtype)
    if values.shape != expected.shape or expected.dtype.kind != "f" or not values.size:
        return 0.0
    return float((~np.isfinite(values) & np.isfinite(expected)).mean())


def deviation(pair: api.StoredTensorCheck) -> Deviation:
    """How far `pair` is off, at its worst element or on the whole. What so many operators have made
    that their roundings may add up to anything proves itself where it is as near as if they did
    not."""
    worst = judge(api.ExpectedValue(pair.actual, pair.error, by=pair.by), pair.expected)
    if pair.error is None or worst.excess > 1:
        return worst
    worst = replace(worst, proves=worst.proves or _is_near(pair.actual, pair.expected))
    actual, expected, bound = (a.ravel() for a in (pair.actual, pair.expected, pair.error))
    cuts = list(_blocks(bound.size))

    def bounded(cut: slice) -> Array:
        found: Array = np.isfinite(bound[cut]) & np.isfinite(expected[cut].astype(np.float64))
        return found

    count = max(1, sum(int(np.count_nonzero(bounded(cut))) for cut in cuts))
    factor = min(1.0, _USUAL + 1 / math.sqrt(count))
    off, excused = [], []
    for cut in cuts:
        single = np.minimum(bound[cut], _value_spacing(expected[cut]))  # a tie goes either way
        off.append(_squares(differences(actual[cut], expected[cut])[bounded(cut)]))
        excused.append(_squares(np.maximum(factor * bound[cut], single)[bounded(cut)]))
    mean, usual = (math.sqrt(math.fsum(sums) / count) for sums in (off, excused))
    share = mean / usual if usual else 0.0
    if share <= worst.excess:
        return worst
    return replace(worst, error=mean, tolerance=usual, excess=share)


def _is_near(actual: Array, expected: Array) -> bool:
    """Whether differences are small beside how much values vary, both as root mean squares."""
    exact = expected.astype(np.float64)
    exact, own = exact[finite := np.isfinite(exact)], actual[finite]
    return exact.size > 0 and bool(
        math.sqrt(_squares(differences(own, exact)) / exact.size) <= _NEAR * float(np.std(exact))
    )


def _squares(values: Array) -> float:
    """Sum of their squares."""
    return float(np.square(values.astype(np.float64)).sum())


def _value_spacing(values: Array) -> Array:
    """Distance of neighbouring values of the type of `values`."""
    unit = EPSILON.get(NAMES[values.dtype])
    if unit is None:
        return np.ones(values.shape)
    _, exponent = np.frexp(values.astype(np.float64))
    return np.ldexp(2 * unit, exponent)


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


class CutReference:
    """What the operators of a network make of values that a program had: readers of each value in
    `own` read inputs named `NAME__own`.

    Only what ONNX Runtime can be given is cut; the rest is computed again for each reader.

    Args:
        proto: the network.
        own: names of values, and their element types.
        kept: results by their key, made where they are not at hand.
        unmade: values that the program was given or has not made.
    """

    def __init__(
        self, proto: onnx.ModelProto, own: Mapping[str, str], kept: Kept,
        unmade: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._proto, self._kept, self._light = proto, kept, detached(proto)
        self._cut = {name: name + OWN for name, kind in own.items() if NUMPY[kind].kind in "biuf"}
        nodes = self._light.graph.node
        _rename_reads(nodes, self._cut)
        self._makers = {
            name: index for index, node in enumerate(nodes) for name in node.output if name
        }
        self._reads = [reads_of([node]) for node in nodes]
        self.outputs = [o.name for o in proto.graph.output if o.name not in unmade]
        made = (name for name in self._cut if name not in unmade)
        self.names = dict.fromkeys([*self.outputs, *made])
        """Values that can be computed."""
        self._open = {name: self._needs(name) for name in self.names}
        """What is not yet computed: the nodes behind it, and all that these read."""
        self._readers = Counter(name for _, read in self._open.values() for name in read)
        self._given: dict[str, Array] = {}

    def _needs(self, name: str) -> tuple[set[int], set[str]]:
        """Nodes from given values to the value `name`, and what they read."""
        nodes: set[int] = set()
        read: set[str] = set()
        ahead = [name]
        while ahead:
            index = self._makers.get(ahead.pop())
            if index is not None and index not in nodes:
                nodes.add(index)
                read |= self._reads[index]
                ahead += self._reads[index]
        return nodes, read or {name}

    def give(self, inputs: Mapping[str, Array], own: Mapping[str, Array]) -> None:
        """Inputs of the network, and values that a program had, complete."""
        self._given |= inputs
        self._given |= {self._cut[name]: own[name] for name in own if name in self._cut}

    def take(self, names: Iterable[str]) -> dict[str, Array]:
        """Those of the values `names` that follow from what is given: each is computed once.

        Raises ModelError when ONNX Runtime refuses the model or the values.
        """
        lacking = {*self._cut.values()} - self._given.keys()
        names = [n for n in names if n in self._open and lacking.isdisjoint(self._open[n][1])]
        needs = [self._open.pop(name) for name in names]
        read = set().union(*(read for _, read in needs))
        feeds = {name: array for name, array in self._given.items() if name in read}
        made = [name for name in names if name in self._makers]
        part = sorted(set().union(*(nodes for nodes, _ in needs)))

        def run() -> Arrays:
            nodes = [self._light.graph.node[index] for index in part]
            light = submodel(self._light, nodes, made, feeds)
            return tuple(map(Detached(light, self._proto).run(feeds).__getitem__, made))

        results = self._kept(f"{made} {content_key(feeds)}", run) if made else ()
        found = {name: each for name, each in zip(made, results, strict=True) if each is not None}
        found |= {t.name: numbers_in(t) for t in self._proto.graph.initializer if t.name in names}
        found |= {name: feeds[name] for name in names if name in feeds}
        for name in chain.from_iterable(read for _, read in needs):
            self._readers[name] -= 1
            if not self._readers[name]:
                self._given.pop(name, None)
        return found


_AT_ONCE = 1 << 24
"""Bytes of values that wait until they are compared together: a run of ONNX Runtime costs."""


class Checking:
    """Compares values of a program as they come."""

    def __init__(self, reference: CutReference) -> None:
        self._reference = reference
        self._made: dict[str, api.ExpectedValue] = {}
        """What is still to be compared."""
        self._waiting: list[str] = []
        self._bytes = 0
        self._compared: dict[str, Compared] = {}
        self._stored: list[tuple[str, Deviation]] = []
        self._losses: list[str] = []
        self._ends: tuple[dict[str, Array], dict[str, Array]] = {}, {}
        """Outputs as stored that readers did not start from, and those from which they did."""

    def take(self, part: api.ExpectedValues) -> None:
        """Compare `part`, or what waits for it."""
        self._reference.give(part.inputs, part.observed)
        self._stored += [(pair.name, deviation(pair)) for pair in part.stored]
        self._losses += part.losses
        for ends, values in zip(self._ends, (part.not_handed_on, part.observed), strict=True):
            ends |= {name: values[name] for name in self._reference.outputs if name in values}
        made = {n: each for n, each in part.made.items() if n in self._reference.names}
        self._made |= made
        self._waiting += made
        self._bytes += sum(each.values.nbytes for each in made.values())
        if self._bytes >= _AT_ONCE:
            self._compare(self._waiting)

    def _compare(self, names: Iterable[str]) -> None:
        for name, reference in self._reference.take(names).items():
            self._compared[name] = compare_one(name, self._made.pop(name, None), reference)
        self._waiting = [name for name in self._waiting if name in self._made]
        self._bytes = sum(self._made[name].values.nbytes for name in self._waiting)

    def verdict(
        self, outputs: Mapping[str, Array], whole: Mapping[str, Array] | None,
        rest: Mapping[str, api.ExpectedValue],
    ) -> Comparison:  # fmt: skip
        """The verdict on the `outputs` of the program when all has come; `whole`: those that the
        reference makes of the network's inputs alone, where known, `rest`: those that no operator
        makes."""
        ends = self._reference.outputs
        expected = {name: None if whole is None else whole[name] for name in ends}
        self._made = {**rest, **self._made}
        self._compare(self._reference.names)
        found = {name: self._compared[name] for name in self._reference.names}
        verdict = with_stored(conclusion(found, expected), self._stored)
        verdict = with_outputs(verdict, outputs, self._ends[0] | self._ends[1])
        verdict = with_losses(verdict, self._losses, outputs, expected)
        return replace(verdict, max_abs_error=end_to_end(outputs, expected))

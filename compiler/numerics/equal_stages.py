"""Which steps of a program need not be executed, because equal ones are.

The one idea: where a network repeats a layer, its program repeats the steps, with other addresses
and other values. The first two instances and the last one are executed; in between the reference
alone computes, and the last one starts from its values at that depth. What lies on chip alone stays
as the second instance has left it, which is at the same place:

    program     a  B1 B2  .  .  .  .  B7  c        B3 to B6 are skipped
    reference            |            ^ what B6 stores for others
    on chip              +----------->^ what B2 leaves there, for what B6 would leave

Steps are equal if their instructions are, but for scales, zero points and clips, which are as each
step's own operators say; and if each reads what the step so many steps before it reads: the same
tensor, or what is made so many steps later. What passes from skipped steps to executed ones has to
be a value of the model, else nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

import numpy as np

from compiler.numerics.recipe import SourceValue, Stage, VerificationPlan
from compiler.tensor_ir.nest import Array, Nest, NestGraph
from simmodel.arch.dtype import NUMPY
from simmodel.arch.element_types import FLOATS
from simmodel.program.program import Program
from simmodel.verify.repeats import UNCODED, Numbers, Starts, unlike

EXECUTED = 3
"""Instances of equal layers that are executed: the first, the second and the last."""
LEAST_EQUAL_LAYERS = 2 * EXECUTED + 1
"""Equal layers of which some are skipped: more than are executed."""


@dataclass(frozen=True)
class SkippedStages:
    """Steps that are not executed, and what others need of them."""

    twins: Mapping[int, int] = field(default_factory=dict)
    """The steps, and the one of the second instance that each is like."""
    starts: Mapping[int, Starts] = field(default_factory=dict)
    """Where the tensors of either lie."""
    executed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By twin, the same step of the first instance and of the last."""
    encodings: Mapping[int, Sequence[Numbers]] = field(default_factory=dict)
    """By step, what its operators say of encodings and clips."""
    given: Mapping[str, SourceValue] = field(default_factory=dict)
    """Tensor -> the value of the model that it is given."""
    carried: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """By twin, what a skipped step would leave on chip alone, and what the twin leaves there."""
    lacking: frozenset[str] = frozenset()
    """Tensors that nobody has: made by skipped steps or constants that these alone read."""
    outputs: frozenset[str] = frozenset()
    """Outputs of the network that are among them."""
    equal: tuple[int, ...] = ()
    """How many equal layers there are, in each part of the network where some are skipped."""

    def proved_in(self, program: Program) -> bool:
        """Whether all that is skipped does in `program` what its twin does."""
        return not unlike(program, self.twins, self.starts, self.encodings, self.executed)

    def raw(self, values: Mapping[str, Array], graph: NestGraph) -> dict[str, Array]:
        """What is given of the model's `values`, as it is stored."""
        return {
            name: values[of.name].astype(NUMPY[tensor.dtype]).reshape(tensor.shape)
            for name, of in self.given.items()
            for tensor in (graph.tensors[name],)
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{EXECUTED} of {count}" for count in self.equal)
        return f"{counts} equal layers" if counts else ""


NOTHING_SKIPPED = SkippedStages()
"""Everything is executed."""


@dataclass(frozen=True)
class _EqualLayers:
    """Equal layers of `period` stages each, one behind the other."""

    first: int
    period: int
    count: int

    @property
    def between(self) -> range:
        """Stages of the instances that need not be executed."""
        return range(
            self.first + (EXECUTED - 1) * self.period, self.first + (self.count - 1) * self.period
        )

    def twin(self, number: int) -> int:
        """The stage of the second instance that another one's is like."""
        return self.first + self.period + (number - self.first) % self.period

    def executed(self, twin: int) -> tuple[int, int]:
        """The same stage of the first instance and of the last."""
        return twin - self.period, twin + (self.count - EXECUTED + 1) * self.period


def skippable(
    recipe: VerificationPlan, seen: Mapping[str, Sequence[str]], unsure: Collection[str]
) -> SkippedStages:
    """What need not be executed of a program.

    Args:
        recipe: its stages.
        seen: tensors that are looked at when one is made.
        unsure: tensors whose readers do not all start from one value.
    """
    stages, graph = recipe.stages, recipe.graph
    flow = _Producers(recipe)
    repeats: list[_EqualLayers] = []
    given: dict[str, SourceValue] = {}
    carried: dict[int, dict[str, str]] = {}
    for stretch, period in _stretches(stages, flow):
        best = _least_passed(recipe, flow, stretch, period, seen, unsure)
        if best is not None:
            repeat, known, on_chip = best
            repeats.append(repeat)
            given |= known
            for name, number in on_chip.items():
                twin = repeat.twin(number)
                own, like = stages[number].computed_tensors, stages[twin].computed_tensors
                carried.setdefault(twin, {})[name] = dict(zip(own, like, strict=True))[name]
    skipped = {number: repeat.twin(number) for repeat in repeats for number in repeat.between}
    if not skipped:
        return NOTHING_SKIPPED
    used = [stage for number, stage in enumerate(stages) if number not in skipped]
    read = {name for stage in used for name in stage.read}
    left = {name for names in carried.values() for name in names}
    lacking = {
        name
        for number in skipped
        for name in (*stages[number].stored, *stages[number].computed_tensors, *stages[number].read)
        if name not in read and name not in given and name not in left
    }
    lacking -= {name for stage in used for name in (*stage.stored, *stage.computed_tensors)}
    gone = {graph.buffer_of(n) for k in skipped for n in stages[k].stored}
    outputs = {name for name in graph.outputs if graph.buffer_of(name) in gone}
    outputs -= {name for stage in used for name in stage.stored}
    counts = tuple(repeat.count for repeat in repeats)
    starts = {number: stages[number].starts for number in (*skipped, *skipped.values())}
    executed = {r.twin(k): r.executed(r.twin(k)) for r in repeats for k in r.between}
    encodings = {
        number: tuple(map(_encodings, stages[number].nests))
        for number in {*skipped, *executed, *chain.from_iterable(executed.values())}
    }
    return SkippedStages(
        skipped, starts, executed, encodings, given, carried, frozenset(lacking),
        frozenset(outputs), counts,
    )  # fmt: skip


def _least_passed(
    recipe: VerificationPlan, flow: _Producers, stretch: range, period: int,
    seen: Mapping[str, Sequence[str]], unsure: Collection[str],
) -> tuple[_EqualLayers, dict[str, SourceValue], _Made] | None:  # fmt: skip
    """Of a stretch the equal layers that pass on least, above all on chip; what they store of it,
    and what lies on chip alone. None where something is no value of the model."""
    best: tuple[tuple[int, int], _EqualLayers, dict[str, SourceValue], _Made] | None = None
    for first in stretch[:period]:
        repeat = _EqualLayers(first, period, (stretch.stop - first) // period)
        if repeat.count < LEAST_EQUAL_LAYERS:
            break
        crossing = flow.crossing(repeat.between)
        if crossing is None:
            continue
        stored, on_chip = crossing
        passed = len(on_chip), len(stored)
        if best is not None and passed >= best[0]:
            continue
        values = {name: _value_of(recipe, name, seen, unsure) for name in stored}
        known = {name: value for name, value in values.items() if value is not None}
        told = all(_in_model(recipe, name, seen, unsure) for name in on_chip)
        if told and len(known) == len(values):
            best = passed, repeat, known, on_chip
    return None if best is None else best[1:]


def _encodings(nest: Nest) -> Numbers:
    """What instructions of `nest` may say of encodings and clips, each in its place."""
    reads = chain.from_iterable((each.scale, each.zero, each.pad) for each in nest.reads)
    return *reads, nest.scale, nest.zero, nest.low, nest.high, *UNCODED


_Made = dict[str, int]
"""Tensors, and the stage that makes each."""


class _Producers:
    """Which stage makes what others read."""

    def __init__(self, recipe: VerificationPlan) -> None:
        self._stages, graph = recipe.stages, recipe.graph
        self._buffer_of = graph.buffer_of
        self._last_read: dict[str, int] = {}
        self._pinned: dict[str, list[int]] = {}
        self._links: list[tuple[tuple[str, int | None], ...]] = []
        """By stage, what it reads: the buffer, and the stage that wrote that last."""
        written: dict[str, int] = {}
        for number, stage in enumerate(self._stages):
            buffers = [graph.buffer_of(name) for name in stage.read]
            self._links.append(tuple((buffer, written.get(buffer)) for buffer in buffers))
            self._last_read |= dict.fromkeys(buffers, number)
            made = (*stage.computed_tensors, *stage.stored)
            written |= dict.fromkeys(map(graph.buffer_of, made), number)
            for name in stage.pinned:
                self._pinned.setdefault(name, []).append(number)

    def alike(self, number: int, period: int, first: int) -> bool:
        """Whether a stage reads what the one `period` later does: what is made before `first`, or
        what is made as many stages before it; constants may be others."""
        pairs = zip(self._links[number], self._links[number + period], strict=True)
        return all(
            before == after
            if before is None or after is None
            else before + period == after or (own == other and before == after < first)
            for (own, before), (other, after) in pairs
        )

    def crossing(self, between: range) -> tuple[list[str], _Made] | None:
        """Tensors that stages in `between` make and later ones read: those that are stored, and
        those on chip alone with their last stage; None if some of these are constants."""
        stages = [self._stages[number] for number in between]
        for name in {name for stage in stages for name in stage.pinned}:
            if self._pinned[name][0] >= between.start and self._pinned[name][-1] >= between.stop:
                return None
        stored: dict[str, None] = {}
        on_chip: _Made = {}
        for number, stage in zip(between, stages, strict=True):
            for name in dict.fromkeys((*stage.computed_tensors, *stage.stored)):
                if self._last_read.get(self._buffer_of(name), -1) < between.stop:
                    continue
                if name in stage.stored:
                    stored[name] = None
                else:
                    on_chip[name] = number
        return list(stored), on_chip


def _stretches(stages: Sequence[Stage], flow: _Producers) -> Iterator[tuple[range, int]]:
    """Where stages repeat after how many others, the shortest periods first."""
    numbers = np.array([-1 if each.alike is None else each.alike for each in stages], np.int64)
    taken = np.zeros(len(stages), bool)
    for period in range(1, len(stages) // LEAST_EQUAL_LAYERS + 1):
        same = (numbers[:-period] == numbers[period:]) & (numbers[period:] >= 0)
        same &= ~taken[:-period] & ~taken[period:]
        for start, end in _ranges_of(same):
            if end - start < (LEAST_EQUAL_LAYERS - 1) * period:
                continue
            equal = [flow.alike(number, period, start) for number in range(start, end)]
            for low, high in _ranges_of(np.array(equal)):
                stretch = range(start + low, start + high + period)
                if len(stretch) >= LEAST_EQUAL_LAYERS * period:
                    taken[stretch.start : stretch.stop] = True
                    yield stretch, period


def _ranges_of(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Where flags are true, from one place to behind the last."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
    return ((start, end) for start, end in list(pairwise(edges))[::2])


def _value_of(
    recipe: VerificationPlan, name: str, seen: Mapping[str, Sequence[str]], unsure: Collection[str]
) -> SourceValue | None:
    """The value of the model that a tensor holds as it is stored; None if there is none."""
    if not _in_model(recipe, name, seen, unsure):
        return None
    stored = recipe.graph.tensors[name].dtype
    for value in recipe.known.get(name, ()):
        if value.dtype == stored or {value.dtype, stored} <= FLOATS:
            return value
    return None


def _in_model(
    recipe: VerificationPlan, name: str, seen: Mapping[str, Sequence[str]], unsure: Collection[str]
) -> bool:
    """Whether a tensor is a value of the model, from which all start that read it."""
    views = seen.get(name, ())
    told = name in views and name not in recipe.graph.codes
    return told and not any(view in unsure for view in views)

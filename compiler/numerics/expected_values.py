"""Expected values of what each step leaves in memory or on chip, computed from the program's own.

The one idea: each operator is computed again, from the values that the program had before it,
twice, so what only passes from layer to layer within a step is checked as well.

- As the machine computes it, in the machine's element types: a stored value must equal this but
  for the order in which floats are added up. So the program does what its nests mean.
- As the model means it, in fp32 and with the model's constants: the reference, given the same
  inputs, must equal this but for fp32 roundings. So the nests mean what the model means. Values
  that the model does not name (inside a Softmax) stay in fp32 until the next name.

The allowed error of either is derived element by element (`compiler.numerics.nest_error`). Errors
do not accumulate: every value that the model names is replaced by the program's own before it is
read. What passes within a step takes the values of a stored copy of it where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice

import ml_dtypes
import numpy as np

from compiler.numerics.bounded_tensors import BoundedTensors
from compiler.numerics.equal_stages import NOTHING_SKIPPED, skippable
from compiler.numerics.host_error import host_error, moved_by, tied
from compiler.numerics.memo import Memo
from compiler.numerics.nest_error import RoundingModel, against_order, against_reference, repeated
from compiler.numerics.recipe import (
    Stage,
    VerificationPlan,
    bypassed,
    last_used,
    lost_constant,
    read_within,
    stored_copies,
    views_to_record,
)
from compiler.tensor_ir.arithmetic import beyond_fp32, code, function_of, in_type
from compiler.tensor_ir.interpreter import (
    Host,
    TensorViews,
    feed_one,
    over_loops,
    shown,
    view_of,
    with_rows,
)
from compiler.tensor_ir.nest import Access, Array, Nest, Pick, Put
from simmodel.arch.dtype import NAMES, NUMPY, from_blocks
from simmodel.arch.element_types import FLOATS, per_block
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa.base import encode
from simmodel.isa.forms import elementwise_form


@dataclass(frozen=True)
class StoredTensorCheck:
    """A tensor that a step leaves, and the result of its nests from what the step reads."""

    name: str
    actual: Array
    expected: Array
    error: Array | None
    """Error bound of each element, in steps of the stored values; None: they are equal."""
    by: str = ""
    """As in `ExpectedValue`."""


@dataclass(frozen=True)
class ExpectedValue:
    """Expected value of a tensor of the model."""

    values: Array
    error: Array | None
    """Error bound of each element of a reference; None: they are equal."""
    rounded: str | None = None
    """Element type that the reference is rounded to first; None: no rounding."""
    by: str = ""
    """The user's form that computed it, if any, and its source location."""


@dataclass(frozen=True)
class ExpectedValues:
    """Expected values of some tensors of a program."""

    inputs: dict[str, Array] = field(default_factory=dict)
    """Inputs of the network, as the program read them."""
    observed: dict[str, Array] = field(default_factory=dict)
    """By name in the model: as stored, or recomputed if they stay on chip. Readers of a value
    started from these."""
    made: dict[str, ExpectedValue] = field(default_factory=dict)
    """The same values, computed from the inputs of each operator."""
    stored: list[StoredTensorCheck] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    """Values that the element types could not represent, in words."""
    not_handed_on: dict[str, Array] = field(default_factory=dict)
    """As stored, values that readers did not start from."""


class Recomputation:
    """Expected values of a program, of one operator after the other: nothing is held longer than
    somebody reads it.

    Args:
        recipe: the program's steps.
        memo: where results of nests are kept from call to call.
        host: runs operators of the host again, where they read what the model does not name.
        every: whether equal layers are executed at each of their instances.
    """

    def __init__(
        self, recipe: VerificationPlan, memo: Memo | None = None, host: Host | None = None,
        *, every: bool = True,
    ) -> None:  # fmt: skip
        self.recipe = recipe
        self.memo = memo or Memo()
        self.host = host
        self.inner = read_within(recipe)
        self.kept = {recipe.graph.buffer_of(name) for name in self.inner}
        self.bypassed = bypassed(recipe)
        self.seen = views_to_record(recipe, self.bypassed)
        unsure = self.bypassed | {*self.inner}
        self.skipped = NOTHING_SKIPPED if every else skippable(recipe, self.seen, unsure)
        self.unfed: dict[str, tuple[Array, Array]] = {}
        """By buffer, the computed values and their error bounds, whatever readers started from."""
        kinds = {name: kind for stage in recipe.stages for name, kind in stage.kinds.items()}
        self.machine = BoundedTensors(TensorViews(recipe.graph, apart=kinds), recipe.graph)
        self.model = BoundedTensors(TensorViews(recipe.graph, wide=True), recipe.graph)
        for tensor in recipe.graph.tensors.values():
            doubles = tensor.exact is not None and tensor.exact.dtype == np.float64
            if doubles and (large := beyond_fp32(np.asarray(tensor.exact))).any():
                self.model.set_error(tensor.name, np.where(large, np.inf, 0.0))
            elif np.any(tensor.uncertain):
                # Weights that are 0 are neighbours of those that are not, and may be off as well.
                self.model.set_error(tensor.name, np.broadcast_to(tensor.uncertain, tensor.shape))
        self.against = _reference_arithmetics(recipe)
        self.copies = stored_copies(recipe, self.machine.tensors)
        self._last_used = last_used(recipe, self.copies)
        self._take: Callable[[str], Array]
        self._taken: dict[str, dict[str, Array]] = {}
        """By buffer, tensors that the program has stored."""
        nests = (nest for stage in recipe.stages for nest in stage.nests if nest.elementwise)
        places = ((nest, function_of(nest).place) for nest in nests)
        forms = {
            nest.tensor: f"{elementwise_form(nest.function, len(nest.operands))} ({place})"
            for nest, place in places
            if place
        }
        self.forms = {**forms, **recipe.kernels}
        """Tensor -> the user's form or kernel that computes it, and its source location."""
        self.found = ExpectedValues()
        self._looked_at: set[str] = set()
        """Buffers of constants."""

    @property
    def observed(self) -> dict[str, str]:
        """Values of the model that are replaced by the program's own: names and element types."""
        lacking = self.skipped.lacking
        made = (held for maker, held in self.seen.items() if maker not in lacking)
        names = (name for held in made for name in held if name not in self.bypassed)
        return {held.name: held.dtype for name in names for held in self.recipe.known[name]}

    @property
    def unmade(self) -> set[str]:
        """Values of the model that no executed step makes, though they are asked for: those that
        are given or stand for others, and outputs."""
        carried = chain.from_iterable(self.skipped.carried.values())
        given = (known for n in chain(self.skipped.given, carried) for known in self.seen[n])
        values = {held.name for known in given for held in self.recipe.known[known]}
        return values | self.skipped.outputs

    def run(
        self, inputs: Mapping[str, Array], stored: Callable[[str], Array],
        given: Mapping[str, Array] | None = None,
    ) -> Iterator[ExpectedValues]:  # fmt: skip
        """Expected values of all tensors with a name in the model, and of each stored tensor, in
        parts: each is told once.

        Args:
            inputs: the network's inputs by name, in their shapes.
            stored: gives a tensor that a step stores, raw, by its name; each is asked for once.
            given: what steps that are skipped would store for others, raw.
        """
        graph = self.recipe.graph
        self._take = stored
        for name in graph.inputs:
            feed_one(graph, name, inputs[name], self.machine.tensors)
            seen = shown(graph, name, self.machine.tensors)
            self.found.inputs[name] = seen.astype(inputs[name].dtype)
            self.model.tensors[name][...] = self.machine.tensors[name]
        yield self._found_so_far()
        done = iter(self._last_used)
        for number, stage in enumerate(self.recipe.stages):
            for name, like in self.skipped.carried.get(number - 1, {}).items():
                self._start_as(name, like)
            if number in self.skipped.twins:
                for name in filter(self.skipped.given.__contains__, stage.stored):
                    self._start_from(name, (given or {})[name])
                yield self._found_so_far(chain(*islice(done, max(1, len(stage.nests)))))
                continue
            again = True
            for nest in stage.nests:
                self._compute(nest, stage)
                self._record_source_values(nest.tensor)
                yield self._found_so_far(next(done))
            if stage.nests:
                continue
            if stage.host is not None and stage.host.pick is not None:
                self._move_rows(stage.host.outputs[0], stage.host.pick)
            else:
                again = self._take_host(stage)
            for name in stage.computed_tensors:
                self._record_source_values(name, as_stored=not again)
            yield self._found_so_far(next(done))
        constants = (
            tensor.name
            for tensor in graph.tensors.values()
            if tensor.exact is not None and tensor.name not in self.skipped.lacking
        )
        self._note_lost_constants(constants, self.machine.tensors, self.model.tensors)
        yield self._found_so_far()

    def _found_so_far(self, used_up: Iterable[str] = ()) -> ExpectedValues:
        """What was found since the last time; buffers that are `used_up` are dropped."""
        for buffer in used_up:
            self.machine.drop(buffer)
            self.model.drop(buffer)
            self.unfed.pop(buffer, None)
            self._taken.pop(buffer, None)
        found, self.found = self.found, ExpectedValues()
        return found

    def _stored(self, name: str) -> Array:
        """A tensor as the program stores it."""
        taken = self._taken.setdefault(self.recipe.graph.buffer_of(name), {})
        if name not in taken:
            taken[name] = self._take(name)
        return taken[name]

    def _compute(self, nest: Nest, stage: Stage) -> None:
        """Compute a nest in both arithmetics. Stored values of the program replace the machine's at
        once: later operators start from them."""
        name, machine = nest.tensor, self.machine
        stored_values = machine.tensors.of(nest)
        machine.before_writing(name)
        content = self.memo.run(nest, stored_values)
        order = against_order(stage.sums.get(name, "fp32"))

        def bound() -> Array | None:
            known = {access.tensor: machine.error_of(access.tensor) for access in nest.reads}
            return self.memo.error(nest, stored_values, known, order, content)

        self._compute_as_model(nest, stored_values)
        if name not in stage.stored and name not in stage.kept:
            unsure = any(machine.unsure(access.tensor) for access in nest.reads)
            if unsure or not repeated(nest, stored_values, {}, order):
                machine.put_off(name, stored_values, bound)
            else:
                machine.set_error(name, None)
            self._take_copies(name)
            return
        actual, expected = self._stored(name), machine.tensors[name].copy()
        copies = [
            (copy, tuple(slice(first, first + size) for first, size in box), self._take(copy))
            for copy, box in stage.copies.get(name, {}).items()
        ]
        other = [each for each in copies if each[2].tobytes() != actual[each[1]].tobytes()]
        error = None if not other and _proves_itself(actual, expected) else bound()
        by, apart = self.forms.get(name, ""), np.zeros(actual.shape if other else (), np.float32)
        self.found.stored.append(_stored_check(name, actual, expected, error, by))
        for copy, box, values in other:
            off = None if error is None else error[box]
            self.found.stored.append(_stored_check(copy, values, expected[box], off, by))
            # Readers of that core are off by all of it; the mean error is excused up to half.
            np.fmax(apart[box], 2 * _distance(values, actual[box]), out=apart[box])
        machine.tensors[name][...] = actual
        machine.set_error(name, apart if other else None)

    def _compute_as_model(self, nest: Nest, stored_values: Mapping[str, AnyArray]) -> None:
        name, model = nest.tensor, self.model
        read, errors = self._as_model_reads(nest.reads, nest.origin, nest)
        self._note_lost_constants(read, stored_values, read)
        tensors = {**read, name: model.tensors[name]}
        content = self.memo.run(nest, tensors)
        self._note_losses(nest)
        how = self.against[nest.origin]
        model.set_error(name, self.memo.error(nest, tensors, errors, how, content))
        self._excuse_undefined(nest, read)
        self._round_as_model(name)

    def _take_copies(self, name: str) -> None:
        """What is not stored is, as far as it is unsure, what a stored copy of it says: some read
        the copy, and must not get another version of the same value."""
        for copy in self.copies.get(self.recipe.graph.buffer_of(name), ()):
            read = copy.operands[0]
            if not self.machine.unsure(read.tensor):
                continue
            values = over_loops(self.machine.tensors[read.tensor], read, copy)
            copied = np.empty(values.shape, values.dtype)
            if read.scale == copy.scale:
                copied[...] = self._stored(copy.tensor)
            else:
                real = self._stored(copy.tensor).astype(np.float32)
                encode(real, code(read.scale, read.zero), copied)
            if np.array_equal(copied, values):
                continue
            error = self.machine.error_of(read.tensor)
            if error is None:
                continue
            with np.errstate(invalid="ignore"):
                off = np.abs(copied.astype(np.float64) - values.astype(np.float64))
            np.copyto(values, copied, where=off <= over_loops(error, read, copy))

    def _round_as_model(self, name: str) -> None:
        """Round as a cast of the model to half precision, which the machine's own types make
        unnecessary."""
        values = self.model.tensors[name]
        for rounded in self.recipe.graph.tensors[name].rounded:
            kind = NUMPY[rounded]
            self.model.set_error(name, in_type(values, self.model.error_of(name), kind))
            with np.errstate(over="ignore"):
                values[...] = values.astype(kind)

    def _excuse_undefined(self, nest: Nest, read: Mapping[str, AnyArray]) -> None:
        """Excuse undefined results: real values beyond the integers to which the model converts
        them."""
        name = nest.tensor
        if not self.recipe.graph.tensors[name].converted:
            return
        real = np.zeros(nest.shape)
        self.memo.run(nest, {**read, name: real})
        kind = self.model.tensors[name].dtype
        limits = np.iinfo(kind)
        undefined = ~((real >= limits.min) & (real <= limits.max))
        if undefined.any():
            self.model.widen(name, np.where(undefined, np.inf, 0.0))
            self.found.losses.append(
                f"{np.count_nonzero(undefined)} of {real.size} values of {nest.origin} are beyond "
                f"{NAMES[kind]}, to which ONNX then leaves the conversion open"
            )

    def _as_model_reads(
        self, reads: Sequence[Access], origin: str, nest: Nest | None = None
    ) -> tuple[dict[str, AnyArray], dict[str, Array | None]]:
        """Operands of an operator of node `origin` in the model's arithmetic, and their errors: a
        value of the same node keeps its width, even if it has a name in the model."""
        found: dict[str, AnyArray] = {}
        tensors = self.model.tensors
        errors: dict[str, Array | None] = {}
        for access in reads:
            name = access.tensor
            tensor = self.recipe.graph.tensors[name]
            unfed = self.unfed.get(tensor.storage.buffer)
            if unfed is None or self.inner.get(name) not in origin.split("+"):
                found[name] = tensors[name] if nest is None else tensors.read(name, nest)
                errors[name] = self.model.error_of(name)
                continue
            found[name], error = (view_of(tensor, flat) for flat in unfed)
            errors[name] = error if error.any() else None
        return found, errors

    def _move_rows(self, name: str, pick: Pick) -> None:
        """Gather rows, or scatter new ones, in both arithmetics; any value if the index is
        uncertain."""
        read = (pick.given, pick.update) if isinstance(pick, Put) else (pick.table,)
        self._note_lost_constants(read, self.machine.tensors, self.model.tensors)
        for values in (self.machine, self.model):
            tensors, unsure = values.tensors, values.error_of(pick.index)
            found = np.zeros(tensors[name].shape, np.float32)
            if unsure is not None:
                found[...] = np.inf
            else:
                errors = {each: values.error_of(each) for each in read}
                exact = {n: np.broadcast_to(np.float32(0), tensors[n].shape) for n in read}
                known = {n: error for n, error in errors.items() if error is not None}
                with_rows(pick, found, {**exact, **known, pick.index: tensors[pick.index]})
            with_rows(pick, tensors[name], tensors)
            values.set_error(name, found if found.any() else None)

    def _take_host(self, stage: Stage) -> bool:
        """Take the results of a host call; whether they are recomputed, because the call read or
        wrote values that the program rounded and the model does not name."""
        for name in stage.stored:
            self.machine.before_writing(name)
            self.machine.tensors[name][...] = self._stored(name)
            self.model.tensors[name][...] = self._stored(name)
            self.model.set_error(name, host_error(self.model.tensors[name]))
        node = stage.host
        if node is None or self.host is None:
            return False
        read, errors = self._as_model_reads([Access(n, ()) for n in node.inputs], node.origin)
        wide = [np.asarray(read[name]) for name in node.inputs]
        spreads = [errors[name] for name in node.inputs]
        whole = any(NAMES[self._stored(name).dtype] not in FLOATS for name in stage.stored)
        ties = tied(self.host, node.payload, wide) if whole else []
        named = all(self.recipe.known.get(name) for name in node.outputs)
        rounds = not self.bypassed.isdisjoint(node.outputs)
        same = (_equal(self.machine.tensors[name], np.asarray(read[name])) for name in node.inputs)
        again = not named or rounds or not all(same)
        if again:
            values, moved = moved_by(self.host, node.payload, wide, spreads)
            for name, made, more in zip(node.outputs, values, moved, strict=True):
                self.model.tensors[name][...] = made
                self.model.set_error(name, host_error(self.model.tensors[name]))
                self.model.widen(name, more)
        for name, more in zip(node.outputs, ties, strict=False):
            self.model.widen(name, more)
        return again

    def _record_source_values(self, made: str, *, as_stored: bool = False) -> None:
        """The model's values that are complete with the tensor `made`: their readers get what the
        program had, once all that the same node made is told: it may be the same bytes."""
        self._save_computed(made)
        for _, same in groupby(self.seen.get(made, ()), lambda n: self.recipe.known[n][0].node):
            held = list(same)
            for name in held:
                self._record_expected(name, as_stored=as_stored)
            for name in held:
                if name not in self.bypassed:
                    self._restart_from_program(name)

    def _save_computed(self, name: str) -> None:
        """Save values for later reads of the same node, before other nodes get the stored ones."""
        buffer = (tensor := self.recipe.graph.tensors[name]).storage.buffer
        if buffer not in self.kept or not tensor.elements:
            return
        if buffer not in self.unfed:
            values = np.asarray(self.model.tensors[name].base)
            self.unfed[buffer] = values.copy(), np.zeros(values.size, np.float32)
        error = self.model.error_of(name)
        for flat, made in zip(self.unfed[buffer], (self.model.tensors[name], error), strict=True):
            view_of(tensor, flat)[...] = 0.0 if made is None else made

    def _record_expected(self, name: str, *, as_stored: bool) -> None:
        """Record values and expected values of the model's tensors in a tensor."""
        values, error = self.model.tensors[name], self.model.error_of(name)
        stored = self.recipe.graph.tensors[name].dtype
        for held in self.recipe.known[name]:
            known, kind = held.name, NUMPY[held.dtype]
            off = in_type(values, error, kind)
            made = held.shaped(values.astype(kind))
            off = None if off is None else held.shaped(off)
            as_held = held.shaped(self.machine.tensors[name].astype(kind))
            if name in self.bypassed:
                self.found.made[known] = ExpectedValue(made, off)
                self.found.not_handed_on[known] = as_held
                continue
            self.found.observed[known] = as_held
            if held.node != self.recipe.known[name][0].node:  # by one that changes nothing of it
                self.found.made[known] = ExpectedValue(self.found.observed[known], None)
                continue
            rounded = stored if as_stored else None
            self.found.made[known] = ExpectedValue(made, off, rounded, self.forms.get(name, ""))

    def _restart_from_program(self, name: str) -> None:
        """Let readers of a named value start from it as the reference's readers do: in the model's
        element type, uncertain by a cast that the machine does not need."""
        values = self.model.tensors[name]
        names = (known.name for known in self.recipe.known[name])
        seen = (self.found.observed[known].astype(values.dtype) for known in names)
        given = [each.reshape(values.shape) for each in seen]
        values[...] = given[0]
        self.model.set_error(name, None)
        with np.errstate(invalid="ignore"):
            apart = [np.abs(other - values) for other in given[1:] if not _equal(other, values)]
        if apart:
            self.model.set_error(name, np.nan_to_num(np.maximum.reduce(apart)))

    def _start_from(self, name: str, values: Array) -> None:
        """Let readers start from `values` of a tensor that nobody has computed."""
        self.machine.before_writing(name)
        self.machine.tensors[name][...] = values
        self.machine.set_error(name, None)
        self.model.tensors[name][...] = values
        self._start_readers(name)

    def _start_as(self, name: str, like: str) -> None:
        """Let readers of a tensor that nobody computes start as those of another one do."""
        for values in (self.machine, self.model):
            values.before_writing(name)
            values.tensors[name][...] = values.tensors[like]
            values.set_error(name, values.error_of(like))
        self._start_readers(name)

    def _start_readers(self, name: str) -> None:
        """Let readers of the model's values in a tensor start from what the program has there."""
        for seen in self.seen[name]:
            for held in self.recipe.known[seen]:
                own = self.machine.tensors[seen].astype(NUMPY[held.dtype])
                self.found.observed[held.name] = held.shaped(own)
            self._restart_from_program(seen)

    def _note_lost_constants(
        self, names: Iterable[str], stored: Mapping[str, AnyArray], exact: Mapping[str, AnyArray]
    ) -> None:
        """Note constants that their element type cannot hold, each of which is looked at once."""
        for name in names:
            tensor = self.recipe.graph.tensors[name]
            if tensor.exact is None or tensor.storage.buffer in self._looked_at:
                continue
            self._looked_at.add(tensor.storage.buffer)
            doubles = tensor.exact.dtype == np.float64  # the model computes with them in fp32
            values = np.asarray(tensor.exact) if doubles else exact[name]
            if (lost := lost_constant(tensor, stored[name], values)) is not None:
                self.found.losses.append(lost)

    def _note_losses(self, nest: Nest) -> None:
        """Note values that the machine's element type makes infinite or undefined, but the model's
        does not."""
        ours, theirs = self.machine.tensors[nest.tensor], self.model.tensors[nest.tensor]
        kind = NAMES[ours.dtype]
        if per_block(kind) > 1:
            return
        lost = ~np.isfinite(ours) & np.isfinite(theirs) if kind in FLOATS else np.zeros(1, bool)
        if not lost.any():
            return
        undefined, count = np.isnan(ours[lost]), np.count_nonzero(lost)
        largest = float(np.abs(theirs[lost]).max())
        cases = {"infinite": not undefined.all(), "undefined": undefined.any()}
        what = " or ".join(case for case, there in cases.items() if there)
        limit = float(ml_dtypes.finfo(ours.dtype).max)  # type: ignore[no-untyped-call]
        why = f", up to {largest:.3g} where {kind} ends at {limit:.3g}" if largest > limit else ""
        self.found.losses.append(
            f"{kind} makes {count} of {ours.size} values of {nest.origin} {what}{why}"
        )


def _reference_arithmetics(recipe: VerificationPlan) -> dict[str, RoundingModel]:
    """By the nodes that nests come from: roundings of a reference, which computes each node in the
    element type that the model has there, and leaves nothing wider between nodes made one.

    The type is that of what the node makes in the model: a nest may write what a cast behind it
    makes of that.
    """
    kinds: dict[str, set[str]] = {}
    for values in recipe.known.values():
        for value in values[:1]:
            for node in value.origin.split("+"):
                kinds.setdefault(node, set()).add(value.dtype)
    anywhere = {value.dtype for values in recipe.known.values() for value in values}
    found: dict[str, RoundingModel] = {}
    for origin in {nest.origin for stage in recipe.stages for nest in stage.nests}:
        own = set[str]().union(*(kinds.get(node, set()) for node in origin.split("+")))
        found[origin] = against_reference(FLOATS & (own or anywhere))
    return found


def _stored_check(
    name: str, actual: Array, expected: Array, error: Array | None, by: str
) -> StoredTensorCheck:
    if (size := per_block(NAMES[actual.dtype])) > 1:
        error = None if error is None else error[..., None].repeat(size, -1)
        actual, expected = from_blocks(actual), from_blocks(expected)
    return StoredTensorCheck(name, actual, expected, error, by)


def _distance(one: Array, other: Array) -> Array:
    """How far elements of two cores are apart, both of which may be right."""
    blocks = per_block(NAMES[one.dtype]) > 1
    left, right = (from_blocks(a) if blocks else a.astype(np.float64) for a in (one, other))
    with np.errstate(invalid="ignore"):
        apart: Array = np.where(left == right, 0, np.nan_to_num(abs(left - right), nan=np.inf))
    return apart.max(-1) if blocks else apart


def _proves_itself(actual: Array, expected: Array) -> bool:
    """Whether all is equal and finite: no bound of an element says more."""
    kind = NAMES[expected.dtype]
    if per_block(kind) > 1:
        return False
    whole = kind not in FLOATS
    return np.array_equal(actual, expected) and (whole or bool(np.isfinite(expected).all()))


def _equal(left: Array, right: Array) -> bool:
    return np.array_equal(left.astype(right.dtype), right, equal_nan=right.dtype.kind == "f")

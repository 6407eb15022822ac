"""Forward error of one nest's result: its floating-point operations, element by element.

The one idea: the nest is evaluated at its actual operands, and the error of each element follows
from them: the error of the operands, the number of roundings in a sum and the size of its terms,
the slope of the function at that point, and whether a rounding tie, a clip or an overflow is within
reach. So every element has a bound of its own, and one huge neighbour widens no other bound.

- Sums: K terms are added up in an unknown order. Each rounding is one unit of a partial sum, which
  is at most the sum of magnitudes A: K units of A at most, and as roundings are of random sign
  (Higham and Mary, 2019) `GROWTH` sqrt(K) of them where that is less.
- Errors of operands are bounds that few of them reach, independently: sums add up their squares
  and allow `SPREAD` times the root, or, of at most `FEW` errors, their sum.
  Where a sum reads one value again and again (channels with equal weights), that is one error.
- Functions: the largest change when the operands move by their errors, plus their own rounding.
- The result: clipped and encoded at both ends of its interval, so a value far from any tie keeps
  its integer exactly, and one that may overflow may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product as combinations

import numpy as np

from compiler.tensor_ir.arithmetic import Cut, blocks, code, encoded, function_of
from compiler.tensor_ir.interpreter import (
    ProductSums,
    at_first,
    by_numbers,
    contracted,
    cut_of,
    cuts_alone,
    exactly,
    letters,
    magnitudes,
    of_whole_numbers,
    over_loops,
    over_own_loops,
    per_output,
    raw_move,
    real,
    rows_of_blocks,
    sides_of,
    within_loops,
)
from compiler.tensor_ir.nest import Access, Array, Nest
from simmodel.arch.base import CHAINS, ENTRIES
from simmodel.arch.dtype import NAMES, limits, microscaled, real_limits
from simmodel.arch.element_types import EPSILON
from simmodel.arch.lazy_array import AnyArray
from simmodel.isa.base import encode
from simmodel.isa.contraction import contraction
from simmodel.isa.forms import definition
from simmodel.isa.functions import REDUCE, Function, Term
from simmodel.isa.matrix import rounded_between

GROWTH = 8.0
"""Deviations of a sum of roundings that are excused."""
SPREAD = 1.5
"""Root mean squares of the bounds of a sum's terms that are excused. Real errors are a fraction of
their bounds, as most values lie far from the tie that they might cross; 1 was exceeded by one of
131 072 elements behind three convolutions."""
FEW = 8
"""Errors in a sum that no law of large numbers holds for: equal integers at one tie are rounded
alike. Of five in a row of attention three were, and 1.57 times the root was off."""


@dataclass(frozen=True)
class RoundingModel:
    """Roundings of an arithmetic, in units relative to the rounded value."""

    unit: float
    """Of each operation on real values; 0: exact repetition if operands are exact."""
    special: float
    """Of functions that libraries approximate."""
    sums: float
    """Of each addition of a sum of real values."""
    integers: float
    """Of each addition of a sum of integers; 0: they are exact."""


AGAINST_REFERENCE = RoundingModel(*(2 * EPSILON["fp32"],) * 4)
"""A nest against a library's operator: both compute in fp32, each in an order of its own, the
library also where the nest has integers."""


def against_reference(kinds: Set[str]) -> RoundingModel:
    """A nest against a library's operator on values of the float types `kinds`."""
    if not kinds or "fp32" in kinds or "fp64" in kinds:
        return AGAINST_REFERENCE
    unit = max(EPSILON[kind] for kind in kinds)
    return replace(AGAINST_REFERENCE, unit=2 * unit, special=2 * unit)


def against_order(sums: str) -> RoundingModel:
    """A program against its own nests: the same operations, sums in another order, partial sums
    in the type `sums`."""
    return RoundingModel(0.0, 2 * EPSILON["fp32"], 2 * EPSILON.get(sums, EPSILON["fp32"]), 0.0)


@dataclass(frozen=True)
class _Bounded:
    """Real values and their error bounds; no error: exact."""

    values: Array
    error: Array | None

    def part(self, shape: tuple[int, ...], cut: Cut) -> _Bounded:
        """Some of them, broadcast to `shape`."""
        error = None if self.error is None else np.broadcast_to(self.error, shape)[cut]
        return _Bounded(np.broadcast_to(self.values, shape)[cut], error)

    def wider(self, more: Array) -> _Bounded:
        """The same values, with `more` error."""
        return _Bounded(self.values, more if self.error is None else self.error + more)

    def rounded(self, unit: float, sizes: Array, times: float = 1.0) -> _Bounded:
        """The same values behind operations that round `times` by `unit` of `sizes`. Repeated ones
        (0) round equal operands alike, and others anew: where q steps are off by one, fp32 holds
        (q + 1) s and q s, which need not be s apart. Each of the two is off by a unit of itself."""
        if unit or self.error is None:
            return self.wider(unit * times * sizes) if unit else self
        apart = 2 * EPSILON["fp32"] * times * (sizes + self.error)
        return self.wider(np.where(self.error > 0, apart, 0.0))


def forward_error(
    nest: Nest, tensors: Mapping[str, AnyArray], errors: Mapping[str, Array | None],
    how: RoundingModel, sums: ProductSums | None = None,
) -> Array | None:  # fmt: skip
    """Error bound of each element of `nest`'s result, in steps of its stored values.

    Args:
        nest: an operator.
        tensors: its operands as stored, and its result: only the type of that matters.
        errors: for each operand, in its shape, what its stored values may be off by; None or
            missing: they are exact.
        how: which roundings are excused.
        sums: what the nest adds up at these operands, as far as it is made; keeps the rest.

    Returns:
        An array in the shape of the result; infinite where anything may come out. None: exact.
    """
    if tensors[nest.tensor].size == 0 or repeated(nest, tensors, errors, how):
        return None
    sums = sums or ProductSums()
    if any(errors.get(access.tensor) is not None for access in nest.operands):
        names = (nest.tensor, *(access.tensor for access in nest.reads))
        tensors = {name: np.asarray(tensors[name]) for name in names}
    tensors = sums.outlined(nest, tensors)
    if nest.reduce == "blocks":
        return _of_blocks(nest, tensors, errors)
    blocks = nest.block
    nest, tensors = by_numbers(nest, tensors)
    if blocks > 1:
        spread = {a.tensor: e for a in nest.operands if (e := errors.get(a.tensor)) is not None}
        errors = {**errors, **{n: e[..., None].repeat(blocks, -1) for n, e in spread.items()}}
    with np.errstate(all="ignore"):
        return _bound_in_parts(nest, tensors, errors, how, sums)


def _of_blocks(
    nest: Nest, tensors: Mapping[str, Array], errors: Mapping[str, Array | None]
) -> Array | None:
    """The most by which a number of each block may be off: both ends of each are rounded, with the
    scales of the least and of the most that the largest may be."""
    (access,) = nest.operands
    stored = errors.get(access.tensor)
    if stored is None:
        return None
    kind = NAMES[tensors[nest.tensor].dtype]
    values, error = rows_of_blocks(nest, tensors), over_loops(stored, _unpadded(access), nest)
    sizes, found = abs(values), np.zeros(nest.shape, np.float32)
    middle = microscaled(values, kind)
    for largest in ((sizes - error).max(-1).clip(0), (sizes + error).max(-1)):
        for end in (values - error, values + error):
            change = abs(microscaled(end, kind, largest[..., None]) - middle)
            np.fmax(found, change.max(-1), out=found)
    found[~np.isfinite(error).all(-1)] = np.inf
    return found if found.any() else None


_AT_ONCE = 1 << 22
"""Elements of an operand or result that are looked at together."""


def _bound_in_parts(
    nest: Nest, tensors: Mapping[str, Array], errors: Mapping[str, Array | None],
    how: RoundingModel, sums: ProductSums,
) -> Array | None:  # fmt: skip
    """The bound, of large results or operands part by part along one of their axes: that with which
    least is read again and again."""
    whole, names = tensors[nest.tensor], [access.tensor for access in nest.reads]
    size = max(whole.size, *(tensors[name].size for name in names))

    def read_again(d: int) -> int:
        return sum(tensors[a.tensor].size for a in nest.reads if not a.uses(d))

    alone = [d for d in range(nest.rank) if all(cuts_alone(a, d) for a in nest.reads)]
    dim = min(alone, key=lambda d: (read_again(d), -nest.dims[d].extent), default=None)
    if dim is None or size <= _AT_ONCE or len({*names}) < len(names):
        return _NestErrors(nest, tensors, errors, how, sums).bound()
    extent, found = nest.dims[dim].extent, None
    step = max(1, extent * _AT_ONCE // size)
    for start in range(0, extent, step):
        cut = slice(start, min(start + step, extent))
        columns = (*[slice(None)] * dim, cut)
        dims = list(nest.dims)
        dims[dim] = replace(dims[dim], extent=cut.stop - start)
        ours = {a.tensor: cut_of(tensors[a.tensor], a, dim, cut) for a in nest.reads}
        own = {
            a.tensor: cut_of(error, a, dim, cut)
            for a in nest.reads
            if (error := errors.get(a.tensor)) is not None
        }
        part = replace(nest, dims=tuple(dims))
        ours[nest.tensor] = whole[columns]
        bound = _NestErrors(part, ours, own, how, sums.part(start, columns)).bound()
        if bound is not None:
            found = np.zeros(whole.shape, bound.dtype) if found is None else found
            found[columns] = bound
    return found


def repeated(
    nest: Nest, tensors: Mapping[str, AnyArray], errors: Mapping[str, Array | None],
    how: RoundingModel,
) -> bool:  # fmt: skip
    """Whether a nest is exact, so that nothing must be evaluated."""
    if any(errors.get(access.tensor) is not None for access in nest.reads):
        return False
    if nest.reduce == "blocks":
        return True
    if how.unit:
        return False
    if nest.function == "mul" and nest.reduce == "sum":
        return _of_integers(nest, tensors) and not how.integers
    special = function_of(nest).cost == "special" and how.special
    return nest.reduce not in ("sum", "prod") and not special


def _of_integers(nest: Nest, tensors: Mapping[str, AnyArray]) -> bool:
    kinds = (tensors[access.tensor].dtype for access in nest.operands)
    return all(np.issubdtype(kind, np.integer) for kind in kinds)


@dataclass(frozen=True)
class _NestErrors:
    """The arguments of `forward_error`, and what follows from them."""

    nest: Nest
    tensors: Mapping[str, Array]
    errors: Mapping[str, Array | None]
    how: RoundingModel
    sums: ProductSums

    @property
    def out(self) -> Array:
        """The result as stored."""
        return self.tensors[self.nest.tensor]

    def bound(self) -> Array | None:
        """As `forward_error`, where something is rounded."""
        nest, first = self.nest, self.nest.operands[0]
        if raw_move(nest, self.tensors[first.tensor].dtype, self.out.dtype):
            moved = self.errors.get(first.tensor)
            return None if moved is None else over_loops(moved, _unpadded(first), nest).copy()
        if of_whole_numbers(nest, self.tensors):
            return self._of_whole()
        found = self._with_bias_and_clip(self._reduced())
        if nest.added is not None:
            found = self._with_added(found, nest.added)
        if nest.table:
            off = (
                None if found.error is None else encoded(nest, found.values, found.error, self.out)
            )
            raw = np.empty(self.out.shape, self.out.dtype)
            encode(np.clip(found.values, nest.low, nest.high), code(nest.scale, nest.zero), raw)
            return self._of_table(raw, off, nest.table)
        return None if found.error is None else encoded(nest, found.values, found.error, self.out)

    def _with_added(self, found: _Bounded, added: Access) -> _Bounded:
        """With the tensor that is added on the way out, behind the rounding of integers."""
        nest, values, error = self.nest, found.values, found.error
        if nest.middle:
            step, scale, zero = nest.middle
            own = replace(nest, low=-np.inf, high=np.inf, scale=step, zero=int(zero))
            steps = None if error is None else encoded(own, values, error, self.out)
            error = None if steps is None else steps * np.float64(scale)
            values = rounded_between(values, NAMES[self.out.dtype], *nest.middle)
        more = per_output(added, nest, self.tensors).astype(np.float64)
        made = _Bounded(values + more, _add_errors(error, self._error_of(added, late=True)))
        return made.rounded(self.how.unit, np.abs(values) + np.abs(more))

    # Whole numbers.

    def _of_whole(self) -> Array | None:
        """Largest change of an integer result when its operands move by their errors; unbounded if
        the function jumps in between, or the result may wrap round."""
        nest, tensors = self.nest, self.tensors
        if nest.function == "lookup":
            (access,) = nest.operands
            found = over_loops(tensors[access.tensor], access, nest)
            return self._of_table(found, self._error_of(access), nest.parameters)
        read = dict.fromkeys(access.tensor for access in nest.operands)
        unsure = {n: error for n in read if (error := self.errors.get(n)) is not None}
        if not unsure:
            return None
        middle = exactly(nest, tensors).astype(np.float64)
        largest = np.zeros(middle.shape)
        low, high = limits(NAMES[self.out.dtype])
        real = _without_bounds(nest, tensors)
        for signs in combinations((-1, 1), repeat=len(unsure)):
            ends = zip(unsure.items(), signs, strict=True)
            moved = {name: _shifted(tensors[name], error, sign) for (name, error), sign in ends}
            corner = {**tensors, **moved}
            change = np.abs(exactly(nest, corner).astype(np.float64) - middle)
            wide = _without_bounds(nest, corner)
            wraps = (wide != real) & ((np.fmax(wide, real) > high) | (np.fmin(wide, real) < low))
            largest = np.fmax(largest, np.where(wraps, np.inf, change))
        truth = self.out.dtype == np.bool_
        if nest.function in _JUMPING or (truth and nest.function in ("move", "wrap")):
            for access in nest.operands:
                error = self._error_of(access)
                if error is not None:
                    largest = np.where(error > 0, 1 if truth else np.inf, largest)
        return largest.astype(np.float32) if largest.any() else None

    def _of_table(self, raw: Array, error: Array | None, table: Sequence[float]) -> Array | None:
        """Largest change of what is looked up for codes `raw` and all that their `error` allows, in
        a table that other implementations may have otherwise."""
        entries, unsure = np.asarray(table), np.zeros(ENTRIES)
        if self.nest.uncertain and self.how.unit:
            unsure = np.asarray(self.nest.uncertain)
        off = np.zeros(raw.shape) if error is None else np.minimum(np.ceil(error), ENTRIES)
        codes, middle = raw.astype(np.int64), entries[raw.astype(np.int64) % ENTRIES]
        largest, most = np.zeros(raw.shape), int(off.max(initial=0))
        for step in range(-most, most + 1):
            there = np.clip(codes + step, *limits(NAMES[raw.dtype])) % ENTRIES
            change = np.abs(entries[there] - middle) + unsure[there]
            largest = np.where(abs(step) <= off, np.maximum(largest, change), largest)
        return largest.astype(np.float32) if largest.any() else None

    # Functions and reductions.

    def _reduced(self) -> _Bounded:
        """The result before bias, multiplier, clip and encoding."""
        nest = self.nest
        if nest.function == "mul" and nest.reduce == "sum":
            return self._products()
        found = self._applied([self._operand(access) for access in nest.operands])
        if nest.reduce is None:
            return found
        axes = tuple(range(nest.rank, len(nest.dims)))
        choose = getattr(np, nest.reduce)
        values = choose(found.values, axis=axes)
        if nest.reduce in ("max", "min"):  # moves at most as far as its operands
            if found.error is None:
                return _Bounded(values, None)
            ends = (choose(found.values + sign * found.error, axis=axes) for sign in (1, -1))
            return _Bounded(values, np.fmax(*(np.abs(end - values) for end in ends)))
        error = self._rounded_sum(choose(np.abs(found.values), axis=axes), self.how.sums)
        if found.error is None:
            return _Bounded(values, error)
        if nest.reduce == "sum":
            return _Bounded(values, _add_errors(error, _spread(found.values, found.error, axes)))
        grown = (np.abs(found.values) + found.error).prod(axis=axes)
        return _Bounded(values, _add_errors(error, grown - np.abs(values)))

    def _operand(self, access: Access) -> _Bounded:
        """Real values of an operand over all loops, in fp64."""
        decoded = real(self.tensors[access.tensor], access)
        values = over_loops(decoded, access, self.nest).astype(np.float64)
        found = _Bounded(values, self._error_of(access))
        scaled = access.scale is not None and (self.how.unit or access.scale != 1)
        if not scaled or (found.error is None and self._decoded_alike(access)):
            return found
        return found.rounded(self.how.unit, np.abs(values))

    def _decoded_alike(self, access: Access) -> bool:
        """Whether a nest that tells which numbers are larger, or picks some of them for one that
        does, reads those that a library has there, to the last bit: integers times one fp32 number,
        which is one rounding of one product. A scale that is no fp32 number stands for two
        products."""
        nest = self.nest
        tells = nest.function in {*_COMPARING, "select"} or nest.reduce in ("max", "min")
        whole = bool(np.issubdtype(self.tensors[access.tensor].dtype, np.integer))
        one_number = access.scale is not None and float(np.float32(access.scale)) == access.scale
        return tells and whole and one_number

    def _error_of(self, access: Access, *, late: bool = False) -> Array | None:
        """Errors of an operand in real units, over all loops; `late`: over those of the output."""
        stored = self.errors.get(access.tensor)
        if stored is None:
            return None
        spread = over_loops(stored, _unpadded(access), self.nest)
        spread = at_first(spread, range(self.nest.rank)) if late else spread
        return spread.astype(np.float64) * (access.scale or 1.0)

    def _applied(self, operands: Sequence[_Bounded]) -> _Bounded:
        """The function of the nest at its operands."""
        nest, how, function = self.nest, self.how, function_of(self.nest)
        found = _at(nest.function, function, operands, nest.parameters, how)
        several = function.place or nest.function in CHAINS
        if not (several and function.does and how.unit):
            return found
        names = (*function.operands[: len(operands)], *function.parameters)
        numbers = (_Bounded(np.asarray(number), None) for number in nest.parameters)
        known = dict(zip(names, (*operands, *numbers), strict=True))
        steps = _at_term(function.terms[0], known, how)
        return found if steps.error is None else found.wider(steps.error)

    def _rounded_sum(self, magnitude: Array, unit: float) -> Array | None:
        """Error of the reduction's additions in any order, for the sum of magnitudes."""
        if not unit:
            return None
        count = math.prod(dim.extent for dim in self.nest.dims[self.nest.rank :])
        roundings = min(count + 1.0, GROWTH * math.sqrt(count) + 1.0)
        return roundings * unit * _finite(magnitude)

    def _products(self) -> _Bounded:
        """A sum of products, without an array over all loops."""
        nest, sums, error = self.nest, self.sums, None
        if unit := self.how.integers if _of_integers(nest, self.tensors) else self.how.sums:
            if sums.sizes is None:
                sizes = (magnitudes(side, np.float32) for side in self._sides)
                sums.sizes = contracted(nest, *sizes)
            summands = sums.sizes.astype(np.float64)
            if nest.bias is not None and not _of_integers(nest, self.tensors):  # may start the sums
                summands = summands + np.abs(per_output(nest.bias, nest, self.tensors))
            error = self._rounded_sum(summands, unit)
        for mine, access in enumerate(nest.operands):
            if (spread := self.errors.get(access.tensor)) is not None:
                spread = over_own_loops(spread, _unpadded(access), nest, mine)
                moved = self._moved_product(mine, spread.astype(np.float64))
                error = _add_errors(error, moved)
        factor = math.prod(access.scale or 1.0 for access in nest.operands)
        if sums.plain is None:
            sums.plain = contracted(nest, *self._sides)
        values = sums.plain.astype(np.float64) * factor
        return _Bounded(values, None if error is None else error * factor)

    @cached_property
    def _sides(self) -> list[Array]:
        return sides_of(self.nest, self.tensors)

    def _moved_product(self, mine: int, spread: Array) -> Array:
        """Change of a sum of products when side `mine` moves by its errors `spread`."""
        nest, used, sides = self.nest, within_loops(self.nest), self._sides
        left, right = list(used[mine]), list(used[1 - mine])
        weights = sides[1 - mine]
        for axis, loop in reversed(list(enumerate(used[mine]))):
            if loop >= nest.rank and _repeats(sides[mine], axis):
                sizes = magnitudes(weights, np.float64)
                spread, weights = spread.max(axis=axis), sizes.sum(axis=right.index(loop))
                left.remove(loop)
                right.remove(loop)
        summed = [loop for loop in {*left, *right} if loop >= nest.rank]
        within = tuple(axis for axis, loop in enumerate(left) if loop in summed)
        again = math.prod(nest.dims[loop].extent for loop in summed if loop not in left)
        reach = _reach(again * np.count_nonzero(spread, axis=within, keepdims=True))
        squares = contraction(
            np.square(spread * reach), letters(left),
            np.square(weights, dtype=np.float64), letters(right), letters(range(nest.rank)),
        )  # fmt: skip
        return np.sqrt(squares)

    # The result.

    def _with_bias_and_clip(self, found: _Bounded) -> _Bounded:
        """With bias and multiplier, before the clip."""
        nest, unit = self.nest, self.how.unit
        if nest.bias is not None:
            more = per_output(nest.bias, nest, self.tensors).astype(np.float64)
            error = _add_errors(found.error, self._error_of(nest.bias, late=True))
            found = _Bounded(found.values + more, error)
            found = found.rounded(unit, np.abs(found.values) + np.abs(more))
        if nest.multiplier is not None:
            factor = per_output(nest.multiplier, nest, self.tensors).astype(np.float64)
            error = None if found.error is None else found.error * np.abs(factor)
            late = self._error_of(nest.multiplier, late=True)
            moved = None if late is None else late * np.abs(found.values)
            found = _Bounded(found.values * factor, _add_errors(error, moved))
        # Values that are handed on become others by a scale, or added up. The largest of some
        # numbers is one of them, to the last bit: whoever looks for it among them finds it.
        first = nest.operands[0]
        decoded = first.scale is not None and not self._decoded_alike(first)
        moved_on = nest.function == "move" and (decoded or nest.reduce in ("sum", "prod"))
        encodes = unit and (nest.scale is not None or moved_on)
        if encodes or nest.multiplier is not None:
            found = found.rounded(unit, np.abs(found.values), _ROUNDINGS)
        return found


def _without_bounds(nest: Nest, tensors: Mapping[str, Array]) -> Array:
    """Result of an integer nest as doubles, as if its type were unlimited."""
    function = function_of(nest)
    if function.bits or not (function.wraps or nest.reduce):
        return np.zeros(nest.shape)
    wide = (tensors[access.tensor].astype(np.float64) for access in nest.operands)
    operands = [over_loops(a, access, nest) for a, access in zip(wide, nest.operands, strict=True)]
    values = np.asarray(function.apply(*operands, *nest.parameters), np.float64)
    if nest.reduce is None:
        return values
    return np.asarray(
        REDUCE[nest.reduce].apply(values, axis=tuple(range(nest.rank, len(nest.dims))))
    )


_JUMPING = frozenset({
    "mod", "fmod", "bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
    "shift_right", "equal", "not", "and", "or", "xor", "div", "pow",
})  # fmt: skip
"""Functions of whole numbers that may be anything between the ends of what an operand may be."""


def _shifted(raw: Array, error: Array, sign: int) -> Array:
    """Integers moved by their errors, within their type."""
    moved: Array = raw.astype(np.float64) + sign * np.ceil(error)
    return np.clip(moved, *real_limits(NAMES[raw.dtype])).astype(raw.dtype)


_COMPARING = frozenset({"equal", "less", "less_equal", "greater", "greater_equal"})


def _unpadded(access: Access) -> Access:
    """`access` to errors: a value read outside a tensor is exact."""
    return Access(access.tensor, access.index, None if access.pad is None else 0.0)


def _at_term(term: Term, known: Mapping[str, _Bounded], how: RoundingModel) -> _Bounded:
    """Value and error of a term of several functions, each step rounded."""
    if isinstance(term, float):
        return _Bounded(np.asarray(term), None)
    if isinstance(term, str):
        return known[term]
    name, *inner = term
    operands = [_at_term(each, known, how) for each in inner]
    return _at(str(name), definition(str(name), len(inner)), operands, (), how)


def _at(
    name: str, function: Function, operands: Sequence[_Bounded], parameters: Sequence[float],
    how: RoundingModel,
) -> _Bounded:  # fmt: skip
    shape = np.broadcast_shapes(*(each.values.shape for each in operands))
    values, error = np.empty(shape), None
    for cut in blocks(shape):
        found = _at_some(name, function, [o.part(shape, cut) for o in operands], parameters, how)
        values[cut] = found.values
        if found.error is not None:
            error = np.zeros(shape) if error is None else error
            error[cut] = found.error
    return _Bounded(values, error)


def _at_some(
    name: str, function: Function, operands: Sequence[_Bounded], parameters: Sequence[float],
    how: RoundingModel,
) -> _Bounded:  # fmt: skip
    values = function.apply(*(each.values for each in operands), *parameters)
    values = np.asarray(values, np.float64)
    found = _Bounded(values, _function_change(name, function, operands, parameters, values))
    if name in _EXACT:
        return found
    own = how.special if function.cost == "special" else how.unit
    sizes = _sizes(name, parameters, [each.values for each in operands], values)
    found = found.rounded(own, sizes, _ROUNDINGS)
    if own <= 0 or function.cost != "special":
        return found
    lost = (sizes > 0) & (sizes < _LEAST)
    return found.wider(np.where(lost, _LEAST, 0.0)) if lost.any() else found


def _function_change(
    name: str, function: Function, operands: Sequence[_Bounded], parameters: Sequence[float],
    values: Array,
) -> Array | None:  # fmt: skip
    """Largest change of a function when its operands move by their errors; none where every corner
    gives the same value, infinite or undefined ones too."""
    if all(each.error is None for each in operands):
        return None
    ends = [
        (each.values,) if each.error is None
        else (each.values - each.error, each.values + each.error)
        for each in operands
    ]  # fmt: skip
    largest, endless = np.zeros(values.shape), ~np.isfinite(values)
    same = endless.copy() if endless.any() else None
    for corner in combinations(*ends):
        other = function.apply(*corner, *parameters)
        change = np.asarray(np.subtract(other, values))
        np.maximum(largest, np.abs(change, out=change), out=largest)
        if same is not None:
            same &= (other == values) | (np.isnan(other) & np.isnan(values))
    np.copyto(largest, np.inf, where=np.isnan(largest))
    if same is not None:
        largest[same] = 0.0
    if name in _POLES:
        pole = operands[_POLES[name]]
        if pole.error is not None:
            largest = np.where(np.abs(pole.values) <= pole.error, np.inf, largest)
    return largest


_POLES = {"reciprocal": 0, "rsqrt": 0, "div": 1}
"""The operand at whose sign change a function is unbounded."""

_EXACT = frozenset({
    "move", "wrap", "relu", "abs", "neg", "sign", "floor", "ceil", "round", "trunc", "not", "max",
    "min", "equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "xor", "select",
    "is_nan", "is_inf", "fmod",
})  # fmt: skip
"""Functions whose result is never rounded."""

_ROUNDINGS = 4.0
"""Roundings within one function, also of a library's approximation."""

_LEAST = float(np.finfo(np.float32).tiny)
"""The smallest normal number of fp32: of less, libraries' approximations make 0."""

_THROUGH_ONE = frozenset({
    "sigmoid", "tanh", "erf", "softplus", "elu", "selu", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
})  # fmt: skip
_THROUGH_OPERAND = frozenset({"silu", "gelu", "gelu_tanh", "mish", "hard_swish", "add", "sub"})
"""Functions that libraries compute through values of the size of 1, or of an operand, which cancel:
these are rounded as well."""


def _sizes(
    name: str, parameters: Sequence[float], operands: Sequence[Array], values: Array
) -> Array:
    """Magnitude of the values that a function rounds."""
    size: Array = np.abs(values)
    if name in _THROUGH_ONE:
        size = size + math.prod(max(1.0, abs(p)) for p in parameters)
    elif name in _THROUGH_OPERAND:
        size = size + np.abs(operands[0])  # where it cancels, the other one is as large
    elif name == "fma":
        size = size + np.abs(operands[0] * operands[1]) + np.abs(operands[2])
    return _finite(size)


def _finite(sizes: Array) -> Array:
    """Magnitudes for rounding: infinite and undefined ones contribute nothing."""
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _spread(values: Array, error: Array, axes: tuple[int, ...]) -> Array:
    for axis in axes:
        if _repeats(values, axis):
            error = error.sum(axis=axis, keepdims=True)
    unsure = np.count_nonzero(error, axis=axes)
    joined: Array = _reach(unsure) * np.sqrt(np.square(error).sum(axis=axes))
    return joined


def _repeats(values: Array, axis: int) -> bool:
    """Whether a sum over `axis` reads one value again and again: those errors are equal, so they
    add up linearly."""
    first, *others = np.moveaxis(values, axis, 0)
    return bool(others) and all(np.array_equal(first, other) for other in others)


def _reach(unsure: Array) -> Array:
    """Roots of a sum of squares that are excused where `unsure` of the terms are off: no sum
    exceeds sqrt(unsure) of them."""
    return np.where(unsure <= FEW, np.sqrt(unsure), SPREAD)


def _add_errors(left: Array | None, right: Array | None) -> Array | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right

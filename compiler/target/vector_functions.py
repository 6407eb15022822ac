"""Functions and products that the engines lack, made of those that they have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.passes import ensured
from compiler.target.band_products import as_windows
from compiler.target.bind import unsupported
from compiler.target.machine import mixed, temporary_type
from compiler.tensor_ir.fold import as_real
from compiler.tensor_ir.nest import (
    Access,
    Dim,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    at,
    dense,
    order_of,
)
from compiler.tensor_ir.rewrite import NestRewrite, number_access, with_steps, writes_of
from simmodel.arch.element_types import is_float
from simmodel.arch.record import Arch
from simmodel.isa.forms import cost_of, definition, elementwise_form
from simmodel.isa.functions import Term

# Whether two terms compute the same: functions of functions in a normal form, and what one's
# operands are in the other.

_KEPT = frozenset({
    "max", "min", "floor", "ceil", "sigmoid", "tanh", "reciprocal", "rsqrt", "sin", "cos", "less",
    "greater", "less_equal", "greater_equal",
})  # fmt: skip
"""Functions that are defined by each other: they are not expanded."""
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
"""Commutative, associative functions, and their neutral element."""
_JOINED: Mapping[str, Callable[[float, float], float]] = {
    "add": float.__add__, "mul": float.__mul__, "max": max, "min": min,
}  # fmt: skip
_POWERS = {2.0: 2, 3.0: 3}
_CLOSE = 1e-6
"""Relative tolerance between numbers: both are rounded to fp32 anyway."""

Found = Mapping[str, Term]
"""Name in a pattern -> the term it stands for."""


def replaced(term: Term, known: Mapping[str, Term]) -> Term:
    """`term` with names replaced by `known`."""
    if isinstance(term, tuple):
        return (term[0], *(replaced(each, known) for each in term[1:]))
    return known.get(term, term) if isinstance(term, str) else term


def normal(term: Term) -> Term:
    """`term` with all functions that have a definition expanded."""
    if not isinstance(term, tuple):
        return term
    name, *inner = term
    assert isinstance(name, str)
    if name == "pow" and len(inner) == 2 and inner[1] in _POWERS:
        return normal(("mul", *inner[:1] * _POWERS[float(str(inner[1]))]))
    terms = () if name in (*_KEPT, *_NEUTRAL) else definition(name, len(inner)).terms
    if terms:
        names = definition(name, len(inner)).operands
        return normal(replaced(terms[0], dict(zip(names, inner, strict=False))))
    parts = [normal(each) for each in inner]
    return _collected(name, parts) if name in _NEUTRAL else (name, *parts)


def _collected(name: str, parts: Sequence[Term]) -> Term:
    """A commutative function in normal form: nested ones of its own kind are flattened, numbers
    folded."""
    values: list[Term] = []
    number = _NEUTRAL[name]
    for part in parts:
        inner = part[1:] if isinstance(part, tuple) and part[0] == name else (part,)
        for each in inner:
            if isinstance(each, float):
                number = _JOINED[name](number, each)
            else:
                values.append(each)
    if number != _NEUTRAL[name] or not values:
        values.append(number)
    return values[0] if len(values) == 1 else (name, *values)


def match(pattern: Term, term: Term, operands: Sequence[str]) -> Found | None:
    """Bindings of the names of a `pattern` in `term`, both in normal form: an operand binds a name
    or a number of the term, another name a number."""
    return next(_matches(pattern, term, {}, {*operands}), None)


def _matches(pattern: Term, term: Term, found: Found, operands: set[str]) -> Iterator[Found]:
    if isinstance(pattern, str):
        fits = isinstance(term, float) or (pattern in operands and isinstance(term, str))
        if fits and found.get(pattern, term) == term:
            yield {**found, pattern: term}
    elif isinstance(pattern, float):
        if isinstance(term, float) and math.isclose(pattern, term, rel_tol=_CLOSE):
            yield found
    elif isinstance(term, tuple) and term[0] == pattern[0] and len(term) == len(pattern):
        free = pattern[0] in _NEUTRAL
        yield from _all_match(pattern[1:], term[1:], found, operands, free=free)


def _all_match(
    patterns: tuple[Term, ...], terms: tuple[Term, ...], found: Found, operands: set[str], *,
    free: bool,
) -> Iterator[Found]:  # fmt: skip
    """One after the other; in any order where they are `free`, those with a form of their own
    first, so that names match the rest."""
    if not patterns:
        yield found
        return
    forms = (i for i, each in enumerate(patterns) if free and not isinstance(each, str))
    at = next(forms, 0)
    rest = (*patterns[:at], *patterns[at + 1 :])
    for i, term in enumerate(terms if free else terms[:1]):
        for more in _matches(patterns[at], term, found, operands):
            left = (*terms[:i], *terms[i + 1 :])
            yield from _all_match(rest, left, more, operands, free=free)


@dataclass(frozen=True)
class ExpandFunctions(NestRewrite):
    """Make functions that the vector engine lacks of those that it has, products of 16-bit by 8-bit
    integers that no engine adds up of real numbers, and interpolations of neighbours alone where
    the array does not multiply.

    before:
        s[d0] = silu(x[d0])                    isa: {without: vector.unary.silu}
    after:
        s.1[d0] = sigmoid(x[d0])
        s[d0] = mul(x[d0], s.1[d0])
    """

    @ensured
    def apply(self, graph: NestGraph, arch: Arch, real: str = "fp32") -> NestGraph:
        """`graph` without functions and products that `arch` lacks, if others can replace them;
        products are of numbers of type `real`."""
        if not self.enabled:
            return graph
        graph = _with_real_products(graph, arch, real)
        if not arch.isa.without or not is_float(temporary_type(arch)):
            return graph
        made = _FunctionExpansion(graph, arch)
        steps = tuple(step for each in graph.steps for step in made.steps(each))
        return replace(graph, tensors=made.tensors, buffers=made.buffers, steps=steps)


def _with_real_products(graph: NestGraph, arch: Arch, kind: str) -> NestGraph:
    """`graph` with operands of type `kind` of integer products that `arch` can add up only so, and
    products with a band of weights, which no array adds up, as windows."""
    tensors, buffers = dict(graph.tensors), dict(graph.buffers)
    steps: list[Step] = []
    for step in graph.steps:
        made: tuple[Step, ...] = (step,)
        if isinstance(step, Nest) and (windows := as_windows(step, tensors, buffers, arch)):
            made = windows
        elif isinstance(step, Nest) and mixed(step, tensors) and unsupported(step, tensors, arch):
            real = _real_product(step, tensors, buffers, kind)
            if not any(unsupported(each, tensors, arch) for each in real):
                known = any(writes_of(each) == (real[0].tensor,) for each in steps)
                made = real[1:] if known else real
        steps.extend(made)
    if steps == list(graph.steps):
        return graph
    return with_steps(replace(graph, tensors=tensors, buffers=buffers), steps)


_SMALLER = 2.0**-15
"""Makes 16-bit integers real numbers that every type holds."""


def _real_product(
    nest: Nest, tensors: dict[str, Tensor], buffers: dict[str, int], kind: str
) -> tuple[Nest, Nest]:
    """What makes the left operand of `nest` real numbers of type `kind`, and `nest` of such."""
    raw, weights = nest.operands
    left = as_real(tensors, buffers, raw, kind, _SMALLER)
    bias, factor = (
        access and as_real(tensors, buffers, access, factor=by)
        for access, by in ((nest.bias, _SMALLER), (nest.multiplier, 1 / _SMALLER))
    )
    loops = tuple(Dim(f"d{axis}", n) for axis, n in enumerate(tensors[left.tensor].shape))
    whole = Access(raw.tensor, tuple(map(at, range(len(loops)))), None, _SMALLER, raw.zero)
    convert = Nest(left.tensor, loops, len(loops), "move", (whole,))
    operands = left, as_real(tensors, buffers, weights, kind)
    product = replace(nest, operands=operands, bias=bias, multiplier=factor)
    return replace(convert, origin=nest.origin, kind=nest.kind), product


class _FunctionExpansion:
    """New tensors and steps of one graph."""

    def __init__(self, graph: NestGraph, arch: Arch) -> None:
        self.arch = arch
        self.tensors, self.buffers = dict(graph.tensors), dict(graph.buffers)

    def steps(self, step: Step) -> Iterator[Step]:
        """`step`, or the steps that replace it."""
        whole = self._term(step) if isinstance(step, Nest) else None
        if whole is None:
            yield step
            return
        assert isinstance(step, Nest)
        meant = definition(step.function, len(step.operands))
        numbers = dict(zip(meant.parameters, step.parameters, strict=True))
        reads = dict(zip(meant.operands, step.operands, strict=False))
        leaves = {**reads, **{name: self._number_read(value) for name, value in numbers.items()}}
        found: dict[Term, Access] = {}
        for number, term in enumerate(dict.fromkeys(_inner_terms(whole)), 1):
            name = f"{step.tensor}.{number}"
            self._create(name, step)
            yield Nest(
                name, step.dims, step.rank, str(term[0]), self._accesses(term, leaves, found),
                origin=step.origin, kind=step.kind, composite=step.composite or step.tensor,
            )  # fmt: skip
            found[term] = Access(name, tuple(map(at, range(step.rank))))
        last = self._accesses(whole, leaves, found)
        yield replace(step, function=str(whole[0]), operands=last, parameters=())

    def _term(self, nest: Nest) -> tuple[Term, ...] | None:
        """The expression of a function that the machine lacks; None: it has the function, or there
        is no definition. For integers these functions differ."""
        form = elementwise_form(nest.function, len(nest.operands)) if nest.elementwise else ""
        real = (
            a.scale is not None or is_float(self.tensors[a.tensor].dtype) for a in nest.operands
        )
        if not form or self.arch.isa.has(form) or not all(real):
            return None
        names = definition(nest.function, len(nest.operands)).operands[: len(nest.operands)]
        found = self._made_of((nest.function, *names), frozenset())
        return found if isinstance(found, tuple) else None

    def _made_of(self, term: Term, seen: frozenset[str]) -> Term | None:
        """`term` in functions of the machine; None: there is none."""
        if not isinstance(term, tuple):
            return term
        name, *inner = term
        assert isinstance(name, str)
        operands = [self._made_of(each, seen) for each in inner]
        if name in seen or any(each is None for each in operands):
            return None
        if self.arch.isa.has(elementwise_form(name, len(inner))):
            return (name, *(each for each in operands if each is not None))
        meant = definition(name, len(inner))
        given = (each for each in operands if each is not None)
        known = dict(zip(meant.operands, given, strict=False))
        tried = (replaced(each, known) for each in meant.terms)
        made = (self._made_of(each, seen | {name}) for each in tried)
        return min((each for each in made if each is not None), key=self._cost, default=None)

    def _cost(self, term: Term) -> float:
        """Cycles per vector of lanes of all functions in `term`."""
        if not isinstance(term, tuple):
            return 0.0
        name, *inner = term
        form = elementwise_form(str(name), len(inner))
        return self.arch.factor(form, cost_of(form)) + sum(map(self._cost, inner))

    def _accesses(
        self, term: tuple[Term, ...], leaves: Mapping[str, Access], found: Mapping[Term, Access]
    ) -> tuple[Access, ...]:
        return tuple(
            found[operand] if isinstance(operand, tuple)
            else leaves[operand] if isinstance(operand, str) else self._number_read(operand)
            for operand in term[1:]
        )  # fmt: skip

    def _create(self, name: str, nest: Nest) -> None:
        """A tensor of real values with the layout of `nest`'s result."""
        like = self.tensors[nest.tensor]
        order = order_of(like.shape, like.storage.strides)
        storage = Storage(name, 0, dense(like.shape, order))
        real = like.dtype if is_float(like.dtype) else temporary_type(self.arch)
        self.tensors[name] = Tensor(name, like.shape, real, storage)
        self.buffers[name] = like.elements

    def _number_read(self, value: float) -> Access:
        return number_access(value, temporary_type(self.arch), self.tensors, self.buffers)


def _inner_terms(term: tuple[Term, ...]) -> Iterator[tuple[Term, ...]]:
    """Nested functions in `term`, each after its operands."""
    for operand in term[1:]:
        if isinstance(operand, tuple):
            yield from _inner_terms(operand)
            yield operand

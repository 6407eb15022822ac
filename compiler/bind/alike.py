"""Whether two terms compute the same: functions of functions in a normal form, and what one's
operands are in the other.

    x * sigmoid(x) * y      silu(a) * b      =>     {x: a, y: b}

The one idea: functions that are made of simpler ones are written out, sums and products become
lists without an order, and what is left is compared part by part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from simmodel.isa.forms import definition
from simmodel.isa.terms import Term

_KEPT = frozenset({
    "max", "min", "floor", "ceil", "sigmoid", "tanh", "reciprocal", "rsqrt", "sin", "cos", "less",
    "greater", "less_equal", "greater_equal",
})  # fmt: skip
"""Functions that are made of each other: they stay as they are."""
_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
"""Functions of any number of values in any order, and the number that changes nothing."""
_JOINED: Mapping[str, Callable[[float, float], float]] = {
    "add": float.__add__, "mul": float.__mul__, "max": max, "min": min,
}  # fmt: skip
_POWERS = {2.0: 2, 3.0: 3}
_CLOSE = 1e-6
"""How far, relatively, numbers may be apart: both are rounded to fp32 anyway."""

Found = Mapping[str, Term]
"""Name in a pattern -> what it stands for."""


def replaced(term: Term, known: Mapping[str, Term]) -> Term:
    """`term` with what `known` says in the place of names."""
    if isinstance(term, tuple):
        return (term[0], *(replaced(each, known) for each in term[1:]))
    return known.get(term, term) if isinstance(term, str) else term


def normal(term: Term) -> Term:
    """`term` with all that is made of simpler functions written out."""
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
    """A function of any number of values: those of its own kind join it, numbers become one."""
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


def match(
    pattern: Term, term: Term, operands: Sequence[str], numbers: Sequence[str]
) -> Found | None:
    """What each of `operands` and `numbers` of a `pattern` is in `term`, both in normal form.

    An operand is a name or a number in the term, a number of the pattern a number.
    """
    return next(_matches(pattern, term, {}, {*operands}, {*numbers}), None)


def _matches(
    pattern: Term, term: Term, found: Found, operands: set[str], numbers: set[str]
) -> Iterator[Found]:
    if isinstance(pattern, str):
        fits = isinstance(term, float) or (pattern in operands and isinstance(term, str))
        if fits and found.get(pattern, term) == term:
            yield {**found, pattern: term}
        return
    if isinstance(pattern, float):
        if isinstance(term, float) and math.isclose(pattern, term, rel_tol=_CLOSE):
            yield found
        return
    if not isinstance(term, tuple) or term[0] != pattern[0] or len(term) != len(pattern):
        return
    if pattern[0] in _NEUTRAL:
        yield from _in_any_order(pattern[1:], term[1:], found, operands, numbers)
        return
    ways: Iterator[Found] = iter((found,))
    for mine, other in zip(pattern[1:], term[1:], strict=True):
        ways = _each(ways, mine, other, operands, numbers)
    yield from ways


def _each(
    ways: Iterator[Found], pattern: Term, term: Term, operands: set[str], numbers: set[str]
) -> Iterator[Found]:
    for found in ways:
        yield from _matches(pattern, term, found, operands, numbers)


def _in_any_order(
    patterns: tuple[Term, ...], terms: tuple[Term, ...], found: Found,
    operands: set[str], numbers: set[str],
) -> Iterator[Found]:  # fmt: skip
    """What has a form of its own first, so that names take what is left."""
    if not patterns:
        yield found
        return
    at = next((i for i, each in enumerate(patterns) if not isinstance(each, str)), 0)
    rest = (*patterns[:at], *patterns[at + 1 :])
    for i, term in enumerate(terms):
        for more in _matches(patterns[at], term, found, operands, numbers):
            left = (*terms[:i], *terms[i + 1 :])
            yield from _in_any_order(rest, left, more, operands, numbers)

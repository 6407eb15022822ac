"""Tensor expressions: one result element as a function of elements of the operands.

    y[b, o, i] = sum((c, k), x[b, c, 2 * i + k] * w[o, c, k])
    y[b, i:8] = max(k[3], pad(x[b, 2 * i + k - 1], -1e9))
    y[i, j] = tanh(x[i, j] + v[j]) / 2

The one idea: an expression is text in Python's own grammar. Positions are sums of indices with
whole factors. An index that stands alone has the extent of what it goes along; one that is only
part of a sum has as many values as stay inside, or as are written behind it (`i:8`, `k[3]`).
Functions are those of the vector engine; `sum`, `max`, `min`, `prod` and `mean` over indices are
reductions; `pad(x[...], value)` is `value` outside of x. The meaning, in numpy, is `evaluate`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from compiler.frontend.rewrite import Array
from simmodel.isa.functions import BINARY, REDUCE, SIGNS, TERNARY, UNARY

Shapes = Mapping[str, tuple[int, ...]]
TEMPLATES = ("contraction", "window", "reduction", "movement", "elementwise")
"""Kinds of schedules."""


@dataclass(frozen=True)
class AffineIndex:
    """Along one axis: a sum of indices with whole factors, and a constant."""

    terms: tuple[tuple[str, int], ...]
    constant: int = 0


@dataclass(frozen=True)
class Read:
    """An element of a tensor; `pad` stands outside of it, None: nothing does."""

    tensor: str
    at: tuple[AffineIndex, ...]
    pad: float | None = None


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Apply:
    """A function of the vector engine."""

    function: str
    operands: tuple[Term, ...]


@dataclass(frozen=True)
class Reduction:
    """`body` over all values of `indices`, joined by a reduction."""

    how: str
    indices: tuple[str, ...]
    body: Term


Term = Read | Number | Apply | Reduction


@dataclass(frozen=True)
class Expression:
    """result[indices] = term, for tensors of given shapes."""

    indices: tuple[str, ...]
    term: Term
    extents: Mapping[str, int] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return tuple(self.extents[index] for index in self.indices)

    @property
    def templates(self) -> tuple[str, ...]:
        """The kinds of schedules that its parts suit, of `TEMPLATES`: a window and what is added
        to its sums are a window and elementwise."""
        positions = [position for read in reads(self.term) for position in read.at]
        # Neighbouring results read along one axis what others have read.
        slides = any(len(p.terms) > 1 or (p.terms and p.constant) for p in positions)
        made = {"window"} if slides else set[str]()
        for part in reductions(self.term):
            product = isinstance(part.body, Apply) and part.body.function == "mul"
            made |= {"reduction", "contraction"} if product and part.how == "sum" else {"reduction"}
        if not isinstance(self.term, Reduction):
            made.add("movement" if isinstance(self.term, Read) else "elementwise")
        return tuple(kind for kind in TEMPLATES if kind in made)


def expression(text: str, shapes: Shapes) -> Expression:
    """The expression in `text` about tensors of `shapes`; raises ValueError, in words."""
    try:
        (line,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError) as mistake:
        raise ValueError(f"{text.strip()!r} is no expression: {mistake}") from None
    if not isinstance(line, ast.Assign) or not isinstance(line.targets[0], ast.Subscript):
        raise ValueError(f"{text.strip()!r} is no expression; write y[i, j] = ...")
    parser = _Parser(shapes)
    indices = tuple(map(parser.index, _several(line.targets[0].slice)))
    term = parser.term(line.value)
    made = Expression(indices, term, _extents(term, shapes, parser.stated))
    _check_expression(made, shapes)
    return made


def free(term: Term) -> set[str]:
    """The indices that the value of `term` depends on."""
    if isinstance(term, Read):
        return {index for position in term.at for index, _ in position.terms}
    if isinstance(term, Reduction):
        return free(term.body) - {*term.indices}
    return set[str]().union(*map(free, term.operands)) if isinstance(term, Apply) else set()


def _subterms(term: Term) -> Iterator[Term]:
    """`term` and all in it, outer ones first."""
    yield term
    inner = (term.body,) if isinstance(term, Reduction) else ()
    for each in term.operands if isinstance(term, Apply) else inner:
        yield from _subterms(each)


def reads(term: Term) -> Iterator[Read]:
    """All elements that `term` reads."""
    return (each for each in _subterms(term) if isinstance(each, Read))


def reductions(term: Term) -> Iterator[Reduction]:
    """All reductions in `term`, outer ones first."""
    return (each for each in _subterms(term) if isinstance(each, Reduction))


def evaluate(made: Expression, tensors: Mapping[str, Array]) -> Array:
    """The result in numpy, in fp32."""
    axes = {index: axis for axis, index in enumerate(made.extents)}

    def value(term: Term) -> Array:
        if isinstance(term, Number):
            return np.full((1,) * len(axes), term.value, np.float32)
        if isinstance(term, Read):
            values = tensors[term.tensor].astype(np.float32)
            grids, inside = positions(term, values.shape, made.extents)
            found = values[grids] if grids else values.reshape((1,) * len(axes))
            return found if term.pad is None else np.where(inside, found, np.float32(term.pad))
        if isinstance(term, Apply):
            table = (UNARY, BINARY, TERNARY)[len(term.operands) - 1]
            return table[term.function].apply(*map(value, term.operands))
        along = tuple(axes[index] for index in term.indices)
        apply = np.mean if term.how == "mean" else REDUCE[term.how].apply
        return apply(value(term.body), axis=along, keepdims=True)

    with np.errstate(all="ignore"):
        found = value(made.term)
    wide = [n if index in made.indices else 1 for index, n in made.extents.items()]
    found = np.broadcast_to(found, wide)
    order = [axes[index] for index in made.indices]
    rest = [axis for axis in range(len(axes)) if axis not in order]
    return np.ascontiguousarray(found.transpose([*order, *rest]).reshape(made.shape))


def positions(
    read: Read, shape: Sequence[int], extents: Mapping[str, int]
) -> tuple[tuple[Array, ...], Array]:
    """Positions along each axis of what is read, the nearest ones inside, and whether they are: one
    axis for each index, of extent 1 where it does not matter."""
    ramps = dict(zip(extents, np.ix_(*map(np.arange, extents.values())), strict=True))
    inside: Array = np.ones((1,) * len(extents), bool)
    grids = []
    for position, extent in zip(read.at, shape, strict=True):
        grid: Array = np.full((1,) * len(extents), position.constant, np.int64)
        for index, factor in position.terms:
            grid = grid + factor * ramps[index]
        inside = inside & (grid >= 0) & (grid < extent)
        grids.append(np.clip(grid, 0, max(extent - 1, 0)))
    return tuple(grids), inside


class _Parser:
    """From Python's syntax tree."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.stated: dict[str, int] = {}
        """Extents that are written behind an index."""

    def index(self, node: ast.expr) -> str:
        """`i`, `i:8` or `k[3]`."""
        if isinstance(node, ast.Name):
            return node.id
        name = node.lower if isinstance(node, ast.Slice) else getattr(node, "value", None)
        size = node.upper if isinstance(node, ast.Slice) else getattr(node, "slice", None)
        if not isinstance(name, ast.Name) or not isinstance(size, ast.expr):
            raise ValueError(f"{ast.unparse(node)!r} is no index; write i, i:8 or k[3]")
        self.stated[name.id] = self._integer_literal(size)
        return name.id

    def term(self, node: ast.expr) -> Term:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return Number(float(node.value))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return self._parse_read(node.value.id, _several(node.slice))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.term(node.operand)
            return Number(-inner.value) if isinstance(inner, Number) else Apply("neg", (inner,))
        if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
            return Apply(SIGNS[type(node.op)], (self.term(node.left), self.term(node.right)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node.args)
        raise ValueError(f"{ast.unparse(node)!r} is no value of a tensor expression")

    def _parse_read(self, tensor: str, at: Sequence[ast.expr]) -> Read:
        if tensor not in self.shapes:
            known = ", ".join(self.shapes)
            raise ValueError(f"{tensor!r} is no input; there are {known}")
        if len(at) != len(self.shapes[tensor]):
            raise ValueError(
                f"{tensor} has {len(self.shapes[tensor])} dimensions, {len(at)} positions are given"
            )
        return Read(tensor, tuple(map(self._position, at)))

    def _position(self, node: ast.expr) -> AffineIndex:
        terms = {name: factor for name, factor in self._sum(node).items() if factor}
        return AffineIndex(tuple(each for each in terms.items() if each[0]), terms.get("", 0))

    def _sum(self, node: ast.expr) -> dict[str, int]:
        """Factors of the indices in a position; that of "" is the constant."""
        if isinstance(node, ast.Name):
            return {node.id: 1}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left, right = self._sum(node.left), self._sum(node.right)
            sign = 1 if isinstance(node.op, ast.Add) else -1
            return {n: left.get(n, 0) + sign * right.get(n, 0) for n in {**left, **right}}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = self._sum(node.left), self._sum(node.right)
            factor, other = (left, right) if {*left} <= {""} else (right, left)
            if {*factor} <= {""}:
                return {name: factor.get("", 0) * each for name, each in other.items()}
        return {"": self._integer_literal(node)}

    def _integer_literal(self, node: ast.expr) -> int:
        with suppress(ValueError):
            value = ast.literal_eval(node)
            if isinstance(value, int):
                return value
        raise ValueError(
            f"{ast.unparse(node)!r} is no whole number, nor a sum of indices with whole factors"
        )

    def _call(self, name: str, given: Sequence[ast.expr]) -> Term:
        if name == "pad" and len(given) == 2:
            inner, value = self.term(given[0]), self.term(given[1])
            if isinstance(inner, Read) and isinstance(value, Number):
                return Read(inner.tensor, inner.at, value.value)
            raise ValueError("pad takes an element and a number: pad(x[i - 1], 0)")
        if len(given) == 2 and self._is_indices(given[0]) and name in (*REDUCE, "mean"):
            indices = tuple(map(self.index, _several(given[0])))
            body = self.term(given[1])
            missing = [index for index in indices if index not in free(body)]
            if missing:
                raise ValueError(f"{name} over {missing[0]!r}, on which nothing in it depends")
            return Reduction(name, indices, body)
        operands = tuple(map(self.term, given))
        table = dict(enumerate((UNARY, BINARY, TERNARY), 1)).get(len(operands), {})
        found = table.get(name)
        if found is None or found.parameters:
            raise ValueError(f"the vector engine has no function {name!r} of {len(given)} values")
        return Apply(name, operands)

    def _is_indices(self, node: ast.expr) -> bool:
        """Whether a reduction is over `node`: indices alone."""
        names = [n.value if isinstance(n, ast.Subscript) else n for n in _several(node)]
        return all(isinstance(n, ast.Name) and n.id not in self.shapes for n in names)


def _several(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _extents(term: Term, shapes: Shapes, stated: Mapping[str, int]) -> dict[str, int]:
    """Extents of all indices: those that are written, those of indices that stand alone, and then
    as many values as keep sums inside."""
    found = dict(stated)
    places = [
        (position, shapes[read.tensor][axis], read.pad is None)
        for read in reads(term)
        for axis, position in enumerate(read.at)
    ]
    for position, extent, _ in places:
        if len(position.terms) == 1 and position.terms[0][1] == 1 and not position.constant:
            index = position.terms[0][0]
            if found.setdefault(index, extent) != extent and index not in stated:
                raise ValueError(
                    f"index {index!r} goes along {found[index]} and along {extent} elements; "
                    f"write {index}:{min(found[index], extent)}"
                )
    for _ in places:
        for position, extent, inside in places:
            unknown = [each for each in position.terms if each[0] not in found]
            if inside and len(unknown) == 1 and unknown[0][1] > 0:
                others = sum(max(f * (found[i] - 1), 0) for i, f in position.terms if i in found)
                room = extent - 1 - position.constant - others
                found[unknown[0][0]] = room // unknown[0][1] + 1
    return found


def _check_expression(made: Expression, shapes: Shapes) -> None:
    """Raise ValueError for indices without an extent, and for reads outside of a tensor."""
    used = {*made.indices}.union(
        *(part.indices for part in reductions(made.term)), *map(free, reads(made.term))
    )
    for index, extent in made.extents.items():
        if extent < 1:
            raise ValueError(f"index {index!r} has no values: nothing it reads is inside")
    loose = sorted(free(made.term) - {*made.indices})
    open_ = sorted(used - {*made.extents})
    if open_:
        meant = _meant(open_[0], loose)
        raise ValueError(f"the extent of {open_[0]!r} does not follow; {meant}write {open_[0]}:8")
    if loose:
        unread = sorted({*made.indices} - free(made.term))
        raise ValueError(
            f"index {loose[0]!r} is neither of the result nor reduced over; "
            f"{_meant(loose[0], unread)}write it on the left, or sum({loose[0]}, ...)"
        )
    for read in reads(made.term):
        for axis, position in enumerate(read.at):
            ends = [f * (made.extents[i] - 1) for i, f in position.terms]
            low, high = (position.constant + sum(side(e, 0) for e in ends) for side in (min, max))
            extent = shapes[read.tensor][axis]
            if read.pad is None and (low < 0 or high >= extent):
                raise ValueError(
                    f"{read.tensor} is read at {low} to {high} along axis {axis}, which has "
                    f"{extent}; pad({read.tensor}[...], 0) says what stands outside"
                )


def _meant(index: str, others: Sequence[str]) -> str:
    """A guess for a misspelt index: one of the other side that has no counterpart."""
    near = get_close_matches(index, others, n=1)
    return f"did you mean {near[0]!r}? Else " if near else ""

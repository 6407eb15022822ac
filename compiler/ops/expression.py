"""Tensor expressions as nests: one for each function or reduction.

The one idea: a nest is an expression already. What is nested deeper becomes a tensor of its own
over the indices that it depends on; a sum of products is one nest, for the matrix engine.
"""

from __future__ import annotations

import numpy as np

from compiler.graph.defined import expression_in
from compiler.graph.expression import (
    Apply,
    Expression,
    Number,
    Position,
    Read,
    Reduce,
    Term,
    free,
)
from compiler.graph.operators import expressed
from compiler.nest.ir import Access, Affine, Dim, Nest
from compiler.ops.node import Node, NoNest
from simmodel.dtype import is_float


def lower_expression(node: Node) -> None:
    """Nests of a node whose operator is a tensor expression."""
    definition = expression_in(node.node)
    assert definition is not None
    if not is_float(node.dtype()):
        raise NoNest(f"{node.op} of integers")
    _Lowering(
        node, expressed(node.node, definition), definition.signature.names(len(node.node.inputs))
    ).result()


class _Lowering:
    """Makes the nests of one expression."""

    def __init__(self, node: Node, made: Expression, names: tuple[str, ...]) -> None:
        self.node, self.made = node, made
        self.inputs = {name: node.tensor(i) for i, name in enumerate(names) if node.has(i)}
        self.count = 0

    def result(self) -> None:
        """The nests; the last one makes the node's output."""
        if isinstance(self.made.term, Number):
            raise NoNest(f"{self.node.op} is a constant")
        if self._is_composite(self.made.term):
            self.node.build.composite = self.node.build.composite or self.node.out
        self._make(self.node.out, self.made.indices, self.made.term)

    def _is_composite(self, term: Term) -> bool:
        inner = term.body if isinstance(term, Reduce) else term
        return isinstance(inner, Apply) and any(
            not isinstance(each, Read | Number) for each in inner.operands
        )

    def _make(self, name: str, indices: tuple[str, ...], term: Term) -> None:
        """The nest of `term` over `indices` as tensor `name`."""
        if isinstance(term, Reduce) and term.how == "mean":
            count = np.prod([self.made.extents[index] for index in term.indices])
            total = Reduce("sum", term.indices, term.body)
            term = Apply("mul", (total, Number(float(1 / count))))
        inner, how = term, None
        over: tuple[str, ...] = ()
        if isinstance(term, Reduce):
            inner, how, over = term.body, term.how, term.indices
        function, operands = self._function(inner, how)
        loops = (*indices, *over)
        accesses = tuple(self._access(each, loops) for each in operands)
        shape = tuple(self.made.extents[index] for index in indices)
        self.node.build.create(name, shape, self.node.dtype())
        dims = tuple(Dim(index, self.made.extents[index]) for index in loops)
        self.node.build.add(Nest(name, dims, len(indices), function, accesses, how))

    def _function(self, inner: Term, how: str | None) -> tuple[str, tuple[Term, ...]]:
        """What a nest applies: a reduction other than that of products reads what it reduces."""
        product = isinstance(inner, Apply) and inner.function == "mul" and how == "sum"
        if isinstance(inner, Apply) and (how is None or (product and self._both_vary(inner))):
            return inner.function, inner.operands
        return "move", (inner,)

    def _both_vary(self, product: Apply) -> bool:
        return not any(isinstance(each, Number) for each in product.operands)

    def _access(self, term: Term, loops: tuple[str, ...]) -> Access:
        """How a nest over `loops` reads a value."""
        if isinstance(term, Read):
            tensor = self.inputs[term.tensor].name
            return Access(tensor, tuple(_affine(p, loops) for p in term.at), term.pad)
        self.count += 1
        name = f"{self.node.out}.{self.count}"
        if isinstance(term, Number):
            return Access(self.node.build.constant(name, np.array(term.value, np.float32)).name, ())
        indices = tuple(index for index in loops if index in free(term))
        self._make(name, indices, term)
        return Access(name, tuple(_affine(Position(((i, 1),)), loops) for i in indices))


def _affine(position: Position, loops: tuple[str, ...]) -> Affine:
    terms = tuple((loops.index(index), factor) for index, factor in position.terms)
    return Affine(terms, position.constant)

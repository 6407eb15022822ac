"""Tensor expressions as nests: one nest for each function or reduction.

The one idea: a nest is an expression already. A nested subexpression becomes a tensor of its own,
indexed by the loops that it depends on; a sum of products is one nest, for the matrix engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

import compiler.frontend.operators.expression as expression
from compiler.errors import UnsupportedModel, at_node, operator_name
from compiler.frontend.operators.body import Body
from compiler.frontend.operators.body import Tensor as BodyTensor
from compiler.frontend.operators.definitions import Expressed, expressed
from compiler.frontend.operators.functions import expression_in
from compiler.frontend.rewrite import Array
from compiler.lowering.elementwise import BINARY, UNARY
from compiler.lowering.node import Node, NoNest, numpy_type
from compiler.tensor_ir.nest import Access, Affine, Dim, Nest, Tensor
from simmodel.arch.element_types import is_float


def lower_expression(node: Node) -> None:
    """Nests of a node whose operator is a tensor expression; the last one makes its output."""
    definition = expression_in(node.node)
    assert definition is not None
    if not is_float(node.dtype()):
        raise NoNest(f"{node.op} of integers")
    made = expressed(node.node, definition)
    if isinstance(made.term, expression.Number):
        raise NoNest(f"{node.op} is a constant")
    inner = made.term.body if isinstance(made.term, expression.Reduction) else made.term
    operands = inner.operands if isinstance(inner, expression.Apply) else ()
    if not all(isinstance(each, expression.Read | expression.Number) for each in operands):
        node.compose()
    names = definition.signature.names(len(node.node.inputs))
    inputs = {name: node.tensor(i) for i, name in enumerate(names) if node.has(i)}
    _ExpressionNests(node, made, inputs).make(node.out, made.indices, made.term)


@dataclass
class _ExpressionNests:
    node: Node
    made: expression.Expression
    inputs: dict[str, Tensor]
    count: int = 0

    def make(self, name: str, indices: tuple[str, ...], term: expression.Term) -> None:
        """The nest of `term` over `indices` as tensor `name`. A reduction other than a sum of
        products reads its operand unchanged."""
        if isinstance(term, expression.Reduction) and term.how == "mean":
            count = np.prod([self.made.extents[index] for index in term.indices])
            total = expression.Reduction("sum", term.indices, term.body)
            term = expression.Apply("mul", (total, expression.Number(float(1 / count))))
        inner, how = term, None
        over: tuple[str, ...] = ()
        if isinstance(term, expression.Reduction):
            inner, how, over = term.body, term.how, term.indices
        function = "move"
        operands: tuple[expression.Term, ...] = (inner,)
        if isinstance(inner, expression.Apply):
            vary = not any(isinstance(each, expression.Number) for each in inner.operands)
            if how is None or (inner.function == "mul" and how == "sum" and vary):
                function, operands = inner.function, inner.operands
        loops = (*indices, *over)
        accesses = tuple(self._access(each, loops) for each in operands)
        shape = tuple(self.made.extents[index] for index in indices)
        self.node.build.create(name, shape, self.node.dtype())
        dims = tuple(Dim(index, self.made.extents[index]) for index in loops)
        self.node.build.add(Nest(name, dims, len(indices), function, accesses, how))

    def _access(self, term: expression.Term, loops: tuple[str, ...]) -> Access:
        """An access of a nest over `loops` to a value."""
        if isinstance(term, expression.Read):
            tensor = self.inputs[term.tensor].name
            return Access(tensor, tuple(_affine(p, loops) for p in term.at), term.pad)
        self.count += 1
        name = f"{self.node.out}.{self.count}"
        if isinstance(term, expression.Number):
            return Access(self.node.build.constant(name, np.array(term.value, np.float32)).name, ())
        indices = tuple(index for index in loops if index in expression.free(term))
        self.make(name, indices, term)
        return Access(
            name, tuple(_affine(expression.AffineIndex(((i, 1),)), loops) for i in indices)
        )


def _affine(position: expression.AffineIndex, loops: tuple[str, ...]) -> Affine:
    terms = tuple((loops.index(index), factor) for index, factor in position.terms)
    return Affine(terms, position.constant)


# Tensor expressions in ONNX's operators, for the host: elements gathered by constant positions.

_SPELLED = {function: op for table in (BINARY, UNARY) for op, function in table.items()}
_SPELLED["pow"] = "Pow"


def written_expression(b: Body, node: ir.Node, definition: Expressed) -> BodyTensor:
    """The result of `node`, which `b` makes; every value before has one axis for each index."""
    made, names = expressed(node, definition), definition.signature.names(len(node.inputs))
    given = dict(zip(names, b.node.inputs, strict=True))
    kind, axes = numpy_type(node.outputs[0]), [*made.extents]

    def number(value: float) -> BodyTensor:
        return b.constant(np.full((1,) * len(axes), value), kind)

    def read(term: expression.Read) -> BodyTensor:
        value = given[term.tensor]
        assert value is not None
        x = BodyTensor(b, value)
        grids, inside = expression.positions(term, x.shape, made.extents)
        flat: Array = np.zeros((1,) * len(axes), np.int64)
        for grid, extent in zip(grids, x.shape, strict=True):
            flat = flat * extent + grid
        found = b.one("Gather", b.reshape(x, [-1]), flat)
        return found if term.pad is None else b.one("Where", inside, found, number(term.pad))

    def written(term: expression.Term) -> BodyTensor:
        if isinstance(term, expression.Number):
            return number(term.value)
        if isinstance(term, expression.Read):
            return read(term)
        if isinstance(term, expression.Reduction):
            over = [axes.index(index) for index in term.indices]
            return b.reduce(term.how.capitalize(), written(term.body), over)
        operands = [written(each) for each in term.operands]
        if term.function == "square":
            return operands[0] * operands[0]
        if term.function == "rsqrt":
            return b.one("Reciprocal", b.one("Sqrt", *operands))
        if term.function not in _SPELLED:
            at = at_node(node.name, operator_name(node.op_type, node.domain))
            raise UnsupportedModel(f"{at}: ONNX, so the host, has no operator {term.function}")
        return b.one(_SPELLED[term.function], *operands)

    wide = [n if index in made.indices else 1 for index, n in made.extents.items()]
    order = [axes.index(index) for index in made.indices]
    rest = [axis for axis in range(len(axes)) if axis not in order]
    turned = b.transpose(b.one("Expand", written(made.term), wide), *order, *rest)
    return b.reshape(turned, made.shape)

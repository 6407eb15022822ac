"""Tensor expressions as nests: one nest for each function or reduction.

The one idea: a nest is an expression already. A nested subexpression becomes a tensor of its own,
indexed by the loops that it depends on; a sum of products is one nest, for the matrix engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.errors import UnsupportedModel, at_node, operator_name
from compiler.frontend.operators.definitions import Expressed, expressed
from compiler.frontend.operators.expression import (
    AffineIndex,
    Apply,
    Expression,
    Number,
    Read,
    Reduction,
    Term,
    free,
    positions,
)
from compiler.frontend.operators.functions import expression_in
from compiler.frontend.rewrite import Array, static_shape
from compiler.lowering.elementwise import BINARY, UNARY
from compiler.lowering.node import Node, NoNest
from compiler.tensor_ir.nest import Access, Affine, Dim, Nest, Tensor
from simmodel.arch.element_types import is_float


def lower_expression(node: Node) -> None:
    """Nests of a node whose operator is a tensor expression; the last one makes its output."""
    definition = expression_in(node.node)
    assert definition is not None
    if not is_float(node.dtype()):
        raise NoNest(f"{node.op} of integers")
    made = expressed(node.node, definition)
    if isinstance(made.term, Number):
        raise NoNest(f"{node.op} is a constant")
    inner = made.term.body if isinstance(made.term, Reduction) else made.term
    operands = inner.operands if isinstance(inner, Apply) else ()
    if not all(isinstance(each, Read | Number) for each in operands):
        node.compose()
    names = definition.signature.names(len(node.node.inputs))
    inputs = {name: node.tensor(i) for i, name in enumerate(names) if node.has(i)}
    _ExpressionNests(node, made, inputs).make(node.out, made.indices, made.term)


@dataclass
class _ExpressionNests:
    """Makes the nests of one expression."""

    node: Node
    made: Expression
    inputs: dict[str, Tensor]
    count: int = 0

    def make(self, name: str, indices: tuple[str, ...], term: Term) -> None:
        """The nest of `term` over `indices` as tensor `name`. A reduction other than a sum of
        products reads its operand unchanged."""
        if isinstance(term, Reduction) and term.how == "mean":
            count = np.prod([self.made.extents[index] for index in term.indices])
            total = Reduction("sum", term.indices, term.body)
            term = Apply("mul", (total, Number(float(1 / count))))
        inner, how = term, None
        over: tuple[str, ...] = ()
        if isinstance(term, Reduction):
            inner, how, over = term.body, term.how, term.indices
        function = "move"
        operands: tuple[Term, ...] = (inner,)
        if isinstance(inner, Apply):
            vary = not any(isinstance(each, Number) for each in inner.operands)
            if how is None or (inner.function == "mul" and how == "sum" and vary):
                function, operands = inner.function, inner.operands
        loops = (*indices, *over)
        accesses = tuple(self._access(each, loops) for each in operands)
        shape = tuple(self.made.extents[index] for index in indices)
        self.node.build.create(name, shape, self.node.dtype())
        dims = tuple(Dim(index, self.made.extents[index]) for index in loops)
        self.node.build.add(Nest(name, dims, len(indices), function, accesses, how))

    def _access(self, term: Term, loops: tuple[str, ...]) -> Access:
        """An access of a nest over `loops` to a value."""
        if isinstance(term, Read):
            tensor = self.inputs[term.tensor].name
            return Access(tensor, tuple(_affine(p, loops) for p in term.at), term.pad)
        self.count += 1
        name = f"{self.node.out}.{self.count}"
        if isinstance(term, Number):
            return Access(self.node.build.constant(name, np.array(term.value, np.float32)).name, ())
        indices = tuple(index for index in loops if index in free(term))
        self.make(name, indices, term)
        return Access(name, tuple(_affine(AffineIndex(((i, 1),)), loops) for i in indices))


def _affine(position: AffineIndex, loops: tuple[str, ...]) -> Affine:
    terms = tuple((loops.index(index), factor) for index, factor in position.terms)
    return Affine(terms, position.constant)


# Tensor expressions in ONNX's operators, for the host: elements gathered by constant positions.

_SPELLED = {function: op for table in (BINARY, UNARY) for op, function in table.items()}
_SPELLED["pow"] = "Pow"
_REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
               "mean": "ReduceMean"}  # fmt: skip


class NodeWriter:
    """Collects ONNX nodes and constants that compute a node's result; every name starts with that
    of the result."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.out = str(node.outputs[0].name)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, numbers: object, dtype: Any = None) -> str:
        """Name of a constant, by default of numpy's own type for `numbers`."""
        name = f"{self.out}.constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(numbers, dtype), name))
        return name

    def op(self, kind: str, inputs: list[str], out: str | None = None, **attributes: Any) -> str:
        """Name of the result of a node."""
        name = out or f"{self.out}.step{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name


class ExpressionWriter(NodeWriter):
    """A node as nodes of ONNX's own operators; every value has one axis for each index."""

    def __init__(self, node: ir.Node, definition: Expressed) -> None:
        super().__init__(node)
        self.made = expressed(node, definition)
        names = definition.signature.names(len(node.inputs))
        self.inputs = dict(zip(names, node.inputs, strict=True))
        assert node.outputs[0].dtype is not None
        self.kind = node.outputs[0].dtype.numpy()

    def result(self) -> None:
        """The output, in the order of its own indices."""
        extents = self.made.extents
        wide = [n if index in self.made.indices else 1 for index, n in extents.items()]
        value = self.op("Expand", [self._term(self.made.term), self.constant(wide, np.int64)])
        order = [[*extents].index(index) for index in self.made.indices]
        rest = [axis for axis in range(len(extents)) if axis not in order]
        turned = self.op("Transpose", [value], perm=[*order, *rest])
        self.op("Reshape", [turned, self.constant(self.made.shape, np.int64)], self.out)

    def _term(self, term: Term) -> str:
        if isinstance(term, Number):
            return self.constant(np.full((1,) * len(self.made.extents), term.value), self.kind)
        if isinstance(term, Read):
            return self._gather_read(term)
        if isinstance(term, Apply):
            operands = [self._term(each) for each in term.operands]
            if term.function == "square":
                return self.op("Mul", [*operands, *operands])
            if term.function == "rsqrt":
                return self.op("Reciprocal", [self.op("Sqrt", operands)])
            if term.function not in _SPELLED:
                at = at_node(self.node.name, operator_name(self.node.op_type, self.node.domain))
                raise UnsupportedModel(f"{at}: ONNX, so the host, has no operator {term.function}")
            return self.op(_SPELLED[term.function], operands)
        axes = [[*self.made.extents].index(index) for index in term.indices]
        inner = [self._term(term.body), self.constant(axes, np.int64)]
        return self.op(_REDUCTIONS[term.how], inner, keepdims=1)

    def _gather_read(self, read: Read) -> str:
        value = self.inputs[read.tensor]
        assert value is not None
        shape = static_shape(value)
        grids, inside = positions(read, shape, self.made.extents)
        flat: Array = np.zeros((1,) * len(self.made.extents), np.int64)
        for grid, extent in zip(grids, shape, strict=True):
            flat = flat * extent + grid
        line = self.op("Reshape", [str(value.name), self.constant([-1], np.int64)])
        found = self.op("Gather", [line, self.constant(flat, np.int64)])
        if read.pad is None:
            return found
        outside = self.constant(np.full((1,) * len(self.made.extents), read.pad), self.kind)
        return self.op("Where", [self.constant(inside, np.bool_), found, outside])

"""Tensor expressions in ONNX's operators, for the host: elements gathered by constant positions.

Larger than a nest, and slow: it is what remains where no engine can do better.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.graph.expression import Apply, Number, Read, Term, positions
from compiler.graph.operators import Expressed, expressed
from compiler.graph.rewrite import Array, static_shape
from compiler.ops.elementwise import BINARY, UNARY

_SPELLED = {function: op for table in (BINARY, UNARY) for op, function in table.items()} | {
    "add": "Add", "silu": "Swish",
}  # fmt: skip
_REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd",
               "mean": "ReduceMean"}  # fmt: skip


def write_expression(
    node: ir.Node, definition: Expressed
) -> tuple[list[NodeProto], list[TensorProto]]:
    """`node` as nodes of ONNX's own operators, and the constants that these read."""
    write = _Writer(node, definition)
    write.result()
    return write.nodes, write.constants


class _Writer:
    """Collects nodes and constants; every value has one axis for each index."""

    def __init__(self, node: ir.Node, definition: Expressed) -> None:
        self.node, self.made = node, expressed(node, definition)
        self.inputs = dict(
            zip(definition.signature.names(len(node.inputs)), node.inputs, strict=True)
        )
        self.out = str(node.outputs[0].name)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def result(self) -> None:
        """The output, in the order of its own indices."""
        extents = self.made.extents
        wide = [n if index in self.made.indices else 1 for index, n in extents.items()]
        value = self._op("Expand", [self._term(self.made.term), self._constant(wide, np.int64)])
        order = [[*extents].index(index) for index in self.made.indices]
        rest = [axis for axis in range(len(extents)) if axis not in order]
        turned = self._op("Transpose", [value], perm=[*order, *rest])
        self._op("Reshape", [turned, self._constant(self.made.shape, np.int64)], self.out)

    def _term(self, term: Term) -> str:
        if isinstance(term, Number):
            return self._constant(np.full((1,) * len(self.made.extents), term.value))
        if isinstance(term, Read):
            return self._read(term)
        if isinstance(term, Apply):
            operands = [self._term(each) for each in term.operands]
            if term.function == "square":
                return self._op("Mul", [*operands, *operands])
            return self._op(_SPELLED[term.function], operands)
        axes = [[*self.made.extents].index(index) for index in term.indices]
        inner = [self._term(term.body), self._constant(axes, np.int64)]
        return self._op(_REDUCTIONS[term.how], inner, keepdims=1)

    def _read(self, read: Read) -> str:
        value = self.inputs[read.tensor]
        assert value is not None
        shape = static_shape(value)
        grids, inside = positions(read, shape, self.made.extents)
        flat: Array = np.zeros((1,) * len(self.made.extents), np.int64)
        for grid, extent in zip(grids, shape, strict=True):
            flat = flat * extent + grid
        line = self._op("Reshape", [str(value.name), self._constant([-1], np.int64)])
        found = self._op("Gather", [line, self._constant(flat, np.int64)])
        if read.pad is None:
            return found
        outside = self._constant(np.full((1,) * len(self.made.extents), read.pad))
        return self._op("Where", [self._constant(inside, np.bool_), found, outside])

    def _constant(self, numbers: object, dtype: Any = None) -> str:
        name = f"{self.out}.constant{len(self.constants)}"
        kind = self.node.outputs[0].dtype
        assert kind is not None
        array = np.asarray(numbers, kind.numpy() if dtype is None else dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def _op(self, op_type: str, inputs: list[str], out: str | None = None, **given: Any) -> str:
        name = out or f"{self.out}.step{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **given))
        return name

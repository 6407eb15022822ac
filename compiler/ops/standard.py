"""This compiler's own operators said in ONNX's, for a host that knows only those.

    y = archgen.Silu(x)             s = Sigmoid(x); y = Mul(x, s)
    y = archgen.QConv(x, w, b)      DequantizeLinear of each; Conv; QuantizeLinear; Clip

The host computes quantized products as real numbers, so a result can lie one step beside the
accelerator's where it is half way between two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import NodeProto, TensorProto, helper, numpy_helper

from compiler.graph.defined import expression_in
from compiler.graph.integer_operators import WINDOW
from compiler.graph.rewrite import ARCHGEN, static_shape
from compiler.graph.tails import TAIL, written_tail
from compiler.nest.ir import Array
from compiler.ops.write_expression import write_expression
from simmodel.dtype import NUMPY, limits


class _Writer:
    """Collects nodes and constants; every name starts with that of the result."""

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.out = str(node.outputs[0].name)
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def attribute(self, name: str, default: Any = None) -> Any:
        found = self.node.attributes.get(name)
        return default if found is None else found.value

    def input(self, position: int) -> str:
        value = self.node.inputs[position]
        assert value is not None
        return str(value.name)

    def constant(self, array: Array) -> str:
        name = f"{self.out}.constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, inputs: list[str], out: str | None = None, **attributes: Any) -> str:
        name = out or f"{self.out}.step{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def dequantized(self, position: int, prefix: str, axis: int) -> str:
        """Real numbers of an operand, whose zero points have its own element type. Weights of
        groups that share an axis share what stands on it."""
        value = self.node.inputs[position]
        assert value is not None and value.dtype is not None
        extent = static_shape(value)[axis]
        scale = np.asarray(self.attribute(f"{prefix}_scale", 1.0), np.float32).reshape(-1)[:extent]
        zero = np.asarray(self.attribute(f"{prefix}_zero", 0), np.int64).reshape(-1)[:extent]
        count = max(scale.size, zero.size)
        shape = () if count == 1 else (count,)
        scale = np.broadcast_to(scale, count).reshape(shape)
        zero = np.broadcast_to(zero, count).reshape(shape).astype(value.dtype.numpy())
        parameters = [self.constant(scale), self.constant(zero)]
        return self.op("DequantizeLinear", [self.input(position), *parameters], axis=axis)

    def bias(self, prefixes: tuple[str, str]) -> str:
        """Real numbers of an int32 bias, which counts in units of the products."""
        a, b = (np.asarray(self.attribute(f"{p}_scale", 1.0), np.float32) for p in prefixes)
        value = self.node.inputs[2]
        assert value is not None
        unit = np.broadcast_to((a * b).reshape(-1), static_shape(value)[-1:])
        real = self.op("Cast", [self.input(2)], to=TensorProto.FLOAT)
        return self.op("Mul", [real, self.constant(np.ascontiguousarray(unit))])

    def finish(self, real: str) -> None:
        """From real numbers to the result's type and bounds."""
        kind = str(self.attribute("y_type", "int8"))
        if kind == "float32":
            self.op("Identity", [real], self.out)
        elif kind == "int32":
            whole = self.op("Round", [real])
            self.op("Cast", [whole], self.out, to=TensorProto.INT32)
        else:
            self._quantize(real, kind)

    def _quantize(self, real: str, kind: str) -> None:
        smallest, largest = limits(kind)
        scale = self.constant(np.asarray(self.attribute("y_scale"), np.float32))
        zero = self.constant(np.asarray(self.attribute("y_zero", 0), NUMPY[kind]))
        low = self.constant(np.asarray(self.attribute("clip_lo", smallest), NUMPY[kind]))
        high = self.constant(np.asarray(self.attribute("clip_hi", largest), NUMPY[kind]))
        raw = self.op("QuantizeLinear", [real, scale, zero])
        self.op("Clip", [raw, low, high], self.out)


def standard(node: ir.Node) -> tuple[list[NodeProto], list[TensorProto]]:
    """`node` as nodes of ONNX's own operators, and the constants that these read."""
    definition = expression_in(node)
    if definition is not None and not onnx.defs.has(node.op_type, node.domain):
        return write_expression(node, definition)
    if node.domain != ARCHGEN:
        return [ir.to_proto(node)], []
    if node.op_type == TAIL:
        return written_tail(node)
    write = _Writer(node)
    _WRITERS[node.op_type](write)
    return write.nodes, write.constants


def _silu(write: _Writer) -> None:
    x = write.input(0)
    write.op("Mul", [x, write.op("Sigmoid", [x])], write.out)


def _conv(write: _Writer) -> None:
    _window("Conv", write, 0)


def _conv_transpose(write: _Writer) -> None:
    _window("ConvTranspose", write, 1)


def _window(kind: str, write: _Writer, axis: int) -> None:
    operands = [write.dequantized(0, "x", 1), write.dequantized(1, "w", axis)]
    if len(write.node.inputs) > 2:
        operands.append(write.bias(("x", "w")))
    window = {name: write.attribute(name) for name in (*WINDOW, "output_padding")}
    given = {name: value for name, value in window.items() if value is not None}
    write.finish(write.op(kind, operands, **given))


def _matmul(write: _Writer) -> None:
    right = write.node.inputs[1]
    assert right is not None
    columns = len(static_shape(right)) - 1
    operands = [write.dequantized(0, "a", 1), write.dequantized(1, "b", columns)]
    product = write.op("MatMul", operands)
    if len(write.node.inputs) > 2:
        product = write.op("Add", [product, write.bias(("a", "b"))])
    write.finish(product)


_WRITERS = {
    "Silu": _silu, "QConv": _conv, "QConvTranspose": _conv_transpose, "QMatMul": _matmul,
}  # fmt: skip

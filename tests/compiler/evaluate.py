"""What a graph computes, by ONNX's reference evaluator and numpy for the archgen operators.

Slow and plain on purpose: tests compare graphs before and after a pass. Integer results are
y = clip(rint(float32(accumulator) * float32(x_scale * w_scale / y_scale)) + y_zero, clip_lo,
clip_hi), with an exact accumulator: whole numbers, of which float32 holds so many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from networks import model, reference
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from compiler.frontend.quantization.integer_operators import WINDOW
from compiler.frontend.rewrite import Array


def evaluate(model: ir.Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of `model` by name, for inputs by name."""
    run = ReferenceEvaluator(ir.to_proto(model), new_ops=[QConv, QConvTranspose, QMatMul, Silu])
    names = [str(value.name) for value in model.graph.outputs]
    with np.errstate(all="ignore"):
        return dict(zip(names, run.run(names, dict(inputs)), strict=True))


class _Product(OpRun):
    """A product of integers, without its zero points: that of float32 numbers."""

    op_domain = "archgen"
    prefixes = ("x", "w")

    def _run(self, x: Array, w: Array, b: Array | None = None, **_: object) -> tuple[Array]:
        given = {a.name: helper.get_attribute_value(a) for a in self.onnx_node.attribute}
        one, other = self.prefixes
        zeros = np.asarray(given[f"{other}_zero"])
        operator = self.onnx_node.op_type.removeprefix("Q")
        operands = {"a": x.astype("f4") - given[f"{one}_zero"], "b": self.centred(w, zeros, given)}
        window = {name: given[name] for name in WINDOW if name in given}
        node = helper.make_node(operator, [*operands], ["y"], **window)
        total = reference(model([node], operands, ["y"], opset=21), operands)["y"]
        assert np.abs(total).max(initial=0) < 1 << 24
        channel = (-1,) if operator == "MatMul" else (-1, *(1,) * (w.ndim - 2))
        total = np.rint(total).astype(float) + (
            0 if b is None else b.astype(float).reshape(channel)
        )
        kind = given["y_type"].decode()
        if kind == "int32":
            return (total.astype(np.int32),)
        factor: Array = np.float32(given[f"{one}_scale"]) * np.asarray(
            given[f"{other}_scale"], "f4"
        )
        if kind == "float32":
            return (total.astype(np.float32) * factor.reshape(channel),)
        factor = (factor / np.float32(given["y_scale"])).astype(np.float32).reshape(channel)
        numbers = np.rint(total.astype(np.float32) * factor) + given["y_zero"]
        return (np.clip(numbers, given["clip_lo"], given["clip_hi"]).astype(kind),)

    def centred(self, w: Array, zeros: Array, given: Mapping[str, Any]) -> Array:
        """Numbers of the second operand, whose zero points are of its last axis."""
        return np.asarray(w - zeros.astype("f4"))


class QMatMul(_Product):
    """The integer matrix product."""

    prefixes = ("a", "b")


class QConv(_Product):
    """The integer convolution; zero points are of the first axis of weights."""

    def centred(self, w: Array, zeros: Array, given: Mapping[str, Any]) -> Array:
        return np.asarray(w - zeros.astype("f4").reshape(-1, *(1,) * (w.ndim - 1)))


class QConvTranspose(_Product):
    """The integer convolution, transposed; each group has zero points of its second axis."""

    def centred(self, w: Array, zeros: Array, given: Mapping[str, Any]) -> Array:
        apart: Array = w.reshape(given["group"], -1, *w.shape[1:]).astype("f4")
        shape = (given["group"] if zeros.size > 1 else 1, 1, -1, *(1,) * (w.ndim - 2))
        return (apart - zeros.astype("f4").reshape(shape)).reshape(w.shape)


class Silu(OpRun):
    """x * sigmoid(x)."""

    op_domain = "archgen"

    def _run(self, x: Array) -> tuple[Array]:
        wide = x.astype(np.float64)
        return ((wide / (1 + np.exp(-wide))).astype(x.dtype),)

"""Activations that exporters spell with several operators, named again.

The one idea: a spelling is what it computes. The operators between a product and the one value that
it is made from are run on a few numbers, and so is the activation that has the same gate: then the
order of factors, and where a constant stands among them, do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, exp, pi, sqrt, tanh
from typing import Annotated, ClassVar

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.fold_constants import value_where
from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    input_of,
    is_op,
    scalar,
    sole_consumer,
    static_shape,
)
from compiler.passes import Omittable, within

_ROUNDED = {ir.DataType.FLOAT16: 2.0**-10, ir.DataType.BFLOAT16: 2.0**-7}
"""By how much, relatively, products of two constants may be off that were rounded to a type."""


def _hard_swish(x: float) -> float:
    return x * min(max(x + 3, 0), 6) / 6


def _tanh_gelu(x: float) -> float:
    return x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


_ACTIVATIONS: dict[str, tuple[str, dict[str, str], Callable[[float], float]]] = {
    "Sigmoid": ("Silu", {}, lambda x: x / (1 + exp(-x))),
    "Erf": ("Gelu", {"approximate": "none"}, lambda x: x / 2 * (1 + erf(x / sqrt(2)))),
    "Tanh": ("Gelu", {"approximate": "tanh"}, _tanh_gelu),
    "Clip": ("HardSwish", {}, _hard_swish),
    "HardSigmoid": ("HardSwish", {}, _hard_swish),
}
"""The operator that makes a gate -> the activation, and what it is of a number."""
_AROUND = ("Mul", "Div", "Add", "Pow")
_SAMPLES = np.linspace(-6.5, 6.5, 53)


@dataclass(frozen=True)
class FuseActivations(GraphPass, Omittable):
    """Silu (domain archgen), Gelu in both forms and HardSwish, from their usual spellings.

    s = Sigmoid(x); y = Mul(x, s)                              =>   y = archgen.Silu(x)
    e = Erf(x / 1.4142); y = Mul(x * 0.5, 1 + e)               =>   y = Gelu(x)
    t = Tanh(0.7979 * (x + 0.0447 * x^3)); y = 0.5 x (1 + t)   =>   y = Gelu <"tanh"> (x)
    c = Clip(x + 3, 0, 6); y = Mul(x, c) / 6                   =>   y = HardSwish(x)
    """

    backwards: ClassVar[bool] = True

    tolerance: Annotated[float, within(0, 1e-3)] = 1e-6
    """How far, relatively, a constant may be from the one in the definition; in a network of 16-bit
    floats also as far as rounding to them moves it."""

    def rewrite(self, node: ir.Node) -> bool:
        if not is_op(node, "Mul", "Div"):
            return False
        nodes, sources = _spelling(node)
        gates = [each.op_type for each in nodes if each.op_type in _ACTIVATIONS]
        if len(gates) != 1 or len(sources) != 1:
            return False
        (x,), (op_type, attributes, activation) = sources, _ACTIVATIONS[gates[0]]
        if x.dtype is None or static_shape(x) != static_shape(node.outputs[0]):
            return False
        computed = value_where(node.outputs[0], {x: _SAMPLES})
        wanted = [*map(activation, _SAMPLES.tolist())]
        tolerance = 2 * max(self.tolerance, _ROUNDED.get(x.dtype, 0.0))
        if computed is None or (abs(computed - wanted) > tolerance * abs(_SAMPLES)).any():
            return False
        make = Rewriter(node, nodes)
        domain = ARCHGEN if op_type == "Silu" else ""
        make.replace(make.op(op_type, [x], attributes, domain=domain))
        return True


def _spelling(last: ir.Node) -> tuple[list[ir.Node], set[ir.Value]]:
    """The nodes of which nobody else reads what they make, up to `last`, and what they are made
    from; a power of it may have other readers."""
    nodes: dict[ir.Node, None] = {last: None}
    sources: set[ir.Value] = set()
    waiting = [last]
    while waiting:
        for value in waiting.pop().inputs:
            if value is None or scalar(value) is not None:
                continue
            maker = value.producer()
            inside = maker is not None and is_op(maker, *_AROUND, *_ACTIVATIONS)
            if not inside or not (sole_consumer(value) is not None or _is_power(maker)):
                sources.add(value)
            elif maker is not None and maker not in nodes:
                nodes[maker] = None
                waiting.append(maker)
    return list(reversed(nodes)), sources


def _is_power(node: ir.Node | None) -> bool:
    return node is not None and is_op(node, "Pow") and scalar(input_of(node, 1)) in (2.0, 3.0)

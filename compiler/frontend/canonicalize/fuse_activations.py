"""Activations that exporters spell with several operators, named again.

The one idea: the root of each spelling is a product, so flatten it. `product_of` gives a constant
coefficient and the other factors, whatever the order of Mul and Div; then x * 0.5 * (1 + erf(x /
sqrt 2)) in any grouping is the coefficient 0.5 and the factors x and 1 + erf(...).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose, pi, sqrt
from typing import Annotated, ClassVar

import onnx_ir as ir

from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    float_attr,
    input_of,
    is_op,
    required,
    scalar,
    sole_consumer,
    static_shape,
)
from compiler.passes import Omittable, Within

_ROUNDED = {ir.DataType.FLOAT16: 2.0**-10, ir.DataType.BFLOAT16: 2.0**-7}
"""By how much, relatively, products of two constants may be off that were rounded to a type."""


@dataclass(frozen=True)
class FuseActivations(GraphPass, Omittable):
    """Silu (domain archgen), Gelu in both forms and HardSwish, from their usual spellings.

    s = Sigmoid(x); y = Mul(x, s)                              =>   y = archgen.Silu(x)
    e = Erf(x / 1.4142); y = Mul(x * 0.5, 1 + e)               =>   y = Gelu(x)
    t = Tanh(0.7979 * (x + 0.0447 * x^3)); y = 0.5 x (1 + t)   =>   y = Gelu <"tanh"> (x)
    c = Clip(x + 3, 0, 6); y = Mul(x, c) / 6                   =>   y = HardSwish(x)
    """

    backwards: ClassVar[bool] = True

    tolerance: Annotated[float, Within(0, 1e-3)] = 1e-6
    """How far, relatively, a constant may be from the one in the definition; in a network of 16-bit
    floats also as far as rounding to them moves it."""

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite the activation whose last operator is `node`."""
        if not is_op(node, "Mul", "Div"):
            return False
        product = product_of(node.outputs[0], root=True)
        if len(product.factors) != 2:
            return False
        for x, gate in (product.factors, product.factors[::-1]):
            found = self._activation(product.coefficient, x, gate)
            if found is None or static_shape(x) != static_shape(node.outputs[0]):
                continue
            op_type, domain, attributes = found
            make = Rewriter(node, _nodes_between(node, x))
            make.replace(make.op(op_type, [x], attributes, domain=domain))
            return True
        return False

    def _activation(
        self, coefficient: float, x: ir.Value, gate: ir.Value
    ) -> tuple[str, str, dict[str, str]] | None:
        """The activation that is coefficient * x * gate."""
        if self._is_close(x, coefficient, 1) and _made_by(gate, "Sigmoid") == x:
            return "Silu", ARCHGEN, {}
        if self._is_hard_gate(coefficient, x, gate):
            return "HardSwish", "", {}
        inner = _one_plus(gate)
        if inner is None or not self._is_close(x, coefficient * inner[1], 0.5):
            return None
        if self._is_product(_made_by(inner[0], "Erf"), x, sqrt(0.5)):
            return "Gelu", "", {"approximate": "none"}
        if self._is_tanh_argument(_made_by(inner[0], "Tanh"), x):
            return "Gelu", "", {"approximate": "tanh"}
        return None

    def _is_close(self, x: ir.Value, value: float | None, target: float) -> bool:
        """Whether a constant beside `x` stands for `target`."""
        unit = _ROUNDED.get(x.dtype, 0.0) if x.dtype is not None else 0.0
        return value is not None and isclose(value, target, rel_tol=max(self.tolerance, unit))

    def _is_product(
        self, value: ir.Value | None, x: ir.Value, factor: float, power: int = 1
    ) -> bool:
        """Whether `value` is factor * x ** power."""
        product = None if value is None else product_of(value)
        return (
            product is not None
            and product.factors == [x] * power
            and self._is_close(x, product.coefficient, factor)
        )

    def _is_tanh_argument(self, value: ir.Value | None, x: ir.Value) -> bool:
        """Whether `value` is sqrt(2 / pi) * (x + 0.044715 x^3)."""
        if value is None:
            return False
        product = product_of(value)
        if not self._is_close(x, product.coefficient, sqrt(2 / pi)) or len(product.factors) != 1:
            return False
        return any(
            term is x and self._is_product(rest, x, 0.044715, 3)
            for term, rest in _add_operands(product.factors[0])
        )

    def _is_hard_gate(self, coefficient: float, x: ir.Value, gate: ir.Value) -> bool:
        node = gate.producer()
        if node is None:
            return False
        if is_op(node, "HardSigmoid"):
            slope, offset = float_attr(node, "alpha", 0.2), float_attr(node, "beta", 0.5)
            named = self._is_close(x, slope, 1 / 6) and self._is_close(x, offset, 0.5)
            return named and self._is_close(x, coefficient, 1) and node.inputs[0] is x
        if not is_op(node, "Clip"):
            return False
        shifted = any(
            term is x and self._is_close(x, scalar(rest), 3)
            for term, rest in _add_operands(required(node, 0))
        )
        lo, hi = scalar(input_of(node, 1)), scalar(input_of(node, 2))
        return shifted and lo == 0 and hi == 6 and self._is_close(x, coefficient, 1 / 6)


@dataclass(frozen=True)
class ScaledProduct:
    """coefficient * the product of `factors`."""

    coefficient: float
    factors: list[ir.Value]


def product_of(value: ir.Value, root: bool = False) -> ScaledProduct:
    """Flatten the Mul, Div by a constant, and small Pow nodes that make `value`.

    Below the root only what nobody else reads is taken apart.
    """
    node = value.producer()
    if node is None or not (root or sole_consumer(value) is not None or _is_power(node)):
        return ScaledProduct(1.0, [value])
    if is_op(node, "Mul"):
        coefficient, factors = 1.0, list[ir.Value]()
        for operand in (required(node, 0), required(node, 1)):
            number = scalar(operand)
            inner = product_of(operand) if number is None else ScaledProduct(number, [])
            coefficient *= inner.coefficient
            factors += inner.factors
        return ScaledProduct(coefficient, factors)
    divisor = scalar(input_of(node, 1))
    if is_op(node, "Div") and divisor:
        inner = product_of(required(node, 0))
        return ScaledProduct(inner.coefficient / divisor, inner.factors)
    if is_op(node, "Pow") and divisor in (2.0, 3.0):
        return ScaledProduct(1.0, [required(node, 0)] * int(divisor))
    return ScaledProduct(1.0, [value])


def _is_power(node: ir.Node) -> bool:
    return is_op(node, "Pow") and scalar(input_of(node, 1)) in (2.0, 3.0)


def _made_by(value: ir.Value, op_type: str) -> ir.Value | None:
    """The operand of the unary operator that makes `value` for one reader alone."""
    node = value.producer()
    if node is None or not is_op(node, op_type) or sole_consumer(value) is None:
        return None
    return node.inputs[0]


def _add_operands(value: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
    """The two operands of the Add that makes `value`, both ways round."""
    node = value.producer()
    if node is None or not is_op(node, "Add"):
        return []
    left, right = required(node, 0), required(node, 1)
    return [(left, right), (right, left)]


def _one_plus(value: ir.Value) -> tuple[ir.Value, float] | None:
    """(v, c) where `value` is c + c * v, for c = 1 or written out as 0.5 + 0.5 v."""
    for term, rest in _add_operands(value):
        number = scalar(rest)
        if number is None:
            continue
        product = product_of(term) if number != 1 else ScaledProduct(1.0, [term])
        if len(product.factors) == 1 and isclose(product.coefficient, number, rel_tol=1e-6):
            return product.factors[0], number
    return None


def _nodes_between(last: ir.Node, x: ir.Value) -> list[ir.Node]:
    """The nodes from `x` to `last`, whose provenance the activation takes over."""
    found: dict[ir.Node, None] = {last: None}
    todo = [last]
    while todo:
        for value in todo.pop().inputs:
            producer = None if value is None or value is x else value.producer()
            if producer is not None and producer not in found:
                found[producer] = None
                todo.append(producer)
    return list(reversed(found))

"""Which nests the vector engine computes with whole numbers, exactly, instead of with fp32."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.nest.ir import Nest
from simmodel.isa.functions import BINARY, TERNARY, UNARY, Function, exact
from simmodel.region import Address, Operand


def function_of(nest: Nest) -> Function:
    """What a nest applies to its operands: of one, two or three."""
    return (UNARY, BINARY, TERNARY)[len(nest.operands) - 1][nest.function]


def code(scale: float | None, zero: int, dtype: str = "fp32") -> Operand:
    """An operand that carries nothing but its encoding."""
    return Operand("", Address(0), (), (), dtype, scale, zero)


def computes_exactly(nest: Nest, kinds: Mapping[str, str]) -> bool:
    """Whether all of `nest` is done with whole numbers.

    Args:
        nest: an operator.
        kinds: element types of its operands and its result, by tensor.
    """
    if nest.contraction or nest.bias is not None or nest.multiplier is not None:
        return False
    read = (code(access.scale, access.zero, kinds[access.tensor]) for access in nest.operands)
    return exact(function_of(nest), code(nest.scale, nest.zero, kinds[nest.tensor]), *read)

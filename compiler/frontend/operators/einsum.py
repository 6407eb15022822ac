"""Einsum: a tensor expression already, spelled otherwise."""

from __future__ import annotations

from collections import Counter

from compiler.frontend.operators.body import Declined
from compiler.frontend.operators.definitions import Shaped, expression_of


@expression_of("", "Einsum")
def einsum(*operands: Shaped, equation: str) -> str:
    """`bij,bjk->bik` as `y[b, i, k] = sum(j, operands0[b, i, j] * operands1[b, j, k])`."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in equation:
        raise Declined("its equation has an ellipsis")
    if not all(each.real for each in operands):
        raise Declined("it is of integers")
    if any(len(set(term)) < len(term) for term in terms) or len(terms) != len(operands):
        raise Declined("its equation takes a diagonal")
    counts = Counter("".join(terms))
    extents = {(i, n) for each, t in zip(operands, terms, strict=True)
               for i, n in zip(t, each.shape, strict=False)}  # fmt: skip
    if len(extents) > len(counts):
        raise Declined("it repeats an extent of 1")
    if not arrow:
        result = "".join(sorted(index for index, count in counts.items() if count == 1))
    if not result:
        raise Declined("its result is a single number")
    product = " * ".join(
        f"{each.name}[{', '.join(term)}]" for each, term in zip(operands, terms, strict=True)
    )
    over = [index for index in counts if index not in result]
    value = f"sum(({', '.join(over)},), {product})" if over else product
    return f"y[{', '.join(result)}] = {value}"


TABLE = (einsum,)

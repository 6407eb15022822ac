"""Determinants of small matrices, expanded by their rows.

    det [[a, b], [c, d]] = a * d - b * c

The one idea: minors of the last rows are shared by all that need them, so n * n rows of products
make an n x n determinant of all matrices of a batch at once. No pivots have to be found; with more
rows there would be too many minors, and what cancels among them would be too much.
"""

from __future__ import annotations

from itertools import combinations
from math import prod

from compiler.graph.body import Body, Declined, Tensor
from compiler.graph.operators import rewrite_of

MOST = 4
"""Rows of a matrix whose determinant is expanded."""


@rewrite_of("", "Det")
def det(b: Body, x: Tensor) -> Tensor:
    """Determinants of [..., n, n]."""
    *batch, n, _ = x.shape
    if n > MOST:
        raise Declined(f"a determinant of {n} rows; up to {MOST} are expanded")
    if 0 in x.shape:
        raise Declined("it has no elements")
    flat = b.reshape(x, (prod(batch), n * n))
    elements = b.split(b.one("Transpose", flat, perm=[1, 0]), [1] * (n * n), 0)
    rows = [elements[row * n : (row + 1) * n] for row in range(n)]
    minors: dict[tuple[int, ...], Tensor] = {(at,): rows[-1][at] for at in range(n)}
    for count in range(2, n + 1):
        row = rows[n - count]
        minors = {
            columns: _expanded(row, columns, minors) for columns in combinations(range(n), count)
        }
    (whole,) = minors.values()
    return b.reshape(whole, batch)


def _expanded(
    row: list[Tensor], columns: tuple[int, ...], minors: dict[tuple[int, ...], Tensor]
) -> Tensor:
    """The minor of `columns` from `row` and the minors of the rows below it."""
    total: Tensor | None = None
    for position, column in enumerate(columns):
        rest = (*columns[:position], *columns[position + 1 :])
        term = row[column] * minors[rest]
        if total is None:
            total = term
        else:
            total = total - term if position % 2 else total + term
    assert total is not None
    return total


TABLE = (det,)

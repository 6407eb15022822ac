"""DLRM, a recommendation model (Naumov et al. 2019) with the layers of its Criteo Kaggle run.

The one idea: run-time indices pick one row of each table, so memory is read at random, and all
pairs of what was picked are multiplied with each other between two small perceptrons.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from archgen.zoo.builder import Builder, Tensor
from archgen.zoo.moments import Moments

_ROWS_STD = 0.5


def dlrm(
    net: Builder, *, batch: int, features: int, tables: int, rows: int, width: int, hidden: int
) -> None:
    """Appends DLRM on ``dense`` (batch, features) and ``indices`` (batch, tables), one row of
    ``width`` values out of ``rows`` for each table; ``hidden`` is the widest layer of both
    perceptrons. Outputs the probability of a ``click`` (batch, 1)."""
    dense = net.input("dense", (batch, features))
    indices = net.input("indices", (batch, tables), TensorProto.INT64)
    bottom = dense
    for index, wide in enumerate((hidden, hidden // 2, hidden // 8, width)):
        bottom = net.relu(net.gemm(f"bottom.{index}", bottom, max(wide, 1)))
    picked = [
        bottom.name,
        *(_row(net, f"tables.{t}", indices, t, rows, width) for t in range(tables)),
    ]
    pairs = _interaction(net, picked, (batch, tables + 1, width))
    (joined,) = net.node("Concat", "interaction", [bottom.name, pairs.name], axis=1)
    top = Tensor(
        joined,
        (batch, width + pairs.shape[1]),
        Moments.joined([bottom.moments, pairs.moments]),
    )
    for index, wide in enumerate((hidden, hidden // 2)):
        top = net.relu(net.gemm(f"top.{index}", top, max(wide, 1)))
    top = net.gemm("top.2", top, 1)
    (click,) = net.node("Sigmoid", "probability", [top.name])
    net.output("click", Tensor(click, top.shape, top.moments))


def _row(net: Builder, name: str, indices: Tensor, table: int, rows: int, width: int) -> str:
    """(batch, width): of one table, the rows that its column of indices names."""
    column = net.constant(np.array(table))
    (index,) = net.node("Gather", f"{name}.index", [indices.name, column], axis=1)
    weight = net.parameter(f"{name}.weight", net.normal((rows, width), _ROWS_STD))
    return net.node("Gather", name, [weight, index], axis=0)[0]


def _interaction(net: Builder, picked: list[str], shape: tuple[int, int, int]) -> Tensor:
    """Products of all pairs of vectors (batch, count, width), each pair once."""
    batch, count, _ = shape
    (flat,) = net.node("Concat", "vectors.flat", picked, axis=1)
    (vectors,) = net.node("Reshape", "vectors", [flat, net.integers(shape)])
    (across,) = net.node("Transpose", "vectors.across", [vectors], perm=[0, 2, 1])
    (products,) = net.node("MatMul", "products", [vectors, across])
    square = net.integers([batch, count * count])
    (line,) = net.node("Reshape", "products.line", [products, square])
    left, right = np.tril_indices(count, -1)
    once = net.constant(left * count + right)
    (pairs,) = net.node("Gather", "pairs", [line, once], axis=1)
    return Tensor(pairs, (batch, len(left)), Moments.standard(len(left)))

"""Cycles of the matrix engine for a product of M x K by K x N.

The systolic formulas are the standard ones for output-, weight- and input-stationary arrays: every
fold pays the full array for fill and drain (Samajdar et al., SCALE-Sim, ISPASS 2020). Without
`fold_overlap` the folds simply add up; with it, the stationary operand of the next fold is loaded
behind the running product, so inner folds cost only their streaming time, and so does the first one
of a product that follows another without a gap.

All functions take ints or integer arrays alike: the machine asks for one instruction, the
compiler's search for thousands of candidates at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simmodel.arch import Matrix


def _ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


def product_cycles(
    matrix: Matrix, dtype: str, m: Any, n: Any, k: Any, positions: int = 1, *, behind: bool = False
) -> Any:
    """Cycles for an (m x k) by (k x n) product, `positions` times into the same result.

    Args:
        matrix: the engine.
        dtype: element type of both operands.
        m, n, k: output pixels, output channels, reduction length of each position.
        positions: kernel positions; packed into the reduction axis where the engine can
            (`im2col`), else each pays its own folds.
        behind: right behind another product: where folds overlap, those of neighbours do as well.

    Returns:
        Whole cycles, without the engine's start-up: an int, or an array for arrays.
    """
    rate = next((r for t, r in matrix.rate.items() if t == dtype), 1.0)
    if matrix.im2col:
        k, positions = k * positions, 1
    if rate > 1:
        k = _whole(np.ceil(k / rate))
    if matrix.kind == "systolic":
        once = _systolic(matrix, m, n, k, positions, behind=behind)
    else:
        once = _cube(matrix, m, n, k, positions)
    return _whole(np.ceil(once / rate)) if rate < 1 else once


def depthwise_cycles(
    matrix: Matrix, dtype: str, pixels: int, channels: int, taps: int, *, behind: bool = False
) -> int:
    """Cycles of a depthwise product: each channel's own `taps` inputs times its own weights.

    A cube gives each of its columns a channel and that channel's inputs. A systolic array has one
    input for each row, which all columns see: a channel takes a column, and rows of its own for its
    taps. That is a product with block-diagonal weights, without the folds that hold zeros alone.
    Where weights or inputs stay, a fold holds as many channels as the rows have room for; where
    sums stay, the taps of all channels of a fold pass one after another.

    Args:
        matrix: the engine.
        dtype: element type of both operands.
        pixels, channels, taps: output pixels, channels, kernel positions.
        behind: as in `product_cycles`.

    Returns:
        Whole cycles, without the engine's start-up.
    """
    if matrix.kind != "systolic":
        return int(product_cycles(matrix, dtype, pixels, channels, 1, taps))
    rate = next((r for t, r in matrix.rate.items() if t == dtype), 1.0)
    taps, positions = (taps, 1) if matrix.im2col else (1, taps)
    rows = max(1, int(matrix.rows * max(rate, 1.0)) // taps)
    together = {
        "output-stationary": matrix.cols,
        "weight-stationary": min(matrix.cols, rows),
        "input-stationary": rows,
    }[matrix.dataflow]
    groups = -(-channels // together)
    together = -(-channels // groups)
    inner = math.ceil(taps * together / max(rate, 1.0))
    once = int(_systolic(matrix, pixels, together, inner, groups * positions, behind=behind))
    return math.ceil(once / min(rate, 1.0))


def _whole(value: Any) -> Any:
    return value.astype(np.int64) if isinstance(value, np.ndarray) else int(value)


def _cube(matrix: Matrix, m: Any, n: Any, k: Any, positions: int) -> Any:
    return _ceil(m, matrix.rows) * _ceil(n, matrix.cols) * _ceil(k, matrix.depth) * positions


def _systolic(matrix: Matrix, m: Any, n: Any, k: Any, positions: int, *, behind: bool) -> Any:
    rows, cols = matrix.rows, matrix.cols
    if matrix.dataflow == "output-stationary":
        folds, stream, load = _ceil(m, rows) * _ceil(n, cols), k, 0
    elif matrix.dataflow == "weight-stationary":
        folds, stream, load = _ceil(k, rows) * _ceil(n, cols), m, rows
    else:
        folds, stream, load = _ceil(k, rows) * _ceil(m, cols), n, rows
    folds = folds * positions
    fold = load + stream + rows + cols - 2
    if not matrix.fold_overlap:
        return folds * fold
    busy = np.maximum(stream, rows) if isinstance(stream, np.ndarray) else max(stream, rows)
    return folds * busy if behind else (folds - 1) * busy + fold


def streams(matrix: Matrix, m: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """How often the left operand and the weights are read from memory during one product.

    The stationary operand is read once; the other one again for each fold that it meets.
    """
    if matrix.kind == "systolic" and matrix.dataflow == "output-stationary":
        return _ceil(n, matrix.cols), _ceil(m, matrix.rows)
    if matrix.kind == "systolic" and matrix.dataflow == "input-stationary":
        return 1, _ceil(m, matrix.cols)
    return _ceil(n, matrix.cols), 1

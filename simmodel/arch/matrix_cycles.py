"""Cycles and reads of the matrix engine for a product of M x K by K x N.

Sizes are numbers, or arrays of them: only operators are used that both have, so that what merely
looks at a machine needs no numpy.
"""

from __future__ import annotations

import math
from typing import Any

from simmodel.arch.element_types import WINOGRAD, per_block
from simmodel.arch.record import Matrix


def tile_limits(matrix: Matrix, dtype: str = "") -> tuple[int, int]:
    """Largest reduction, in elements of `dtype`, and output channels of one array-sized tile."""
    rows = matrix.depth if matrix.kind == "cube" else matrix.rows
    return rows // per_block(dtype), matrix.cols


def _ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


def product_cycles(
    matrix: Matrix, dtype: str, m: Any, n: Any, k: Any, positions: int = 1, *, behind: bool = False
) -> Any:
    """Whole cycles, an int or an array for arrays, of an (m x k) by (k x n) product, `positions`
    times into the same result; without the engine's start-up.

    Args:
        m, n, k: output pixels, output channels, reduction length of each position, in elements of
            `dtype`, which may be blocks. By Winograd, pixels of whole tiles (`whole_tiles`) and all
            nine positions.
        positions: kernel positions; packed into the reduction axis where the engine can
            (`im2col`), else each pays its own folds.
        behind: right behind another product: where folds overlap, those of neighbours do as well.
    """
    base, outputs = WINOGRAD.get(dtype, (dtype, 0))
    rate = next((r for t, r in matrix.rate.items() if t == base), 1.0)
    k = k * per_block(dtype)
    if outputs:
        m, k, positions = _ceil(m, outputs**2), k * positions // 9, (outputs + 2) ** 2
    elif matrix.im2col:
        k, positions = k * positions, 1
    if rate > 1:
        k = _rounded_up(k / rate)
    together = matrix.winograd.channels if outputs and matrix.winograd is not None else None
    if together is not None:
        step = _ceil(positions * together, matrix.rows * matrix.depth)
        once = m * _ceil(n, matrix.cols) * _ceil(k, together) * step
    elif matrix.kind == "systolic":
        once = _systolic(matrix, m, n, k, positions, behind=behind)
    else:
        steps = _ceil(m, matrix.rows) * _ceil(n, matrix.cols) * _ceil(k, matrix.depth)
        once = steps * positions
    kept_up = min(rate, 1) * matrix.sustained
    return _rounded_up(once / kept_up) if kept_up < 1 else once


def whole_tiles(dtype: str, y: Any, x: Any) -> Any:
    """Output pixels of the tiles that `y` lines of `x` columns take as products of type `dtype`."""
    _, outputs = WINOGRAD.get(dtype, (dtype, 1))
    return _ceil(y, outputs) * _ceil(x, outputs) * outputs**2


def depthwise_cycles(
    matrix: Matrix, dtype: str, pixels: int, channels: int, taps: int, *, behind: bool = False
) -> int:
    """Whole cycles of a depthwise product, each channel's own `taps` inputs times its own weights,
    without the engine's start-up.

    A cube gives each of its columns a channel and that channel's inputs. A systolic array has one
    input for each row, which all columns see: a channel takes a column, and rows of its own for its
    taps. That is a product with block-diagonal weights, without the folds that hold zeros alone.
    Where weights or inputs stay, a fold holds as many channels as the rows have room for; where
    sums stay, the taps of all channels of a fold pass one after another.
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
    return math.ceil(once / (min(rate, 1.0) * matrix.sustained))


def _rounded_up(value: Any) -> Any:
    whole = -(-value // 1)
    return int(whole) if isinstance(whole, int | float) else whole.astype("int64")


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
    busy = max(stream, rows) if isinstance(stream, int | float) else stream.clip(rows)
    return folds * busy if behind else (folds - 1) * busy + fold


def streams(matrix: Matrix, m: Any, n: Any, k: Any) -> tuple[Any, Any]:
    """Reads of the left operand and of the weights from memory during one product.

    The stationary operand is read once; the other one again for each fold.
    """
    if matrix.kind == "systolic" and matrix.dataflow == "output-stationary":
        return _ceil(n, matrix.cols), _ceil(m, matrix.rows)
    if matrix.kind == "systolic" and matrix.dataflow == "input-stationary":
        return 1, _ceil(m, matrix.cols)
    return _ceil(n, matrix.cols), 1

"""Sizes that a file says by expressions: a mask over `past + seq` positions.

The one idea: exporters call a dimension after what it follows from, so whoever says `past` and
`seq` has said it, and cannot say another size as well.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def derived(symbols: Iterable[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes of those `symbols` that are expressions in names of `sizes` and numbers: sums,
    differences, products and quotients that are rounded down."""
    found = {symbol: _value(symbol, sizes) for symbol in dict.fromkeys(symbols)}
    return {symbol: size for symbol, size in found.items() if size is not None}


def _value(symbol: str, sizes: Mapping[str, int]) -> int | None:
    try:
        tree = ast.parse(symbol.strip(), mode="eval").body
        return _computed(tree, sizes) if isinstance(tree, ast.BinOp) else None
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None  # a name, however it looks


def _computed(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    match tree:
        case ast.Name(id=name):
            return sizes[name]
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_computed(left, sizes), _computed(right, sizes))
    raise KeyError(ast.dump(tree))

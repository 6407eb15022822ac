"""What one function of the vector engine does, in others: `x * sigmoid(x)`.

The one idea: a term is text in Python's own grammar, about operands and parameters by name. Where a
machine lacks the function it is computed so, and where a network computes so, the function may do
it all at once.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection
from functools import cache

Term = str | float | tuple["Term", ...]
"""An operand or parameter by its name, a number, or a function of terms, its name first."""

SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
}  # fmt: skip
"""Functions of two operands that have a sign in Python's grammar."""
_NUMBERS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip


@cache
def term_of(text: str) -> Term:
    """The term in `text`; raises ValueError, in words."""
    try:
        (line,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError) as mistake:
        raise ValueError(f"{text!r} is no expression: {mistake}") from None
    if not isinstance(line, ast.Expr):
        raise ValueError(f"{text!r} is no expression; write what the result is, x * sigmoid(x)")
    return _term(line.value)


def _term(node: ast.expr) -> Term:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _term(operand)
            return -inner if isinstance(inner, float) else ("neg", inner)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ("not", _term(operand))
        case ast.BinOp(op=op) if type(op) in SIGNS:
            return _joined(op, _term(node.left), _term(node.right))
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return (name, *map(_term, node.args))
    raise ValueError(f"{ast.unparse(node)!r} is no value of an operand, nor a function of such")


def _joined(op: ast.operator, left: Term, right: Term) -> Term:
    """Two terms with a sign between them: of two numbers, the number."""
    if isinstance(left, float) and isinstance(right, float):
        return float(_NUMBERS[type(op)](left, right))
    return (SIGNS[type(op)], left, right)


def names_in(term: Term) -> set[str]:
    """Operands and parameters that `term` is about."""
    if isinstance(term, tuple):
        return set[str]().union(*map(names_in, term[1:]))
    return {term} if isinstance(term, str) else set()


def functions_in(term: Term) -> set[tuple[str, int]]:
    """Functions in `term` and how many operands each is given."""
    if not isinstance(term, tuple):
        return set()
    inner = set[tuple[str, int]]().union(*map(functions_in, term[1:]))
    return {(str(term[0]), len(term) - 1)} | inner


def about(text: str, names: Collection[str]) -> Term:
    """The term in `text`, which is about these `names` alone; raises ValueError, in words."""
    term = term_of(text)
    unknown = sorted(names_in(term) - set(names))
    if unknown:
        known = ", ".join(names)
        raise ValueError(
            f"{text!r} is about {unknown[0]!r}, which is no operand; there are {known}"
        )
    return term

"""All operators that a function defines, by name; users add theirs.

@rewrite("my.domain", "MyGelu")
def my_gelu(b, x, *, alpha=1.702):
    return x * b.Sigmoid(x * alpha)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from compiler.errors import operator_name
from compiler.graph import (
    einsum,
    expand_qlinear,
    linear_attention,
    microsoft,
    recurrent,
)
from compiler.graph.expression import TEMPLATES
from compiler.graph.operators import REASON, Expressed, Rewrite, rewrite_of
from compiler.graph.signature import Signature, name_of
from simmodel.registry import Registry

_SHIPPED = (microsoft, recurrent, einsum, expand_qlinear, linear_attention)

DEFINED: dict[str, Rewrite] = Registry(
    "defined operator",
    {each.name: each for table in _SHIPPED for each in table.TABLE},
)
"""By name: `MyGelu` of domain my.domain is "my.domain.MyGelu"."""

Function = Callable[..., Any]


def rewrite(
    domain: str, op_type: str, *, reference: Function | None = None, replace: bool = False
) -> Callable[[Function], Function]:
    """Decorator: register a function of a builder as the operator `op_type` of `domain`.

    Args:
        domain: as in the model; "" is ONNX's own.
        op_type: its name there.
        reference: the same in numpy, a function of the inputs as arrays and the attributes by name,
            which results are compared with; default: the body, run by ONNX Runtime.
        replace: take the place of a definition that is there.

    The function gets a builder (`Body`), the inputs as `Tensor`, optional ones as None, and the
    attributes by keyword; it gives one result or a tuple of them. Raises ValueError where the name
    is taken, or where it can be no operator's function.
    """

    def register(function: Function) -> Function:
        made = rewrite_of(domain, op_type, reference)(function)
        enter(made, replace)
        return function

    return register


def expression(
    domain: str,
    op_type: str,
    *,
    template: str | None = None,
    reference: Function | None = None,
    replace: bool = False,
) -> Callable[[Function], Function]:
    """Decorator: register a function that gives the text of a tensor expression as an operator.

    Args:
        domain, op_type, replace: as of `rewrite`.
        template: the kind of schedule that it has to suit (contraction, window, reduction,
            movement, elementwise); default: whichever follows.
        reference: as of `rewrite`; default: the expression, evaluated in numpy.

    The function gets the inputs, of which it may ask the `shape`, and the attributes by keyword; in
    its text, inputs are called like its parameters. Raises ValueError as `rewrite`.
    """
    if template not in (None, *TEMPLATES):
        raise ValueError(f"template {template!r}, expected one of {', '.join(TEMPLATES)}")

    def register(function: Function) -> Function:
        signature = Signature.of(function, 0)
        enter(Expressed(domain, op_type, function, signature, reference, template), replace)
        return function

    return register


def enter(made: Rewrite, replace: bool) -> None:
    """Put a definition into the table; raises ValueError where its name is taken."""
    if not made.op_type.isidentifier():
        raise ValueError(f"operator {made.op_type!r}: its name has to be an identifier")
    before = DEFINED.get(made.name)
    if before is not None and not replace:
        raise ValueError(
            f"operator {made.name} is defined already, at {before.place}; 'replace=True' takes "
            "its place"
        )
    DEFINED[made.name] = made


def definition_of(node: ir.Node) -> Rewrite | None:
    """What defines the operator of `node`, None where no function does."""
    return DEFINED.get(name_of(node))


def expression_in(node: ir.Node) -> Expressed | None:
    """The definition of `node` as a tensor expression, which has not declined it."""
    found = definition_of(node)
    return found if isinstance(found, Expressed) and REASON not in node.metadata_props else None


def is_defined(op_type: str, domain: str) -> bool:
    """Whether a function defines an operator."""
    return operator_name(op_type, domain) in DEFINED

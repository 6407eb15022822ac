"""Operators that are defined by a Python function: ours and users'.

The one idea: one table holds them all, by the name under which a model calls them. A definition is
asked when the loader meets its node, where shapes, types and constants of the inputs are known;
what it says stands in the node's place and is compiled like anything else. A definition may decline
(`Declined`): the node then stays what it is, for the host, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import operator_name
from compiler.frontend.operators.body import Body, Contradicted, Declined, PassBody, Tensor
from compiler.frontend.operators.expression import Expression, expression
from compiler.frontend.rewrite import GraphPass, replace_outputs, static_shape

# How a Python function of an operator is called for a node.

_KINDS = inspect.Parameter


@dataclass(frozen=True)
class Signature:
    """What a function takes behind its first `skipped` parameters."""

    named: tuple[str, ...]
    """The inputs that have a name of their own."""
    rest: str
    """Name of all further ones; empty: there are none."""
    required: int
    """Inputs that every node has to give."""
    attributes: Mapping[str, Any]
    """Defaults by name; `inspect.Parameter.empty` where there is none."""
    open: bool
    """Whether attributes of other names are handed on as well."""

    @classmethod
    def of(cls, function: Callable[..., Any], skipped: int) -> Signature:
        """The signature of `function`; raises ValueError where it cannot be one of an operator."""
        parameters = list(inspect.signature(function).parameters.values())
        inputs = [p for p in parameters if p.kind <= _KINDS.POSITIONAL_OR_KEYWORD]
        if len(inputs) < skipped:
            raise ValueError(f"{function.__name__}() takes no builder; begin with (b, x, ...)")
        for each in inputs[skipped:]:
            if each.default not in (None, each.empty):
                raise ValueError(
                    f"{function.__name__}(): input {each.name!r} has the default {each.default!r}; "
                    "an input is optional by '=None', attributes stand behind a '*'"
                )
        return cls(
            named=tuple(p.name for p in inputs[skipped:]),
            rest=next((p.name for p in parameters if p.kind == _KINDS.VAR_POSITIONAL), ""),
            required=sum(p.default is p.empty for p in inputs[skipped:]),
            attributes={p.name: p.default for p in parameters if p.kind == _KINDS.KEYWORD_ONLY},
            open=any(p.kind == _KINDS.VAR_KEYWORD for p in parameters),
        )

    def names(self, count: int) -> tuple[str, ...]:
        """Names of the first `count` inputs; further ones are numbered."""
        more = range(max(count - len(self.named), 0))
        return (*self.named[:count], *(f"{self.rest}{index}" for index in more))

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Raise ValueError where so many inputs, None for those left out, do not suit it."""
        given, least, most = len(inputs), self.required, len(self.named)
        if given < least or (not self.rest and given > most):
            counts = f"{least}" if least == most else f"{least} to {most}"
            inputs_text = f"{counts} input{'s' if most != 1 else ''}"
            takes = f"{least} inputs or more" if self.rest else inputs_text
            raise ValueError(f"takes {takes}, the node has {given}")
        if None in [*inputs[:least]]:
            raise ValueError(f"input {[*inputs].index(None)} is missing, which has to be given")

    def bound(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of all attributes, of which a node has `given`; raises ValueError, in words."""
        unknown = sorted(set(given) - set(self.attributes))
        if unknown and not self.open:
            known = ", ".join(self.attributes) or "none"
            raise ValueError(f"has no attribute {unknown[0]!r}; its attributes: {known}")
        found = dict(given) if self.open else {}
        for name, default in self.attributes.items():
            if name not in given and default is _KINDS.empty:
                raise ValueError(f"attribute {name!r} is missing, which has to be given")
            found[name] = _suiting(name, given[name], default) if name in given else default
        return found


def _suiting(name: str, value: Any, default: Any) -> Any:
    """The value of an attribute where it is of the type of its default."""
    if default is None or default is _KINDS.empty:
        return value
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    if isinstance(default, bool) and value in (0, 1):
        return bool(value)
    if not isinstance(value, (list, tuple) if isinstance(default, list | tuple) else type(default)):
        raise ValueError(f"attribute {name!r} is {value!r}, expected one like {default!r}")
    return value


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """The attributes of `node` as Python values: numbers, strings, lists, arrays."""
    found: dict[str, Any] = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            raise ValueError(f"attribute {name!r} is a graph, which no function is handed")
        if attribute.type == ir.AttributeType.TENSOR:
            value = attribute.as_tensor().numpy()
        elif isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
            value = list(value)
        found[name] = value
    return found


def without_absent_end(inputs: Iterable[Any]) -> list[Any]:
    """`inputs` without those that are left out at their end."""
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    return given


REASON = "archgen.reason"
"""Key, in the metadata of a node, of why it is left to the host."""


class OperatorFailed(Exception):
    """The function of an operator raised what is in `__cause__`; the text says which operator, and
    where it is defined."""


@dataclass(frozen=True)
class Rewrite:
    """An operator as a function that builds its body."""

    domain: str
    op_type: str
    function: Callable[..., Any]
    signature: Signature
    reference: Callable[..., Any] | None = None
    """The same in numpy, without the builder; None: the body is its own reference."""
    grouped: bool = False
    """Whether what a graph pass makes of it is marked as parts of one composite."""

    @property
    def name(self) -> str:
        """How the operator is called in messages and in the table."""
        return operator_name(self.op_type, self.domain)

    @property
    def place(self) -> str:
        """File and line of the function."""
        code = self.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def is_shipped(self) -> bool:
        """Whether the function is one of this package, not a user's."""
        return self.function.__module__.startswith(f"{__package__}.")


@dataclass(frozen=True)
class Expressed(Rewrite):
    """An operator as a function that gives the text of a tensor expression."""

    template: str | None = None
    """The kind of schedule that it has to suit; None: whichever follows."""


@contextmanager
def _defined_at(definition: Rewrite) -> Iterator[None]:
    """Mistakes say where the operator is defined."""
    try:
        yield
    except ValueError as mistake:
        raise ValueError(f"{mistake} (defined at {definition.place})") from None


def _called(
    node: ir.Node, definition: Rewrite, operand: Callable[[str, ir.Value], Any], *first: Body
) -> Any:
    """What the function gives for `node`: of inputs as `operand` makes them of name and value."""
    inputs = without_absent_end(node.inputs)
    with _defined_at(definition):
        definition.signature.check_inputs(inputs)
        attributes = definition.signature.bound(attributes_of(node))
    named = zip(definition.signature.names(len(inputs)), inputs, strict=True)
    operands = [None if value is None else operand(name, value) for name, value in named]
    try:
        return definition.function(*first, *operands, **attributes)
    except Declined:
        raise
    except Contradicted as mistake:
        raise ValueError(str(mistake)) from None
    except Exception as mistake:  # whatever a user's function does
        if definition.is_shipped and isinstance(mistake, ValueError):
            raise  # inputs that contradict an operator of the body
        raise OperatorFailed(
            f"{definition.name}, defined at {definition.place}: {type(mistake).__name__}: {mistake}"
        ) from mistake


def expressed(node: ir.Node, definition: Expressed) -> Expression:
    """The expression of `node`. Raises as `expand`, and Declined."""
    shapes: dict[str, tuple[int, ...]] = {}

    def operand(name: str, value: ir.Value) -> Shaped:
        shapes[name] = static_shape(value)
        return Shaped(name, shapes[name], _real(value))

    text = _called(node, definition, operand)
    with _defined_at(definition):
        if not isinstance(text, str):
            raise ValueError(f"its function gives {type(text).__name__!r}, expected a text")
        made = expression(text, shapes)
        if definition.template not in (None, *made.templates):
            kinds = " and ".join(made.templates)
            raise ValueError(f"{text!r} has no {definition.template} in it: it is {kinds}")
    return made


@dataclass(frozen=True)
class Shaped:
    """An operand of an expression, as its function sees it."""

    name: str
    shape: tuple[int, ...]
    real: bool
    """Whether its elements are real numbers."""


def _real(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def infer_expressed(node: ir.Node, definition: Expressed) -> bool:
    """Set type and shape of the result of `node`; whether its definition covers it. Raises as
    `expand`."""
    try:
        made = expressed(node, definition)
    except Declined as why:
        node.metadata_props[REASON] = str(why)
        return False
    for value in node.inputs:
        if value is not None and not _real(value):
            raise ValueError(f"{definition.name} is an expression of real numbers; cast its inputs")
    if len(node.outputs) != 1:
        raise ValueError(f"{definition.name} gives 1 result, the node has {len(node.outputs)}")
    first = node.inputs[0]
    assert first is not None and first.dtype is not None
    node.outputs[0].dtype, node.outputs[0].shape = first.dtype, ir.Shape(made.shape)
    return True


Table = dict[str, Rewrite]
"""Definitions by the names of operators."""


def defines(
    table: Table, *op_types: str, domain: str = "", grouped: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function of a builder, inputs and attributes defines these operators."""

    def entered(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = Signature.of(function, 1)
        for op_type in op_types:
            made = Rewrite(domain, op_type, function, signature, grouped=grouped)
            table[made.name] = made
        return function

    return entered


@dataclass(frozen=True)
class Decompose(GraphPass):
    """Replaces operators by what their definitions build, where these cover them."""

    table: ClassVar[Table]

    def rewrite(self, node: ir.Node) -> bool:
        definition = self.table.get(operator_name(node.op_type, node.domain))
        if definition is None:
            return False
        return expand(node, definition, PassBody(node, definition.grouped))


def expand(node: ir.Node, definition: Rewrite, body: Body | None = None) -> bool:
    """Put the body of `node` behind it and remove it; whether its definition covers it.

    Types and shapes of its inputs are known; the default builder unfolds scans into any number of
    operators. Raises ValueError where the function does not suit the node, OperatorFailed where it
    failed.
    """
    body = body or Body(node)
    try:
        results = build(node, definition, body)
    except Declined as why:
        body.undo()
        node.metadata_props[REASON] = str(why)
        return False
    values = [None if result is None else result.ir for result in results]
    replace_outputs(node, values, lambda value: body.one("Identity", Tensor(body, value)).ir)
    return True


def build(node: ir.Node, definition: Rewrite, body: Body) -> list[Tensor | None]:
    """Results of the function for `node`, through `body`; None where it has none for an output that
    nobody reads. Raises as `expand`, and Declined."""
    made = _called(node, definition, lambda _, value: Tensor(body, value), body)
    given = [*made] if isinstance(made, list | tuple) else [made]
    wanted = [index for index, output in enumerate(node.outputs) if output.name]
    with _defined_at(definition):
        wrong = [each for each in given if not isinstance(each, Tensor | None)]
        if wrong or given == [None]:
            kind = type((wrong or given)[0]).__name__
            raise ValueError(f"its function gives {kind!r}, expected what the builder made")
        if not definition.is_shipped and wanted and wanted[-1] >= len(given):
            raise ValueError(f"its function gives {len(given)} of {wanted[-1] + 1} outputs")
    found = [*given, *[None] * (len(node.outputs) - len(given))]
    for output, value in zip(node.outputs, found, strict=False):
        if value is None and (output.uses() or output.is_graph_output()):
            raise Declined(f"its output {output.name} is read")
    return found

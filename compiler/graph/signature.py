"""How a Python function of an operator is called for a node.

The one idea: a function's own parameters say what the operator takes.

    def my_gelu(b, x, bias=None, *more, alpha=1.702): ...

Behind the builder stand the inputs, optional ones with the default None, any number of further ones
as `*more`; what can be given by keyword only are the attributes, required ones without a default,
whatever else the node has as `**others`. Whoever writes the function needs no second declaration,
and a node that does not fit it is told so in words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.errors import operator_name

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
    most: int | None
    """Inputs that a node may give; None: any number."""
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
        kinds = {p.kind for p in parameters}
        taken = inputs[skipped:]
        return cls(
            named=tuple(p.name for p in taken),
            rest=next((p.name for p in parameters if p.kind == _KINDS.VAR_POSITIONAL), ""),
            required=sum(p.default is p.empty for p in taken),
            most=None if _KINDS.VAR_POSITIONAL in kinds else len(taken),
            attributes={p.name: p.default for p in parameters if p.kind == _KINDS.KEYWORD_ONLY},
            open=_KINDS.VAR_KEYWORD in kinds,
        )

    def names(self, count: int) -> tuple[str, ...]:
        """Names of the first `count` inputs; further ones are numbered."""
        more = range(max(count - len(self.named), 0))
        return (*self.named[:count], *(f"{self.rest}{index}" for index in more))

    def check_inputs(self, inputs: Sequence[object]) -> None:
        """Raise ValueError where so many inputs, None for those left out, do not suit it."""
        given = len(inputs)
        if given < self.required or (self.most is not None and given > self.most):
            raise ValueError(f"takes {self._inputs()}, the node has {given}")
        if None in [*inputs[: self.required]]:
            raise ValueError(f"input {[*inputs].index(None)} is missing, which has to be given")

    def _inputs(self) -> str:
        if self.most is None:
            return f"{self.required} inputs or more"
        counts = sorted({self.required, self.most})
        return f"{' to '.join(map(str, counts))} input{'s' if self.most != 1 else ''}"

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
    wanted = (list, tuple) if isinstance(default, list | tuple) else type(default)
    if isinstance(default, bool) and value in (0, 1):
        return bool(value)
    if not isinstance(value, wanted):
        raise ValueError(f"attribute {name!r} is {value!r}, expected one like {default!r}")
    return value


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """The attributes of `node` as Python values: numbers, strings, lists, arrays."""
    return {name: _plain(attribute) for name, attribute in node.attributes.items()}


def _plain(attribute: ir.Attr) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().numpy()
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        raise ValueError(f"attribute {attribute.name!r} is a graph, which no function is handed")
    value = attribute.value
    return (
        list(value)
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        else value
    )


def given_inputs(node: ir.Node) -> list[ir.Value | None]:
    """The inputs of `node` without those that are left out at its end."""
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs


def name_of(node: ir.Node) -> str:
    """The name under which the operator of `node` is registered."""
    return operator_name(node.op_type, node.domain)

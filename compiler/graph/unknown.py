"""Operators that nobody could give a meaning, or that are none of an accelerator's: found before
anything is made of a model.

Known is what ONNX defines, what the model's own functions define, what this compiler or a
user has a rule for, and what ONNX Runtime, which the host runs, has a schema of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from compiler.errors import UnsupportedModel, at_node, operator_name
from compiler.graph.defined import is_defined
from compiler.graph.infer import RULES
from compiler.graph.outside import outside
from compiler.graph.rewrite import ARCHGEN
from compiler.graph.runtime import operators_of_runtime

_REMEDY = "export it as standard operators or register it (docs/extending.md)"
_SHOWN = 8
"""Nodes that are refused for one and the same reason, and named."""


def refuse_unknown_operators(proto: onnx.ModelProto, name: str) -> None:
    """Raise UnsupportedModel for all nodes of `proto`, called `name`, that cannot be compiled
    whatever the machine."""
    own = {(function.domain, function.name) for function in proto.functions}
    bodies = [function.node for function in proto.functions]
    found = dict.fromkeys(
        each for nodes in (proto.graph.node, *bodies) for each in _refused(nodes, own)
    )
    if found:
        raise UnsupportedModel(f"{name}: " + "; ".join(_grouped(found)))


def _grouped(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    """`node 'a' (ai.onnx.Relu), node 'b' (ai.onnx.Relu): why`, each reason once."""
    places: dict[str, list[str]] = {}
    for place, why in found:
        places.setdefault(why, []).append(place)
    for why, refused in places.items():
        more = len(refused) - _SHOWN
        shown = [*refused[:_SHOWN], *([f"{more} more nodes"] if more > 0 else [])]
        yield f"{', '.join(shown)}: {why}"


def _refused(
    nodes: Iterable[onnx.NodeProto], own: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Nodes that are refused, as messages name them, and why."""
    for index, node in enumerate(nodes):
        if (node.domain, node.op_type) not in own:
            why = _reason(node.op_type, node.domain)
            if why is not None:
                yield _called(node, index), why
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _refused(graph.node, own)


def _called(node: onnx.NodeProto, index: int) -> str:
    label = node.name or f"{node.op_type}_{index}"
    return at_node(label, operator_name(node.op_type, node.domain))


def _reason(op_type: str, given: str) -> str | None:
    """Why an operator cannot be compiled, and what would help; None: it may be."""
    domain = "" if given == "ai.onnx" else given
    if is_defined(op_type, domain):
        return None
    refused = outside(op_type, domain)
    if refused is not None:
        return refused
    if domain == ARCHGEN or is_known(op_type, domain):
        return None
    if domain not in operators_of_runtime() and not domain.startswith("ai.onnx"):
        return f"the domain is unknown here and to ONNX Runtime; {_REMEDY}"
    return f"neither this compiler nor ONNX Runtime has this operator; {_REMEDY}"


def is_known(op_type: str, domain: str = "") -> bool:
    """Whether ONNX, this compiler or ONNX Runtime defines an operator; `domain` is empty for
    ONNX's own."""
    if onnx.defs.has(op_type, domain) or op_type in RULES.get(domain, {}):
        return True
    return op_type in operators_of_runtime().get(domain, ())

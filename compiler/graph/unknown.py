"""Operators that nobody could give a meaning: found before anything is made of a model.

Known is what ONNX defines, what the model's own functions define, what this compiler or a
user has a rule for, and what ONNX Runtime, which the host runs, has a schema of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from compiler.errors import UnsupportedModel, at_node, operator_name
from compiler.graph.defined import is_defined
from compiler.graph.infer import RULES
from compiler.graph.rewrite import ARCHGEN
from compiler.graph.runtime import operators_of_runtime

_REMEDY = "export it as standard operators or register it (docs/extending.md)"


def refuse_unknown_operators(proto: onnx.ModelProto, name: str) -> None:
    """Raise UnsupportedModel for all nodes of `proto`, called `name`, that are unknown."""
    own = {(function.domain, function.name) for function in proto.functions}
    bodies = [function.node for function in proto.functions]
    unknown = dict.fromkeys(
        line for nodes in (proto.graph.node, *bodies) for line in _unknown(nodes, own)
    )
    if unknown:
        raise UnsupportedModel(f"{name}: " + "; ".join(unknown))


def _unknown(nodes: Iterable[onnx.NodeProto], own: set[tuple[str, str]]) -> Iterator[str]:
    for index, node in enumerate(nodes):
        why = None if (node.domain, node.op_type) in own else _reason(node.op_type, node.domain)
        if why is not None:
            label = node.name or f"{node.op_type}_{index}"
            yield f"{at_node(label, operator_name(node.op_type, node.domain))}: {why}"
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _unknown(graph.node, own)


def _reason(op_type: str, given: str) -> str | None:
    """Why nothing is known of an operator, and what would help; None: something is."""
    domain = "" if given == "ai.onnx" else given
    known = operators_of_runtime()
    if op_type in RULES.get(domain, {}) or op_type in known.get(domain, ()):
        return None
    if is_defined(op_type, domain):
        return None
    if domain == ARCHGEN or onnx.defs.has(op_type, domain):
        return None
    if domain not in known and not domain.startswith("ai.onnx"):
        return f"the domain is unknown here and to ONNX Runtime; {_REMEDY}"
    return f"neither this compiler nor ONNX Runtime has this operator; {_REMEDY}"

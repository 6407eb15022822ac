"""Inputs of a graph whose numbers decide what a node makes.

The one idea: ONNX lists parameters behind the data that they are for. So inputs that reach a node
behind its first operand are asked first, and its data only where those do not settle it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from compiler.graph.subgraphs import reads


def deciders(nodes: Iterable[ir.Node]) -> tuple[tuple[str, ...], ...]:
    """Names of graph inputs from which `nodes` are fed: of their parameters, then of all that they
    read. Groups without a name are left out."""
    asked = list(nodes)
    parameters = _named(value for node in asked for value in node.inputs[1:])
    all_of_them = _named(value for node in asked for value in reads(node))
    return tuple(group for group in (parameters, all_of_them) if group)


def _named(values: Iterable[ir.Value | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(v.name) for value in values for v in _sources(value)))


def _sources(value: ir.Value | None) -> Iterator[ir.Value]:
    """Graph inputs that `value` is computed from."""
    waiting = [value]
    seen: set[ir.Value] = set()
    while waiting:
        found = waiting.pop()
        if found is None or found in seen:
            continue
        seen.add(found)
        if found.is_graph_input():
            yield found
        node = found.producer()
        waiting += [] if node is None else reads(node)

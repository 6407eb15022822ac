"""The shape of a graph pass: visit every node once, rewrite it or not, sweep what became unused.

Between passes a graph keeps this contract, checked on both sides of each pass: nodes are in
topological order and carry a unique name and their origin, and every value has an element type and
a static shape.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from compiler.errors import at_node, on, operator_name
from compiler.graph.rewrite import ORIGIN, remove_dead
from compiler.passes import ContractBroken, Pass, Result


@dataclass(frozen=True)
class GraphPass(Pass[ir.Model]):
    """A pass that rewrites the main graph node by node, in place."""

    backwards: ClassVar[bool] = False
    """Whether consumers are visited before producers, for rewrites rooted at the last node."""

    leaves_none_of: ClassVar[frozenset[str]] = frozenset()
    """Standard operators that may not remain."""

    @abstractmethod
    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite around `node` if it is the root of something to rewrite; whether it was."""

    def apply(self, ir: ir.Model) -> Result[ir.Model]:
        """Visit every node that is still in the graph."""
        graph = ir.graph
        changed = False
        for node in reversed(graph) if self.backwards else graph:
            if node.graph is not graph:
                continue
            with on(at_node(node.name, operator_name(node.op_type, node.domain))):
                changed |= self.rewrite(node)
        if changed:
            remove_dead(graph)
        return Result(ir, changed)

    def requires(self, ir: ir.Model) -> None:
        """The contract of every graph."""
        check_graph(ir.graph)

    def ensures(self, ir: ir.Model) -> None:
        """The contract of every graph, without the operators that this pass removes."""
        check_graph(ir.graph)
        left = sorted(
            {n.op_type for n in ir.graph if not n.domain and n.op_type in self.leaves_none_of}
        )
        if left:
            raise ContractBroken(f"{', '.join(left)} should be gone")


def check_graph(graph: ir.Graph) -> None:
    """Raise ContractBroken for the first node that breaks the contract of this module."""
    names: set[str] = set()
    known = {*graph.inputs, *graph.initializers.values()}
    for node in graph:
        if not node.name or node.name in names:
            raise ContractBroken(f"{node.op_type}: name {node.name!r} is missing or taken")
        names.add(node.name)
        if not node.metadata_props.get(ORIGIN):
            raise ContractBroken(f"{node.name}: no origin")
        for value in node.inputs:
            if value is not None and value not in known:
                raise ContractBroken(f"{node.name}: {value.name} is read before it is made")
        for value in node.outputs:
            known.add(value)
            if value.name and (
                value.dtype is None or value.shape is None or not value.shape.is_static()
            ):
                raise ContractBroken(f"{node.name}: {value.name} has no static shape or type")
    for value in graph.outputs:
        if value not in known:
            raise ContractBroken(f"graph output {value.name} is made by nothing")

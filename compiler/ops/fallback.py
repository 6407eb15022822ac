"""From nests back to the model's nodes, for the host.

A nest may be a part of a node (one phase of a transposed convolution) or stand for several (a
quantized sum). What the host can run is whole nodes, so nests that share tensors of which the model
knows nothing go together; between what they read and what they make lie the nodes of the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from compiler.graph.subgraphs import reads
from compiler.nest.ir import HostNode, Nest, NestGraph
from compiler.nest.rewrite import reads_of, writes_of
from compiler.ops.payload import operations, payload_of


@dataclass(frozen=True)
class Payload:
    """What the host runs in one call."""

    data: bytes
    inputs: tuple[str, ...]
    nodes: int
    """Nodes of the model in it."""
    operations: int


class Fallback:
    """Makes host nodes for the nests of one graph, which was lowered from `model`."""

    def __init__(self, model: ir.Model, graph: NestGraph) -> None:
        self.model = model
        self.graph = graph
        self.values = {str(o.name): o for node in model.graph for o in node.outputs if o.name}
        self.values |= {str(value.name): value for value in model.graph.inputs}
        self.order = {node: position for position, node in enumerate(model.graph)}
        self.named: dict[str, list[str]] = {}
        """Buffer -> the model's values in it, the first one made first."""
        for name, tensor in graph.tensors.items():
            if name in self.values and tensor.data is None:
                self.named.setdefault(tensor.storage.buffer, []).append(name)

    def host_node(self, nest: Nest) -> tuple[HostNode, tuple[Nest, ...]] | None:
        """A host node and the nests that it replaces, `nest` among them; None: there is none."""
        nests = self._together(nest)
        outputs = self._outputs(nests)
        mine = {self._buffer(n.tensor) for n in nests}
        stop = {
            name
            for n in nests
            for access in n.reads
            for name in self.named.get(self._buffer(access.tensor), ())
            if self._buffer(access.tensor) not in mine
        }
        made = self.payload(outputs, stop) if outputs else None
        if made is None:
            return None
        host = HostNode(
            inputs=made.inputs, outputs=outputs, payload=made.data, origin=nest.origin,
            kind=nest.kind, reason="", operations=made.operations,
        )  # fmt: skip
        return host, nests

    def payload(self, outputs: Sequence[str], stop: Iterable[str]) -> Payload | None:
        """What computes `outputs` from values among `stop`; None where more would be needed."""
        found: dict[ir.Node, None] = {}
        given = set(stop)
        wanted = list(outputs)
        while wanted:
            value = self.values.get(wanted.pop())
            node = None if value is None else value.producer()
            if node is None:
                return None
            if node in found:
                continue
            found[node] = None
            free = (v for v in reads(node) if v.const_value is None)
            wanted += [str(v.name) for v in free if str(v.name) not in given]
        nodes = sorted(found, key=self.order.__getitem__)
        data, inputs = payload_of(nodes, self.model, [self.values[name] for name in outputs])
        return Payload(data, inputs, len(nodes), sum(operations(node) for node in nodes))

    def _buffer(self, tensor: str) -> str:
        return self.graph.tensors[tensor].storage.buffer

    def _together(self, nest: Nest) -> tuple[Nest, ...]:
        """`nest` and all that shares unnamed tensors with it, in order."""
        members = {nest.tensor}
        while True:
            shared = self._unnamed(members)
            more = {
                step.tensor
                for step in self.graph.steps
                if isinstance(step, Nest)
                and not shared.isdisjoint(self._buffer(t) for t in (*reads_of(step), step.tensor))
                and (self._buffer(step.tensor) in shared or self._reads_unnamed(step, shared))
            }
            if more <= members:
                break
            members |= more
        steps = (step for step in self.graph.steps if isinstance(step, Nest))
        return tuple(step for step in steps if step.tensor in members)

    def _unnamed(self, members: set[str]) -> set[str]:
        """Buffers that `members` share with nests that must come along."""
        found = set()
        for step in self.graph.steps:
            if not isinstance(step, Nest) or step.tensor not in members:
                continue
            if step.tensor not in self.values:
                found.add(self._buffer(step.tensor))
            for name in reads_of(step):
                constant = self.graph.tensors[name].data is not None
                if not constant and not self.named.get(self._buffer(name)):
                    found.add(self._buffer(name))
        return found

    def _reads_unnamed(self, step: Nest, shared: set[str]) -> bool:
        """Whether `step` reads a buffer of `shared` in which the model has no value."""
        buffers = {self._buffer(name) for name in reads_of(step)}
        return any(not self.named.get(buffer) for buffer in buffers & shared)

    def _outputs(self, nests: tuple[Nest, ...]) -> tuple[str, ...]:
        """The model's values that others take from `nests`."""
        inside = {nest.tensor for nest in nests}
        others = [step for step in self.graph.steps if not inside.issuperset(writes_of(step))]
        seen = {self._buffer(name) for step in others for name in reads_of(step)}
        seen |= {self._buffer(name) for name in self.graph.outputs}
        found: dict[str, None] = {}
        for nest in nests:
            buffer = self._buffer(nest.tensor)
            name = nest.tensor if nest.tensor in self.values else self._covering(buffer)
            if buffer in seen and name is not None:
                found[name] = None
        return tuple(found)

    def _covering(self, buffer: str) -> str | None:
        """The first value of the model that fills `buffer`."""
        size = self.graph.buffers[buffer]
        names = self.named.get(buffer, ())
        return next((n for n in names if self.graph.tensors[n].elements == size), None)

"""Host nodes side by side become one call: the host is asked as rarely as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compiler.nest.base import check_nests
from compiler.nest.ir import HostNode, NestGraph, Step
from compiler.nest.rewrite import reads_of, with_steps, writes_of
from compiler.passes import ensured

Join = Callable[[tuple[HostNode, ...], tuple[str, ...], tuple[str, ...]], HostNode | None]
"""Makes one node of several, given what it shall write and what it may read; None: impossible."""


@dataclass(frozen=True)
class JoinHost:
    """Wait with host nodes until the accelerator has nothing else to do, then run all that can.

    before:
        a = host Cast(x); y = relu(x); b = host Not(a); z = select(b, y, y)
    after:
        y = relu(x); b = host Cast+Not(x); z = select(b, y, y)

    What only the joined nodes read is never stored.
    """

    join: bool = True
    """False: one call for each node."""

    @ensured
    def apply(self, graph: NestGraph, make: Join) -> NestGraph:
        """`graph` with fewer host nodes, its other steps in the same order where they can be."""
        if not self.join or not any(called(step) for step in graph.steps):
            return graph
        steps: list[Step] = []
        for batch in batches(graph):
            joined = _joined(batch, graph, make)
            steps += batch if joined is None else [joined]
        return with_steps(graph, steps)

    def ensures(self, made: NestGraph, graph: NestGraph, make: Join) -> None:
        """The contract of every graph of nests."""
        del graph, make
        check_nests(made)


def _needs(graph: NestGraph) -> list[set[int]]:
    """For each step the earlier ones that write a buffer which it reads."""
    writers: dict[str, set[int]] = {}
    found = []
    for number, step in enumerate(graph.steps):
        buffers = {graph.tensors[name].storage.buffer for name in reads_of(step)}
        found.append({w for buffer in buffers for w in writers.get(buffer, ())})
        for name in writes_of(step):
            writers.setdefault(graph.tensors[name].storage.buffer, set()).add(number)
    return found


def batches(graph: NestGraph) -> Iterator[list[Step]]:
    """Steps in an order in which they can run: nests alone, host nodes with all that are ready."""
    needs = _needs(graph)
    done: set[int] = set()
    while len(done) < len(graph.steps):
        batch: list[Step] = []
        for number, step in enumerate(graph.steps):
            if number in done or not needs[number] <= done:
                continue
            if not called(step):
                done.add(number)
                yield [step]
        for number, step in enumerate(graph.steps):
            if number not in done and needs[number] <= done and called(step):
                done.add(number)
                batch.append(step)
        if batch:
            yield batch


def called(step: Step) -> bool:
    """Whether the host computes `step`."""
    return isinstance(step, HostNode) and step.pick is None


def _joined(batch: list[Step], graph: NestGraph, make: Join) -> HostNode | None:
    nodes = tuple(step for step in batch if isinstance(step, HostNode))
    return None if len(nodes) < 2 else make(nodes, *crossing(nodes, graph))


def crossing(
    nodes: Sequence[HostNode], graph: NestGraph
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What `nodes` write that others read, and what they read that others write, in one call."""

    def buffer(name: str) -> str:
        return graph.tensors[name].storage.buffer

    mine = {id(node) for node in nodes}
    made = {buffer(name) for node in nodes for name in node.outputs}
    others = (step for step in graph.steps if id(step) not in mine)
    seen = {buffer(name) for step in others for name in reads_of(step)}
    seen |= {buffer(name) for name in graph.outputs}
    outputs = tuple(name for node in nodes for name in node.outputs if buffer(name) in seen)
    inputs = (name for node in nodes for name in node.inputs if buffer(name) not in made)
    return outputs, tuple(dict.fromkeys(inputs))

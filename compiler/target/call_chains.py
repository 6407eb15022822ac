"""Host call or scalar unit: the choice for whole chains of operators.

    q, max, sub, sum, mul on the scalar unit, exp on the host      two crossings, and slow elements
    q, max, sub, exp, sum, mul in one call                         its latency is paid anyway

The one idea: a host call pays its latency once, however much it computes, so the engine is chosen
for a chain of operators that only the scalar unit and the host run, not for each operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from compiler.cost.overlap import host_cycles
from compiler.errors import UnsupportedModel
from compiler.target.bind import possible
from compiler.target.machine import scalar_takes
from compiler.tensor_ir.join import batches, called, crossing
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from compiler.tensor_ir.rewrite import reads_of, writes_of
from simmodel.arch.record import Arch

Placed = Callable[[Mapping[str, str]], NestGraph]
"""The network in which the nests of some tensors are on the host, with a reason each."""

REASON = "the host does it sooner with what stands beside it than the scalar unit"


def beside_calls(
    graph: NestGraph, arch: Arch, placed: Placed, hosted: Mapping[str, str]
) -> dict[str, str]:
    """Tensors whose nests go to the host although the scalar unit could compute them, and why;
    `placed` raises UnsupportedModel where the host cannot do it either, and `hosted` is there in
    any case."""
    found: dict[str, str] = {}
    scalar = {
        step.tensor: scalar_takes(step, arch) / arch.core_count
        for step in graph.steps
        if isinstance(step, Nest)
        and step.tensor not in hosted
        and possible(step, graph.tensors, arch)[0].engine == "scalar"
    }
    if not scalar:
        return found

    def cycles(more: Mapping[str, str]) -> float:
        try:
            made = placed({**hosted, **more})
        except UnsupportedModel:
            return math.inf
        own = sum(scalar.get(name, 0.0) for step in made.steps for name in writes_of(step)
                  if not called(step))  # fmt: skip
        return own + _calls_take(made, arch)

    least = cycles(found)
    for chain in (*_chains(graph, scalar, hosted), frozenset(scalar)):
        more = {**found, **dict.fromkeys(sorted(chain), REASON)}
        taken = least if more == found else cycles(more)
        if taken < least:
            least, found = taken, more
    return found


def _chains(
    graph: NestGraph, scalar: Collection[str], hosted: Collection[str]
) -> list[frozenset[str]]:
    """The `scalar` nests in connected sets, connected directly or through host nodes."""
    chains: list[tuple[set[str], set[str]]] = []  # buffers, and scalar nests
    for step in graph.steps:
        names = {*writes_of(step)}
        if not called(step) and names.isdisjoint(scalar) and names.isdisjoint(hosted):
            continue
        tensors = (graph.tensors[name] for name in (*reads_of(step), *names))
        buffers = {tensor.storage.buffer for tensor in tensors if tensor.data is None}
        mine = names & {*scalar}
        for chain in [chain for chain in chains if not chain[0].isdisjoint(buffers)]:
            chains.remove(chain)
            buffers |= chain[0]
            mine |= chain[1]
        chains.append((buffers, mine))
    return [frozenset(mine) for _, mine in chains if mine]


def _calls_take(graph: NestGraph, arch: Arch) -> float:
    """Cycles of all host calls, and of the copies for them."""
    total = 0.0
    for batch in batches(graph):
        nodes = [step for step in batch if isinstance(step, HostNode) and called(step)]
        if nodes:
            outputs, inputs = crossing(nodes, graph)
            operations = sum(node.operations for node in nodes)
            call = replace(nodes[0], inputs=inputs, outputs=outputs, operations=operations)
            total += host_cycles(call, graph.tensors, arch)
            moved = sum(graph.tensors[name].stored for name in (*inputs, *outputs))
            total += moved / arch.dram_bytes_per_cycle
    return total

"""Operators that no engine of the machine can run become calls to the host, and those beside them
that it does sooner than the scalar unit.

    q, max, sub, sum, mul on the scalar unit, exp on the host      two crossings, and slow elements
    q, max, sub, exp, sum, mul in one call                         its latency is paid anyway

A host call pays its latency once, however much it computes, so the engine is chosen for a chain of
operators that only the scalar unit and the host run, not for each operator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from compiler.cost.overlap import host_cycles
from compiler.errors import UnsupportedModel, at_node
from compiler.passes import ContractBroken, ensured
from compiler.target.bind import possible, unsupported
from compiler.target.layout import host_order
from compiler.target.machine import on_its_array, scalar_takes
from compiler.tensor_ir.join import batches, called, crossing
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph, Step, dense, row_major
from compiler.tensor_ir.rewrite import check_nests, reads_of, writes_of
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


Fallback = Callable[[Nest], tuple[HostNode, tuple[Nest, ...]] | None]
"""Makes the host's version of a nest and of those that must go with it, or None."""

Refusal = Callable[[bytes], str | None]
"""Why the host cannot run a payload; None: it can."""


@dataclass(frozen=True)
class PlaceOnHost:
    """Replace nests that `arch` cannot run by host nodes.

    before:
        s[d0] = exp(x[d0])                     the vector engine has int8 only
    after:
        s = host Exp(x)
    """

    allowed: bool = True
    """False: such an operator is an error."""
    kept: str = ""
    """Types of operators that the host computes though an engine could, separated by commas."""

    @ensured
    def apply(
        self, graph: NestGraph, arch: Arch, fallback: Fallback, refusal: Refusal,
        away: Mapping[str, str] = MappingProxyType({}),
    ) -> NestGraph:  # fmt: skip
        """`graph` with only nests that `arch` runs; those that make what is `away` are for the host
        in any case, for a reason.

        Raises UnsupportedModel for all operators that can run nowhere, or not on the host.
        """
        reasons: dict[str, str] = {}
        for step in (step for step in graph.steps if isinstance(step, Nest)):
            kept = f"{step.kind} is kept on the host" if self._keeps(step.kind) else None
            reason = away.get(step.tensor) or kept or unsupported(step, graph.tensors, arch)
            if reason:
                reasons[step.tensor] = reason
        once = cache(fallback)

        def with_host_calls(reasons: Mapping[str, str]) -> NestGraph:
            return self._move_to_host(graph, arch, once, refusal, reasons)

        more = beside_calls(graph, arch, with_host_calls, reasons) if self.allowed else {}
        return _laid_out(with_host_calls({**reasons, **more}), arch)

    def _move_to_host(
        self, graph: NestGraph, arch: Arch, fallback: Fallback, refusal: Refusal,
        reasons: Mapping[str, str],
    ) -> NestGraph:  # fmt: skip
        steps: dict[int, Step] = dict(enumerate(graph.steps))
        places = {s.tensor: n for n, s in steps.items() if isinstance(s, Nest)}
        refused: list[str] = []
        for number, step in enumerate(graph.steps):
            if isinstance(step, HostNode):
                if step.pick is not None and not self._keeps(step.kind):
                    continue
                step = steps[number] = replace(step, pick=None)
                why = _refused_by_host(step, refusal) if self.allowed else step.reason
            elif step.tensor not in reasons or steps.get(number) is not step:
                continue
            elif (found := fallback(step) if self.allowed else None) is None:
                why = reasons[step.tensor]
            else:
                host = replace(found[0], reason=reasons[step.tensor])
                why = _refused_by_host(host, refusal)
                taken = sorted(places[nest.tensor] for nest in found[1])
                for place in taken:
                    steps.pop(place, None)
                steps[_before_readers(host, taken, steps, graph)] = host
            if why is not None:
                refused.append(f"{at_node(step.origin, step.kind)}: {why}")
        if refused:
            raise UnsupportedModel(
                f"{len(refused)} operators cannot run on {arch.name}:\n  " + "\n  ".join(refused)
            )
        return replace(graph, steps=tuple(steps[place] for place in sorted(steps)))

    def _keeps(self, kind: str) -> bool:
        """Whether operators of this type stay on the host."""
        return bool(kind) and kind in (name.strip() for name in self.kept.split(","))

    def ensures(
        self, made: NestGraph, graph: NestGraph, arch: Arch, *given: object, **named: object
    ) -> None:
        """The contract of every graph of nests, all of which the machine runs."""
        check_nests(made)
        for step in made.steps:
            reason = unsupported(step, made.tensors, arch) if isinstance(step, Nest) else None
            if reason is not None:
                raise ContractBroken(f"{at_node(step.origin, step.kind)}: {reason}")


def _laid_out(graph: NestGraph, arch: Arch) -> NestGraph:
    """`graph` with the results of host nodes as the products that read them want them on chip, so
    that no load moves them element by element."""
    tensors, shared = dict(graph.tensors), Counter(map(graph.buffer_of, graph.tensors))
    made = {name for step in graph.steps if isinstance(step, HostNode) for name in step.outputs}
    for name in sorted(made.difference(graph.outputs)):
        tensor = tensors[name]
        if shared[tensor.storage.buffer] > 1 or not tensor.has_strides(row_major(tensor.shape)):
            continue
        wanted = {
            host_order(tensor, step, on_its_array(step, graph.tensors, arch))
            for step in graph.steps
            if isinstance(step, Nest) and step.contraction and step.operands[0].tensor == name
        }
        if len(wanted) == 1:
            strides = dense(tensor.shape, wanted.pop())
            tensors[name] = replace(tensor, storage=replace(tensor.storage, strides=strides))
    return replace(graph, tensors=tensors)


def _before_readers(
    host: HostNode, taken: Sequence[int], steps: Mapping[int, Step], graph: NestGraph
) -> int:
    """The last of the places that are `taken` by nests of a host node before which nothing reads
    what it makes: nests that read the same blocks go to the host together, also where what reads
    one of them comes before the next."""
    made = {graph.buffer_of(name) for name in host.outputs}
    found = taken[0]
    for place in range(taken[0], taken[-1] + 1):
        step = steps.get(place)
        if step is not None and made & {graph.buffer_of(name) for name in reads_of(step)}:
            break
        found = place if place in taken else found
    return found


def _refused_by_host(node: HostNode, refusal: Refusal) -> str | None:
    """Why the host cannot run `node` either, and a remedy; None: it can."""
    why = refusal(node.payload)
    if why is None:
        return None
    return (
        f"{node.reason}, and ONNX Runtime, which runs what no engine can, refuses it: {why}; "
        "other element types or operators may have a kernel there"
    )

"""Small helpers that nest-level passes share: who reads what, and replacing steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from compiler.nest.ir import ZERO, Access, HostNode, Nest, NestGraph, Step, Storage, Tensor
from simmodel.dtype import NUMPY


def reads_of(step: Step) -> tuple[str, ...]:
    """Names of the tensors that `step` reads, each as often as it is read."""
    if isinstance(step, HostNode):
        return step.inputs
    return tuple(access.tensor for access in step.reads)


def writes_of(step: Step) -> tuple[str, ...]:
    """Names of the tensors that `step` writes."""
    return step.outputs if isinstance(step, HostNode) else (step.tensor,)


def readers(graph: NestGraph) -> dict[str, list[int]]:
    """Tensor name -> positions of the steps that read it."""
    found: dict[str, list[int]] = defaultdict(list)
    for position, step in enumerate(graph.steps):
        for name in reads_of(step):
            found[name].append(position)
    return found


def private(graph: NestGraph) -> set[str]:
    """Tensors that lie alone in their buffer and are neither input nor output of the network.

    Only these can vanish or change type: nobody else can see their bytes.
    """
    inhabitants: dict[str, int] = defaultdict(int)
    for tensor in graph.tensors.values():
        inhabitants[tensor.storage.buffer] += 1
    seen = {*graph.inputs, *graph.outputs}
    return {
        name
        for name, tensor in graph.tensors.items()
        if tensor.data is None and name not in seen and inhabitants[tensor.storage.buffer] == 1
    }


def with_steps(graph: NestGraph, steps: Iterable[Step | None]) -> NestGraph:
    """`graph` with other steps (None: gone), and without tensors that nobody mentions any more."""
    kept = tuple(step for step in steps if step is not None)
    used = {*graph.inputs, *graph.outputs}
    for step in kept:
        used.update(reads_of(step))
        used.update(writes_of(step))
        if isinstance(step, HostNode) and step.pick is not None:
            used |= {step.pick.table, step.pick.index}
    buffers = {graph.tensors[name].storage.buffer for name in used}
    tensors = {n: t for n, t in graph.tensors.items() if t.storage.buffer in buffers}
    sizes = {name: size for name, size in graph.buffers.items() if name in buffers}
    return replace(graph, steps=kept, tensors=tensors, buffers=sizes)


def number_access(
    value: float, kind: str, tensors: dict[str, Tensor], buffers: dict[str, int]
) -> Access:
    """A read of `value` everywhere: a constant of one element of type `kind`, which is added to
    `tensors` and `buffers`."""
    name = f"{value:.9g}:{kind}"
    data = np.full((1,), value, NUMPY[kind])
    tensors.setdefault(name, Tensor(name, (1,), kind, Storage(name, 0, (1,)), data))
    buffers.setdefault(name, 1)
    return Access(name, (ZERO,))


def producers(graph: NestGraph) -> dict[str, int]:
    """Tensor name -> position of the nest that writes it, where exactly one does."""
    found: dict[str, list[int]] = defaultdict(list)
    for position, step in enumerate(graph.steps):
        for name in writes_of(step):
            found[name].append(position)
    nests = {n: p[0] for n, p in found.items() if len(p) == 1}
    return {n: p for n, p in nests.items() if isinstance(graph.steps[p], Nest)}

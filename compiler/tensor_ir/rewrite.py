"""Helpers of nest passes: readers of a tensor, replacement of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from compiler.passes import ContractBroken, Omittable, Pass
from compiler.tensor_ir.nest import (
    ZERO,
    Access,
    Array,
    HostNode,
    Nest,
    NestGraph,
    Step,
    Storage,
    Tensor,
    row_major,
)
from simmodel.arch.dtype import NUMPY
from simmodel.arch.lazy_array import transformed


def reads_of(step: Step) -> tuple[str, ...]:
    """Names of the tensors that `step` reads, each as often as it is read."""
    if isinstance(step, HostNode):
        return step.inputs
    return tuple(access.tensor for access in step.reads)


def writes_of(step: Step) -> tuple[str, ...]:
    """Names of the tensors that `step` writes."""
    return step.outputs if isinstance(step, HostNode) else (step.tensor,)


def _steps_by_tensor(
    graph: NestGraph, names: Callable[[Step], Iterable[str]]
) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for position, step in enumerate(graph.steps):
        for name in names(step):
            found[name].append(position)
    return found


def readers(graph: NestGraph) -> dict[str, list[int]]:
    """Tensor name -> positions of the steps that read it."""
    return _steps_by_tensor(graph, reads_of)


def private(graph: NestGraph) -> set[str]:
    """Tensors alone in their buffer that are neither input nor output of the network.

    Only these may vanish or change type: no other tensor sees their bytes.
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


def changed_constant(
    tensor: Tensor, name: str, shape: tuple[int, ...], change: Callable[[Array], Array]
) -> Tensor:
    """The constant `tensor` under another name, with all that is known of its values in another
    `shape`, as `change` makes it."""
    data, exact = (
        None if v is None else transformed(v, change) for v in (tensor.data, tensor.exact)
    )
    unsure = tensor.uncertain
    if isinstance(unsure, np.ndarray):
        unsure = change(np.broadcast_to(unsure, tensor.shape))
    storage = Storage(name, 0, row_major(shape))
    return replace(
        tensor, name=name, shape=shape, storage=storage, data=data, exact=exact, uncertain=unsure
    )


def with_steps(graph: NestGraph, steps: Iterable[Step | None]) -> NestGraph:
    """`graph` with other steps (None: removed), without unused tensors."""
    kept = tuple(step for step in steps if step is not None)
    used = {*graph.inputs, *graph.outputs}
    for step in kept:
        used.update(reads_of(step))
        used.update(writes_of(step))
        if isinstance(step, HostNode) and step.pick is not None:
            used.update(step.pick.tensors)
    buffers = {graph.buffer_of(name) for name in used}
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
    found = _steps_by_tensor(graph, writes_of)
    nests = {n: p[0] for n, p in found.items() if len(p) == 1}
    return {n: p for n, p in nests.items() if isinstance(graph.steps[p], Nest)}


@dataclass(frozen=True)
class NestPass(Pass[NestGraph]):
    """A pass from a nest graph to a nest graph."""

    def requires(self, ir: NestGraph) -> None:
        """The contract of every graph of nests."""
        check_nests(ir)


@dataclass(frozen=True)
class NestRewrite(Omittable):
    """A rewrite of graphs of nests whose `apply` is given more than the graph."""

    def ensures(self, made: NestGraph, *given: object, **named: object) -> None:
        """The contract of every graph of nests."""
        if made is not given[0]:
            check_nests(made)


def check_nests(graph: NestGraph) -> None:
    """Raise ContractBroken for the first step or tensor that breaks the contract of this module."""
    for tensor in graph.tensors.values():
        if tensor.data is not None or not tensor.elements:
            continue
        low, high = tensor.span
        if not (low >= 0 and high < graph.buffers.get(tensor.storage.buffer, 0)):
            raise ContractBroken(f"{tensor.name} is not inside {tensor.storage.buffer}")
    written = {graph.buffer_of(name) for name in graph.inputs}
    for step in graph.steps:
        for name in reads_of(step):
            _check_read(graph, name, written)
        written |= {graph.buffer_of(name) for name in writes_of(step)}
    for name in graph.outputs:
        _check_read(graph, name, written)


def _check_read(graph: NestGraph, name: str, written: set[str]) -> None:
    tensor = graph.tensors.get(name)
    if tensor is None:
        raise ContractBroken(f"{name} is read and nowhere defined")
    if tensor.data is None and tensor.elements and tensor.storage.buffer not in written:
        raise ContractBroken(f"{name} is read before anything writes {tensor.storage.buffer}")

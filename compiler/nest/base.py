"""The shape of a rewrite of nests, and the contract of the graphs between them.

Whatever a step reads is a constant, comes from the user, or has been written by a step before it;
tensors lie inside their buffers, and so do results of the network.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.nest.ir import NestGraph, Tensor
from compiler.nest.rewrite import reads_of, writes_of
from compiler.passes import ContractBroken, Pass


@dataclass(frozen=True)
class NestPass(Pass[NestGraph]):
    """A pass that makes another graph of nests of one."""

    def requires(self, ir: NestGraph) -> None:
        """The contract of every graph of nests."""
        check_nests(ir)

    def ensures(self, ir: NestGraph) -> None:
        """The contract of every graph of nests."""
        check_nests(ir)


def check_nests(graph: NestGraph) -> None:
    """Raise ContractBroken for the first step or tensor that breaks the contract of this module."""
    for tensor in graph.tensors.values():
        size = graph.buffers.get(tensor.storage.buffer, 0)
        if tensor.data is None and tensor.elements and not _inside(tensor, size):
            raise ContractBroken(f"{tensor.name} is not inside {tensor.storage.buffer}")
    written = {graph.tensors[name].storage.buffer for name in graph.inputs}
    for step in graph.steps:
        for name in reads_of(step):
            _check_read(graph, name, written)
        written |= {graph.tensors[name].storage.buffer for name in writes_of(step)}
    for name in graph.outputs:
        _check_read(graph, name, written)


def _check_read(graph: NestGraph, name: str, written: set[str]) -> None:
    tensor = graph.tensors.get(name)
    if tensor is None:
        raise ContractBroken(f"{name} is read and nowhere defined")
    if tensor.data is None and tensor.elements and tensor.storage.buffer not in written:
        raise ContractBroken(f"{name} is read before anything writes {tensor.storage.buffer}")


def _inside(tensor: Tensor, size: int) -> bool:
    """Whether all elements lie in a buffer of `size` elements."""
    storage = tensor.storage
    ends = [stride * (n - 1) for n, stride in zip(tensor.shape, storage.strides, strict=True)]
    low, high = (sum(end for end in ends if end * sign > 0) for sign in (-1, 1))
    return storage.offset + low >= 0 and storage.offset + high < size

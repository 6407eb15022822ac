"""A group: operators that share one tile loop; what passes between them never leaves the chip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from compiler.nest.ir import Nest, NestGraph, Tensor


@dataclass(frozen=True)
class Group:
    """Nests in order; the last one's result is the group's result."""

    index: int
    nests: tuple[Nest, ...]
    tensors: dict[str, Tensor]
    """The network's tensors."""

    @property
    def head(self) -> Nest:
        """The first nest; the only one that may be a sum of products."""
        return self.nests[0]

    @property
    def result(self) -> Tensor:
        """What the group stores."""
        return self.tensors[self.nests[-1].tensor]

    @cached_property
    def inside(self) -> frozenset[str]:
        """Tensors that exist within the group only."""
        return frozenset(nest.tensor for nest in self.nests[:-1])

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that the group reads from memory, in order of first use."""
        names = (access.tensor for nest in self.nests for access in nest.reads)
        return tuple(dict.fromkeys(name for name in names if name not in self.inside))

    @property
    def name(self) -> str:
        """The model's nodes that it stands for."""
        return "+".join(dict.fromkeys(nest.origin for nest in self.nests))


def fresh(index: int, nests: tuple[Nest, ...], graph: NestGraph) -> Group:
    """A group of `nests` of `graph`."""
    return Group(index, nests, graph.tensors)

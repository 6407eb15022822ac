"""A layer: a sum of products or another operator, with the element-wise tail that follows it.

The operators of a layer share their innermost tiles: what passes between them is one tile on its
way from one engine to the next. Layers that share outer tile loops are a `Group`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from compiler.nest.ir import Nest, NestGraph, Tensor
from compiler.nest.views import reading


@dataclass(frozen=True)
class Layer:
    """Nests in order; the last one's result is the layer's result."""

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
        """What the layer makes."""
        return self.tensors[self.nests[-1].tensor]

    @cached_property
    def inside(self) -> frozenset[str]:
        """Tensors that exist within the layer only."""
        return frozenset(nest.tensor for nest in self.nests[:-1])

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that the layer reads, in order of first use."""
        names = (access.tensor for nest in self.nests for access in nest.reads)
        return tuple(dict.fromkeys(name for name in names if name not in self.inside))

    @property
    def name(self) -> str:
        """The model's nodes that it stands for."""
        return "+".join(dict.fromkeys(nest.origin for nest in self.nests))


def seen_through(layer: Layer, view: str, base: str) -> Layer | None:
    """`layer` with every read of `view` as one of `base`, in whose buffer it lies; None where the
    view is none that an index can express."""
    nests = [reading(nest, layer.tensors[view], layer.tensors[base]) for nest in layer.nests]
    found = tuple(nest for nest in nests if nest is not None)
    return replace(layer, nests=found) if len(found) == len(nests) else None


def fresh(index: int, nests: tuple[Nest, ...], graph: NestGraph) -> Layer:
    """A layer of `nests` of `graph`."""
    return Layer(index, nests, graph.tensors)

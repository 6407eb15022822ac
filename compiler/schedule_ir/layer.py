"""A layer: a sum of products or another operator, with the element-wise tail that follows it.

The operators of a layer share their innermost tiles: what passes between them is one tile on its
way from one engine to the next. Layers that share outer tile loops are a `Group`.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.tensor_ir.build import identity, reading
from compiler.tensor_ir.nest import Nest, NestGraph, Tensor
from simmodel.arch.element_types import is_float
from simmodel.isa.region import cached_property, replace

# A binding: which engine runs a nest, and how a sum of products gets from sums to its result.


@dataclass(frozen=True)
class Binding:
    """How one nest runs on a machine."""

    engine: str
    """matrix, vector, scalar, a function engine by its name, or copy: a pure move between
    memories."""
    direct: bool = True
    """Matrix engine: the result is finished on write-back; else the vector engine finishes it.
    Vector engine: not so where it adds up products over channels, and finishes these sums."""
    sums: str = "local"
    """Memory role of partial sums, its own or those that it reads."""
    array: str = "matrix"
    """Matrix engine: which one, where a core has several that are unlike."""
    bare: bool = False
    """Whether nothing finishes the sums: the operator behind it in its layer reads them."""

    @property
    def product(self) -> bool:
        """Whether it is a sum of products with tiles and sums of its own, finished later or on
        write-back."""
        return self.engine == "matrix" or not self.direct

    @property
    def finishes(self) -> bool:
        """Whether instructions of their own make the result, behind those of the array."""
        return not self.bare and (self.engine != "matrix" or not self.direct)

    @property
    def adder(self) -> str:
        """The engine that multiplies and adds up, by its name."""
        return self.array if self.engine == "matrix" else self.engine

    @property
    def finisher(self) -> str:
        """The engine that writes the result, by its name; what else a copy would do stays on chip
        with the vector engine."""
        if self.engine in ("copy", "matrix"):
            return self.array if self.engine == "matrix" and self.direct else "vector"
        return self.engine


@dataclass(frozen=True)
class Layer:
    """Nests in order; the last one's result is the layer's result."""

    index: int
    nests: tuple[Nest, ...]
    tensors: dict[str, Tensor]
    """The network's tensors."""
    ways: tuple[tuple[Binding, ...], ...] = ()
    """By nest, how it may run on the machine that the layer is bound to, and first how it does;
    none before it is bound."""

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """By nest, how it runs."""
        chosen = tuple(way for way, *_ in self.ways)
        if len(chosen) < 2 or not self._hands_sums_on(*chosen[:2]):
            return chosen
        first, second, *others = chosen
        return replace(first, bare=True), replace(second, sums=first.sums), *others

    def _hands_sums_on(self, first: Binding, second: Binding) -> bool:
        """Whether sums of the head are its result, which only the operator behind it reads: real
        values inside a layer are as wide as sums."""
        head, reader, *_ = self.nests
        read = [
            access for nest in self.nests for access in nest.reads if access.tensor == head.tensor
        ]
        late = head.multiplier, head.added, head.scale, head.table or None
        started = head.bias is None or bool(self.tensors[head.bias.tensor].digits)
        real = is_float(self.tensors[head.operands[0].tensor].dtype)
        return (
            first.product and first.finisher == second.engine == "vector" and started and real
            and head.unclipped and all(each is None for each in late)
            and len(read) == 1 and read[0] in reader.operands
        )  # fmt: skip

    @property
    def binding(self) -> Binding:
        """How the head runs."""
        return self.bindings[0]

    @property
    def product(self) -> bool:
        """Whether it is a sum of products over channels, whose reduction may be cut."""
        return self.binding.product and not self.head.depthwise

    @property
    def copies(self) -> bool:
        """Whether it only moves a tensor, unchanged."""
        return len(self.nests) == 1 and self.binding.engine == "copy"

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
    def handed_over(self) -> frozenset[str]:
        """Those of them that another engine reads than made them: while it does, the first one goes
        on with the next tile."""
        makers = {n.tensor: w.finisher for n, w in zip(self.nests, self.bindings, strict=True)}
        reads = zip(self.nests[1:], self.bindings[1:], strict=True)
        pairs = ((access.tensor, way.finisher) for nest, way in reads for access in nest.reads)
        return frozenset(n for n, reader in pairs if makers.get(n, reader) != reader)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that the layer reads, in order of first use."""
        names = (access.tensor for nest in self.nests for access in nest.reads)
        return tuple(dict.fromkeys(name for name in names if name not in self.inside))

    def overwrites(self, name: str) -> bool:
        """Whether the result may take the place of an input: each element is made of the one at its
        own position, which nothing else reads."""
        tensor, result, own = self.tensors[name], self.result, self.inside | {name}
        reads = [name in (access.tensor for access in nest.reads) for nest in self.nests]
        return (tensor.shape, tensor.dtype) == (result.shape, result.dtype) and all(
            nest.elementwise
            and nest.shape == result.shape
            and all(identity(a, nest.rank) for a in nest.reads if a.tensor in own)
            for nest in self.nests[reads.index(True) :]
        )

    def part(self, first: int, count: int = 1) -> Layer:
        """`count` of its nests from `first` on, as a layer."""
        run = slice(first, first + count)
        return replace(self, nests=self.nests[run], ways=self.ways[run])

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

"""What the tile search asks of one layer on some cores, and what an answer says.

The one idea: a problem holds all that does not depend on the candidates' tiles, so that each
candidate is priced (`layer_price.py`) from it and its sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compiler.cost.multicast import EARLY, Cores
from compiler.cost.transfer import Path
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate, TileLoop
from compiler.target.array_mapping import Roles, Tap, kernel_rows, roles
from compiler.target.layout import joined_tap, left_order
from compiler.target.machine import rate_type
from compiler.target.product_tiles import read_extents
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import Access, Tensor
from simmodel.arch.element_types import size_of
from simmodel.arch.matrix_cycles import tile_limits
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property


class TilePrices(NamedTuple):
    """What ways to cut a layer take: numbers, or arrays over candidates."""

    total: Any
    matrix: Any
    vector: Any
    memory: Any
    bytes: Any
    """Of DRAM, for all cores."""
    need: Any
    """Bytes of local memory."""
    load: Any
    """Cycles of the load engine."""
    store: Any
    tiles: Any
    """Pieces of the result, one after another."""
    arrivals: Any
    """Pieces in which what is loaded most often arrives: those of a reduction count as well."""
    lead: Any
    rest: Any
    """See `Estimate`."""
    gap: Any = 0.0
    """Cycles of `matrix` that a product spares right behind another one."""
    flash: Any = 0.0
    """Bytes of flash, for all cores."""
    first: Any = 0.0
    """Cycles of the loads before the first tile."""
    fits: Any = True
    """Whether every memory but the local one holds its share."""
    loops: Any = None
    """Of the layer, outermost first, where these are numbers."""

    def of_core(self, loops: tuple[TileLoop, ...], cores: int) -> TilePrices:
        """Numbers of one of `cores`, whose layer has `loops`."""
        numbers = TilePrices(*map(float, self[:-2]))
        moved, flash = numbers.bytes / cores, numbers.flash / cores
        return numbers._replace(bytes=moved, flash=flash, loops=loops)

    @property
    def estimate(self) -> Estimate:
        """Of numbers."""
        moved = self.bytes + self.flash
        return Estimate(*map(float, (*self[:4], moved, self.need, self.lead, self.rest)))


_SIZELESS = (
    "found", "vector_works", "left_axes", "source", "weight", "padded", "others", "taps",
    "rate_type",
)  # fmt: skip
"""What is worked out of a problem and depends on no sizes."""


@dataclass(frozen=True)
class TilingProblem:
    """One layer on one split, or on several: what all candidates have in common."""

    layer: Layer
    arch: Arch
    """With the array of the layer as its `matrix`."""
    box: tuple[Any, ...]
    """Sizes of the largest core's part of the result; over candidates, where these are of several
    splits."""
    cores: Cores
    slots: int
    held: frozenset[str] = frozenset()
    """Tensors that the group keeps on chip, and constants that stay: neither loaded nor stored
    here."""
    shared: frozenset[str] = frozenset()
    """Tensors that are loaded from shared memory, or stored there; all others: DRAM."""

    def __post_init__(self) -> None:
        if (array := self.layer.binding.array) != "matrix":
            object.__setattr__(self, "arch", self.arch.with_array(array))

    def of(self, box: tuple[int, ...]) -> TilingProblem:
        """The same with other sizes; what does not depend on them is not worked out again."""
        if box == self.box:
            return self
        return self._with(box, self.cores)

    def _with(self, box: tuple[Any, ...], cores: Cores) -> TilingProblem:
        found, known = replace(self, box=box, cores=cores), self.__dict__
        found.__dict__.update({name: known[name] for name in _SIZELESS if name in known})
        return found

    def on_alike_cores(self) -> TilingProblem:
        """A problem of a product with the same prices on cores that say no more than its transfers
        depend on: those of groups that are cut along other axes are often one then."""
        cores, count = self.cores, self.cores.count
        left, right = self.layer.head.operands[:2]
        own = (left, self.loads_input), (right, self.loads_weights)
        loaded = [*(access for access, loads in own if loads), *self.others]
        if not loaded:
            return replace(self, cores=Cores(count if self.stores else 1))
        pairs = enumerate(zip(cores.cuts, cores.even, strict=True))
        # Where parts are one, or each load has its own, nothing is loaded alike.
        told = [
            (parts, even) if parts > 1 and not all(a.uses(d) for a in loaded) else (1, True)
            for d, (parts, even) in pairs
        ]
        apart = any(n > 1 and (d in self.padded or not even) for d, (n, even) in enumerate(told))
        cuts, evens = zip(*told, strict=True) if told else ((), ())
        return replace(
            self, cores=replace(cores, cuts=cuts, even=evens, looped=cores.looped and apart)
        )

    @cached_property
    def roles(self) -> Roles:
        """What the loops of the product are for."""
        return roles(self.layer.head)

    @cached_property
    def left_axes(self) -> tuple[int, ...]:
        """Axes of the left operand on chip, slowest first."""
        return left_order(self.source, self.layer.head, self.arch)

    @cached_property
    def joined_tap(self) -> Tap | None:
        """The kernel loop whose positions lie beside the channels."""
        return joined_tap(self.source, self.layer.head, self.arch)

    @cached_property
    def vector_works(self) -> tuple[VectorWork, ...]:
        """What the vector engine does for each nest, of all of its result."""
        layer, arch = self.layer, self.arch
        return tuple(
            VectorWork(nest, layer.tensors, arch, way, layer.inside, nest.shape)
            for nest, way in zip(layer.nests, layer.bindings, strict=True)
        )

    def load(self, name: str, near: str, alike: Any, early: Any = False) -> Path:
        """The way of a tensor to memory on chip that `alike` cores have in common, where they load
        their own parts `early`."""
        far = self.arch.constants if self.layer.tensors[name].constant else "dram"
        home = "shared" if name in self.shared else far
        return Path.load(self.arch, self.cores, home, near, alike, early)

    @cached_property
    def may_be_early(self) -> bool:
        """Whether cores may load their own parts of operands early, with more slots for these."""
        way, loads = self.cores.way, self.loads_input or self.loads_weights
        return way is not None and way.staged and loads and 1 < self.slots < EARLY

    def store(self) -> Path:
        """The way of the result."""
        home = "shared" if self.layer.result.name in self.shared else "dram"
        return Path(self.arch, self.cores.count, home, "local", store=True)

    @property
    def loads_input(self) -> bool:
        """Whether the left operand comes from memory."""
        return self.source.name not in self.held

    @property
    def loads_weights(self) -> bool:
        """Whether the right operand comes from memory."""
        return self.weight.name not in self.held

    @property
    def stores(self) -> bool:
        """Whether the result goes to memory piece by piece."""
        return self.layer.result.name not in self.held

    @cached_property
    def dims(self) -> tuple[int | None, ...]:
        """The loops that a choice cuts, in the order of its sizes."""
        found = self.roles
        return found.b, found.y, found.x, found.col, found.k, self.rows

    @property
    def on_array(self) -> bool:
        """Whether the matrix engine multiplies, not the vector engine."""
        return self.layer.binding.engine == "matrix"

    @cached_property
    def source(self) -> Tensor:
        """The left operand."""
        return self.layer.tensors[self.layer.head.operands[0].tensor]

    @cached_property
    def rate_type(self) -> str:
        """The type whose rate is that of the products."""
        return rate_type(self.layer.head, self.layer.tensors, self.arch)

    @cached_property
    def weight(self) -> Tensor:
        """The right operand."""
        return self.layer.tensors[self.layer.head.operands[1].tensor]

    @cached_property
    def lead(self) -> tuple[int, ...]:
        """Output dims walked one position at a time."""
        return tuple(d for d in self._unwalked if self.box[d] > 1)

    @cached_property
    def _unwalked(self) -> tuple[int, ...]:
        """Output dims that no size of a tile is for."""
        found = self.roles
        walked = found.b, found.y, found.x, found.col
        return tuple(d for d in range(self.layer.head.rank) if d not in walked)

    @property
    def alike_with(self) -> Hashable:
        """Problems of one layer can be priced at once if they have this in common."""
        moving = tuple(size > 1 for size in self.box)
        walked = tuple(self.box[d] for d in self._unwalked)
        return moving, walked, self.rows, self.cores.count

    def at_once(
        self, others: Sequence[TilingProblem], among: Callable[[Sequence[Any]], Any]
    ) -> TilingProblem:
        """This and all `others` that are alike, in one: `among` makes arrays over all of their
        candidates."""
        cores = self.cores.at_once([each.cores for each in others], among)
        box = tuple(map(among, zip(*(each.box for each in others), strict=True)))
        found = self._with(box, cores)
        found.__dict__["rows"] = self.rows
        return found

    @cached_property
    def repeats(self) -> int:
        """Iterations of the lead loops."""
        return math.prod(self.box[d] for d in self.lead)

    @cached_property
    def lead_moves_weights(self) -> bool:
        """Whether the right operand changes with the lead loops."""
        return any(map(self.layer.head.operands[1].uses, self.lead))

    @cached_property
    def taps(self) -> int:
        """Kernel positions."""
        return math.prod(self.layer.head.dims[tap.dim].extent for tap in self.roles.taps)

    @cached_property
    def rows(self) -> int | None:
        """The loop over kernel rows, where tiles may take one row at a time: the input is there as
        a whole, and the memory for weights has no room to fill the array at all positions."""
        matrix = self.arch.matrix
        loop = kernel_rows(self.layer.head, matrix) if self.on_array else None
        if loop is None or self.loads_input or not self.loads_weights or matrix.weights == "local":
            return None
        deep, wide = tile_limits(self.arch.matrix, self.weight.dtype)
        k, n = self.extent(self.roles.k), self.extent(self.roles.col)
        full = self.taps * min(k, deep) * min(n, wide) * size_of(self.weight.dtype)
        size = self.arch.memories.on_chip()[matrix.weights].size
        return loop if self.slots * full > size else None

    def extent(self, dim: int | None) -> Any:
        """Positions of one loop within the part."""
        if dim is None:
            return 1
        head = self.layer.head
        return self.box[dim] if dim < head.rank else head.dims[dim].extent

    def alike(self, access: Access, rows: Any, cols: Any) -> Any:
        """Cores that load the same of what `access` reads, at the same time: loops over `rows` may
        be around its loads, and one over `cols`."""
        around = dict(zip(self.dims, (rows, rows, rows, cols), strict=False))
        return self.cores.replication(access.uses, around, self.padded)

    @cached_property
    def padded(self) -> frozenset[int]:
        """Output dims along which tiles at the border read beyond it."""
        head = self.layer.head
        pads = [access for access in head.reads if access.pad is not None]
        return frozenset(d for d in range(head.rank) if any(a.uses(d) for a in pads))

    def covered(self, size: Any, dim: int | None) -> Any:
        """Input positions that `size` output positions of a row loop touch."""
        if dim is None:
            return 1
        for tap in self.roles.taps:
            if tap.row == dim:
                window = (self.layer.head.dims[tap.dim].extent - 1) * tap.dilation
                return (size - 1) * tap.stride + window + 1
        return size

    @cached_property
    def others(self) -> tuple[Access, ...]:
        """What is loaded besides the operands of the product."""
        taken, found = {*self.layer.inside, *self.held}, list[Access]()
        for nest in self.layer.nests:
            for access in nest.reads[2:] if nest is self.layer.head else nest.reads:
                if access.tensor not in taken:
                    taken.add(access.tensor)
                    found.append(access)
        return tuple(found)

    def part_bytes(self, access: Access) -> Any:
        """Bytes of all that `access` reads for the part."""
        elements = math.prod(read_extents(access, self.extent))
        return elements * size_of(self.layer.tensors[access.tensor].dtype)

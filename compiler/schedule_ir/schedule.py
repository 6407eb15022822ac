"""How a group is cut: outer loops over its results, and for every layer the loops over its share.

    for loop in schedule.loops:               tiles of the group's results, on every core its part
        for layer in schedule.layers:         what the tile needs of this layer
            for loop in layer.loops:          pieces of that, and of a reduction

A layer alone has no outer loops: its own loops walk its whole part.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, starmap

from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.tensor_ir.bounds import Box
from simmodel.isa.region import replace


@dataclass(frozen=True)
class TileLoop:
    """One loop over tiles."""

    dim: int
    """Position in the head's dims: an output dim, or the reduction loop that is split."""
    size: int
    """Positions per tile; the last tile may have fewer."""
    reduction: bool = False
    ahead: bool = False
    """Of the innermost loop of a product: operands that come from DRAM have `EARLY` slots
    (`cost.multicast`), so that cores can load their parts of what they share one tile ahead."""


@dataclass(frozen=True)
class Estimate:
    """What the cost model expects, in cycles, for the busiest core."""

    total: float
    matrix: float
    vector: float
    memory: float
    bytes: float
    """DRAM bytes of all cores."""
    need: float = 0.0
    """Bytes of local memory in use at most."""
    lead: float = 0.0
    """Cycles at the start in which nothing but constants is loaded."""
    rest: float = 0.0
    """Cycles at the end in which nothing is loaded any more."""

    def visible(self, hidden: float) -> float:
        """`total` without the part of `rest` that is taken to be `hidden` by loads of groups behind
        this one, where it loads for longer than it computes."""
        longest = self.memory >= max(self.matrix, self.vector)
        return self.total - hidden * self.rest * longest

    @property
    def step(self) -> tuple[float, float, float]:
        """What counts where groups run one after another."""
        return self.total, self.lead, self.rest


NOTHING = Estimate(0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Tiled:
    """A layer with its loops."""

    layer: Layer
    loops: tuple[TileLoop, ...]
    parts: tuple[Box, ...]
    """Part of the result for each core that takes part; the others idle."""
    estimate: Estimate
    resident: bool = False
    """Constants of the whole layer are loaded once, before the group's loops."""

    def extent(self, loop: TileLoop) -> int:
        """Positions that a loop walks at most on one core."""
        if loop.reduction:
            return self.layer.head.dims[loop.dim].extent
        return max(part[loop.dim][1] for part in self.parts)

    @property
    def turns(self) -> list[int]:
        """Of each loop."""
        return [-(-self.extent(loop) // loop.size) for loop in self.loops]


@dataclass(frozen=True)
class OuterLoop:
    """A loop over tiles of the group's results along one of their dimensions."""

    axis: int
    size: int
    rolling: bool = False
    """Keep what neighbouring tiles share instead of computing it again."""
    ahead: tuple[int, ...] = ()
    """Of the innermost loop: layers before which one begins that works a tile behind these."""


@dataclass(frozen=True)
class Schedule:
    """A group with its loops."""

    group: Group
    layers: tuple[Tiled, ...]
    parts: tuple[Box, ...]
    """Part of the results for each core that takes part."""
    estimate: Estimate
    loops: tuple[OuterLoop, ...] = ()
    first_core: int = 0
    """The core that has the first part; the others have those behind it."""

    @property
    def cores(self) -> range:
        """Cores that take part."""
        return range(self.first_core, self.first_core + len(self.parts))

    @property
    def stages(self) -> tuple[range, ...]:
        """Layers that work on one tile at a time: those of the last stage on one, those of each
        stage before on the next."""
        cuts = self.loops[-1].ahead if self.loops else ()
        return tuple(starmap(range, pairwise((0, *cuts, len(self.layers)))))

    def ahead(self, position: int) -> int:
        """Tiles by which a layer is ahead of the last one."""
        return sum(position < stage.start for stage in self.stages)

    def from_core(self, first: int) -> Schedule:
        """The same on the cores from `first` on."""
        return replace(self, first_core=first)

    def same(self, other: Schedule) -> bool:
        """Whether both cut their groups alike."""
        return (
            self.parts == other.parts
            and self.loops == other.loops
            and [(t.loops, t.resident) for t in self.layers]
            == [(t.loops, t.resident) for t in other.layers]
        )

    def of(self, group: Group) -> Schedule:
        """The same for a group that is like this one but for its names."""
        if group is self.group:
            return self
        pairs = zip(self.layers, group.layers, strict=True)
        return replace(
            self, group=group, layers=tuple(replace(tiled, layer=layer) for tiled, layer in pairs)
        )


def single(tiled: Tiled, group: Group) -> Schedule:
    """The schedule of a group of one layer."""
    return Schedule(group, (tiled,), tiled.parts, tiled.estimate)


def uncut(group: Group) -> tuple[Tiled, ...]:
    """The layers of a group without loops, each whole."""
    boxes = (tuple((0, n) for n in layer.result.shape) for layer in group.layers)
    return tuple(
        Tiled(layer, (), (box,), NOTHING) for layer, box in zip(group.layers, boxes, strict=True)
    )

"""The tree of one core's work before it becomes a stream: steps of engines inside loops.

Every step says which bytes on chip it touches; synchronization follows from that alone. A loop
stands for several segments of iterations whose bodies have the same nodes in the same places, so
what is found for one body holds for all. A step without instructions keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import TileLoop
from compiler.target.loops.split import Reach, ends, runs
from simmodel.isa import Await, Instruction, Item, Loop
from simmodel.isa.region import cached_property, replace
from simmodel.program.program import TileKind


class Use(NamedTuple):
    """One buffer that a step touches."""

    buffer: str
    memory: str
    low: int
    """First byte of the buffer, over all its slots."""
    high: int
    slots: int
    home: int
    """Loops around the buffer's turn: in each iteration of the innermost it is another slot."""
    reset: int
    """Loops around the count of its turns."""
    write: bool
    ahead: int = 0
    """Iterations of its loop that it is early: what it touches is the slot of a later one."""
    part: tuple[int, int, int] | None = None
    """Where engines share the work: the dimension that is cut, first position and end of what this
    one touches of each slot; None: all of it."""
    bodies: int = -1
    """Bit per body of the loop in which it is this part: parts of others are not made at once."""
    pitch: int = 0
    """Bytes from slot to slot."""


@dataclass(frozen=True)
class EngineStep:
    """Instructions of one step on one engine."""

    engine: str
    items: tuple[Item, ...]
    uses: tuple[Use, ...] = ()
    origin: int = 0
    reads: frozenset[str] = frozenset()
    """Buffers off chip that it reads, constants aside."""
    writes: frozenset[str] = frozenset()
    """Buffers off chip that it writes."""
    waited: bool = False
    """Whether its own instructions wait for what it reads."""
    team: str = ""
    """What steps of equal engines that stand behind each other do together."""
    staged: str = ""
    """Place in shared memory through which cores pass on what they load, if it uses one."""
    tile: TileKind | None = None
    """What it is a step of, where it is one of a tile's."""

    @cached_property
    def touches(self) -> tuple[tuple[str, Use], ...]:
        """(engine, use) of everything in it."""
        return tuple((self.engine, use) for use in self.uses)

    @property
    def leaves(self) -> tuple[EngineStep, ...]:
        return (self,)

    def numbered(self, tile: int) -> tuple[Item, ...]:
        """Its instructions as those of a tile of this number; the same objects for each program
        that it is in, so that what is known of them stays known."""
        known: tuple[int, tuple[Item, ...]] | None = self.__dict__.get("_numbered")
        if known is None or known[0] != tile:
            known = tile, self.items if tile < 0 else with_fields(self.items, tile=tile)
            self.__dict__["_numbered"] = known
        return known[1]


@dataclass(frozen=True)
class LoopSegment:
    """`count` iterations with one body."""

    count: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class SegmentedLoop:
    """A loop, segment after segment."""

    variable: str
    segments: tuple[LoopSegment, ...]

    @cached_property
    def touches(self) -> tuple[tuple[str, Use], ...]:
        """(engine, use) of everything in it, each once."""
        nodes = (node for segment in self.segments for node in segment.body)
        return tuple(dict.fromkeys(touch for node in nodes for touch in node.touches))

    @cached_property
    def leaves(self) -> tuple[EngineStep, ...]:
        nodes = (node for segment in self.segments for node in segment.body)
        return tuple(leaf for node in nodes for leaf in node.leaves)

    @property
    def origin(self) -> int:
        """Of its first step."""
        return self.leaves[0].origin if self.leaves else 0


Node = EngineStep | SegmentedLoop


Works = tuple[bool, ...]
"""By step of a body."""


def works_of(body: Iterable[Node]) -> Works:
    """By step, whether it has anything to do."""
    return tuple(any(leaf.items for leaf in node.leaves) for node in body)


@dataclass(frozen=True)
class AlikeLoops:
    """All loops that stand in one place of a tree, in any iteration of the loops around: slots go
    on turning from one to the next, so their steps keep one order, whichever have something to do.
    Engines may share a tile of one in another way than that of the next, which is smaller."""

    touches: tuple[tuple[tuple[str, Use], ...], ...]
    """What each step of the body touches in any of them; nothing if it never does anything."""
    works: tuple[Works, ...]
    """What their bodies do, each way once."""
    inside: tuple[AlikeLoops | None, ...]
    """Of the loops among those steps."""

    @classmethod
    def of(cls, loops: Iterable[SegmentedLoop]) -> AlikeLoops:
        bodies = [segment.body for loop in loops for segment in loop.segments]
        places = list(zip(*bodies, strict=True))
        works = tuple(dict.fromkeys(map(works_of, bodies)))
        used = map(any, zip(*works, strict=True))
        inside = ([n for n in nodes if isinstance(n, SegmentedLoop)] for nodes in places)
        return cls(
            tuple(_touched(nodes) if use else () for nodes, use in zip(places, used, strict=True)),
            works,
            tuple(cls.of(found) if found else None for found in inside),
        )


def _touched(nodes: Sequence[Node]) -> tuple[tuple[str, Use], ...]:
    """(engine, use) of what stands in one place of several bodies, each once."""
    found: dict[tuple[str, Use], int] = {}
    for number, node in enumerate(nodes):
        for engine, use in node.touches:
            key = engine, use
            found[key] = -1 if use.part is None else found.get(key, 0) | 1 << number
    return tuple([(engine, use._replace(bodies=bits)) for (engine, use), bits in found.items()])


def emptied(node: Node) -> Node:
    """`node` with nothing to do, in its place."""
    if isinstance(node, EngineStep):
        return replace(node, items=(), reads=frozenset(), writes=frozenset())
    return SegmentedLoop(node.variable, ())


def step_barrier(step: int) -> str:
    """What opens when all that a step of the program stores is there."""
    return f"step{step}"


def waiting(leaf: EngineStep, writers: Callable[[str], Sequence[int]]) -> EngineStep:
    """`leaf` with instructions that wait for the steps that write what it reads."""
    barriers = dict.fromkeys(step_barrier(step) for read in leaf.reads for step in writers(read))
    waits = (Await(engine=leaf.engine, barrier=b, origin=leaf.origin) for b in barriers)
    return replace(leaf, items=(*waits, *leaf.items), waited=True)


def of_tile(nodes: Iterable[Node], tile: TileKind) -> list[Node]:
    """`nodes`, the steps among them as steps of `tile` unless they are of one inside of it."""
    return [
        replace(node, tile=tile) if isinstance(node, EngineStep) and node.tile is None else node
        for node in nodes
    ]


def with_fields(items: Iterable[Item], **fields: Any) -> tuple[Item, ...]:
    """`items` whose instructions have other fields, as their tile or their engine."""
    return tuple(
        replace(item, body=with_fields(item.body, **fields))
        if isinstance(item, Loop)
        else replace(item, **fields)
        for item in items
    )


def instructions(items: Iterable[Item]) -> Iterator[Instruction]:
    """Each once, however often loops repeat it."""
    for item in items:
        if isinstance(item, Loop):
            yield from instructions(item.body)
        else:
            yield item


def touched(nodes: Iterable[Node], use: Use) -> bool:
    """Whether any of `nodes` touches bytes of `use`."""
    return any(
        other.memory == use.memory and other.low < use.high and use.low < other.high
        for node in nodes for _, other in node.touches
    )  # fmt: skip


def renamed(node: Node, engines: Mapping[str, str]) -> Node:
    """`node` with the work of some engines on others, from name to name."""
    if isinstance(node, EngineStep):
        name = engines.get(node.engine, node.engine)
        return replace(node, engine=name, items=with_fields(node.items, engine=name))
    segments = (
        replace(segment, body=tuple(renamed(inner, engines) for inner in segment.body))
        for segment in node.segments
    )
    return SegmentedLoop(node.variable, tuple(segments))


# Segments: runs of tiles of one loop that are alike, so that one hardware loop covers them.


@dataclass(frozen=True)
class TileSegment:
    """`count` tiles from number `first` on, each of `size` positions from `start` on."""

    first: int
    count: int
    start: int
    step: int
    size: int
    opens: bool
    """Contains the first tile of a reduction."""
    closes: bool
    """Contains the last tile of a reduction."""


def segments(
    layer: Layer, loop: TileLoop, low: int, extent: int, held: Collection[str] = ()
) -> list[TileSegment]:
    """Segments of `loop` over positions low .. low + extent; borders of `held` tensors are there
    already."""
    reaches = list(_reaches(layer, loop.dim, held))
    count = -(-extent // loop.size)
    alone = ends(count, first=loop.reduction, last=loop.reduction)

    def holds(number: int, start: int, size: int) -> object:
        return alone(number, start, size), tuple(reach.out(start, size) for reach in reaches)

    return [
        TileSegment(
            run.first, run.times, run.start, loop.size, run.size,
            opens=not loop.reduction or run.first == 0,
            closes=not loop.reduction or run.first + run.times == count,
        )
        for run in runs(extent, loop.size, holds, low)
    ]  # fmt: skip


def _reaches(layer: Layer, dim: int, held: Collection[str]) -> Iterator[Reach]:
    """How padded accesses read their tensors along loop `dim`."""
    reads = [(nest.dims, access) for nest in layer.nests for access in nest.reads]
    for dims, access in reads:
        if access.pad is None or access.tensor in held:
            continue
        shape = layer.tensors[access.tensor].shape
        for affine, extent in zip(access.index, shape, strict=True):
            factor = affine.coefficient(dim)
            if factor:
                others = ((d, c) for d, c in affine.terms if d != dim)
                window = sum(abs(c) * (dims[d].extent - 1) for d, c in others)
                yield Reach(factor, affine.constant, window, extent)

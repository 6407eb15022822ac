"""Prices of candidates for a sum of products: memory needed and cycles expected.

Every quantity is an array over all candidates of one split, so the whole search is a handful of
numpy expressions. What is counted per tile is multiplied by how often it happens; engines overlap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from compiler.cost.multicast import Cores
from compiler.cost.overlap import pipelined, resting
from compiler.cost.transfer import Flows, Path, RepeatedTransfer, Transfer, traffic
from compiler.cost.work import array_work
from compiler.geometry.boxes import keys_of
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Estimate
from compiler.target.array_mapping import Roles, joining, kernel_rows, pays, pixel_blocks, roles
from compiler.target.equal_engines import columns as columns_shared
from compiler.target.layout import left_order, links_of, loaded_of, loaded_once, room_of
from compiler.target.machine import temporary_type
from compiler.target.narrow_weights import fits_tiles, row_of, widening
from compiler.target.product_tiles import TileSizes, VectorProducts
from compiler.target.vector import VectorWork
from compiler.tensor_ir.nest import Access, Nest, Tensor, order_of
from simmodel.arch.dtype import accumulator_of, size_of
from simmodel.arch.record import Arch
from simmodel.isa.contraction import streams
from simmodel.isa.matrix import tile_limits

# What the prices of candidates are made of: how often things happen, and what they take.


@dataclass(frozen=True)
class LoopCounts:
    """How often things happen in one lead iteration."""

    rows: Any
    cols: Any
    deep: Any
    input: Any
    """Loads of the left operand."""
    weights: Any
    """Loads of the right operand."""

    @property
    def tiles(self) -> Any:
        """Tiles of the result."""
        return self.rows * self.cols

    @property
    def split(self) -> Any:
        """Whether the reduction is split."""
        return self.deep > 1

    @property
    def around(self) -> tuple[Any, Any]:
        """Whether loops over rows are around loads of the right operand, and whether the one over
        columns is around those of the left."""
        rows = np.where(self.split, self.rows > 1, self.weights > self.cols)
        cols = np.where(self.split, self.cols > 1, self.input > self.rows)
        return rows, cols

    def columns(self, order: Any) -> Any:
        """Loads of what only columns move: for every tile where rows lie outside of them."""
        return np.where((order == 1) | (self.cols == 1), self.cols, self.tiles)


class TilePrices(NamedTuple):
    """What ways to cut a layer take: numbers, or arrays over candidates."""

    total: Any
    matrix: Any
    vector: Any
    memory: Any
    bytes: Any
    """Of DRAM."""
    need: Any
    """Bytes of local memory."""
    load: Any
    """Cycles of the load engine."""
    store: Any
    tiles: Any
    """Pieces of the result."""
    arrivals: Any
    """Pieces in which what is loaded most often arrives."""
    lead: Any
    rest: Any
    """See `Estimate`."""
    gap: Any = 0.0
    """Cycles of `matrix` that a product spares right behind another one."""
    fits: Any = True
    """Whether every memory but the local one holds its share."""

    @property
    def estimate(self) -> Estimate:
        """Of numbers."""
        columns = (
            self.total, self.matrix, self.vector, self.memory, self.bytes, self.need, self.lead,
            self.rest,
        )  # fmt: skip
        return Estimate(*map(float, columns))


def passed_on(slots: int, flows: Sequence[RepeatedTransfer], work: Any) -> Any:
    """Cycles that slots are taken of what cores pass on to each other, shared by the slots: one is
    filled, passed on and worked on before any core fills it again.

        slot 0  load pass work load pass work         with two slots the array rests, though loads,
        slot 1       load pass work load pass         copies and products are each short enough
    """
    longest: Any = 0.0
    for flow in flows:
        taken = (flow.count * flow.once.cycles + work) / slots
        passes = (flow.once.passing > 0) & (flow.count > slots)
        longest = np.maximum(longest, np.where(passes, taken, 0.0))
    return longest


@dataclass(frozen=True)
class TilingProblem:
    """One layer on one split: what all candidates have in common."""

    layer: Layer
    arch: Arch
    box: tuple[int, ...]
    """Sizes of the largest core's part of the result."""
    cores: Cores
    slots: int
    held: frozenset[str] = frozenset()
    """Tensors that the group keeps on chip: neither loaded nor stored here."""
    resident: bool = False
    """Constants are on chip as well."""
    shared: frozenset[str] = frozenset()
    """Tensors that are loaded from shared memory, or stored there; all others: DRAM."""

    @cached_property
    def found(self) -> Roles:
        """What the loops of the product are for."""
        return roles(self.layer.head)

    def home(self, name: str) -> str:
        """Where a tensor is loaded from or stored to: dram or shared."""
        return "shared" if name in self.shared else "dram"

    @property
    def loads_input(self) -> bool:
        """Whether the left operand comes from memory."""
        return self.source.name not in self.held

    @property
    def loads_weights(self) -> bool:
        """Whether the right operand comes from memory."""
        stays = self.resident and self.weight.data is not None
        return self.weight.name not in self.held and not stays

    @property
    def stores(self) -> bool:
        """Whether the result goes to memory piece by piece."""
        return self.layer.result.name not in self.held

    @property
    def head(self) -> Nest:
        """The sum of products."""
        return self.layer.head

    @cached_property
    def dims(self) -> tuple[int | None, ...]:
        """The loops that a choice cuts, in the order of its sizes."""
        found = self.found
        return found.b, found.y, found.x, found.col, found.k, self.rows

    @property
    def walked(self) -> list[str]:
        """The sizes of a choice as the result lies in memory, slowest first."""
        result, names = self.layer.result, dict(zip(self.dims, "byxn", strict=False))
        order = order_of(result.shape, result.storage.strides)
        return [names[dim] for dim in order if dim in names]

    @property
    def on_array(self) -> bool:
        """Whether the matrix engine multiplies, not the vector engine."""
        return self.layer.binding.engine == "matrix"

    @property
    def reads(self) -> tuple[str, str]:
        """Memories that the left and the right operand are read from."""
        matrix = self.arch.matrix
        return (matrix.input, matrix.weights) if self.on_array else ("local", "local")

    @cached_property
    def source(self) -> Tensor:
        """The left operand."""
        return self.layer.tensors[self.head.operands[0].tensor]

    @cached_property
    def weight(self) -> Tensor:
        """The right operand."""
        return self.layer.tensors[self.head.operands[1].tensor]

    @cached_property
    def lead(self) -> tuple[int, ...]:
        """Output dims walked one position at a time."""
        found = self.found
        walked = (found.b, found.y, found.x, found.col)
        return tuple(d for d in range(self.head.rank) if d not in walked and self.box[d] > 1)

    @cached_property
    def repeats(self) -> int:
        """Iterations of the lead loops."""
        return math.prod(self.box[d] for d in self.lead)

    @cached_property
    def lead_moves_weights(self) -> bool:
        """Whether the right operand changes with the lead loops."""
        return any(self.head.operands[1].uses(d) for d in self.lead)

    @cached_property
    def taps(self) -> int:
        """Kernel positions."""
        return math.prod(self.head.dims[tap.dim].extent for tap in self.found.taps)

    @cached_property
    def rows(self) -> int | None:
        """The loop over kernel rows, where tiles may take one row at a time: the input is there as
        a whole, and the memory for weights has no room to fill the array at all positions."""
        matrix = self.arch.matrix
        loop = kernel_rows(self.head, matrix) if self.on_array else None
        if loop is None or self.loads_input or not self.loads_weights or matrix.weights == "local":
            return None
        deep, wide = tile_limits(self.arch)
        k, n = self.extent(self.found.k), self.extent(self.found.col)
        full = self.taps * min(k, deep) * min(n, wide) * size_of(self.weight.dtype)
        size = self.arch.memories.on_chip()[matrix.weights].size
        return loop if self.slots * full > size else None

    def positions(self, choice: TileSizes) -> Any:
        """Kernel positions of a tile."""
        return self.taps if self.rows is None else self.taps // self.extent(self.rows) * choice.i

    def extent(self, dim: int | None) -> int:
        """Positions of one loop within the part."""
        if dim is None:
            return 1
        return self.box[dim] if dim < self.head.rank else self.head.dims[dim].extent

    def alike(self, access: Access, rows: Any, cols: Any) -> Any:
        """Cores that load the same of what `access` reads, at the same time: loops over `rows` may
        be around its loads, and one over `cols`."""
        around = dict(zip(self.dims, (rows, rows, rows, cols), strict=False))
        return self.cores.replication(access.uses, around, self.padded)

    @cached_property
    def padded(self) -> frozenset[int]:
        """Output dims along which tiles at the border read beyond it."""
        pads = [access for access in self.head.reads if access.pad is not None]
        return frozenset(d for d in range(self.head.rank) if any(a.uses(d) for a in pads))

    def covered(self, size: Any, dim: int | None) -> Any:
        """Input positions that `size` output positions of a row loop touch."""
        if dim is None:
            return 1
        for tap in self.found.taps:
            if tap.row == dim:
                window = (self.head.dims[tap.dim].extent - 1) * tap.dilation
                return (size - 1) * tap.stride + window + 1
        return size


def price(problem: TilingProblem, choice: TileSizes) -> TilePrices:
    """Memory and cycles of every candidate in `choice`."""
    arch = problem.arch
    turns, (tail, space) = turns_of(problem, choice), _tail(problem, choice)
    found = problem.found
    window = problem.covered(choice.y, found.y) * problem.covered(choice.x, found.x)
    a_size = choice.b * window * choice.k
    need, fits = _fits(problem, choice, turns, space, a_size)
    inner, gap = _product_cycles(problem, choice)
    tiles = problem.repeats * turns.tiles
    if not problem.on_array:
        inner, tail, gap = np.zeros(1), tail + turns.deep * inner, 0.0
    else:
        inner = np.maximum(inner, _streamed(problem, choice, a_size, turns))
    matrix = tiles * turns.deep * inner + gap
    once_wide = _widened(problem, choice)
    vector = tiles * tail + _weight_loads(problem, choice, turns) * once_wide
    flows = tuple(_flows(problem, choice, turns))
    moved = traffic(arch, problem.cores.count, flows)
    loads = [flow for flow in flows if not flow.way.store]
    arrivals = reduce(np.maximum, (flow.count for flow in loads), 1)
    every, once = moved.load
    every = np.maximum(every, passed_on(problem.slots, flows, matrix))
    stages = ((every, once), (matrix, inner + gap), (vector, tail + once_wide), moved.store)
    total = pipelined(stages, moved.far.values())
    total = total + _held_back(problem, choice, turns, loads, np.maximum(inner, tail))
    rest = resting(problem.slots, total, stages)
    return TilePrices(
        total, matrix, vector, moved.longest, moved.bytes["dram"], need, every, moved.store[0],
        tiles, arrivals, moved.lead, rest, gap, fits,
    )  # fmt: skip


def _held_back(
    problem: TilingProblem,
    choice: TileSizes,
    turns: LoopCounts,
    loads: Sequence[RepeatedTransfer],
    work: Any,
) -> Any:
    """Cycles for which `work` on a tile waits for what the outer of its two loops loads: that
    stands behind all loads of the inner loop's tiles, which run ahead by as many tiles as there are
    slots."""
    late = choice.order == 1
    outer, inner = np.where(late, turns.cols, turns.rows), np.where(late, turns.rows, turns.cols)
    ahead: Any = 0.0
    streams: Any = False
    for flow in loads:
        every = flow.count >= problem.repeats * turns.tiles
        ahead = ahead + np.where(~every & (flow.count > 1), flow.once.busy, 0.0)
        streams = streams | every
    waits = streams & (inner > problem.slots) & ~turns.split
    waiting = np.maximum(ahead - problem.slots * work, 0.0)
    return np.where(waits, problem.repeats * (outer - 1) * waiting, 0.0)


def in_one_piece(problem: TilingProblem) -> TileSizes:
    """The candidate that cuts nothing."""
    sizes = (*map(problem.extent, problem.dims), 0)
    return TileSizes(*(np.array([size]) for size in sizes))


def whole_product(problem: TilingProblem) -> tuple[float, float]:
    """Cycles of the matrix and of the vector engine of all in one piece, were operands at hand and
    another product just before."""
    choice = in_one_piece(problem)
    inner, _ = _product_cycles(problem, choice)
    tail, _ = _tail(problem, choice)
    if not problem.on_array:
        inner, tail = np.zeros(1), tail + inner
    vector = np.asarray(problem.repeats * tail)
    return float((problem.repeats * inner)[0]), float(vector.ravel()[0])


def turns_of(problem: TilingProblem, choice: TileSizes) -> LoopCounts:
    """Loop counts, and loads that follow from which loops move which operand."""
    pairs = zip(problem.dims, choice.sizes, strict=False)
    b, y, x, cols, k, kernel = (-(-problem.extent(dim) // size) for dim, size in pairs)
    rows, deep = b * y * x, k * kernel
    outer = choice.order == 0
    between = problem.repeats > 1 and not problem.lead_moves_weights
    whole = (
        np.where(outer | ((rows == 1) & (not between)), rows, rows * cols),
        np.where(~outer | (cols == 1), cols, rows * cols),
    )
    loads = (np.where(deep > 1, rows * cols * deep, times) for times in whole)
    return LoopCounts(rows, cols, deep, *loads)


def _flows(
    problem: TilingProblem, choice: TileSizes, turns: LoopCounts
) -> Iterator[RepeatedTransfer]:
    """What the product and its tail load, and the store of the result."""
    arch, cores, layer = problem.arch, problem.cores, problem.layer
    left, right = problem.head.operands[:2]
    repeats, tiles = problem.repeats, problem.repeats * turns.tiles
    inner = choice.order == 0
    rows_around, cols_around = turns.around
    lead = np.where((turns.cols > 1) & (problem.lead_moves_weights | inner), repeats, 1)
    if problem.loads_input:
        alike = problem.alike(left, True, cols_around)
        way = Path.load(arch, cores, problem.home(left.tensor), problem.reads[0], alike)
        order = left_order(problem.source, problem.head, arch) if problem.on_array else ()
        once = way.box(problem.source, _box(problem, choice, left), order)
        yield RepeatedTransfer(way, repeats * turns.input, once)
    if problem.loads_weights:
        alike = problem.alike(right, rows_around, True)
        way = Path.load(arch, cores, problem.home(right.tensor), problem.reads[1], alike)
        constant = problem.weight.data is not None
        count = _weight_loads(problem, choice, turns)
        yield RepeatedTransfer(way, count, _tile_transfer(problem, choice, right, way), constant)
    for access in _others(problem):
        # Whether tiles of other rows need other parts of it.
        rows = (d for d in range(problem.head.rank) if d != problem.found.col)
        follows = any(access.uses(d) and problem.box[d] > 1 for d in rows)
        once = _loaded_before_loops(problem, choice, turns, access)
        rows_around = ~once & (follows | (inner & (turns.cols > 1)))
        alike = problem.alike(access, rows_around, ~once)
        way = Path.load(arch, cores, problem.home(access.tensor), "local", alike)
        count = tiles if follows else turns.columns(choice.order) * lead
        constant = layer.tensors[access.tensor].data is not None
        one = _tile_transfer(problem, choice, access, way, once)
        yield RepeatedTransfer(way, np.where(once, 1, count), one, constant)
    if problem.stores:
        home = problem.home(layer.result.name)
        way = Path(arch, cores.count, home, "local", store=True)
        sizes = [_tile_size_along(problem, choice, dim) for dim in range(problem.head.rank)]
        yield RepeatedTransfer(way, tiles, way.box(layer.result, sizes))


def _weight_loads(problem: TilingProblem, choice: TileSizes, turns: LoopCounts) -> Any:
    """How often weights are loaded."""
    inner = choice.order == 0
    every = problem.lead_moves_weights | (turns.weights > 1) & (turns.split | inner)
    return turns.weights * np.where(every, problem.repeats, 1)


def _widened(problem: TilingProblem, choice: TileSizes) -> Any:
    """Cycles of the vector engine for one load of weights that memory holds narrow."""
    narrow, arch = problem.weight.narrow, problem.arch
    if narrow is None or not problem.loads_weights:
        return 0.0
    sizes = _box(problem, choice, problem.head.operands[1])
    elements = math.prod(sizes)
    row, width = row_of(problem.head), choice.n
    longest = width if arch.vector.max_extent is None else arch.vector.max_extent
    # One instruction has rows of one block at most where it walks two dimensions.
    rows = narrow.unit(row, sizes[row])
    rows = rows if arch.vector.rank > 2 else np.minimum(rows, narrow.blocks[row])
    pieces = -(-elements // (rows * np.minimum(width, longest)))
    startup = arch.vector.startup.cycles(arch.clock)
    return elements * widening(narrow, problem.weight.dtype, arch) + pieces * startup


def _others(problem: TilingProblem) -> Iterator[Access]:
    """What is loaded besides the operands of the product."""
    layer, seen = problem.layer, {*problem.layer.inside, *problem.held}
    for nest in layer.nests:
        for access in nest.reads[2:] if nest is problem.head else nest.reads:
            stays = problem.resident and layer.tensors[access.tensor].data is not None
            if access.tensor not in seen and not stays:
                seen.add(access.tensor)
                yield access


def _loaded_before_loops(
    problem: TilingProblem, choice: TileSizes, turns: LoopCounts, access: Access
) -> Any:
    """Whether all that `access` reads is loaded before the loops."""
    if problem.layer.tensors[access.tensor].data is None or access.pad is not None:
        return np.False_
    if problem.weight.data is None or not problem.loads_weights:
        return np.False_
    weights = problem.positions(choice) * choice.n * choice.k * size_of(problem.weight.dtype)
    several = (turns.weights > 1) | problem.lead_moves_weights & (problem.repeats > 1)
    return several & loaded_once(_part_bytes(problem, access), problem.slots * weights)


def _part_bytes(problem: TilingProblem, access: Access) -> int:
    """Bytes of all that `access` reads for the part."""
    elements: int = math.prod(_extents(access, problem.extent))
    return elements * size_of(problem.layer.tensors[access.tensor].dtype)


def _tile_transfer(
    problem: TilingProblem, choice: TileSizes, access: Access, way: Path, once: Any = np.False_
) -> Transfer:
    """One load of what `access` reads in a tile, or in all of them; constants lie in DRAM as they
    are loaded."""
    tensor = problem.layer.tensors[access.tensor]
    sizes = _box(problem, choice, access)
    if tensor.data is None:
        return way.box(tensor, sizes)
    size = loaded_of(tensor, sizes)
    return way.run(np.where(once, _part_bytes(problem, access), size))


def _box(problem: TilingProblem, choice: TileSizes, access: Access) -> list[Any]:
    """Positions along each axis of a tensor that a tile reads, border included."""
    return _extents(access, partial(_tile_size_along, problem, choice))


def _extents(access: Access, size: Callable[[int], Any]) -> list[Any]:
    """Positions along each axis that are read for `size` positions of each loop."""
    return [
        1 + sum(abs(factor) * (size(dim) - 1) for dim, factor in affine.terms)
        for affine in access.index
    ]


def _tile_size_along(problem: TilingProblem, choice: TileSizes, dim: int) -> Any:
    """Positions of one loop of the head within a tile."""
    if dim in problem.dims:
        return choice.sizes[problem.dims.index(dim)]
    return 1 if dim < problem.head.rank else problem.head.dims[dim].extent


def _tail(problem: TilingProblem, choice: TileSizes) -> tuple[Any, Any]:
    """Cycles of the vector engine behind the product of a tile, and bytes of its buffers."""
    layer, arch, head = problem.layer, problem.arch, problem.head
    wide, elements = size_of(temporary_type(arch)), choice.outputs
    late = len(links_of(head, layer.tensors, problem.layer.binding, arch))
    cycles: Any = 0.0
    if late or len(layer.nests) > 1:
        tile = [_tile_size_along(problem, choice, dim) for dim in range(head.rank)]
        for nest, way in zip(layer.nests, layer.bindings, strict=True):
            work = VectorWork(nest, layer.tensors, arch, way, layer.inside, tile)
            cycles = cycles + work.cycles
    space: Any = (wide if late > 1 else 0) * elements
    for nest in layer.nests[1:]:
        space = space + elements * wide
        for access in nest.operands:
            tensor = layer.tensors[access.tensor]
            outside = access.tensor not in layer.inside and access.tensor not in problem.held
            if outside and tensor.elements >= elements.max():
                space = space + problem.slots * elements * size_of(tensor.dtype)
    return cycles, space


def _fits(
    problem: TilingProblem, choice: TileSizes, turns: LoopCounts, space: Any, a_size: Any
) -> tuple[Any, Any]:
    """Bytes of local memory, with `space` behind the product, and whether every other memory holds
    its share; `a_size` are the elements of the left operand."""
    arch, slots, binding = problem.arch, problem.slots, problem.layer.binding
    again = bool(problem.lead)
    right = problem.head.operands[1]
    key = next(key for key in keys_of(problem.head) if key[2])
    w_bytes = room_of(problem.layer, key, _box(problem, choice, right))
    a_space = a_size * size_of(problem.source.dtype) * np.where((turns.input > 1) | again, slots, 1)
    w_space = w_bytes * np.where((turns.weights > 1) | again, slots, 1)
    kind = size_of(accumulator_of(problem.source.dtype))
    kept = turns.split | (not binding.direct) | (arch.matrix.granularity == "tile")
    kept = kept | (problem.taps > 1 and arch.matrix.granularity != "conv")
    alone = binding.direct or binding.engine == binding.finisher
    sums = choice.outputs * kind * np.where(kept, 1 if alone else slots, 0)
    result = choice.outputs * size_of(problem.layer.result.dtype) * slots * problem.stores
    local = a_space * problem.loads_input + result + space
    for access in _others(problem):
        once = _loaded_before_loops(problem, choice, turns, access)
        local = local + once * _part_bytes(problem, access)
    if len(problem.layer.nests) > 1:
        local = local + choice.outputs * size_of(temporary_type(arch)) * slots
    shares = defaultdict[str, Any](int, local=local)
    shares[problem.reads[1]] = shares[problem.reads[1]] + w_space * problem.loads_weights
    shares[binding.sums] = shares[binding.sums] + sums
    fits: Any = True
    narrow = problem.weight.narrow
    if narrow is not None and problem.loads_weights:
        fits = fits_tiles(narrow, row_of(problem.head), choice.k, choice.n)
    for role, memory in arch.memories.on_chip().items():
        if role != "local":  # whoever asks knows how much of it there is
            fits = fits & (shares[role] <= memory.size)
    return shares["local"], fits


def _streamed(problem: TilingProblem, choice: TileSizes, a_size: Any, turns: LoopCounts) -> Any:
    """Cycles of one tile's operands between the matrix engine and memories on chip."""
    arch, found = problem.arch, problem.found
    if arch.matrix.granularity == "tile":
        return 0.0
    item, size = size_of(problem.source.dtype), size_of(problem.layer.result.dtype)
    pixels, times = _blocks(problem, choice)
    taps = problem.positions(choice)
    left, right = streams(arch.matrix, pixels, choice.n, choice.k * taps)
    flows = Flows(arch)
    if arch.matrix.granularity == "conv":
        slices = (choice.k < problem.extent(found.k)) & (not problem.loads_input)
        run = np.where(slices, choice.k * item, a_size * item)
        wide = _merged_taps(problem, choice)
        # Windows that overlap are read one by one.
        seen = choice.b * problem.covered(choice.y, found.y) * choice.x * wide * choice.k
        size_in = np.where(wide > 1, seen, a_size) * item
        run = np.where(wide > 1, wide * choice.k * item, run)
        flows.add(arch.matrix.input, size_in, run, times=left)
    else:
        size_in = choice.pixels * choice.k * item
        flows.add(arch.matrix.input, size_in, size_in, times=left * taps)
    weights = taps * choice.n * choice.k * size_of(problem.weight.dtype)
    flows.add(arch.matrix.weights, weights, weights, times=right * times)
    sums = choice.outputs * size_of(accumulator_of(problem.source.dtype))
    inside = sums * turns.split
    flows.add(problem.layer.binding.sums, inside, np.maximum(inside, 1), write=True)
    flows.add(problem.layer.binding.sums, inside, np.maximum(inside, 1))
    if problem.layer.binding.direct and len(problem.layer.nests) == 1:
        slices = (choice.n < problem.extent(found.col)) & (not problem.stores)
        run = np.where(slices, choice.n * size, choice.outputs * size)
        flows.add("local", choice.outputs * size / turns.deep, run, write=True)
    return flows.longest()


def _product_cycles(problem: TilingProblem, choice: TileSizes) -> tuple[Any, Any]:
    """Cycles of its engine for one tile (or one piece of its reduction), start-ups included: right
    behind another one, and what it takes longer behind a gap."""
    units = len(problem.arch.units(problem.layer.binding.engine))
    columns = columns_shared(problem.head, problem.layer.binding, problem.arch)
    choice = choice.shared(problem.walked, units, columns)
    if not problem.on_array:
        lanes = VectorProducts(problem.head, problem.layer.tensors, problem.arch, units)
        return lanes.cycles(choice), 0.0
    wide, positions = _merged_taps(problem, choice), problem.positions(choice)
    work = array_work(
        problem.arch, problem.source.dtype, _blocks(problem, choice), choice.n, choice.k * wide,
        positions // wide,
    )  # fmt: skip
    return work.cycles, work.gap


def _blocks(problem: TilingProblem, choice: TileSizes) -> tuple[Any, Any]:
    """Pixels of the largest block that the engine takes at once, and blocks of a tile."""
    limit, found = problem.arch.matrix.max_pixels, problem.found
    if limit is None:
        return choice.pixels, 1
    # Lines lie one behind the other in buffers of whole lines, where no window needs a border.
    line = (problem.taps == 1) & (choice.x == problem.extent(found.x))
    apart = choice.b, choice.y, choice.x
    together = 1, 1, choice.pixels
    shape = np.shape(choice.pixels)
    extents = (np.where(line, one, many) for one, many in zip(together, apart, strict=True))
    sizes = np.stack([np.broadcast_to(extent, shape).ravel() for extent in extents])
    few, which = np.unique(sizes, axis=1, return_inverse=True)
    most, count = np.array([pixel_blocks(limit, size) for size in few.T.tolist()]).T
    at = which.reshape(shape)
    return most[at], count[at]


def _merged_taps(problem: TilingProblem, choice: TileSizes) -> Any:
    """Kernel positions in one reduction, because they lie side by side in both operands."""
    tap, k = joining(problem.head, problem.arch.matrix), problem.found.k
    if tap is None or k is None or problem.weight.data is None:
        return 1
    shape, order = problem.source.shape, left_order(problem.source, problem.head, problem.arch)
    last = next(a for a, at in enumerate(problem.head.operands[0].index) if at.coefficient(k))
    # A buffer holds the whole window, however narrow the tensor.
    moving = [axis for axis in order if shape[axis] > 1 or axis in (tap.axis, last)]
    if moving[-2:] != [tap.axis, last]:
        return 1
    # Slices of the channels lie side by side where both operands are loaded as such, but for a
    # smaller one.
    loaded = problem.loads_input and problem.loads_weights
    even = loaded & (problem.extent(k) % choice.k == 0)
    whole = even | (choice.k == shape[last])
    wide = problem.head.dims[tap.dim].extent
    better = pays(problem.arch.matrix, problem.source.dtype, choice.k, wide)
    return np.where(whole & better, wide, 1)

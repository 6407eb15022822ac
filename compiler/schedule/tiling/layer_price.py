"""Prices of candidates for a sum of products: memory needed and cycles expected.

Every quantity is an array over all candidates of one split, so the whole search is a handful of
numpy expressions. What is counted per tile is multiplied by how often it happens; engines overlap.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from compiler.cost.multicast import EARLY
from compiler.cost.overlap import pipelined, resting
from compiler.cost.transfer import Flows, Path, RepeatedTransfer, Transfer, passed_on, traffic
from compiler.cost.work import array_work, least_product_cycles
from compiler.geometry.boxes import keys_of
from compiler.schedule.tiling.problem import TilePrices, TilingProblem
from compiler.target.array_mapping import axis_of, on_columns, pays, pixel_blocks, pixels_together
from compiler.target.equal_engines import columns as columns_shared
from compiler.target.layout import links_of, loaded_of, loaded_once, room_of, started
from compiler.target.machine import slots_of_sums, sums_apart, temporary_type
from compiler.target.narrow_weights import fits_tiles, row_of, widening
from compiler.target.product_tiles import TileSizes, VectorProducts, read_extents
from compiler.target.start_sums import factors_of
from compiler.target.vector import overlapped
from compiler.tensor_ir.nest import Access, order_of
from simmodel.arch.element_types import WINOGRAD, accumulator_of, per_item, size_of
from simmodel.arch.matrix_cycles import streams, whole_tiles
from simmodel.isa.region import cached_property


def price(problem: TilingProblem, choice: TileSizes) -> TilePrices:
    """Memory and cycles of every candidate in `choice`."""
    return _Candidates(problem, choice).prices()


def prices_of(asked: Sequence[tuple[TilingProblem, TileSizes]]) -> list[TilePrices]:
    """The same of the candidates of several problems of one layer, which differ in their parts;
    those that are alike at once, as an array costs little more than a number."""
    found = dict[int, TilePrices]()
    for positions in _alike([problem for problem, _ in asked]):
        problems, choices = zip(*(asked[position] for position in positions), strict=True)
        counts = [choice.shape[0] for choice in choices]
        ends = list(accumulate(counts))

        def among(values: Sequence[Any], counts: Sequence[int] = counts) -> Any:
            if all(value == values[0] for value in values):
                return values[0]
            return np.repeat(np.array(values), counts).reshape(-1, 1, 1, 1)

        columns = zip(*(choice.sizes[:4] for choice in choices), strict=True)
        sizes = *map(np.concatenate, columns), *choices[0].sizes[4:]
        priced = price(problems[0].at_once(problems, among), TileSizes(*sizes))
        for position, count, end in zip(positions, counts, ends, strict=True):
            found[position] = TilePrices(
                *(c[end - count : end] if np.shape(c)[:1] == (ends[-1],) else c for c in priced)
            )
    return [found[position] for position in range(len(asked))]


def _alike(problems: Iterable[TilingProblem]) -> Iterable[list[int]]:
    """Positions of problems that can be priced at once."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        found[problem.alike_with].append(position)
    return found.values()


def least_product(problem: TilingProblem) -> tuple[float, float]:
    """Cycles of the matrix and of the vector engine that no tiles undercut, were operands at hand
    and another product just before."""
    arch = problem.arch
    whole = _Candidates(problem, TileSizes(*(*map(problem.extent, problem.dims), 0)))
    tail = sum(work.of(whole.sizes).least for work in problem.vector_works)
    choice, dtype, inner = whole.choice, problem.rate_type, 0.0
    depth = choice.k * whole.positions
    if problem.on_array:
        taken, taps = whole._as_taken(choice)
        ways = {(choice.pixels, choice.n, depth)}  # lines may be no whole number of pixels together
        ways.add((taken.pixels, taken.n, choice.k * math.prod(taps.values())))
        inner = min(least_product_cycles(arch, dtype, *way) for way in ways) / arch.matrix.units
    else:
        each = arch.factor("vector.product", "multiply")
        tail += choice.pixels * choice.n * depth * each / arch.vector.most_elements
    return float(problem.repeats * inner), float(problem.repeats * tail)


def products_in_one_piece(problems: Sequence[TilingProblem]) -> list[float]:
    """Of problems of one layer, cycles of the busier engine of the candidate that cuts nothing,
    with operands that come from memories on chip."""
    found = dict[int, float]()
    for positions in _alike(problems):
        own = [problems[position] for position in positions]

        def among(values: Sequence[Any]) -> Any:
            return values[0] if all(value == values[0] for value in values) else np.array(values)

        sizes = zip(*(map(problem.extent, problem.dims) for problem in own), strict=True)
        choice = TileSizes(*(*map(np.array, sizes), 0))
        engines = _Candidates(own[0].at_once(own, among), choice).engine_cycles
        busier = np.broadcast_to(np.maximum(engines.matrix, engines.vector), len(own))
        found |= dict(zip(positions, busier.tolist(), strict=True))
    return [found[position] for position in range(len(problems))]


class _EngineCycles(NamedTuple):
    """What candidates take of engines."""

    matrix: Any
    """All products, were there another one just before."""
    vector: Any
    inner: Any
    """One product of a tile."""
    gap: Any
    """What the first product takes longer."""
    tail: Any
    """What the vector engine takes behind a tile."""
    widened: Any
    """What it takes for one load of weights."""


class _Candidates:
    """How one layer may be cut: sizes of tiles, and what follows from them."""

    def __init__(self, problem: TilingProblem, choice: TileSizes) -> None:
        self.problem, self.choice, self.arch = problem, choice, problem.arch
        self.layer, self.head, self.roles = problem.layer, problem.layer.head, problem.roles
        pairs = zip(problem.dims, choice.sizes, strict=False)
        b, y, x, cols, k, kernel = (-(-problem.extent(dim) // size) for dim, size in pairs)
        self.turns = {"lead": problem.repeats, "rows": b * y * x, "cols": cols, "deep": k * kernel}
        self.several = {loop: turns > 1 for loop, turns in self.turns.items()}
        """Which loops run more than once."""
        self.tiles = problem.repeats * (self.turns["rows"] * cols)
        """Of the result."""
        self.split = self.several["deep"]
        """Whether the reduction is."""
        self.positions: Any = problem.taps
        """Kernel positions of a tile."""
        if problem.rows is not None:
            self.positions = self.positions // problem.extent(problem.rows) * choice.i

    def _operand_loads(self, moving: Collection[str], other: str) -> tuple[Any, Any]:
        """How often is loaded what `moving` loops move, and whether the one over `other` is around
        these loads."""
        lead = ("lead", "cols") if self.problem.lead_moves_weights else ("cols", "lead")
        found = []
        for loops in (("lead", "rows", "cols", "deep"), (*lead, "rows", "deep")):
            total, count = 1, 1  # type: Any, Any
            outside, around = False, False  # type: Any, Any
            moves = True  # all loops so far
            for loop in loops:
                turns, several = self.turns[loop], self.several[loop]
                total = total * turns
                if loop == other:
                    outside = several
                if loop in moving:
                    count = total if moves else np.where(several, total, count)
                    around = around | (outside & several)
                elif several is not False:
                    moves = False
            found.append((count, around))
        (outer, inside), (inner, beside) = found
        first = self.choice.order == 0
        return np.where(first, outer, inner), np.where(first, inside, beside)

    @cached_property
    def left(self) -> tuple[Any, Any]:
        """Loads of the left operand, and whether the loop over columns is around them."""
        return self._operand_loads(("lead", "rows", "deep"), "cols")

    @cached_property
    def right(self) -> tuple[Any, Any]:
        """Loads of the right operand, and whether loops over rows are around them."""
        lead = ("lead",) * self.problem.lead_moves_weights
        return self._operand_loads((*lead, "cols", "deep"), "rows")

    def _size(self, dim: int) -> Any:
        """Positions of one loop of the head within a tile."""
        if dim in self.problem.dims:
            return self.choice.sizes[self.problem.dims.index(dim)]
        return 1 if dim < self.head.rank else self.head.dims[dim].extent

    @cached_property
    def sizes(self) -> list[Any]:
        """Of a tile of the result."""
        return [self._size(dim) for dim in range(self.head.rank)]

    @cached_property
    def source_elements(self) -> Any:
        """Of the left operand in a tile."""
        problem, choice, found = self.problem, self.choice, self.roles
        window = problem.covered(choice.y, found.y) * problem.covered(choice.x, found.x)
        return choice.b * window * choice.k

    @cached_property
    def engine_cycles(self) -> _EngineCycles:
        """What the engines that compute take, whatever DRAM does meanwhile."""
        deep, tail = self.turns["deep"], self._behind[0]
        inner, gap = self.product_cycles()
        if self.problem.on_array:
            inner = np.maximum(inner, self._streamed())
        else:
            inner, tail, gap = np.zeros(1), tail + deep * inner, 0.0
        widened = self._widened()
        vector = self.tiles * tail
        if self.problem.weight.narrow is not None:
            vector = vector + self.right[0] * widened
        matrix = self.tiles * deep * inner + self._row[1]
        return _EngineCycles(matrix, vector, inner, gap, tail, widened)

    @cached_property
    def _row(self) -> tuple[Any, Any]:
        """Bytes of the rows from which sums start, and cycles of the products that make them."""
        bias, problem, columns = self.head.bias, self.problem, self.choice.n
        if bias is None or not started(self.head, self.layer.tensors):
            return 0, 0.0
        once = self._loaded_before_loops(bias) | (bias not in problem.others)
        columns = np.where(once, problem.extent(self.roles.col), columns)
        columns = columns * pixels_together(self.head)
        slots = np.where(once | (self.turns["cols"] == 1), 1, problem.slots)
        times = np.where(once, 1, self._operand_loads(("cols",), "rows")[0])
        held = self.layer.tensors[bias.tensor]
        work = array_work(self.arch, held.digits, (1, 1), columns, len(factors_of(held)))
        return 4 * columns * slots, times * work.cycles

    def prices(self) -> TilePrices:
        """Memory and cycles."""
        problem = self.problem
        need, fits = self._fits(self._behind[1])
        behind, vector, inner, gap, tail, once_wide = self.engine_cycles
        matrix = behind + gap
        if sums_apart(self.layer.binding):  # with one slot, products wait until sums are finished
            matrix = matrix + np.where(self._sums[1] == 1, vector, 0.0)
        flows = tuple(self._flows())
        moved = traffic(self.arch, problem.cores.count, flows)
        loads = [flow for flow in flows if not flow.way.store]
        arrivals = reduce(np.maximum, (flow.count for flow in loads), 1)
        every, once = moved.load
        every = np.maximum(every, passed_on(problem.slots, flows, matrix))
        stages = ((every, once), (matrix, inner + gap), (vector, tail + once_wide), moved.store)
        total = pipelined(problem.slots, stages, moved.far.values())
        if loads:
            total = total + self._held_back(loads, np.maximum(inner, tail))
        rest = resting(problem.slots, total, stages)
        return TilePrices(
            total, matrix, vector, moved.longest, moved.bytes["dram"], need, every, moved.store[0],
            self.tiles, arrivals, moved.lead, rest, gap, moved.bytes.get("flash", 0.0), once, fits,
        )  # fmt: skip

    def _held_back(self, loads: Sequence[RepeatedTransfer], work: Any) -> Any:
        """Cycles for which `work` on a tile waits for what the outer of its two loops loads: that
        stands between two loads of the inner loop's tiles, which run ahead by as many tiles as
        there are slots. Own parts that are early are so within a sum: each waits for its first
        piece."""
        slots, repeats = self.problem.slots, self.problem.repeats
        late, rows, cols = self.choice.order == 1, self.turns["rows"], self.turns["cols"]
        outer, inner = np.where(late, cols, rows), np.where(late, rows, cols)
        ahead: Any = 0.0
        around: Any = 0.0
        refill: Any = 0.0
        for flow in loads:
            passed = flow.way.early & (flow.once.passing > 0)
            refill = np.maximum(refill, np.where(passed, flow.once.cycles, 0.0))
            every = flow.count >= self.tiles
            ahead = ahead + np.where(~every & (flow.count > 1), flow.once.busy, 0.0)
            around = around + np.where(every, 2 * flow.once.busy, 0.0)
        waits = (around > 0) & (ahead > 0) & (inner > slots) & ~self.split
        waiting = np.maximum(ahead + around - slots * work, 0.0)
        refills = (self.tiles - 1) * np.where(self.split, refill, 0.0)
        return np.where(waits, repeats * (outer - 1) * waiting, refills)

    def _flows(self) -> Iterator[RepeatedTransfer]:
        """What the product and its tail load, and the store of the result."""
        problem, tensors, matrix = self.problem, self.layer.tensors, self.arch.matrix
        left, right = self.head.operands[:2]
        array = problem.on_array
        if problem.loads_input:
            count, around = self.left
            alike, early = problem.alike(left, True, around), self._is_early(count)
            way = problem.load(left.tensor, matrix.input if array else "local", alike, early)
            order = problem.left_axes if array else ()
            once = way.box(problem.source, read_extents(left, self._size), order)
            yield RepeatedTransfer(way, count, once)
        if problem.loads_weights:
            count, around = self.right
            alike, early = problem.alike(right, around, True), self._is_early(count)
            way = problem.load(right.tensor, matrix.weights if array else "local", alike, early)
            constant = problem.weight.data is not None
            yield RepeatedTransfer(way, count, self._transfer(right, way), constant)
        for access in problem.others:
            # Whether tiles of other rows need other parts of it.
            rows = (d for d in range(self.head.rank) if d != self.roles.col)
            follows = any(access.uses(d) and np.all(problem.box[d] > 1) for d in rows)
            before = self._loaded_before_loops(access)
            around = ~before & (follows | ((self.choice.order == 0) & (self.turns["cols"] > 1)))
            near = matrix.weights if tensors[access.tensor].digits else "local"
            way = problem.load(access.tensor, near, problem.alike(access, around, ~before))
            count = self.tiles if follows else self._operand_loads(("cols",), "rows")[0]
            count = np.where(before, 1, count)
            constant = tensors[access.tensor].data is not None
            yield RepeatedTransfer(way, count, self._transfer(access, way, before), constant)
        if problem.stores:
            way = problem.store()
            yield RepeatedTransfer(way, self.tiles, way.box(self.layer.result, self.sizes))

    def _is_early(self, count: Any) -> Any:
        """Whether cores load their own parts early of what is loaded `count` times."""
        return (count > EARLY) & (self.choice.early | (self.problem.slots >= EARLY))

    def _operand_slots(self, name: str) -> Any:
        """Slots of an operand of the product that is loaded piece by piece."""
        problem = self.problem
        more = self.choice.early & (name not in problem.shared)
        return np.where(more, max(EARLY, problem.slots), problem.slots)

    def _transfer(self, access: Access, way: Path, before: Any = np.False_) -> Transfer:
        """One load of what `access` reads in a tile, or in all of them `before` the loops;
        constants lie in DRAM as they are loaded."""
        tensor, sizes = self.layer.tensors[access.tensor], read_extents(access, self._size)
        if tensor.data is None:
            return way.box(tensor, sizes)
        size = loaded_of(tensor, sizes)
        return way.run(np.where(before, self.problem.part_bytes(access), size))

    def _loaded_before_loops(self, access: Access) -> Any:
        """Whether all that `access` reads is loaded before the loops."""
        problem, weight = self.problem, self.problem.weight
        if self.layer.tensors[access.tensor].data is None or access.pad is not None:
            return np.False_
        if weight.data is None or not problem.loads_weights:
            return np.False_
        weights = self.positions * self.choice.n * self.choice.k * size_of(weight.dtype)
        once = loaded_once(problem.part_bytes(access), problem.slots * weights)
        return (self.right[0] > 1) & once

    def _widened(self) -> Any:
        """Cycles of the vector engine for one load of weights that memory holds narrow."""
        problem, vector = self.problem, self.arch.vector
        narrow = problem.weight.narrow
        if narrow is None or not problem.loads_weights:
            return 0.0
        sizes = read_extents(self.head.operands[1], self._size)
        elements, row, width = math.prod(sizes), row_of(self.head), self.choice.n
        longest = width if vector.max_extent is None else vector.max_extent
        # One instruction has rows of one block at most where it walks two dimensions.
        rows = narrow.unit(row, sizes[row])
        rows = rows if vector.rank > 2 else np.minimum(rows, narrow.blocks[row])
        pieces = -(-elements // (rows * np.minimum(width, longest)))
        startup = vector.startup.cycles(self.arch.clock)
        return elements * widening(narrow, problem.weight.dtype, self.arch) + pieces * startup

    @cached_property
    def _behind(self) -> tuple[Any, Any]:
        """Cycles of the vector engine, and those beside it, behind the product of a tile, and bytes
        of its buffers."""
        layer, tensors, inside = self.layer, self.layer.tensors, self.layer.inside
        wide, elements = size_of(temporary_type(self.arch)), self.choice.outputs
        whole = math.prod(map(self.problem.extent, self.problem.dims[:4]))
        pairs = zip(layer.nests, layer.bindings, strict=True)
        links = [len(links_of(nest, tensors, way, self.arch)) for nest, way in pairs]
        cycles: Any = 0.0
        if links[0] or len(layer.nests) > 1:
            works = self.problem.vector_works
            each = ((work.way.finisher, work.of(self.sizes).cycles) for work in works)
            cycles = overlapped(each, self.tiles)
        # Values between the instructions of one nest, and between nests: all in one slot.
        space: Any = sum(count > 1 for count in links) * wide * elements
        space = space + (len(layer.nests) - 1 - layer.binding.bare) * elements * wide
        for nest in layer.nests[1:]:
            for access in nest.operands:
                tensor = tensors[access.tensor]
                outside = access.tensor not in inside and access.tensor not in self.problem.held
                if outside:
                    taken = self.problem.slots * elements * size_of(tensor.dtype)
                    space = space + taken * (tensor.elements >= whole)
        return cycles, space

    @cached_property
    def _sums(self) -> tuple[Any, Any]:
        """Bytes of a tile's partial sums, and slots for them."""
        sums = self.choice.outputs * size_of(accumulator_of(self.problem.source.dtype))
        return sums, slots_of_sums(self.layer.binding, self.arch, sums, self.problem.slots)

    def _fits(self, space: Any) -> tuple[Any, Any]:
        """Bytes of local memory, with `space` behind the product, and whether every other memory
        holds its share."""
        problem, arch, binding = self.problem, self.arch, self.layer.binding
        slots, outputs = problem.slots, self.choice.outputs
        matrix, source = arch.matrix, problem.source
        kept = self.split | (not binding.direct) | (matrix.granularity == "tile")
        kept = kept | (problem.taps > 1 and matrix.granularity != "conv")
        sums = np.where(kept, math.prod(self._sums), 0)
        local = space
        if problem.loads_input:
            a_space = self.source_elements * size_of(source.dtype)
            several = self._operand_slots(source.name)
            local = local + a_space * np.where(self.left[0] > 1, several, 1)
        if problem.stores:
            local = local + outputs * size_of(self.layer.result.dtype) * slots
        added = self.head.added
        if added is not None and added in problem.others:
            local = local + outputs * size_of(self.layer.tensors[added.tensor].dtype) * slots
        for access in problem.others:
            if not self.layer.tensors[access.tensor].digits:
                local = local + self._loaded_before_loops(access) * problem.part_bytes(access)
        if passed := len(self.layer.handed_over):
            local = local + passed * outputs * size_of(temporary_type(arch)) * (slots - 1)
        shares = defaultdict[str, Any](int, local=local)
        for role in (matrix.weights, binding.sums):  # digits, and the rows that they become
            shares[role] = shares[role] + self._row[0]
        if problem.loads_weights:
            key = next(key for key in keys_of(self.head) if key[2])
            w_space = room_of(self.layer, key, read_extents(self.head.operands[1], self._size))
            several = self._operand_slots(problem.weight.name)
            w_space = w_space * np.where((self.right[0] > 1) | (problem.repeats > 1), several, 1)
            near = matrix.weights if problem.on_array else "local"
            shares[near] = shares[near] + w_space
        shares[binding.sums] = shares[binding.sums] + sums
        fits: Any = True
        narrow = problem.weight.narrow
        if narrow is not None and problem.loads_weights:
            fits = fits_tiles(narrow, row_of(self.head), self.choice.k, self.choice.n)
        for role, memory in arch.memories.on_chip().items():
            if role != "local":  # whoever asks knows how much of it there is
                fits = fits & (shares[role] <= memory.size)
        return shares["local"], fits

    def _streamed(self) -> Any:
        """Cycles of one tile's operands between the matrix engine and memories on chip."""
        problem, choice, matrix, found = self.problem, self.choice, self.arch.matrix, self.roles
        if matrix.granularity == "tile":
            return 0.0
        item, size = size_of(problem.source.dtype), size_of(self.layer.result.dtype)
        taken, taps = self._as_taken(choice)
        pixels, times = self._blocks(choice, taken)
        positions = math.prod(taps.values())
        left, right = streams(matrix, pixels, taken.n, choice.k * positions)
        flows = Flows(self.arch)
        if matrix.granularity == "conv":
            slices = (choice.k < problem.extent(found.k)) & (not problem.loads_input)
            elements, wide = self.source_elements, self._merged_taps(taps)
            run = np.where(slices, choice.k * item, elements * item)
            # Windows that overlap are read one by one.
            windows = choice.b * problem.covered(choice.y, found.y) * choice.x * wide * choice.k
            size_in = np.where(wide > 1, windows, elements) * item
            run = np.where(wide > 1, wide * choice.k * item, run)
            flows.add(matrix.input, size_in, run, times=left)
        else:
            size_in = taken.pixels * choice.k * item
            flows.add(matrix.input, size_in, size_in, times=left * positions)
        kind = problem.weight.multiplied
        weights = math.prod(read_extents(self.head.operands[1], self._size))
        weights = weights * size_of(kind) / per_item(kind)
        flows.add(matrix.weights, weights, weights, times=right * times)
        inside = choice.outputs * size_of(accumulator_of(problem.source.dtype)) * self.split
        flows.add(self.layer.binding.sums, inside, np.maximum(inside, 1), write=True)
        flows.add(self.layer.binding.sums, inside, np.maximum(inside, 1))
        if self.layer.binding.direct and len(self.layer.nests) == 1:
            slices = (choice.n < problem.extent(found.col)) & (not problem.stores)
            run = np.where(slices, choice.n * size, choice.outputs * size)
            flows.add("local", choice.outputs * size / self.turns["deep"], run, write=True)
        if self.head.added is not None:
            more = choice.outputs * size_of(self.layer.tensors[self.head.added.tensor].dtype)
            flows.add("local", more / self.turns["deep"], more)
        return flows.longest()

    def product_cycles(self) -> tuple[Any, Any]:
        """Cycles of its engine for one tile (or one piece of its reduction), start-ups included:
        right behind another one, and what it takes longer behind a gap."""
        arch, layer, result = self.arch, self.layer, self.layer.result
        units = len(arch.units(layer.binding.adder))
        # The sizes of a choice as the result lies in memory, slowest first.
        names = dict(zip(self.problem.dims, "byxn", strict=False))
        walked = [names[d] for d in order_of(result.shape, result.storage.strides) if d in names]
        columns = columns_shared(self.head, layer.binding, arch)
        choice = self.choice.shared(walked, units, columns)
        if not self.problem.on_array:
            return VectorProducts(self.head, layer.tensors, arch, units).cycles(choice), 0.0
        taken, taps = self._as_taken(choice)
        wide = self._merged_taps(taps)
        work = array_work(
            arch, self.problem.rate_type, self._blocks(choice, taken), taken.n,
            choice.k * wide, math.prod(taps.values()) // wide,
        )  # fmt: skip
        return work.cycles, work.gap

    def _as_taken(self, choice: TileSizes) -> tuple[TileSizes, dict[int, Any]]:
        """The sizes of a tile as the array takes it, and kernel positions by their loop."""
        sizes = [self._size(dim) for dim in range(len(self.head.dims))]
        found = self.roles
        for dim, size in zip((found.x, found.col), (choice.x, choice.n), strict=True):
            if dim is not None:
                sizes[dim] = size
        made = on_columns(self.head, sizes)
        x, n = (1 if dim is None else made[dim] for dim in (found.x, found.col))
        return replace(choice, x=x, n=n), {tap.dim: made[tap.dim] for tap in found.taps}

    def _blocks(self, cut: TileSizes, choice: TileSizes) -> tuple[Any, Any]:
        """Pixels of the largest block that the engine takes at once, and blocks of a tile that is
        `cut` so and taken as `choice`."""
        limit = self.arch.matrix.max_pixels
        kind = self.problem.rate_type
        if limit is None:
            return choice.b * whole_tiles(kind, choice.y, choice.x), 1
        # Lines lie one behind the other in buffers of whole lines, where no window needs a border.
        line = (self.problem.taps == 1) & (cut.x == self.problem.extent(self.roles.x))
        apart, together = (choice.b, choice.y, choice.x), (1, 1, choice.pixels)
        shape = np.shape(choice.pixels)
        extents = (np.where(line, one, many) for one, many in zip(together, apart, strict=True))
        sizes = np.stack([np.broadcast_to(extent, shape).ravel() for extent in extents])
        few, which = np.unique(sizes, axis=1, return_inverse=True)
        most, count = np.array([pixel_blocks(limit, size, kind) for size in few.T.tolist()]).T
        at = which.reshape(shape)
        return most[at], count[at]

    def _merged_taps(self, taps: Mapping[int, Any]) -> Any:
        """Of the kernel positions by loop, those in one reduction, because they lie side by side in
        both operands."""
        problem, source, matrix = self.problem, self.problem.source, self.arch.matrix
        tap, k, depth = problem.joined_tap, self.roles.k, self.choice.k
        if problem.rate_type in WINOGRAD or tap is None or k is None or problem.weight.data is None:
            return 1
        last = axis_of(self.head.operands[0], k)
        assert last is not None
        # Slices of the channels lie side by side where both operands are loaded as such, but for a
        # smaller one.
        loaded = problem.loads_input and problem.loads_weights
        even = loaded & (problem.extent(k) % depth == 0)
        better = pays(matrix, source.dtype, depth, self.head.dims[tap.dim].extent)
        return np.where((even | (depth == source.shape[last])) & better, taps[tap.dim], 1)

"""Prices of candidates for a sum of products: memory needed and cycles expected.

Every quantity is an array over all candidates of one split, so the whole search is a handful of
numpy expressions. What is counted per tile is multiplied by how often it happens; engines overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from compiler.cost import copy_cycles, overlapped, path, rounded, shared_rate
from compiler.fuse.layer import Layer
from compiler.nest.ir import Nest, Tensor
from compiler.plan.layer import vector_steps
from compiler.tile.machine import Route, cost_class, route, temporary_type
from compiler.tile.operands import Flows
from compiler.tile.roles import Roles
from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, product_type, size_of
from simmodel.isa.cycles import fold_interval, product_cycles, streams
from simmodel.isa.matrix import tile_limits


@dataclass(frozen=True)
class Problem:
    """One layer on one split: what all candidates have in common."""

    layer: Layer
    arch: Arch
    found: Roles
    box: tuple[int, ...]
    """Sizes of the largest core's part of the result."""
    cores: int
    slots: int
    held: frozenset[str] = frozenset()
    """Tensors that the group keeps on chip: neither loaded nor stored here."""
    resident: bool = False
    """Constants are on chip as well."""
    shared: frozenset[str] = frozenset()
    """Tensors that are loaded from shared memory, or stored there; all others: DRAM."""

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
    def way(self) -> Route:
        """How the head runs on this machine."""
        return route(self.head, self.layer.tensors, self.arch)

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
        walked = (self.found.y, self.found.x, self.found.col)
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

    def extent(self, dim: int | None) -> int:
        """Positions of one loop within the part."""
        if dim is None:
            return 1
        return self.box[dim] if dim < self.head.rank else self.head.dims[dim].extent

    def covered(self, size: Any, dim: int | None) -> Any:
        """Input positions that `size` output positions of a row loop touch."""
        if dim is None:
            return 1
        for tap in self.found.taps:
            if tap.row == dim:
                window = (self.head.dims[tap.dim].extent - 1) * tap.dilation
                return (size - 1) * tap.stride + window + 1
        return size


@dataclass(frozen=True)
class Choice:
    """Tile sizes as arrays over candidates; `order` 0: rows outside columns, 1: inside."""

    y: Any
    x: Any
    n: Any
    k: Any
    order: Any

    @property
    def pixels(self) -> Any:
        """Output pixels of a tile."""
        return self.y * self.x

    @property
    def outputs(self) -> Any:
        """Result elements of a tile."""
        return self.y * self.x * self.n


@dataclass(frozen=True)
class Turns:
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


@dataclass(frozen=True)
class Tail:
    """Vector work behind the product, per tile."""

    cycles: Any
    loaded: Mapping[str, Any]
    """Memory -> bytes loaded for it."""
    space: Any
    """Bytes of its buffers."""


@dataclass(frozen=True)
class Price:
    """The answer, per candidate."""

    total: Any
    matrix: Any
    vector: Any
    memory: Any
    bytes: Any
    """Of DRAM."""
    need: Any
    """Bytes of local memory."""
    fits: Any
    load: Any
    """Cycles of the load engine."""
    store: Any
    tiles: Any
    """Pieces of the result."""


def price(problem: Problem, choice: Choice) -> Price:
    """Memory and cycles of every candidate in `choice`."""
    arch = problem.arch
    turns, tail = turns_of(problem, choice), _tail(problem, choice)
    a_size = problem.covered(choice.y, problem.found.y) * problem.covered(
        choice.x, problem.found.x
    ) * choice.k  # fmt: skip
    w_bytes = problem.taps * choice.n * choice.k * size_of(problem.weight.dtype)
    need, fits = _fits(problem, choice, turns, tail, (a_size, w_bytes))
    cycles = np.maximum(_product(problem, choice), _streamed(problem, choice, a_size, turns))
    startup = arch.matrix.startup.cycles(arch.clock)
    tiles = problem.repeats * turns.tiles
    matrix = tiles * turns.deep * (cycles + startup)
    vector = tiles * tail.cycles
    load, store, moved, ends = _traffic(problem, choice, turns, tail, (a_size, w_bytes))
    memory = np.maximum(np.maximum(load, store), moved["dram"] / arch.dram_bytes_per_cycle)
    memory = np.maximum(memory, moved["shared"] / shared_rate(arch, problem.cores))
    total = overlapped(matrix, vector, memory) + ends + tail.cycles + cycles
    return Price(total, matrix, vector, memory, moved["dram"], need, fits, load, store, tiles)


def turns_of(problem: Problem, choice: Choice) -> Turns:
    """Loop counts, and loads that follow from which loops move which operand."""
    found = problem.found
    rows = -(-problem.extent(found.y) // choice.y) * -(-problem.extent(found.x) // choice.x)
    cols = -(-problem.extent(found.col) // choice.n)
    deep = -(-problem.extent(found.k) // choice.k)
    every = rows * cols * deep
    outer = choice.order == 0
    between = problem.repeats > 1 and not problem.lead_moves_weights
    whole_input = np.where(outer | ((rows == 1) & (not between)), rows, rows * cols)
    whole_weights = np.where(~outer | (cols == 1), cols, rows * cols)
    return Turns(
        rows,
        cols,
        deep,
        np.where(deep > 1, every, whole_input),
        np.where(deep > 1, every, whole_weights),
    )


def _traffic(
    problem: Problem, choice: Choice, turns: Turns, tail: Tail, sizes: tuple[Any, Any]
) -> tuple[Any, Any, Mapping[str, Any], Any]:
    """Cycles of loads and of stores on one core, bytes of all by memory, and what nothing hides."""
    arch, cores = problem.arch, problem.cores
    homes = tuple(problem.home(t.name) for t in (problem.source, problem.weight))
    load_engine = path(arch, homes[0], arch.matrix.input)
    weight_engine = path(arch, homes[1], arch.matrix.weights)
    out = problem.home(problem.layer.result.name)
    store_engine = path(arch, "local", out)
    a_size, w_bytes = sizes
    run, pieces = _input_runs(problem, choice, a_size)
    a_moved = rounded(arch, a_size * size_of(problem.source.dtype), run, homes[0])
    result = size_of(problem.layer.result.dtype)
    whole = choice.n >= problem.extent(problem.found.col)
    runs = np.where(whole, choice.n * choice.x, choice.n) * result
    stored = rounded(arch, choice.outputs * result, runs, out)
    a_count = problem.repeats * turns.input
    refilled = (turns.weights > 1) & (turns.split | (choice.order == 0))
    w_count = turns.weights * np.where(problem.lead_moves_weights | refilled, problem.repeats, 1)
    tiles = problem.repeats * turns.tiles
    a_count, w_count = a_count * problem.loads_input, w_count * problem.loads_weights
    stored = stored * problem.stores
    a_once = copy_cycles(arch, load_engine, a_moved, cores, pieces, far=homes[0])
    w_once = copy_cycles(arch, weight_engine, w_bytes, cores, far=homes[1])
    load, weights = a_count * a_once, w_count * w_once
    for home, size in tail.loaded.items():
        engine = path(arch, home, "local")
        load = load + tiles * copy_cycles(arch, engine, size, cores, far=home) * (size > 0)
    load = load + weights if weight_engine is load_engine else np.maximum(load, weights)
    store_once = copy_cycles(arch, store_engine, stored, cores, far=out, store=True)
    store_once = store_once * problem.stores
    moved = {home: cores * tiles * size for home, size in tail.loaded.items()}
    for home, count, size in (
        (homes[0], a_count, a_moved), (homes[1], w_count, w_bytes), (out, tiles, stored)
    ):  # fmt: skip
        moved[home] = moved[home] + cores * count * size
    ends = a_once * problem.loads_input + w_once * problem.loads_weights + store_once
    return load, tiles * store_once, moved, ends


def _input_runs(problem: Problem, choice: Choice, a_size: Any) -> tuple[Any, Any]:
    """Bytes of each contiguous run of the input in DRAM, and pieces that a load falls into."""
    item = size_of(problem.source.dtype)
    axis = next(
        (
            axis
            for axis, affine in enumerate(problem.head.operands[0].index)
            if problem.found.k is not None and affine.coefficient(problem.found.k)
        ),
        None,
    )
    channels_last = axis is not None and problem.source.storage.strides[axis] == 1
    if channels_last:
        whole = choice.k >= problem.extent(problem.found.k)
        run = np.where(whole, choice.k * choice.x, choice.k)
        return run * item, a_size / run
    return choice.x * item, a_size


def _tail(problem: Problem, choice: Choice) -> Tail:
    layer, arch = problem.layer, problem.arch
    wide = size_of(temporary_type(arch))
    elements = choice.outputs
    lanes = arch.vector.wide_lanes or arch.vector.lanes
    startup = arch.vector.startup.cycles(arch.clock)
    vectors = choice.pixels * np.ceil(choice.n / lanes)
    late = vector_steps(problem.head, problem.way, arch)
    cycles: Any = late * (startup + vectors)
    loaded: dict[str, Any] = {"dram": 0 * elements, "shared": 0 * elements}
    space: Any = (wide if late > 1 else 0) * elements
    for nest in layer.nests[1:]:
        cycles = cycles + startup + vectors * getattr(arch.vector.cost, cost_class(nest))
        space = space + elements * wide
        for access in nest.operands:
            tensor = layer.tensors[access.tensor]
            if access.tensor in layer.inside or access.tensor in problem.held:
                continue
            if tensor.elements >= elements.max():
                item = size_of(tensor.dtype)
                whole = choice.n >= problem.extent(problem.found.col)
                run = np.where(whole, choice.n * choice.x, choice.n) * item
                home = problem.home(access.tensor)
                loaded[home] = loaded[home] + rounded(arch, elements * item, run, home)
                space = space + problem.slots * elements * size_of(tensor.dtype)
    return Tail(cycles, loaded, space)


def _fits(
    problem: Problem, choice: Choice, turns: Turns, tail: Tail, sizes: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Bytes of local memory, and whether every memory holds its share."""
    arch, slots = problem.arch, problem.slots
    a_size, w_bytes = sizes
    again = bool(problem.lead)
    a_space = a_size * size_of(problem.source.dtype) * np.where((turns.input > 1) | again, slots, 1)
    w_space = w_bytes * np.where((turns.weights > 1) | again, slots, 1)
    a_space, w_space = a_space * problem.loads_input, w_space * problem.loads_weights
    kind = size_of(accumulator_of(problem.source.dtype))
    kept = turns.split | (not problem.way.direct) | (arch.matrix.granularity == "tile")
    kept = kept | (problem.taps > 1 and arch.matrix.granularity != "conv")
    sums = choice.outputs * kind * np.where(kept, 1 if problem.way.direct else slots, 0)
    result = choice.outputs * size_of(problem.layer.result.dtype) * slots * problem.stores
    local = a_space + result + tail.space
    if len(problem.layer.nests) > 1:
        local = local + choice.outputs * size_of(temporary_type(arch)) * slots
    shares = {"local": local, "weights": 0, "accumulators": 0}
    shares[arch.matrix.weights] = shares[arch.matrix.weights] + w_space
    shares[problem.way.sums] = shares[problem.way.sums] + sums
    fits: Any = True
    for role, memory in arch.memories.on_chip().items():
        fits = fits & (shares.get(role, 0) <= memory.size)
    return shares["local"], fits


def _streamed(problem: Problem, choice: Choice, a_size: Any, turns: Turns) -> Any:
    """Cycles of one tile's operands between the matrix engine and memories on chip."""
    arch, found = problem.arch, problem.found
    if arch.matrix.granularity == "tile":
        return 0.0
    item, size = size_of(problem.source.dtype), size_of(problem.layer.result.dtype)
    left, right = streams(arch.matrix, choice.pixels, choice.n, choice.k * problem.taps)
    flows = Flows(arch)
    if arch.matrix.granularity == "conv":
        slices = (choice.k < problem.extent(found.k)) & (not problem.loads_input)
        run = np.where(slices, choice.k * item, a_size * item)
        flows.add(arch.matrix.input, a_size * item, run, times=left)
    else:
        size_in = choice.pixels * choice.k * item
        flows.add(arch.matrix.input, size_in, size_in, times=left * problem.taps)
    weights = problem.taps * choice.n * choice.k * size_of(problem.weight.dtype)
    flows.add(arch.matrix.weights, weights, weights, times=right)
    sums = choice.outputs * size_of(accumulator_of(problem.source.dtype))
    inside = sums * turns.split
    flows.add(problem.way.sums, inside, np.maximum(inside, 1), write=True)
    flows.add(problem.way.sums, inside, np.maximum(inside, 1))
    if problem.way.direct and len(problem.layer.nests) == 1:
        slices = (choice.n < problem.extent(found.col)) & (not problem.stores)
        run = np.where(slices, choice.n * size, choice.outputs * size)
        flows.add("local", choice.outputs * size / turns.deep, run, write=True)
    return flows.longest()


def _product(problem: Problem, choice: Choice) -> Any:
    """Matrix cycles of one tile (or of one piece of its reduction)."""
    matrix = problem.arch.matrix
    dtype = product_type(problem.source.dtype)
    if matrix.granularity == "conv":
        return product_cycles(matrix, dtype, choice.pixels, choice.n, choice.k, problem.taps)
    if matrix.granularity == "gemm":
        return product_cycles(matrix, dtype, choice.pixels, choice.n, choice.k) * problem.taps
    rows, cols = tile_limits(problem.arch)
    length = np.minimum(choice.pixels, matrix.max_pixels or np.iinfo(np.int64).max)
    pieces = -(-choice.pixels // length) * -(-choice.n // cols) * -(-choice.k // rows)
    startup = matrix.startup.cycles(problem.arch.clock)
    inner = np.array([fold_interval(matrix, dtype, int(m), cols, rows) for m in length])
    first = product_cycles(matrix, dtype, length, cols, rows) - inner
    return pieces * problem.taps * (inner + startup) + first

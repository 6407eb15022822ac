"""Rules about the engines that compute: can they be fed, and have they what networks need?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from archgen.lint.subject import Check, LintedMachine, Sight
from simmodel.arch.dtype import accumulator_of, size_of
from simmodel.arch.record import Arch, Memory
from simmodel.isa.contraction import depthwise_cycles, product_cycles, streams
from simmodel.isa.matrix import tile_limits

# The product that suits an array best, as one instruction: its cycles and the bytes that it moves.

_FOLDS = 8
"""Times the array's own extent that channels have, where one instruction may cover that."""
_PIXELS = 4096
_KERNEL = 9
"""Kernel positions of a convolution that reads each input once."""


@dataclass(frozen=True)
class ArrayProduct:
    """M x K times K x N, at `positions` kernel positions."""

    arch: Arch
    m: int
    n: int
    k: int
    positions: int = 1

    @staticmethod
    def least(arch: Arch) -> ArrayProduct:
        """The smallest that has every cell of the array busy."""
        deep, wide = _limits(arch)
        rows = arch.matrix.rows
        shift = rows if arch.matrix.kind == "cube" else wide
        if arch.matrix.kind == "systolic" and arch.matrix.dataflow == "output-stationary":
            shift = rows
        return ArrayProduct(arch, shift, wide, deep)

    @staticmethod
    def best(arch: Arch) -> ArrayProduct:
        """The one with most reuse that one instruction covers, as far as there is room for its
        sums."""
        deep, wide = _limits(arch)
        row = wide * size_of(accumulator_of(arch.types[0]))
        sums = arch.memories.on_chip()[arch.matrix.output].size // 2
        pixels = max(1, min(_PIXELS, arch.matrix.max_pixels or _PIXELS, sums // row))
        if arch.matrix.granularity == "tile":
            return ArrayProduct(arch, pixels, wide, deep)
        positions = _KERNEL if arch.matrix.granularity == "conv" else 1
        return ArrayProduct(arch, pixels, wide * _FOLDS, deep * _FOLDS, positions)

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element."""
        return size_of(self.arch.types[0])

    @property
    def row_of_sums(self) -> int:
        """Bytes of the sums of one output pixel."""
        return self.n * size_of(accumulator_of(self.arch.types[0]))

    @property
    def cycles(self) -> int:
        """Of the array, right behind another such product."""
        matrix, dtype = self.arch.matrix, self.arch.types[0]
        return int(
            product_cycles(matrix, dtype, self.m, self.n, self.k, self.positions, behind=True)
        )

    def operand_bytes(self) -> Mapping[str, Mapping[str, int]]:
        """Bytes of its operands and its result, by memory and by what they are."""
        matrix, found = self.arch.matrix, dict[str, dict[str, int]]()
        found.setdefault(matrix.input, {})["inputs"] = self.m * self.k * self.itemsize
        found.setdefault(matrix.weights, {})["weights"] = self.k * self.n * self.itemsize
        found.setdefault(matrix.output, {})["results"] = self._results()
        return found

    def _results(self) -> int:
        """Bytes of the result, as it is written."""
        direct = self.arch.matrix.output == "local" and "requantize" in self.arch.matrix.writeback
        return self.m * self.n * self.itemsize if direct else self.m * self.row_of_sums

    def traffic(self) -> Mapping[str, tuple[int, int]]:
        """Bytes read and written by memory; inputs once for each kernel position that joins no
        other, as the machine charges them."""
        matrix, read, written = self.arch.matrix, dict[str, int](), dict[str, int]()
        left, right = streams(matrix, self.m, self.n, self.k * self.positions)
        inputs = self.m * self.k * self.itemsize * int(left)
        weights = self.k * self.n * self.positions * self.itemsize * int(right)
        read[matrix.input] = inputs
        read[matrix.weights] = read.get(matrix.weights, 0) + weights
        written[matrix.output] = self._results()
        if matrix.granularity == "tile":  # sums of the channels before
            read[matrix.output] = read.get(matrix.output, 0) + self.m * self.row_of_sums
            written[matrix.output] = self.m * self.row_of_sums
        return {role: (read.get(role, 0), written.get(role, 0)) for role in {**read, **written}}

    def waits(self) -> Mapping[str, float]:
        """Cycles that the ports of each memory need for it."""
        memories = self.arch.memories.on_chip()
        found = {}
        for role, (read, written) in self.traffic().items():
            memory = memories[role]
            if memory.split_ports:
                found[role] = max(
                    read / memory.bytes_per_cycle(), written / memory.bytes_per_cycle(True)
                )
            else:
                found[role] = (read + written) / memory.bytes_per_cycle()
        return found


def _limits(arch: Arch) -> tuple[int, int]:
    """Reduction and output channels that fill the array; of types that share cells, more."""
    deep, wide = tile_limits(arch)
    rate = next((r for t, r in arch.matrix.rate.items() if t == arch.types[0]), 1.0)
    return int(deep * max(rate, 1.0)), wide


_LAYER_PIXELS, _LAYER_CHANNELS, _LAYER_TAPS = 56 * 56, 96, 9
"""A depthwise layer of MobileNetV2."""
_REALS = ("fp32", "fp16", "bf16")
_NETWORKS = ("int8", *_REALS)
"""Types that a network is quantized to, or may have."""


def _array_starved(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    if not arch.matrix.present:
        return
    product = ArrayProduct.best(arch)
    waits = product.waits()
    slowest = max(waits, key=lambda role: waits[role])
    share = product.cycles / max(product.cycles, waits[slowest])
    if share < limit:
        read, written = (each / product.cycles for each in product.traffic()[slowest])
        memory = arch.memories.on_chip()[slowest]
        figure = (
            f"the array asks {slowest} for {read:,.4g} B and gives it {written:,.4g} B each cycle,"
            f" so it is busy {100 * share:.0f} % of the time at best"
        )
        usual = f"{slowest} has {_ports(memory)}"
        chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 256 B each way for 256 rows"
        yield Sight(("memories", slowest, "bank_width"), figure, usual, chip)


def _ports(memory: Memory) -> str:
    if not memory.split_ports:
        return f"{memory.bytes_per_cycle():,} B/cycle for both"
    return (
        f"{memory.bytes_per_cycle():,} B/cycle to read, {memory.bytes_per_cycle(True):,} to write"
    )


def _vector_starved(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, vector = seen.arch, seen.arch.vector
    narrow = min(size_of(name) for name in vector.types) if vector.types else 1
    wanted = vector.units * vector.elements(narrow) * narrow / vector.cost.simple
    memories = arch.memories.on_chip()
    carried = max(memories[role].bytes_per_cycle() for role in vector.reads)
    if carried < limit * wanted:
        figure = f"{vector.units * vector.lanes} lanes take {wanted:,.4g} B of each operand a cycle"
        usual = f"what they read carries {carried:,.4g} B/cycle"
        chip = "Google TPU v1 (Jouppi et al., ISCA 2017): 256 lanes and 256 B/cycle"
        yield Sight(("vector", "lanes"), figure, usual, chip)


def _vector_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, vector = seen.arch, seen.arch.vector
    if not arch.matrix.present:
        return
    widest = max(arch.types, key=arch.matrix.peak)
    cells = arch.matrix.units * arch.matrix.peak(widest)
    elements = vector.units * vector.lanes / vector.cost.simple
    if cells > limit * elements:
        figure = f"{elements:,.4g} elements in a cycle beside {cells:,.4g} MACs of {widest}"
        usual = (
            f"{math.ceil(cells / limit):,} at least: each result of a product passes once or more"
        )
        chip = "NVDLA: 16 beside 2048 MACs; Google TPU v1: 256 beside 65536"
        yield Sight(("vector", "lanes"), figure, usual, chip)


def _vector_extent(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    vector = seen.arch.vector
    if vector.max_extent is not None and vector.max_extent < limit * vector.lanes:
        figure = f"{vector.max_extent} elements in one instruction's row, {vector.lanes} lanes"
        usual = "a row fills the lanes once at least"
        chip = "Huawei DaVinci (Liao et al., HPCA 2021): 128 elements, 128 lanes"
        yield Sight(("vector", "max_extent"), figure, usual, chip)


def _startup_long(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    if not arch.matrix.present or arch.matrix.granularity != "tile":
        return
    cycles, startup = ArrayProduct.best(arch).cycles, arch.matrix.startup.cycles(arch.clock)
    if startup > limit * cycles:
        figure = f"{startup} cycles before an instruction of {cycles} at most"
        usual = "less than the instruction; matrix.max_pixels and matrix.granularity make it longer"
        chip = "AWS NeuronCore v2 (aws-neuron-sdk): 64 cycles before 512"
        yield Sight(("matrix", "startup"), figure, usual, chip)


def _depthwise_slow(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, matrix = seen.arch, seen.arch.matrix
    if not matrix.present or matrix.depthwise:
        return
    slow = (each for each in arch.types if each in _NETWORKS and _slowdown(arch, each) > limit)
    for dtype in itertools.islice(slow, 1):
        native = _native(arch, dtype)
        figure = (
            f"a depthwise layer of {_LAYER_CHANNELS} channels, 56 x 56, {dtype}, takes"
            f" {native * _slowdown(arch, dtype):,.0f} cycles; with a depthwise mode the array would"
            f" take {native:,.0f}"
        )
        usual = "of use where networks have such layers (MobileNet, EfficientNet)"
        chip = "AMD DPUCZDX8G (PG338) and Arm Ethos-U (Vela) have one"
        yield Sight(("matrix", "depthwise"), figure, usual, chip)


def _slowdown(arch: Arch, dtype: str) -> float:
    """Cycles of the layer on the quicker engine for each cycle with a depthwise mode."""
    lanes = math.inf if _lacking(arch, dtype) else _on_lanes(arch)
    return min(_on_array(arch, dtype), lanes) / _native(arch, dtype)


def _native(arch: Arch, dtype: str) -> float:
    """Cycles of the array for the layer, if it had a depthwise mode."""
    cycles = depthwise_cycles(
        arch.matrix, dtype, _LAYER_PIXELS, _LAYER_CHANNELS, _LAYER_TAPS, behind=True
    )
    return cycles / arch.matrix.units


def _depthwise_types(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, lacking = seen.arch, _lacking(seen.arch, "int8")
    if "int8" not in arch.types or not arch.matrix.present or arch.matrix.depthwise or not lacking:
        return
    taken, lanes = _on_array(arch, "int8"), _on_lanes(arch)
    if taken > limit * lanes:
        figure = (
            f"lacks {', '.join(lacking)}: a depthwise layer of {_LAYER_CHANNELS} channels, 56 x 56,"
            f" takes the array {taken:,.0f} cycles, where its {arch.vector.lanes} lanes would take"
            f" {lanes:,.0f}"
        )
        usual = "int8, int32 and fp32, or matrix.depthwise: true"
        chip = "AMD DPUCZDX8G (PG338): depthwise layers on its ALU"
        yield Sight(("vector", "types"), figure, usual, chip)


def _lacking(arch: Arch, dtype: str) -> list[str]:
    """Types that the vector engine needs for depthwise layers and has not."""
    wanted = ("int8", "int32", "fp32") if dtype == "int8" else (dtype,)
    return [name for name in wanted if not arch.vector.has(name)]


def _on_lanes(arch: Arch) -> float:
    """Cycles of full lanes for the layer."""
    vectors = _LAYER_PIXELS * -(-_LAYER_CHANNELS // arch.vector.lanes)
    return _LAYER_TAPS * vectors * arch.vector.cost.multiply / arch.vector.units


def _on_array(arch: Arch, dtype: str) -> float:
    """Cycles of the array for the layer, as many channels as one product as is quickest; real
    values one channel after another, as zeros off the diagonal would not stay exact."""
    most = max(tile_limits(arch)) if dtype.startswith("int") else 1
    sizes = range(1, min(most, _LAYER_CHANNELS) + 1)
    return min(_in_groups(arch, dtype, each) for each in sizes)


def _in_groups(arch: Arch, dtype: str, each: int) -> float:
    """Cycles of the array for the layer, `each` channels as one product, with the load of weights
    for each of them."""
    weights = _LAYER_CHANNELS * each * _LAYER_TAPS * size_of(dtype)
    apart = 1 if arch.matrix.granularity == "conv" else _LAYER_TAPS
    cycles = int(
        product_cycles(
            arch.matrix, dtype, _LAYER_PIXELS, each, each, _LAYER_TAPS // apart, behind=True
        )
    )
    taken = -(-_LAYER_CHANNELS // each) * apart * cycles / arch.matrix.units
    return taken + weights / arch.dram_bytes_per_cycle


def _vector_requantize(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch, vector = seen.arch, seen.arch.vector
    if "int8" not in arch.types or "requantize" in arch.matrix.writeback:
        return
    lacking = [name for name in ("int32", "fp32") if not vector.has(name)]
    if len(lacking) >= limit:
        figure = f"lacks {', '.join(lacking)}, and the array does not requantize what it writes"
        usual = "either; else every convolution of an int8 network is the host's"
        yield Sight(("vector", "types"), figure, usual, seen.nearest())


def _network_type(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    arch = seen.arch
    others = [name for name in arch.types if name in _NETWORKS]
    for place, dtype in enumerate(arch.types):
        if not arch.matrix.present or (dtype in _NETWORKS) >= limit:
            continue
        asked = f"--dtype {dtype}" if place else "no --dtype"
        figure = (
            f"networks are quantized to int8 or stay real, none becomes {dtype}: the array runs no"
            f" product of a study that asks for {asked}; what is real and what neither the array"
            " nor the lanes have is the host's"
        )
        held = f"{others[0]} first" if others else f"one of {', '.join(_NETWORKS)} here"
        usual = f"{held}, {dtype} in matrix.rate alone; a rate below 1 says that it is slower"
        yield Sight(("types", place), figure, usual, seen.nearest())


def _vector_real(seen: LintedMachine, limit: float) -> Iterator[Sight]:
    vector, scalar = seen.arch.vector, seen.arch.scalar
    real = [name for name in _REALS if vector.has(name) or scalar.has(name)]
    if len(real) < limit:
        figure = "integers alone: softmax, normalization, GELU and the like are the host's"
        usual = "fp32 or fp16 here or in scalar.types, where networks have them"
        chip = "Google TPU v1 has sigmoid and tanh; NVDLA and Ethos-U have tables"
        yield Sight(("vector", "types"), figure, usual, chip)


CHECKS: dict[str, Check] = {
    "array-starved": _array_starved,
    "vector-starved": _vector_starved,
    "vector-slow": _vector_slow,
    "vector-extent": _vector_extent,
    "startup-long": _startup_long,
    "depthwise-slow": _depthwise_slow,
    "depthwise-types": _depthwise_types,
    "vector-requantize": _vector_requantize,
    "network-type": _network_type,
    "vector-real": _vector_real,
}

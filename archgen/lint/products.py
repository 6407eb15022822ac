"""Products that show what an array is worth: the one that suits it best, and a depthwise layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from simmodel.arch.dtype import accumulator_of, size_of
from simmodel.arch.record import Arch
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

    @property
    def slowest_port(self) -> str:
        """The memory whose ports it needs longest."""
        waits = self.waits()
        return max(waits, key=lambda role: waits[role])


def _limits(arch: Arch) -> tuple[int, int]:
    """Reduction and output channels that fill the array; of types that share cells, more."""
    deep, wide = tile_limits(arch)
    rate = next((r for t, r in arch.matrix.rate.items() if t == arch.types[0]), 1.0)
    return int(deep * max(rate, 1.0)), wide


# A depthwise layer of MobileNetV2: its cycles on the array and on the lanes.

LAYER_PIXELS, LAYER_CHANNELS, LAYER_TAPS = 56 * 56, 96, 9


def slowdown(arch: Arch, dtype: str) -> float:
    """Cycles of the layer on the quicker engine for each cycle with a depthwise mode."""
    lanes = math.inf if depthwise_lacks(arch, dtype) else on_lanes(arch)
    return min(on_array(arch, dtype), lanes) / with_mode(arch, dtype)


def with_mode(arch: Arch, dtype: str) -> float:
    """Cycles of the array for the layer, if it had a depthwise mode."""
    cycles = depthwise_cycles(
        arch.matrix, dtype, LAYER_PIXELS, LAYER_CHANNELS, LAYER_TAPS, behind=True
    )
    return cycles / arch.matrix.units


def depthwise_lacks(arch: Arch, dtype: str) -> list[str]:
    """Types that the vector engine needs for depthwise layers and has not."""
    wanted = ("int8", "int32", "fp32") if dtype == "int8" else (dtype,)
    return [name for name in wanted if not arch.vector.has(name)]


def on_lanes(arch: Arch) -> float:
    """Cycles of full lanes for the layer."""
    vectors = LAYER_PIXELS * -(-LAYER_CHANNELS // arch.vector.lanes)
    return LAYER_TAPS * vectors * arch.vector.cost.multiply / arch.vector.units


def on_array(arch: Arch, dtype: str) -> float:
    """Cycles of the array for the layer, as many channels as one product as is quickest; real
    values one channel after another, as zeros off the diagonal would not stay exact."""
    most = max(tile_limits(arch)) if dtype.startswith("int") else 1
    sizes = range(1, min(most, LAYER_CHANNELS) + 1)
    return min(_in_groups(arch, dtype, each) for each in sizes)


def _in_groups(arch: Arch, dtype: str, each: int) -> float:
    """Cycles of the array for the layer, `each` channels as one product, with the load of weights
    for each of them."""
    weights = LAYER_CHANNELS * each * LAYER_TAPS * size_of(dtype)
    apart = 1 if arch.matrix.granularity == "conv" else LAYER_TAPS
    cycles = int(
        product_cycles(
            arch.matrix, dtype, LAYER_PIXELS, each, each, LAYER_TAPS // apart, behind=True
        )
    )
    taken = -(-LAYER_CHANNELS // each) * apart * cycles / arch.matrix.units
    return taken + weights / arch.dram_bytes_per_cycle

"""The product that suits an array best, as one instruction: its cycles and the bytes that it moves.

The one idea: an array that this product cannot feed is never fed. It is made by the rules that the
machine charges (`simmodel.isa.cycles`), of extents that are whole multiples of the array's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simmodel.arch import Arch
from simmodel.dtype import accumulator_of, size_of
from simmodel.isa.cycles import product_cycles, streams
from simmodel.isa.matrix import tile_limits

_FOLDS = 8
"""Times the array's own extent that channels have, where one instruction may cover that."""
_PIXELS = 4096
_KERNEL = 9
"""Kernel positions of a convolution that reads each input once."""


@dataclass(frozen=True)
class Product:
    """M x K times K x N, at `positions` kernel positions."""

    arch: Arch
    m: int
    n: int
    k: int
    positions: int = 1

    @staticmethod
    def least(arch: Arch) -> Product:
        """The smallest that has every cell of the array busy."""
        deep, wide = _limits(arch)
        rows = arch.matrix.rows
        shift = rows if arch.matrix.kind == "cube" else wide
        if arch.matrix.kind == "systolic" and arch.matrix.dataflow == "output-stationary":
            shift = rows
        return Product(arch, shift, wide, deep)

    @staticmethod
    def best(arch: Arch) -> Product:
        """The one with most reuse that one instruction covers, as far as there is room for its
        sums."""
        deep, wide = _limits(arch)
        row = wide * size_of(accumulator_of(arch.types[0]))
        sums = arch.memories.on_chip()[arch.matrix.output].size // 2
        pixels = max(1, min(_PIXELS, arch.matrix.max_pixels or _PIXELS, sums // row))
        if arch.matrix.granularity == "tile":
            return Product(arch, pixels, wide, deep)
        positions = _KERNEL if arch.matrix.granularity == "conv" else 1
        return Product(arch, pixels, wide * _FOLDS, deep * _FOLDS, positions)

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

    def held(self) -> Mapping[str, Mapping[str, int]]:
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

    def moved(self) -> Mapping[str, tuple[int, int]]:
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
        for role, (read, written) in self.moved().items():
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

"""Cycles that the matrix engine's operands take between it and the memories on chip.

Memory moves whole granules: of a buffer that holds all channels, a slice of few channels costs as
much as one of a granule. Where that takes longer than the products, it is what they take.

    16 of 64 channels of 112 pixels from banks 128 B wide: 112 granules, 14336 B for 1792 B
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from simmodel.arch import Arch
from simmodel.isa.base import granule


class Flows:
    """Bytes between the engine and memories, by what they share."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.cycles: dict[tuple[str, bool], Any] = defaultdict(float)

    def add(self, role: str, size: Any, run: Any, *, times: Any = 1, write: bool = False) -> None:
        """`size` bytes in contiguous runs of `run` bytes, moved `times` over."""
        memory = self.arch.memories.on_chip()[role]
        grain = granule(self.arch, role)
        moved = times * size * np.ceil(run / grain) * grain / np.maximum(run, 1)
        way = role, write and memory.split_ports
        if memory.mapping == "interleaved":
            self.cycles[way] = self.cycles[way] + moved / memory.bytes_per_cycle(write)
            return
        # Each operand may have banks of its own; more of them, where it does not fit in one.
        banks = np.minimum(memory.banks, np.ceil(size / memory.bank_size))
        cycles = moved / (memory.port_bytes(write) * np.maximum(banks, 1))
        self.cycles[way] = np.maximum(self.cycles[way], cycles)

    def longest(self) -> Any:
        """Cycles of the memory that is busiest with them."""
        longest: Any = 0.0
        for cycles in self.cycles.values():
            longest = np.maximum(longest, cycles)
        return longest

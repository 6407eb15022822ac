"""The cost model: cycles of a tiled group from work, traffic and how they overlap.

Engines work side by side, so a group takes the longest of matrix, vector and memory time (never
their sum), plus what nothing hides: the first load, the last store, and the barrier between groups.
Instruction cycles come from the instructions' own methods; all arithmetic is numpy-friendly, so one
call prices thousands of candidates.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simmodel.arch import Arch, CopyEngine


def copy_rate(arch: Arch, engine: CopyEngine) -> float:
    """Bytes per cycle that one core's copy engine sustains from DRAM."""
    rate = engine.bandwidth.at(arch.clock)
    latency = arch.dram_latency
    return min(rate, engine.outstanding * engine.request / latency) if latency else rate


def copy_cycles(arch: Arch, engine: CopyEngine, size: Any, cores: int, pieces: Any = 0) -> Any:
    """Cycles of one transfer of `size` bytes in `pieces` contiguous pieces, on `cores` cores alike.

    Each transfer pays start-up and DRAM latency, each piece a cycle; all cores share the channel.
    """
    rate = min(copy_rate(arch, engine), arch.dram_bytes_per_cycle / cores)
    overhead = engine.startup.cycles(arch.clock) + arch.dram_latency
    return overhead + np.maximum(size / rate, pieces)


def rounded(arch: Arch, size: Any, run: Any) -> Any:
    """Bytes that DRAM moves for `size` bytes in contiguous runs of `run` bytes."""
    burst = arch.memories.dram.burst
    run = np.maximum(run, 1)
    return size * (np.ceil(run / burst) * burst / run)


def overlapped(matrix: Any, vector: Any, memory: Any) -> Any:
    """Cycles of engines that work side by side: the longest of them."""
    return np.maximum(np.maximum(matrix, vector), memory)

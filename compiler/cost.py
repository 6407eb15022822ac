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


def transfer(arch: Arch, engine: CopyEngine, count: Any, size: Any, cores: int) -> Any:
    """Cycles in which one core moves `count` transfers of `size` bytes, `cores` cores alike.

    Each transfer pays start-up and DRAM latency; all cores share the DRAM channel.
    """
    rate = min(copy_rate(arch, engine), arch.dram_bytes_per_cycle / cores)
    overhead = engine.startup.cycles(arch.clock) + arch.dram_latency
    return count * (overhead + size / rate)


def rounded(arch: Arch, size: Any, run: Any) -> Any:
    """Bytes that DRAM moves for `size` bytes in contiguous runs of `run` bytes."""
    burst = arch.memories.dram.burst
    run = np.maximum(run, 1)
    return size * (np.ceil(run / burst) * burst / run)


def overlapped(matrix: Any, vector: Any, load: Any, store: Any, fill: Any) -> Any:
    """Cycles of a group whose engines work side by side; `fill` is what nothing hides."""
    memory = load + store if isinstance(load, float) else np.add(load, store)
    busiest = np.maximum(np.maximum(matrix, vector), np.maximum(np.maximum(load, store), memory))
    return busiest + fill

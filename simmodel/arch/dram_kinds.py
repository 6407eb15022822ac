"""Kinds of DRAM by their public timing: what DRAM loses where a machine's file states its kind.

The one idea: a row holds delays of one device as published, in ns, from which the fields of
`memories.dram` follow. What the controller adds is its own, and a file states it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

DramName = Literal["lpddr4", "lpddr5", "ddr4", "ddr5", "hbm2", "hbm3", "gddr6"]
_TURN_BYTES = 1024
"""That a controller moves in one direction before it turns: 16 bursts of 64 B, the default of
gem5's (`min_writes_per_switch`)."""


@dataclass(frozen=True)
class DramTiming:
    """One device; bursts and delays of one channel, in ns."""

    device: str
    """As in this standard."""
    burst: int
    """Bytes."""
    burst_time: float
    refresh: float
    """tRFC of all banks, each `interval` (tREFI)."""
    interval: float
    rows: float
    """Window in which at most four rows are opened (tFAW)."""
    first: float
    """From opening a row to the first byte: tRCD and the read latency."""
    turns: float
    """Time in which no data move, of a turn from reads to writes and back."""
    source: str
    """Of `first` and `turns`, beside the standard."""

    @property
    def channel_rate(self) -> float:
        """Bytes per second of one channel."""
        return 1e9 * self.burst / self.burst_time

    def fields(self, rate: float) -> dict[str, str | int | float]:
        """Fields of `memories.dram` of `rate` bytes per second, as a file spells them: a run opens
        a row, of which there are four in a window, whatever its bytes take."""
        kept = round(1 - self.refresh / self.interval, 3)
        moved = 2 * _TURN_BYTES / self.burst * self.burst_time
        return {
            "latency": f"{round(self.first + self.burst_time)} ns", "burst": self.burst,
            "channels": max(1, math.ceil(round(rate / self.channel_rate, 1))),
            "read_efficiency": kept, "write_efficiency": kept,
            "run_cost": f"{max(0.0, self.rows / 4 - self.burst_time):.2g} ns",
            "conflict_penalty": round(self.turns / moved, 2),
        }  # fmt: skip

    @property
    def timing(self) -> str:
        """What the fields follow from, in words."""
        return (
            f"{self.device}: tRFC / tREFI {self.refresh:g} / {self.interval:g} ns, tFAW "
            f"{self.rows:g} ns, {self.burst} B in {self.burst_time:g} ns, row to data "
            f"{self.first:g} ns, turns {self.turns:g} ns ({self.source})"
        )


_RAMULATOR = "presets of Ramulator 2"
DRAM_KINDS: dict[DramName, DramTiming] = {
    "lpddr4": DramTiming(
        "LPDDR4-4266, 8 Gb a channel, JESD209-4", 32, 3.75, 280, 3904, 40, 37.1, 30.5,
        "memspec of DRAMSys: RCD 39, RL 36, DQSCK 4, WL 18, WTR 22"),
    "lpddr5": DramTiming(
        "LPDDR5-6400, 16 Gb, JESD209-5", 32, 2.5, 280, 3906, 20, 43.8, 33.8,
        f"{_RAMULATOR}: nRCD 15, nCL 20, nCWL 11, nWTRS 5"),
    "ddr4": DramTiming(
        "DDR4-3200 22-22-22, 8 Gb x16, JESD79-4", 64, 2.5, 350, 7800, 30, 27.5, 17.5,
        f"{_RAMULATOR}: nCWL 16, nWTRS 4"),
    "ddr5": DramTiming(
        "DDR5-4800 40-39-39, 16 Gb, JESD79-5", 64, 3.33, 295, 3900, 20, 32.9, 20.8,
        "CWL 38, tWTR_S 2.5 ns"),
    "hbm2": DramTiming(
        "HBM2, 2 Gb/s, 8 Gb, JESD235", 32, 2, 350, 3900, 16, 28, 22,
        "DRAMsim3: tRCDRD 14, CL 14, CWL 4, tWTR_S 6"),
    "hbm3": DramTiming(
        "HBM3, 6.4 Gb/s, 8 Gb, JESD238", 32, 1.25, 350, 3900, 15, 28, 22,
        "as of HBM2, no public figures"),
    "gddr6": DramTiming(
        "GDDR6-14, JESD250", 32, 1.14, 120, 1900, 16.4, 28.5, 21.1,
        f"{_RAMULATOR}: nRCDRD 26, nCL 24, nCWL 6, nWTRS 9"),
}  # fmt: skip

"""Memories of a machine, off chip and on it, and what kinds of DRAM give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from simmodel.arch.base import NO_DELAY, FrozenModel
from simmodel.arch.units import Bandwidth, Bytes, Delay

# Kinds of DRAM by their public timing: what DRAM loses where a machine's file states its kind. One
# holds delays of one device as published, in ns, from which the fields of `memories.dram` follow.
# What the controller adds is its own, and a file states it.

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


# The memories, each field with its unit and meaning.

Share = Annotated[float, Field(gt=0, le=1)]
"""Of a rate."""


class FarMemory(FrozenModel):
    """Memory behind one or more channels that all cores share, and that runs only read: flash or
    ROM, in which constants lie."""

    size: Bytes
    """Bytes of it: what a network's constants, and in DRAM its maps, must fit into."""
    bandwidth: Bandwidth
    """All channels together."""
    latency: Delay = NO_DELAY
    """From request to first byte."""
    burst: Bytes = 64
    """Bytes fetched at least, for each contiguous run of a transfer."""
    channels: PositiveInt = 1
    """Independent channels; addresses are interleaved over them."""
    read_efficiency: Share = 1.0
    """Share of `bandwidth` that long reads keep up: refresh and the controller take the rest."""
    run_cost: Delay = NO_DELAY
    """Time that a channel spends on each contiguous run of a transfer beside its bytes: opening a
    row and taking a request, as far as others do not hide it."""
    conflict_penalty: Annotated[float, Field(ge=0)] = 0.0
    """Extra time, as a fraction, while transfers meet in a channel: rows that one closes for
    another, and turns between reads and writes."""

    def efficiency(self, *, write: bool) -> float:
        """Share of `bandwidth` that long transfers of a direction keep up."""
        return self.read_efficiency


class Dram(FarMemory):
    """Off-chip memory that is read and written; where a machine has none, the SRAM of the system
    beside it, or of the chip."""

    kind: DramName | None = None
    """Whose public timing gives what the file leaves out: latency, burst, channels, efficiencies,
    `run_cost`, `conflict_penalty` and `energy.dram`. Default: nothing is lost."""
    write_efficiency: Share = 1.0
    """The same as `read_efficiency` of long writes."""
    on_chip: bool = False
    """Whether it is SRAM of the chip in which weights are before an inference begins, and inputs
    and outputs cross `host.bandwidth`. So is `shared` memory where a file has no `dram`."""

    @property
    def sram(self) -> Memory:
        """It as SRAM of the chip."""
        width = self.burst
        return Memory(size=self.size, banks=self.channels, bank_width=width, alignment=width)

    def efficiency(self, *, write: bool) -> float:
        return self.write_efficiency if write else self.read_efficiency


class Memory(FrozenModel):
    """On-chip SRAM in banks; each bank serves `ports` accesses of `bank_width` bytes a cycle."""

    size: Bytes
    """Of one instance: per core, cluster or chip."""
    banks: PositiveInt = 1
    """Parts that serve accesses independently."""
    bank_width: Bytes = 16
    """Bytes of one access of one bank; also the least that is moved for each contiguous run."""
    ports: PositiveInt = 1
    """Accesses per bank and cycle, reads or writes."""
    read_ports: PositiveInt | None = None
    """With `write_ports`: separate ports instead of `ports` shared ones."""
    write_ports: PositiveInt | None = None
    """With `read_ports`."""
    mapping: Literal["interleaved", "blocked"] = "interleaved"
    """Neighbouring words in neighbouring banks, or each bank a contiguous range."""
    conflict_penalty: Annotated[float, Field(ge=0)] = 0.0
    """Extra time, as a fraction, while two streams meet in one bank."""
    latency: Delay = NO_DELAY
    """From access to data; an instruction pays the longest among its operands once."""
    alignment: Bytes = 1
    """Buffers start at multiples of this many bytes."""

    @property
    def bank_size(self) -> int:
        """Bytes in one bank."""
        return self.size // self.banks

    @property
    def split_ports(self) -> bool:
        """Whether reads and writes have ports of their own."""
        return self.read_ports is not None or self.write_ports is not None

    def port_bytes(self, write: bool) -> int:
        """Bytes per cycle that one bank serves for reads or for writes."""
        if not self.split_ports:
            return self.bank_width * self.ports
        return self.bank_width * ((self.write_ports if write else self.read_ports) or 1)

    def bytes_per_cycle(self, write: bool = False) -> int:
        """Bytes per cycle of all banks together."""
        return self.banks * self.port_bytes(write)


class SharedMemory(Memory):
    """SRAM that several cores share."""

    level: Literal["chip", "cluster"] = "chip"
    """One for the chip, or one for each cluster."""


ROLES = ("dram", "shared", "local", "weights", "accumulators", "flash")
"""Of memories."""


class Memories(FrozenModel):
    """The memories of the machine, by role."""

    dram: Dram
    """May be left out where `shared` memory of the chip takes its place."""
    local: Memory
    """Per core: feature maps, and weights where there is no separate weight memory."""
    shared: SharedMemory | None = None
    """Between cores: what several of them read, and what passes between groups of layers."""
    weights: Memory | None = None
    """Per core: separate weight memory."""
    accumulators: Memory | None = None
    """Per core: partial sums of the matrix engine."""
    flash: FarMemory | None = None
    """Beside DRAM: where it is there all constants lie in it, and in DRAM what is computed, inputs
    and outputs."""

    def get(self, role: str) -> Memory | FarMemory | None:
        """The memory in `role`, or None where the machine has none."""
        found: Memory | FarMemory | None = getattr(self, role) if role in ROLES else None
        return found

    def off_chip(self) -> dict[str, FarMemory]:
        """Role -> memory for what lies off chip."""
        return {"dram": self.dram} | ({} if self.flash is None else {"flash": self.flash})

    def far_name(self, role: str) -> str:
        """One of these in a sentence, and what is in the place of DRAM by what it is."""
        own = "shared memory" if self.dram.on_chip else "DRAM"
        return own if role == "dram" else role

    def roles(self) -> tuple[str, ...]:
        """Roles of all memories that exist."""
        return (*self.off_chip(), *self.on_chip())

    def on_chip(self) -> dict[str, Memory]:
        """Role -> memory for every on-chip memory that exists."""
        found = {
            "shared": self.shared, "local": self.local, "weights": self.weights,
            "accumulators": self.accumulators,
        }  # fmt: skip
        return {role: memory for role, memory in found.items() if memory is not None}

    def srams(self) -> dict[str, Memory]:
        """The same with that in the place of DRAM where it is on the chip, as `shared`."""
        return ({"shared": self.dram.sram} if self.dram.on_chip else {}) | self.on_chip()

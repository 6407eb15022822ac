"""Memories of a machine: off chip and on it, each field with its unit and meaning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from simmodel.arch.base import NO_DELAY, FrozenModel
from simmodel.arch.dram_kinds import DramName
from simmodel.arch.units import Bandwidth, Bytes, Delay

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

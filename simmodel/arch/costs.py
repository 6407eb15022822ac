"""Energies and areas stated in a machine's file, in place of the cost table's; and prices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

import simmodel.arch.units as units
from simmodel.arch.base import FrozenModel, MemoryRole, RateType


class VectorEnergy(FrozenModel):
    """Energy per element of the vector engine, by kind of operation."""

    simple: units.Energy | None = None
    multiply: units.Energy | None = None
    divide: units.Energy | None = None
    special: units.Energy | None = None


class MemoryEnergy(FrozenModel):
    """What is known of one memory; the rest comes from the table."""

    read: units.EnergyPerByte | None = None
    write: units.EnergyPerByte | None = None
    area: units.Area | None = None
    """Of one instance; of DRAM, what stands on the chip for it."""


class AreaTable(FrozenModel):
    """Areas that are known; the rest comes from the table."""

    mac: units.Area | None = None
    """One multiply-accumulate cell with its registers."""
    lane: units.Area | None = None
    """One lane of the vector engine."""
    other: units.Area | None = None
    """Everything that no field asks for: clock, wires, space between cells."""
    parts: dict[str, units.Area] = {}
    """Any part or term that `archgen explain area` prints: `vector`, `front_end queues`; of one
    core, of a memory one instance, of a link one instance, of the chip for `dram`."""
    extra: dict[str, units.Area] = {}
    """What else stands on the chip, under names of your own: `pcie`."""


class EnergyTable(FrozenModel):
    """Technology, and energies that are known better than the table knows them."""

    node: units.Node = 22.0
    """Technology, from 3 to 130 nm."""
    voltage: units.Voltage | None = None
    """Of everything on the chip; default: nominal for the node."""
    source: Literal["table", "hwcomponents"] = "table"
    """Where figures of on-chip memories come from."""
    dram: Literal[
        "lpddr4", "lpddr5", "ddr3", "ddr4", "ddr5", "gddr5", "gddr6", "hbm2", "hbm3", "sram"
    ] = "lpddr4"
    """Kind of the memory behind the chip; where `memories.dram.kind` is stated, that by default."""
    interface: Literal["own", "shared"] = "own"
    """To DRAM: pads and controllers of its own, or a port of the system's, which serves others."""
    mac: dict[RateType, units.Energy] = {}
    """One multiply-accumulate with its operand registers, by element type; int16: by int8; of
    sparse weights those by 0 counted; of microscaled ones the scale too."""
    vector: VectorEnergy = VectorEnergy()
    memories: dict[MemoryRole, MemoryEnergy] = {}
    links: dict[str, units.EnergyPerByte] = {}
    instruction: units.Energy | None = None
    """Fetch, decode and issue of one instruction."""
    leakage: units.Power | None = None
    """Of the whole chip."""
    area: AreaTable = AreaTable()

    @property
    def has_pads(self) -> bool:
        """Whether pads and controllers stand on the chip for this machine alone."""
        return self.interface == "own" and self.dram != "sram"

    def memory(self, role: str) -> MemoryEnergy:
        return next((m for name, m in self.memories.items() if name == role), MemoryEnergy())


class Price(FrozenModel):
    """What a chip costs to make and to run, in dollars of whoever writes the file."""

    wafer: units.Dollars
    """Of a processed wafer."""
    diameter: units.Millimetres = 300.0
    """Of the wafer."""
    defects: units.DefectDensity | None = None
    """Fatal defects for each cm2; default 0.1 /cm2."""
    clustering: Annotated[float, Field(gt=0)] | None = None
    """How far defects lie together (alpha of the negative binomial yield), default 3; large:
    anywhere."""
    yield_: Annotated[float, Field(gt=0, le=1)] | None = Field(default=None, alias="yield")
    """Share of dies that work, where it is known; default: of defects and the area."""
    package: units.Dollars = 0.0
    """Package, assembly and test of one chip."""
    dram: units.DollarsPerGib = 0.0
    """Of the memory behind the chip."""
    electricity: units.DollarsPerKwh = 0.0
    """Of what a run takes, DRAM included."""
    lifetime: units.Years = 3.0
    """Years of work without pause that pay for chip and DRAM."""

"""The table of energies and areas: what `table.yaml` must hold.

The one idea: every figure stands with its source and its status.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

SHIPPED = Path(__file__).with_name("table.yaml")
Positive = Annotated[float, Field(gt=0)]
Points = Annotated[dict[Positive, Positive], Field(min_length=2)]
"""Value by technology node in nanometres."""
Operation = Literal["int8", "int16", "int32", "fp16", "bf16", "fp32"]
Sum = Literal["int32", "fp32"]


class _TableRecord(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cited(_TableRecord):
    """A part of the table and where its figures come from."""

    source: str
    status: Literal["read", "secondary", "recalled", "derived", "assumed"]


class Ranged(Cited):
    """A part whose figures are known within factors."""

    low: Annotated[float, Field(gt=0, le=1)]
    """What remains of the figure where it is least."""
    high: Annotated[float, Field(ge=1)]


class Bounded(Cited):
    """A figure with the lowest and highest that it may be: figures, not factors."""

    low: Positive
    high: Positive


class Curve(Cited):
    """Figures by node."""

    points: Points


class Speed(Cited):
    """Logic and the clock: how fast gates are, and what a cycle of half the length asks for."""

    gate: Positive
    """ps that an inverter takes to drive four of its kind, for each nm of the technology."""
    easy: Positive
    """Of these delays in the shortest cycle that asks for nothing."""
    area: Annotated[dict[str, Positive], Field(min_length=1)]
    """How many times larger a unit is, by its name, where its cycle is half as long."""
    energy: Annotated[dict[str, Positive], Field(min_length=1)]

    def delays(self, clock: float, node: float) -> float:
        """Gate delays in a cycle of `clock` Hz at `node` nm."""
        return 1e12 / clock / (self.gate * node)


class ArithmeticEnergy(Cited):
    """pJ of bare operations, by element type and node."""

    multiply: dict[Operation, Points]
    add: dict[Sum, Points]


class Datapath(Ranged):
    """Everything around arithmetic, as a factor."""

    factor: Positive


class Mix(_TableRecord):
    """Multiplies and adds that one operation amounts to."""

    multiply: Annotated[float, Field(ge=0)]
    add: Annotated[float, Field(ge=0)]


class VectorMix(Ranged):
    """The vector engine's kinds of operations."""

    simple: Mix
    multiply: Mix
    divide: Mix
    special: Mix


class SramFit(Ranged):
    """Energy of on-chip memories: exponents of one bank."""

    scale: Positive
    node: float
    size: float
    width: float
    aspect: float
    port: Annotated[float, Field(ge=0)]
    write: Positive
    sources: dict[str, str]
    """What the sources of `sram_points.csv` are."""


class Wire(Curve, Ranged):
    """fJ per bit and millimetre."""


class DramEnergy(Bounded):
    """pJ per bit of a kind of DRAM."""

    energy: Positive


class Interface(Bounded):
    """An interface to a kind of DRAM."""

    rate: Positive
    """Gb/s of a data pin."""
    pin: Positive
    """mm2 of a data pin, with its share of addresses and clocks, drivers and receivers."""
    controller: str
    """Which of the controllers it has."""


class Controller(Bounded):
    """Gates of a channel's controller."""

    gates: Positive


class InstructionEnergy(Ranged):
    """pJ of an instruction at a node: of its control, and of fetching its first four bytes."""

    node: Positive
    control: Positive
    fetch: Positive


class Leakage(Ranged):
    """mW per mm2."""

    density: Positive


class SramArea(Ranged):
    """Banks over their bitcells: large ones, what the edges of small ones add, a port's pitch."""

    over: Positive
    edge: Positive
    port: Annotated[float, Field(ge=0)]


class CellArea(Cited):
    """um2 of operations at 45 nm."""

    multiply: dict[Operation, Positive]
    add: dict[Sum, Positive]


class RegisterArea(Cited):
    """um2 of a register's bit at 45 nm."""

    bit: Positive


class Gates(Cited):
    """um2 at 45 nm of a gate equivalent and of a bit of a two-way choice."""

    gate: Positive
    mux: Positive


class AddressWalkerArea(Cited):
    """A dimension that addresses walk: bits of its registers; an adder is with it."""

    bits: Positive


class Amount(Cited):
    """Gates of something."""

    gates: Positive


class CopyArea(Amount):
    """A copy engine: its gates, those of a request in flight, bits of buffers over registers."""

    entry: Positive
    latch: Positive


class Channel(Cited):
    """A channel of DRAM, or a port to one: bursts that it holds; gates of a port."""

    bursts: Annotated[int, Field(ge=1)]
    port: Positive


class FrontEndArea(Cited):
    """Gates of a slot of issue, words that are fetched ahead, bits of a semaphore."""

    slot: Positive
    fetched: Annotated[int, Field(ge=1)]
    counter: Annotated[int, Field(ge=1)]


class Other(Ranged):
    """Parts that are not listed, as a share of those that are."""

    share: Positive


class AreaFigures(_TableRecord):
    """Everything about areas."""

    bitcell: Curve
    sram: SramArea
    logic: Curve
    arithmetic: CellArea
    register_: Annotated[RegisterArea, Field(alias="register")]
    gates: Gates
    control: Ranged
    """How well areas of gates, registers and choices are known."""
    datapath: Datapath
    walker: AddressWalkerArea
    converter: Amount
    scalar: Amount
    copy_: Annotated[CopyArea, Field(alias="copy")]
    channel: Channel
    front_end: FrontEndArea
    other: Other


class Figures(_TableRecord):
    """The whole table."""

    voltage: Curve
    speed: Speed
    arithmetic: ArithmeticEnergy
    datapath: Datapath
    vector: VectorMix
    sram: SramFit
    wire: Wire
    dram: dict[str, DramEnergy]
    interface: dict[str, Interface]
    controller: dict[str, Controller]
    instruction: InstructionEnergy
    leakage: Leakage
    area: AreaFigures


@cache
def shipped_table() -> Figures:
    """The table that comes with the package."""
    return Figures.model_validate(yaml.safe_load(SHIPPED.read_text(encoding="utf-8")))

"""The table of energies and areas: what `table.yaml` must hold.

The one idea: every figure stands with its source and its status. What each means, and its unit,
stands beside it in the file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from archgen.schema.source import read_packaged

SHIPPED = Path(__file__).with_name("table.yaml")
Positive = Annotated[float, Field(gt=0)]
Points = Annotated[dict[Positive, Positive], Field(min_length=2)]
"""Value by technology node in nanometres."""
Operation = Literal["int8", "int16", "int32", "fp16", "bf16", "fp32"]
Sum = Literal["int32", "fp32"]


class Cited(BaseModel):
    """A part of the table and where its figures come from; further figures are attributes."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, Positive]

    source: str
    status: Literal["read", "secondary", "recalled", "derived", "assumed"]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> float:
            """A figure."""


class Ranged(Cited):
    """A part whose figures are known within factors."""

    low: Annotated[float, Field(gt=0, le=1)]
    """What remains of the figure where it is least."""
    high: Annotated[float, Field(ge=1)]


class Curve(Cited):
    """Figures by node."""

    points: Points


class Wire(Curve, Ranged):
    """A curve known within factors."""


class Speed(Cited):
    """Logic and the clock: how fast gates are, and what a cycle of half the length asks for."""

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


class Mix(BaseModel, extra="forbid", frozen=True):
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
    """Energy of on-chip memories: exponents of one bank, which may be negative."""

    node: float
    size: float
    width: float
    aspect: float
    sources: dict[str, str]
    """What the sources of `sram_points.csv` are."""


class Interface(Cited):
    """An interface to a kind of DRAM."""

    controller: str
    """Which of the controllers it has."""


class CellArea(Cited):
    """um2 of operations at 45 nm."""

    multiply: dict[Operation, Positive]
    add: dict[Sum, Positive]


class AreaFigures(BaseModel, extra="forbid", frozen=True):
    """Everything about areas."""

    bitcell: Curve
    sram: Ranged
    logic: Curve
    arithmetic: CellArea
    register_: Annotated[Cited, Field(alias="register")]
    gates: Cited
    control: Ranged
    """How well areas of gates, registers and choices are known."""
    datapath: Ranged
    walker: Cited
    converter: Cited
    scalar: Cited
    copy_: Annotated[Cited, Field(alias="copy")]
    channel: Cited
    front_end: Cited
    other: Ranged


class Figures(BaseModel, extra="forbid", frozen=True):
    """The whole table."""

    voltage: Curve
    speed: Speed
    arithmetic: ArithmeticEnergy
    datapath: Ranged
    vector: VectorMix
    sram: SramFit
    wire: Wire
    dram: dict[str, Cited]
    interface: dict[str, Interface]
    controller: dict[str, Cited]
    instruction: Ranged
    leakage: Ranged
    area: AreaFigures


@cache
def shipped_table() -> Figures:
    """The table that comes with the package."""
    return Figures.model_validate(read_packaged(SHIPPED))

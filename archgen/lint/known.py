"""Published chips, from `chips.yaml`: what has been built, to hold a machine against."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from archgen.schema.source import read_tree
from archgen.schema.tree import plain

FILE = Path(__file__).with_name("chips.yaml")
Positive = Annotated[float, Field(gt=0)]


class Part(BaseModel):
    """A part of a table: frozen, and with no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Chip(Part):
    """What is published of one chip."""

    name: str
    source: str
    status: Literal["read", "derived", "recalled"]
    clock: Positive
    """Hz."""
    macs: Positive
    """Of int8 in a cycle, of the whole chip."""
    node: Positive | None = None
    """nm."""
    sram: Positive | None = None
    """Bytes on the chip."""
    dram: Positive | None = None
    """Bytes per second."""
    area: Positive | None = None
    """mm2."""

    @property
    def tops(self) -> float:
        """Tera-operations per second; a multiply-accumulate counts two."""
        return 2e-12 * self.macs * self.clock

    @property
    def macs_per_byte(self) -> float | None:
        """MACs for each byte of DRAM bandwidth."""
        return None if self.dram is None else self.macs * self.clock / self.dram

    @property
    def sram_per_mac(self) -> float | None:
        """Bytes on the chip for each MAC of a cycle."""
        return None if self.sram is None else self.sram / self.macs

    def cited(self) -> str:
        """Its name with where the figures are from."""
        recalled = ", recalled" if self.status == "recalled" else ""
        return f"{self.name} ({self.source}{recalled})"


class DramKind(Part):
    """The most of one kind of DRAM behind one chip."""

    most: Positive
    """GB/s."""
    chip: str
    source: str
    status: Literal["read", "derived", "recalled"]


class Known(Part):
    """The whole table."""

    chips: dict[str, Chip]
    dram: dict[str, DramKind]

    def most(self, figure: Callable[[Chip], float | None]) -> Chip:
        """The chip of which `figure` is largest."""
        return max(self.chips.values(), key=lambda chip: figure(chip) or -math.inf)

    def least(self, figure: Callable[[Chip], float | None]) -> Chip:
        """The chip of which `figure` is smallest."""
        return min(self.chips.values(), key=lambda chip: figure(chip) or math.inf)


def load_known(path: Path) -> Known:
    """The table in the file `path`."""
    tree, mistakes = read_tree(path, str(path))
    assert tree is not None and not mistakes, mistakes
    return Known.model_validate(plain(tree))


@cache
def known() -> Known:
    """The table that comes with the package."""
    return load_known(FILE)

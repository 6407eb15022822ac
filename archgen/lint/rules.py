"""The table of rules: what each looks at, its limit, and where that comes from.

The one idea: what is judged is data (`rules.yaml`); a function with the rule's name, in one of the
`of_*` modules, only says where a machine stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from archgen.schema.source import read_packaged

# Published chips, from `chips.yaml`: what has been built, to hold a machine against.

Positive = Annotated[float, Field(gt=0)]


class LintRecord(BaseModel):
    """A part of a table: frozen, and with no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Chip(LintRecord):
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


class DramKind(LintRecord):
    """The most of one kind of DRAM behind one chip."""

    most: Positive
    """GB/s."""
    chip: str
    source: str
    status: Literal["read", "derived", "recalled"]


class PublishedChips(LintRecord):
    """The whole table."""

    chips: dict[str, Chip]
    dram: dict[str, DramKind]

    def most(self, figure: Callable[[Chip], float | None]) -> Chip:
        """The chip of which `figure` is largest."""
        return max(self.chips.values(), key=lambda chip: figure(chip) or -math.inf)

    def least(self, figure: Callable[[Chip], float | None]) -> Chip:
        """The chip of which `figure` is smallest."""
        return min(self.chips.values(), key=lambda chip: figure(chip) or math.inf)


@cache
def published_chips() -> PublishedChips:
    """The table that comes with the package."""
    return PublishedChips.model_validate(read_packaged(Path(__file__).with_name("chips.yaml")))


Kind = Literal["depthwise"]
"""Layers that not every network has."""
Severity = Literal["error", "warning", "note"]
SEVERITIES: dict[Severity, str] = {
    "error": "nobody builds this",
    "warning": "something stands in the way, or is paid for and cannot be used",
    "note": "unusual, worth a look",
}
"""The worst first."""


class LintRule(LintRecord):
    """One thing that is looked at."""

    severity: Severity
    about: str
    """What is looked at."""
    limit: float
    measure: str
    """Of what `limit` is the number."""
    layers: Kind | None = None
    """What networks must have for the rule to matter: a study of such says its notes too."""
    source: str
    """Of the limit; `chips`: the published chips."""
    status: Literal["read", "derived", "recalled", "assumed"] = "derived"

    @property
    def threshold(self) -> str:
        """The limit in words."""
        return f"{self.limit:g} {self.measure}"


RULES = {
    name: LintRule.model_validate(rule)
    for name, rule in read_packaged(Path(__file__).with_name("rules.yaml")).items()
}
"""Name -> rule, in the order of the table."""

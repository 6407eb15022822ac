"""The sections `explore` and `sensitivity` of study files.

The one idea: as everywhere, these records are the format; messages follow from their fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from simmodel.part import Part

Share = Annotated[float, Field(gt=0, le=1)]
AboveOne = Annotated[float, Field(gt=1)]
Quantity = str | int | float
Direction = dict[str, Literal["min", "max"]]


class Range(Part):
    """Values between two, both included: `{from: 128 KiB, to: 2 MiB}`."""

    from_: Quantity = Field(alias="from")
    to: Quantity
    scale: Literal["powers of two", "linear", "log"] = "powers of two"
    steps: Annotated[int, Field(ge=2, le=1000)] | None = None
    """How many values, of the scales linear (default 5) and log (default: each twice as large)."""


class Screen(Part):
    """What the cost model decides before anything is run in full."""

    keep: Share = 0.4
    """Share of the machines proposed at a time that are run in full; 1: all, none is screened."""
    margin: AboveOne = 1.5
    """A target is given up where the estimate misses it by more than this factor."""


class Explore(Part):
    """Which machines to look at, and what is asked of them."""

    parameters: Annotated[dict[str, list[Any] | Range], Field(min_length=1)]
    """Field -> values to choose among, or a range: `memories.local.size: [256 KiB, 1 MiB]`."""
    objectives: Annotated[tuple[str | Direction, ...], Field(min_length=1)] = (
        "latency_ms",
        "area_mm2",
    )
    """Numeric columns of the results; `{throughput_ips: max}` says which way is better."""
    constraints: tuple[str, ...] = ()
    """`latency_ms <= 5`, `peak_local_bytes <= 512 KiB`."""
    trials: PositiveInt = 50
    """Machines to look at, of those that the space has."""
    batch: PositiveInt = 16
    """Machines that are proposed at a time."""
    seed: int = 0
    sampler: Literal["tpe", "nsga2", "random"] = "tpe"
    """Who proposes: Optuna's TPE or NSGA-II, or chance."""
    screen: Screen = Screen()


class Sensitivity(Part):
    """Which fields to change around a machine."""

    parameters: Annotated[dict[str, AboveOne | list[Any] | Range | None], Field(min_length=1)]
    """Field -> factor (null: the usual one), values or a range; the machine's own is added."""
    factor: AboveOne = 2.0
    """How much smaller and larger a field becomes in a step."""
    steps: PositiveInt = 1
    """Steps in each direction."""
    metric: str = "latency_ms"
    pairs: bool = True
    """Whether fields are changed two at a time as well."""
    worth: Share = 0.02
    """Relative gain below which a step no longer helps."""

"""Where the time of a run went: the shares that bounds of gains are made of.

The one idea: everything is a share of the run's time. An engine's share is that of the core where
it is busiest, DRAM's the time that its bytes take at its peak rate; whatever a change leaves alone
takes at least as long afterwards, so the largest of these shares is a floor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from archgen.outcomes import frame as frames
from archgen.outcomes.bottleneck import TriedChange, tried_changes
from archgen.outcomes.columns import STALLS
from archgen.outcomes.frame import Frame, Record, number
from archgen.outcomes.points import Outcome
from archgen.report.points import PointView
from simmodel.arch.record import Arch

_CORE = re.compile(r"core\d+\.(.+)")


@dataclass(frozen=True)
class Account:
    """One run; shares of its time, 0 to 1."""

    point: PointView
    busy: Mapping[str, float]
    """By engine (`host` among them): share of its time spent executing, of the busiest core."""
    waits: Mapping[str, float]
    """Of the matrix engines, by cause, averaged over cores."""
    dram: float
    """DRAM's bytes at its peak rate."""
    links: Mapping[str, float]
    """The same of the busiest instance and direction of each link."""
    memories: Mapping[str, float]
    """Bytes of each memory on the chip at its peak rate, of all its instances together."""
    macs: float
    """The model's multiply-accumulates at the chip's peak rate."""
    layers: tuple[Record, ...] = field(repr=False)
    tokens: float = math.nan
    """Most that the program takes of one core; NaN where that is not known."""
    tried: Mapping[str, TriedChange] = field(default_factory=dict, repr=False)
    """What is known of changes of its machine, by `archgen.outcomes.bottleneck.change_key`."""
    flash: float = 0.0
    """Flash's bytes at its peak rate."""

    @property
    def cycles(self) -> float:
        """Of the run; of one that took none, in which nothing was busy, one to divide by."""
        return _taken(self.point)

    @property
    def time(self) -> float:
        """Cycles of all cores together."""
        return self.cycles * self.point.arch.core_count

    def share(self, engine: str) -> float:
        """Share of an engine; 0 for one that is not known."""
        return self.busy.get(engine, 0.0)

    def computing(self, *without: str) -> float:
        """Share of the busiest engine that computes, but for those of these kinds."""
        arch = self.point.arch
        kinds = {*arch.arrays, "vector", *arch.function_engines} - {*without}
        return max((self.share(unit) for kind in kinds for unit in arch.units(kind)), default=0.0)

    @property
    def compute(self) -> float:
        return self.computing()

    def beside(self, engine: str) -> float:
        """What is left above memories off chip and other engines that compute, as they are."""
        return 1 - max(self.dram, self.flash, self.computing(engine))

    @property
    def slack(self) -> float:
        """What is left above the roofline."""
        return 1 - self.point.get("efficiency", 0.0)

    @property
    def idle(self) -> float:
        """What is left above memories off chip and the busiest compute engine, as they are."""
        return 1 - max(self.dram, self.flash, self.compute)

    def waiting(self, *causes: str) -> float:
        """Share of the matrix engines' waits for these causes."""
        return sum(self.waits[cause] for cause in causes)

    def worst_fit(self, count: int) -> list[tuple[str, float]]:
        """Nodes at which matrix engines lose most against their peak, and what share of the run."""
        arch = self.point.arch
        lost = [
            (str(row["node"]).split("+")[0],
             (frames.matrix_cycles(row, arch) - number(row, "products_cycles")) / self.time)
            for row in self.layers
        ]  # fmt: skip
        return sorted((each for each in lost if each[1] > 0), key=lambda each: -each[1])[:count]

    def on_host(self) -> list[str]:
        """Operators that the host ran."""
        rows = [row for row in self.layers if number(row, "busy_host_cycles") > 0]
        return list(dict.fromkeys(str(row["operator"]) for row in rows))


def account(point: PointView, outcome: Outcome) -> Account:
    """The account of a simulated point."""
    arch, cycles = point.arch, _taken(point)
    traffic: Mapping[str, int] = outcome.details.get("traffic", {})
    moved = point.get("dram_read_bytes") + point.get("dram_write_bytes")
    busy = _busy(frames.levels_frame([outcome]), cycles)
    # Without levels the average over cores stands for the busiest one.
    busy.setdefault("matrix", point.get("matrix_busy", 0.0))
    busy["host"] = 1e-3 * point.get("host_ms", 0.0) * arch.clock / cycles  # also before all else
    return Account(
        point,
        busy,
        {cause: point.get(f"stall_{cause}", 0.0) for cause in STALLS},
        moved / (cycles * arch.dram_bytes_per_cycle),
        {name: point.get(f"link_{name}_busiest", 0.0) for name in arch.links},
        {role: _passing(arch, role, traffic) / cycles for role in arch.memories.on_chip()},
        point.get("matrix_utilization", 0.0),
        tuple(frames.records(frames.layers_frame([outcome]))),
        outcome.details.get("tokens", math.nan),
        tried_changes(outcome.details),
        traffic.get("flash.read", 0) / (cycles * arch.far_rates.get("flash", math.inf)),
    )


def _passing(arch: Arch, role: str, traffic: Mapping[str, int]) -> float:
    """Cycles that what is read from and written to a memory takes at the rate of all its banks."""
    memory = arch.memories.on_chip()[role]
    read, written = traffic.get(f"{role}.read", 0), traffic.get(f"{role}.write", 0)
    one = read / memory.bytes_per_cycle() + written / memory.bytes_per_cycle(write=True)
    return one / arch.instances(role)


def _taken(point: PointView) -> float:
    return max(1.0, point.get("latency_cycles"))


def _busy(levels: Frame, cycles: float) -> dict[str, float]:
    """Share of each engine over the run, of the core where it is highest."""
    own = levels[levels["kind"] == "busy"]
    found: dict[str, float] = {}
    for name, series in own.groupby("name", sort=False):
        match = _CORE.fullmatch(str(name))
        engine = match[1] if match else str(name)
        length = series["cycle"].diff().max() if len(series) > 1 else cycles
        share = float(series["value"].sum() * length / cycles)
        found[engine] = max(found.get(engine, 0.0), share)
    return found

"""A compiled network explained: each group's decisions beside what the simulator says of it.

The one idea: groups overlap, so a group's own span says little of what it costs. What it adds does:
the cycles from the end of the groups before it to its own end, which add up to the whole run. They
are what an estimate is compared with; what is loaded ahead counts for the group before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from archgen.scheduling import DEFAULT, Scheduling
from compiler.api import (
    Attainable,
    Best,
    GroupReport,
    HostNode,
    Tried,
    bound_of,
    expected,
    report,
)
from simmodel.arch import Arch
from simmodel.trace import OriginTrace, Trace
from simmodel.waterfall import Waterfall, waterfall

COMPUTING = ("matrix", "vector", "scalar")
"""Kinds of engines between whose forms an operator's work is decided."""


@dataclass(frozen=True)
class Simulated:
    """What a group took; cycles and bytes of all cores."""

    added: int
    """From the end of the groups before to its own: what it adds to the run."""
    first: int
    last: int
    """Its span: from the start of its first instruction to the end of its last."""
    dram_read_bytes: int
    dram_write_bytes: int
    busy: Mapping[str, int]
    """Cycles by engine."""
    stalls: Mapping[str, int]
    """Idle cycles by cause, of the engines that waited with its instructions."""
    layers: tuple[int, ...] = ()
    """Of each of its layers, busy cycles of the engines that compute."""


@dataclass(frozen=True)
class Explained:
    """A group as the compiler and as the simulator sees it."""

    group: GroupReport
    simulated: Simulated


@dataclass(frozen=True)
class Measured:
    """One schedule as a study measures it; without a program, only the reason."""

    schedule: str
    cycles: int | None
    dram_bytes: int | None
    """Read and written."""
    local_bytes: int | None
    """Peak of the fullest core's local memory."""
    verified: bool | None
    """None: some output could have been anything."""
    reason: str | None = None


@dataclass(frozen=True)
class Explanation:
    """All of a program's groups."""

    model: str
    arch: str
    dtype: str
    clock: float
    """Hz."""
    scheduling: Scheduling
    estimated: float
    """Cycles: the sum of what the groups add, and of the host's calls."""
    simulated: int
    """Cycles."""
    bound: Attainable
    """What no schedule undercuts."""
    waterfall: Waterfall
    """Where the simulated cycles went."""
    groups: tuple[Explained, ...]
    sizes: Mapping[str, int]
    """Bytes of each memory on chip."""
    host: tuple[HostNode, ...] = field(default=(), repr=False)
    partition: str = ""
    """The strategy that made the groups."""
    tried: tuple[Tried, ...] = ()
    """Programs that were simulated, of which this is the best; none where there was one only."""
    notes: tuple[str, ...] = ()
    """What the search had chosen and had to be given up, with the reason."""
    beside: tuple[Measured, ...] = ()
    """A schedule by hand and the compiler's own, where this one was given."""

    @property
    def elsewhere(self) -> int:
        """Simulated cycles of no group: those of the host."""
        return self.simulated - sum(each.simulated.added for each in self.groups)

    def plain(self) -> dict[str, Any]:
        """Everything as JSON holds it."""
        head = {
            "model": self.model, "arch": self.arch, "dtype": self.dtype, "clock_hz": self.clock,
            **self.scheduling.columns,
            "partition": self.partition, "programs_tried": [asdict(each) for each in self.tried],
            "estimated_cycles": self.estimated, "simulated_cycles": self.simulated,
            "host_cycles": self.elsewhere,
            "bound": {"cycles": self.bound.cycles, "by": self.bound.resource, **self.bound.by},
            "waterfall": asdict(self.waterfall),
            "memories": dict(self.sizes),
            "notes": list(self.notes),
            **({"schedules": [asdict(each) for each in self.beside]} if self.beside else {}),
        }  # fmt: skip
        groups = [{**asdict(g.group), "simulated": asdict(g.simulated)} for g in self.groups]
        host = [
            {"node": node.origin, "operator": node.kind, "reason": node.reason}
            for node in self.host
        ]
        return {**head, "groups": groups, "host": host}


def explanation(
    best: Best, trace: Trace, arch: Arch, dtype: str, scheduling: Scheduling
) -> Explanation:
    """The program that was compiled for `arch` explained, with the `trace` of its run."""
    result, partition = best.result, best.partition
    groups = report(result, arch, _reason(partition, best, scheduling))
    spans = _by_group(trace)
    computing = frozenset(name for kind in COMPUTING for name in arch.units(kind))
    spans |= {g.step: replace(spans[g.step], layers=_by_layer(g, trace, computing)) for g in groups}
    return Explanation(
        model=result.program.name,
        arch=arch.name,
        dtype=dtype,
        clock=arch.clock,
        scheduling=scheduling,
        estimated=expected(result, arch),
        simulated=trace.cycles,
        bound=bound_of(result, arch),
        waterfall=waterfall(trace, result.program, arch),
        groups=tuple(Explained(group, spans[group.step]) for group in groups),
        sizes={role: memory.size for role, memory in arch.memories.on_chip().items()},
        host=result.host,
        partition=partition,
        tried=best.tried,
        notes=result.notes,
    )


def _reason(partition: str, best: Best, scheduling: Scheduling) -> str:
    """Why a partition was taken that estimates alone may not have chosen; empty where they did."""
    if any("too few tokens" in note for note in best.result.notes):
        return "too few tokens"
    if partition != scheduling.fusion:
        return f"partition {partition} was better as simulated"
    if partition != DEFAULT.fusion:
        return f"fusion {partition} was asked for"
    return ""


def _by_group(trace: Trace) -> dict[int, Simulated]:
    """What each step of the program took, those of the host included."""
    origins: dict[int, list[OriginTrace]] = {}
    for origin in trace.origins:
        origins.setdefault(origin.group, []).append(origin)
    found, end = {}, 0
    for step in sorted(origins):
        found[step] = _sum(origins[step], end)
        end = max(end, found[step].last)
    return found


def _by_layer(group: GroupReport, trace: Trace, engines: frozenset[str]) -> tuple[int, ...]:
    """Busy cycles of `engines` for each layer of a group."""
    own = [origin for origin in trace.origins if origin.group == group.step]
    return tuple(
        sum(
            cycles
            for origin in own
            for name, cycles in origin.busy.items()
            if origin.node in layer.nodes and name in engines
        )
        for layer in group.layers
    )


def _sum(origins: list[OriginTrace], end: int) -> Simulated:
    busy: Counter[str] = Counter()
    stalls: Counter[str] = Counter()
    for origin in origins:
        busy.update(origin.busy)
        stalls.update({cause: cycles for cause, cycles in origin.stalls.items() if cycles})
    last = max(origin.last for origin in origins)
    return Simulated(
        added=max(0, last - end),
        first=min(origin.first for origin in origins),
        last=last,
        dram_read_bytes=sum(origin.read.get("dram", 0) for origin in origins),
        dram_write_bytes=sum(origin.written.get("dram", 0) for origin in origins),
        busy=dict(busy),
        stalls=dict(stalls),
    )

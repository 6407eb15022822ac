"""Trace: the simulator's output, every cycle of every engine and every byte.

All times are core-clock cycles. A cycle of an engine is *busy* (start-up and compute cycles of an
instruction) or idle for exactly one of `CAUSES`; busy and idle add up to the program's length for
each engine. Figures per origin say the same for each layer of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

CAUSES = (
    "data", "store", "engine", "core", "front_end", "conflict", "bandwidth", "fill", "no_work",
)  # fmt: skip
"""Why an engine did not compute.

    data       an operand was still being loaded
    store      a buffer that it needs was still being stored
    engine     another compute engine of the core was still working
    core       a barrier was closed, or the host was still working
    front_end  the instruction had not been issued
    conflict   ports or banks of an on-chip memory granted less than the instruction could use
    bandwidth  DRAM or a link granted less than the instruction could use
    fill       any wait before the engine's first instruction
    no_work    no work left, or none at all
"""
DATA, STORE, ENGINE, CORE, FRONT_END, CONFLICT, BANDWIDTH, FILL, NO_WORK = range(len(CAUSES))

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class EngineTrace:
    """One engine's account; `busy` and the values of `idle` add up to the trace's cycles."""

    core: int | None
    """None for the host."""
    engine: str
    instructions: int
    """Instructions executed, repeats counted one by one."""
    busy: int
    idle: dict[str, int]
    """Cycles by cause, every cause of `CAUSES` present."""


@dataclass(frozen=True)
class OriginTrace:
    """Cost of one origin (a node of the model, in its group), over all cores."""

    node: str
    group: int
    kind: str
    first: int
    """Start of its first instruction."""
    last: int
    """End of its last instruction."""
    turns: int
    """Of the outermost loop that it computes in; 1: of none."""
    turn_cycles: float | None
    """Cycles of that loop, of all that works in it, over its turns; None: there is no loop."""
    instructions: int
    macs: int
    products: float
    """Cycles of one array for those of matrix engines, at the peak of the types they are in."""
    busy: dict[str, int]
    """Busy cycles by engine name."""
    read: dict[str, int]
    """Bytes read by memory role."""
    written: dict[str, int]
    """Bytes written by memory role; a broadcast counts for each target."""
    links: dict[str, int]
    """Bytes by link, in each instance that is crossed."""
    stalls: dict[str, int]
    """Idle cycles by cause, of the engines whose next or running instruction was of this origin."""


@dataclass(frozen=True)
class Spans:
    """One row per executed instruction or burst, in the order in which they ended."""

    core: NDArray[np.int32]
    """-1 for the host."""
    engine: NDArray[np.int32]
    """Index into the trace's `engine_names`."""
    stream: NDArray[np.int32]
    """The core that issued it."""
    site: NDArray[np.int32]
    """Index into the sites of that core's expansion."""
    occurrence: NDArray[np.int32]
    origin: NDArray[np.int32]
    issue: Counts
    """Cycle in which the (first) instruction was issued."""
    start: Counts
    begin: Counts
    """Cycle in which its traffic begins: the start-up is over."""
    end: Counts
    instructions: Counts
    """1, or how many the burst repeats."""
    busy: Counts
    """Cycles of these that the engine is busy."""
    moved: dict[str, Counts]
    """Bytes by the keys of the trace's `traffic`, which they add up to."""


@dataclass(frozen=True)
class Trace:
    """Trace of one run of one program."""

    program: str
    arch: str
    cycles: int
    """End of the last instruction."""
    engine_names: tuple[str, ...]
    engines: tuple[EngineTrace, ...]
    """Per core in order of `engine_names`; the host last."""
    origins: tuple[OriginTrace, ...]
    """In order of the program's origins, those without instructions left out."""
    traffic: dict[str, int]
    """Bytes by role and direction (`dram.read`, `local.write`) and by link (`link.noc`)."""
    busiest_lanes: dict[str, float]
    """Bytes over that instance and direction of each link that carried most: of a mesh, torus or
    ring, over one link between neighbours."""
    far_loads: dict[str, float]
    """Of each memory off chip: bytes that long transfers would have moved while it worked."""
    issued: int
    """Instructions executed."""
    macs: int
    """Multiply-accumulates executed."""
    simulated: int
    """Occurrences of sites that were simulated; the others were repetitions of these."""
    site_counts: tuple[Counts, ...]
    """Per core: how often each site of its expansion occurred."""
    spans: Spans | None = None
    """With `trace=True` only."""

    def idle(self, cause: str, engine: str | None = None) -> int:
        """Idle cycles for `cause`, summed over cores, of one engine name or of all engines."""
        chosen = (e for e in self.engines if engine is None or e.engine == engine)
        return sum(e.idle[cause] for e in chosen)

    def busy(self, engine: str) -> int:
        """Busy cycles of the engine called `engine`, summed over cores."""
        return sum(e.busy for e in self.engines if e.engine == engine)


@dataclass
class Events:
    """What takes energy, and how often it happened, on all cores."""

    macs: Counter[str] = field(default_factory=Counter)
    """Multiply-accumulates of the matrix engines, by element type."""
    elements: Counter[str] = field(default_factory=Counter)
    """Elements that the vector engines worked on, by kind of operation; of windows, each tap."""
    read: Counter[str] = field(default_factory=Counter)
    """Bytes by memory role."""
    written: Counter[str] = field(default_factory=Counter)
    links: Counter[str] = field(default_factory=Counter)
    """Bytes by link, each instance that is crossed."""
    instructions: int = 0

    @classmethod
    def total(cls, every: Iterable[Events]) -> Events:
        """Everything that happened, whatever for."""
        joined = cls()
        for own in every:
            joined.instructions += own.instructions
            for name in ("macs", "elements", "read", "written", "links"):
                getattr(joined, name).update(getattr(own, name))
        return joined

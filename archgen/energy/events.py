"""What a program does that takes energy: counted per origin, from the streams and the trace.

The one idea: streams have no branches, so what an instruction does, times the counts of the loops
around it, is what the run did. Bytes come from the trace, which knows what each access moved.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from simmodel.arch import Arch
from simmodel.dtype import product_type
from simmodel.isa import Copy, Instruction, Item, Loop, MatrixInstruction, VectorFamily, Window
from simmodel.machine.link import crossed, crossings
from simmodel.program import Program
from simmodel.trace import Trace


@dataclass
class Events:
    """What happened for one origin, over all cores."""

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


def count_events(program: Program, trace: Trace, arch: Arch) -> list[Events]:
    """Events of each of `trace.origins`, in that order."""
    found: dict[int, Events] = {}
    for core, stream in enumerate(program.cores):
        _walk(stream, 1, core, arch, found)
    events = [found[index] for index in sorted(found)]
    for own, origin in zip(events, trace.origins, strict=True):
        own.read.update(origin.read)
        own.written.update(origin.written)
    return events


def _walk(
    items: tuple[Item, ...], times: int, core: int, arch: Arch, found: dict[int, Events]
) -> None:
    for item in items if times else ():
        if isinstance(item, Loop):
            _walk(item.body, times * item.count, core, arch, found)
        else:
            _count(item, times, core, arch, found.setdefault(item.origin, Events()))


def _count(item: Instruction, times: int, core: int, arch: Arch, own: Events) -> None:
    own.instructions += times
    if isinstance(item, MatrixInstruction):
        own.macs[product_type(item.a.dtype)] += times * item.macs()
    elif isinstance(item, VectorFamily):
        taps = math.prod(item.kernel) if isinstance(item, Window) else 1
        own.elements[item.cost()] += times * taps * math.prod(item.walked())
    elif isinstance(item, Copy):
        for name in crossed(arch, item):
            lanes = len(crossings(arch, name, item, core))
            own.links[name] += times * item.moved * lanes

"""Cores that a program for a range leaves without work at short lengths.

    batch 1..8 on eight cores, an image for each        of one image: 7 of 8 cores have no work

The one idea: a program keeps the split of its upper edge, so what it costs short inputs is seen
where the front end has left out what is not there: which cores still compute in each layer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from archgen.scheduling import Scheduling
from archgen.toolchain import COMPUTING
from simmodel.arch.record import Arch
from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.region import Register
from simmodel.isa.sync import Sync
from simmodel.program.program import Program
from simmodel.program.sizes import specialize

_MOST = 0.5
"""Of the cores that compute at the upper edge, as a mean over layers, so many may be idle at the
lower one and nothing is said."""
_EVEN = 1.0
"""`tile.short_inputs` that gives all cores work at any length where it can."""


def idle_note(program: Program, arch: Arch, scheduling: Scheduling) -> str:
    """That most cores are idle at the lower edges of the ranges of `program`, which was compiled by
    `scheduling`, and what to do; empty where they are not, or where it is for no ranges."""
    own = [register for register in program.registers if not register.terms]
    if not own:
        return ""
    computing = frozenset(name for kind in COMPUTING for name in arch.units(kind))
    lowest = specialize(program, {register.name: register.low for register in own})
    whole, short = _working(program, computing), _working(lowest, computing)
    cores = sum(map(len, whole.values()))
    left = sum(len(short.get(layer, ())) for layer in whole)
    if not whole or left >= (1 - _MOST) * cores:
        return ""
    at = ", ".join(f"{register.name}={register.low}" for register in own)
    spans = ", ".join(f"{register.name}={register.low}..{register.high}" for register in own)
    lever = f"one for short inputs ({' '.join(f'--dim {_short(register)}' for register in own)})"
    if scheduling.stages.tile.short_inputs < _EVEN:
        lever += f", or --pass tile.short_inputs={_EVEN:g},"
    idle, each = (cores - left) / len(whole), cores / len(whole)
    mean = f", as a mean of {len(whole)} layers" if len(whole) > 1 else ""
    return (
        f"{arch.name} {program.name}: at {at} {idle:.2g} of the {each:.2g} cores that share a "
        f"layer have no work{mean}, as the program for {spans} has the split of the longest; "
        f"{lever} may be quicker there"
    )


def _working(program: Program, engines: Collection[str]) -> dict[int, set[int]]:
    """Cores that compute, by layer."""
    found: dict[int, set[int]] = {}
    for core, stream in enumerate(program.cores):
        for item in _instructions(stream):
            if item.engine in engines and not isinstance(item, Sync):
                found.setdefault(item.origin, set()).add(core)
    return found


def _instructions(items: Iterable[Item]) -> Iterator[Instruction]:
    for item in items:
        if isinstance(item, Loop):
            yield from _instructions(item.body)
        else:
            yield item


def _short(register: Register) -> str:
    """The range of the shorter half, by how many times one length is another."""
    middle = max(register.low, math.isqrt(register.low * register.high))
    return f"{register.name}={register.low}..{middle}"

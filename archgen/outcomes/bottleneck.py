"""What held a run up: its roof where the run came near it, else the largest part of its time that
the roof does not explain.

The one idea: the roof (`bound_by`) says what no schedule can undercut, and explains the share
`of_bound` of the time. Where matrix engines waited longer than that for one cause, or worked longer
on padding or on the same again, that is what to look at: its column is the answer. Beyond the roof
no cause holds a run for longer than what the roof leaves: arrays that wait nine tenths of the time
for data are held by bandwidth where DRAM takes these nine tenths at its peak.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from archgen.outcomes.points import Row
from archgen.scheduling import Scheduling
from archgen.toolchain import COMPUTING
from simmodel.arch.record import Arch
from simmodel.isa import Instruction, Item, Loop
from simmodel.isa.region import Register
from simmodel.isa.sync import Sync
from simmodel.program.program import Program
from simmodel.program.sizes import specialize

_OF_THE_ROOF = "work_products"
"""What outputs take at the peak of all arrays: no loss, and a part of what the roof counts."""
_PARTS = ("stall_", "work_")


def bottleneck_row(row: Row) -> Row:
    """The column of what held up the run in `row`; none where nothing of its time is known."""
    parts = [name for name in row if name.startswith(_PARTS) and name != _OF_THE_ROOF]
    roof = _number_or_zero(row.get("of_bound"))
    held = max(parts, key=lambda name: _number_or_zero(row[name]), default="")
    longest = min(_number_or_zero(row[held]), 1 - roof) if held else 0.0
    if roof and roof >= longest:
        return {"held_by": row["bound_by"]}
    return {"held_by": held} if longest else {}


def bottleneck_words(held: str) -> str:
    """The answer as tables of reports head its column: `waits: data`, `products again`."""
    for part, said in zip(_PARTS, ("waits: ", ""), strict=True):
        if held.startswith(part):
            return said + held.removeprefix(part).replace("_", " ")
    return held


def _number_or_zero(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


# Cores that a program for a range leaves without work at short lengths.

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


# Where a network's working set lies on a machine, and how much of it each memory there holds.


def holder(arch: Arch) -> str:
    """The memory on chip that holds what passes between layers."""
    return "local" if arch.memories.shared is None else "shared"


def part_of(working_set: float, arch: Arch) -> float:
    """Bytes of the working set in each memory of that kind; NaN of NaN."""
    shared = arch.memories.shared
    if shared is None:
        return working_set / arch.core_count
    return working_set / (arch.clusters if shared.level == "cluster" else 1)


# What is known of a change of a machine before anybody compiles for the changed one.

SIMULATED, ANEW, ESTIMATED, AT_MOST = "simulated", "compiled anew", "estimated", "at most"
DETAIL = "tried"
"""Name among the details of an outcome."""


@dataclass(frozen=True)
class TriedChange:
    """A change, and the share of the time that it saves; below 0: that it takes."""

    fields: Mapping[str, Any]
    gain: float
    way: str
    """SIMULATED, ANEW, ESTIMATED or AT_MOST."""
    rests_on: str = ""


def key_of(fields: Mapping[str, Any]) -> str:
    """`fields` as what a change is looked up by."""
    return json.dumps(fields, sort_keys=True)


def plain(found: Sequence[TriedChange]) -> list[dict[str, Any]]:
    """As details hold it."""
    return [asdict(each) for each in found]


def tried_changes(details: Mapping[str, Any]) -> dict[str, TriedChange]:
    """What is in details, by `key_of`."""
    found = [TriedChange(**each) for each in details.get(DETAIL, ())]
    return {key_of(each.fields): each for each in found}

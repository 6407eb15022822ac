"""What is done where a program takes more tokens than the machine has.

The one idea: what takes tokens is what goes on at once, so less of it does, and each step costs
more time than the one before: the groups that take most tokens are halved, until every layer is
alone; then nothing stays on chip between groups; then buffers have one slot. Each step of the
second kind begins again with groups of its own, because tiles depend on what is kept and doubled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.emit.program import Placed, ProgramEmitter, Step
from compiler.errors import DoesNotFit
from compiler.fit import Fit, Fitter
from compiler.fuse.partition import Unfused
from compiler.hold.spans import GRAIN
from compiler.homes import ChooseHomes
from compiler.keep import KeepTensors
from compiler.nest.ir import NestGraph
from compiler.stages import Stages
from simmodel.program import Program
from simmodel.units import show_bytes

TOKENS = "tokens"
"""Unit of the refusals that are answered here."""


@dataclass(frozen=True)
class Way:
    """Passes to compile with."""

    stages: Stages
    note: str = ""
    """What they do without, and why."""


def ways(stages: Stages) -> Iterator[Way]:
    """`stages`, then others that take fewer tokens."""
    yield Way(stages)
    apart = replace(
        stages, partition=Unfused(), keep=KeepTensors(enabled=False),
        homes=ChooseHomes(shared=False),
    )  # fmt: skip
    yield Way(apart, "too few tokens for groups: every layer alone, nothing kept between them")
    single = replace(apart, plan=replace(apart.plan, slots=1))
    if single != apart:
        yield Way(single, "too few tokens for double buffers: every buffer has one slot")


@dataclass(frozen=True)
class Emitted:
    """A program and what it was made from."""

    program: Program
    emitter: ProgramEmitter
    note: str = ""
    """What was given up for it."""


def emitted(graph: NestGraph, fitter: Fitter, steps: tuple[Step, ...]) -> Emitted:
    """The program of `steps`; where tokens are too few, of shorter groups.

    Raises DoesNotFit: DRAM is too small, or every layer is alone and tokens are too few.
    """
    before = len(steps)
    while True:
        emitter = ProgramEmitter(graph, fitter.arch, steps, fitter.stages.order)
        _check_dram(emitter)
        try:
            program = emitter.program()
        except DoesNotFit:
            shorter = _shorter(fitter, steps, emitter.hunger)
            if shorter is None:
                raise
            steps = shorter
            continue
        more = len(steps) - before
        note = f"too few tokens: groups taken apart, {more} more than chosen" if more else ""
        return Emitted(program, emitter, note)


def _shorter(
    fitter: Fitter, steps: Sequence[Step], hunger: Mapping[int, int]
) -> tuple[Step, ...] | None:
    """`steps` with those groups halved that take the most tokens; None where none is left."""
    groups = {
        number: step.plan.schedule.group
        for number, step in enumerate(steps)
        if isinstance(step, Placed) and len(step.plan.layers) > 1
    }
    if not groups:
        return None
    most = max(hunger.get(number, 0) for number in groups)
    found: list[Step] = []
    for number, step in enumerate(steps):
        if number not in groups or hunger.get(number, 0) < most:
            found.append(step)
            continue
        before = found[-1] if found else None
        fits = fitter.halves(groups[number], _fit_of(before))
        found += [Placed(*fit) for fit in fits]
    return tuple(found)


def _fit_of(step: Step | None) -> Fit | None:
    return (step.plan, step.places) if isinstance(step, Placed) else None


def _check_dram(emitter: ProgramEmitter) -> None:
    size = emitter.arch.memories.dram.size
    if emitter.end <= size:
        return
    weights = sum(data.nbytes for data in emitter.data.values())
    raise DoesNotFit(
        demand=emitter.end,
        bound=size,
        unit="B",
        terms=(("constants", weights), ("feature maps", emitter.end - weights)),
        levers=(f"memories.dram.size of at least {show_bytes(-(-emitter.end // GRAIN) * GRAIN)}",),
        where=f"{emitter.graph.name}: DRAM",
    )

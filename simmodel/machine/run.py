"""`simulate`: from a program and an architecture to a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from simmodel.arch.record import Arch
from simmodel.isa import HOST, Copy
from simmodel.machine.build import Machine
from simmodel.machine.engine import Engine
from simmodel.machine.memory import crossed, crossings
from simmodel.machine.recorder import Recorder, spans
from simmodel.machine.work import Work
from simmodel.program.program import Origin, Program, places
from simmodel.trace import CAUSES, NO_WORK, EngineTrace, OriginTrace, Spans, Trace

# Turns a machine that has run into a trace: everything is a sum over the sites.

Bytes = Mapping[str, int]
"""Bytes by memory and direction (`dram.read`), and by link (`link.noc`)."""


def collect(machine: Machine, program: Program, cycles: int) -> Trace:
    """The trace of `machine`, which has run `program` in `cycles`."""
    works = [work for core in machine.works for work in core]
    counts = tuple(np.array([w.count for w in core], np.int64) for core in machine.works)
    recorder = machine.recorder
    moved = [_occurrence_traffic(work, machine.arch) for work in works]
    return Trace(
        program=program.name,
        arch=machine.arch.name,
        cycles=cycles,
        engine_names=machine.engine_names,
        engines=_engines(machine, works, cycles),
        origins=_origins(program, works, moved),
        traffic=_traffic(works, moved, machine.arch),
        issued=sum(_executed(work) for work in works),
        macs=sum(_macs(work) for work in works),
        site_counts=counts,
        spans=None if recorder is None else _recorded_spans(recorder, machine, moved),
        levels=None if recorder is None else recorder.levels(),
    )


def _recorded_spans(recorder: Recorder, machine: Machine, moved: list[Bytes]) -> Spans:
    return spans(recorder.rows(), machine.works, moved, machine.engine_names)


def _executed(work: Work) -> int:
    return work.count * work.times


def _macs(work: Work) -> int:
    return _executed(work) * work.instruction.macs() if work.count else 0


def _busy(work: Work) -> int:
    return _executed(work) * (work.startup + work.cycles) - work.gained


def _engines(machine: Machine, works: list[Work], cycles: int) -> tuple[EngineTrace, ...]:
    by_engine: dict[int, list[Work]] = {id(engine): [] for engine in machine.all_engines()}
    for work in works:
        by_engine[id(work.engine)].append(work)
    return tuple(_engine(engine, by_engine[id(engine)], cycles) for engine in machine.all_engines())


def _engine(engine: Engine, works: list[Work], cycles: int) -> EngineTrace:
    idle = _idle(works)
    idle[CAUSES[NO_WORK]] = cycles - engine.free
    return EngineTrace(
        core=None if engine.name == HOST else engine.core,
        engine=engine.name,
        instructions=sum(map(_executed, works)),
        busy=sum(map(_busy, works)),
        idle=idle,
    )


def _idle(works: Iterable[Work]) -> dict[str, int]:
    totals = np.zeros(len(CAUSES), np.int64)
    for work in works:
        totals += work.lost
    return dict(zip(CAUSES, totals.tolist(), strict=True))


def _occurrence_traffic(work: Work, arch: Arch) -> Bytes:
    """Bytes that one occurrence of `work` moves; nothing where it never occurred."""
    total: dict[str, int] = defaultdict(int)
    if not work.count:
        return total
    for flow in work.instruction.traffic(arch):
        targets = len(places(arch, flow.operand, work.core))
        way = "write" if flow.write else "read"
        total[f"{flow.operand.memory}.{way}"] += work.times * flow.bytes * targets
    if isinstance(work.instruction, Copy):
        for name in crossed(arch, work.instruction):
            lanes = len(crossings(arch, name, work.instruction, work.core))
            total[f"link.{name}"] += work.times * work.instruction.source_bytes * lanes
    return total


def _traffic(works: list[Work], moved: list[Bytes], arch: Arch) -> dict[str, int]:
    total: dict[str, int] = {"dram.read": 0, "dram.write": 0}
    for role in arch.memories.on_chip():
        total |= {f"{role}.read": 0, f"{role}.write": 0}
    total |= {f"link.{name}": 0 for name in arch.links}
    for work, each in zip(works, moved, strict=True):
        for key, amount in each.items():
            total[key] += work.count * amount
    return total


def _origins(program: Program, works: list[Work], moved: list[Bytes]) -> tuple[OriginTrace, ...]:
    by_origin: dict[int, list[tuple[Work, Bytes]]] = defaultdict(list)
    for work, each in zip(works, moved, strict=True):
        if work.count:
            by_origin[work.instruction.origin].append((work, each))
    known = program.origins
    return tuple(
        _origin(known[index] if index < len(known) else Origin("", 0, ""), own)
        for index, own in sorted(by_origin.items())
    )


def _origin(origin: Origin, own: list[tuple[Work, Bytes]]) -> OriginTrace:
    works = [work for work, _ in own]
    busy: dict[str, int] = defaultdict(int)
    through: dict[str, dict[str, int]] = {"read": defaultdict(int), "write": defaultdict(int)}
    for work, moved in own:
        busy[work.engine.name] += _busy(work)
        for key, amount in moved.items():
            role, _, way = key.rpartition(".")
            if not key.startswith("link."):
                through[way][role] += work.count * amount
    return OriginTrace(
        node=origin.node,
        group=origin.group,
        kind=origin.kind,
        first=min(work.first for work in works),
        last=max(work.last for work in works),
        instructions=sum(map(_executed, works)),
        macs=sum(map(_macs, works)),
        busy=dict(busy),
        read=dict(through["read"]),
        written=dict(through["write"]),
        stalls=_idle(works),
    )


def simulate(program: Program, arch: Arch, trace: bool = False, levels: bool = True) -> Trace:
    """Run `program` on the event model of `arch`.

    Args:
        program: what to run; it should have passed the verifier.
        arch: the machine.
        trace: also keep every instruction's span and every resource's level over time.
        levels: False leaves the levels out of a trace; they cost a third of the time, the spans
            next to nothing.

    Returns:
        Cycles, where they went, and bytes moved.

    Raises:
        NotRunnable: the program asks for an engine, memory, token or barrier that is not there.
        Deadlock: the machine fell silent with work left; the text says who waits for what.
    """
    machine = Machine(arch, trace, levels)
    machine.connect(program)
    cycles = machine.run()
    return collect(machine, program, cycles)


def traced(program: Program, arch: Arch) -> Trace:
    """The same with all spans and without levels, which takes hardly longer than neither."""
    return simulate(program, arch, trace=True, levels=False)

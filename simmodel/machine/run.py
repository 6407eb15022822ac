"""`simulate`: from a program and an architecture to a trace."""

from __future__ import annotations

import gc
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from simmodel.arch.record import Arch
from simmodel.isa import HOST, Copy, Instruction, MatrixInstruction
from simmodel.machine.build import Machine
from simmodel.machine.engine import Engine, Work
from simmodel.machine.memory import Crossing, crossed, crossings
from simmodel.machine.steady import watch_loops
from simmodel.program.program import Origin, Program, expect_run, places
from simmodel.trace import CAUSES, CORE, NO_WORK, Counts, EngineTrace, OriginTrace, Spans, Trace

# Turns a machine that has run into a trace: everything is a sum over the sites.

Bytes = Mapping[str, int]
"""Bytes by memory and direction (`dram.read`), and by link (`link.noc`)."""


def collect(machine: Machine, program: Program, cycles: int) -> Trace:
    """The trace of `machine`, which has run `program` in `cycles`."""
    works = [work for core in machine.works for work in core]
    kinds = [work.instruction.prototype for work in works]
    by_kind: dict[tuple[int, int, int], Bytes] = {}  # equal layers move the same
    networks = any(link.topology != "bus" for link in machine.arch.links.values())
    # What names no cores moves as much on each of them, but over links between neighbours.
    placed = {
        number: networks or any(operand.cores for operand in kind.operands())
        for number, kind in {id(kind): kind for kind in kinds}.items()
    }
    moved: list[Bytes] = []
    for work, kind in zip(works, kinds, strict=True):
        core, times = work.core if placed[id(kind)] else -1, work.times if work.count else 0
        key = id(kind), core, times
        if key not in by_kind:
            by_kind[key] = _occurrence_traffic(work, machine.arch)
        moved.append(by_kind[key])
    own: dict[int, list[Work]] = defaultdict(list)
    by_origin: dict[int, list[tuple[Work, Bytes]]] = defaultdict(list)
    for work, each in zip(works, moved, strict=True):
        own[id(work.engine)].append(work)
        if work.count:
            by_origin[work.instruction.origin].append((work, each))
    known, recorder = dict(enumerate(program.origins)), machine.recorder
    loops, executed = _turns(machine, program), [work.executed for work in works]
    origins = tuple(
        _origin(known.get(n, Origin("", 0, "")), by_origin[n], loops.get(n), machine.arch)
        for n in sorted(by_origin)
    )
    return Trace(
        program=program.name,
        arch=machine.arch.name,
        cycles=cycles,
        engine_names=machine.engine_names,
        engines=tuple(_engine(each, own[id(each)], cycles) for each in machine.all_engines),
        origins=origins,
        traffic=_traffic(zip(works, moved, strict=True), machine.arch),
        busiest_lanes=_busiest_lanes(works, machine.arch),
        far_loads={
            far: _far_load(far, kinds, executed, machine.arch) for far in machine.arch.far_rates
        },
        issued=sum(executed),
        macs=sum(origin.macs for origin in origins),
        simulated=sum(len(each.order) for each in machine.front_ends) - machine.skipped,
        site_counts=tuple(np.array([w.count for w in core], np.int64) for core in machine.works),
        spans=None if recorder is None else _spans(recorder, machine, moved),
    )


def _macs(work: Work) -> int:
    return work.executed * work.instruction.macs() if work.count else 0


def _engine(engine: Engine, works: list[Work], cycles: int) -> EngineTrace:
    begin = engine.env.begin  # until then the host prepares the inference
    host, idle = engine.name == HOST, _idle(works)
    idle[CAUSES[NO_WORK]] = cycles - engine.free - engine.env.skipped
    idle[CAUSES[CORE]] += 0 if host else begin
    return EngineTrace(
        core=None if host else engine.core,
        engine=engine.name,
        instructions=sum(work.executed for work in works),
        busy=sum(work.busy for work in works) + (begin if host else 0),
        idle=idle,
    )


def _idle(works: Iterable[Work]) -> dict[str, int]:
    lost = np.array([work.lost for work in works], np.int64).reshape(-1, len(CAUSES))
    return dict(zip(CAUSES, lost.sum(axis=0).tolist(), strict=True))


def _occurrence_traffic(work: Work, arch: Arch) -> Bytes:
    """Bytes that one occurrence of `work` moves; nothing where it never occurred."""
    total: dict[str, int] = defaultdict(int)
    if not work.count:
        return total
    for flow in work.instruction.prototype.traffic(arch):
        targets = len(places(arch, flow.operand, work.core))
        way = "write" if flow.write else "read"
        total[f"{flow.operand.memory}.{way}"] += work.times * flow.bytes * targets
    if isinstance(work.instruction, Copy):
        for name in crossed(arch, work.instruction):
            lanes = sum(crossings(arch, name, work.instruction, work.core)[0].values())
            total[f"link.{name}"] += work.times * round(work.instruction.source_bytes * lanes)
    return total


def _busiest_lanes(works: Iterable[Work], arch: Arch) -> dict[str, float]:
    found = {name: defaultdict[Crossing, float](float) for name in arch.links}
    for work in works if arch.links else ():
        if isinstance(copy := work.instruction, Copy) and work.count:
            for name in crossed(arch, copy):
                for lane, part in crossings(arch, name, copy, work.core)[0].items():
                    found[name][lane] += work.executed * copy.source_bytes * part
    return {name: max(lanes.values(), default=0.0) for name, lanes in found.items()}


def _far_load(far: str, kinds: Sequence[Instruction], executed: Sequence[int], arch: Arch) -> float:
    known: dict[int, float] = {}  # by prototype
    total = 0.0
    for kind, times in zip(kinds, executed, strict=True):
        if times and id(kind) not in known:
            flows = (flow for flow in kind.traffic(arch) if flow.operand.memory == far)
            known[id(kind)] = sum(flow.load(arch) for flow in flows)
        total += times * known.get(id(kind), 0.0)
    return total


def _traffic(works: Iterable[tuple[Work, Bytes]], arch: Arch) -> dict[str, int]:
    total = {f"{role}.{way}": 0 for role in arch.memories.roles() for way in ("read", "write")}
    return total | {f"link.{name}": 0 for name in arch.links} | _bytes_of_all(works)


def _bytes_of_all(works: Iterable[tuple[Work, Bytes]]) -> dict[str, int]:
    """What all `works` move, given what an occurrence of each does: those that move the same have
    the same one."""
    counts: dict[int, int] = defaultdict(int)
    kinds: dict[int, Bytes] = {}
    for work, moved in works:
        kinds[id(moved)] = moved
        counts[id(moved)] += work.count
    total: dict[str, int] = defaultdict(int)
    for kind, moved in kinds.items():
        for key, amount in moved.items():
            total[key] += counts[kind] * amount
    return dict(total)


def _turns(machine: Machine, program: Program) -> dict[int, tuple[int, float]]:
    """Of each origin that works in loops: turns of the outermost loop that it computes most in
    (loads may lie in the loops of others), and cycles from one to the next."""
    most: dict[int, tuple[int, int, int, float]] = {}
    for works, stream in zip(machine.works, program.expanded, strict=True):
        for loop in stream.loops:
            own = works[loop.sites.start : loop.sites.stop]
            cycles = max(work.last for work in own) - min(work.first for work in own)
            busy: dict[int, list[int]] = defaultdict(lambda: [0, 0])
            for work in own:
                busy[work.instruction.origin][isinstance(work.instruction, Copy)] += work.busy
            for origin, (computed, copied) in busy.items():
                found = computed, copied, loop.count, cycles / loop.count
                most[origin] = max(most.get(origin, found), found)
    return {origin: found[2:] for origin, found in most.items()}


def _origin(
    origin: Origin, own: list[tuple[Work, Bytes]], loop: tuple[int, float] | None, arch: Arch
) -> OriginTrace:
    works = [work for work, _ in own]
    busy: dict[str, int] = defaultdict(int)
    through: dict[str, dict[str, int]] = defaultdict(dict)
    for work in works:
        busy[work.engine.name] += work.busy
    for key, amount in _bytes_of_all(own).items():
        first, _, last = key.partition(".")  # a memory's role and direction, or of a link
        kind, name = (first, last) if first == "link" else (last, first)
        through[kind][name] = amount
    begin, end = min(work.first for work in works), max(work.last for work in works)
    turns, turn_cycles = loop or (1, None)
    return OriginTrace(
        node=origin.node,
        group=origin.group,
        kind=origin.kind,
        first=begin,
        last=end,
        turns=turns,
        turn_cycles=turn_cycles,
        instructions=sum(work.executed for work in works),
        macs=sum(map(_macs, works)),
        products=sum(
            work.executed * work.instruction.cycles_at_peak(arch)
            for work in works
            if isinstance(work.instruction, MatrixInstruction)
        ),
        busy=dict(busy),
        read=through["read"],
        written=through["write"],
        links=through["link"],
        stalls=_idle(works),
    )


def _spans(rows: array[int], machine: Machine, moved: Sequence[Bytes]) -> Spans:
    """Spans of `rows` (`Machine.recorder`); what a site tells of all its occurrences is looked up
    in bulk. `moved` has what one occurrence moves, for each work in order of cores and sites."""
    known = [work for core in machine.works for work in core]
    first = np.cumsum([0, *(len(core) for core in machine.works)])
    core, site, occurrence, issue, start, end, gained = np.array(rows, np.int64).reshape(-1, 7).T
    which = first[core] + site

    def of_site(values: Sequence[int]) -> Counts:
        found: Counts = np.array(values, np.int64)[which]
        return found

    keys = dict.fromkeys(key for each in moved for key in each)
    startup = of_site([work.startup for work in known])
    own = of_site([work.times * (work.startup + work.cycles) for work in known])
    number = {name: index for index, name in enumerate(machine.engine_names)}
    return Spans(
        core=of_site([work.engine.core for work in known]).astype(np.int32),
        engine=of_site([number[work.engine.name] for work in known]).astype(np.int32),
        stream=core.astype(np.int32),
        site=site.astype(np.int32),
        occurrence=occurrence.astype(np.int32),
        origin=of_site([work.instruction.origin for work in known]).astype(np.int32),
        issue=issue.copy(),
        start=start.copy(),
        begin=np.minimum(start + startup, end),
        end=end.copy(),
        instructions=of_site([work.times for work in known]),
        busy=own - _differences(gained, which),
        moved={key: of_site([each.get(key, 0) for each in moved]) for key in keys},
    )


def _differences(so_far: Counts, which: Counts) -> Counts:
    """What each row added to `so_far`, the sums over all rows of its site up to it."""
    order = np.argsort(which, kind="stable")
    result = so_far.copy()
    result[order[1:]] -= np.where(np.diff(which[order]) == 0, so_far[order[:-1]], 0)
    return result


def simulate(program: Program, arch: Arch, trace: bool = False, skip: bool = True) -> Trace:
    """Run `program` on the event model of `arch`.

    Args:
        program: what to run; it should have passed the verifier.
        arch: the machine; one that it was not compiled for times the same instructions, of which
            `verify` says whether it can run them.
        trace: also keep every instruction's span, which costs next to nothing.
        skip: whether repetitions of a loop that are like earlier ones need no simulation; the
            result is the same.

    Returns:
        Cycles, where they went, and bytes moved.

    Raises:
        NotRunnable: the program asks for an engine, memory, token or barrier that is not there.
        Deadlock: the machine fell silent with work left; the text says who waits for what.
    """
    with _no_garbage():
        machine = _connected(program, arch, trace, skip)
        told = collect(machine, program, machine.run())
        del machine  # while nobody looks through it
    return told


def cycles_of(program: Program, arch: Arch, skip: bool = True) -> int:
    """The cycles of `simulate` alone, without where they went."""
    with _no_garbage():
        return _connected(program, arch, False, skip).run()


def _connected(program: Program, arch: Arch, trace: bool, skip: bool) -> Machine:
    expect_run(program, arch)
    machine = Machine(arch, trace, arch.host_cycles(program.port_bytes))
    machine.connect(program)
    if skip:
        watch_loops(machine, program.expanded)
    return machine


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Nothing is garbage before a run is over, and looking for it takes longer than a short run
    where all that a compiler holds is looked through."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def traced(program: Program, arch: Arch, skip: bool = True) -> Trace:
    """The same with all spans."""
    return simulate(program, arch, trace=True, skip=skip)

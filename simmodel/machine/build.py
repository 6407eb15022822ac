"""The machine: an architecture's parts, a program's streams plugged into them, and the run.

build      every core its engines and front end; memories, links and the host for the chip
connect    every site of the program to the parts that it names
run        until nothing happens any more; with work left that is a deadlock
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np

from simmodel.arch.record import Arch
from simmodel.errors import Deadlock, NotRunnable
from simmodel.isa import HOST, Arrive, Await, Copy, Instruction
from simmodel.isa.base import Sync
from simmodel.machine.engine import Engine, Notices, Profile, Scoreboard, Span, Waits, Work
from simmodel.machine.fabric import Fabric
from simmodel.machine.flow import Resource
from simmodel.machine.front_end import FrontEndProcess, pace
from simmodel.machine.memory import Links, MemoryInstances, hop_latency, is_store
from simmodel.machine.queue import Barrier, Clock, Token
from simmodel.program.encoding import joins_previous_word
from simmodel.program.expand import Site
from simmodel.program.program import Origin, Program
from simmodel.trace import CORE, DATA, ENGINE, STORE

T = TypeVar("T")

# Every reference of a program is resolved before the machine runs, so one that asks for a part that
# is not there is refused: each of its sites becomes a `Work`.


@dataclass(frozen=True)
class Sockets:
    """The parts of one core that instructions connect to."""

    arch: Arch
    core: int
    engines: Mapping[str, Engine]
    tokens: Sequence[Mapping[str, Token]]
    """Of every core of the program."""
    barriers: Mapping[str, Barrier]
    memories: MemoryInstances
    links: Links
    kinds: dict[int, WorkKind]
    """Of prototypes, by their identity: those of all cores."""
    known_waits: dict[Sync, Waits] = field(default_factory=dict)
    """Tokens by their names in instructions: programs of several cores repeat them."""
    known_notices: dict[object, Notices] = field(default_factory=dict)
    """The same of tokens that are signalled on several cores."""
    profiles: dict[int, Profile] = field(default_factory=dict)
    """Of prototypes, by their identity, where addresses decide nothing."""


@dataclass(frozen=True)
class WorkKind:
    """What all instructions of a prototype have in common, on all cores."""

    timing: tuple[int, int, int, int]
    """Start-up, cycles, cycles less behind its like, and the cause for whoever waits for it."""
    flows: Sequence[tuple[int, bool, float]]
    """Its traffic: index of the operand, whether it is written, and its load."""
    banked: bool
    """Whether addresses decide which resources these meet."""


def _work_kind(instruction: Instruction, sockets: Sockets) -> WorkKind:
    prototype, arch = instruction.prototype, sockets.arch
    found = sockets.kinds.get(id(prototype))
    if found is not None:
        return found
    operands = prototype.operands()
    for operand in operands:
        if arch.memories.get(operand.memory) is None:
            said = f"{arch.name} has no memory {operand.memory!r}"
            raise NotRunnable(f"{instruction.MNEMONIC}: {said}")
        strange = [core for core in operand.cores if not 0 <= core < arch.core_count]
        if strange:
            raise NotRunnable(f"{instruction.MNEMONIC}: {arch.name} has no core {strange[0]}")
    startup, cycles = prototype.startup(arch), prototype.cycles(arch)
    timing = startup, cycles, prototype.overlap(arch), _cause(prototype, arch)
    flows = [flow for flow in prototype.traffic(arch) if flow.bytes]
    number = {id(operand): index for index, operand in enumerate(operands)}
    moved = [(number[id(flow.operand)], flow.write, flow.load(arch)) for flow in flows]
    banked = any(sockets.memories.banked(flow.operand, sockets.core) for flow in flows)
    found = sockets.kinds[id(prototype)] = WorkKind(timing, moved, banked)
    return found


def bind(site: Site, number: int, sockets: Sockets) -> Work:
    """The work of `site`, number `number` of its core; NotRunnable names a missing part."""
    instruction, arch = site.instruction, sockets.arch
    engine = _lookup_part(sockets.engines, instruction.engine, "engine", instruction)
    kind = _work_kind(instruction, sockets)
    waits = _tokens(instruction.waits, instruction, sockets)
    signals = _tokens(instruction.signals, instruction, sockets)
    barrier = None
    if isinstance(instruction, Await | Arrive):
        barrier = _lookup_part(sockets.barriers, instruction.barrier, "barrier", instruction)
        if isinstance(instruction, Await):
            waits = (*waits, (barrier, 1))
        else:
            signals = (*signals, (barrier, 1))
            barrier.sites.append((sockets.core, number))
    startup, cycles, gain, cause = kind.timing
    if isinstance(instruction, Copy):
        startup += hop_latency(arch, instruction, sockets.core)
    work = Work(
        instruction, sockets.core, number, engine, startup, cycles, gain, site.times, cause,
        waits, signals, _notices(instruction, sockets), barrier=barrier,
    )  # fmt: skip
    _attach_profile(work, site, kind, sockets)
    if arch.front_end.sync == "interlock":
        work.spans_at = _spans_by_occurrence(site, sockets)
    return work


def _lookup_part(parts: Mapping[str, T], name: str, kind: str, instruction: Instruction) -> T:
    part = parts.get(name)
    if part is None:
        known = ", ".join(parts) or "none"
        raise NotRunnable(f"{instruction.MNEMONIC}: no {kind} {name!r}; there are: {known}")
    return part


def _tokens(names: Sync, instruction: Instruction, sockets: Sockets) -> Waits:
    """The core's own tokens of these names."""
    found = sockets.known_waits.get(names)
    if found is None:
        found = tuple((_token(n, sockets.core, instruction, sockets), k) for n, k in names)
        sockets.known_waits[names] = found
    return found


def _token(name: str, core: int, instruction: Instruction, sockets: Sockets) -> Token:
    if not 0 <= core < len(sockets.tokens):
        raise NotRunnable(f"{instruction.MNEMONIC}: no stream of core {core} has token {name!r}")
    return _lookup_part(sockets.tokens[core], name, "token", instruction)


def _notices(instruction: Instruction, sockets: Sockets) -> Notices:
    """Tokens that it signals on any core, and their delay."""
    known = sockets.known_notices
    if instruction.notifies not in known:
        late = sockets.arch.front_end.signal.cycles(sockets.arch.clock)
        known[instruction.notifies] = tuple(
            (_token(name, core, instruction, sockets), count, 0 if core == sockets.core else late)
            for name, count, cores in instruction.notifies
            for core in cores
        )
    return known[instruction.notifies]


def _cause(instruction: Instruction, arch: Arch) -> int:
    """The cause of idle cycles for whoever waits for this instruction."""
    if instruction.engine == HOST or isinstance(instruction, Arrive):
        return CORE
    engine = arch.copy_.get(instruction.engine)
    if engine is None:
        return ENGINE
    stores = is_store(instruction) if isinstance(instruction, Copy) else "dram" in engine.to
    return STORE if stores else DATA


def _attach_profile(work: Work, site: Site, kind: WorkKind, sockets: Sockets) -> None:
    """Attach the traffic, constant or per occurrence if it depends on the banks touched."""
    known = id(site.instruction.prototype)
    work.profile = sockets.profiles.get(known)
    if work.profile is not None:
        return
    instruction, core, memories = site.instruction, sockets.core, sockets.memories

    def profile(addresses: Sequence[int]) -> Profile:
        parts = [
            memories.resource_bytes(site.operands[i], core, write, load, addresses[i])
            for i, write, load in kind.flows
        ]
        if isinstance(instruction, Copy):
            parts.append(sockets.links.lane_bytes(instruction, core))
        moved: dict[Resource, float] = {}
        for resource, amount in chain.from_iterable(parts):
            moved[resource] = moved.get(resource, 0.0) + amount
        usage = tuple(moved.items())
        alone = Profile(work.cycles, usage)
        if work.gain:
            alone.behind = Profile(work.cycles - work.gain, usage)
        return alone

    if kind.banked:
        work.profile_at = _by_address(site, profile, sockets)
    else:
        work.profile = sockets.profiles[known] = profile([0] * len(site.operands))


def _by_address(
    site: Site, profile: Callable[[Sequence[int]], Profile], sockets: Sockets
) -> Callable[[int], Profile]:
    """Traffic by occurrence, one profile for each set of banks."""
    banks = []
    for operand, column in zip(site.operands, site.addresses, strict=True):
        low, high = operand.span
        size = sockets.memories.bank_size(operand, sockets.core)
        banks += [(column + low) // size, (column + high - 1) // size]
    moving = [column for column in banks if column.min() < column.max()] or banks[:1]
    _, first, which = np.unique(moving, axis=1, return_index=True, return_inverse=True)
    known: list[Profile | None] = [None] * first.size
    choice: list[int] = which.ravel().tolist()

    def at(occurrence: int) -> Profile:
        index = choice[occurrence]
        found = known[index]
        if found is None:
            example = int(first[index])
            found = profile([int(column[example]) for column in site.addresses])
            known[index] = found
        return found

    return at


def _spans_by_occurrence(
    site: Site, sockets: Sockets
) -> Callable[[int], tuple[Sequence[Span], Sequence[Span]]]:
    """Bytes that an occurrence reads and writes, by memory instance."""
    instances = [sockets.memories.instances(o, sockets.core) for o in site.operands]
    spans = [operand.prototype.span for operand in site.operands]  # asked before
    columns = [column.tolist() for column in site.addresses] if site.loops else [
        [a.at({}) if a.ring else a.base] for a in (o.address for o in site.operands)
    ]  # fmt: skip
    reads = len(site.wide.reads())

    def at(occurrence: int) -> tuple[Sequence[Span], Sequence[Span]]:
        found: tuple[list[Span], list[Span]] = ([], [])
        for index, column in enumerate(columns):
            address = column[occurrence]
            low, high = spans[index]
            found[index >= reads].append((instances[index], address + low, address + high))
        return found

    return at


class Machine:
    """One chip, ready to run one program once."""

    def __init__(self, arch: Arch, trace: bool = False, begin: int = 0) -> None:
        """`begin`: the cycle in which the accelerator does, as the host was at work before."""
        self.arch = arch
        self.env = Clock(begin)
        self.engine_names = (*arch.engines(), HOST)
        self.recorder = array("q") if trace else None
        """Of each ended instruction: core whose stream it is of, site, occurrence, cycles of issue,
        start and end, and those saved by overlapping, in it and all before it of its site."""
        self.memories = MemoryInstances(self.env, arch)
        self.links = Links(self.env, arch)
        self.fabric = Fabric(self.env)
        self.engines = [
            {name: self._engine(name, core) for name in arch.engines()}
            for core in range(arch.core_count)
        ]
        self.host = self._engine(HOST, -1)
        self.all_engines = [
            *(engine for core in self.engines for engine in core.values()),
            self.host,
        ]
        """Engines in order of core and name, the host last."""
        self.tokens: list[Token] = []
        """Of all cores, and the barriers."""
        self.barriers: list[Barrier] = []
        self.works: list[list[Work]] = []
        """Per core of the program, the work of each site."""
        self.front_ends: list[FrontEndProcess] = []
        self.skipped = 0
        """Occurrences that were not simulated (`simmodel.machine.steady`)."""
        self._origins: tuple[Origin, ...] = ()

    def _engine(self, name: str, core: int) -> Engine:
        depth = self.arch.front_end.depth(name)
        return Engine(self.env, (name, core), depth, self.fabric, self.recorder)

    def connect(self, program: Program) -> None:
        """Plug the program in; NotRunnable when it asks for a part that is not there."""
        if len(program.cores) > len(self.engines):
            raise NotRunnable(
                f"{program.name} has streams for {len(program.cores)} cores, "
                f"{self.arch.name} has {len(self.engines)}"
            )
        self._origins = program.origins
        barriers = {n: Barrier(self.env, n, count) for n, count in program.barriers.items()}
        tokens = [
            {name: Token(self.env, name, count) for name, count in counts.items()}
            for counts in (*program.tokens, *({},) * len(program.cores))
        ]
        kinds = dict[int, WorkKind]()
        for core, stream in enumerate(program.expanded):
            engines = {**self.engines[core], HOST: self.host}
            sockets = Sockets(
                self.arch, core, engines, tokens, barriers, self.memories, self.links, kinds
            )
            works = [bind(site, number, sockets) for number, site in enumerate(stream.sites)]
            scoreboard = Scoreboard() if self.arch.front_end.sync == "interlock" else None
            beside = joins_previous_word(stream.sites, self.arch.front_end.bundle)
            paced = pace(self.arch, program.cores[core], stream, beside)
            order = stream.order.tolist()
            self.works.append(works)
            front_end = FrontEndProcess(self.env, works, order, beside, paced, scoreboard)
            self.front_ends.append(front_end)
        self.barriers = list(barriers.values())
        self.tokens = [*self.barriers, *(token for own in tokens for token in own.values())]

    def run(self) -> int:
        """Run to the end; the cycle in which the last instruction ended."""
        for front_end in self.front_ends:
            front_end.advance()
        for engine in self.all_engines:
            engine.attend()
        self.env.run()
        for front_end in self.front_ends:
            front_end.watch = None  # it knows the machine, which would outlive its use in a circle
        stuck = self._stuck()
        if stuck:
            raise Deadlock(
                "\n".join(
                    (f"silent at cycle {self.env.now + self.env.skipped}, with work left:", *stuck)
                )
            )
        return max((work.last for works in self.works for work in works), default=self.env.begin)

    def _stuck(self) -> list[str]:
        lines = []
        for engine in self.all_engines:
            if not engine.queue.entries:
                continue
            work = engine.queue.entries[0][0]
            place = f"core {work.core}: {engine.name}:"
            lines.append(f"  {place} {self._label(work)} waits for {engine.awaited}")
        for front_end in self.front_ends:
            left = front_end.stuck
            if left is not None:
                place = f"core {left.core}: front end:"
                lines.append(f"  {place} {self._label(left)} waits for a free slot")
        return lines

    def _label(self, work: Work) -> str:
        origins = self._origins
        index = work.instruction.origin
        node = f" of {origins[index].node}" if index < len(origins) else ""
        return f"site {work.number} {work}{node}"

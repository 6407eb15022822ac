"""The machine: an architecture's parts, a program's streams plugged into them, and the run.

build      every core its engines and front end; memories, links and the host for the chip
connect    every site of the program to the parts that it names
run        until nothing happens any more; with work left that is a deadlock
"""

from __future__ import annotations

from array import array

from simmodel.arch.record import Arch
from simmodel.errors import Deadlock, NotRunnable
from simmodel.isa import HOST
from simmodel.machine.connect import Sockets, WorkKind, bind
from simmodel.machine.engine import Engine, Scoreboard, Work
from simmodel.machine.fabric import Fabric
from simmodel.machine.front_end import FrontEndProcess, pace
from simmodel.machine.memory import Links, MemoryInstances
from simmodel.machine.queue import Barrier, Clock, Token
from simmodel.program.encoding import joins_previous_word
from simmodel.program.program import Origin, Program


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

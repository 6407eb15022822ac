"""What a study needs of compiler and machine, as functions from values to a value.

The one idea: the workbench names no compiler and no simulator; it is given them. Workers receive
the toolchain by reference, so its functions are defined at the top level of a module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from archgen.process.start import collecting_rarely
from archgen.scheduling import DEFAULT, Scheduling
from compiler import api
from simmodel.arch.dtype import Array
from simmodel.arch.record import Arch
from simmodel.execute import Host, Run, Skip, run
from simmodel.isa import HOST
from simmodel.machine.run import cycles_of, traced
from simmodel.metrics import Metrics, Waterfall, measure, waterfall
from simmodel.program.program import Probe, Program
from simmodel.trace import OriginTrace, Trace

Judge = Callable[[Program, Arch], Trace]


@dataclass(frozen=True)
class Request:
    """What to compile: what `Toolchain.load` made of a model, the machine, and how."""

    name: str
    model: Any = field(repr=False)
    arch: Arch
    dtype: str
    """Element type of the network, one of `arch.types`."""
    host: bool = True
    """Whether operators may be left to the host processor."""
    scheduling: Scheduling = DEFAULT
    schedule_from: Arch | None = None
    """The machine to compile for, whose programs `arch` then runs; None: `arch` itself."""
    decisions: api.Decisions | None = field(default=None, repr=False, compare=False)
    """Schedules that were chosen before; they save time alone."""


@dataclass(frozen=True)
class Compiled:
    """A verified program, and what the compiler says about its decisions (JSON-ready)."""

    program: Program
    report: Mapping[str, Any]
    probes: tuple[Probe, ...] = ()
    """Every tensor that the program stores, to be seen while it runs."""
    recipe: api.VerificationPlan | None = field(default=None, repr=False)
    """What its steps compute, in between too; None: only its outputs can be compared."""
    trace: Trace | None = field(default=None, repr=False)
    """Its run, where the program was chosen by that; None: it has not been simulated."""
    simulate_s: float = 0.0
    """Wall-clock seconds that this run took."""
    bound: api.Attainable | None = None
    """What no schedule of it can undercut; None: not known."""
    working_set: int | None = None
    """Bytes between its layers that are alive at once; None: not known."""
    products: Callable[[Arch], api.ProductCycles] | None = field(
        default=None, repr=False, compare=False
    )
    """What its products would take on another machine; None: not known."""
    at: Callable[[Mapping[str, int]], Compiled] | None = field(
        default=None, repr=False, compare=False
    )
    """Where lengths are known only when it runs: the program for some, verified."""
    repeated: Callable[[int], tuple[Compiled, float]] | None = field(
        default=None, repr=False, compare=False
    )
    """So many inferences one after another in one program, and the cycles from the end of one to
    the end of the next; None: not known."""
    quick: Sequence[tuple[api.Stages, int]] = ()
    """Other passes, and the cycles of the program of this machine that they alone give."""


@dataclass(frozen=True)
class Toolchain:
    """Compiler, executor, simulator and meter."""

    load: Callable[[onnx.ModelProto, str, api.Stages], Any]
    """The part of compiling that depends on no machine, from a bound model, its name, and the
    options of the compiler; of these only on `Stages.shared`."""
    compile: Callable[[Request], Compiled]
    execute: Callable[[Program, Mapping[str, Array], Arch, Host, Sequence[Probe], Skip], Run]
    """Outputs and probed values by name, from inputs by name, of what is not skipped."""
    simulate: Callable[[Program, Arch], Trace]
    measure: Callable[[Trace, Program, Arch, int], Metrics]
    """The last argument is the batch."""
    count: Callable[[Program, Arch], int] | None = None
    """Cycles of `simulate`, sooner; None: `simulate` tells them."""
    decisions: Path | None = None
    """Folder in which the compiler's decisions outlive a process; None: there is none."""
    tries: bool = False
    """Whether changes of a machine are tried on its runs: levers of the report."""
    anew: bool = False
    """Whether the most promising of those that take another program are compiled for."""
    alone: bool = False
    """Whether there is one point, so that results of its check are not kept for others."""

    def cycles(self, program: Program, arch: Arch) -> int:
        """Of `simulate`, where nothing else is asked of a run."""
        return (self.count or (lambda *run: self.simulate(*run).cycles))(program, arch)


# The toolchain that archgen ships: its compiler, its executor and its event simulator.


def compile_request(request: Request, judge: Judge = traced) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    found = compile_best(request, judge)
    made = found.result
    if made.program.registers:
        return Compiled(
            made.program,
            compiled_report(made),
            at=lambda lengths: _specialized(made, lengths, request.arch),
        )
    return Compiled(
        made.program, compiled_report(made), made.probes, made.recipe, found.trace,
        found.simulate_s,
        api.bound_of(made, request.arch), api.working_set(made),
        lambda other: api.product_cycles_on(made, other),
        repeated=lambda inferences: _repeated(made, inferences, request, judge),
        quick=() if request.schedule_from else found.quick,
    )  # fmt: skip


def _repeated(
    made: api.CompileResult, inferences: int, request: Request, judge: Judge
) -> tuple[Compiled, float]:
    """Several inferences one after another, and the cycles between their ends."""
    arch, given = request.arch, request.scheduling.tree is not None
    found = api.back_to_back(made, inferences, arch, judge, given=given)
    several = found.result
    about = compiled_report(several) | {"segments": found.segments}
    compiled = Compiled(several.program, about, several.probes, several.recipe, found.trace)
    # The host prepares one while others run, but not while it is at their calls.
    prepares = arch.host_cycles(several.program.port_bytes)
    calls = found.trace.busy(HOST) - prepares
    return compiled, max(found.interval, found.moving(arch), prepares + calls / inferences)


def _specialized(made: api.CompileResult, lengths: Mapping[str, int], arch: Arch) -> Compiled:
    """The program for some lengths."""
    cut = api.specialize_result(made, lengths, arch)
    return Compiled(cut.program, compiled_report(made), cut.probes, cut.recipe)


@collecting_rarely()
def compile_best(request: Request, judge: Judge = traced) -> api.Best:
    """Of all programs that effort allows the best as `judge` simulates it; CompilerError where none
    is."""
    scheduling = request.scheduling
    wanted = api.Wanted(
        request.model, request.arch, compile_options(request), scheduling.alternatives,
        scheduling.objective, request.schedule_from, request.decisions,
    )  # fmt: skip
    return api.best_program(wanted, judge)


def compile_options(request: Request) -> api.CompileOptions:
    """How the first program is compiled that is tried for `request`."""
    way = request.scheduling
    return api.CompileOptions(request.dtype, request.host, way.stages, way.tree)


def compiled_report(result: api.CompileResult) -> dict[str, Any]:
    """The compiler's decisions as JSON holds them: groups of nodes, operators left to the host,
    what was given up."""
    return {
        "groups": [
            {
                "group": made.group.index,
                "nodes": [nest.origin for layer in made.group.layers for nest in layer.nests],
            }
            for made in result.decisions
        ],
        "host": _host_rows(result.host),
        "notes": list(result.notes),
    }


def _host_rows(nodes: Iterable[api.HostNode]) -> list[dict[str, str]]:
    return [{"node": n.origin, "operator": n.kind, "reason": n.reason} for n in nodes]


STANDARD = Toolchain(
    api.prepared, compile_request, run, traced, measure, cycles_of, tries=True, anew=True
)
_unskipped = partial(traced, skip=False)
UNSKIPPED = replace(
    STANDARD, compile=partial(compile_request, judge=_unskipped), simulate=_unskipped,
    count=partial(cycles_of, skip=False),
)  # fmt: skip
"""The same, which simulates every iteration of every loop; no number is another."""


# A compiled network explained: each group's decisions beside what the simulator says of it.

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

    group: api.GroupReport
    simulated: Simulated


@dataclass(frozen=True)
class MeasuredSchedule:
    """One schedule as a study measures it; without a program, only the reason."""

    schedule: str
    cycles: int | None
    """Without what the host takes, such as quantization of the input."""
    host_cycles: int | None
    dram_bytes: int | None
    """Read and written."""
    local_bytes: int | None
    """Peak of the fullest core's local memory."""
    verified: bool | None
    """None: some output could have been anything."""
    reason: str | None = None
    interval_cycles: int | None = None
    """Of several inferences in flight, from one's end to the next one's."""


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
    bound: api.Attainable
    """What no schedule undercuts."""
    waterfall: Waterfall
    """Where the simulated cycles went."""
    groups: tuple[Explained, ...]
    sizes: Mapping[str, int]
    """Bytes of each memory on chip."""
    host: tuple[api.HostNode, ...] = field(default=(), repr=False)
    partition: str = ""
    """The strategy that made the groups."""
    tried: tuple[api.SimulatedProgram, ...] = ()
    """Programs that were simulated, of which this is the best; none where there was one only."""
    notes: tuple[str, ...] = ()
    """What the search had chosen and had to be given up, with the reason."""
    beside: tuple[MeasuredSchedule, ...] = ()
    """A schedule by hand and the compiler's own, where this one was given."""

    @property
    def host_cycles(self) -> int:
        """Simulated cycles of no group: those of the host."""
        return self.simulated - sum(each.simulated.added for each in self.groups)

    def plain(self) -> dict[str, Any]:
        """Everything as JSON holds it."""
        head = {
            "model": self.model, "arch": self.arch, "dtype": self.dtype, "clock_hz": self.clock,
            **self.scheduling.columns,
            "partition": self.partition, "programs_tried": [asdict(each) for each in self.tried],
            "estimated_cycles": self.estimated, "simulated_cycles": self.simulated,
            "host_cycles": self.host_cycles,
            "bound": {"cycles": self.bound.cycles, "by": self.bound.resource, **self.bound.by},
            "waterfall": {part: own for part, own in asdict(self.waterfall).items() if own},
            "memories": dict(self.sizes),
            "notes": list(self.notes),
            **({"schedules": [asdict(each) for each in self.beside]} if self.beside else {}),
        }  # fmt: skip
        groups = [{**asdict(g.group), "simulated": asdict(g.simulated)} for g in self.groups]
        return {**head, "groups": groups, "host": _host_rows(self.host)}


def explanation(
    best: api.Best, trace: Trace, arch: Arch, dtype: str, scheduling: Scheduling
) -> Explanation:
    """The program that was compiled for `arch` explained, with the `trace` of its run."""
    result, partition = best.result, best.partition
    groups = api.report(result, arch, _reason(partition, best, scheduling))
    spans = _by_group(trace)
    kinds = (*COMPUTING, *arch.engines_)
    computing = frozenset(name for kind in kinds for name in arch.units(kind))
    spans |= {g.step: replace(spans[g.step], layers=_by_layer(g, trace, computing)) for g in groups}
    return Explanation(
        model=result.program.name,
        arch=arch.name,
        dtype=dtype,
        clock=arch.clock,
        scheduling=scheduling,
        estimated=api.expected(result, arch),
        simulated=trace.cycles,
        bound=api.bound_of(result, arch),
        waterfall=waterfall(trace, result.program, arch),
        groups=tuple(Explained(group, spans[group.step]) for group in groups),
        sizes={role: memory.size for role, memory in arch.memories.on_chip().items()},
        host=result.host,
        partition=partition,
        tried=best.tried,
        notes=result.notes,
    )


def _reason(partition: str, best: api.Best, scheduling: Scheduling) -> str:
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


def _by_layer(group: api.GroupReport, trace: Trace, engines: frozenset[str]) -> tuple[int, ...]:
    """Busy cycles of `engines` for each layer of a group."""
    busy: Counter[str] = Counter()
    for origin in trace.origins:
        if origin.group == group.step:
            busy[origin.node] += sum(origin.busy.get(name, 0) for name in engines)
    return tuple(sum(busy[node] for node in set(layer.nodes)) for layer in group.layers)


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

"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from archgen.toolchain import Array, Compiled, Request, Toolchain
from compiler.api import (
    STRATEGIES,
    CompileOptions,
    CompilerError,
    CompileResult,
    Stages,
    UnsupportedModel,
    compile_model,
    prepared,
)
from simmodel.arch import Arch
from simmodel.functional import Host, Run, run
from simmodel.metrics import measure
from simmodel.program import Probe, Program
from simmodel.simulate import traced
from simmodel.trace import Trace
from simmodel.verify import VerifyError, verify

PATIENCE = 2.0
"""Times the cycles of the quickest program that one with less memory may take."""


@dataclass(frozen=True)
class Tried:
    """One of several programs that were simulated."""

    partition: str
    """The strategy that made its groups."""
    local: int
    """Bytes of local memory that it was compiled for."""
    cycles: int


@dataclass(frozen=True)
class Best:
    """The program that a request gets, and how it was chosen."""

    result: CompileResult
    stages: Stages
    """What it was compiled with."""
    arch: Arch
    """What it was compiled for: the machine asked for, or one with less memory."""
    tried: tuple[Tried, ...] = ()
    """Programs among which it was chosen by simulation, itself included."""
    trace: Trace | None = field(default=None, repr=False)
    """Its run, where that decided."""
    simulate_s: float = 0.0
    """Wall-clock seconds that its run took."""

    @property
    def partition(self) -> str:
        """The strategy that made its groups, after what had to be given up."""
        search = self.result.search
        made = self.stages.partition if search is None else search.fitter.stages.partition
        return next(name for name, strategy in STRATEGIES.items() if isinstance(made, strategy))

    @property
    def cycles(self) -> int:
        """Of its run."""
        assert self.trace is not None
        return self.trace.cycles


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    best = compile_best(request)
    made = best.result
    return Compiled(
        made.program, report(made), made.probes, made.recipe, best.trace, best.simulate_s
    )


def compile_best(request: Request) -> Best:
    """Of all programs that effort allows the best as simulated; CompilerError where none is."""
    if request.scheduling.objective == "memory":
        return _frugal(request)
    made: list[Best] = []
    refusals: list[CompilerError] = []
    for stages in request.scheduling.alternatives:
        try:
            made.append(_verified(request, stages, request.schedule_from or request.arch))
        except CompilerError as why:
            refusals.append(why)
    if not made:
        raise refusals[0]
    if len(made) == 1:
        return made[0]
    tried: list[Tried] = []
    best = min((_simulated(each, request, tried) for each in made), key=partial(_score, request))
    return replace(best, tried=tuple(tried))


def first(request: Request) -> tuple[Arch, CompileOptions]:
    """What the first program that is tried is compiled for, and with what."""
    return request.arch, _options(request, request.scheduling.alternatives[0])


def winner(request: Request) -> tuple[Arch, CompileOptions]:
    """The same of the program that `request` gets; of the first where all are refused."""
    if len(request.scheduling.alternatives) == 1 and request.scheduling.objective != "memory":
        return first(request)
    try:
        best = compile_best(request)
    except CompilerError:
        return first(request)
    return best.arch, _options(request, best.stages)


def _options(request: Request, stages: Stages) -> CompileOptions:
    return CompileOptions(request.dtype, request.host, stages)


def _frugal(request: Request) -> Best:
    """The program that takes least local memory at no more than `PATIENCE` times the cycles."""
    stages, arch = request.scheduling.stages, request.arch
    tried: list[Tried] = []
    best = _simulated(_verified(request, stages, arch), request, tried)
    allowed = PATIENCE * best.cycles
    local = arch.memories.local
    for eighths in (6, 4, 3, 2, 1):
        size = local.size * eighths // 8 // local.banks * local.banks
        memories = arch.memories.model_copy(
            update={"local": local.model_copy(update={"size": size})}
        )
        smaller = arch.model_copy(update={"memories": memories})
        try:
            found = _simulated(_verified(request, stages, smaller), request, tried)
        except CompilerError:
            break
        if found.cycles > allowed:
            break
        best = found
    return replace(best, tried=tuple(tried))


def _verified(request: Request, stages: Stages, arch: Arch) -> Best:
    """Compiled for `arch`, which may have less than the machine asked for.

    Raises CompilerError where there is no program, or none that the machine asked for may run.
    """
    result = compile_model(request.model, arch, _options(request, stages))
    try:
        verify(result.program, request.arch)
    except VerifyError as broken:
        if request.schedule_from is None:
            raise
        said = f"what is made for {arch.name} is not possible on {request.arch.name}: {broken}"
        raise UnsupportedModel(said) from broken
    return Best(result, stages, arch)


def _simulated(made: Best, request: Request, tried: list[Tried]) -> Best:
    """With its run on the machine that was asked for, which is added to those `tried`."""
    started = time.perf_counter()
    trace = traced(made.result.program, request.arch)
    took = round(time.perf_counter() - started, 3)
    tried.append(Tried(made.partition, made.arch.memories.local.size, trace.cycles))
    return replace(made, trace=trace, simulate_s=took)


def _score(request: Request, made: Best) -> float:
    """What the objective says of a program that has run."""
    if request.scheduling.objective == "energy-proxy":
        assert made.trace is not None
        return sum(n for name, n in made.trace.traffic.items() if "dram" in name)
    return made.cycles


def report(result: CompileResult) -> dict[str, Any]:
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
        "host": [
            {"node": node.origin, "operator": node.kind, "reason": node.reason}
            for node in result.host
        ],
        "notes": list(result.notes),
    }


def execute(
    program: Program, inputs: Mapping[str, Array], arch: Arch, host: Host, probes: Sequence[Probe]
) -> Run:
    """Outputs and probed values, in the executor's own order of instructions."""
    return run(program, inputs, arch, host, probes=probes)


STANDARD = Toolchain(prepared, compile_request, execute, traced, measure)

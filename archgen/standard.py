"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archgen.toolchain import Array, Compiled, Request, Toolchain
from compiler.driver import CompileOptions, CompileResult, compile_model, prepared
from compiler.effort import alternatives
from compiler.errors import CompilerError
from compiler.stages import Stages
from simmodel.arch import Arch
from simmodel.functional import Host, Run, run
from simmodel.metrics import measure
from simmodel.program import Probe, Program
from simmodel.simulate import simulate, traced
from simmodel.verify import verify

PATIENCE = 2.0
"""Times the cycles of the quickest program that one with less memory may take."""


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    result = compile_result(request)
    return Compiled(result.program, report(result), result.probes, result.recipe)


def compile_result(request: Request) -> CompileResult:
    """The same, as the compiler gives it: of all that effort allows, the best as simulated."""
    choice = request.scheduling
    if choice.objective == "memory":
        return _frugal(request)
    tried: list[CompileResult] = []
    refusals: list[CompilerError] = []
    for stages in alternatives(choice.effort, choice.stages):
        try:
            tried.append(_verified(request, stages, request.arch))
        except CompilerError as why:
            refusals.append(why)
    if not tried:
        raise refusals[0]
    if len(tried) == 1:
        return tried[0]
    return min(tried, key=lambda result: _score(result, request))


def _frugal(request: Request) -> CompileResult:
    """The program that takes least local memory at no more than `PATIENCE` times the cycles."""
    stages, arch = request.scheduling.stages, request.arch
    best = _verified(request, stages, arch)
    allowed = PATIENCE * simulate(best.program, arch).cycles
    local = arch.memories.local
    for eighths in (6, 4, 3, 2, 1):
        size = local.size * eighths // 8 // local.banks * local.banks
        memories = arch.memories.model_copy(
            update={"local": local.model_copy(update={"size": size})}
        )
        smaller = arch.model_copy(update={"memories": memories})
        try:
            found = _verified(request, stages, smaller)
        except CompilerError:
            break
        if simulate(found.program, arch).cycles > allowed:
            break
        best = found
    return best


def _verified(request: Request, stages: Stages, arch: Arch) -> CompileResult:
    """Compiled for `arch`, which may have less memory than the machine asked for."""
    options = CompileOptions(request.dtype, request.host, stages)
    result = compile_model(request.model, arch, options)
    verify(result.program, request.arch)
    return result


def _score(result: CompileResult, request: Request) -> float:
    """What the objective says of a program."""
    trace = simulate(result.program, request.arch)
    if request.scheduling.objective == "energy-proxy":
        return sum(n for name, n in trace.traffic.items() if "dram" in name)
    return trace.cycles


def options_of(request: Request) -> CompileOptions:
    """What `request` asks of the compiler."""
    return CompileOptions(request.dtype, request.host, request.scheduling.stages)


def report(result: CompileResult) -> dict[str, Any]:
    """The compiler's decisions as JSON holds them: groups of nodes, operators left to the host."""
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
    }


def execute(
    program: Program, inputs: Mapping[str, Array], arch: Arch, host: Host, probes: Sequence[Probe]
) -> Run:
    """Outputs and probed values, in the executor's own order of instructions."""
    return run(program, inputs, arch, host, probes=probes)


STANDARD = Toolchain(prepared, compile_request, execute, traced, measure)

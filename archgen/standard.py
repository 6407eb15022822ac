"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archgen.toolchain import Array, Compiled, Request, Toolchain
from compiler.driver import CompileOptions, CompileResult, compile_model, prepared
from compiler.effort import alternatives
from compiler.stages import Stages
from simmodel.arch import Arch
from simmodel.functional import Host, Run, run
from simmodel.metrics import measure, peak_bytes
from simmodel.program import Probe, Program
from simmodel.simulate import simulate
from simmodel.verify import verify


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    result = compile_result(request)
    return Compiled(result.program, report(result), result.probes, result.recipe)


def compile_result(request: Request) -> CompileResult:
    """The same, as the compiler gives it: of all that effort allows, the best as simulated."""
    choice = request.scheduling
    tried = [_verified(request, s) for s in alternatives(choice.effort, choice.stages)]
    if len(tried) == 1:
        return tried[0]
    return min(tried, key=lambda result: _score(result, request))


def _verified(request: Request, stages: Stages) -> CompileResult:
    options = CompileOptions(request.dtype, request.host, stages)
    result = compile_model(request.model, request.arch, options)
    verify(result.program, request.arch)
    return result


def _score(result: CompileResult, request: Request) -> tuple[float, int]:
    """What the objective says of a program, then its cycles."""
    trace = simulate(result.program, request.arch)
    objective = request.scheduling.objective
    if objective == "memory":
        return peak_bytes(result.program.buffers).get("local", 0), trace.cycles
    if objective == "energy-proxy":
        return sum(n for name, n in trace.traffic.items() if "dram" in name), trace.cycles
    return trace.cycles, trace.cycles


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


STANDARD = Toolchain(prepared, compile_request, execute, simulate, measure)

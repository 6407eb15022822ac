"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archgen.toolchain import Array, Compiled, Request, Toolchain
from compiler.driver import CompileOptions, CompileResult, compile_model, prepared
from simmodel.arch import Arch
from simmodel.functional import Host, Run, run
from simmodel.metrics import measure
from simmodel.program import Probe, Program
from simmodel.simulate import simulate
from simmodel.verify import verify


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    options = CompileOptions(request.dtype, request.host, request.scheduling.stages)
    result = compile_model(request.model, request.arch, options)
    verify(result.program, request.arch)
    return Compiled(result.program, report(result), result.probes, result.recipe)


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

"""The toolchain that archgen ships: its compiler, its executor and its event simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archgen.toolchain import Array, Compiled, Request, Toolchain
from compiler.api import (
    Best,
    CompileOptions,
    CompilerError,
    CompileResult,
    Wanted,
    at_lengths,
    best_program,
    bound_of,
    prepared,
    products_on,
    working_set,
)
from simmodel.arch import Arch
from simmodel.functional import Host, Run, run
from simmodel.metrics import measure
from simmodel.program import Probe, Program
from simmodel.simulate import traced


def compile_request(request: Request) -> Compiled:
    """The verified program that answers `request`; raises CompilerError when it is refused."""
    found = compile_best(request)
    made = found.result
    if made.program.registers:
        return Compiled(
            made.program, report(made), at=lambda lengths: _settled(made, lengths, request.arch)
        )
    return Compiled(
        made.program, report(made), made.probes, made.recipe, found.trace, found.simulate_s,
        bound_of(made, request.arch), working_set(made), lambda other: products_on(made, other),
    )  # fmt: skip


def _settled(made: CompileResult, lengths: Mapping[str, int], arch: Arch) -> Compiled:
    """The program for some lengths."""
    cut = at_lengths(made, lengths, arch)
    return Compiled(cut.program, report(made), cut.probes, cut.recipe)


def compile_best(request: Request) -> Best:
    """Of all programs that effort allows the best as simulated; CompilerError where none is."""
    scheduling = request.scheduling
    wanted = Wanted(
        request.model, request.arch, _options(request), scheduling.alternatives,
        scheduling.objective, request.schedule_from, request.decisions,
    )  # fmt: skip
    return best_program(wanted, traced)


def first(request: Request) -> tuple[Arch, CompileOptions]:
    """What the first program that is tried is compiled for, and with what."""
    return request.arch, _options(request)


def winner(request: Request) -> Best | None:
    """The program that `request` gets; None where all are refused."""
    try:
        return compile_best(request)
    except CompilerError:
        return None


def _options(request: Request) -> CompileOptions:
    way = request.scheduling
    return CompileOptions(request.dtype, request.host, way.stages, way.tree)


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


STANDARD = Toolchain(prepared, compile_request, execute, traced, measure, tries=True, anew=True)

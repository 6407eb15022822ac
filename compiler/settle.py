"""What was compiled for all lengths of some ranges, for one length of each.

The one idea: nothing is decided again. Instructions are those that the front end makes of the
program, and what it should compute is cut alike, so that a run there is judged like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.driver import CompileResult
from compiler.emit.program import demand_of
from compiler.nest.at_length import at_length, nest_at
from compiler.nest.demand import demanded
from compiler.nest.registers import values_at
from simmodel.arch import Arch
from simmodel.lengths import settled, settled_port
from simmodel.verify import verify


def at_lengths(result: CompileResult, lengths: Mapping[str, int], arch: Arch) -> CompileResult:
    """`result` for these lengths, verified; nothing can be searched in it.

    Raises LengthError for lengths that it is not for.
    """
    recipe, registers = result.recipe, result.program.registers
    program = settled(result.program, lengths)
    values = values_at(registers, lengths)
    assert recipe is not None
    graph = at_length(recipe.graph, lengths)
    least = demanded(graph)
    program = replace(
        program, macs=sum(least.macs.values()), demand=demand_of(graph, result.steps, least)
    )
    verify(program, arch)
    stages = tuple(
        replace(stage, nests=tuple(nest_at(nest, registers, values) for nest in stage.nests))
        for stage in recipe.stages
    )
    probes = tuple(
        replace(probe, port=settled_port(probe.port, registers, lengths)) for probe in result.probes
    )
    return replace(
        result, program=program, probes=probes, search=None,
        recipe=replace(recipe, graph=graph, stages=stages),
    )  # fmt: skip

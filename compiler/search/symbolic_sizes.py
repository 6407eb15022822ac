"""What was compiled for all lengths of some ranges, for one length of each.

The one idea: nothing is decided again. Instructions are those that the front end makes of the
program, and what it should compute is cut alike, so that a run there is judged like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from compiler.codegen.program import demand_of
from compiler.context import CompileResult
from compiler.symbolic.specialize import at_length, nest_at
from compiler.tensor_ir.demand import demanded
from compiler.tensor_ir.registers import values_at
from simmodel.arch.record import Arch
from simmodel.program.program import Program
from simmodel.program.sizes import specialize, specialize_probe
from simmodel.verify import verify


def specialize_result(
    result: CompileResult, lengths: Mapping[str, int], arch: Arch
) -> CompileResult:
    """`result` for these lengths, verified; nothing can be searched in it.

    Raises LengthError for lengths that it is not for.
    """
    recipe, registers = result.recipe, result.program.registers
    program = specialize(result.program, lengths)
    values = values_at(registers, lengths)
    assert recipe is not None
    graph = at_length(recipe.graph, lengths)
    least = demanded(graph)
    program = replace(
        program, macs=sum(least.macs.values()), demand=demand_of(graph, result.steps, least, arch)
    )
    verify(program, arch)
    stages = tuple(
        replace(stage, nests=tuple(nest_at(nest, registers, values) for nest in stage.nests))
        for stage in recipe.stages
    )
    probes = tuple(specialize_probe(probe, registers, lengths) for probe in result.probes)
    return replace(
        result, program=program, probes=probes, search=None,
        recipe=replace(recipe, graph=graph, stages=stages),
    )  # fmt: skip


# Which of several programs for a range of lengths is best over the range.

T = TypeVar("T")


def over_lengths(
    tried: Sequence[T], edge: Callable[[T], float], program: Callable[[T], Program],
    cycles: Callable[[Program], float], allowed: float,
) -> T:  # fmt: skip
    """The one of `tried` that takes fewest cycles over some lengths of its range.

    Args:
        tried: what was made for one range, or for one length: then the edge alone counts.
        edge: cycles at the upper edge, which are known.
        program: what is run.
        cycles: of a program without registers.
        allowed: share by which it may take longer at the edge than the quickest.
    """
    least = min(map(edge, tried))
    near = [each for each in tried if edge(each) <= (1 + allowed) * least]
    if len(near) == 1 or not program(near[0]).registers:
        return min(near, key=edge)

    def total(each: T) -> float:
        made = program(each)
        return edge(each) + sum(
            cycles(specialize(made, lengths)) for lengths in _smaller_sizes(made)
        )

    return min(near, key=total)


def _smaller_sizes(program: Program) -> Iterator[Mapping[str, int]]:
    """Half of all lengths, and the least of them."""
    own = [register for register in program.registers if not register.terms]
    yield {each.name: max(each.low, each.high // 2) for each in own}
    yield {each.name: each.low for each in own}

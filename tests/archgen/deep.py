"""Programs whose values lie in DRAM at few places only, as if more of them stayed on chip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from archgen.toolchain import Compiled
from compiler.numerics.expected_values import Stage, VerificationPlan


def fused(made: Compiled, nests: int) -> Compiled:
    """`made`, of whose values only those are seen that a group of `nests` operators would store."""
    assert made.recipe is not None
    recipe = replace(made.recipe, stages=tuple(_merged(made.recipe, nests)))
    seen = {name for stage in recipe.stages for name in stage.stored}
    probes = tuple(probe for probe in made.probes if probe.port.name in seen)
    return replace(made, recipe=recipe, probes=probes)


def _merged(recipe: VerificationPlan, nests: int) -> Iterator[Stage]:
    run: list[Stage] = []
    for number, stage in enumerate(recipe.stages):
        ahead = recipe.stages[number + 1 :]
        if not stage.nests:
            yield stage
            continue
        run.append(stage)
        full = sum(len(each.nests) for each in run) >= nests
        if full or not ahead or not ahead[0].nests:
            yield _as_one(recipe, run, ahead)
            run = []


def _as_one(recipe: VerificationPlan, run: list[Stage], ahead: Iterable[Stage]) -> Stage:
    tensors = recipe.graph.tensors
    later = {access.tensor for stage in ahead for nest in stage.nests for access in nest.reads}
    buffers = {tensors[name].storage.buffer for name in (*later, *recipe.graph.outputs)}
    return Stage(
        tuple(nest for stage in run for nest in stage.nests),
        tuple(n for stage in run for n in stage.stored if tensors[n].storage.buffer in buffers),
        {name: kind for stage in run for name, kind in stage.kinds.items()},
        {name: kind for stage in run for name, kind in stage.sums.items()},
    )

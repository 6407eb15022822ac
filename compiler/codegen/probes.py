"""What a program's steps store in memory, to be seen while it runs.

A verdict on every operator needs what each of them was given and what it made of it; what stays on
chip is made of these again (`compiler.numerics.expected_values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.kernels import Offer
from compiler.codegen.program import ProgramCode
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.numerics.expected_values import Stage, VerificationPlan
from compiler.numerics.provenance import Known
from compiler.tensor_ir.nest import NestGraph
from simmodel.program.program import Probe


def probes(emitter: ProgramCode) -> tuple[Probe, ...]:
    """Each tensor that a step stores, as it lies in memory when the step has ended."""
    return tuple(
        Probe(f"step{number}", replace(emitter.port(name), dtype=emitter.graph.tensors[name].dtype))
        for number, step in enumerate(emitter.steps)
        for name in stage(step).stored
    )


def recipe(
    graph: NestGraph, steps: Sequence[Step], known: Known, offers: Sequence[Offer] = ()
) -> VerificationPlan:
    """What `steps` compute, and which kernels of `offers` do."""
    kernels = {each.tensor: f"kernel {each.kernel} ({each.place})" for each in offers if each.taken}
    made = tuple(stage(step) for step in steps)
    return VerificationPlan(graph, made, known, kernels)


def stage(step: Step) -> Stage:
    """What `step` computes, and what it stores."""
    if not isinstance(step, PlacedGroup):
        return Stage((), step.outputs if step.pick is None else (), host=step)
    group = step.plan.schedule.group
    nests = tuple(nest for layer in group.layers for nest in layer.nests)
    kinds = {
        compute.nest.tensor: step.plan.buffers[compute.writes].dtype
        for layer in step.plan.layers
        for compute in layer.computes
        if compute.nest.tensor not in group.stored
    }
    sums = {
        compute.nest.tensor: step.plan.buffers[name].dtype
        for layer in step.plan.layers
        for compute in layer.computes
        for name in (*compute.scratch, *filter(None, (compute.sums,)))
    }
    # What lies in slices, in memories of several clusters, is not to be seen as a whole.
    # Nor what is put into another tensor row by row.
    seen = (n for n in group.stored if group.tensors[n].placed is None)
    whole = (n for n in seen if n not in group.shared or group.shared[n].slices == 1)
    return Stage(nests, tuple(whole), kinds, sums)

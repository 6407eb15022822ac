"""What a program's steps compute and leave behind, for whoever checks it while it runs.

A tensor can be seen when the step that makes it has ended: in memory, or in slices on chip, those
of cores in their local memories or those of clusters in their shared ones.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from compiler.codegen.handover import resident_operand
from compiler.codegen.kernels import Offer
from compiler.codegen.program import ProgramCode
from compiler.codegen.tile import far_operand
from compiler.geometry.boxes import Range
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.numerics.recipe import Known, Stage, VerificationPlan
from compiler.plan.symbolic_parts import STILL
from compiler.schedule_ir.group import Group
from compiler.tensor_ir.bounds import Box
from compiler.tensor_ir.nest import Tensor
from simmodel.arch.element_types import size_of
from simmodel.program.program import Probe, TensorSlice


def recipe(
    code: ProgramCode, steps: Sequence[Step], known: Known, offers: Sequence[Offer] = ()
) -> VerificationPlan:
    """What `steps` compute, of which `code` is made, and which kernels of `offers` do."""
    kernels = {each.tensor: f"kernel {each.kernel} ({each.place})" for each in offers if each.taken}
    made = [_computed(code, step) for step in steps]
    first: dict[Hashable, int] = {}
    for number, (key, site) in code.alike.items():
        if number < len(made):
            alike = first.setdefault(key, number)
            made[number] = replace(made[number], alike=alike, starts=site.starts)
    return VerificationPlan(code.graph, tuple(made), known, kernels)


def probes(code: ProgramCode) -> tuple[Probe, ...]:
    """Each tensor that a step of `code` leaves behind where it can be seen."""
    inference = code.inferences - 1  # of several the last one shows
    first = inference * len(code.steps)
    return tuple(
        probe
        for number, step in enumerate(code.steps, first)
        for probe in _probes(code, number, step, inference)
    )


def _probes(code: ProgramCode, number: int, step: Step, inference: int) -> Iterator[Probe]:
    stage = _computed(code, step)
    for name in stage.stored:
        port, kind = code.port(name), code.graph.tensors[name].dtype
        yield Probe(name, number, port.shape, kind, (TensorSlice(port.operand),))
    for name in stage.kept:
        slices = tuple(_slices(code, step, name, inference))
        kind = slices[0].operand.dtype
        yield Probe(name, number, code.graph.tensors[name].shape, kind, slices)
        for copy, piece in zip(stage.copies.get(name, {}), slices, strict=False):
            shape = tuple(size for _, size in piece.box)
            yield Probe(copy, number, shape, kind, (replace(piece, box=()),))


def _slices(code: ProgramCode, step: Step, name: str, inference: int) -> Iterator[TensorSlice]:
    """Where a tensor lies that `step` leaves on chip."""
    assert isinstance(step, PlacedGroup)
    schedule = step.plan.schedule
    if (resident := schedule.group.residents.get(name)) is not None:
        for part, box in enumerate(resident.slices):
            operand = resident_operand(step.plan, name, part, _ranges(box), STILL)
            yield TensorSlice(operand, schedule.first_core + part, box)
        return
    tensor = code.graph.tensors[name]
    for cluster, box in enumerate(_shared_slices(schedule.group, tensor)):
        places = code.cluster_addresses({}, cluster, inference)
        operand = far_operand(tensor, _ranges(box), places)
        yield TensorSlice(operand, cluster * code.arch.cores, box)


def _ranges(box: Box) -> tuple[Range, ...]:
    return tuple(Range(first, size) for first, size in box)


def _shared_slices(group: Group, tensor: Tensor) -> tuple[Box, ...]:
    """By cluster, what it has of a tensor in shared memory; nothing where that is no box."""
    home, storage = group.shared[tensor.name], tensor.storage
    axis = max(range(len(tensor.shape)), key=lambda a: storage.strides[a])
    each, odd = divmod(home.bytes // size_of(tensor.dtype), storage.strides[axis])
    if odd or each * home.slices != tensor.shape[axis]:
        return ()
    whole = tuple((0, extent) for extent in tensor.shape)
    return tuple(
        (*whole[:axis], (cluster * each, each), *whole[axis + 1 :])
        for cluster in range(home.slices)
    )


def _computed(code: ProgramCode, step: Step) -> Stage:
    """What `step` computes, and what it leaves."""
    if not isinstance(step, PlacedGroup):
        return Stage((), step.outputs if step.pick is None else (), host=step)
    group = step.plan.schedule.group
    nests = tuple(nest for layer in group.layers for nest in layer.nests)
    buffers = step.plan.buffers
    computes = [compute for layer in step.plan.layers for compute in layer.computes]
    kinds = {
        each.nest.tensor: buffers[each.writes].dtype
        for each in computes
        if each.nest.tensor not in group.stored
    }
    sums = {
        each.nest.tensor: buffers[name].dtype
        for each in computes
        for name in (*each.scratch, each.sums)
        if name is not None
    }
    # What is put into another tensor row by row is not to be seen as a whole.
    seen = [n for n in group.stored if group.tensors[n].placed is None]
    sliced = [n for n in seen if n in group.shared and group.shared[n].slices > 1]
    stored = tuple(n for n in seen if n not in sliced)
    kept = [n for n in group.results if n in group.residents]
    kept += [n for n in sliced if _shared_slices(group, group.tensors[n])]
    if code.registers:  # slices that follow lengths are not looked at
        kept = []
    first = step.plan.schedule.first_core
    copies = {
        name: {f"{name} of core {core}": box for core, box in enumerate(slices, first)}
        for name in kept
        if (slices := _overlapping(group, name))
    }
    pinned = tuple(group.pinned)
    return Stage(nests, stored, kinds, sums, pinned=pinned, kept=tuple(kept), copies=copies)


def _overlapping(group: Group, name: str) -> tuple[Box, ...]:
    """The slices of a tensor that stays on chip, if several cores have the same elements."""
    slices = group.residents[name].slices if name in group.residents else ()
    elements = sum(math.prod(size for _, size in box) for box in slices)
    return slices if elements > math.prod(group.tensors[name].shape) else ()

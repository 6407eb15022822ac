"""From a tree to planned and placed steps: the compiler does as it is told, and what is left open.

A tree is checked before anything is planned. What is wrong with it is a `TreeError` with a line for
every mistake; what is right but does not fit the machine is refused with the sum, like any other
schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from compiler.decisions.fallback import place_in_pieces
from compiler.decisions.group_costs import Fit, GroupCosts
from compiler.decisions.text.cuts import Cuts, slicing_of
from compiler.decisions.text.text import TreeError
from compiler.decisions.text.tree import Call, Home, Layers, Part, ScheduleStep, Tree
from compiler.geometry.tile_trace import TraceCache, Unwalkable, largest, trace_parts
from compiler.memory.on_chip import PlacedGroup, check_layout
from compiler.memory.on_chip import Step as Made
from compiler.plan.make_plan import Plan
from compiler.schedule.residency import activations, shared_memory, weights
from compiler.schedule.residency.buffer import Place
from compiler.schedule.residency.table import ResidencyCandidate, ResidencyTable, Slicing
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import NOTHING, Estimate, Schedule, uncut
from compiler.target.group_facts import Unholdable
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.base import near
from simmodel.arch.record import Arch

Expected = tuple[Estimate, ...]
"""What the search expects of a step whose tree is kept, and of each of its layers."""


def apply_tree(
    tree: Tree, graph: NestGraph, parts: tuple[Part, ...], costs: GroupCosts,
    expected: Sequence[Expected | None] | None = None,
) -> tuple[Made, ...]:  # fmt: skip
    """The steps that `tree` describes.

    Args:
        parts: layers and calls of the host of the network as the compiler forms them.
        expected: of each step, where that is known; else `costs` are asked.

    Raises:
        TreeError: the tree is none of this network and machine.
        DoesNotFit: a step needs more memory than there is.
    """
    if tree.network != graph.name:
        raise TreeError([f"line 1: this is a tree of {tree.network}, not of {graph.name}"])
    layers = Layers(graph, parts)
    groups = layers.groups(tree)
    if layers.mistakes:
        raise TreeError(layers.mistakes)
    homed = _homed(tree, groups, graph, costs)
    if mistakes := [*_wrong_cores(tree, homed, costs.arch)]:
        raise TreeError(mistakes)
    schedules = _scheduled(tree, homed, costs, expected or [None] * len(homed))
    return tuple(_place_steps(tree, homed, schedules, costs))


def _homed(
    tree: Tree, groups: list[Group | HostNode], graph: NestGraph, costs: GroupCosts
) -> tuple[Group | HostNode, ...]:
    """The groups with what lies on chip between them."""
    tensors, buffers = graph.tensors.keys(), graph.buffers.keys()
    known = [buffers if home.memory == "shared" else tensors for home in tree.homes]
    mistakes = [
        f"line {home.line}: no tensor {home.tensor!r}{near(home.tensor, names)}"
        for home, names in zip(tree.homes, known, strict=True)
        if home.tensor not in names
    ]
    mistakes += [
        f"line {home.line}: {home.tensor}: {costs.arch.name} has no {home.memory} memory"
        for home in tree.homes
        if home.memory not in costs.arch.memories.on_chip()
    ]
    if mistakes:
        raise TreeError(mistakes)
    slicings = {home: slicing_of(home, groups, costs.arch, mistakes) for home in tree.homes}
    if mistakes:
        raise TreeError(mistakes)
    return _residents(slicings, graph, ResidencyTable(list(groups), costs))


def _residents(
    slicings: Mapping[Home, Slicing | None], graph: NestGraph, table: ResidencyTable
) -> tuple[Group | HostNode, ...]:
    """The groups of a table with exactly those tensors on chip that are wanted, as they are cut."""
    left = dict(slicings)
    for candidates in (weights.candidates, activations.candidates, shared_memory.candidates):
        if not left:
            break
        able = {(c.memory, c.name): c for c in candidates(table.parts, graph, table.prices)}
        for home in list(left):
            if (home.memory, home.tensor) in able:
                _put(able[home.memory, home.tensor], home, left.pop(home), table)
    for home in left:
        said = f"{home.tensor} cannot stay in {home.memory} memory between these steps"
        raise TreeError([f"line {home.line}: {said}"])
    return tuple(table.parts)


def _put(
    candidate: ResidencyCandidate, home: Home, slicing: Slicing | None, table: ResidencyTable
) -> None:
    """A row for a candidate, at the address that is wanted, as is quickest."""
    memory, grain = table.prices.arch.memories.on_chip()[home.memory], table.grain(home.memory)
    ways = candidate.slicings(table) if slicing is None else [slicing]
    sizes = [candidate.sliced_bytes(each) for each in ways]
    places = list(candidate.places(table, memory.size, home.address, slicing))
    if home.address is not None and home.address % grain:
        said = f"{home.tensor} at {home.address}: must be a multiple of {grain} B"
    elif not sizes:
        said = f"{home.tensor} cannot stay on chip: these steps cannot be cut alike"
    elif not places:
        where = "anywhere" if home.address is None else f"at {home.address}"
        where += f", of {memory.size}"
        said = f"{home.tensor}: {min(sizes)} B are not free in {home.memory} memory {where}"
    else:
        best = places[0] if len(places) == 1 else table.best(places)
        table.commit(best or places[0])
        return
    raise TreeError([f"line {home.line}: {said}"])


def _wrong_cores(tree: Tree, groups: Sequence[Group | HostNode], arch: Arch) -> Iterator[str]:
    """What cores by number cannot be: others than there are, others than those that keep what a
    step reads or makes."""
    keepers: dict[str, int] = {}
    for step, group in zip(tree.steps, groups, strict=True):
        if isinstance(step, Call) or isinstance(group, HostNode):
            continue
        first, stop = step.among or (0, 0)
        if stop > arch.core_count:
            yield f"line {step.line}: cores {first}:{stop}, where {arch.name} has {arch.core_count}"
        for kept in group.residents.values():
            if (keeper := keepers.setdefault(kept.whole, first)) != first:
                said = f"stays in local memory of cores from {keeper} on, not of those from"
                yield f"line {step.line}: {kept.whole} {said} {first} on"
        if first and any(home.slices > 1 for home in group.shared.values()):
            said = "what lies in shared memory of clusters is cut for cores from 0 on"
            yield f"line {step.line}: {said}"


def _scheduled(
    tree: Tree, groups: tuple[Group | HostNode, ...], costs: GroupCosts,
    expected: Sequence[Expected | None],
) -> list[Schedule | None]:  # fmt: skip
    """The schedule of each step; None where the tree leaves it to the compiler."""
    mistakes: list[str] = []
    found: list[Schedule | None] = []
    for step, group, known in zip(tree.steps, groups, expected, strict=True):
        if isinstance(step, Call) or isinstance(group, HostNode) or not step.cores:
            found.append(None)
            if isinstance(step, ScheduleStep) and (step.loops or any(w.loops for w in step.layers)):
                mistakes.append(f"line {step.line}: a step with loops says what its cores do")
            continue
        own = costs.with_slots(step.slots)
        made = _schedule(step, group, own, mistakes)
        if made is not None and known is not None:
            pairs = zip(made.layers, known[1:], strict=True)
            layers = tuple(replace(layer, estimate=estimate) for layer, estimate in pairs)
            made = replace(made, layers=layers, estimate=known[0])
        elif made is not None:
            try:
                made = own.estimated(made)
            except (Unwalkable, Unholdable) as why:
                mistakes.append(f"line {step.line}: {why}")
        found.append(made and made.from_core((step.among or (0,))[0]))
    if mistakes:
        raise TreeError(mistakes)
    return found


def _schedule(
    step: ScheduleStep, group: Group, costs: GroupCosts, mistakes: list[str]
) -> Schedule | None:
    """The schedule of one step, of which nothing is expected yet; None where it is wrong."""
    cuts, before = Cuts(step, group, costs.arch, mistakes), len(mistakes)
    parts, loops = cuts.parts(), cuts.loops()
    if len(mistakes) > before:
        return None
    layers, alone = uncut(group), len(group.layers) == 1 and not loops
    if alone:  # what cores do of a layer in loops follows from the walk
        layers = (replace(layers[0], parts=parts),)
    try:
        walked = trace_parts(group, loops, parts, TraceCache())
    except (Unwalkable, Unholdable) as why:
        mistakes.append(f"line {step.line}: {why}")
        return None
    found = []
    for position, (work, tiled) in enumerate(zip(step.layers, layers, strict=True)):
        size = largest([w.work[position] for w in walked], len(tiled.layer.result.shape))
        loops_of = cuts.layer(work, tiled.layer, size)
        found.append(replace(tiled, loops=loops_of, resident=work.resident))
    return None if len(mistakes) > before else Schedule(group, tuple(found), parts, NOTHING, loops)


def _place_steps(
    tree: Tree, groups: tuple[Group | HostNode, ...], schedules: list[Schedule | None],
    costs: GroupCosts,
) -> Iterator[Made]:  # fmt: skip
    last: dict[int, Fit] = {}
    for step, group, schedule in zip(tree.steps, groups, schedules, strict=True):
        if isinstance(group, HostNode):
            yield group
            continue
        assert isinstance(step, ScheduleStep)
        first, stop = step.among or (0, costs.arch.core_count)
        before = last.get(first)
        if schedule is None:
            own = costs.on_cores(stop - first) if step.among else costs
            fits = place_in_pieces(own, group, before)
            found = [PlacedGroup(*fit).from_core(first) for fit in fits]
        else:
            usual = costs.stages.plan
            try:
                plan = replace(usual, slots=step.slots or usual.slots).apply(schedule, costs.arch)
            except (Unwalkable, Unholdable) as why:
                raise TreeError([f"line {step.line}: {why}"]) from why
            found = [PlacedGroup(plan, _buffer_addresses(step, plan, costs, before))]
        last[first] = found[-1].plan, found[-1].places
        yield from found


def _buffer_addresses(
    step: ScheduleStep, plan: Plan, costs: GroupCosts, before: Fit | None
) -> dict[str, Place]:
    """Where the buffers of a step lie: as the tree says, or as the compiler places them."""
    if not step.buffers:
        return costs.stages.alloc.apply(plan, costs.arch, before)
    own = {name for name, buffer in plan.buffers.items() if buffer.address is None}
    mistakes = [
        f"line {address.line}: no buffer {address.buffer!r}{near(address.buffer, own)}"
        for address in step.buffers
        if address.buffer not in own
    ]
    given = {address.buffer: (address.start, address.pitch) for address in step.buffers}
    left = sorted(own - given.keys())
    if left:
        mistakes.append(f"line {step.line}: no place for {', '.join(left)}")
    places = given | {
        n: (b.address, b.bytes) for n, b in plan.buffers.items() if b.address is not None
    }
    if not mistakes:
        lines = {address.buffer: address.line for address in step.buffers}
        wrong = check_layout(plan, places, costs.arch)
        mistakes = [f"line {lines[name]}: {said}" for name, said in wrong]
    if mistakes:
        raise TreeError(mistakes)
    return places

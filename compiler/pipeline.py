"""The driver: model and architecture in, program out.

It calls the stages in order and hands on what a stage refuses: a group that fits in no tile is
taken apart, an operator that fits in no tile alone is an error with the sum that does not fit.
What is given up on the way is noted in the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import onnx
import onnx_ir as ir

from compiler.codegen.kernels import Offer
from compiler.codegen.probes import probes, recipe
from compiler.codegen.program import PlacedGroup
from compiler.codegen.program import Step as ProgramStep
from compiler.decisions.cache import Decisions, decision_of
from compiler.decisions.fallback import (
    TOKENS,
    Emitted,
    Parts,
    Strategy,
    emit_with_fallbacks,
    in_turns,
    place_groups,
    strategies,
)
from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.text.apply import apply_tree
from compiler.decisions.text.tree import Tree
from compiler.errors import DoesNotFit, UnsupportedModel, at_node
from compiler.frontend.canonicalize.symbolic_axes import OpenAxes, mark_open, open_axes
from compiler.frontend.reference_types import refusal
from compiler.frontend.rewrite import names_of, origin_of, runs_of
from compiler.lowering.host import Fallback
from compiler.memory.on_chip import Place
from compiler.numerics.expected_values import VerificationPlan
from compiler.numerics.provenance import Known, SourceValue
from compiler.options import Stages, Trial
from compiler.passes import Pass, Result, run_passes
from compiler.plan.plan import Plan
from compiler.schedule.residency.placement_state import Prices, added
from compiler.schedule.tracking import TrackedArch
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule
from compiler.symbolic.infer_from_samples import for_lengths
from compiler.symbolic.merge import refusal as refusal_of
from compiler.symbolic.model import SymbolicModel
from compiler.target.bind import unsupported
from compiler.target.loops.cover import Cover, CoverProblem
from compiler.target.machine import between_type, real_type
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from simmodel.arch.dtype import NAMES, is_float
from simmodel.arch.record import Arch
from simmodel.program.program import Probe, Program

_SOURCE = "archgen.source"

Observer = Callable[[str, Any], None]
"""Called with the name of each stage and what it made, which the next stage may change. From
`fuse` on a stage that has to give up what it made makes it again: what counts is its last."""


def unobserved(stage: str, made: object) -> None:
    """The observer that does nothing."""
    del stage, made


@dataclass(frozen=True)
class CompileOptions:
    """What the user may choose; everything else is decided from the architecture."""

    dtype: str | None = None
    """Element type of the network; default the architecture's first."""
    host: bool = True
    """Whether operators may fall back to the host."""
    stages: Stages = field(default_factory=Stages)
    tree: Tree | None = None
    """A schedule to follow; what it leaves open, and everything without one, is searched for."""


@dataclass(frozen=True)
class GroupDecision:
    """What was decided for one group."""

    group: Group
    schedule: Schedule
    plan: Plan
    places: dict[str, Place]
    step: int
    """Position among groups and host nodes; the number of its group in the program's origins."""


@dataclass(frozen=True)
class ScheduleSearch:
    """What the decisions were chosen among: other groups of these parts may still be priced."""

    graph: NestGraph
    parts: tuple[Layer | HostNode, ...]
    fitter: GroupCosts


@dataclass(frozen=True)
class CompileResult:
    """The program and how it came about."""

    program: Program
    host: tuple[HostNode, ...] = ()
    """Operators that run on the host, with reasons; several may go in one call."""
    decisions: tuple[GroupDecision, ...] = field(default=(), compare=False)
    probes: tuple[Probe, ...] = ()
    """Every tensor that a step stores."""
    recipe: VerificationPlan | None = field(default=None, compare=False, repr=False)
    """What the steps compute, to be computed again."""
    search: ScheduleSearch | None = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()
    """What the search had chosen and had to be given up, with the reason."""
    steps: tuple[ProgramStep, ...] = field(default=(), compare=False, repr=False)
    """The groups, planned and placed, and calls of the host, in order."""
    kernels: tuple[Offer, ...] = field(default=(), compare=False)
    """Kernels of users that were compared, each beside what the compiler emits."""
    works: Mapping[tuple[int, str], tuple[CoverProblem, Cover]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By origin in the program and form, the longest work of the engines of elements: its loops,
    and which of them an instruction walks."""
    trials: Mapping[int, tuple[Trial, ...]] = field(default_factory=dict, compare=False)
    """By step, the schedules of its group that were run by themselves."""


def prepared(
    proto: onnx.ModelProto,
    name: str,
    stages: Stages | None = None,
    observe: Observer = unobserved,
    following: OpenAxes | None = None,
) -> ir.Model:
    """The network after loading and all graph passes: independent of any machine, and of all
    options but those of `Stages.shared`. `following`: of one for a range of lengths, the axes that
    follow from these."""
    stages = stages or Stages()
    model = stages.load.apply(proto, name)
    mark_open(model, following or {})
    observe("load", model)
    model = run_passes(stages.graph, model, _pass_observer(observe)).ir
    model.meta[_SOURCE] = {
        name: number for number, node in enumerate(proto.graph.node) for name in node.output
    }
    return model


def following_lengths(protos: Iterable[onnx.ModelProto], name: str, stages: Stages) -> OpenAxes:
    """The axes of a network's values that follow from lengths, as `prepared` is told: `protos` are
    the network at several of them, that at the upper edge first."""
    edge, *others = (stages.load.apply(proto, name) for proto in protos)
    return open_axes(edge, others)


def compile_model(
    model: onnx.ModelProto | ir.Model | SymbolicModel,
    arch: Arch,
    options: CompileOptions | None = None,
    observe: Observer = unobserved,
    decisions: Decisions | None = None,
) -> CompileResult:
    """Compile a network for a machine.

    Args:
        model: an ONNX model with fixed input shapes, or what `prepared` made of one with the same
            options (it is not changed, so several machines can share it); or such models for all
            lengths within some ranges.
        arch: the machine.
        options: element type, host fallback, options of the passes.
        observe: called after each stage; what it raises ends the compilation.
        decisions: schedules that were chosen before, of which one may serve; it is observed when
            it is placed.

    Returns:
        The program, the operators left to the host, and the decision for every group.

    Raises:
        UnsupportedModel: operators that can run nowhere.
        DoesNotFit: the sum that exceeds a memory, and what would make it fit.
    """
    options = options or CompileOptions()
    if isinstance(model, onnx.ModelProto):
        model = prepared(model, model.graph.name, options.stages, observe)
    dtype = options.dtype or arch.types[0]
    if dtype not in arch.types:
        raise UnsupportedModel(f"{arch.name} has no {dtype}; it has {', '.join(arch.types)}")
    edge = model.edge if isinstance(model, SymbolicModel) else model
    if isinstance(model, SymbolicModel):
        before, graph = _of_lengths(model, arch, dtype, options, observe)
    else:
        before, fallback = _lower_for_target(edge, arch, dtype, options, observe)
        graph = _assign_layouts(before, fallback, options.stages, observe)
    if options.tree is None:
        search, made, notes = _search_schedule(graph, arch, options.stages, observe, decisions)
    else:
        search, made, notes = _follow_schedule(options.tree, graph, arch, options.stages, observe)
    calls = (step for step in before.steps if isinstance(step, HostNode))
    host = tuple(step for step in calls if step.pick is None)
    return _result(made, search, host, _source_values(edge), notes)


def remade(result: CompileResult, steps: tuple[ProgramStep, ...]) -> CompileResult:
    """`result` with `steps`, which compute the same, in the place of its own.

    Raises DoesNotFit where the machine has too few tokens for them.
    """
    search, recipe = result.search, result.recipe
    assert search is not None and recipe is not None
    made = emit_with_fallbacks(search.graph, search.fitter, steps)
    notes = tuple(filter(None, (*result.notes, made.note)))
    return _result(made, search, result.host, recipe.known, notes)


def _result(
    made: Emitted,
    search: ScheduleSearch,
    host: tuple[HostNode, ...],
    known: Known,
    notes: tuple[str, ...],
) -> CompileResult:
    steps = tuple(made.emitter.steps)
    decided = tuple(
        GroupDecision(s.plan.schedule.group, s.plan.schedule, s.plan, s.places, number)
        for number, s in enumerate(steps)
        if isinstance(s, PlacedGroup)
    )
    names = made.emitter.names
    offers = tuple(names.offers.values())
    return CompileResult(
        made.program, host, decided, probes(made.emitter),
        recipe(search.graph, steps, known, offers), search, notes, steps, offers, names.works,
    )  # fmt: skip


def _pass_observer(observe: Observer) -> Callable[[Pass[Any], Result[Any]], None]:
    """`observe` for passes."""
    return lambda step, result: observe(step.name, result.ir)


def _source_values(model: ir.Model) -> Known:
    """Each value's names in the source model, in its order, and its element type."""
    source: dict[str, int] = model.meta.get(_SOURCE, {})
    order = {name: position for position, name in enumerate(source)}
    return {
        str(value.name): [
            SourceValue(
                name,
                NAMES[value.dtype.numpy()],
                source[name],
                origin_of(node),
                runs_of(model.graph, name),
            )
            for name in sorted(source.keys() & set(names_of(value)), key=order.__getitem__)
        ]
        for node in model.graph
        for value in node.outputs
        if value.name and value.dtype is not None and value.dtype.numpy() in NAMES
    }


def nests(model: ir.Model, arch: Arch, dtype: str, options: CompileOptions) -> NestGraph:
    """The network as nests that `arch` can run, and host nodes for the rest."""
    graph, fallback = _lower_for_target(model, arch, dtype, options)
    return _assign_layouts(graph, fallback, options.stages)


def _of_lengths(
    family: SymbolicModel, arch: Arch, dtype: str, options: CompileOptions, observe: Observer
) -> tuple[NestGraph, NestGraph]:
    """The network of the upper edge as nests and host nodes, and that for all lengths.

    What an engine finishes at each length may be beyond it for all of them, as a mean that is
    multiplied by how many times fewer terms there are: that goes to the host.
    """
    away: dict[str, str] = {}
    while True:
        edge, made = _with_away(family, arch, dtype, options, observe, away)
        lacking = {
            step.tensor: (step, reason)
            for step in made.steps
            if isinstance(step, Nest) and (reason := unsupported(step, made.tensors, arch))
        }
        known = {step.tensor for step in edge.steps if isinstance(step, Nest)} - away.keys()
        if not lacking:
            return edge, made
        if not known.issuperset(lacking) or not _host_allowed(options):
            why = [f"{at_node(s.origin, s.kind)}: {reason}" for s, reason in lacking.values()]
            raise refusal_of(made.name, family.registers, why)
        away |= {name: reason for name, (_, reason) in lacking.items()}


def _with_away(
    family: SymbolicModel, arch: Arch, dtype: str, options: CompileOptions, observe: Observer,
    away: Mapping[str, str],
) -> tuple[NestGraph, NestGraph]:  # fmt: skip
    """The same, where nests that make any of `away` are for the host."""
    fused: list[NestGraph] = []
    placed: list[NestGraph] = []

    def watch(name: str, value: object) -> None:
        observe(name, value)
        if name == "fuse-functions" and not fused and isinstance(value, NestGraph):
            fused.append(value)

    def make(values: Mapping[str, int]) -> NestGraph | None:
        model = family.at(values)
        if model is None:
            return None
        first = not placed  # the upper edge
        like, looked = (None, watch) if first else (fused[0], unobserved)
        alike = away if first else {**away, **_calls(placed[0])}
        graph, fallback = _lower_for_target(model, arch, dtype, options, looked, like, alike)
        placed.append(graph)
        return _assign_layouts(graph, fallback, options.stages)

    kind = between_type(arch)
    real = kind if is_float(kind) else "fp32"
    made = for_lengths(make, family.registers, family.host, family.constants, real)
    return placed[0], made


def _calls(graph: NestGraph) -> dict[str, str]:
    """What the host makes, each with the reason: it does so at every length."""
    calls = (step for step in graph.steps if isinstance(step, HostNode) and step.pick is None)
    return {name: call.reason for call in calls for name in call.outputs}


def _host_allowed(options: CompileOptions) -> bool:
    return options.host and options.stages.host.allowed


def _lower_for_target(
    model: ir.Model,
    arch: Arch,
    dtype: str,
    options: CompileOptions,
    observe: Observer = unobserved,
    like: NestGraph | None = None,
    away: Mapping[str, str] = MappingProxyType({}),
) -> tuple[NestGraph, Fallback]:
    """The network with a host node for each operator that `arch` cannot run, and for what makes any
    of `away`; with the functions of `like`, if given."""
    stages = options.stages
    graph = stages.lower.apply(model, real_type(arch, dtype))
    observe("lower", graph)
    graph = stages.rows.apply(graph, arch)
    observe("copy-rows", graph)
    graph = run_passes(stages.nests, graph, _pass_observer(observe)).ir
    graph = stages.marks.apply(graph, arch, like)
    observe("fuse-functions", graph)
    graph = stages.functions.apply(graph, arch)
    observe("expand-functions", graph)
    fallback = Fallback(model, graph)
    place = replace(stages.host, allowed=_host_allowed(options))
    graph = place.apply(graph, arch, fallback.host_node, refusal, away)
    observe("place-on-host", graph)
    graph = stages.depthwise.apply(graph, arch)
    observe("group-depthwise", graph)
    graph = stages.narrow.apply(graph, arch)
    observe("keep-narrow", graph)
    return graph, fallback


def _assign_layouts(
    graph: NestGraph, fallback: Fallback, stages: Stages, observe: Observer = unobserved
) -> NestGraph:
    """The network with few calls to the host and few copies."""
    joined = stages.join_host.apply(graph, partial(_merge_host_nodes, fallback))
    observe("join-host", joined)
    return run_passes(stages.layout, joined, _pass_observer(observe)).ir


def _merge_host_nodes(
    fallback: Fallback,
    nodes: tuple[HostNode, ...],
    outputs: tuple[str, ...],
    given: tuple[str, ...],
) -> HostNode | None:
    """`nodes` as one call that reads what is `given`."""
    made = fallback.payload(outputs, given)
    if made is None:
        return None
    return HostNode(
        inputs=made.inputs, outputs=outputs, payload=made.data,
        origin="+".join(dict.fromkeys(node.origin for node in nodes)),
        kind="+".join(dict.fromkeys(node.kind for node in nodes)),
        reason="; ".join(dict.fromkeys(node.reason for node in nodes)),
        operations=made.operations,
    )  # fmt: skip


def _search_schedule(
    graph: NestGraph, arch: Arch, stages: Stages, observe: Observer, decisions: Decisions | None
) -> tuple[ScheduleSearch, Emitted, tuple[str, ...]]:
    """What was searched, the program, and what was given up for it."""
    parts = layers(graph, arch, stages, observe)
    refusal: DoesNotFit | None = None
    for way in strategies(stages, arch.core_count):
        try:
            search, steps, notes = _cached_schedule(graph, parts, arch, way, observe, decisions)
            _observe_steps(steps, observe)
            found = emit_with_fallbacks(graph, search.fitter, steps)
        except DoesNotFit as why:
            if why.unit == TOKENS:
                refusal = why
            elif refusal is None:
                raise
            continue
        if found.note:
            notes.append(found.note)
            _observe_steps(tuple(found.emitter.steps), observe)
            search = _without_multicast(search, found)
        observe("order", found.program)
        return search, found, tuple(filter(None, notes))
    assert refusal is not None
    raise refusal


def _cached_schedule(
    graph: NestGraph, parts: tuple[Layer | HostNode, ...], arch: Arch, way: Strategy,
    observe: Observer, decisions: Decisions | None,
) -> tuple[ScheduleSearch, tuple[ProgramStep, ...], list[str]]:  # fmt: skip
    """What is known of such a machine, or is found for this one and then known; with what had to be
    given up."""
    notes = [way.note]
    key = None if decisions is None else decisions.key(graph, parts, way.stages)
    if decisions is None or key is None:
        search = ScheduleSearch(graph, parts, GroupCosts(arch, way.stages))
        return search, _place_network(search, observe, notes), notes
    known = decisions.of(key, arch)
    if known is not None:
        search = ScheduleSearch(graph, parts, GroupCosts(arch, way.stages, decisions.fronts))
        steps = apply_tree(known.tree, graph, parts, search.fitter, known.expected)
        return search, steps, [*notes, *known.notes]
    seen = TrackedArch(arch)
    search = ScheduleSearch(graph, parts, GroupCosts(seen.machine, way.stages, decisions.fronts))
    steps = _place_network(search, observe, notes)
    decisions.store(key, dict(seen.noted), decision_of(graph, steps, notes[1:]))
    return search, steps, notes


def _without_multicast(search: ScheduleSearch, made: Emitted) -> ScheduleSearch:
    """`search` with what the program of `made` had to do without."""
    fitter, share = search.fitter, made.emitter.share
    if share == fitter.stages.share:
        return search
    return replace(search, fitter=GroupCosts(fitter.arch, replace(fitter.stages, share=share)))


def _follow_schedule(
    tree: Tree, graph: NestGraph, arch: Arch, stages: Stages, observe: Observer
) -> tuple[ScheduleSearch, Emitted, tuple[str, ...]]:
    """The same for a schedule that is given."""
    parts = layers(graph, arch, stages, observe)
    way = Strategy(stages)
    search = ScheduleSearch(graph, parts, GroupCosts(arch, stages))
    steps = apply_tree(tree, graph, parts, search.fitter)
    _observe_steps(steps, observe)
    try:
        found = emit_with_fallbacks(graph, search.fitter, steps)
    except DoesNotFit as why:
        if why.unit != TOKENS:
            raise
        way = in_turns(stages)
        search = ScheduleSearch(graph, parts, GroupCosts(arch, way.stages))
        found = emit_with_fallbacks(graph, search.fitter, steps)
    if found.note:
        _observe_steps(tuple(found.emitter.steps), observe)
        search = _without_multicast(search, found)
    observe("order", found.program)
    return search, found, tuple(filter(None, [way.note, found.note]))


def layers(
    graph: NestGraph, arch: Arch, stages: Stages, observe: Observer = unobserved
) -> tuple[Layer | HostNode, ...]:
    """The network's layers, bound to engines, and calls of the host."""
    parts = stages.fuse.apply(graph)
    observe("fuse-tails", parts)
    parts = stages.bind.apply(parts, arch)
    observe("bind", parts)
    return parts


def _observe_steps(steps: tuple[ProgramStep, ...], observe: Observer) -> None:
    for stage in ("tree", "tile", "plan", "layout"):
        observe(stage, steps)


def _place_network(
    search: ScheduleSearch, observe: Observer, notes: list[str]
) -> tuple[ProgramStep, ...]:
    """Every group planned and placed; adds to `notes` what had to be given up."""
    made = grouped(search)
    stages = ("homes", "keep", "pin", "fuse")
    for stage, parts in zip(stages[::-1], made[::-1], strict=True):
        observe(stage, parts)

    def gave_up(position: int, note: str) -> None:
        notes.append(note)
        for stage in stages[:position][::-1]:
            observe(stage, made[position])

    return place_groups(made, search.fitter, gave_up)


def grouped(search: ScheduleSearch) -> tuple[Parts, Parts, Parts, Parts]:
    """The groups with what lies in shared memory between them; with what is kept on chip; with the
    constants that stay there; the groups alone.

    Groups are formed for the best that can be; where that does not come true, also for the
    worst, and the better ones are taken. Where one core keeps up with DRAM, so are the groups that
    it would have: what several make quicker one by one ends before long groups pay.
    """
    graph, fitter, stages = search.graph, search.fitter, search.fitter.stages
    best: tuple[float, tuple[Parts, Parts, Parts, Parts]] | None = None

    def formed(prices: Prices) -> Parts:
        return stages.partition.apply(
            search.parts,
            graph,
            prices.price,
            prices.lower_bound,
            prices.cost_below,
            prices.overlap_ends,
        )

    def weigh(groups: Parts) -> float:
        nonlocal best
        pinned = stages.pin.apply(groups, fitter)
        # What is kept is weighed against DRAM: shared memory may do better on its own.
        total = math.inf
        for kept in (stages.keep.apply(pinned, graph, fitter), pinned):
            homed = stages.homes.apply(kept, graph, fitter)
            found = added(homed, fitter)
            total = min(total, found)
            if best is None or found < best[0]:
                best = found, (homed, kept, pinned, groups)
        return total

    for hoped, least in stages.pin.optimistic_costs(search.parts, fitter):
        for outlook in stages.homes.optimistic_costs(graph, hoped):
            groups = formed(outlook)
            if weigh(groups) <= added(groups, outlook):
                break
        if stages.tile.objective == "latency" and best is not None and best[0] <= least:
            break
    if _one_core_keeps_up(search):
        single = replace(stages, tile=replace(stages.tile, cores=1))
        weigh(formed(GroupCosts(fitter.arch, single, fitter.fronts)))
    assert best is not None
    return best[1]


def _one_core_keeps_up(search: ScheduleSearch) -> bool:
    """Whether there are several cores, and one of them computes in less time than constants take
    to arrive."""
    fitter = search.fitter
    if fitter.cores == 1:
        return False
    found = [part for part in search.parts if isinstance(part, Layer)]
    computing = sum(max(fitter.search.bounds.engine_cycles(layer)) for layer in found)
    names = {name for layer in found for name in layer.inputs}
    tensors = (search.graph.tensors[name] for name in names)
    constant = {t.storage.buffer: t.stored for t in tensors if t.data is not None}
    return computing < sum(constant.values()) / fitter.arch.dram_bytes_per_cycle

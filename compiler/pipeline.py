"""The compiler on one page: every stage in its order, model and architecture in, program out.

A stage is a function `stage(ir, ctx) -> ir`. A stage that cannot raises `DoesNotFit`, with the sum
that does not fit; whoever calls it here says what is tried next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import ref

import onnx
import onnx_ir as ir

from compiler.codegen.handover import with_handovers
from compiler.codegen.observed import probes, recipe
from compiler.codegen.program import ProgramCode, StepCode
from compiler.context import (
    IR,
    CompileOptions,
    CompileResult,
    Context,
    Network,
    Observer,
    ScheduledNetwork,
    unobserved,
)
from compiler.decisions.cache import Decisions, NetworkDecision, decision_of
from compiler.decisions.cut_tails import without_tails
from compiler.decisions.fallback import halve_hungriest, place_in_pieces, strategies
from compiler.decisions.group_costs import Fit, stretch
from compiler.decisions.instances import Instances, in_instances
from compiler.decisions.text.apply import Expected, apply_tree
from compiler.decisions.text.text import TreeError
from compiler.decisions.text.tree import Tree
from compiler.errors import CompilerError, DoesNotFit, TooFewTokens, UnsupportedModel, at_node, on
from compiler.frontend.canonicalize.symbolic_axes import OpenAxes, mark_open, open_axes
from compiler.frontend.reference_types import refusal
from compiler.geometry.tile_trace import Unwalkable
from compiler.lowering.host import Fallback
from compiler.memory.load_plan import with_early_loads
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.numerics.recipe import Known, mark_source, source_values
from compiler.options import Stages
from compiler.passes import Pass, run_passes
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.table import Way, added, cheaper_stretches
from compiler.schedule.tiling.choose_tiles import HIDDEN
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.symbolic.infer_from_samples import SymbolicModel, for_lengths
from compiler.symbolic.merge import refusal as refusal_of
from compiler.target.bind import unsupported
from compiler.target.group_facts import Unholdable
from compiler.target.machine import between_type, real_type
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph
from simmodel.arch.element_types import is_float
from simmodel.arch.record import Arch

GROUPED = ("homes", "keep", "pin", "fuse")
"""Names of what `search_groups` makes, as observers see it."""
LESS = (
    "nothing lies in shared memory", "nothing is kept between groups",
    "no constant stays for several groups",
)  # fmt: skip
"""What of it is tried next, when groups do not fit."""
Lowered = tuple[NestGraph, Fallback]
"""A network as nests and calls of the host, and what makes other calls of it."""


def compile_model(
    model: onnx.ModelProto | ir.Model | SymbolicModel, arch: Arch,
    options: CompileOptions | None = None, observe: Observer = unobserved,
    decisions: Decisions | None = None, like: CompileResult | None = None,
) -> CompileResult:  # fmt: skip
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
        like: what was compiled of the same network for this machine with other passes: what is
            known of its groups goes on, and its layers where passes before them are the same,
            which are not observed again then.

    Returns:
        The program, the operators left to the host, and the decision for every group.

    Raises:
        UnsupportedModel: operators that can run nowhere.
        DoesNotFit: the sum that exceeds a memory, and what would make it fit.
    """
    costs = None if like is None or like.search is None else like.search.costs
    ctx = Context(arch, options or CompileOptions(), observe, decisions, costs)
    if ctx.dtype not in arch.types:
        raise UnsupportedModel(f"{arch.name} has no {ctx.dtype}; it has {', '.join(arch.types)}")
    layers, host, known = _layers_of(like, ctx) or _layers(model, ctx)
    schedule, code = schedule_and_emit(layers, ctx)
    return _result(schedule, code, host, known)


Layers = tuple[Network[Layer], tuple[HostNode, ...], Known]
"""A network as layers, with what the host computes of it and the model's names of its values."""


def _layers(model: onnx.ModelProto | ir.Model | SymbolicModel, ctx: Context) -> Layers:
    """The layers of a network on a machine."""
    if isinstance(model, onnx.ModelProto):
        model = prepared(model, model.graph.name, ctx.stages, ctx.observe)
    if isinstance(model, SymbolicModel):
        before, graph = lower_all_sizes(model, ctx)
        model = model.edge
    else:
        before, calls = lower_for_target(model, ctx)
        graph = assign_layouts((before, calls), ctx)
    on_host = (step for step in before.steps if isinstance(step, HostNode))
    host = tuple(step for step in on_host if step.pick is None)
    return cut_tails(bind(fuse_tails(graph, ctx), ctx), ctx), host, source_values(model)


def _layers_of(like: CompileResult | None, ctx: Context) -> Layers | None:
    """The layers that were compiled before; None where passes would make others."""
    if like is None or like.search is None or like.recipe is None:
        return None
    search = like.search
    if search.costs.stages.layers != ctx.stages.layers:
        return None
    return search.undivided, like.host, like.recipe.known


# What no machine matters for.


def prepared(
    proto: onnx.ModelProto, name: str, stages: Stages | None = None,
    observe: Observer = unobserved, following: OpenAxes | None = None,
) -> ir.Model:  # fmt: skip
    """The network after loading and all graph passes: independent of any machine, and of all
    options but those of `Stages.shared`. `following`: of one for a range of lengths, the axes that
    follow from these."""
    stages = stages or Stages()
    model = stages.load.apply(proto, name)
    mark_open(model, following or {})
    observe("load", model)
    model = _rewrite(stages.graph, model, observe)
    mark_source(model, proto)
    return model


def following_lengths(protos: Iterable[onnx.ModelProto], name: str, stages: Stages) -> OpenAxes:
    """The axes of a network's values that follow from lengths, as `prepared` is told: `protos` are
    the network at several of them, that at the upper edge first."""
    edge, *others = (stages.load.apply(proto, name) for proto in protos)
    return open_axes(edge, others)


def _rewrite(passes: Iterable[Pass[IR]], made: IR, observe: Observer) -> IR:
    """`made` after all `passes`, each of which is observed."""
    return run_passes(passes, made, lambda step, result: observe(step.name, result.ir)).ir


# Operators become nests that engines of this machine can run.


def lower_for_target(model: ir.Model, ctx: Context) -> Lowered:
    """The network with a host node for each operator that the machine cannot run."""
    stages, run = ctx.stages, ctx.run

    def real(arch: Arch) -> str:
        return real_type(arch, ctx.dtype)

    def on_host(graph: NestGraph, arch: Arch) -> NestGraph:
        place = replace(stages.host, allowed=ctx.host_allowed)
        return place.apply(graph, arch, calls.host_node, refusal, ctx.on_host)

    graph = run("lower", lambda given, arch: stages.lower.apply(given, real(arch)), model)
    graph = run("copy-rows", stages.rows.apply, graph)
    graph = ctx.result_of(
        "nests", lambda given, _: _rewrite(stages.nests, given, ctx.observe), graph
    )
    graph = run("fuse-functions", lambda g, arch: stages.marks.apply(g, arch, ctx.functions), graph)
    graph = run("expand-functions", lambda g, a: stages.functions.apply(g, a, real(a)), graph)
    graph = run("fill-tables", stages.tables.apply, graph)
    graph = run("add-on-write-back", stages.additions.apply, graph)
    calls = ctx.result_of("calls", lambda given, _: Fallback(model, given), graph)
    graph = run("place-on-host", on_host, graph)
    graph = run("group-depthwise", stages.depthwise.apply, graph)
    graph = run("join-kernel-rows", stages.kernel_rows.apply, graph)
    graph = run("keep-narrow", stages.narrow.apply, graph)
    graph = run("transform-kernels", stages.kernels.apply, graph)
    graph = run("start-sums", stages.starts.apply, graph)
    return run("fill-columns", stages.columns.apply, graph), calls


def assign_layouts(lowered: Lowered, ctx: Context) -> NestGraph:
    """The network with few calls to the host and few copies."""
    graph, calls = lowered
    stages = ctx.stages
    joined = ctx.run("join-host", lambda g, _: stages.join_host.apply(g, calls.merged), graph)
    return ctx.result_of("layouts", lambda g, _: _rewrite(stages.layout, g, ctx.observe), joined)


def nests(model: ir.Model, ctx: Context) -> NestGraph:
    """The network as nests that the machine can run, and host nodes for the rest."""
    return assign_layouts(lower_for_target(model, ctx), ctx)


# Nests become layers with engines.


def fuse_tails(graph: NestGraph, ctx: Context) -> Network[Layer]:
    """Nests as layers: a product or another operator with its element-wise tail."""
    return Network(graph, ctx.run("fuse-tails", lambda g, _: ctx.stages.fuse.apply(g), graph))


def bind(network: Network[Layer], ctx: Context) -> Network[Layer]:
    """Every operator with its engine."""
    return replace(network, parts=ctx.run("bind", ctx.stages.bind.apply, network.parts))


def cut_tails(network: Network[Layer], ctx: Context) -> Network[Layer]:
    """Layers without tails that cost more than they save; a schedule by hand names its own."""
    if ctx.options.tree is not None:
        return network
    return replace(network, parts=without_tails(network.parts, ctx.costs))


# Layers become groups with schedules and addresses, and these a program.


def schedule_and_emit(
    network: Network[Layer], ctx: Context
) -> tuple[ScheduledNetwork, ProgramCode]:
    """The schedule and the program of the first strategy for whose program tokens suffice."""
    refused: TooFewTokens | None = None
    given = ctx.options.tree is not None
    for strategy in strategies(ctx.stages, ctx.arch.core_count, given=given):
        tried = ctx.with_stages(strategy.stages)
        try:
            schedule = plan_loads(find_schedule(network, tried), tried)
            _observe_steps(schedule, ctx)
            schedule, code = emit(schedule, tried)
        except TooFewTokens as why:
            refused = why
        except DoesNotFit:
            if refused is None:
                raise
        else:
            ctx.observe("order", code.program)
            notes = filter(None, (strategy.note, *schedule.notes))
            return replace(schedule, notes=tuple(notes)), code
    assert refused is not None
    raise refused


def find_schedule(network: Network[Layer], ctx: Context) -> ScheduledNetwork:
    """The schedule that is given, is remembered of such a machine, or is searched for this one."""
    graph, parts = network.graph, network.parts
    if ctx.options.tree is not None:
        return follow(ctx.options.tree, network, replace(ctx, decisions=None))
    decisions = ctx.decisions
    key = None if decisions is None else decisions.key(graph, parts, ctx.stages)
    if decisions is None or key is None:
        return search_instances(network, replace(ctx, decisions=None))
    if (known := decisions.of(key, ctx.arch)) is not None:
        return follow(known.tree, network, ctx, known.expected, known.notes)
    tracked, costs = decisions.on(ctx.arch, ctx.stages)
    schedule = search_instances(network, replace(ctx, arch=tracked.machine, known=costs))
    decision = decision_of(graph, schedule.steps, schedule.notes)
    decisions.store(key, dict(tracked.noted), decision)
    return schedule


def follow(
    tree: Tree, network: Network[Layer], ctx: Context,
    expected: Sequence[Expected | None] | None = None, notes: Sequence[str] = (),
) -> ScheduledNetwork:  # fmt: skip
    """The schedule that `tree` says, of which each step is `expected` to take so long."""
    if counts := tree.instances:
        instances = Instances.of(network.graph, network.parts, counts)
        tree, expected = instances.tree(tree, expected)
        network = Network(*instances.network, instances=instances)
    steps = apply_tree(tree, network.graph, network.parts, ctx.costs, expected)
    return ctx.scheduled(network, steps, notes)


def search_instances(network: Network[Layer], ctx: Context) -> ScheduledNetwork:
    """The best schedule that is found: all of the batch through each group, or layers in instances
    for one part of it at a time, if that is expected to be quicker."""
    whole, pin = search_schedule(network, ctx), ctx.stages.pin
    quiet = replace(ctx, observe=unobserved, known=ctx.costs)
    own = quiet.with_stages(replace(ctx.stages, pin=replace(pin, enabled=False)))

    def search(graph: NestGraph, parts: tuple[Layer, ...]) -> NetworkDecision:
        return decision_of(graph, search_schedule(Network(graph, parts), own).steps, ())

    try:
        found = in_instances(network.graph, network.parts, own.costs, search, whole.cycles)
        return whole if found is None else follow(found.tree, network, own, found.expected)
    except (CompilerError, Unwalkable, Unholdable, TreeError) as why:
        note = f"all of the batch goes through each group, because in instances {why}"
        return replace(whole, notes=(*whole.notes, note))


def search_schedule(network: Network[Layer], ctx: Context) -> ScheduledNetwork:
    """The best schedule that is found, planned and placed: with all on chip that pays, or with as
    much less between groups as it takes to fit. Where groups found no place, the search is done
    again without these, while that pays. Raises DoesNotFit where nothing less does."""
    tried = replace(ctx, known=ctx.costs.barring())
    found, barred, known = _place_best(network, tried), tried.costs.barred, 0
    while known < len(barred):
        known, seen = len(barred), list[tuple[str, Any]]()
        watch = replace(tried, observe=lambda *stage, to=seen: to.append(stage))
        try:
            other = _place_best(network, watch)
        except (DoesNotFit, Unwalkable, Unholdable):
            break
        if other.cycles >= found.cycles:
            break
        found = other
        for stage in seen:
            ctx.observe(*stage)
    return replace(found, search=replace(found.search, costs=ctx.costs))


def _place_best(network: Network[Layer], ctx: Context) -> ScheduledNetwork:
    """The best groups as they are priced, planned and placed, with less on chip where they do not
    fit; those of several layers in pieces are barred then."""
    made = search_groups(network, ctx)
    for stage, groups in zip(GROUPED[::-1], made[::-1], strict=True):
        ctx.observe(stage, groups.parts)
    notes: list[str] = []
    for position, (groups, less, what) in enumerate(zip(made, made[1:], LESS, strict=False)):
        if all(a is b for a, b in zip(groups.parts, less.parts, strict=True)):
            continue
        try:
            return ctx.scheduled(network, tuple(place_groups(groups, ctx)), notes)
        except (DoesNotFit, Unwalkable, Unholdable) as why:
            notes.append(f"{what}, because with it {why}")
            for stage in GROUPED[position::-1]:
                ctx.observe(stage, less.parts)
    return ctx.scheduled(network, tuple(place_groups(made[-1], ctx)), notes)


def place_groups(network: Network[Group], ctx: Context) -> Iterator[Step]:
    """Every group tiled, planned and placed, in pieces where it does not fit; these may need of
    what a core keeps another part than the whole did. What neighbours hide says which tiles are
    best, and not which groups: by their sums these are compared."""
    before: Fit | None = None
    layers = [la for part in network.parts if isinstance(part, Group) for la in part.layers]
    costs = ctx.costs.hiding(network.graph, layers, HIDDEN)
    for part in network.parts:
        if isinstance(part, HostNode):
            yield part
            continue
        origins = (nest.origin for layer in part.layers for nest in layer.nests)
        with on(f"the group of {', '.join(dict.fromkeys(origins))}"):
            fits = place_in_pieces(costs, part, before)
        if len(fits) > 1 and part.layers[1:]:
            ctx.costs.barred.add(stretch(part))
        before = fits[-1]
        yield from (PlacedGroup(*fit) for fit in fits)


def plan_loads(schedule: ScheduledNetwork, ctx: Context) -> ScheduledNetwork:
    """One plan of loads for the whole program; not for several lengths, on which lives depend, nor
    where a tree says where buffers lie."""
    given = ctx.options.tree is not None and ctx.options.tree.addressed
    if given or schedule.search.graph.registers:
        return schedule
    return replace(schedule, steps=with_early_loads(schedule.steps, ctx.arch, ctx.stages.alloc))


def search_groups(network: Network[Layer], ctx: Context) -> Sequence[Network[Group]]:
    """The groups with what lies in shared memory between them; with what is kept on chip; with the
    constants that stay there; the groups alone.

    Groups are formed for the best that can be; where that does not come true, also for the
    worst, and the better ones are taken. Where one core keeps up with DRAM, so are the groups that
    it would have: what several make quicker one by one ends before long groups pay. Several
    cores that pass each other rows of what stays between layers need not compute these again, as
    in a group: so layers alone are weighed as well. The best way is mixed with each of the others,
    each where it is quicker.
    """
    stages, costs = ctx.stages, ctx.costs
    least = math.inf
    best: Sequence[Network[Group]] = ()
    ways = list[Way]()

    def weigh(groups: Network[Group]) -> float:
        nonlocal least, best
        total, found = math.inf, groups
        for made in ways_on_chip(groups, ctx):
            cycles = added(made[0].parts, costs)
            if cycles < total:
                total, found = cycles, made[0]
            if not best or cycles < least:
                least, best = cycles, made
        ways.append((groups.parts, found.parts))
        return total

    for hoped, after in stages.pin.optimistic_costs(network.parts, network.graph, costs):
        for prices in stages.homes.optimistic_costs(network.graph, hoped):
            groups = partition(network, replace(ctx, prices=prices))
            if weigh(groups) <= added(groups.parts, prices):
                break
        if stages.tile.objective == "latency" and best and least <= after:
            break
    if costs.cores > 1 and costs.cores_keep_up(network.graph, network.parts, 1):
        one_core = replace(stages, tile=replace(stages.tile, cores=1))
        weigh(partition(network, ctx.with_stages(one_core)))
    if stages.partition.alone and stages.keep.enabled and costs.cores > 1:
        alone = Unfused().apply(network.parts, network.graph, costs)
        weigh(replace(best[-1], parts=alone))
    taken = best[-1].parts, best[0].parts
    for way in [way for way in ways if way[0] is not taken[0]]:
        mixed = cheaper_stretches(taken, way, costs)
        if all(
            any(a is not b for a, b in zip(mixed, bare, strict=False)) for bare, _ in (taken, way)
        ):
            weigh(replace(best[-1], parts=mixed))
    return best


def ways_on_chip(groups: Network[Group], ctx: Context) -> Sequence[Sequence[Network[Group]]]:
    """What `search_groups` returns of `groups`: with what is kept on chip, and without, as shared
    memory may do better on its own. What other passes asked of the same groups is known."""
    stages = ctx.stages
    known = ctx.costs.on_chip.setdefault((stages.pin, stages.keep, stages.homes), [])
    for before, found in known:
        if before.graph is groups.graph and before.parts == groups.parts:
            return found
    pinned = place_weights(groups, ctx)
    kept = place_activations(pinned, ctx)
    changed = any(a is not b for a, b in zip(kept.parts, pinned.parts, strict=True))
    ways = (kept, pinned) if changed else (kept,)
    found = [[place_in_shared_memory(way, ctx), way, pinned, groups] for way in ways]
    known.append((groups, found))
    return found


def partition(network: Network[Layer], ctx: Context) -> Network[Group]:
    """Groups of layers that share tile loops."""
    prices = ctx.prices or ctx.costs
    parts = ctx.stages.partition.apply(network.parts, network.graph, prices)
    return Network(network.graph, parts)


def place_weights(network: Network[Group], ctx: Context) -> Network[Group]:
    """Groups with the constants that stay on chip."""
    return replace(network, parts=ctx.stages.pin.apply(network.parts, network.graph, ctx.costs))


def place_activations(network: Network[Group], ctx: Context) -> Network[Group]:
    """Groups with the tensors that stay on chip between them."""
    return replace(network, parts=ctx.stages.keep.apply(network.parts, network.graph, ctx.costs))


def place_in_shared_memory(network: Network[Group], ctx: Context) -> Network[Group]:
    """Groups with the tensors that lie in shared memory between them."""
    return replace(network, parts=ctx.stages.homes.apply(network.parts, network.graph, ctx.costs))


# Groups with addresses become a program.


def emit(
    schedule: ScheduledNetwork, ctx: Context, inferences: int = 1
) -> tuple[ScheduledNetwork, ProgramCode]:
    """The program, which does the schedule so many times; where tokens are too few, without
    multicast, then of shorter groups.

    Raises DoesNotFit: DRAM is too small, or every layer is alone and tokens are too few.
    """
    chosen, given_up = len(schedule.steps), []
    while True:
        try:
            code = emit_program(schedule, ctx, inferences)
        except TooFewTokens as why:
            share = ctx.stages.share
            if share.enabled and ctx.arch.core_count > 1:
                given_up.append("no loads are shared between cores")
                ctx = ctx.with_stages(replace(ctx.stages, share=replace(share, enabled=False)))
                continue
            shorter = halve_hungriest(schedule.search.costs, schedule.steps, why.by_step)
            if shorter is None:
                raise
            schedule = replace(schedule, steps=shorter)
            continue
        if more := len(schedule.steps) - chosen:
            given_up.append(f"groups taken apart, {more} more than chosen")
        if given_up:
            notes = (*schedule.notes, f"too few tokens: {', '.join(given_up)}")
            search = schedule.search
            if ctx.stages.share != search.costs.stages.share:
                search = replace(search, costs=ctx.costs)
            schedule = replace(schedule, search=search, notes=notes)
            _observe_steps(schedule, ctx)
        return schedule, code


def emit_program(schedule: ScheduledNetwork, ctx: Context, inferences: int = 1) -> ProgramCode:
    """The program of a schedule as it is; TooFewTokens, or DoesNotFit where DRAM is too small."""
    code = place_off_chip(schedule, ctx, inferences)
    for step in code.emit_steps(ctx.stages.share, partial(multicast, ctx=ctx)):
        code.append(hand_over(step, ctx))
    code.drop_idle_arrivals()
    code = fill_shared(split_loads(code, ctx), ctx)
    kept, order = code.emitted.streams, ctx.stages.order
    made_of = order, code.registers, code.barriers, code.cores
    kept[:] = [each for each in kept if each[0]() is not None]
    for _, known, found in kept:
        if known == made_of:  # other passes often come to the same
            return replace(code, **found)
    made = order_instructions(synchronize(code, ctx), ctx)
    names = ("streams", "tokens", "between", "tiles", "barriers")
    kept.append((ref(made.program), made_of, {name: getattr(made, name) for name in names}))
    return made


def place_off_chip(schedule: ScheduledNetwork, ctx: Context, inferences: int) -> ProgramCode:
    """Constants packed, and addresses in DRAM and shared memory for all that lies there."""
    search = schedule.search
    return ProgramCode.of(search.graph, ctx.arch, schedule.steps, inferences, search.costs.emitted)


def multicast(step: StepCode, ctx: Context) -> StepCode:
    """Loads that several cores have in common, read once."""
    allot = partial(step.code.allot, step.number)
    trees = ctx.stages.share.apply(step.trees, ctx.arch, step.code.names, allot)
    return replace(step, trees=trees)


def hand_over(step: StepCode, ctx: Context) -> StepCode:
    """Copies between cores of what neighbours need of results that stay on chip."""
    del ctx
    if step.plan is None or step.around is None:
        return step
    code, results = step.code, step.plan.schedule.group.results
    first = sorted(results, key=partial(code.first_reader, step.number))
    trees = with_handovers(
        step.trees, first, step.plan, step.around, step.origin, step.follows, code.barriers
    )
    return replace(step, trees=trees)


def split_loads(code: ProgramCode, ctx: Context) -> ProgramCode:
    """Loads of constants in pieces, as their places become free."""
    times = None if code.registers else code.step_times
    bundles = code.bundles
    made = ctx.stages.split.apply(code.cores, ctx.arch, code.loop_cycles, times, bundles)
    return code.with_bundles(made, bundles)


def fill_shared(code: ProgramCode, ctx: Context) -> ProgramCode:
    """Constants that wait in shared memory until they are needed."""
    if code.registers:
        return code
    made, waiting = ctx.stages.fill.apply(code.cores, ctx.arch, code.step_times, code.shared_end)
    code.buffers.extend(waiting)
    return replace(code, cores=made)


def synchronize(code: ProgramCode, ctx: Context) -> ProgramCode:
    """One stream for each core, with tokens between its engines; TooFewTokens."""
    return code.synchronized(turns=ctx.stages.order.turns)


def order_instructions(code: ProgramCode, ctx: Context) -> ProgramCode:
    """Each stream in the order in which it is issued: loads ahead of the work that hides them."""
    own = [code.tokens] * len(code.streams)
    streams = ctx.stages.order.apply(code.streams, ctx.arch, own, code.registers)
    return replace(code, streams=streams)


def replace_steps(
    result: CompileResult, steps: tuple[Step, ...], inferences: int = 1
) -> CompileResult:
    """`result` with `steps`, which compute the same, in the place of its own, done so many times
    one after another.

    Raises DoesNotFit where the machine has too few tokens for them.
    """
    search, recipe = result.search, result.recipe
    assert search is not None and recipe is not None
    schedule = ScheduledNetwork(search, steps, result.notes)
    made, code = emit(schedule, search.context, inferences)
    return _result(made, code, result.host, recipe.known)


def _result(
    made: ScheduledNetwork, code: ProgramCode, host: tuple[HostNode, ...], known: Known
) -> CompileResult:
    offers = tuple(code.names.offers.values())
    verified = recipe(code, made.steps, known, offers)
    if made.search.instances is not None:
        verified = made.search.instances.by_layers(verified)
    return CompileResult(
        code.program, host, probes(code), verified, made.search, made.notes, made.steps, offers,
        code.names.works,
    )  # fmt: skip


def _observe_steps(schedule: ScheduledNetwork, ctx: Context) -> None:
    for stage in ("tree", "tile", "plan", "layout"):
        ctx.observe(stage, schedule.steps)


# One program for all sizes within some ranges: what is made at several of them, joined.


def lower_all_sizes(family: SymbolicModel, ctx: Context) -> tuple[NestGraph, NestGraph]:
    """The network of the upper edge as nests and host nodes, and that for all lengths.

    What an engine finishes at each length may be beyond it for all of them, as a mean that is
    multiplied by how many times fewer terms there are: that goes to the host.
    """
    on_host: dict[str, str] = {}
    while True:
        edge, made = _merge_sizes(family, replace(ctx, on_host=on_host))
        lacking = {
            step.tensor: (step, reason)
            for step in made.steps
            if isinstance(step, Nest) and (reason := unsupported(step, made.tensors, ctx.arch))
        }
        known = {step.tensor for step in edge.steps if isinstance(step, Nest)} - on_host.keys()
        if not lacking:
            return edge, made
        if not known.issuperset(lacking) or not ctx.host_allowed:
            why = [f"{at_node(s.origin, s.kind)}: {reason}" for s, reason in lacking.values()]
            raise refusal_of(made.name, family.registers, why)
        on_host |= {name: reason for name, (_, reason) in lacking.items()}


def _merge_sizes(family: SymbolicModel, ctx: Context) -> tuple[NestGraph, NestGraph]:
    """The same with nothing on the host but what `ctx` says."""
    fused: list[NestGraph] = []
    placed: list[NestGraph] = []

    # What has one shape at one length alone: rows that sums start from, pixels side by side.
    starts = replace(ctx.stages.starts, enabled=False)
    columns = replace(ctx.stages.columns, enabled=False)
    stages = replace(ctx.stages, starts=starts, columns=columns)
    ctx = replace(ctx, options=replace(ctx.options, stages=stages))

    def watch(name: str, value: object) -> None:
        ctx.observe(name, value)
        if name == "fuse-functions" and not fused and isinstance(value, NestGraph):
            fused.append(value)

    def make(values: Mapping[str, int]) -> NestGraph | None:
        model = family.at(values)
        if model is None:
            return None
        own = replace(ctx, observe=watch)  # the upper edge
        if placed:
            on_host = {**ctx.on_host, **_calls(placed[0])}
            own = replace(ctx, observe=unobserved, functions=fused[0], on_host=on_host)
        lowered = lower_for_target(model, own)
        placed.append(lowered[0])
        return assign_layouts(lowered, replace(own, observe=unobserved))

    kind = between_type(ctx.arch)
    real = kind if is_float(kind) else "fp32"
    made = for_lengths(make, family.registers, family.host, family.constants, real)
    return placed[0], made


def _calls(graph: NestGraph) -> dict[str, str]:
    """What the host makes, each with the reason: it does so at every length."""
    calls = (step for step in graph.steps if isinstance(step, HostNode) and step.pick is None)
    return {name: call.reason for call in calls for name in call.outputs}

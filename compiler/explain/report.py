"""What the compiler decided and why, as plain data: groups, layers, buffers, what was rejected.

The one idea: everything is read off the plans that the program was made from, so a report cannot
say anything that the program does not do. Cycles are estimates of the cost model; what the
simulator says of the same groups is put beside them elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.context import CompileResult, GroupDecision
from compiler.cost.overlap import HOST_CALL, in_turn
from compiler.explain.forms import FormReport, forms_of
from compiler.explain.rejected import Choice, Neighbours, RejectedOption, best, other_schedules
from compiler.options import Trial
from compiler.plan.make_plan import LayerPlan, Plan
from compiler.schedule.fusion.dependence import dependences
from compiler.schedule.fusion.reorder import least_memory_order
from compiler.schedule.residency.buffer import TileBuffer
from compiler.schedule.wording import cores_text, halo_of, loops_text, sizes_text
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.schedule import Estimate
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes


@dataclass(frozen=True)
class Constants:
    """Weights and tables that a layer reads."""

    bytes: int
    """On chip, all slots."""
    memory: str
    stay: bool
    """Loaded once for all tiles; else streamed, tile by tile."""
    instead: str
    """What the other way would mean; empty where there is no other."""


@dataclass(frozen=True)
class LayerReport:
    """One layer of a group."""

    nodes: tuple[str, ...]
    operator: str
    engine: str
    """Route of its first operator, and of those behind it where that is another."""
    array: str
    """What of its largest tile lies along each side of the matrix engine's array, and how full that
    is; empty where the engine has no part in it, or runs it depthwise."""
    loops: str
    shape: tuple[int, ...]
    scope: str
    """Where its result goes: a memory on chip, dram, or both."""
    constants: tuple[Constants, ...]
    forms: tuple[FormReport, ...] = ()
    """What its operators were given to, and which loops each form walks; none of a pure copy."""


@dataclass(frozen=True)
class BufferReport:
    """Space on chip."""

    name: str
    memory: str
    purpose: str
    bytes: int
    """Of one slot."""
    slots: int
    address: int
    first: int
    """Layers of the group between which it is in use, both included."""
    last: int


@dataclass(frozen=True)
class GroupReport:
    """One group: what was decided, and what it takes."""

    step: int
    """Its number in the program."""
    name: str
    nodes: tuple[str, ...]
    tiles: str
    tile_count: int
    halo: str
    """rolling, recompute, none."""
    cores: str
    estimate: Estimate
    adds: float
    """Cycles that this comes to behind the group before, while whose rest constants arrive."""
    choices: tuple[Choice, ...]
    neighbours: tuple[RejectedOption, ...]
    """Best of each kind of other groups."""
    layers: tuple[LayerReport, ...]
    buffers: tuple[BufferReport, ...]
    peaks: Mapping[str, int]
    """Bytes of each memory that its buffers span."""
    kept: tuple[str, ...]
    """Tensors that are on chip before it or after it."""
    trials: tuple[Trial, ...] = ()
    """Its schedules that were simulated by themselves, the one that estimates prefer first."""


def report(result: CompileResult, arch: Arch, reason: str = "") -> tuple[GroupReport, ...]:
    """The groups of `result`, of compiling for `arch`, in order; prices alternatives, which takes
    about as long as compiling. `reason`: why this partition was taken where estimates would have
    preferred another. Raises ValueError for a result that has lost its search."""
    if result.search is None:
        raise ValueError("this result does not say what it was chosen among")
    neighbours = Neighbours(result.search, result.decisions, reason, result.trials)
    steps = (
        HOST_CALL if isinstance(step, HostNode) else step.plan.schedule.estimate.step
        for step in result.steps
    )
    adds = tuple(in_turn(steps))
    return tuple(
        _group_report(made, result, neighbours, arch, adds[made.step]) for made in result.decisions
    )


def _group_report(
    made: GroupDecision, result: CompileResult, neighbours: Neighbours, arch: Arch, adds: float
) -> GroupReport:
    assert result.search is not None
    group, schedule = made.group, made.schedule
    trials = tuple(result.trials.get(made.step, ()))
    around, count = neighbours.options(made.step), len(group.layers)
    taken = "a layer alone" if count == 1 else f"{count} layers share tiles"
    buffers = tuple(_buffers(made))
    return GroupReport(
        step=made.step,
        name=group.name,
        nodes=tuple(dict.fromkeys(nest.origin for la in group.layers for nest in la.nests)),
        tiles=sizes_text(schedule),
        tile_count=_tiles_per_core(made.plan),
        halo=halo_of(schedule),
        cores=cores_text(schedule),
        estimate=schedule.estimate,
        adds=adds,
        choices=(
            Choice("group", taken, best(around)),
            *other_schedules(result.search, made, judged=bool(trials)),
            *_kernels(made, result),
        ),
        neighbours=around,
        layers=tuple(_layers(made, result, arch)),
        buffers=buffers,
        peaks=_peaks(buffers),
        kept=(*group.pinned, *group.residents),
        trials=trials,
    )


def _kernels(made: GroupDecision, result: CompileResult) -> Iterator[Choice]:
    """Kernels of users that were compared for its operators, at their largest tiles."""
    nests = {nest.tensor for layer in made.group.layers for nest in layer.nests}
    for each in (offer for offer in result.kernels if offer.tensor in nests):
        ours, theirs = "the compiler's own", f"kernel {each.kernel}"
        taken, other = (theirs, ours) if each.taken else (ours, theirs)
        less, more = sorted((each.cycles, each.instead))
        yield Choice(f"tile of {each.origin}", taken, RejectedOption(other, more, less))


def _tiles_per_core(plan: Plan) -> int:
    return max((len(w.moments) * w.repeats for w in plan.walked), default=1)


def _layers(made: GroupDecision, result: CompileResult, arch: Arch) -> Iterator[LayerReport]:
    origins = (n for n, o in enumerate(result.program.origins) if o.group == made.step)
    first = next(origins, 0)  # one for each operator, in order
    for plan in made.plan.layers:
        layer, routes = plan.tiled.layer, [compute.binding for compute in plan.computes]
        engines = dict.fromkeys(way.adder for way in routes) or {"copy": None}
        if any(way.engine == "matrix" and not way.direct for way in routes):
            engines["vector"] = None
        forms, array = forms_of(plan, first, result.works, arch)
        yield LayerReport(
            nodes=tuple(dict.fromkeys(nest.origin for nest in layer.nests)),
            operator="+".join(dict.fromkeys(nest.kind for nest in layer.nests if nest.kind)),
            engine="+".join(engines),
            array=array,
            loops=loops_text(plan.tiled),
            shape=layer.result.shape,
            scope=_scope(made.group, made.plan, layer.result.name),
            constants=tuple(_constants_by_memory(plan, made)),
            forms=forms,
        )
        first += len(layer.nests)


def _scope(group: Group, plan: Plan, name: str) -> str:
    """Memories that hold a layer's whole result, or the tiles of it that pass on."""
    inside = name in plan.held and name in group.internal_readers
    places = [plan.buffers[plan.held[name]].role] if inside else []
    if name in group.residents:
        places = ["local, kept for later groups"]
    if name in group.stored:
        places.append("dram" if name not in group.shared else "shared")
    return " + ".join(places)


def _constants_by_memory(plan: LayerPlan, made: GroupDecision) -> Iterator[Constants]:
    """The layer's constants, by memory and by whether they stay."""
    sums: dict[tuple[str, bool], int] = {}
    tensors, tiles = made.group.tensors, _tiles_per_core(made.plan)
    for buffer in made.plan.buffers.values():
        home = buffer.first if buffer.layer is None else buffer.layer
        if home == plan.position and _is_constant(buffer, made):
            key = buffer.role, buffer.layer is None or (buffer.level == 0 and tiles == 1)
            sums[key] = sums.get(key, 0) + buffer.bytes * buffer.slots
    weights = {a.tensor for nest in plan.tiled.layer.nests for a in nest.reads}
    whole = sum(tensors[name].stored for name in weights if tensors[name].data is not None)
    for (memory, stay), size in sums.items():
        if stay:
            again = f"{show_bytes((tiles - 1) * whole)} more to load" if tiles > 1 else ""
        else:
            again = f"{show_bytes(whole)} on chip"
        yield Constants(size, memory, stay, again)


def _is_constant(buffer: TileBuffer, made: GroupDecision) -> bool:
    return buffer.key is not None and made.group.tensors[buffer.key[0]].data is not None


def _buffers(made: GroupDecision) -> Iterator[BufferReport]:
    purposes, last = _purposes(made), len(made.group.layers) - 1
    for buffer in made.plan.buffers.values():
        span = (0, last) if buffer.lasting else (buffer.first, buffer.last)
        yield BufferReport(
            buffer.name, buffer.role, purposes[buffer.name], buffer.bytes, buffer.slots,
            made.places[buffer.name][0], *span,
        )  # fmt: skip


def _purposes(made: GroupDecision) -> dict[str, str]:
    """Buffer -> what it is for."""
    group, plan = made.group, made.plan
    found = dict.fromkeys(plan.buffers, "intermediate")
    for layer in plan.layers:
        found[layer.result] = "result"
        for compute in layer.computes:
            found |= dict.fromkeys(compute.scratch, "scratch")
            if compute.sums is not None:
                found[compute.sums] = "partial sums"
    for name, buffer in plan.held.items():
        found[buffer] = "between layers" if name in group.internal_readers else found[buffer]
    for name, held in plan.buffers.items():
        if _is_constant(held, made):
            found[name] = "constants, stay" if held.layer is None else "constants"
        elif held.key is not None:
            found[name] = "input"
        if held.address is not None:
            found[name] = "kept between groups"
    return found


def _peaks(buffers: tuple[BufferReport, ...]) -> dict[str, int]:
    """Bytes that buffers cover, by memory."""
    found, ends = dict[str, int](), dict[str, int]()
    for buffer in sorted(buffers, key=lambda b: b.address):
        low, end = buffer.address, ends.get(buffer.memory, 0)
        high = low + buffer.bytes * buffer.slots
        found[buffer.memory] = found.get(buffer.memory, 0) + max(0, high - max(low, end))
        ends[buffer.memory] = max(end, high)
    return found


def working_set(result: CompileResult) -> int:
    """Bytes on chip that hold all that passes between layers, so that nothing is spilled, in the
    network's element types on that machine."""
    assert result.search is not None
    whole = result.search.undivided
    return least_memory_order(dependences(whole.parts, whole.graph)).peak

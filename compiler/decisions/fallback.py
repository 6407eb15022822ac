"""What is tried when something does not fit: every reason with its next cheaper step, on one page.

    what        does not fit, because                   next
    a group     its best schedule finds no place        the next best one, of `plan.attempts`
                none does, or costs more than pieces    two halves; of a layer alone, its operators
                a single operator does not              one slot for each of its buffers
    a network   a group, which is in pieces now         all anew, without such groups
                a group, beside what lies in shared     nothing lies in shared memory
                a group, beside what is kept on chip    nothing is kept between groups
                a group, beside pinned constants        none is pinned
    a program   it takes too many tokens                no loads are shared between cores
                it does all the same                    groups that take most of them, halved
                it does, and every layer is alone       all anew: layers alone, nothing between
                it does all the same                    the same, with one slot for each buffer
                it does with several cores              the same on half as many cores
                it does on one core                     one engine of each core at a time, on all

Each step costs more time than the one before, so they are taken in this order, and what had to be
given up is noted. Tokens are taken by what goes on at once; steps from `all anew` on begin again
with groups of their own, because tiles depend on what is kept and doubled. Behind the last step
stands the refusal, with the sum that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.decisions.group_costs import Fit, GroupCosts
from compiler.errors import CompilerError, DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.options import Stages
from compiler.schedule.fusion.partition import Unfused
from compiler.schedule.residency.activations import KeepTensors
from compiler.schedule.residency.shared_memory import ChooseHomes
from compiler.schedule.residency.weights import PinConstants
from compiler.schedule_ir.group import Group, Shared
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Unholdable


def place_in_pieces(costs: GroupCosts, group: Group, before: Fit | None) -> list[Fit]:
    """A group planned and placed, in as few pieces as it fits in, behind the group `before`;
    DoesNotFit where even a single operator does not."""
    refusal: CompilerError | None = None
    try:
        for schedule in costs.schedules(group)[: costs.stages.plan.attempts]:
            if refusal is not None and _dearer(costs, schedule, group):
                break
            try:
                return [costs.place(schedule, before)]
            except (DoesNotFit, Unwalkable, Unholdable) as why:
                refusal = why
    except DoesNotFit as why:
        refusal = why
    if found := _halves(costs, group, before):
        return found
    if costs.single is not None:
        return place_in_pieces(costs.single, group, before)
    if refusal is None:
        try:  # by itself, or beside what is kept
            costs.schedules(replace(group, residency=group.shared, reserved={}))
        except DoesNotFit as why:
            refusal = why
    raise refusal or costs.search.refusal(group)


def _halves(costs: GroupCosts, group: Group, before: Fit | None) -> list[Fit]:
    """The pieces of a group planned and placed; nothing where it is a single nest."""
    found: list[Fit] = []
    for piece in _group_pieces(group):
        found += place_in_pieces(costs, piece, found[-1] if found else before)
    return found


def _dearer(costs: GroupCosts, schedule: Schedule, group: Group) -> bool:
    """Whether a schedule costs more than the pieces of its group."""
    if len(group.layers) < 2:
        return False
    apart = sum(costs.price(piece) for piece in _group_pieces(group))
    return costs.search.score(schedule.estimate) > apart


def _group_pieces(group: Group) -> Iterator[Group]:
    """Two halves of a group, or the nests of a layer; nothing where there is one nest only."""
    if len(group.layers) == 1:
        (layer,) = group.layers
        if len(layer.nests) > 1:
            for part in map(layer.part, range(len(layer.nests))):
                yield _piece(group, (part,), (part.result.name,))
        return
    middle = len(group.layers) // 2
    halves = group.layers[:middle], group.layers[middle:]
    read = {name for layer in halves[1] for name in layer.inputs}
    first = tuple(
        layer.result.name
        for layer in halves[0]
        if layer.result.name in read or layer.result.name in group.results
    )
    rest = tuple(n for n in group.results if n not in first)
    yield _piece(group, halves[0], first)
    yield _piece(group, halves[1], rest)


def _piece(group: Group, layers: tuple[Layer, ...], results: tuple[str, ...]) -> Group:
    """Some of a group's layers, which find what they use where the group does."""
    piece = Group(layers, results, reserved=group.reserved)
    own = {n: r for n, r in group.residency.items() if n in piece.users or isinstance(r, Shared)}
    return replace(piece, residency=own)


@dataclass(frozen=True)
class Strategy:
    """Passes to compile with."""

    stages: Stages
    note: str = ""
    """What they do without, and why."""


def strategies(stages: Stages, cores: int, *, given: bool = False) -> Iterator[Strategy]:
    """`stages` on up to `cores` cores, then others that take fewer tokens; where the schedule is
    `given`, only the last of them."""
    yield Strategy(stages)
    if given:
        yield _in_turns(stages)
        return
    apart = replace(
        stages, partition=Unfused(), pin=PinConstants(enabled=False),
        keep=KeepTensors(enabled=False), homes=ChooseHomes(shared=False),
    )  # fmt: skip
    yield Strategy(apart, "too few tokens for groups: every layer alone, nothing kept between them")
    single = replace(apart, plan=replace(apart.plan, slots=1))
    if single != apart:
        yield Strategy(single, "too few tokens for double buffers: every buffer has one slot")
    left = min(stages.tile.cores or cores, cores)
    while (left := left // 2) > 0:
        fewer = replace(single, tile=replace(single.tile, cores=left))
        yield Strategy(fewer, f"too few tokens for more cores: at most {left}")
    yield _in_turns(single)


def _in_turns(stages: Stages) -> Strategy:
    """`stages` with the fewest tokens that there can be."""
    turns = replace(stages, order=replace(stages.order, turns=True))
    return Strategy(turns, "too few tokens for engines at once: one of a core works at a time")


def halve_hungriest(
    costs: GroupCosts, steps: Sequence[Step], tokens: Mapping[int, int]
) -> tuple[Step, ...] | None:
    """`steps` with those groups halved that take the most tokens; None where none is left."""
    groups = {
        number: step.plan.schedule.group
        for number, step in enumerate(steps)
        if isinstance(step, PlacedGroup) and len(step.plan.layers) > 1
    }
    if not groups:
        return None
    most = max(tokens.get(number, 0) for number in groups)
    schedules = [step.plan.schedule for step in steps if isinstance(step, PlacedGroup)]
    apart = any(schedule.first_core for schedule in schedules)
    found: list[Step] = []
    for number, step in enumerate(steps):
        if (
            not isinstance(step, PlacedGroup)
            or tokens.get(number, 0) < most
            or number not in groups
        ):
            found.append(step)
            continue
        last = found[-1] if found else None
        before = (last.plan, last.places) if isinstance(last, PlacedGroup) else None
        cores = step.plan.schedule.cores
        own = costs.on_cores(len(cores)) if apart else costs
        pieces = _halves(own, groups[number], before)
        found += [PlacedGroup(*fit).from_core(cores.start) for fit in pieces]
    return tuple(found)

"""What was not chosen: for every decision about a group, the others and what they would cost.

The one idea: costs are compared on one footing. An option carries its own cycles and those of what
was chosen in its stead: two groups joined stand against the sum of both, all of them with the
tensors that stay on chip around them. An option that looks cheaper says why it was not taken, since
estimates are not the only judge. What the search asked for is remembered, so most of this is
looking up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.context import GroupDecision, ScheduleSearch
from compiler.decisions.fallback import place_in_pieces
from compiler.decisions.group_costs import GroupCosts
from compiler.errors import CompilerError, DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.schedule.fusion.dependence import dependences, members, union
from compiler.schedule.wording import cores_text, halo_of, sizes_text
from compiler.schedule_ir.group import Group, reserving
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule
from compiler.target.group_facts import Unholdable

MOST_CUTS = 24
"""Places at which taking a long group apart is priced."""
TRIED = 8
"""Other candidates for a layer alone that are planned, the cheapest first."""

PLACELESS = "finds no place in memory"
UNSEEN = "the search did not come across it"
JUDGED = "schedules of this group were compared as simulated, not as estimated"


@dataclass(frozen=True)
class RejectedOption:
    """Something that was not chosen."""

    what: str
    cycles: float | None
    """Estimated; None: impossible."""
    against: float
    """Estimated cycles of what was chosen instead."""
    why: str = ""
    """Why it is impossible; or, where it looks cheaper, why it was not taken."""


@dataclass(frozen=True)
class Choice:
    """One decision about a group."""

    decision: str
    taken: str
    rejected: RejectedOption | None
    """The best alternative; None where there was no other."""


def best(options: Sequence[RejectedOption]) -> RejectedOption | None:
    """The option that came closest to being chosen; an impossible one where all are."""

    def loss(option: RejectedOption) -> float:
        return math.inf if option.cycles is None else option.cycles - option.against

    return min(options, key=loss, default=None)


class Neighbours:
    """Other partitions around the groups that were chosen, for a `reason` beyond estimates."""

    def __init__(
        self, search: ScheduleSearch, decisions: Sequence[GroupDecision], reason: str = "",
        judged: Collection[int] = (),
    ) -> None:  # fmt: skip
        self.net = dependences(search.parts, search.graph)
        self.costs = search.costs
        self.reason = reason
        self.judged = frozenset(judged)
        self.made = {made.step: made for made in decisions}
        layers = {i: part for i, part in enumerate(search.parts) if isinstance(part, Layer)}
        positions = {_layer_key(layer): 1 << i for i, layer in layers.items()}
        keys = {made.step: [*map(_layer_key, made.group.layers)] for made in decisions}
        self.masks = {
            step: union(map(positions.__getitem__, own))
            for step, own in keys.items()
            if positions.keys() >= {*own}
        }
        """The group of each step, where it is made of whole layers."""

    def options(self, step: int) -> tuple[RejectedOption, ...]:
        """The best of each kind: joined with another group, cut in two, every layer alone."""
        if step not in self.masks:
            return ()
        kinds = [list(self._merge_options(step)), list(self._cut_options(step))]
        alone = [1 << i for i in members(self.masks[step])]
        if len(alone) > 2:  # two layers apart are a group cut in two
            kinds.append([self._option("every layer alone", alone, (step,))])
        return tuple(option for option in map(best, kinds) if option is not None)

    def _merge_options(self, step: int) -> Iterator[RejectedOption]:
        """With each group that gives it something, or gets something from it."""
        mask = self.masks[step]
        near = union(self.net.after[i] | self.net.before[i] for i in members(mask))
        for other, beside in self.masks.items():
            if other == step or not near & beside:
                continue
            what, steps = f"one group with group {other}", (step, other)
            if not self.net.legal(mask | beside):
                why = "they see the same bytes as different tensors, which meet in memory"
            elif not self.net.convex(mask | beside):
                why = "other groups lie between"
            else:
                yield self._option(what, [mask | beside], steps)
                continue
            yield RejectedOption(what, None, self._against(steps), why)

    def _cut_options(self, step: int) -> Iterator[RejectedOption]:
        layers = list(members(self.masks[step]))
        places = range(1, len(layers))
        for place in places[:: max(1, -(-len(places) // MOST_CUTS))]:
            part = self.net.parts[layers[place]]
            name = part.name if isinstance(part, Layer) else part.origin
            masks = [union(1 << i for i in half) for half in (layers[:place], layers[place:])]
            yield self._option(f"cut before {name}", masks, (step,))

    def _option(self, what: str, masks: Sequence[int], steps: tuple[int, ...]) -> RejectedOption:
        """Groups of `masks` instead of those of `steps`."""
        groups = [self._group_with_residency(mask, steps) for mask in masks]
        cycles, against = self._sum(groups), self._against(steps)
        if math.isinf(cycles):
            return RejectedOption(what, None, against, "does not fit")
        why = self._why(groups, masks, steps) if cheaper(cycles, against) else ""
        return RejectedOption(what, cycles, against, why)

    def _why(self, groups: Sequence[Group], masks: Sequence[int], steps: tuple[int, ...]) -> str:
        """Why `groups` were not taken although they look cheaper."""
        if self.reason:
            return self.reason
        try:
            placed = all(len(place_in_pieces(self.costs, each, None)) == 1 for each in groups)
        except CompilerError:
            placed = False
        if why := _beyond_cycles(self.costs, placed, bool(self.judged.intersection(steps))):
            return why
        plain, chosen = map(self.net.group, masks), (self.net.group(self.masks[s]) for s in steps)
        if not cheaper(self._sum(plain), self._sum(chosen)):
            return "cheaper only with the tensors that were kept on chip afterwards"
        return UNSEEN

    def _group_with_residency(self, mask: int, steps: tuple[int, ...]) -> Group:
        """A group with what is kept on chip around those that were chosen."""
        group, around = self.net.group(mask), [self.made[step].group for step in steps]
        near = {*group.inputs, *group.results}
        rows = {n: r for other in around for n, r in other.residency.items() if n in near}
        reserved = reserving(*(other.reserved for other in around))
        return replace(group, residency=rows, reserved=reserved)

    def _sum(self, groups: Iterable[Group]) -> float:
        return sum(estimated_cycles(self.costs, group) for group in groups)

    def _against(self, steps: tuple[int, ...]) -> float:
        return sum(self.made[step].schedule.estimate.total for step in steps)


def _layer_key(layer: Layer) -> tuple[str, int]:
    """By its nests too, as pieces of a layer are none of the network's."""
    return layer.result.name, len(layer.nests)


def estimated_cycles(costs: GroupCosts, group: Group) -> float:
    """Cycles of the best schedule of a group; infinite where it has none."""
    try:
        found = costs.schedules(group)
    except DoesNotFit:
        return math.inf
    return found[0].estimate.total if found else math.inf


def _beyond_cycles(costs: GroupCosts, placed: bool, judged: bool) -> str:
    """Why what looks cheaper was not taken, if that is none of what estimates compare."""
    if (sought := costs.stages.tile.objective) != "latency":
        return f"{sought} is sought, not cycles"
    if not placed:
        return PLACELESS
    return JUDGED if judged else ""


def cheaper(cycles: float, against: float) -> bool:
    """Whether an estimate is lower by what a reader would see."""
    return round(cycles) < round(against)


def other_schedules(
    search: ScheduleSearch, made: GroupDecision, *, judged: bool
) -> Iterator[Choice]:
    """What was decided about the schedule of a group, which may have been `judged` by simulation,
    each decision with the best of its others."""
    costs, group, mine = search.costs, made.group, made.schedule
    every, against = tuple(_schedules(search, group, mine)), mine.estimate.total
    sizes, halo = sizes_text(mine), halo_of(mine)

    def other(
        suits: Callable[[Schedule], bool], text: Callable[[Schedule], str]
    ) -> RejectedOption | None:
        found = min(filter(suits, every), key=lambda s: s.estimate.total, default=None)
        if found is None:
            return None
        cycles, why = found.estimate.total, ""
        if cheaper(cycles, against):
            why = _beyond_cycles(costs, _has_place(costs, found), judged) or UNSEEN
        return RejectedOption(text(found), cycles, against, why)

    others = other(lambda s: s.parts == mine.parts and sizes_text(s) != sizes, sizes_text)
    yield Choice("tiles", sizes, others)
    if halo != "none":
        policy = "recompute" if halo == "rolling" else "rolling"
        found = other(lambda s: halo_of(s) == policy, lambda s: f"{policy}, {sizes_text(s)}")
        why = "does not fit" if costs.stages.tile.rolling is None else f"{halo} was asked for"
        yield Choice("halo", halo, found or RejectedOption(policy, None, against, why))
    if stay := (*group.pinned, *group.residents):
        yield Choice("between", f"on chip: {', '.join(stay)}", _through_memory(costs, made))
    if costs.arch.core_count > 1:
        cores = other(lambda s: s.parts != mine.parts, cores_text)
        yield Choice("cores", cores_text(mine), cores)


def _has_place(costs: GroupCosts, schedule: Schedule) -> bool:
    try:
        costs.place(schedule, None)
    except (DoesNotFit, Unwalkable, Unholdable):
        return False
    return True


def _through_memory(costs: GroupCosts, made: GroupDecision) -> RejectedOption | None:
    """Nothing kept on chip before or after a group."""
    group, against, what = made.group, made.schedule.estimate.total, "through memory"
    if not group.residents and not group.reserved:
        return None
    cycles = estimated_cycles(costs, replace(group, residency=group.shared, reserved={}))
    if math.isinf(cycles):
        return RejectedOption(what, None, against, "does not fit")
    why = "other groups gain more" if cheaper(cycles, against) else ""
    return RejectedOption(what, cycles, against, why)


def _schedules(search: ScheduleSearch, group: Group, made: Schedule) -> Iterator[Schedule]:
    """All schedules that the search has of a group; of a layer alone the best that fit."""
    found, stages, arch = search.costs.every(group), search.costs.stages, search.costs.arch
    if not group.alone:
        yield from found
        return
    for same_cores in (True, False):
        others = (
            s
            for s in found
            if (s.parts == made.parts) == same_cores
            and not (same_cores and sizes_text(s) == sizes_text(made))
        )
        for _, schedule in zip(range(TRIED), others, strict=False):
            try:
                stages.plan.apply(schedule, arch)
            except DoesNotFit:
                continue
            yield schedule
            break

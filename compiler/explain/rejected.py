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
        parts = ((i, part) for i, part in enumerate(search.parts) if isinstance(part, Layer))
        # By name and nests: pieces of a layer are none of the network's.
        positions = {(part.result.name, len(part.nests)): 1 << i for i, part in parts}
        keys = {made.step: [(layer.result.name, len(layer.nests)) for layer in made.group.layers]
                for made in decisions}  # fmt: skip
        self.masks = {
            step: union(positions[key] for key in each)
            for step, each in keys.items()
            if positions.keys() >= {*each}
        }
        """The group of each step, where it is made of whole layers."""

    def options(self, step: int) -> tuple[RejectedOption, ...]:
        """The best of each kind: joined with another group, cut in two, every layer alone."""
        if step not in self.masks:
            return ()
        kinds = (self._merge_options(step), self._cut_options(step), self._separate_option(step))
        found = (best(list(options)) for options in kinds)
        return tuple(option for option in found if option is not None)

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

    def _separate_option(self, step: int) -> Iterator[RejectedOption]:
        mask = self.masks[step]
        if mask.bit_count() > 2:  # two layers apart are a group cut in two
            yield self._option("every layer alone", [1 << i for i in members(mask)], (step,))

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


class Others:
    """Other schedules of one group."""

    def __init__(
        self, search: ScheduleSearch, made: GroupDecision, *, judged: bool = False
    ) -> None:
        self.made = made.schedule
        self.costs = search.costs
        self.cost = made.schedule.estimate.total
        self.judged = judged
        self.all = tuple(_schedules(search, made.group, made.schedule))

    def tiles(self) -> RejectedOption | None:
        """The best with tiles of another size, on the same cores."""
        mine = sizes_text(self.made)
        return self._best_other(
            lambda s: s.parts == self.made.parts and sizes_text(s) != mine, sizes_text
        )

    def halo(self) -> RejectedOption | None:
        """The best with the other policy."""
        mine = halo_of(self.made)
        other = "recompute" if mine == "rolling" else "rolling"
        found = self._best_other(
            lambda s: halo_of(s) == other, lambda s: f"{other}, {sizes_text(s)}"
        )
        asked = self.costs.stages.tile.rolling is not None
        why = f"{mine} was asked for" if asked else "does not fit"
        return found or RejectedOption(other, None, self.cost, why)

    def cores(self) -> RejectedOption | None:
        """The best with another split over cores."""
        return self._best_other(lambda s: s.parts != self.made.parts, cores_text)

    def without_residency(self) -> RejectedOption | None:
        """Nothing kept on chip before or after."""
        group, what = self.made.group, "through memory"
        if not group.residents and not group.reserved:
            return None
        plain = replace(group, residency=group.shared, reserved={})
        if math.isinf(cycles := estimated_cycles(self.costs, plain)):
            return RejectedOption(what, None, self.cost, "does not fit")
        why = "other groups gain more" if cheaper(cycles, self.cost) else ""
        return RejectedOption(what, cycles, self.cost, why)

    def _best_other(
        self, suits: Callable[[Schedule], bool], text: Callable[[Schedule], str]
    ) -> RejectedOption | None:
        found = min(filter(suits, self.all), key=lambda s: s.estimate.total, default=None)
        if found is None:
            return None
        cycles = found.estimate.total
        why = self._why(found) if cheaper(cycles, self.cost) else ""
        return RejectedOption(text(found), cycles, self.cost, why)

    def _why(self, schedule: Schedule) -> str:
        """Why a schedule was not taken although it looks cheaper."""
        try:
            self.costs.place(schedule, None)
            placed = True
        except (DoesNotFit, Unwalkable, Unholdable):
            placed = False
        return _beyond_cycles(self.costs, placed, self.judged) or UNSEEN


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

"""What was not chosen: for every decision about a group, the others and what they would cost.

The one idea: costs are compared on one footing. An option carries its own cycles and those of what
was chosen in its stead: two groups joined stand against the sum of both, none of them with tensors
that stay on chip between groups. What the search asked for is remembered, so most of this is
looking up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.driver import Decision, Search
from compiler.errors import DoesNotFit
from compiler.fuse.dependence import dependences, members, union
from compiler.fuse.group import Group
from compiler.fuse.layer import Layer
from compiler.tile.ir import Schedule, single
from compiler.wording import cores_text, halo_of, sizes_text

MOST_CUTS = 24
"""Places at which taking a long group apart is priced."""
TRIED = 8
"""Other candidates for a layer alone that are planned, the cheapest first."""


@dataclass(frozen=True)
class Option:
    """Something that was not chosen."""

    what: str
    cycles: float | None
    """Estimated; None: impossible, for the reason in `why`."""
    against: float
    """Estimated cycles of what was chosen instead."""
    why: str = ""


def best(options: Sequence[Option]) -> Option | None:
    """The option that came closest to being chosen; an impossible one where all are."""
    return min(options, key=_loss, default=None)


def _loss(option: Option) -> float:
    return math.inf if option.cycles is None else option.cycles - option.against


class Neighbours:
    """Other partitions around the groups that were chosen."""

    def __init__(self, search: Search, decisions: Sequence[Decision]) -> None:
        self.net = dependences(search.parts, search.graph)
        self.fitter = search.fitter
        positions = {id(part): 1 << i for i, part in enumerate(search.parts)}
        self.masks: dict[int, int] = {}
        """The group of each step, where it is made of whole layers."""
        for made in decisions:
            found = [positions.get(id(layer)) for layer in made.group.layers]
            if None not in found:
                self.masks[made.step] = union(mask for mask in found if mask is not None)

    def options(self, step: int) -> tuple[Option, ...]:
        """The best of each kind: joined with another group, cut in two, every layer alone."""
        if step not in self.masks:
            return ()
        kinds = (self._joined(step), self._split(step), self._apart(step))
        found = (best(list(options)) for options in kinds)
        return tuple(option for option in found if option is not None)

    def _joined(self, step: int) -> Iterator[Option]:
        """With each group that gives it something, or gets something from it."""
        mask = self.masks[step]
        near = union(self.net.after[i] | self.net.before[i] for i in members(mask))
        for other, beside in self.masks.items():
            if other == step or not near & beside:
                continue
            against = self._cycles(mask) + self._cycles(beside)
            yield self._union(f"one group with group {other}", mask | beside, against)

    def _split(self, step: int) -> Iterator[Option]:
        layers = list(members(self.masks[step]))
        places = range(1, len(layers))
        for place in places[:: max(1, -(-len(places) // MOST_CUTS))]:
            halves = (layers[:place], layers[place:])
            cycles = sum(self._cycles(union(1 << i for i in half)) for half in halves)
            part = self.net.parts[layers[place]]
            name = part.name if isinstance(part, Layer) else part.origin
            yield _option(f"cut before {name}", cycles, self._cycles(self.masks[step]))

    def _apart(self, step: int) -> Iterator[Option]:
        mask = self.masks[step]
        if mask.bit_count() > 2:  # two layers apart are a group cut in two
            cycles = sum(self._cycles(1 << i) for i in members(mask))
            yield _option("every layer alone", cycles, self._cycles(mask))

    def _union(self, what: str, mask: int, against: float) -> Option:
        if not self.net.legal(mask):
            return Option(what, None, against, "bytes are handed over through memory")
        if not self.net.convex(mask):
            return Option(what, None, against, "other groups lie between")
        return _option(what, self._cycles(mask), against)

    def _cycles(self, mask: int) -> float:
        try:
            found = self.fitter.schedules(self.net.group(mask))
        except DoesNotFit:
            return math.inf
        return found[0].estimate.total if found else math.inf


def _option(what: str, cycles: float, against: float) -> Option:
    if math.isinf(cycles):
        return Option(what, None, against, "does not fit")
    return Option(what, cycles, against)


class Others:
    """Other schedules of one group."""

    def __init__(self, search: Search, made: Decision) -> None:
        self.made = made.schedule
        self.fitter = search.fitter
        self.cost = made.schedule.estimate.total
        self.all = tuple(_schedules(search, made.group, made.schedule))

    def tiles(self) -> Option | None:
        """The best with tiles of another size, on the same cores."""
        mine = sizes_text(self.made)
        return self._best(
            lambda s: s.parts == self.made.parts and sizes_text(s) != mine, sizes_text
        )

    def halo(self) -> Option | None:
        """The best with the other policy."""
        mine = halo_of(self.made)
        if mine == "none":
            return None
        other = "recompute" if mine == "rolling" else "rolling"
        found = self._best(lambda s: halo_of(s) == other, lambda s: f"{other}, {sizes_text(s)}")
        return found or Option(other, None, self.cost, "does not fit")

    def cores(self) -> Option | None:
        """The best with another split over cores."""
        return self._best(lambda s: s.parts != self.made.parts, cores_text)

    def keep(self) -> Option | None:
        """Nothing kept on chip before or after."""
        group = self.made.group
        if not group.kept and not group.reserved:
            return None
        plain = replace(group, kept={}, reserved=0)
        cycles = self.fitter.schedules(plain)[0].estimate.total
        return Option("through memory", cycles, self.cost)

    def _best(
        self, suits: Callable[[Schedule], bool], text: Callable[[Schedule], str]
    ) -> Option | None:
        found = min(filter(suits, self.all), key=lambda s: s.estimate.total, default=None)
        return None if found is None else Option(text(found), found.estimate.total, self.cost)


def _schedules(search: Search, group: Group, made: Schedule) -> Iterator[Schedule]:
    """All schedules that the search has of a group; of a layer alone the best that fit."""
    if len(group.layers) > 1 or group.kept:
        yield from search.fitter.schedules(group)
        return
    stages, arch = search.fitter.stages, search.fitter.arch
    candidates = stages.tile.candidates(group, arch, stages.plan.slots)
    found = sorted((single(tiled, group) for tiled in candidates), key=_cycles)
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


def _cycles(schedule: Schedule) -> float:
    return schedule.estimate.total

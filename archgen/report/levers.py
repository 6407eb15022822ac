"""What to change about a machine first, by what is known of each change.

The one idea: what was tried comes first, by its gain for the area that it takes: measured where the
study has the changed machine, simulated with the same program or with one that was made for the
change, or estimated where that was not made. What has a bound alone comes after, because a bound of
waits is seldom reached; a change that was tried and gains nothing is no lever, and named as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from archgen.energy import EnergyCosts, costs_of
from archgen.outcomes.bottleneck import AT_MOST, RECOMPILED, SIMULATED, TriedChange, change_key
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.frame import matrix_cycles, number, records, results_frame
from archgen.outcomes.points import Outcome
from archgen.outcomes.rows import per_area
from archgen.report.account import Account, account
from archgen.report.lever_rules import DEPTHWISE, SHAPES, LeverRule, rules_for
from archgen.report.points import PointView
from archgen.report.ranking import MeasuredGain
from archgen.report.sheet import counted, geometric_mean, percent
from archgen.report.tables import time_shares
from archgen.schema.rewritten import Fields, changed
from compiler import api
from simmodel.arch.record import Arch
from simmodel.errors import Deadlock, NotRunnable

# What rules call worth it is tried on a run: simulated, not guessed.
#
# Where the same program shows what a change brings, it runs on the changed machine, at a few
# hundredths of compiling. A bound of waits says little, as behind the cause of a wait there may be
# another; the run says which it was. Of the changes that take another program the most promising
# are compiled for, as fast as it goes, and compared with what that makes of the machine as it is.
# What remains is judged layer by layer: an array by whole folds of each layer's own extents,
# depthwise layers by the time that they take now against that of an engine made for them.

WORTH = 0.02
"""Bounds below this are not tried."""
MOST = 12
"""Changes that are simulated, those of the largest bounds."""
COMPILED, PROMISING = 3, 0.05
"""Changes that are compiled for, and what each must promise: a program takes longer than a run."""
LAYERS = 300
"""Layers of a network above which none is: trying should end while somebody waits."""
POINTS = 12
"""Points of a study above which none is: points of a sweep say themselves what changes bring."""


@dataclass(frozen=True)
class TrialTools:
    """What changes are tried with."""

    cycles: Callable[[Arch], int]
    """Of the program of the run on another machine."""
    products: Callable[[Arch], api.ProductCycles] | None = None
    """Those of the network of the run on another machine; None: not known."""
    anew: Callable[[Arch], int | None] | None = None
    """Cycles of a program made for a machine, as fast as it goes; None: it gets none. Without it
    nothing is compiled for."""


def tried(outcome: Outcome, arch: Arch, means: TrialTools) -> list[TriedChange]:
    """What is found of changes of `arch`, on which `outcome` was measured."""
    own = account(PointView(0, records(results_frame([outcome]))[0], arch, "", ""), outcome)
    rules = [rule for rule in rules_for(arch) if rule.fields is not None]
    gains = [(rule, rule.judge(own)[0]) for rule in rules if rule.same(arch)]
    runs = sorted((pair for pair in gains if pair[1] >= WORTH), key=lambda pair: -pair[1])
    found = [*filter(None, (_simulated(rule, own, means) for rule, _ in runs[:MOST]))]
    others = [
        *_estimated_changes(own, [rule for rule in rules if not rule.same(arch)], means.products)
    ]
    if means.anew is not None and len(own.layers) <= LAYERS:
        others = _recompiled(own, others, means.anew)
    return found + others


def _simulated(rule: LeverRule, own: Account, means: TrialTools) -> TriedChange | None:
    """The same program on the changed machine; None where that is no machine, or cannot run it."""
    fields = rule.on(own.point.arch)
    other = changed(own.point.arch, fields)
    if other is None:
        return None
    try:
        cycles = means.cycles(other)
    except (Deadlock, NotRunnable):
        return None
    return TriedChange(fields, 1 - cycles / own.cycles, SIMULATED)


def _recompiled(
    own: Account, found: Sequence[TriedChange], anew: Callable[[Arch], int | None]
) -> list[TriedChange]:
    """`found`, of which the most promising were compiled for; estimates first, as bounds are
    seldom reached."""
    arch, made = own.point.arch, list(found)
    order = sorted(range(len(made)), key=lambda at: (made[at].way == AT_MOST, -made[at].gain))
    chosen = [at for at in order if made[at].gain >= PROMISING][:COMPILED]
    before = anew(arch) if chosen else None
    if not before:
        return made
    for at in chosen:
        other = changed(arch, made[at].fields)
        cycles = None if other is None else anew(other)
        if cycles is not None:
            made[at] = replace(made[at], gain=1 - cycles / before, way=RECOMPILED)
    return made


def _estimated_changes(
    own: Account, rules: Sequence[LeverRule],
    products: Callable[[Arch], api.ProductCycles] | None,
) -> Iterator[TriedChange]:  # fmt: skip
    """What is known of changes that take another program, which nobody has made yet."""
    arch = own.point.arch
    for rule in rules:
        fields, (bound, said) = rule.on(arch), rule.judge(own)
        other = changed(arch, fields)
        if other is None:
            continue
        if rule in DEPTHWISE:
            if products is not None:
                yield from _estimate_depthwise(own, fields, products(other))
        elif bound >= WORTH:
            if rule in SHAPES and products is not None:
                bound = min(bound, _folds(own, products(arch), products(other)))
            yield TriedChange(fields, bound, AT_MOST, said)


def _folds(own: Account, before: api.ProductCycles, after: api.ProductCycles) -> float:
    """Share of the time that matrix engines work less, each layer in whole folds."""
    saved = 0.0
    for row in own.layers:
        name, busy = str(row["node"]), matrix_cycles(row, own.point.arch)
        if busy > 0 and before.dense.get(name):
            saved += busy * (1 - after.dense[name] / before.dense[name])
    return saved / own.time


def _estimate_depthwise(
    own: Account, fields: Mapping[str, object], after: api.ProductCycles
) -> Iterator[TriedChange]:
    """What depthwise layers take now, on an array with all that they wait for, less what they would
    take."""
    pairs = zip(own.layers, time_shares(own.layers), strict=True)
    mine = [(row, share) for row, share in pairs if str(row["node"]) in after.depthwise]
    on_array = [matrix_cycles(row, own.point.arch) > 0 for row, _ in mine]
    # Lanes feed themselves well, so beside their own work nothing is sure to go.
    now = [share if array else number(row, "busy_vector_cycles") / own.time
           for array, (row, share) in zip(on_array, mine, strict=True)]  # fmt: skip
    then = sum(after.depthwise.values()) / own.time
    if now:
        said = (
            f"{counted(len(now), 'depthwise layer')} on an engine that is not made for them: "
            f"{percent(sum(now))} of the time, where one that is would take {percent(then)}"
        )
        yield TriedChange(fields, sum(now) - then, ESTIMATED if any(on_array) else AT_MOST, said)


# What a change of a machine costs in area and energy.


@dataclass(frozen=True)
class ChangeCost:
    """What a change costs; NaN where that is not known."""

    area: float
    """mm2 more."""
    area_share: float
    """The same as a share of the machine."""
    energy: float
    """mJ more that a run takes, if the gain is reached."""
    energy_share: float
    """The same as a share of the run's energy."""


UNKNOWN = ChangeCost(math.nan, math.nan, math.nan, math.nan)


def price(arch: Arch, fields: Fields, point: PointView, longer: float) -> ChangeCost:
    """What changing `fields` of `arch` costs; in energy, for the run of `point`, whose time is then
    `longer` times as long."""
    other = changed(arch, fields)
    if other is None:
        return UNKNOWN
    before, after = costs_of(arch), costs_of(other)
    area, more = before.area.total.value, after.area.total.value - before.area.total.value
    ratios = _ratios(before, after, str(point.row["dtype"]), longer)
    parts = ((point.get(f"energy_{name}_mj", 0.0), ratio) for name, ratio in ratios.items())
    whole = point.get("energy_mj")
    spent = sum(part * (ratio - 1) for part, ratio in parts)
    energy = (spent, spent / whole) if whole > 0 else (math.nan, math.nan)
    return ChangeCost(more, more / area if area > 0 else math.nan, *energy)


def _ratios(before: EnergyCosts, after: EnergyCosts, dtype: str, longer: float) -> dict[str, float]:
    """By component of energy: what it takes afterwards, as a factor."""
    pairs = {name: (before.read[name].value, after.read[name].value) for name in before.read}
    if dtype in before.mac:
        pairs["mac"] = (before.mac[dtype].value, after.mac[dtype].value)
    pairs |= {
        "vector": (before.vector["simple"].value, after.vector["simple"].value),
        "link": (_of_links(before), _of_links(after)),
        "instruction": (before.instruction.value, after.instruction.value),
        "leakage": (before.leakage.value, after.leakage.value * longer),
    }
    return {name: b / a if a > 0 else 1.0 for name, (a, b) in pairs.items()}


def _of_links(costs: EnergyCosts) -> float:
    """Of a byte on each link, as nobody counted their bytes apart."""
    return sum(cost.value for cost in costs.links.values())


ENERGY = "energy-proxy"
"""The objective of schedules for which levers are in order of energy."""
LEAST = 0.01
"""Gains below this are not worth a line."""
_FREE = 0.05
"""Share of a machine's area to which the area of a change is added before gains are divided by it:
what saves 10 % for 5 % of area counts as much as what saves 5 % for none."""


@dataclass(frozen=True)
class Lever:
    """A change of one machine, judged over its workloads."""

    title: str
    fields: Fields
    gain: float
    """Share of the time that it saves, over all workloads geometrically."""
    way: str
    """How the gain is known: of `archgen.outcomes.bottleneck`, the weakest over the workloads."""
    by_workload: tuple[tuple[str, float], ...]
    rests_on: str
    how: str
    """How a bound follows from the figures."""
    price: ChangeCost = field(default=UNKNOWN)
    measured: MeasuredGain | None = None
    """What the study itself says of it."""

    @property
    def per_mm2(self) -> float:
        """Share of the time that each square millimetre saves; NaN where it takes hardly any, or
        where nobody knows what is saved but that it is no more than a bound."""
        return self._gain_per(self.price.area, self.price.area_share)

    @property
    def per_mj(self) -> float:
        """Share of the time that each mJ more of a run saves; NaN where it takes no more, or
        where nobody knows what is saved."""
        return self._gain_per(self.price.energy, self.price.energy_share)

    def _gain_per(self, more: float, share: float) -> float:
        if self.is_bound or not share > 0:
            return math.nan
        return per_area(self.effective_gain, more, more / share)

    @property
    def worth(self) -> float:
        """Its gain for the area that it takes; what has no known price takes none."""
        share = self.price.area_share
        return self.effective_gain / (_FREE + (share if share > 0 else 0.0))

    @property
    def effective_gain(self) -> float:
        """The share of the time that it saves where the study has measured it, else its gain."""
        return self.gain if self.measured is None else self.measured.gain

    @property
    def is_bound(self) -> bool:
        """Whether nobody has tried it."""
        return self.way == AT_MOST and self.measured is None


def levers(
    arch: Arch, accounts: Sequence[Account],
    measure: Callable[[Fields], MeasuredGain | None] = lambda fields: None,
) -> tuple[list[Lever], list[str]]:  # fmt: skip
    """What makes the runs in `accounts`, all on `arch`, faster, and titles of what was tried, by
    the study itself or as its bound promised something, and gains nothing.

    `measure` says what the study has found of a change. What was tried comes first, each kind by
    what is known of its gain for its area: a measurement is of the compiler's own program at the
    study's effort, so it counts before all. Of schedules that were sought for energy the levers
    that save most of it come first.
    """
    judged = [_judged(arch, rule, accounts) for rule in rules_for(arch) if accounts]
    found = [replace(lever, measured=measure(lever.fields)) for lever in judged]
    kept = [
        lever
        for lever in found
        if lever.effective_gain >= (WORTH if lever.is_bound else LEAST)
        and not (lever.fields and changed(arch, lever.fields) is None)  # no machine at all
    ]
    tried = [each for each in found if each.measured or each.way in (SIMULATED, RECOMPILED)]
    without = [lever.title for lever in tried if lever.effective_gain < LEAST]
    key = _energy_first if for_energy(accounts) else lambda lever: -lever.worth
    return sorted(kept, key=lambda lever: (lever.is_bound, key(lever))), without


def for_energy(accounts: Sequence[Account]) -> bool:
    """Whether what was run was sought for energy, so that levers are in order of that."""
    return bool(accounts) and {each.point.text("objective") for each in accounts} == {ENERGY}


def _energy_first(lever: Lever) -> float:
    """Change of the energy, where it is not known none."""
    return 0.0 if math.isnan(lever.price.energy_share) else lever.price.energy_share


def _judged(arch: Arch, rule: LeverRule, accounts: Sequence[Account]) -> Lever:
    fields = rule.on(arch)
    verdicts = [_verdict(rule, fields, account) for account in accounts]
    # No lever is believed to save everything: its ratio would be infinite.
    gains = [min(0.99, verdict.gain) for verdict in verdicts]
    whole = 1 - geometric_mean([1 - gain for gain in gains])
    most = max(range(len(gains)), key=lambda place: gains[place])
    account, said = accounts[most], verdicts[most].rests_on
    where = f"{account.point.workload}: " if len(accounts) > 1 and said else ""
    by = tuple((a.point.workload, gain) for a, gain in zip(accounts, gains, strict=True))
    cost = price(arch, fields, account.point, 1 - gains[most]) if whole >= LEAST else UNKNOWN
    # Bounds that were too small to be tried do not count beside others.
    ways = {each.way for each in verdicts if each.way != AT_MOST or each.gain >= WORTH}
    way = next((way for way in (AT_MOST, ESTIMATED, SIMULATED, RECOMPILED) if way in ways), AT_MOST)
    how = rule.how.replace("DRAM", arch.memories.far_name("dram"))
    return Lever(rule.title, fields, whole, way, by, where + said, how, cost)


def _verdict(rule: LeverRule, fields: Fields, account: Account) -> TriedChange:
    """What was tried of a rule on a run, else its bound."""
    bound, said = rule.judge(account)
    found = account.tried.get(change_key(fields)) if fields else None
    if found is None:
        return TriedChange(fields, max(0.0, bound), AT_MOST, said)
    return replace(found, rests_on=found.rests_on or said)

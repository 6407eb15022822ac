"""What to change about a machine first, by what is known of each change.

The one idea: what was tried comes first, by its gain for the area that it takes: measured where the
study has the changed machine, simulated with the same program or with one that was made for the
change, or estimated where that was not made. What has a bound alone comes after, because a bound of
waits is seldom reached; a change that was tried and gains nothing is no lever, and named as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from archgen.energy import EnergyCosts, costs_of
from archgen.outcomes.bottleneck import AT_MOST, RECOMPILED, SIMULATED, TriedChange, change_key
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.rows import per_area
from archgen.report.account import Account
from archgen.report.lever_rules import LeverRule, rules_for
from archgen.report.points import PointView
from archgen.report.ranking import MeasuredGain
from archgen.report.sheet import geometric_mean
from archgen.report.tried_levers import WORTH
from archgen.schema.rewritten import Fields, changed
from simmodel.arch.record import Arch

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

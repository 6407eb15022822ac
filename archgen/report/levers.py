"""What to change about a machine first, by what is known of each change.

The one idea: what was tried comes first, by its gain: measured where the study has the changed
machine, simulated with the same program or with one that was made for the change, or estimated
where that was not made. What has a bound alone comes
after, because a bound of waits is seldom reached; a change that was tried and gains nothing is no
lever, and is named as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from archgen.outcomes.merit import per_area
from archgen.outcomes.tried import ANEW, AT_MOST, ESTIMATED, SIMULATED, Tried, key_of
from archgen.report.account import Account
from archgen.report.alike import Measured
from archgen.report.changed import UNKNOWN, Price, price
from archgen.report.rules import Rule, rules_for
from archgen.report.trying import WORTH
from archgen.report.words import geometric_mean
from archgen.schema.rewritten import Fields, changed
from simmodel.arch import Arch

LEAST = 0.01
"""Gains below this are not worth a line."""


@dataclass(frozen=True)
class Lever:
    """A change of one machine, judged over its workloads."""

    title: str
    fields: Fields
    gain: float
    """Share of the time that it saves, over all workloads geometrically."""
    way: str
    """How the gain is known: of `archgen.outcomes.tried`, the weakest over the workloads."""
    by_workload: tuple[tuple[str, float], ...]
    rests_on: str
    how: str
    """How a bound follows from the figures."""
    price: Price = field(default=UNKNOWN)
    measured: Measured | None = None
    """What the study itself says of it."""

    @property
    def per_mm2(self) -> float:
        """Share of the time that each square millimetre saves; NaN where it takes hardly any, or
        where nobody knows what is saved but that it is no more than a bound."""
        if self.is_bound:
            return math.nan
        more, share = self.price.area, self.price.area_share
        return per_area(self.known, more, more / share) if share > 0 else math.nan

    @property
    def known(self) -> float:
        """The share of the time that it saves where the study has measured it, else its gain."""
        return self.gain if self.measured is None else self.measured.gain

    @property
    def is_bound(self) -> bool:
        """Whether nobody has tried it."""
        return self.way == AT_MOST and self.measured is None


def levers(
    arch: Arch,
    accounts: Sequence[Account],
    measure: Callable[[Fields], Measured | None] = lambda fields: None,
) -> list[Lever]:
    """What makes the runs in `accounts`, all on `arch`, faster; `measure` says what the study
    has found of a change. What was tried comes first, each kind by what is known of its gain: a
    measurement is of the compiler's own program at the study's effort, so it counts before all."""
    found = (replace(lever, measured=measure(lever.fields)) for lever in _all(arch, accounts))
    kept = [
        lever
        for lever in found
        if lever.known >= (WORTH if lever.is_bound else LEAST) and _lawful(arch, lever)
    ]
    return sorted(kept, key=lambda lever: (lever.is_bound, -lever.known))


def without_gain(
    arch: Arch,
    accounts: Sequence[Account],
    measure: Callable[[Fields], Measured | None] = lambda fields: None,
) -> list[str]:
    """What was tried, by the study itself or as its bound promised something, and gains nothing:
    in words."""
    found = (replace(lever, measured=measure(lever.fields)) for lever in _all(arch, accounts))
    tried = [each for each in found if each.measured or each.way in (SIMULATED, ANEW)]
    return [lever.title for lever in tried if lever.known < LEAST]


def _all(arch: Arch, accounts: Sequence[Account]) -> list[Lever]:
    return [_judged(arch, rule, accounts) for rule in rules_for(arch)] if accounts else []


def _lawful(arch: Arch, lever: Lever) -> bool:
    """Whether a change makes a machine at all, as far as it is one of fields."""
    return not lever.fields or changed(arch, lever.fields) is not None


def _judged(arch: Arch, rule: Rule, accounts: Sequence[Account]) -> Lever:
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
    return Lever(rule.title, fields, whole, _weakest(verdicts), by, where + said, rule.how, cost)


def _verdict(rule: Rule, fields: Fields, account: Account) -> Tried:
    """What was tried of a rule on a run, else its bound."""
    bound, said = rule.judge(account)
    found = account.tried.get(key_of(fields)) if fields else None
    if found is None:
        return Tried(fields, max(0.0, bound), AT_MOST, said)
    return replace(found, rests_on=found.rests_on or said)


def _weakest(verdicts: Sequence[Tried]) -> str:
    """How the gains of workloads are known together; bounds that were too small to be tried do not
    count beside others."""
    ways = {each.way for each in verdicts if each.way != AT_MOST or each.gain >= WORTH}
    return next((way for way in (AT_MOST, ESTIMATED, SIMULATED, ANEW) if way in ways), AT_MOST)

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
from typing import Any

import pandas as pd
import yaml

from archgen.energy import EnergyCosts, costs_of
from archgen.outcomes.bottleneck import ANEW, AT_MOST, ESTIMATED, SIMULATED, TriedChange, key_of
from archgen.outcomes.frame import Record, sizes
from archgen.outcomes.rows import per_area
from archgen.report.account import Account
from archgen.report.lever_rules import LeverRule, rules_for
from archgen.report.points import PointView
from archgen.report.ranking import MeasuredGain, Standing
from archgen.report.sheet import geometric_mean, percent
from archgen.report.tried_levers import WORTH
from archgen.scheduling import DEFAULT
from archgen.schema.rewritten import Fields, changed, scaled
from simmodel.arch.record import Arch
from simmodel.arch.units import show_bytes

# What a change of a machine costs in area and energy.


@dataclass(frozen=True)
class ChangeCost:
    """What a change costs; NaN where that is not known."""

    area: float
    """mm2 more."""
    area_share: float
    """The same as a share of the machine."""
    energy_share: float
    """Change of a run's energy, if the gain is reached."""


UNKNOWN = ChangeCost(math.nan, math.nan, math.nan)


def price(arch: Arch, fields: Fields, point: PointView, longer: float) -> ChangeCost:
    """What `fields` cost on `arch`.

    Args:
        arch: the machine.
        fields: what is changed about it.
        point: whose energy is judged.
        longer: its time afterwards, as a factor.
    """
    other = changed(arch, fields)
    if other is None:
        return UNKNOWN
    before, after = costs_of(arch), costs_of(other)
    area, more = before.area.total.value, after.area.total.value - before.area.total.value
    ratios = _ratios(before, after, str(point.row["dtype"]), longer)
    parts = {name: point.get(f"energy_{name}_mj") for name in ratios}
    known = {name: part for name, part in parts.items() if math.isfinite(part)}
    whole = point.get("energy_mj")
    delta = sum(part * (ratios[name] - 1) for name, part in known.items())
    share = delta / whole if whole > 0 else math.nan
    return ChangeCost(more, more / area if area > 0 else math.nan, share)


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
        if self.is_bound:
            return math.nan
        more, share = self.price.area, self.price.area_share
        return per_area(self.effective_gain, more, more / share) if share > 0 else math.nan

    @property
    def effective_gain(self) -> float:
        """The share of the time that it saves where the study has measured it, else its gain."""
        return self.gain if self.measured is None else self.measured.gain

    @property
    def is_bound(self) -> bool:
        """Whether nobody has tried it."""
        return self.way == AT_MOST and self.measured is None


def levers(
    arch: Arch,
    accounts: Sequence[Account],
    measure: Callable[[Fields], MeasuredGain | None] = lambda fields: None,
) -> list[Lever]:
    """What makes the runs in `accounts`, all on `arch`, faster; `measure` says what the study
    has found of a change. What was tried comes first, each kind by what is known of its gain: a
    measurement is of the compiler's own program at the study's effort, so it counts before all."""
    found = (replace(lever, measured=measure(lever.fields)) for lever in _all(arch, accounts))
    kept = [
        lever
        for lever in found
        if lever.effective_gain >= (WORTH if lever.is_bound else LEAST) and _lawful(arch, lever)
    ]
    return sorted(kept, key=lambda lever: (lever.is_bound, -lever.effective_gain))


def without_gain(
    arch: Arch,
    accounts: Sequence[Account],
    measure: Callable[[Fields], MeasuredGain | None] = lambda fields: None,
) -> list[str]:
    """What was tried, by the study itself or as its bound promised something, and gains nothing:
    in words."""
    found = (replace(lever, measured=measure(lever.fields)) for lever in _all(arch, accounts))
    tried = [each for each in found if each.measured or each.way in (SIMULATED, ANEW)]
    return [lever.title for lever in tried if lever.effective_gain < LEAST]


def _all(arch: Arch, accounts: Sequence[Account]) -> list[Lever]:
    return [_judged(arch, rule, accounts) for rule in rules_for(arch)] if accounts else []


def _lawful(arch: Arch, lever: Lever) -> bool:
    """Whether a change makes a machine at all, as far as it is one of fields."""
    return not lever.fields or changed(arch, lever.fields) is not None


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
    return Lever(rule.title, fields, whole, _weakest(verdicts), by, where + said, rule.how, cost)


def _verdict(rule: LeverRule, fields: Fields, account: Account) -> TriedChange:
    """What was tried of a rule on a run, else its bound."""
    bound, said = rule.judge(account)
    found = account.tried.get(key_of(fields)) if fields else None
    if found is None:
        return TriedChange(fields, max(0.0, bound), AT_MOST, said)
    return replace(found, rests_on=found.rests_on or said)


def _weakest(verdicts: Sequence[TriedChange]) -> str:
    """How the gains of workloads are known together; bounds that were too small to be tried do not
    count beside others."""
    ways = {each.way for each in verdicts if each.way != AT_MOST or each.gain >= WORTH}
    return next((way for way in (AT_MOST, ESTIMATED, SIMULATED, ANEW) if way in ways), AT_MOST)


# What a machine could do without: parts that its runs hardly use, and what they cost.

_IDLE = 0.2
_WORTH = 0.02
"""Shares: of time that a part may work, of area that its half must save."""


@dataclass(frozen=True)
class Saver:
    """A smaller part."""

    title: str
    fields: Fields
    longer: float
    """Share by which a run gets longer at most, with the same program."""
    rests_on: str
    price: ChangeCost


def savers(arch: Arch, accounts: Sequence[Account]) -> list[Saver]:
    """What could be halved on `arch`, given all its runs; the largest area first."""
    if not accounts:
        return []
    found = [
        *(_memory(arch, role, accounts) for role in arch.memories.on_chip()),
        _engine(arch, "matrix", "matrix.cols", "multipliers", accounts),
        _engine(arch, "vector", "vector.lanes", "vector lanes", accounts),
    ]
    kept = [each for each in found if each is not None and -each.price.area_share >= _WORTH]
    return sorted(kept, key=lambda saver: saver.price.area)


def _memory(arch: Arch, role: str, accounts: Sequence[Account]) -> Saver | None:
    size = arch.memories.on_chip()[role].size
    used = max(account.point.get(f"peak_{role}_bytes") for account in accounts)
    fields = scaled(arch, f"memories.{role}.size", 0.5)
    if not used <= size / 2:
        return None
    said = f"at most {show_bytes(used)} of {show_bytes(size)} is ever in use"
    return Saver(f"half the {role} memory", fields, 0.0, said, _price(arch, fields, accounts, 0))


def _engine(
    arch: Arch, engine: str, field: str, noun: str, accounts: Sequence[Account]
) -> Saver | None:
    share = max(account.share(engine) for account in accounts)
    fields = scaled(arch, field, 0.5)
    if share > _IDLE or not fields or math.isnan(share):
        return None
    said = f"{engine} engines compute at most {percent(share)} of the time"
    return Saver(f"half the {noun}", fields, share, said, _price(arch, fields, accounts, share))


def _price(arch: Arch, fields: Fields, accounts: Sequence[Account], longer: float) -> ChangeCost:
    return price(arch, fields, accounts[0].point, 1 + longer)


# A study file that tries the changes a report suggests, on the workloads it rests on.


def trial_study(standing: Standing, levers: Sequence[Lever], savers: Sequence[Saver]) -> str:
    """The text of a study of the machine as it is and with each change; empty for no change."""
    fields = [*(lever.fields for lever in levers), *(saver.fields for saver in savers)]
    cases = [dict(each) for each in fields if each]
    if not cases:
        return ""
    points = list(standing.best.values())
    return yaml.safe_dump(_design(standing, cases, points), sort_keys=False, width=100)


def _design(
    standing: Standing, cases: list[dict[str, Any]], points: Sequence[PointView]
) -> dict[str, Any]:
    file = f"{standing.name}.yaml"
    rows = [point.row for point in points]
    made: dict[str, Any] = {
        "name": f"changes-of-{standing.name}",
        "archs": [file, {"extends": file, "cases": cases}],
        "models": _networks(rows),
        "batches": list(dict.fromkeys(int(row["batch"]) for row in rows)),
        "dtypes": list(dict.fromkeys(str(row["dtype"]) for row in rows)),
    }
    compiler: dict[str, Any] = {
        name: _python_values(dict.fromkeys(row[name] for row in rows))
        for name, usual in DEFAULT.columns.items()
        if any(row.get(name) not in (None, usual) for row in rows)
    }
    passes = {
        name.removeprefix("pass."): _python_values(dict.fromkeys(row[name] for row in rows))
        for name in rows[0]
        if name.startswith("pass.") and not any(pd.isna(row[name]) for row in rows)
    }
    if passes:
        compiler["passes"] = passes
    return made | ({"compiler": compiler} if compiler else {})


def _networks(rows: Sequence[Record]) -> list[Any]:
    """The networks, each at the sizes of its free dimensions."""
    held: dict[str, dict[str, dict[int, None]]] = {}
    for row in rows:
        own = held.setdefault(str(row["model"]), {})
        for name, size in sizes(row).items():
            own.setdefault(name, {})[size] = None
    return [
        {"model": model, "dims": {name: list(found) for name, found in own.items()}}
        if own
        else model
        for model, own in held.items()
    ]


def _python_values(values: dict[Any, None]) -> list[Any]:
    """Values as YAML writes them: numpy's numbers are Python's."""
    return [value.item() if hasattr(value, "item") else value for value in values]

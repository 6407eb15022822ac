"""Changes of a machine tried on a run: what rules call worth it is simulated, not guessed.

The one idea: where the same program shows what a change brings, it runs on the changed machine,
at a few hundredths of compiling. A bound of waits says little, as behind the cause of a wait
there may be another; the run says which it was. Of the changes that take another program the most
promising are compiled for, as fast as it goes, and compared with what that makes of the machine
as it is. What remains is judged layer by layer: an array by whole folds of each layer's own
extents, depthwise layers by the time that they take now against that of an engine made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from archgen.outcomes.bottleneck import AT_MOST, RECOMPILED, SIMULATED, TriedChange
from archgen.outcomes.estimated import ESTIMATED
from archgen.outcomes.frame import matrix_cycles, number, records, results_frame
from archgen.outcomes.points import Outcome
from archgen.report.account import Account, account
from archgen.report.lever_rules import DEPTHWISE, SHAPES, LeverRule, rules_for
from archgen.report.points import PointView
from archgen.report.sheet import counted, percent
from archgen.report.tables import time_shares
from archgen.schema.rewritten import changed
from compiler import api
from simmodel.arch.record import Arch
from simmodel.errors import Deadlock, NotRunnable

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

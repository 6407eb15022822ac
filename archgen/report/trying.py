"""Changes of a machine tried on a run: what rules call worth it is simulated, not guessed.

The one idea: where the same program shows what a change brings, it runs on the changed machine,
at a few hundredths of compiling. A bound of waits says little, as behind the cause of a wait
there may be another; the run says which it was. What takes another program is estimated layer by
layer: an array by whole folds of each layer's own extents, depthwise layers by the time that they
take now against that of an engine made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from archgen.outcomes.frame import number, records, results_frame
from archgen.outcomes.point import Outcome
from archgen.outcomes.tried import AT_MOST, ESTIMATED, SIMULATED, Tried
from archgen.report.account import Account, account
from archgen.report.layer_table import time_shares
from archgen.report.points import PointView
from archgen.report.rules import DEPTHWISE, SHAPES, Rule, rules_for
from archgen.report.words import counted, percent
from archgen.schema.rewritten import changed
from compiler.api import Products
from simmodel.arch import Arch
from simmodel.errors import Deadlock, NotRunnable
from simmodel.trace import Trace

WORTH = 0.02
"""Bounds below this are not tried."""
MOST = 8
"""Changes that are simulated, those of the largest bounds."""


@dataclass(frozen=True)
class Means:
    """What changes are tried with."""

    simulate: Callable[[Arch], Trace]
    """The program of the run on another machine."""
    products: Callable[[Arch], Products] | None = None
    """Those of the network of the run on another machine; None: not known."""


def tried(outcome: Outcome, arch: Arch, means: Means) -> list[Tried]:
    """What is found of changes of `arch`, on which `outcome` was measured."""
    own = account(PointView(0, records(results_frame([outcome]))[0], arch, "", ""), outcome)
    judged = [(rule, rule.judge(own)[0]) for rule in rules_for(arch) if rule.fields(arch)]
    runs = [(rule, gain) for rule, gain in judged if rule.same(arch) and gain >= WORTH]
    runs.sort(key=lambda pair: -pair[1])
    found = [*filter(None, (_simulated(rule, own, means) for rule, _ in runs[:MOST]))]
    if means.products is not None:
        found += _estimated(own, dict(judged), means.products)
    return found


def _simulated(rule: Rule, own: Account, means: Means) -> Tried | None:
    """The same program on the changed machine; None where that is no machine, or cannot run it."""
    fields = rule.fields(own.point.arch)
    other = changed(own.point.arch, fields)
    if other is None:
        return None
    try:
        cycles = means.simulate(other).cycles
    except (Deadlock, NotRunnable):
        return None
    return Tried(fields, 1 - cycles / own.cycles, SIMULATED)


def _estimated(
    own: Account, bounds: Mapping[Rule, float], products: Callable[[Arch], Products]
) -> Iterator[Tried]:
    arch = own.point.arch
    shapes = [rule for rule in SHAPES if not rule.same(arch) and bounds.get(rule, 0) >= WORTH]
    for rule in (*shapes, *(rule for rule in DEPTHWISE if rule in bounds)):
        fields = rule.fields(arch)
        other = changed(arch, fields)
        if other is None:
            continue
        if rule in shapes:
            gain = _folds(own, products(arch), products(other))
            yield Tried(fields, min(gain, bounds[rule]), AT_MOST)
        else:
            yield from _depthwise(own, fields, products(other))


def _folds(own: Account, before: Products, after: Products) -> float:
    """Share of the time that matrix engines work less, each layer in whole folds."""
    saved = 0.0
    for row in own.layers:
        name, busy = str(row["node"]), number(row, "busy_matrix_cycles")
        if busy > 0 and before.dense.get(name):
            saved += busy * (1 - after.dense[name] / before.dense[name])
    return saved / own.time


def _depthwise(own: Account, fields: Mapping[str, object], after: Products) -> Iterator[Tried]:
    """What depthwise layers take now, with all that they wait for, less what they would take."""
    pairs = zip(own.layers, time_shares(own.layers), strict=True)
    now = [share for row, share in pairs if str(row["node"]) in after.depthwise]
    then = sum(after.depthwise.values()) / own.time
    if now:
        said = (
            f"{counted(len(now), 'depthwise layer')} on an array that is not made for them: "
            f"{percent(sum(now))} of the time, where an engine that is would take {percent(then)}"
        )
        yield Tried(fields, sum(now) - then, ESTIMATED, said)

"""Several inferences one after another in one program: each begins while the one before it ends.

    one       A0 B0 C0
    three     A0 B0 C0 A1 B1 C1 A2 B2 C2        loads of A1 while C0 computes; weights that stay
                                                on chip are loaded by the first inference alone

The steps are those of the program for one inference, done again at the same addresses; what orders
them is found anew, from the bytes that they touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from compiler.context import CompileResult, Context, Network
from compiler.decisions.group_costs import Fit
from compiler.errors import DoesNotFit
from compiler.geometry.tile_trace import Unwalkable
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.pipeline import place_activations, place_groups, place_in_shared_memory, replace_steps
from compiler.schedule.residency.table import added
from compiler.schedule_ir.group import Group
from compiler.search.autotune import refitted
from compiler.search.layer_pipeline import layer_pipeline
from compiler.target.group_facts import Unholdable
from compiler.tensor_ir.nest import HostNode
from simmodel.arch.record import Arch
from simmodel.program.program import Program
from simmodel.trace import Trace
from simmodel.verify import verify

NO_PLACE = DoesNotFit, Unwalkable, Unholdable
SHARES = 1.0, 0.75, 0.5, 0.25
"""Parts of a memory that constants may take between inferences, of which the best is taken."""


@dataclass(frozen=True)
class BackToBack:
    """A program of several inferences, verified, and its run."""

    result: CompileResult
    trace: Trace
    inferences: int

    @property
    def ends(self) -> tuple[int, ...]:
        """Cycle at which each inference ends."""
        ends, steps = [0] * self.inferences, len(self.result.steps)
        for origin in self.trace.origins:
            number = origin.group // steps
            ends[number] = max(ends[number], origin.last)
        return tuple(ends)

    @property
    def segments(self) -> int:
        """Sets of cores that are at an inference each."""
        groups = (step for step in self.result.steps if isinstance(step, PlacedGroup))
        return len({step.plan.schedule.first_core for step in groups})

    @property
    def interval(self) -> float:
        """Cycles from the end of one to the end of the next, once the first one has ended."""
        first, *_, last = self.ends
        return (last - first) / (self.inferences - 1)

    def moving(self, arch: Arch) -> float:
        """Cycles that memories off chip take at least for what the last inference moves: where
        several share them, one cannot follow the other sooner, however close their ends are while
        the first ones begin and the last ones end."""
        steps = len(self.result.steps)
        last = [o for o in self.trace.origins if o.group // steps == self.inferences - 1]
        return max(
            sum(o.read.get(role, 0) + o.written.get(role, 0) for o in last) / rate
            for role, rate in arch.far_rates.items()
        )


def back_to_back(
    result: CompileResult, inferences: int, arch: Arch, judge: Callable[[Program, Arch], Trace],
    *, given: bool = False,
) -> BackToBack:  # fmt: skip
    """The program that does what `result` does so many times, at least twice: of the same schedule
    as it is, which may be `given`, else also the same apart from what the inference before is at,
    one with segments of layers on cores of their own, and one with constants that stay on chip;
    that which ends first.

    Raises DoesNotFit: tokens are too few.
    """
    found: list[BackToBack] = []
    for steps in [result.steps] if given else schedules(result, inferences):
        with suppress(*([DoesNotFit] if found else [])):
            made = replace_steps(result, steps, inferences)
            found.append(BackToBack(made, judge(made.program, arch), inferences))
    best = min(found, key=lambda each: each.trace.cycles)
    verify(best.result.program, arch)
    return best


def schedules(result: CompileResult, inferences: int) -> Iterator[tuple[Step, ...]]:
    """Steps that do what `result` does."""
    search, steps = result.search, result.steps
    assert search is not None
    ctx, graph = replace(search.context, known=search.costs), search.graph
    yield steps
    with suppress(*NO_PLACE):
        yield _in_a_ring(steps, ctx)
    if search.instances is None and (segments := layer_pipeline(search, ctx, inferences)):
        yield segments
    alone = tuple(map(_by_itself, steps))
    best, least = alone, added(alone, ctx.costs)
    for share in SHARES:
        pin = replace(ctx.stages.pin, share=share, inferences=inferences)
        pinned = pin.apply(alone, graph, ctx.costs)
        cycles = added(pinned, ctx.costs)
        if cycles < least:
            best, least = pinned, cycles
    if best is not alone:
        with suppress(*NO_PLACE):
            network = place_in_shared_memory(place_activations(Network(graph, best), ctx), ctx)
            yield _in_a_ring(tuple(place_groups(network, ctx)), ctx)


def _by_itself(step: Step) -> Group | HostNode:
    """A step with nothing on chip before or after it."""
    if isinstance(step, HostNode):
        return step
    return replace(step.plan.schedule.group, residency={}, reserved={})


def _in_a_ring(steps: Sequence[Step], ctx: Context) -> tuple[Step, ...]:
    """Steps whose first group is placed behind the last one."""

    def fit(step: PlacedGroup, before: Fit | None) -> Fit | None:
        return step.plan, ctx.stages.alloc.apply(step.plan, ctx.arch, before)

    return refitted([*steps, *steps], fit)[len(steps) :]

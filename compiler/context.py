"""What every stage of the compiler is handed beside the value that it transforms, and the values
that stages from layers on hand to each other.

The one idea: a stage is a function `stage(ir, ctx) -> ir`. What does not change on the way, as the
machine, options, caches and who watches, is in one `Context`; a stage that is tried with other
options is called with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from compiler.codegen.kernels import Offer
from compiler.cost.overlap import in_turn
from compiler.decisions.cache import Decisions
from compiler.decisions.group_costs import GroupCosts
from compiler.decisions.instances import Instances
from compiler.decisions.text.tree import Tree
from compiler.memory.on_chip import PlacedGroup, Step
from compiler.numerics.recipe import VerificationPlan
from compiler.options import Stages, Trial
from compiler.plan.make_plan import Plan
from compiler.schedule.residency.buffer import Place
from compiler.schedule.residency.table import Prices
from compiler.schedule_ir.group import Group
from compiler.schedule_ir.layer import Layer
from compiler.schedule_ir.schedule import Schedule
from compiler.target.loops.cover import Cover, CoverProblem
from compiler.target.tracking import Same, TrackedMemo
from compiler.tensor_ir.nest import HostNode, NestGraph, same_graph
from simmodel.arch.record import Arch
from simmodel.isa.region import cached_property
from simmodel.program.program import Probe, Program

IR = TypeVar("IR")
Given = TypeVar("Given")
Unit = TypeVar("Unit", Layer, Group)
Observer = Callable[[str, Any], None]
"""Called with the name of each stage and what it made, which the next stage may change. From
`fuse` on a stage that has to give up what it made makes it again: what counts is its last."""


def unobserved(stage: str, made: object) -> None:
    """The observer that does nothing."""
    del stage, made


@dataclass(frozen=True)
class CompileOptions:
    """What the user may choose; everything else is decided from the architecture."""

    dtype: str | None = None
    """Element type of the network; default the architecture's first."""
    host: bool = True
    """Whether operators may fall back to the host."""
    stages: Stages = field(default_factory=Stages)
    tree: Tree | None = None
    """A schedule to follow; what it leaves open, and everything without one, is searched for."""


@dataclass(frozen=True)
class Context:
    """What all stages of one compilation share."""

    arch: Arch
    options: CompileOptions = field(default_factory=CompileOptions)
    observe: Observer = unobserved
    decisions: Decisions | None = None
    """Schedules that were chosen before."""
    known: GroupCosts | None = None
    """What is known of groups on this machine with whatever passes; None: nothing."""
    prices: Prices | None = None
    """What groups are expected to cost when they are formed; None: their `costs`."""
    functions: NestGraph | None = None
    """A network with the same operators, whose functions are fused alike; None: there is none."""
    on_host: Mapping[str, str] = field(default_factory=dict)
    """Tensors that the host must compute, with the reason."""
    memo: TrackedMemo | None = None
    """What stages made for other machines, with the same options; None: nothing is remembered."""

    @property
    def stages(self) -> Stages:
        """The passes with their options."""
        return self.options.stages

    @property
    def dtype(self) -> str:
        """Element type of the network."""
        return self.options.dtype or self.arch.types[0]

    @property
    def host_allowed(self) -> bool:
        """Whether operators may fall back to the host."""
        return self.options.host and self.stages.host.allowed

    @cached_property
    def costs(self) -> GroupCosts:
        """Prices and schedules of groups on this machine with these options."""
        if self.known is not None:
            return self.known.with_stages(self.stages)
        fronts = None if self.decisions is None else self.decisions.fronts
        return GroupCosts(self.arch, self.stages, fronts)

    def with_stages(self, stages: Stages) -> Context:
        """The same with other options of passes."""
        return replace(self, options=replace(self.options, stages=stages))

    def scheduled(
        self, network: Network[Layer], steps: tuple[Step, ...], notes: Sequence[str] = ()
    ) -> ScheduledNetwork:
        """A schedule that was chosen among what the costs of this context say."""
        search = ScheduleSearch(
            network.graph, network.parts, self.costs, instances=network.instances
        )
        return ScheduledNetwork(search, steps, tuple(notes))

    def run(self, stage: str, apply: Callable[[Given, Arch], IR], given: Given) -> IR:
        """What `stage` makes of `given` on this machine, which the observer has seen."""
        made = self.result_of(stage, apply, given)
        self.observe(stage, made)
        return made

    def result_of(self, what: str, apply: Callable[[Given, Arch], IR], given: Given) -> IR:
        """What `apply` makes of `given`; the memo has that of machines of which it read the same,
        and one object for all that is the same."""
        if self.memo is None:
            return apply(given, self.arch)
        return self.memo.ask(what, Same(given), self.arch, lambda seen: apply(given, seen), _alike)


def _alike(one: object, other: object) -> bool:
    """Whether two values that a stage made of one value are the same."""
    if isinstance(one, NestGraph) and isinstance(other, NestGraph):
        return same_graph(one, other)
    return isinstance(one, tuple) and one == other


@dataclass(frozen=True)
class Network(Generic[Unit]):
    """A network as layers, or as groups of them, and calls of the host, in an order in which they
    can run."""

    graph: NestGraph
    parts: tuple[Unit | HostNode, ...]
    instances: Instances | None = field(default=None, kw_only=True)
    """The network of which some layers are done in these; None: all are done once."""


@dataclass(frozen=True)
class ScheduleSearch(Network[Layer]):
    """What the decisions were chosen among: other groups of these parts may still be priced."""

    costs: GroupCosts

    @property
    def undivided(self) -> Network[Layer]:
        """The network with each layer once."""
        found = self.instances
        return self if found is None else Network(found.whole, found.parts)

    @property
    def context(self) -> Context:
        """The machine and the options of the search."""
        return Context(self.costs.arch, CompileOptions(stages=self.costs.stages))


@dataclass(frozen=True)
class ScheduledNetwork:
    """A network whose groups are planned and have addresses on chip."""

    search: ScheduleSearch
    steps: tuple[Step, ...]
    """The groups, planned and placed, and calls of the host, in order."""
    notes: tuple[str, ...] = ()
    """What the search had chosen and had to be given up, with the reason."""

    @property
    def cycles(self) -> float:
        """Expected of its groups, one after another."""
        groups = (step for step in self.steps if isinstance(step, PlacedGroup))
        return sum(in_turn(group.plan.schedule.estimate.step for group in groups))


@dataclass(frozen=True)
class GroupDecision:
    """What was decided for one group."""

    group: Group
    schedule: Schedule
    plan: Plan
    places: dict[str, Place]
    step: int
    """Position among groups and host nodes; the number of its group in the program's origins."""


@dataclass(frozen=True)
class CompileResult:
    """The program and how it came about."""

    program: Program
    host: tuple[HostNode, ...] = ()
    """Operators that run on the host, with reasons; several may go in one call."""
    probes: tuple[Probe, ...] = ()
    """Every tensor that a step stores."""
    recipe: VerificationPlan | None = field(default=None, compare=False, repr=False)
    """What the steps compute, to be computed again."""
    search: ScheduleSearch | None = field(default=None, compare=False, repr=False)
    notes: tuple[str, ...] = ()
    """What the search had chosen and had to be given up, with the reason."""
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)
    """The groups, planned and placed, and calls of the host, in order."""
    kernels: tuple[Offer, ...] = field(default=(), compare=False)
    """Kernels of users that were compared, each beside what the compiler emits."""
    works: Mapping[tuple[int, str], tuple[CoverProblem, Cover]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By origin in the program and form, the longest work of the engines of elements: its loops,
    and which of them an instruction walks."""
    trials: Mapping[int, tuple[Trial, ...]] = field(default_factory=dict, compare=False)
    """By step, the schedules of its group that were run by themselves."""

    @property
    def decisions(self) -> tuple[GroupDecision, ...]:
        """What was decided for each group, in order."""
        return tuple(
            GroupDecision(s.plan.schedule.group, s.plan.schedule, s.plan, s.places, number)
            for number, s in enumerate(self.steps)
            if isinstance(s, PlacedGroup)
        )

"""The choice among several programs for one request: a judge decides, the estimates propose.

The estimates do not see everything, so from effort 1 on a network is compiled in several ways, as
far as their estimates leave open which is best; each program is run by the judge, and the best is
kept. Where buffers were moved between banks, so is the program that leaves all of them where they
were, at any effort: what moved buffers cost loads is spread over groups. Then other schedules of
its groups are run one by one (`compiler.search.autotune`); the program of the best of them stands
against it. What is chosen is verified. The judge is given: the compiler knows no simulator.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any
from weakref import ReferenceType, ref

import onnx
import onnx_ir as ir

from compiler.codegen.fill_shared import filling_engine
from compiler.context import CompileOptions, CompileResult, Observer, unobserved
from compiler.cost.overlap import copy_rate
from compiler.decisions.cache import Decisions
from compiler.decisions.group_costs import Fit
from compiler.decisions.text.extract import extract_tree
from compiler.decisions.text.tree import Tree
from compiler.errors import CompilerError, DoesNotFit, UnsupportedModel
from compiler.memory.load_plan import early_loads, with_early_loads
from compiler.memory.on_chip import PlaceBuffers, PlacedGroup, Step
from compiler.options import Stages, stages_for
from compiler.pipeline import compile_model, replace_steps
from compiler.schedule.fusion.optimal import STRATEGIES, Optimal
from compiler.schedule.residency.table import added
from compiler.schedule_ir.group import Group
from compiler.search.autotune import Autotuner, cycles_by_step, refitted
from compiler.search.symbolic_sizes import over_lengths
from compiler.symbolic.infer_from_samples import SymbolicModel
from simmodel.arch.base import OFF_CHIP
from simmodel.arch.record import Arch
from simmodel.program.program import Program
from simmodel.trace import Trace
from simmodel.verify import VerifyError, verify

SMALLER = (6, 4, 3, 2, 1)
"""Eighths of local memory that are tried where least memory is sought, as long as they do."""

_EVEN = 1.0
"""`short_inputs` of a way to compile that gives all cores work at any length where it can."""
JUDGED = ("latency", "throughput")
"""Objectives for which the cycles of a group alone say which of its schedules is best."""

Judge = Callable[[Program, Arch], Trace]
"""Runs a program on a machine."""


def _once(judge: Judge) -> Judge:
    """`judge`, which runs what is the same as a program that is still there only once: other passes
    often come to the same instructions, and a group alone to those of its network. Of inputs and
    outputs a run knows how long the host moves them."""
    runs: list[tuple[ReferenceType[Program], Arch, Trace]] = []
    parts = attrgetter("name", "cores", "tokens", "barriers", "origins", "registers")

    def run(program: Program, arch: Arch) -> Trace:
        def run_inputs(of: Any) -> tuple[Any, ...]:
            return (*parts(of), arch.host_cycles(of.port_bytes))

        runs[:] = [each for each in runs if each[0]() is not None]
        same = (
            t for known, on, t in runs if on is arch and run_inputs(known()) == run_inputs(program)
        )
        trace = next(same, None) or judge(program, arch)
        runs.append((ref(program), arch, trace))  # the other one may be gone by the next time
        return trace

    return run


@dataclass(frozen=True)
class Wanted:
    """What a program is wanted of, for and by."""

    model: onnx.ModelProto | ir.Model | SymbolicModel = field(repr=False)
    """An ONNX model, or what `prepared` made of one; or that for all lengths of some ranges."""
    arch: Arch
    """The machine that runs it."""
    options: CompileOptions
    """For the first program that is tried."""
    ways: tuple[Stages, ...] = ()
    """Passes for others, of `alternatives`."""
    objective: str = "latency"
    """A name of `OBJECTIVES`: what programs are compared by."""
    made_for: Arch | None = None
    """The machine to compile for, where that is another one."""
    decisions: Decisions | None = field(default=None, repr=False, compare=False)
    """Schedules that were chosen before."""


@dataclass(frozen=True)
class SimulatedProgram:
    """One of several programs that were simulated."""

    partition: str
    """The strategy that made its groups."""
    local: int
    """Bytes of local memory that it was compiled for."""
    cycles: int
    how: tuple[str, ...] = ()
    """What it has that others may not have, in words."""


@dataclass(frozen=True)
class Best:
    """The program that is wanted, and how it was chosen."""

    result: CompileResult
    options: CompileOptions
    """What it was compiled with."""
    arch: Arch
    """What it was compiled for: the machine that runs it, or one with less memory."""
    tried: tuple[SimulatedProgram, ...] = ()
    """Programs among which it was chosen by simulation, itself included."""
    trace: Trace | None = field(default=None, repr=False)
    """Its run, where that decided."""
    simulate_s: float = 0.0
    """Wall-clock seconds that its run took."""
    judged: bool = False
    """Whether the schedules of its groups are those that were quickest as simulated."""
    early: bool = False
    """Whether layers load their constants as a whole where that can begin in time."""
    same: tuple[Stages, ...] = ()
    """Other passes that give this program."""
    quick: tuple[tuple[Stages, int], ...] = ()
    """Other passes, and the cycles of the program that whoever asks for these alone gets."""

    @property
    def partition(self) -> str:
        """The strategy that made its groups, after what had to be given up."""
        search = self.result.search
        made = (self.options.stages if search is None else search.costs.stages).partition
        return next(name for name, strategy in STRATEGIES.items() if isinstance(made, strategy))

    @property
    def cycles(self) -> int:
        """Of its run."""
        assert self.trace is not None
        return self.trace.cycles


def best_program(wanted: Wanted, judge: Judge) -> Best:
    """Of all programs that are tried the best as `judge` runs them, verified.

    Raises CompilerError where there is none, with the reason of the first.
    """
    judge = _once(judge)
    if wanted.made_for is not None:
        return _lent(wanted, wanted.made_for, judge)
    if wanted.objective == "memory" and wanted.options.tree is None:
        return _frugal(wanted, judge)
    made = _promising(wanted)
    judged = (
        wanted.options.stages.judge.candidates > 0
        and wanted.objective in JUDGED
        and wanted.options.tree is None  # else the schedule is what is asked for
    )
    if len(made) == 1 and not judged and not _moves(made[0], wanted):
        verify(made[0].result.program, wanted.arch)
        return made[0]
    tried: list[SimulatedProgram] = []
    run = [_ran(each, wanted, judge, tried) for each in made]
    quick = tuple(
        (stages, each.cycles)
        for each in run if not _moves(each, wanted)
        for stages in (each.options.stages, *each.same) if not stages.judge.candidates
    )  # fmt: skip
    found = _least(run, wanted, judge)
    del made, run  # each program that is not taken takes as much memory as the one that is
    found = _unmoved_or(found, wanted, judge, tried)
    if judged:
        close = (1 + CLOSE) * found.cycles
        first = found = _tuned(found, wanted, judge, tried)
        counts = _fewer_cores(found, wanted)
        while counts:
            before, (count, *counts), work = found, counts, 0.0
            with suppress(CompilerError):
                found, work = _or_on_cores(count, close, found, wanted, judge, tried)
            if found is before:
                # Half of all, where the fewest are not quicker but leave work for that to pay.
                half = counts[-1:] if found is first else []
                counts = [n for n in half if work <= n * close]
    verify(found.result.program, wanted.arch)
    return replace(found, tried=tuple(tried), quick=quick)


def _tuned(made: Best, wanted: Wanted, judge: Judge, tried: list[SimulatedProgram]) -> Best:
    """The best of `made`, the same with other schedules of its groups, those with constants as a
    whole early and with those that wait in shared memory; what else ran is in `tried` then."""
    found = _least(_judged(made, wanted, judge, tried), wanted, judge)
    for early in early_versions(found):
        best = _least((found, _ran(early, wanted, judge, tried)), wanted, judge)
        if best is found and not _stages(early).fill.enabled:
            break
        found = best
    for version in (filled_version, apart_version):
        if (other := version(found)) is not None:
            found = _least((found, _ran(other, wanted, judge, tried)), wanted, judge)
    return found


BUSY = 0.75
"""Part of the time that engines of few cores can be hoped to work."""
CLOSE = 0.05
"""Part by which a program for fewer cores may be slower than that for all, both not tuned, for it
to be tuned; and for half of the cores to be tried as well, if they do its work in proportion."""
FEWER = 0.12
"""Part by which it may be estimated to be slower for it to be searched for, and emitted: those that
were quicker when run were estimated to take up to 10 % longer (one BERT layer on eight cores)."""


def _fewer_cores(made: Best, wanted: Wanted) -> list[int]:
    """How many cores could do all the work in the time of `made`, from the fewest to half of all:
    what cores hand on and each loads or computes for itself may cost more than there is work."""
    arch, trace = made.arch, made.trace
    assert trace is not None
    if not (wanted.ways and trace.cycles) or isinstance(wanted.model, SymbolicModel):
        return []
    busy: Counter[int] = Counter()
    for engine in trace.engines:
        if engine.core is not None and engine.engine not in arch.copy_:
            busy[engine.core] = max(busy[engine.core], engine.busy)
    demand, done, far = made.result.program.demand, trace.macs, arch.constants
    once = min(1, demand.macs / done) if demand and done else 1  # halos are computed several times
    rates = (copy_rate(arch, e, far) for e in arch.copy_.values() if far in (*e.from_, *e.to))
    work = max(busy.total() * once, trace.far_loads.get(far, 0.0) / sum(rates))
    half, fewest = len(+busy) // 2, max(1, math.ceil(work / (BUSY * trace.cycles)))
    doubled = (fewest << n for n in range(half.bit_length()))
    return [*(n for n in doubled if n < half), half] if 0 < work <= half * trace.cycles else []


def _or_on_cores(
    count: int, close: float, best: Best, wanted: Wanted, judge: Judge,
    tried: list[SimulatedProgram],
) -> tuple[Best, float]:  # fmt: skip
    """`best`, or where that is quicker the program for up to `count` cores, compiled in one way and
    tuned; unless that of a quick search, or it untuned, takes longer than `close`, or is estimated
    to take too long. And the cycles of all these cores, untuned. What ran is in `tried` then."""
    slower = _slower_on(count, best)
    if slower > 1 + FEWER:
        return best, count * slower * close
    least, work = _estimated(best.result.steps), 0.0
    observe = partial(_refuse_above, (1 + FEWER) * least)
    for stages in (stages_for(0, wanted.options.stages), wanted.options.stages):
        options = replace(wanted.options, stages=_on_cores(stages, count))
        try:
            made = _compiled(wanted, options, wanted.arch, observe, best.result)
        except _Hopeless as why:
            return best, work or count * why.args[0] / least * close
        fewer = _unmoved_or(_ran(made, wanted, judge, tried), wanted, judge, tried)
        work = count * fewer.cycles
        if fewer.cycles > close:
            return best, work
    return _least((best, _tuned(fewer, wanted, judge, tried)), wanted, judge), work


def _on_cores(stages: Stages, count: int) -> Stages:
    return replace(stages, tile=replace(stages.tile, cores=count))


def _slower_on(count: int, best: Best) -> float:
    """Times that the groups of `best` are estimated to take on up to `count` cores, by a quick
    search and with nothing on chip between them: a partition of its own for these cores was never
    estimated to take 8 % less."""
    search = best.result.search
    assert search is not None
    made = (s.plan.schedule.group for s in best.result.steps if isinstance(s, PlacedGroup))
    groups = [Group(group.layers, group.results) for group in made]
    fewer = search.costs.with_stages(_on_cores(stages_for(0, search.costs.stages), count))
    apart = list[Group]()
    for group in groups:
        alone = [Group((layer,), (layer.result.name,)) for layer in group.layers]
        apart += alone if math.isinf(fewer.price(group)) else [group]
    return added(apart, fewer) / added(groups, search.costs)


def _unmoved_or(made: Best, wanted: Wanted, judge: Judge, tried: list[SimulatedProgram]) -> Best:
    """`made`, or where that is quicker the same with no buffer moved, which is in `tried` then."""
    if not _moves(made, wanted) or (blind := _unmoved(made)) is None:
        return made
    return _least((made, _ran(blind, wanted, judge, tried)), wanted, judge)


def _moves(made: Best, wanted: Wanted) -> bool:
    """Whether buffers of `made` may have been moved between banks, which is not what was asked
    for, and its cycles say whether that pays."""
    asked = wanted.objective not in JUDGED or wanted.options.tree is not None
    return not asked and made.options.stages.alloc.moves(made.arch)


def _unmoved(made: Best) -> Best | None:
    """`made` with all its groups placed without regard to conflicts in banks; None where that is
    the same, or does not fit."""
    blind = replace(made.options.stages.alloc, conflicts="blind")

    def fit(step: PlacedGroup, before: Fit | None) -> Fit | None:
        places = blind.apply(step.plan, made.arch, before)
        return None if places == step.places else (step.plan, places)

    with suppress(DoesNotFit):
        steps = refitted(made.result.steps, fit)
        if any(new is not old for new, old in zip(steps, made.result.steps, strict=True)):
            return replace(made, result=_with_steps(made, steps, blind))
    return None


def _with_steps(made: Best, steps: tuple[Step, ...], alloc: PlaceBuffers) -> CompileResult:
    """What `made` computes by other steps, with one plan of loads as what is compiled has."""
    if not made.result.program.registers:
        steps = with_early_loads(steps, made.arch, alloc)
    return replace_steps(made.result, steps)


WORTH = 0.03
"""Part of the time in which engines have to wait for data, and the memory of constants has to rest,
for a plan of loads or for constants that wait in shared memory."""


def early_versions(made: Best) -> Iterator[Best]:
    """`made` with constants that are loaded as a whole early, where that may save time, and wait in
    shared memory if they can, as it may pay only then; not of programs for several lengths, in
    which lives depend on them."""
    result, search = made.result, made.result.search
    assert search is not None
    if result.program.registers or not _waits_for_loads(made):
        return
    alloc, tried = made.options.stages.alloc, [result.steps]
    for steps in early_loads(result.steps, made.arch, alloc, search.costs.place):
        if steps in tried:
            continue
        tried.append(steps)
        early = replace(made, result=replace(result, steps=steps), early=True)
        with suppress(DoesNotFit):  # more tokens at once than there are
            yield filled_version(early) or _emitted(early)


def _emitted(made: Best) -> Best:
    """With the program of its steps."""
    result = made.result
    return replace(made, result=replace(replace_steps(result, result.steps), trials=result.trials))


def _waits_for_loads(made: Best) -> bool:
    """Whether its engines wait for data so long, and the memory of constants rests so long."""
    trace, far = made.trace, made.arch.constants
    assert trace is not None
    computing = (e.idle["data"] for e in trace.engines if e.engine not in made.arch.copy_)
    rests = trace.cycles - trace.far_loads.get(far, 0.0) / made.arch.far_rates[far]
    return min(max(computing, default=0), rests) >= WORTH * trace.cycles


def filled_version(made: Best) -> Best | None:
    """`made` with constants that wait in shared memory, where that may save time; None where it
    has none, or nothing is to come of it."""
    result, search = made.result, made.result.search
    assert search is not None
    stages = search.costs.stages
    able = filling_engine(made.arch) is not None and not result.program.registers
    if stages.fill.enabled or not able or not _waits_for_loads(made):
        return None
    return _with_stages(made, replace(stages, fill=replace(stages.fill, enabled=True)))


TURNS = 32
"""Turns of a loop that become steps of their own."""


def apart_version(made: Best) -> Best | None:
    """`made` with the turns of loops that load constants as steps of their own, where that may save
    time; None where nothing is to come of it."""
    result, search = made.result, made.result.search
    assert search is not None
    stages = search.costs.stages
    if stages.split.turns or result.program.registers or not _waits_for_loads(made):
        return None
    return _with_stages(made, replace(stages, split=replace(stages.split, turns=TURNS)))


def _with_stages(made: Best, stages: Stages) -> Best | None:
    """`made` emitted in another way; None where that takes too many tokens."""
    result, search = made.result, made.result.search
    assert search is not None
    other = replace(result, search=replace(search, costs=search.costs.with_stages(stages)))
    with suppress(DoesNotFit):
        return _emitted(replace(made, result=other))
    return None


def _least(run: Sequence[Best], wanted: Wanted, judge: Judge) -> Best:
    """Of programs that have run the best, for a range of lengths over all of it."""
    if wanted.objective not in JUDGED:
        return min(run, key=partial(_score, wanted))
    return over_lengths(
        run, partial(_score, wanted), lambda each: each.result.program,
        lambda program: judge(program, wanted.arch).cycles, wanted.options.stages.tile.short_inputs,
    )  # fmt: skip


class _Hopeless(Exception):
    """A way to compile whose estimate, in cycles, is too far above the best."""


class _MadeBefore(Exception):
    """A way to compile that makes a program that was made before, by its number."""


def _promising(wanted: Wanted) -> list[Best]:
    """Programs of all ways to compile, but of those that are estimated too far above the others.

    Raises CompilerError where there is none, with the reason of the first.
    """
    made: list[Best] = []
    refusals: list[CompilerError] = []
    highest = math.inf
    like: CompileResult | None = None  # ways on one machine share layers, and what groups take
    trees: list[Tree] = []

    def observe(stage: str, steps: Any) -> None:
        _refuse_above(highest, stage, steps)
        if stage == "layout":
            _refuse_known(_tree(steps), trees)

    for options in _option_variants(wanted):
        try:
            found = _compiled(wanted, options, wanted.arch, observe, like)
            _refuse_known(found.result.program.cores, [each.result.program.cores for each in made])
        except CompilerError as why:
            refusals.append(why)
            continue
        except _Hopeless:
            continue
        except _MadeBefore as first:
            number = first.args[0]
            made[number] = replace(made[number], same=(*made[number].same, options.stages))
            continue
        made.append(found)
        like = found.result
        trees.append(_tree(found.result.steps))
        if wanted.objective in JUDGED:
            within = 1 + wanted.options.stages.judge.within
            highest = min(highest, within * _estimated(found.result.steps))
    if not made:
        raise refusals[0]
    return made


def _refuse_above(highest: float, stage: str, steps: Any) -> None:
    """Raise _Hopeless where the schedule that is observed is estimated to take longer."""
    if stage == "layout" and (cycles := _estimated(steps)) > highest:
        raise _Hopeless(cycles)


def _refuse_known(made: object, before: list[Any]) -> None:
    if made in before:
        raise _MadeBefore(before.index(made))


def _estimated(steps: Iterable[Step]) -> float:
    """Cycles of all groups, one after another."""
    return sum(step.plan.schedule.estimate.total for step in steps if isinstance(step, PlacedGroup))


def _tree(steps: Sequence[Step]) -> Tree:
    """All that decides which program is made of `steps`."""
    return extract_tree("", steps, addresses=True)


def _judged(
    made: Best, wanted: Wanted, judge: Judge, programs: list[SimulatedProgram]
) -> list[Best]:
    """`made`, and the same with the schedules of its groups that are quickest as `judge` runs them,
    where these are others than its own and go together, which is in `programs` then."""
    search = made.result.search
    assert search is not None and made.trace is not None
    options, run = wanted.options.stages.judge, lambda program: judge(program, made.arch).cycles
    trials = Autotuner(search.graph, search.costs, run, options)
    steps = trials.tune(made.result.steps, cycles_by_step(made.trace))
    tried = trials.of(steps)
    found = [replace(made, result=replace(made.result, trials=tried))]
    if all(new is old for new, old in zip(steps, made.result.steps, strict=True)):
        return found
    try:
        result = replace(_with_steps(made, steps, made.options.stages.alloc), trials=tried)
    except DoesNotFit:  # more tokens at once than there are
        return found
    return [*found, _ran(replace(made, result=result, judged=True), wanted, judge, programs)]


def _lent(wanted: Wanted, lender: Arch, judge: Judge) -> Best:
    """The program that `lender` gets, run on the machine that it is wanted for."""
    found = best_program(replace(wanted, arch=lender, made_for=None), judge)
    try:
        verify(found.result.program, wanted.arch)
    except VerifyError as broken:
        said = f"what is made for {lender.name} is not possible on {wanted.arch.name}: {broken}"
        raise UnsupportedModel(said) from broken
    return _simulate(found, wanted, judge)


def _option_variants(wanted: Wanted) -> Iterator[CompileOptions]:
    yield wanted.options
    ways = wanted.ways
    if ways and isinstance(wanted.model, SymbolicModel):
        stages = wanted.options.stages
        ways = (*ways, replace(stages, tile=replace(stages.tile, short_inputs=_EVEN)))
    yield from (replace(wanted.options, stages=stages) for stages in ways)


def _frugal(wanted: Wanted, judge: Judge) -> Best:
    """The program that takes least local memory at no more than `judge.patience` times the
    cycles of the first."""
    found = _simulate(_compiled(wanted, wanted.options, wanted.arch), wanted, judge)
    tried = [_simulated_program(found, wanted)]
    allowed = wanted.options.stages.judge.patience * found.cycles
    for eighths in SMALLER:
        try:
            smaller = _compiled(wanted, wanted.options, _with_less(wanted.arch, eighths))
        except CompilerError:
            break
        smaller = _ran(smaller, wanted, judge, tried)
        if smaller.cycles > allowed:
            break
        found = smaller
    verify(found.result.program, wanted.arch)
    return replace(found, tried=tuple(tried))


def _with_less(arch: Arch, eighths: int) -> Arch:
    """`arch` with a part of its local memory."""
    local = arch.memories.local
    size = local.size * eighths // 8 // local.banks * local.banks
    memories = arch.memories.model_copy(update={"local": local.model_copy(update={"size": size})})
    return arch.model_copy(update={"memories": memories})


def _compiled(
    wanted: Wanted, options: CompileOptions, arch: Arch, observe: Observer = unobserved,
    like: CompileResult | None = None,
) -> Best:  # fmt: skip
    """Compiled for `arch`, which may have less than the machine that runs it; CompilerError where
    there is no program."""
    result = compile_model(wanted.model, arch, options, observe, wanted.decisions, like)
    return Best(result, options, arch)


def _simulate(made: Best, wanted: Wanted, judge: Judge) -> Best:
    """With its run on the machine that it is wanted for."""
    started = time.perf_counter()
    trace = judge(made.result.program, wanted.arch)
    return replace(made, trace=trace, simulate_s=round(time.perf_counter() - started, 3))


def _ran(made: Best, wanted: Wanted, judge: Judge, tried: list[SimulatedProgram]) -> Best:
    """The same, of which `tried` has a row then."""
    found = _simulate(made, wanted, judge)
    tried.append(_simulated_program(found, wanted))
    return found


def _simulated_program(made: Best, wanted: Wanted) -> SimulatedProgram:
    stages, most = made.options.stages, wanted.arch.core_count
    cores = min(stages.tile.cores or most, made.arch.core_count)
    partition = stages.partition
    words = {
        f"on {cores} of {most} cores": cores < most,
        "layers alone as well": isinstance(partition, Optimal) and partition.alone,
        "groups as simulated": made.judged,
        "constants as a whole early": made.early,
        "constants wait in shared memory": _stages(made).fill.enabled,
        "turns of loads apart": _stages(made).split.turns > 0,
    }
    how = tuple(word for word, meant in words.items() if meant)
    return SimulatedProgram(made.partition, made.arch.memories.local.size, made.cycles, how)


def _stages(made: Best) -> Stages:
    """How its schedule became a program."""
    search = made.result.search
    return made.options.stages if search is None else search.costs.stages


def _score(wanted: Wanted, made: Best) -> float:
    """What the objective says of a program that has run."""
    if wanted.objective == "energy-proxy":
        assert made.trace is not None
        return sum(n for name, n in made.trace.traffic.items() if name.startswith(OFF_CHIP))
    return made.cycles

"""Running studies: points that are stored are taken, the others are run, and none is ever lost.

The one idea: inputs are checked completely before anything runs, each point is stored as soon as
it is finished, and a later study with the same folder takes stored points instead of running them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from archgen.extensions import foreign
from archgen.outcomes.estimated import COSTS, OFF, SelectedPoint
from archgen.outcomes.fronts import covering
from archgen.outcomes.points import FIELD, Outcome, Point, StudyMetadata
from archgen.process.cache import cache_dir
from archgen.process.files import tidy
from archgen.report.tried_levers import POINTS
from archgen.schema.variants import Variant
from archgen.studies.design import Design, StudyError, Workload, designed, points
from archgen.studies.executors import cluster, is_cluster
from archgen.studies.options import (
    Named,
    Running,
    Several,
    StudyFields,
    StudyOptions,
    study_records,
)
from archgen.studies.results import Study, about, expected, write_manifest
from archgen.studies.run import OUTLOOK, to_estimate
from archgen.studies.schedule_transfer import (
    ScheduleTransfer,
    reported_outcomes,
    transfer_schedules,
)
from archgen.studies.store import Store, StoreError, writing
from archgen.studies.workers import InProcess, LocalProcesses, Tools, Workers, can_guard, run_points
from archgen.toolchain import STANDARD, Toolchain
from simmodel.arch.record import Arch

LOCAL, HERE = "local", "here"
"""Executors: worker processes of this machine, and this process."""
Observer = Callable[[Outcome, int, int], None]
"""Called after each point with its outcome, how many are finished, and of how many."""


def study(
    archs: Several[Named | Arch | Variant],
    models: Several[Named | Workload],
    batches: Several[int] | None = None,
    dtype: str | None = None,
    *,
    options: StudyOptions = StudyOptions(),
    running: Running = Running(),
    observe: Observer | None = None,
    tools: Toolchain = STANDARD,
    **fields: Unpack[StudyFields],
) -> Study:
    """Compile, check and simulate every model at every batch on every architecture.

    Args:
        archs: architecture files, patterns, names or loaded `Arch`; one or a list, as all below.
        models: zoo names (`resnet50`, `resnet50:image=160`) or paths of ONNX files.
        batches: samples in one inference; default: what each model's file fixes, else 1.
        dtype: element type; default: the first of each architecture.
        options: schedules to compare, checks, extensions, sizes and roles of inputs.
        running: worker processes, the folder for results, bounds, plots and traces.
        observe: called after each point.
        tools: compiler and machine to use.
        fields: fields of `StudyOptions` and `Running` by name; they overrule the records:
            `study("archs/*.yaml", "resnet50", effort=0, out="results", jobs=4)`.

    Raises:
        StudyError: with every mistake in these arguments at once, before anything runs.
        TypeError: a keyword that is a field of neither record.
    """
    options, running = study_records(options, running, fields)
    design = designed(archs, models, batches, dtype, options)
    return run_study(design, running, observe, tools)


def run_study(
    design: Design,
    running: Running = Running(),
    observe: Observer | None = None,
    tools: Toolchain = STANDARD,
    among: Collection[str] | None = None,
) -> Study:
    """The study of `design`, or of its points of the keys `among`, in their order; what is finished
    is saved also when it is interrupted.

    Raises:
        StudyError: with every mistake in the design, before anything runs.
        StoreError: results cannot be written; what is finished is kept.
    """
    design = replace(design, timeout=running.timeout or design.timeout)
    wanted = _traced(points(design), among, running)
    said = about(design, wanted, running.command)
    # Changes of machines are tried as far as a study of so many points is to.
    anew = tools.anew and len(wanted) <= POINTS
    tools = replace(tools, tries=tools.tries and running.tries, anew=anew)
    finished: dict[str, Outcome] = {}
    loans: dict[ScheduleTransfer, Outcome] = {}

    def so_far() -> Study:
        taken = reported_outcomes(finished, loans)
        done = tuple(taken[point.key] for point in wanted if point.key in taken)
        return Study(done, design.archs, said, tuple(loans))

    try:
        with _point_runner(design, running, tools, len(wanted), observe) as run:
            _say(running, said, design, wanted)
            for outcome in run(wanted):
                finished[outcome.key] = outcome
            if not design.isolated:
                loans |= transfer_schedules(wanted, finished, run)
        if loans:
            _say(running, said, design, wanted, tuple(loans))
        result = so_far()
        _save(result, running)
    except StoreError as mistake:
        kept = f"{len(finished)} of {len(wanted)} points are finished and kept"
        raise StoreError(f"{mistake}; {kept}; run again to go on") from mistake
    except BaseException:
        with suppress(StoreError):  # what interrupted the study is what has to be told
            _save(so_far(), running)
        raise
    return result


@contextmanager
def _point_runner(
    design: Design, running: Running, tools: Tools, count: int, observe: Observer | None
) -> Iterator[Callable[[Sequence[Point]], Iterator[Outcome]]]:
    """Within, runs at most `count` points of `design`, and told to who watches."""
    store = store_in(running.out)
    asked: set[str] = set()

    def run(points: Sequence[Point]) -> Iterator[Outcome]:
        before = len(asked)
        asked.update(point.key for point in points)
        outcomes = stored_or_run(points, workers, store, running, design.timeout)
        for number, outcome in enumerate(outcomes, before + 1):
            yield outcome  # kept first: an observer may be where a study is interrupted
            if observe is not None:
                observe(outcome, number, len(asked))

    try:
        if isinstance(tools, Toolchain):
            tools = remembering(tools, store, running)
        with closing(workers_for(running, design, tools, count)) as workers:
            yield run
    finally:
        if store is not None:
            store.close()


def _traced(
    points: Sequence[Point], among: Collection[str] | None, running: Running
) -> list[Point]:
    chosen = (point for point in points if among is None or point.key in among)
    return [replace(point, trace=running.trace) for point in chosen]


def _say(
    running: Running,
    said: StudyMetadata,
    design: Design,
    wanted: Sequence[Point],
    loans: Sequence[ScheduleTransfer] = (),
) -> None:
    """What the study consists of, where there is a folder."""
    if running.out is not None:
        with writing(Path(running.out)):
            write_manifest(Path(running.out), said, design.archs, wanted, loans)


def _save(result: Study, running: Running) -> None:
    """Frames and plots of `result`, where there are results and a folder."""
    if running.out is not None and result.outcomes:
        with writing(Path(running.out)):
            result.save(running.out, running.plots)


def store_in(out: Named | None) -> Store | None:
    """The store in `out`; that it cannot be written is found out before the first point is run."""
    if out is None:
        return None
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as mistake:
        raise StudyError([f"{folder}: results cannot be written: {mistake.strerror}"]) from None
    if not os.access(folder, os.W_OK):
        raise StudyError([f"{folder}: results cannot be written: no permission"])
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
    except OSError as mistake:
        said = f"{cache_dir()}: the cache cannot be written ($ARCHGEN_CACHE): {mistake.strerror}"
        raise StudyError([said]) from None
    store = Store(folder)
    for place in (folder, store.folder, store.decisions, cache_dir()):
        tidy(place)
    return store


def workers_for(running: Running, design: Design, tools: Tools, count: int) -> Workers:
    """Who runs the points of `design`, of which there are at most `count`; StudyError where nobody
    can be reached."""
    if is_cluster(running.executor):
        _refuse_foreign(running, count)
        return cluster(running.executor, tools)
    if running.executor not in (LOCAL, HERE):
        known = "local, here, dask:local or dask:tcp://host:port"
        raise StudyError([f"executor {running.executor!r}: must be {known}"])
    jobs = max(1, min(running.jobs, count))
    _refuse_foreign(running, jobs)
    bounded = bool(running.timeout or design.timeout or running.memory)
    if running.executor == HERE or (jobs == 1 and not bounded and not can_guard()):
        return InProcess(tools)
    return LocalProcesses(tools, jobs, running.memory)


def remembering(tools: Toolchain, store: Store | None, running: Running) -> Toolchain:
    """`tools` whose compiler remembers what it decides in the store."""
    if store is None or running.fresh:
        return tools
    return replace(tools, decisions=store.decisions)


def _refuse_foreign(running: Running, jobs: int) -> None:
    """Raises StudyError where the study's own process has registered what other processes, or the
    keys of stored results, do not know."""
    known = foreign()
    # A single worker is a fork of this process, which has what was registered here.
    alone = jobs == 1 and (running.executor == HERE or can_guard())
    if known and not (alone and running.out is None):
        raise StudyError(
            [
                f"{', '.join(known)}: registered in this process alone, which neither other "
                "processes (jobs) nor stored results (out) can tell; put what registers it into a "
                "file and give that (extensions=[FILE], --extension FILE)"
            ]
        )


def stored_or_run(
    wanted: Sequence[Point],
    workers: Workers,
    store: Store | None,
    running: Running,
    timeout: float | None,
) -> Iterator[Outcome]:
    """Stored points first, then the others as they are finished."""
    missing = []
    for point in wanted:
        found = store.finished(point) if store and not running.fresh else None
        if found is not None:
            yield found
        else:
            missing.append(point)
    limit = running.timeout or timeout
    yield from run_points(missing, workers, store, limit, running.fresh)


# Studies by estimates: every point in a fraction of a second, and the best of them run in full. An
# estimate says which machines are worth a run, never which one is best; so it is marked as such
# wherever it stands, and a few, the fastest and those along the front, are replaced by what was
# compiled, executed, checked and simulated.

_OF_MACHINE = ("arch", "family")
"""Columns that say which machine a point is about; where no element type is asked for, that is one
of them."""


def estimate(
    archs: Several[Named | Arch | Variant],
    models: Several[Named | Workload],
    batches: Several[int] | None = None,
    dtype: str | None = None,
    *,
    best: int = 0,
    options: StudyOptions = StudyOptions(),
    running: Running = Running(),
    observe: Observer | None = None,
    tools: Toolchain = STANDARD,
    **fields: Unpack[StudyFields],
) -> Study:
    """What every model at every batch should take on every architecture, layer by layer and without
    a program: milliseconds for each point of a sweep. Rows have the status `estimated`.

    `best` points of each network are run in full, with `tools`: the one of the least estimate, then
    points along the front of estimated latency and area. Other arguments and errors are those of
    `archgen.study`: `estimate("archs/*.yaml", "resnet50", best=3, out="quick")`.
    """
    options, running = study_records(options, running, fields)
    design = designed(archs, models, batches, dtype, options)
    return run_estimated(design, running, observe, best, tools)


def run_estimated(
    design: Design,
    running: Running = Running(),
    observe: Observer | None = None,
    best: int = 0,
    tools: Toolchain = STANDARD,
) -> Study:
    """The study of `design` by the prices of layers alone; of each network `best` points are run in
    full and stand first: the fastest (of equals the smallest, then by name), and others that cover
    the front of latency and area.

    Raises StudyError with every mistake in the design, before anything runs.
    """
    wanted = points(design)
    guesses = {point.key: to_estimate(point, OUTLOOK) for point in wanted}
    with _point_runner(design, running, OUTLOOK, len(wanted), observe) as estimated:
        guessed = {outcome.key: outcome for outcome in estimated(list(guesses.values()))}
    machine = _OF_MACHINE if design.dtypes else (*_OF_MACHINE, "dtype")
    expectations = {key: guessed[guess.key] for key, guess in guesses.items()}
    chosen = _points_to_run(wanted, expectations, best, machine)
    run = [point for point in wanted if point.key in chosen]
    rest = [guesses[point.key] for point in wanted if point.key not in chosen]
    full, loans = dict[str, Outcome](), tuple[ScheduleTransfer, ...]()
    if run:
        found = run_study(
            design, replace(running, plots=False, levers=running.tries), observe, tools, chosen
        )
        # An outcome by a borrowed schedule has a key of its own, so they go by their order.
        full = dict(zip((point.key for point in run), found.outcomes, strict=True))
        loans = found.loans
    outcomes = (*expected(full, chosen).values(), *(guessed[guess.key] for guess in rest))
    said = about(design, wanted, running.command)
    result = Study(outcomes, design.archs, said, loans)
    if running.out is not None:
        folder = Path(running.out)
        with writing(folder):
            write_manifest(folder, said, design.archs, [*run, *rest], loans, chosen)
            result.save(folder, running.plots)
    return result


def _points_to_run(
    wanted: Sequence[Point], guessed: Mapping[str, Outcome], count: int, machine: Sequence[str]
) -> dict[str, SelectedPoint]:
    """By key the points to run: `count` for each network in each of its sizes and ways to compile.
    Columns of `machine` say which machine a point is about."""
    by_case: dict[tuple[object, ...], list[tuple[Point, list[float]]]] = {}
    own = {point.key: point for point in wanted}
    for point in sorted(own.values(), key=lambda point: point.arch.name):
        row = guessed[point.key].row
        costs = [value for name in COSTS if isinstance(value := row.get(name), float)]
        if len(costs) == len(COSTS):
            case = tuple(
                v
                for name, v in point.identity().items()
                if name not in machine and not name.startswith(FIELD)
            )
            by_case.setdefault(case, []).append((point, costs))
    return {
        found[index][0].key: SelectedPoint(found[index][1][0], why)
        for found in by_case.values()
        for index, why in covering([costs for _, costs in found], count, OFF)
    }

"""Running studies: points that are stored are taken, the others are run, and none is ever lost.

The one idea: inputs are checked completely before anything runs, each point is stored as soon as
it is finished, and a later study with the same folder takes stored points instead of running them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from archgen.extensions import unowned
from archgen.outcomes.estimated import CHOSEN, COSTS, ENERGY_GUESS, GUESS, OFF
from archgen.outcomes.fronts import representatives
from archgen.outcomes.points import FIELD, Outcome, Point, Row
from archgen.process.files import cache_dir, make_writable, remove_abandoned
from archgen.report.levers import POINTS
from archgen.schema.variants import Variant
from archgen.studies import schedule_transfer
from archgen.studies.design import Design, StudyError, Workload, designed, points
from archgen.studies.options import Named, Running, Several, StudyOptions, with_fields
from archgen.studies.results import Study, study_metadata, with_estimates, write_study
from archgen.studies.run import OUTLOOK, to_estimate
from archgen.studies.schedule_transfer import ScheduleTransfer, reported_outcomes
from archgen.studies.store import Store, StoreError
from archgen.studies.workers import InProcess, LocalProcesses, Tools, Workers, can_guard, run_points
from archgen.toolchain import STANDARD, Toolchain
from simmodel.arch.record import Arch

LOCAL, HERE = "local", "here"
"""Executors: worker processes of this machine, and this process."""
Observer = Callable[[Outcome, int, int], None]
"""Called after each point with its outcome, how many are finished, and of how many."""


def study(
    archs: Several[Named | Arch | Variant], models: Several[Named | Workload],
    batches: Several[int] | None = None, dtype: Several[str] | None = None, *,
    options: StudyOptions = StudyOptions(), running: Running = Running(),
    observe: Observer | None = None, tools: Toolchain = STANDARD, **fields: Any,
) -> Study:  # fmt: skip
    """Compile, check and simulate every model at every batch on every architecture.

    Args:
        archs: architecture files, patterns, names or loaded `Arch`; one or a list, as all below.
        models: zoo names (`resnet50`, `resnet50:image=160`) or paths of ONNX files.
        batches: samples in one inference; default: what each model's file fixes, else 1.
        dtype: element types; default: the first of each architecture.
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
    options, running = with_fields(fields, options, running)
    return run_study(designed(archs, models, batches, dtype, options), running, observe, tools)


def run_study(
    design: Design, running: Running = Running(), observe: Observer | None = None,
    tools: Toolchain = STANDARD, among: Collection[str] | None = None,
) -> Study:  # fmt: skip
    """The study of `design`, or of its points of the keys `among`, in their order; what is finished
    is saved also when it is interrupted.

    Raises:
        StudyError: with every mistake in the design, before anything runs.
        StoreError: results cannot be written; what is finished is kept.
    """
    design = replace(design, timeout=running.timeout or design.timeout)
    wanted = [point for point in points(design) if among is None or point.key in among]
    said = study_metadata(design, wanted, running.command)
    # Changes of machines are tried as far as a study of so many points is to.
    tries, anew = tools.tries and running.tries, tools.anew and len(wanted) <= POINTS
    tools = replace(tools, tries=tries, anew=anew, alone=len(wanted) == 1)
    finished: dict[str, Outcome] = {}
    loans: dict[ScheduleTransfer, Outcome] = {}

    def saved() -> Study:
        taken = reported_outcomes(finished, loans)
        done = tuple(taken[point.key] for point in wanted if point.key in taken)
        result = Study(done, design.archs, said, tuple(loans))
        if running.out is not None:
            write_study(result, Path(running.out), wanted, plots=running.plots)
        return result

    try:
        with closing(PointRunner(design, running, tools, len(wanted), observe)) as run:
            saved()  # before the first point is run
            for outcome in run(wanted):
                finished[outcome.key] = outcome
            if not design.isolated:
                loans |= schedule_transfer.transfer_schedules(wanted, finished, run)
        return saved()
    except StoreError as mistake:
        kept = f"{len(finished)} of {len(wanted)} points are finished and kept"
        raise StoreError(f"{mistake}; {kept}; run again to go on") from mistake
    except BaseException:
        with suppress(StoreError):  # what interrupted the study is what has to be told
            if finished:
                saved()
        raise


class PointRunner:
    """Runs points of one design, stored ones first, and tells who watches."""

    def __init__(
        self, design: Design, running: Running, tools: Tools, count: int,
        observe: Observer | None = None,
    ) -> None:  # fmt: skip
        """`count`: the most points that there may be. Raises StudyError where results cannot be
        written, or nobody can run points."""
        self.store = store_in(running.out)
        """Where points are stored, unless nowhere."""
        self._running, self._timeout = running, running.timeout or design.timeout
        self._observe, self._traced = observe, running.trace and isinstance(tools, Toolchain)
        self._asked: set[str] = set()
        self._done = 0
        if isinstance(tools, Toolchain) and self.store is not None and not running.fresh:
            tools = replace(tools, decisions=self.store.decisions)
        bounded = bool(self._timeout or running.memory)
        self._workers = _workers_for(running, bounded, tools, count)

    def __call__(self, points: Iterable[Point]) -> Iterator[Outcome]:
        """What becomes of points, in the order in which they are finished."""
        wanted = [replace(point, trace=self._traced) for point in points]
        self._asked.update(point.key for point in wanted)
        for outcome in self._outcomes(wanted):
            yield outcome  # kept first: an observer may be where a study is interrupted
            self._done += 1
            if self._observe is not None:
                self._observe(outcome, self._done, len(self._asked))

    def _outcomes(self, wanted: Iterable[Point]) -> Iterator[Outcome]:
        store, fresh, missing = self.store, self._running.fresh, []
        for point in wanted:
            found = store.finished(point) if store and not fresh else None
            if found is not None:
                yield found
            else:
                missing.append(point)
        yield from run_points(missing, self._workers, store, self._timeout, fresh)

    def close(self) -> None:
        """End who runs points."""
        self._workers.close()
        if self.store is not None:
            self.store.close()


def store_in(out: Named | None) -> Store | None:
    """The store in `out`; that it cannot be written is found out before the first point is run."""
    if out is None:
        return None
    folder = Path(out)
    for place, what in (folder, "results"), (cache_dir(), "the cache ($ARCHGEN_CACHE)"):
        try:
            make_writable(place)
        except OSError as mistake:
            said = f"{place}: {what} cannot be written: {mistake.strerror}"
            raise StudyError([said]) from None
    store = Store(folder)
    for place in (folder, store.folder, store.decisions, cache_dir()):
        remove_abandoned(place)
    return store


def _workers_for(running: Running, bounded: bool, tools: Tools, count: int) -> Workers:
    """Who runs at most `count` points, which may be `bounded`."""
    executor, jobs = running.executor, max(1, min(running.jobs, count))
    if isinstance(executor, str) and executor not in (LOCAL, HERE):
        known = "local or here; in Python also an executor (docs/studies.md)"
        raise StudyError([f"executor {executor!r}: must be {known}"])
    _refuse_foreign(running, jobs)
    if isinstance(executor, Executor):
        return Workers(executor, tools, jobs)
    if executor == HERE or (jobs == 1 and not bounded and not can_guard()):
        return InProcess(tools)
    return LocalProcesses(tools, jobs, running.memory)


def _refuse_foreign(running: Running, jobs: int) -> None:
    """Raises StudyError where the study's own process has registered what other processes, or the
    keys of stored results, do not know."""
    known = unowned()
    # A single worker is a fork of this process, which has what was registered here.
    alone = running.executor == HERE or (running.executor == LOCAL and can_guard())
    if known and not (jobs == 1 and alone and running.out is None):
        raise StudyError(
            [
                f"{', '.join(known)}: registered in this process alone, which neither other "
                "processes (jobs) nor stored results (out) can tell; put what registers it into a "
                "file and give that (extensions=[FILE], --extension FILE)"
            ]
        )


# Studies by estimates: every point in a fraction of a second, and the best of them run in full. An
# estimate says which machines are worth a run, never which one is best; so it is marked as such
# wherever it stands, and a few, the fastest and those along the front, are replaced by what was
# compiled, executed, checked and simulated.

_OF_MACHINE = ("arch", "family")
"""Columns that say which machine a point is about; where no element type is asked for, that is one
of them."""


def estimate(
    archs: Several[Named | Arch | Variant], models: Several[Named | Workload],
    batches: Several[int] | None = None, dtype: Several[str] | None = None, *, best: int = 0,
    options: StudyOptions = StudyOptions(), running: Running = Running(),
    observe: Observer | None = None, tools: Toolchain = STANDARD, **fields: Any,
) -> Study:  # fmt: skip
    """What every model at every batch should take on every architecture, layer by layer and without
    a program: milliseconds for each point of a sweep. Rows have the status `estimated`.

    `best` points of each network are run in full, with `tools`: the one of the least estimate, then
    points along the front of estimated latency and area. Other arguments and errors are those of
    `archgen.study`: `estimate("archs/*.yaml", "resnet50", best=3, out="quick")`.
    """
    options, running = with_fields(fields, options, running)
    design = designed(archs, models, batches, dtype, options)
    return run_estimated(design, running, observe, best, tools)


def run_estimated(
    design: Design, running: Running = Running(), observe: Observer | None = None,
    best: int = 0, tools: Toolchain = STANDARD,
) -> Study:  # fmt: skip
    """The study of `design` by the prices of layers alone; of each network `best` points are run in
    full and stand first: the fastest (of equals the smallest, then by name), and others that cover
    the front of latency and area.

    Raises StudyError with every mistake in the design, before anything runs.
    """
    wanted = points(design)
    guesses = {point.key: to_estimate(point, OUTLOOK) for point in wanted}
    with closing(PointRunner(design, running, OUTLOOK, len(wanted), observe)) as estimated:
        guessed = {outcome.key: outcome for outcome in estimated(guesses.values())}
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
    outcomes = (*with_estimates(full, chosen).values(), *(guessed[guess.key] for guess in rest))
    result = Study(outcomes, design.archs, study_metadata(design, wanted, running.command), loans)
    if running.out is not None:
        write_study(result, Path(running.out), [*run, *rest], chosen, running.plots)
    return result


def _points_to_run(
    wanted: Sequence[Point], guessed: Mapping[str, Outcome], count: int, machine: Sequence[str]
) -> dict[str, Row]:
    """By key the points to run, with the columns that say why: `count` for each network in each of
    its sizes and ways to compile. Columns of `machine` say which machine a point is about."""
    by_case: dict[tuple[object, ...], list[tuple[Row, str, list[float]]]] = {}
    for point in sorted(wanted, key=lambda point: point.arch.name):
        row = guessed[point.key].row
        costs = [value for name in COSTS if isinstance(value := row.get(name), float)]
        if len(costs) == len(COSTS):
            case = tuple(
                v
                for name, v in point.identity().items()
                if name not in machine and not name.startswith(FIELD)
            )
            by_case.setdefault(case, []).append((row, point.key, costs))
    chosen: dict[str, Row] = {}
    for found in by_case.values():
        for index, why in representatives([costs for *_, costs in found], count, OFF):
            row, key, (milliseconds, _) = found[index]
            chosen[key] = {GUESS: milliseconds, CHOSEN: why, ENERGY_GUESS: row.get("energy_mj")}
    return chosen

"""Studies by estimates: every point in a fraction of a second, and the best of them run in full.

The one idea: an estimate says which machines are worth a run, never which one is best; so it is
marked as such wherever it stands, and a few, the fastest and those along the front, are replaced by
what was compiled, executed, checked and simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from archgen.outcomes.estimated import COSTS, OFF, SelectedPoint
from archgen.outcomes.fronts import covering
from archgen.outcomes.points import FIELD, Outcome, Point
from archgen.schema.variants import Variant
from archgen.studies.design import Design, Workload, designed, points
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
from archgen.studies.schedule_transfer import ScheduleTransfer
from archgen.studies.store import writing
from archgen.studies.sweep import Observer, run_study, store_in, stored_or_run, workers_for
from archgen.toolchain import STANDARD, Toolchain
from simmodel.arch.record import Arch

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

    Args:
        archs: as for `archgen.study`, like all others that are not named here.
        models: zoo names or paths of ONNX files.
        batches: samples in one inference.
        dtype: element type.
        best: of each network, how many points are run in full: the one of the least estimate, then
            points along the front of estimated latency and area.
        options: schedules to compare, checks, extensions, sizes and roles of inputs.
        running: worker processes, the folder for results, bounds and plots.
        observe: called after each point.
        tools: compiler and machine that the best are run with.
        fields: fields of `StudyOptions` and `Running` by name; they overrule the records:
            `estimate("archs/*.yaml", "resnet50", best=3, out="quick")`.

    Raises:
        StudyError: with every mistake in these arguments at once, before anything runs.
        TypeError: a keyword that is a field of neither record.
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
    guessed = _estimated(list(guesses.values()), design, running, observe)
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


def _estimated(
    wanted: Sequence[Point], design: Design, running: Running, observe: Observer | None
) -> dict[str, Outcome]:
    """What is expected of each point, by key."""
    store, found = store_in(running.out), dict[str, Outcome]()
    try:
        with closing(workers_for(running, design, OUTLOOK, len(wanted))) as workers:
            made = stored_or_run(wanted, workers, store, running, design.timeout)
            for number, outcome in enumerate(made, 1):
                found[outcome.key] = outcome
                if observe is not None:
                    observe(outcome, number, len(wanted))
    finally:
        if store is not None:
            store.close()
    return found


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

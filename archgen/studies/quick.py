"""Studies by estimates: every point in a fraction of a second, and the best of them run in full.

The one idea: an estimate says which machines are worth a run, never which one is best; so it is
marked as such wherever it stands, and the best few are replaced by what was compiled, executed,
checked and simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from archgen.outcomes.point import FIELD, Outcome, Point
from archgen.studies.design import Design, points
from archgen.studies.estimate import OUTLOOK, to_estimate
from archgen.studies.options import Running
from archgen.studies.results import Study, about, write_manifest
from archgen.studies.store import writing
from archgen.studies.sweep import Observer, run_study, store_in, stored_or_run, workers_for

_RANKED = "latency_ms"


def run_estimated(
    design: Design, running: Running = Running(), observe: Observer | None = None, best: int = 0
) -> Study:
    """The study of `design` by the prices of layers alone; of each network the `best` machines,
    those of the least estimated latency, are run in full. There are no plots: they show what was
    run.

    Raises StudyError with every mistake in the design, before anything runs.
    """
    running = replace(running, plots=False)
    wanted = points(design)
    guesses = {point.key: to_estimate(point, OUTLOOK) for point in wanted}
    guessed = _estimated(list(guesses.values()), design, running, observe)
    chosen = set(_best(wanted, guesses, guessed, best))
    machines = tuple(m for m in design.machines if m.arch.name in chosen)
    full: dict[str, Outcome] = {}
    if machines:
        found = run_study(replace(design, machines=machines), running, observe)
        full = {outcome.key: outcome for outcome in found.outcomes}
    outcomes = tuple(full.get(p.key) or guessed[guesses[p.key].key] for p in wanted)
    said = about(design, wanted, running.command)
    result = Study(outcomes, design.archs, said)
    if running.out is not None:
        kept = [point if point.key in full else guesses[point.key] for point in wanted]
        with writing(Path(running.out)):
            write_manifest(Path(running.out), said, design.archs, kept)
            result.save(running.out, plots=False)
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


def _best(
    wanted: Sequence[Point],
    guesses: dict[str, Point],
    guessed: dict[str, Outcome],
    count: int,
) -> Iterable[str]:
    """Names of the machines of the least estimated latencies, `count` for each network in each of
    its sizes and ways to compile."""
    by_case: dict[tuple[object, ...], dict[str, float]] = {}
    for point in wanted:
        row = guessed[guesses[point.key].key].row
        latency = row.get(_RANKED)
        if isinstance(latency, float):
            case = tuple(v for name, v in point.identity().items() if not _of_machine(name))
            by_case.setdefault(case, {})[point.arch.name] = latency
    for found in by_case.values():
        yield from sorted(found, key=lambda name: found[name])[:count]


def _of_machine(column: str) -> bool:
    """Whether a column of a point's identity says which machine it is about."""
    return column in ("arch", "family") or column.startswith(FIELD)

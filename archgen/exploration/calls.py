"""Exploration from Python: what the verbs do, as functions from a study to a value.

A study is the path of a study file, or a mapping with the same content:

found = archgen.explore(
    {
        "archs": "soma-edge",
        "models": "squeezenet",
        "explore": {"parameters": {"memories.local.size": ["1 MiB", "4 MiB"]}},
    }
)
found.frame
"""

from __future__ import annotations

from pathlib import Path

from archgen.exploration.evaluate import Means
from archgen.exploration.measures import AREA
from archgen.exploration.plan import Given, load_exploration, load_surroundings
from archgen.exploration.saving import save_answer, save_found, save_sensitivities
from archgen.exploration.search import Found, search
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.exploration.target import Answer, smallest
from archgen.studies.design import Named
from archgen.studies.sweep import Observer, Running


def explore(
    study: Given,
    *,
    trials: int | None = None,
    jobs: int = 1,
    out: Named | None = None,
    fresh: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
    executor: str = "local",
    observe: Observer | None = None,
) -> Found:
    """The machines of a space that no other one beats.

    Args:
        study: with a section `explore`.
        trials: machines to look at; default: what the study says.
        jobs: worker processes; more than 1 needs `if __name__ == "__main__":` in a script.
        out: folder for points, journal, frames, plots and machines; None keeps nothing.
        fresh: run points again that `out` already has.
        timeout: seconds that a point may take.
        memory: bytes that a worker process may take; default: its share of the machine's.
        executor: `local`, `here` (in this process), or a cluster such as `dask:tcp://host:port`.
        observe: called after each point, estimates included.

    Raises:
        StudyError: with every mistake in the study, before anything runs; that Optuna is missing.
    """
    plan = load_exploration(study).with_trials(trials)
    running = Running(jobs, out, fresh, timeout, memory, executor)
    found = search(plan, Means(running, observe))
    if out is not None:
        save_found(found, Path(out))
    return found


def smallest_machine(
    study: Given,
    target: str,
    *,
    by: str = AREA,
    exact: bool = False,
    jobs: int = 1,
    out: Named | None = None,
    fresh: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
    executor: str = "local",
    observe: Observer | None = None,
) -> Answer:
    """The smallest machine of a space that does what is asked.

    Args:
        study: with a section `explore`, whose constraints hold as well.
        target: constraints separated by commas: `throughput_ips >= 30`.
        by: the column that it has least of.
        exact: whether machines are run too whose estimates miss the target by far.

    The other arguments, and what is raised, are those of `explore`.
    """
    running = Running(jobs, out, fresh, timeout, memory, executor)
    answer = smallest(load_exploration(study), target, Means(running, observe), by, exact)
    if out is not None:
        save_answer(answer, Path(out))
    return answer


def sensitivity(
    study: Given,
    *,
    jobs: int = 1,
    out: Named | None = None,
    fresh: bool = False,
    timeout: float | None = None,
    memory: int | None = None,
    executor: str = "local",
    observe: Observer | None = None,
) -> Sensitivities:
    """What each field of a machine is worth, changed alone and two at a time.

    `study` has a section `sensitivity`; the other arguments are those of `explore`. Raises
    StudyError with every mistake in the study.
    """
    running = Running(jobs, out, fresh, timeout, memory, executor)
    found = sensitivities(load_surroundings(study), Means(running, observe))
    if out is not None:
        save_sensitivities(found, Path(out))
    return found

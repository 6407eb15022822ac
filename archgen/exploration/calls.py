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
from typing import Any

from archgen.exploration.evaluate import EvaluationTools
from archgen.exploration.plan import AREA, Given, load_exploration, load_sensitivity_plan
from archgen.exploration.saving import save_answer, save_found, save_sensitivities
from archgen.exploration.search import Answer, ExplorationResult, search, smallest
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.schema.variants import factor_of
from archgen.studies.options import Running, with_fields
from archgen.studies.sweep import Observer


def explore(
    study: Given, *, trials: int | None = None, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> ExplorationResult:  # fmt: skip
    """The machines of a space that no other one beats.

    Args:
        study: with a section `explore`.
        trials: machines to look at; default: what the study says.
        running: worker processes, the folder for points, journal, frames and machines, bounds.
        observe: called after each point, estimates included.
        fields: fields of `Running` by name; they overrule the record: `out="found", jobs=4`.

    Raises:
        StudyError: with every mistake in the study, before anything runs; that Optuna is missing.
        TypeError: a keyword that is no field of `Running`.
    """
    plan = load_exploration(study, trials)
    (running,) = with_fields(fields, running)
    found = search(plan, EvaluationTools(running, observe))
    if running.out is not None:
        save_found(found, Path(running.out), running.plots)
    return found


def smallest_machine(
    study: Given, target: str, *, by: str = AREA, exact: bool = False, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> Answer:  # fmt: skip
    """The smallest machine of a space that does what is asked.

    Args:
        study: with a section `explore`, whose constraints hold as well.
        target: constraints separated by commas: `throughput_ips >= 30`.
        by: the column that it has least of.
        exact: whether machines are run too whose estimates miss the target by far.

    The other arguments, and what is raised, are those of `explore`.
    """
    (running,) = with_fields(fields, running)
    answer = smallest(load_exploration(study), target, EvaluationTools(running, observe), by, exact)
    if running.out is not None:
        save_answer(answer, Path(running.out))
    return answer


def sensitivity(
    study: Given, *, by: str | None = None, running: Running = Running(),
    observe: Observer | None = None, **fields: Any,
) -> Sensitivities:  # fmt: skip
    """What each field of a machine is worth, changed alone and two at a time.

    Args:
        study: with a section `sensitivity`.
        by: how much larger and smaller fields become that it lists no values of: `10%`, `1.5x`;
            default: what the study says.

    The other arguments are those of `explore`. Raises StudyError with every mistake in the study,
    ValueError for a `by` that is no step.
    """
    (running,) = with_fields(fields, running)
    factor = None if by is None else factor_of(by)
    found = sensitivities(load_sensitivity_plan(study, factor), EvaluationTools(running, observe))
    if running.out is not None:
        save_sensitivities(found, Path(running.out), running.plots)
    return found

"""What an exploration leaves in its folder: frames, plots, and machines to go on with.

The one idea: a machine that was found is an architecture file that extends the base, so it can be
checked, studied and changed like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml
from matplotlib.figure import Figure

from archgen.exploration.evaluate import EvaluatedMachine
from archgen.exploration.plan import Exploration, Objective, measured
from archgen.exploration.search import Answer, ExplorationResult
from archgen.exploration.sensitivity import Sensitivities
from archgen.outcomes.frame import Frame, records
from archgen.plots import pareto_figure, save_figures, tornado_figure
from archgen.plots.saving import EXPLORE, keep_only
from archgen.process.files import write_atomically, write_text
from archgen.report.search_results import ANSWER, LADDERS, PAIRS, TORNADO
from archgen.report.search_results import FRONT as FRONT_TABLE
from archgen.studies.store import writing

FRONT, TARGET = "front", ANSWER
TARGET_REPORT = "target.html"
"""The page about the machines that were tried for a target; `report.html` is of `results.csv`,
which a target leaves as it is."""


def save_found(found: ExplorationResult, folder: Path, plots: bool = True) -> None:
    """`front.csv`, `front/*.yaml`, and a plot of each two objectives; those of objectives that
    it no longer has are removed."""
    with writing(folder):
        _save_frame(found.frame, folder / FRONT_TABLE)
        _save_machines(found.exploration, found.front, folder / FRONT)
        if plots:
            pairs = combinations(found.exploration.objectives, 2)
            drawn = (figure for pair in pairs for figure in _pareto_figures(found, *pair))
            keep_only(folder, save_figures(drawn, folder), EXPLORE)


def save_answer(answer: Answer, folder: Path) -> None:
    """`target.csv` with the machines that were tried, and `target/NAME.yaml` where there is one."""
    with writing(folder):
        _save_frame(answer.study.frame, folder / "target.csv")
        found = [answer.machine] if answer.machine is not None else []
        _save_machines(answer.exploration, found, folder / TARGET)


def save_sensitivities(found: Sensitivities, folder: Path, plots: bool = True) -> None:
    """`ladders.csv`, `tornado.csv`, `pairs.csv` and the tornado plot."""
    with writing(folder):
        tables = {LADDERS: found.ladders, TORNADO: found.tornado, PAIRS: found.pairs}
        for name, frame in tables.items():
            _save_frame(frame, folder / name)
        if plots:
            save_figures([("tornado", tornado_figure(found.tornado))], folder)


def _save_frame(frame: Frame, path: Path) -> None:
    write_atomically(path, lambda target: frame.to_csv(target, index=False))


def _pareto_figures(
    found: ExplorationResult, one: Objective, other: Objective
) -> Iterator[tuple[str, Figure]]:
    """Machines that keep to the constraints, by two objectives; none where there are none."""
    constraints = found.exploration.constraints
    good = [j.machine.arch.name for j in found.full if j.answered and j.meets(constraints)]
    frame = found.study.frame
    frame = frame[frame["arch"].isin(good)].reset_index(drop=True)
    if frame.empty:
        return
    for objective in (one, other):
        if objective.measure not in frame:
            frame[objective.measure] = [measured(row, objective.measure) for row in records(frame)]
    more = [o.measure for o in (one, other) if o.more]
    many = len(found.exploration.objectives) > 2
    name = f"pareto_{one.measure}_{other.measure}" if many else "pareto"
    yield name, pareto_figure(frame, one.measure, other.measure, more)


def _save_machines(
    exploration: Exploration, found: Sequence[EvaluatedMachine], folder: Path
) -> None:
    """An architecture file for each machine; those of an earlier run are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {f"{judged.machine.arch.name}.yaml" for judged in found}
    for path in folder.glob("*.yaml"):
        if path.name not in kept:
            path.unlink()
    for judged in found:
        path = folder / f"{judged.machine.arch.name}.yaml"
        write_text(path, machine_text(exploration, judged, folder))


def machine_text(exploration: Exploration, judged: EvaluatedMachine, folder: Path) -> str:
    """The architecture file of a machine, as it stands in `folder`."""
    named = exploration.extends
    extends = os.path.relpath(named, folder) if os.path.exists(named) else named
    values = [(o.measure, judged.value(o.measure)) for o in exploration.objectives]
    said = [name if value is None else f"{name} {value:.4g}" for name, value in values]
    fields: dict[str, Any] = {"extends": extends, "name": judged.machine.arch.name}
    fields["description"] = "; ".join(said)
    own = exploration.space.fields_of(judged.machine)
    for name, value in (*exploration.common.items(), *own.items()):
        _set(fields, name, value)
    return str(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100))


def _set(fields: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for part in path:
        fields = fields.setdefault(part, {})
    if isinstance(value, dict) and isinstance(fields.get(last), dict):
        fields[last] |= value
    else:
        fields[last] = value

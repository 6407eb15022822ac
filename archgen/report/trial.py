"""A study file that tries the changes a report suggests, on the workloads it rests on.

The one idea: bounds are for the same program, and the compiler makes another one for a changed
machine. Only a run says what a change is worth, so the report hands out that run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import yaml

from archgen.outcomes.frame import Record, sizes
from archgen.report.levers import Lever
from archgen.report.points import PointView
from archgen.report.ranking import Standing
from archgen.report.savers import Saver
from archgen.scheduling import DEFAULT


def trial_study(standing: Standing, levers: Sequence[Lever], savers: Sequence[Saver]) -> str:
    """The text of a study of the machine as it is and with each change; empty for no change."""
    fields = [*(lever.fields for lever in levers), *(saver.fields for saver in savers)]
    cases = [dict(each) for each in fields if each]
    if not cases:
        return ""
    points = list(standing.best.values())
    return yaml.safe_dump(_design(standing, cases, points), sort_keys=False, width=100)


def _design(
    standing: Standing, cases: list[dict[str, Any]], points: Sequence[PointView]
) -> dict[str, Any]:
    file = f"{standing.name}.yaml"
    rows = [point.row for point in points]
    made: dict[str, Any] = {
        "name": f"changes-of-{standing.name}",
        "archs": [file, {"extends": file, "cases": cases}],
        "models": _networks(rows),
        "batches": list(dict.fromkeys(int(row["batch"]) for row in rows)),
        "dtypes": list(dict.fromkeys(str(row["dtype"]) for row in rows)),
    }
    compiler: dict[str, Any] = {
        name: _plain(dict.fromkeys(row[name] for row in rows))
        for name, usual in DEFAULT.columns.items()
        if any(row.get(name) not in (None, usual) for row in rows)
    }
    passes = {
        name.removeprefix("pass."): _plain(dict.fromkeys(row[name] for row in rows))
        for name in rows[0]
        if name.startswith("pass.") and not any(pd.isna(row[name]) for row in rows)
    }
    if passes:
        compiler["passes"] = passes
    return made | ({"compiler": compiler} if compiler else {})


def _networks(rows: Sequence[Record]) -> list[Any]:
    """The networks, each at the sizes of its free dimensions."""
    held: dict[str, dict[str, dict[int, None]]] = {}
    for row in rows:
        own = held.setdefault(str(row["model"]), {})
        for name, size in sizes(row).items():
            own.setdefault(name, {})[size] = None
    return [
        {"model": model, "dims": {name: list(found) for name, found in own.items()}}
        if own
        else model
        for model, own in held.items()
    ]


def _plain(values: dict[Any, None]) -> list[Any]:
    """Values as YAML writes them: numpy's numbers are Python's."""
    return [value.item() if hasattr(value, "item") else value for value in values]

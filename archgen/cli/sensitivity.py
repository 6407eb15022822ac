"""`archgen sensitivity`: what each field of a machine is worth."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from archgen.cli.implausible import of_variants
from archgen.cli.options import FactorParam
from archgen.cli.running import OUT, running, running_options, watched
from archgen.cli.terminal import plain_table, show
from archgen.exploration.evaluate import EvaluationTools
from archgen.exploration.plan import load_sensitivity_plan
from archgen.exploration.saving import save_sensitivities
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.outcomes.frame import Record, records
from archgen.report import REPORT, write_report
from archgen.studies.store import writing

_INTERESTING = 0.02
"""Interactions below this share of the metric are not told."""


@click.command()
@click.argument("study", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--by",
    type=FactorParam(),
    metavar="STEP",
    help="How much larger and smaller a field becomes that the file lists no values of: 10%, 1.5x. "
    " [default: what the file says, else 2x]",
)
@running_options
def sensitivity(study: Path, by: float | None, out: Path | None, **given: Any) -> None:
    """Change the fields of a machine one at a time, and two at a time.

    STUDY says which machine and which fields, in its section `sensitivity`. A field is changed by a
    factor (2 unless the file or --by says otherwise), whole numbers by what is lawful and nearest,
    or through a list of values. What comes out: how much the metric changes, what it gains by mm2,
    by GB/s and for each per cent of the field, and the value from which more no longer helps.

    \b
    archgen sensitivity studies/04_sensitivity.yaml
    archgen sensitivity studies/04_sensitivity.yaml --by 10%
    archgen sensitivity studies/04_sensitivity.yaml --jobs 8 --out around

    The folder gets tornado.png, tornado.csv, ladders.csv (each step), pairs.csv,
    report.html, and everything that a study leaves.

    Exit code 0: every machine has an answer. 1: a point failed or its outputs are wrong. 2: wrong
    input. 130: interrupted, finished points are saved.
    """  # fmt: skip
    asked = load_sensitivity_plan(study, by)
    folder = out or OUT / asked.design.name
    means = EvaluationTools(running(folder, **given))
    found = watched(lambda seen: sensitivities(asked, replace(means, observe=seen)), folder)
    save_sensitivities(found, folder, given["plots"])
    if given["plots"] and found.study.outcomes:
        with writing(folder):
            write_report(found.study, folder / REPORT, folder)
    said = [*lines(found, folder), *of_variants(found.study, asked.design)]
    show([tornado_table(found)], said)
    sys.exit(0 if found.study.good else 1)


def tornado_table(found: Sensitivities) -> Table:
    """A row for each field, the one that matters most on top."""
    metric = found.asked.metric
    table = plain_table()
    table.add_column("field", overflow="fold")
    sides = ("lower", metric.measure, "own", "higher", metric.measure)
    for heading in (*sides, "elasticity", "per mm2", "per GB/s", "enough"):
        table.add_column(heading, justify="right")
    table.spare = ("per GB/s", "per mm2", "enough")
    for row in sorted(records(found.tornado), key=_reach, reverse=True):
        table.add_row(
            str(row["parameter"]), _text(row["low_value"]), _percent(row["low"]),
            _text(row["own_value"]), _text(row["high_value"]), _percent(row["high"]),
            "" if math.isnan(row["elasticity"]) else f"{row['elasticity']:z.2f}",
            _number_or_blank(row["gain_per_mm2"]), _number_or_blank(row["gain_per_gb_per_s"]),
            _text(row["enough"]),
        )  # fmt: skip
    return table


def lines(found: Sensitivities, folder: Path) -> Iterator[str]:
    """What the columns mean, which fields depend on each other, and what has no result."""
    metric, worth = found.asked.metric, found.asked.asked.worth
    yield (
        f"{metric.measure}: {metric.better} is better; elasticity: per cent of it for one per cent "
        "of the field, along the step up; per mm2, per GB/s: what that step gains; enough: the "
        f"value after which a step gains less than {100 * worth:g} %"
    )
    pairs = records(found.pairs) if not found.pairs.empty else []
    for row in sorted(pairs, key=lambda row: -_magnitude(row["interaction"])):
        if _magnitude(row["interaction"]) >= _INTERESTING:
            yield (
                f"{row['first']} {row['first_value']} with {row['second']} {row['second_value']}: "
                f"{_percent(row['together'])} together, alone {_percent(row['first_alone'])} and "
                f"{_percent(row['second_alone'])}"
            )
    for row in records(found.ladders):
        if row["reason"]:
            yield f"{row['parameter']} {row['value']}: {str(row['reason']).splitlines()[0]}"
    yield f"every step is in {folder / 'ladders.csv'}, pairs in {folder / 'pairs.csv'}"


def _reach(row: Record) -> float:
    return max(_magnitude(row["low"]), _magnitude(row["high"]))


def _magnitude(value: float) -> float:
    return 0.0 if math.isnan(value) else abs(value)


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:+.1f} %"


def _number_or_blank(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""

"""`archgen results`: the points of a study that are finished, as a table or a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.table import Table

from archgen.cli.codes import first_of
from archgen.cli.gates import budget_option, judge, pipeline_options
from archgen.cli.options import NamesParam
from archgen.cli.summary import host_lines, reasons, results_table
from archgen.cli.terminal import plain_table, show
from archgen.comparison.budgets import read_budgets
from archgen.outcomes.frame import records
from archgen.report.sheet import plain
from archgen.studies.query import by_order, known_columns, where
from archgen.studies.results import Study, open_study
from archgen.studies.store import writing

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="Only points such as latency_ms<=5, arch=tpu*, batch=1,4, status!=ok. May be repeated.",
)
@click.option(
    "--sort",
    "order",
    type=NamesParam(),
    default=(),
    metavar="COLUMNS",
    help="Order of the points: latency_ms, or -throughput_ips for the largest first.",
)
@click.option(
    "--columns",
    type=NamesParam(),
    default=(),
    metavar="COLUMNS",
    help="Columns to show, separated by commas.  [default: those that answer most questions]",
)
@click.option("--csv", type=_FILE, metavar="FILE", help="Also write the points as CSV.")
@click.option("--parquet", type=_FILE, metavar="FILE", help="Also write the points as Parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON, not as a table.")
@budget_option
@pipeline_options
def results(
    folder: Path,
    conditions: tuple[str, ...],
    order: tuple[str, ...],
    columns: tuple[str, ...],
    csv: Path | None,
    parquet: Path | None,
    as_json: bool,
    budget_files: tuple[Path, ...],
    junit: Path | None,
    annotate: str,
) -> None:
    """List the finished points of a study, also of one that runs or was interrupted.

    DIR is the folder that `archgen study --out` has filled. Values are in the units of
    `archgen explain columns`; amounts may say their own (512KiB, 16 GB/s), fractions may be
    percentages.

    \b
    archgen results archgen-out
    archgen results out --where "latency_ms<=5" --where "arch=tpu*" --sort energy_mj
    archgen results out --columns arch,batch,latency_ms,stall_data --csv best.csv
    archgen results out --budget budgets.yaml --junit budgets.xml

    Budgets are about all points of the study, whatever is shown. Exit code 0: they are kept, or
    there are none. 2: wrong input. 4: one is broken. 5: one is about no point, or points are not
    finished. 6: outputs behind one were not checked.
    """
    budgets = read_budgets(budget_files)
    study = open_study(folder)
    frame = by_order(where(study.frame, conditions, study.by_name), order)
    chosen = frame[known_columns(frame, columns)] if columns else frame
    _write(chosen, csv, parquet)
    if as_json:
        click.echo(json.dumps(plain_rows(chosen), indent=1))
    else:
        table = chosen_table(chosen) if columns else results_table(frame)
        shown = (study.outcomes[place] for place in frame.index)
        hosts = () if columns else host_lines(shown)
        show([table], (*hosts, *reasons(frame, study.by_name), progress(study, folder, len(frame))))
    sys.exit(first_of(judge(study, budgets, junit, annotate)))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON holds them; null is what is missing."""
    text: str = frame.to_json(orient="records")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def chosen_table(frame: pd.DataFrame) -> Table:
    """All of `frame`, numbers with four digits."""
    table = plain_table()
    for name in frame:
        number = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(str(name), justify="right" if number else "left", overflow="fold")
    for row in records(frame):
        table.add_row(*(_cell_text(value) for value in row.values()))
    return table


def _cell_text(value: Any) -> str:
    if pd.isna(value):
        return ""
    return plain(value) if isinstance(value, float) else str(value)


def progress(study: Study, folder: Path, shown: int) -> str:
    """How much of the study there is."""
    about = study.about
    finished, total = len(study.outcomes), max(about.total, len(study.outcomes))
    listed = "" if shown == finished else f"{shown} shown; "
    again = f"; `{about.command}` goes on" if finished < total and about.command else ""
    return f"{listed}{finished} of {total} points are finished in {folder}{again}"


def _write(frame: pd.DataFrame, csv: Path | None, parquet: Path | None) -> None:
    if csv is not None:
        with writing(csv):
            frame.to_csv(csv, index=False)
    if parquet is not None:
        with writing(parquet):
            frame.to_parquet(parquet, index=False)
    for path in filter(None, (csv, parquet)):
        print(f"{len(frame)} points written to {path}", file=sys.stderr)

"""`archgen results` and `archgen report`: the finished points of a study as a table, a file or a
page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.table import Table

from archgen.cli.gates import budget_option, judge, junit_option
from archgen.cli.options import FILE, EveryMistake, all_option, csv_option, names_of, parsed
from archgen.cli.summary import host_lines, next_command, reasons, results_table, screenful
from archgen.cli.terminal import ExitCode, plain_table, show
from archgen.comparison.budgets import read_budgets
from archgen.outcomes.answer import answer
from archgen.outcomes.frame import records
from archgen.report import REPORT, write_report
from archgen.report.sheet import counted, plain
from archgen.studies.design import StudyError
from archgen.studies.query import all_or_mistakes, by_order, known_columns, where
from archgen.studies.results import open_study
from archgen.studies.store import writing

_FOLDER = click.Path(path_type=Path)


@click.command(cls=EveryMistake)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Only points such as latency_ms<=5, arch=tpu*, batch=1,4, status!=ok. May be repeated.",
)  # fmt: skip
@click.option(
    "--sort", "order", callback=parsed(names_of), metavar="COLUMNS",
    help="Order of the points: latency_ms, or -throughput_ips for the largest first.",
)  # fmt: skip
@click.option(
    "--columns", callback=parsed(names_of), metavar="COLUMNS",
    help="Columns to show, separated by commas.  [default: those that answer most questions]",
)  # fmt: skip
@csv_option
@click.option("--parquet", type=FILE, metavar="FILE", help="Also write the points as Parquet.")
@all_option
@click.option("--json", "as_json", is_flag=True, help="Print the points as JSON, not as a table.")
@budget_option
@junit_option
def results(
    folder: Path, conditions: tuple[str, ...], order: tuple[str, ...] | None,
    columns: tuple[str, ...] | None, csv: Path | None, parquet: Path | None, as_json: bool,
    budget_files: tuple[Path, ...], junit: Path | None, everything: bool,
) -> None:  # fmt: skip
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
    asked: tuple[Callable[[], pd.DataFrame], ...] = (
        lambda: where(study.frame, conditions, study.by_name),
        lambda: by_order(study.frame, order or ()),
        lambda: study.frame[known_columns(study.frame, columns or ())],
    )
    all_or_mistakes(lambda ask: ask(), asked)  # all that is wrong at once
    frame = by_order(where(study.frame, conditions, study.by_name), order or ())
    chosen = frame[known_columns(frame, columns)] if columns else frame
    for path, write in ((csv, chosen.to_csv), (parquet, chosen.to_parquet)):
        if path is not None:
            with writing(path):
                write(path, index=False)
            click.echo(f"{counted(len(chosen), 'point')} written to {path}", err=True)
    if as_json:
        click.echo(json.dumps(plain_rows(chosen), indent=1))
    else:
        shown, left = screenful(frame, everything, bool(order))
        table = _chosen_table(chosen.loc[shown.index]) if columns else results_table(shown)
        hosts = () if columns else host_lines(study.outcomes[place] for place in frame.index)
        found = answer(frame, study.by_name)
        about, finished = study.about, len(study.outcomes)
        total = max(about.total, finished)
        listed = "" if len(frame) == finished else f"{len(frame)} shown; "
        again = f"; `{about.command}` goes on" if finished < total and about.command else ""
        said = f"{listed}{finished} of {total} points are finished in {folder}{again}"
        after = next_command(frame, study, folder)
        show([table], (*left, *hosts, *reasons(frame, study.by_name), *found, said, *after))
    sys.exit(min(judge(study, budgets, junit), default=ExitCode.GOOD))


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON holds them; null is what is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return rows


def _chosen_table(frame: pd.DataFrame) -> Table:
    """All of `frame`, numbers with four digits."""
    numbers = {str(name): pd.api.types.is_numeric_dtype(frame[name]) for name in frame}
    headings = (f">{name}" if number else name for name, number in numbers.items())
    texts = (
        ["" if pd.isna(v) else plain(v) if isinstance(v, float) else str(v) for v in row.values()]
        for row in records(frame)
    )
    return plain_table(*headings, rows=texts)


@click.command(cls=EveryMistake)
@click.argument("folder", type=_FOLDER, metavar="DIR")
@click.option(
    "-o", "--output", type=FILE, metavar="FILE",
    help=f"Where the page goes.  [default: {REPORT} in DIR]",
)  # fmt: skip
def report(folder: Path, output: Path | None) -> None:
    """Write the study in DIR as one HTML file that needs nothing else.

    Ranking, what bounds each machine, what to change first and what that gains at most, figures,
    layers of the best points, and what it takes to run the study again. A study that was
    interrupted is reported as far as it went.

    \b
    archgen report archgen-out
    archgen report archgen-out -o review.html
    """
    study = open_study(folder)
    if not study.outcomes:
        raise StudyError([f"{folder}: no point to report; run the study again, which finishes it"])
    target = output or folder / REPORT
    with writing(target.parent):
        write_report(study, target, folder)
    click.echo(f"{counted(len(study.outcomes), 'point')}; report in {target}")

"""`archgen report`: the study in a folder as one page for an architecture review."""

from __future__ import annotations

from pathlib import Path

import click

from archgen.report import REPORT, write_report
from archgen.studies.results import open_study
from archgen.studies.store import writing


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Where the page goes.  [default: {REPORT} in DIR]",
)
def report(folder: Path, output: Path | None) -> None:
    """Write the study in DIR as one HTML file that needs nothing else.

    Ranking, what bounds each machine, what to change first and what that gains at most, figures,
    layers of the best points, and what it takes to run the study again. A study that was
    interrupted is reported as far as it went.

    \b
    archgen report archgen-out
    archgen report archgen-out -o review.html
    """  # fmt: skip
    study = open_study(folder)
    target = output or folder / REPORT
    with writing(target.parent):
        write_report(study, target, folder)
    click.echo(f"{len(study.outcomes)} points; report in {target}")

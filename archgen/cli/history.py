"""`archgen history`: what changed in the results of folders over time, and what it was due to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.table import Table

from archgen.cache import cache_dir
from archgen.cli.results import plain_rows
from archgen.cli.terminal import plain_table, show
from archgen.outcomes.figures import figure_of
from archgen.report.words import plain
from archgen.schema.mistakes import guess
from archgen.studies.design import StudyError
from archgen.studies.history import CAUSES, Run, Step, runs_of, steps
from archgen.studies.revisions import committed
from archgen.studies.store import writing

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WORDS = ("today", "yesterday", *_DAYS)
_INDEX = "history.sqlite"
_SHOWN = ("status", "latency_ms", "energy_mj")
_HASH = 8
"""Letters of a hash that are shown."""


class Since(click.ParamType[datetime]):
    """`2026-11-16`, `2026-11-16T12:00`, a day of the last week by its name, or a revision of git:
    `@main~3`."""

    name = "date"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """The time, in the zone of this machine."""
        word = str(value).strip().lower()
        if word.startswith("@"):
            try:
                return committed(str(value).strip()[1:]).astimezone()
            except StudyError as mistake:
                self.fail(str(mistake), param, ctx)
        if word in _WORDS:
            today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
            if word in _DAYS:
                return today - timedelta(days=(today.weekday() - _DAYS.index(word)) % 7)
            return today - timedelta(days=_WORDS.index(word))
        try:
            return datetime.fromisoformat(str(value).strip()).astimezone()
        except ValueError:
            ways = (
                "a date such as 2026-11-16, today, yesterday, monday, ..., or a revision: @main~3"
            )
            self.fail(f"{value!r}: expected {ways}{guess(word, _WORDS)}", param, ctx)


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR..."
)
@click.option(
    "--since",
    type=Since(),
    metavar="DATE",
    help="Only what was made since then; @REVISION of git: since it was committed.",
)
@click.option("--machine", metavar="NAME", help="Only machines of this name or pattern.")
@click.option("--model", metavar="NAME", help="Only networks of this name or pattern.")
@click.option("--all", "everything", is_flag=True, help="Also first results and unchanged ones.")
@click.option(
    "--index",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the index is kept, an SQLite database.  [default: history.sqlite in the cache]",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the rows as CSV.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def history(
    folders: tuple[Path, ...],
    since: datetime | None,
    machine: str | None,
    model: str | None,
    everything: bool,
    index: Path | None,
    csv: Path | None,
    as_json: bool,
) -> None:
    """What changed in the results of studies, when, and whether it was the machine, the network or
    archgen.

    DIR is a study's folder, or one with studies somewhere within. Each point's results stand beside
    the ones before, made of another machine of that name, another network of that name, or with
    other sources of archgen; options say which point it is. What is different is the cause; where
    several things are, all are named, each with its share where some result has it alone.

    \b
    archgen history archgen-out
    archgen history out nightly --since monday --machine "edge*"
    archgen history out --since 2026-11-16 --model resnet50 --all
    archgen history out --since @main~3
    """
    _refuse_files(folders)
    found = runs_of(folders, index or cache_dir() / _INDEX)
    chosen = _named(found, machine, model)
    taken = steps(chosen, since)
    shown = taken if everything else [step for step in taken if _changed(step)]
    rows = [_row(step) for step in shown]
    if csv is not None:
        with writing(csv):
            pd.DataFrame(rows).to_csv(csv, index=False)
    if as_json:
        click.echo(json.dumps(plain_rows(pd.DataFrame(rows)), indent=1))
    else:
        show([_table(shown)] if shown else [], _lines(shown, taken, since))


def _refuse_files(folders: Sequence[Path]) -> None:
    """Raises StudyError for what is no folder of results but is written as other verbs read it."""
    wrong = []
    for folder in folders:
        file, at, revision = str(folder).partition("@")
        since = f"; since then: --since @{revision}" if at else ""
        if folder.exists() and not folder.is_file():
            continue
        if Path(file).suffix in (".yaml", ".yml"):
            now = f"archgen compare {file}@{revision or 'HEAD~1'} {file} --model NAME"
            said = f"history is of results, in folders (--machine {Path(file).stem}{since})"
            wrong.append(f"{folder}: {said}; machines as they were: {now}")
        elif at and Path(file).is_dir():
            wrong.append(f"{folder}: results have dates, not revisions{since}")
    if wrong:
        raise StudyError(wrong)


def _named(runs: Sequence[Run], machine: str | None, model: str | None) -> list[Run]:
    """The runs of these machines and networks. Raises StudyError where there are none."""
    wrong = []
    for column, wanted in (("arch", machine), ("model", model)):
        known = dict.fromkeys(str(run.figures[column]) for run in runs)
        if wanted is not None and not any(fnmatchcase(name, wanted) for name in known):
            hint = guess(wanted.strip("*"), known) or f"; there is {', '.join(list(known)[:5])}"
            wrong.append(f"no result has the {column} {wanted!r}{hint}")
    if wrong:
        raise StudyError(wrong)
    return [
        run
        for run in runs
        if fnmatchcase(str(run.figures["arch"]), machine or "*")
        and fnmatchcase(str(run.figures["model"]), model or "*")
    ]


def _changed(step: Step) -> bool:
    """Whether the figures differ from those before."""
    if step.before is None:
        return False
    old, new = step.before.figures, step.run.figures
    return any(old.get(name) != new.get(name) for name in _SHOWN)


def _row(step: Step) -> dict[str, Any]:
    """A row of the files: the point, both results, and what is different."""
    run, before = step.run, step.before
    row: dict[str, Any] = {"when": run.made, "folder": run.folder, **json.loads(run.point)}
    for word, held in (("before", before), ("after", run)):
        figures = held.figures if held is not None else {}
        row |= {
            f"{name}_{word}": figures.get(name) for name in ("status", "latency_ms", "energy_mj")
        }
    row |= {"latency_ratio": step.ratio, "cause": " and ".join(step.causes)}
    row |= {f"{cause}_ratio": step.alone.get(cause) for cause in CAUSES}
    row |= {"version": run.version, "code": run.code, "git": run.git, "file_at": run.source}
    return row | {"machine": run.machine, "network": run.network, "fields": "; ".join(step.fields)}


def _table(shown: Sequence[Step]) -> Table:
    table = plain_table()
    for name in ("when", "architecture", "model", "batch"):
        table.add_column(name, overflow="fold")
    for name in ("ms", "-> ms", "latency"):
        table.add_column(name, justify="right")
    table.add_column("because of", overflow="fold")
    table.add_column("archgen", overflow="fold")
    table.add_column("git", overflow="fold")
    table.add_column("file at", overflow="fold")
    table.spare = ("git", "batch", "archgen")
    for step in shown:
        row, ratio = step.run.figures, step.ratio
        table.add_row(
            step.run.when.strftime("%Y-%m-%d %H:%M"),
            str(row["arch"]), str(row["model"]), str(row["batch"]),
            _ms(step.before), _ms(step.run),
            f"x {ratio:.3f}" if ratio is not None else "",
            _causes(step) if step.before else "first result",
            f"{step.run.version} {step.run.code[:_HASH]}", step.run.git, step.run.source,
            style=None if ratio is None or ratio == 1 else "red" if ratio > 1 else "green",
        )  # fmt: skip
    return table


def _causes(step: Step) -> str:
    """`machine (x 0.800), network and archgen`: with the share of those that is known."""
    told = [f"{c} (x {step.alone[c]:.3f})" if c in step.alone else c for c in step.causes]
    return _joined(told)


def _joined(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _ms(run: Run | None) -> str:
    if run is None:
        return ""
    value = figure_of(run.figures, "latency_ms")
    return plain(value) if value == value else str(run.figures["status"])


def _lines(shown: Sequence[Step], taken: Sequence[Step], since: datetime | None) -> list[str]:
    """Which fields of machines changed, once each, and how much was due to what."""
    said: dict[str, None] = {}
    for step in shown:
        if step.fields:
            day = step.run.when.strftime("%Y-%m-%d")
            said[f"{step.run.figures['arch']} since {day}: {', '.join(step.fields)}"] = None
    said |= {_apart(step): None for step in shown if len(step.causes) > len(step.alone) + 1}
    points = len({step.run.point for step in taken})
    start = f"since {since.strftime('%Y-%m-%d %H:%M')}: " if since is not None else ""
    if not taken:
        return [f"{start}nothing was run"]
    counts = Counter(_joined(step.causes) for step in shown if _changed(step))
    why = [f"{count} by {_by(cause)}" for cause, count in counts.most_common()]
    changes = f"{sum(counts.values())} changes" + (f": {', '.join(why)}" if why else "")
    return [*said, f"{start}{len(taken)} results of {points} points; {changes}"]


def _apart(step: Step) -> str:
    """How causes that came at once are told apart."""
    unknown = [cause for cause in step.causes if cause not in step.alone]
    row, before = step.run.figures, step.before
    said = f"{row['arch']} {row['model']} since {step.run.when.strftime('%Y-%m-%d')}"
    way = "a result with one of them as it was, in any of the folders, tells them apart"
    if "machine" in unknown and before is not None and (before.source or before.git):
        file, at = f"{row['arch']}.yaml", (before.source or before.git).removesuffix("+")
        way += f": archgen compare {file}@{at} {file} --model {row['model']}"
    return f"{said}: {_joined(unknown)} changed at once; {way}"


def _by(cause: str) -> str:
    if cause == "unknown":
        return "what older versions did not keep"
    return cause.replace("machine", "the machine").replace("network", "the network")

"""Options of verbs that run points, running them with progress shown, and what is said after."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import click
from rich import progress
from rich.console import Console

from archgen.cli.options import FILE, bounds_options, combined_options
from archgen.cli.terminal import ExitCode
from archgen.comparison.budgets import Budget, Check, check_budgets
from archgen.lint import brief, findings
from archgen.outcomes.points import Outcome
from archgen.process.files import write_bytes
from archgen.report import REPORT, write_report
from archgen.schema.tree import FilePosition
from archgen.studies.design import Design
from archgen.studies.options import Running
from archgen.studies.results import Study
from archgen.studies.store import writing
from archgen.studies.sweep import Observer

Result = TypeVar("Result")
OUT = Path("archgen-out")
running_options = combined_options(
    click.option(
        "-j", "--jobs", type=click.IntRange(1), default=os.cpu_count() or 1,
        show_default="processors", help="Worker processes.",
    ),
    click.option(
        "-o", "--out", type=click.Path(file_okay=False, path_type=Path),
        help="Folder for results and plots.  "
        "[default: archgen-out, archgen-out/NAME for a study file]",
    ),
    click.option("--fresh", is_flag=True, help="Run points again that the folder already has."),
    click.option(
        "--plots/--no-plots", default=True, help="Draw plots in the end, and write the report."
    ),
    bounds_options(
        "Give up a point after this long; it becomes a failed row.",
        "Most data of one worker process, such as 8GiB.  "
        "[default: its share of three quarters of the machine's]",
    ),
    click.option(
        "--executor", default="local", show_default=True,
        help="Who runs the points: local (processes), here (this process, without bounds).",
    ),
)  # fmt: skip


def running(folder: Path, **given: Any) -> Running:
    """What these options say."""
    return Running(out=folder, command=shlex.join(["archgen", *sys.argv[1:]]), **given)


# How far a study is: a bar with the time left, or lines where there is no terminal.

_EVERY = 30.0
"""Seconds between lines where there is no terminal."""
_WINDOW = 3600.0
"""Seconds whose points tell how long one takes."""


def with_progress(work: Callable[[Observer], Result], folder: Path) -> Result:
    """What `work` gives, with its progress shown; an interruption says what is saved and ends."""
    bar = progress.Progress(
        progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(), progress.TextColumn("{task.description}"),
        console=Console(stderr=True), transient=True, speed_estimate_period=_WINDOW,
    )  # fmt: skip
    bar.add_task("preparing", total=None)
    (task,) = bar.tasks
    told = time.monotonic()

    def observe(outcome: Outcome, done: int, total: int) -> None:
        nonlocal told
        # What is stored says nothing of time, and runs behind estimates take times of their own.
        counts = bar.reset if outcome.reused or done <= task.completed else bar.update
        counts(task.id, total=total, completed=done, description=outcome.label)
        if not bar.console.is_terminal and time.monotonic() - told >= _EVERY and done < total:
            told = time.monotonic()
            left = timedelta(seconds=task.time_remaining or 0)
            bar.console.print(f"{done} of {total} points, {left or '?'} left", highlight=False)

    with bar:
        try:
            return work(observe)
        except KeyboardInterrupt:
            bar.stop()
            said = "no point is finished yet"
            if task.total:
                done = f"{task.completed:.0f} of {task.total:.0f} points are finished and saved"
                said = f"{done} in {folder}; run again to go on"
            click.echo(f"interrupted: {said}", err=True)
            sys.exit(ExitCode.INTERRUPTED)


def save_page(study: Study, folder: Path, wanted: bool, name: str = REPORT) -> None:
    """The page about what was run, where one is wanted."""
    if wanted and study.outcomes:
        with writing(folder):
            write_report(study, folder / name, folder)


def lint_notes(design: Design, study: Study | None = None) -> Iterator[str]:
    """What `archgen lint` warns of the machines of `design`, or of those that `study` has run, all
    of them variants of its first; each thing once."""
    archs = design.archs if study is None else study.archs
    files = {machine.arch.name: machine.file for machine in design.machines}
    if study is not None:
        files = {arch.name: design.machines[0].file for arch in archs}
    return brief((each for arch in archs for each in findings(arch)), files)


# What gates have found, for people and for a pipeline: lines, and JUnit. Each thing that was judged
# is one case, whichever gate it was; JUnit has them all, lines those that stop the pipeline.

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""What XML 1.0 cannot hold."""
_SECONDS = ("compile_s", "verify_s", "simulate_s")
_CODES = {
    "broken": ("budget broken", ExitCode.BROKEN_BUDGET),
    "unverified": ("not verified", ExitCode.UNVERIFIED),
    "idle": ("budget about nothing", ExitCode.NOTHING_JUDGED),
}
"""Of what budgets stop, how it is called and how the verb ends."""
budget_option = click.option(
    "--budget", "budget_files", multiple=True, type=FILE, metavar="FILE",
    help="Fail where a figure is beyond what this file allows (docs/ci.md). May be repeated.",
)  # fmt: skip
junit_option = click.option(
    "--junit", type=FILE, metavar="FILE", help="Also write what was judged as JUnit's XML."
)


def judge(study: Study, budgets: Sequence[Budget], junit: Path | None) -> set[ExitCode]:
    """Tell what `budgets` say of a study, and publish it with what became of the points; how the
    verb ends."""
    checks = list(check_budgets(budgets, study.outcomes))
    missing = study.about.total - len(study.outcomes)
    if budgets and missing > 0:
        said = f"{missing} of {study.about.total} points are not finished"
        checks.append(Check(budgets[0], "", "idle", said))
    broken = [check for check in checks if check.verdict != "kept"]
    for check in broken:
        click.echo(f"{_CODES[check.verdict][0]}: {check}", err=True)
    if checks:
        kept = len(checks) - len(broken)
        click.echo(f"{kept} of {len(checks)} checks of budgets are kept", err=True)
    write_junit([*map(_of_point, study.outcomes), *map(_of_check, checks)], junit)
    return {_CODES[check.verdict][1] for check in broken}


def _of_point(outcome: Outcome) -> Element:
    """An answer passes, "does not fit" is skipped."""
    row, reason = outcome.row, str(outcome.row.get("reason") or "")
    took = (row.get(name) for name in _SECONDS)
    seconds = sum(value for value in took if isinstance(value, int | float))
    case = partial(judged_case, "points", outcome.label, seconds=seconds)
    if row["status"] == "failed":
        return case("error", reason, "point failed")
    if row.get("verified") is False:
        said = str(row.get("note") or "they differ from the reference")
        return case("failure", said, "outputs are wrong")
    return case("skipped", f"{row['status']}: {reason}") if row["status"] != "ok" else case()


def _of_check(check: Check) -> Element:
    name = f"{check.budget.text}: {check.point or 'any point'}"
    if check.verdict == "kept":
        return judged_case("budgets", name)
    tag = "error" if check.verdict == "idle" else "failure"
    return judged_case("budgets", name, tag, check.said, _CODES[check.verdict][0], check.budget.at)


def judged_case(
    suite: str, name: str, tag: str = "", said: str = "", title: str = "",
    at: FilePosition | None = None, seconds: float = 0.0,
) -> Element:  # fmt: skip
    """Something that was judged, as JUnit has it: it passes, or the `tag` (failure, error, skipped)
    says how it ends and `title` in a few words why, where that stops a pipeline."""
    shown = {"name": name, "classname": f"archgen.{suite}", "time": f"{seconds:.3f}"}
    shown |= {"file": at.file, "line": str(at.line)} if at is not None else {}
    case = Element("testcase", {key: _printable(value) for key, value in shown.items()})
    if tag:
        below = SubElement(case, tag, message=_printable(said).partition("\n")[0])
        if title:
            below.set("type", title)
            below.text = _printable(said)
    return case


def write_junit(cases: Sequence[Element], junit: Path | None) -> None:
    """Write `junit`, where asked for, with a suite for each gate."""
    if junit is None:
        return
    root = Element("testsuites", {"name": "archgen", **_counts(cases)})
    for suite in dict.fromkeys(case.attrib["classname"] for case in cases):
        own = [case for case in cases if case.attrib["classname"] == suite]
        about = {"name": suite.removeprefix("archgen."), **_counts(own)}
        SubElement(root, "testsuite", about).extend(own)
    ElementTree.indent(root)
    with writing(junit):
        write_bytes(junit, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _counts(cases: Sequence[Element]) -> dict[str, str]:
    tags = Counter(below.tag for case in cases for below in case)
    time = sum(float(case.attrib["time"]) for case in cases)
    counts = {"tests": len(cases), "failures": tags["failure"], "errors": tags["error"]}
    counts["skipped"] = tags["skipped"]
    return {name: str(count) for name, count in counts.items()} | {"time": f"{time:.3f}"}


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)

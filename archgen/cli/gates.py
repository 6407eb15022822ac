"""What gates have found, for people and for a pipeline: lines, JUnit, annotations of GitHub.

The one idea: each thing that was judged is one finding, whichever gate it was; JUnit has them all,
annotations and lines those that stop the pipeline.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from xml.etree import ElementTree

import click

from archgen.cli.codes import ExitCode
from archgen.comparison.budgets import Budget, Check, check_budgets
from archgen.outcomes.frame import number
from archgen.process.files import write_bytes
from archgen.studies.results import Study
from archgen.studies.store import writing

Verb = TypeVar("Verb", bound=Callable[..., Any])
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""What XML 1.0 cannot hold."""
_SECONDS = ("compile_s", "verify_s", "simulate_s")
_TITLES = {"broken": "budget broken", "unverified": "not verified", "idle": "budget about nothing"}

_CODES = {
    "broken": ExitCode.BROKEN_BUDGET, "unverified": ExitCode.UNVERIFIED,
    "idle": ExitCode.NOTHING_JUDGED,
}  # fmt: skip


@dataclass(frozen=True)
class GateFinding:
    """Something that was judged."""

    suite: str
    name: str
    verdict: Literal["passed", "failed", "error", "skipped"]
    said: str = ""
    title: str = ""
    """Of what stops a pipeline, in a few words."""
    file: str = ""
    line: int = 0
    seconds: float = 0.0

    @property
    def stops(self) -> bool:
        """Whether a pipeline has to end."""
        return self.verdict in ("failed", "error")


def budget_option(verb: Verb) -> Verb:
    """Adds --budget."""
    return click.option(
        "--budget",
        "budget_files",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Fail where a figure is beyond what this file allows (docs/ci.md). May be repeated.",
    )(verb)


def pipeline_options(verb: Verb) -> Verb:
    """Adds --junit and --annotate."""
    verb = click.option(
        "--annotate",
        type=click.Choice(["auto", "github", "never"]),
        default="auto",
        show_default=True,
        help="Annotations of GitHub on standard error; auto: where GITHUB_ACTIONS is set.",
    )(verb)
    return click.option(
        "--junit",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also write what was judged as JUnit's XML.",
    )(verb)


def publish(findings: Sequence[GateFinding], junit: Path | None, annotate: str) -> None:
    """Write `junit`, where asked for, and annotate what stops the pipeline."""
    if junit is not None:
        with writing(junit):
            write_bytes(junit, junit_xml(findings))
    wanted = annotate == "github" or (annotate == "auto" and bool(os.environ.get("GITHUB_ACTIONS")))
    for finding in findings if wanted else ():
        if finding.stops:
            click.echo(annotation(finding), err=True)


def judge(
    study: Study, budgets: Sequence[Budget], junit: Path | None, annotate: str
) -> set[ExitCode]:
    """Tell what `budgets` say of a study, and publish it with what became of the points; how the
    verb ends."""
    checks = _checked(budgets, study)
    for line in budget_lines(checks):
        click.echo(line, err=True)
    publish([*of_points(study), *of_budgets(checks)], junit, annotate)
    return {_CODES[check.verdict] for check in checks if check.verdict != "kept"}


def of_points(study: Study) -> Iterator[GateFinding]:
    """The points of a study: an answer passes, "does not fit" is skipped."""
    for outcome in study.outcomes:
        row, reason = outcome.row, str(outcome.row.get("reason") or "")
        seconds = [number(dict(row), name) for name in _SECONDS]
        took = sum(value for value in seconds if not math.isnan(value))
        if row["status"] == "failed":
            yield GateFinding(
                "points", outcome.label, "error", reason, "point failed", seconds=took
            )
        elif row.get("verified") is False:
            said = str(row.get("note") or "they differ from the reference")
            yield GateFinding(
                "points", outcome.label, "failed", said, "outputs are wrong", seconds=took
            )
        elif row["status"] != "ok":
            yield GateFinding("points", outcome.label, "skipped", f"{row['status']}: {reason}")
        else:
            yield GateFinding("points", outcome.label, "passed", seconds=took)


def _checked(budgets: Sequence[Budget], study: Study) -> list[Check]:
    found = list(check_budgets(budgets, study.outcomes))
    missing = study.about.total - len(study.outcomes)
    if budgets and missing > 0:
        said = f"{missing} of {study.about.total} points are not finished"
        found.append(Check(budgets[0], "", "idle", said))
    return found


def of_budgets(checks: Iterable[Check]) -> Iterator[GateFinding]:
    """What budgets say."""
    for check in checks:
        kept = check.verdict == "kept"
        at = check.budget.at
        yield GateFinding(
            "budgets",
            f"{check.budget.text}: {check.point or 'any point'}",
            "passed" if kept else "error" if check.verdict == "idle" else "failed",
            "" if kept else check.said,
            _TITLES.get(check.verdict, ""),
            at.file,
            at.line,
        )


def budget_lines(checks: Sequence[Check]) -> Iterator[str]:
    """A line for each check that stops the pipeline, and how many there were."""
    for check in checks:
        if check.verdict != "kept":
            yield f"{_TITLES[check.verdict]}: {check}"
    if checks:
        kept = sum(check.verdict == "kept" for check in checks)
        yield f"{kept} of {len(checks)} checks of budgets are kept"


def annotation(finding: GateFinding) -> str:
    """The line by which GitHub shows a finding beside its file."""
    shown = {
        "file": _from_root(finding.file),
        "line": str(finding.line or ""),
        "title": finding.title,
    }
    said = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in shown.items() if value)
    name = finding.name if not finding.file else finding.name.rpartition(": ")[2]
    return f"::error {said}::{_escaped(f'{name}: {finding.said}')}"


def _from_root(file: str) -> str:
    """A path as the repository names it, where that is known."""
    root = os.environ.get("GITHUB_WORKSPACE")
    path = Path(file).resolve()
    if not file or root is None or not path.is_relative_to(Path(root).resolve()):
        return file
    return path.relative_to(Path(root).resolve()).as_posix()


def _escaped(text: str, more: str = "") -> str:
    for mark in ("%", "\r", "\n", *more):
        text = text.replace(mark, f"%{ord(mark):02X}")
    return text


def junit_xml(findings: Sequence[GateFinding]) -> bytes:
    """The findings as JUnit's XML, a suite for each gate."""
    root = ElementTree.Element("testsuites", {"name": "archgen"} | _counts(findings))
    for suite in dict.fromkeys(finding.suite for finding in findings):
        own = [finding for finding in findings if finding.suite == suite]
        node = ElementTree.SubElement(root, "testsuite", {"name": _printable(suite)} | _counts(own))
        node.set("skipped", str(sum(finding.verdict == "skipped" for finding in own)))
        for finding in own:
            node.append(_case(finding))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _counts(findings: Sequence[GateFinding]) -> dict[str, str]:
    return {
        "tests": str(len(findings)),
        "failures": str(sum(finding.verdict == "failed" for finding in findings)),
        "errors": str(sum(finding.verdict == "error" for finding in findings)),
        "time": f"{sum(finding.seconds for finding in findings):.3f}",
    }


def _case(finding: GateFinding) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        name=_printable(finding.name),
        classname=f"archgen.{_printable(finding.suite)}",
        time=f"{finding.seconds:.3f}",
    )
    if finding.file:
        case.set("file", finding.file)
        case.set("line", str(finding.line))
    tag = {"failed": "failure", "error": "error", "skipped": "skipped"}.get(finding.verdict)
    if tag is not None:
        first = _printable(finding.said).partition("\n")[0]
        below = ElementTree.SubElement(case, tag, message=first)
        if tag != "skipped":
            below.set("type", finding.title)
            below.text = _printable(finding.said)
    return case


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)

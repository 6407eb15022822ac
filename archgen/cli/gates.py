"""What gates have found, for people and for a pipeline: lines, and JUnit.

The one idea: each thing that was judged is one finding, whichever gate it was; JUnit has them all,
lines those that stop the pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import click

from archgen.cli.options import FILE
from archgen.cli.terminal import ExitCode
from archgen.comparison.budgets import Budget, Check, check_budgets
from archgen.process.files import write_bytes
from archgen.studies.results import Study
from archgen.studies.store import writing

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""What XML 1.0 cannot hold."""
_SECONDS = ("compile_s", "verify_s", "simulate_s")
_CODES = {
    "broken": ("budget broken", ExitCode.BROKEN_BUDGET),
    "unverified": ("not verified", ExitCode.UNVERIFIED),
    "idle": ("budget about nothing", ExitCode.NOTHING_JUDGED),
}
"""Of what budgets stop, how it is called and how the verb ends."""
_TAGS = {"failed": "failure", "error": "error", "skipped": "skipped"}


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


budget_option = click.option(
    "--budget", "budget_files", multiple=True, type=FILE, metavar="FILE",
    help="Fail where a figure is beyond what this file allows (docs/ci.md). May be repeated.",
)  # fmt: skip
junit_option = click.option(
    "--junit", type=FILE, metavar="FILE", help="Also write what was judged as JUnit's XML."
)


def publish(findings: Sequence[GateFinding], junit: Path | None) -> None:
    """Write `junit`, where asked for."""
    if junit is not None:
        with writing(junit):
            write_bytes(junit, junit_xml(findings))


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
    publish([*_of_points(study), *map(_of_check, checks)], junit)
    return {_CODES[check.verdict][1] for check in broken}


def _of_points(study: Study) -> Iterator[GateFinding]:
    """The points of a study: an answer passes, "does not fit" is skipped."""
    for outcome in study.outcomes:
        row, reason = outcome.row, str(outcome.row.get("reason") or "")
        seconds = (row.get(name) for name in _SECONDS)
        found = GateFinding(
            "points", outcome.label, "passed",
            seconds=sum(value for value in seconds if isinstance(value, int | float)),
        )  # fmt: skip
        if row["status"] == "failed":
            yield replace(found, verdict="error", said=reason, title="point failed")
        elif row.get("verified") is False:
            said = str(row.get("note") or "they differ from the reference")
            yield replace(found, verdict="failed", said=said, title="outputs are wrong")
        elif row["status"] != "ok":
            yield replace(found, verdict="skipped", said=f"{row['status']}: {reason}")
        else:
            yield found


def _of_check(check: Check) -> GateFinding:
    name = f"{check.budget.text}: {check.point or 'any point'}"
    if check.verdict == "kept":
        return GateFinding("budgets", name, "passed")
    at, title = check.budget.at, _CODES[check.verdict][0]
    broken = GateFinding("budgets", name, "failed", check.said, title, at.file, at.line)
    return replace(broken, verdict="error") if check.verdict == "idle" else broken


def junit_xml(findings: Sequence[GateFinding]) -> bytes:
    """The findings as JUnit's XML, a suite for each gate."""
    root = ElementTree.Element("testsuites", {"name": "archgen"} | _counts(findings))
    for suite in dict.fromkeys(finding.suite for finding in findings):
        own = [finding for finding in findings if finding.suite == suite]
        names = {"name": _printable(suite), "skipped": str(_count(own, "skipped"))}
        node = ElementTree.SubElement(root, "testsuite", names | _counts(own))
        node.extend(map(_case, own))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _counts(findings: Sequence[GateFinding]) -> dict[str, str]:
    return {
        "tests": str(len(findings)),
        "failures": str(_count(findings, "failed")),
        "errors": str(_count(findings, "error")),
        "time": f"{sum(finding.seconds for finding in findings):.3f}",
    }


def _count(findings: Iterable[GateFinding], verdict: str) -> int:
    return sum(finding.verdict == verdict for finding in findings)


def _case(finding: GateFinding) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", name=_printable(finding.name), time=f"{finding.seconds:.3f}",
        classname=f"archgen.{_printable(finding.suite)}",
    )  # fmt: skip
    if finding.file:
        case.attrib.update(file=finding.file, line=str(finding.line))
    if tag := _TAGS.get(finding.verdict):
        said = _printable(finding.said)
        below = ElementTree.SubElement(case, tag, message=said.partition("\n")[0])
        if tag != "skipped":
            below.set("type", finding.title)
            below.text = said
    return case


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)

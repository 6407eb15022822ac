"""What gates have found, for people and for a pipeline: lines, and JUnit.

The one idea: each thing that was judged is one case, whichever gate it was; JUnit has them all,
lines those that stop the pipeline.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import click

from archgen.cli.options import FILE
from archgen.cli.terminal import ExitCode
from archgen.comparison.budgets import Budget, Check, check_budgets
from archgen.outcomes.points import Outcome
from archgen.process.files import write_bytes
from archgen.schema.tree import FilePosition
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

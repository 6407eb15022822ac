"""`archgen explore`: the Pareto front of a space of machines, or its smallest one for a target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from archgen.cli.implausible import of_variants
from archgen.cli.running import OUT, running, running_options, watched
from archgen.cli.summary import shortened
from archgen.cli.terminal import plain_table, show
from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools
from archgen.exploration.measures import AREA, is_estimable
from archgen.exploration.plan import Exploration, load_exploration
from archgen.exploration.saving import FRONT, TARGET, TARGET_REPORT, save_answer, save_found
from archgen.exploration.search import ExplorationResult, is_blind, search
from archgen.exploration.target import Answer, smallest
from archgen.report import REPORT, write_report
from archgen.report.sheet import plain
from archgen.studies.results import Study
from archgen.studies.store import writing

_SHOWN = 4
_HEADLINE = ("latency_ms", "throughput_ips", "area_mm2")


@click.command()
@click.argument("study", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--trials", type=click.IntRange(1), help="Machines to look at.  [default: the file's]"
)
@click.option(
    "--target",
    metavar="CONSTRAINTS",
    help="Find the smallest machine that does this instead: 'throughput_ips >= 30'.",
)
@click.option(
    "--smallest",
    "by",
    default=AREA,
    show_default=True,
    metavar="COLUMN",
    help="What the smallest machine has least of.",
)
@click.option("--exact", is_flag=True, help="Run also machines that estimates speak against.")
@running_options
def explore(
    study: Path,
    trials: int | None,
    target: str | None,
    by: str,
    exact: bool,
    out: Path | None,
    **given: Any,
) -> None:
    """Search a space of machines for those that no other one beats.

    STUDY says which machine to start from, which of its fields may have which values, what is
    better (objectives) and what has to be kept to (constraints), in its section `explore`. The cost
    model of the compiler screens what Optuna proposes; what is promising is compiled, executed,
    checked and simulated. Run again after an interruption, it goes on.

    \b
    archgen explore studies/03_explore.yaml
    archgen explore studies/03_explore.yaml --trials 200 --jobs 8
    archgen explore studies/03_explore.yaml --target "throughput_ips >= 2000"

    The folder gets front.csv, the machines of the front as architecture files in front/,
    pareto.png, report.html, and everything that a study leaves about the machines that were run;
    with --target target.csv, target.html about the machines that were tried, and the machine in
    target/.

    Exit code 0: there is a front, or a machine for the target. 1: there is none. 2: wrong input.
    130: interrupted, finished points are saved.
    """  # fmt: skip
    plan = load_exploration(study).with_trials(trials)
    if exact and target is None:
        raise click.UsageError("--exact belongs to --target")
    folder = out or OUT / plan.design.name
    means = EvaluationTools(running(folder, **given))
    if target is not None:
        answer = watched(
            lambda seen: smallest(plan, target, replace(means, observe=seen), by, exact),
            folder,
            at_most=True,
        )
        save_answer(answer, folder)
        _report(answer.study, folder, TARGET_REPORT, given["plots"])
        best = () if answer.machine is None else (answer.machine,)
        lines = [*answer_lines(answer, folder), *of_variants(answer.study, plan.design)]
        show([machines_table(plan, best)] if best else [], lines)
        sys.exit(0 if answer.machine is not None else 1)
    found = watched(lambda seen: search(plan, replace(means, observe=seen)), folder, at_most=True)
    save_found(found, folder, given["plots"])
    _report(found.study, folder, REPORT, given["plots"])
    lines = [*found_lines(found, folder), *of_variants(found.study, plan.design)]
    show([machines_table(plan, found.front)], lines)
    sys.exit(0 if found.front else 1)


def _report(study: Study, folder: Path, name: str, wanted: bool) -> None:
    if wanted and study.outcomes:
        with writing(folder):
            write_report(study, folder / name, folder)


def machines_table(plan: Exploration, machines: tuple[EvaluatedMachine, ...]) -> Table:
    """A row for each machine: its fields and figures."""
    table = plain_table()
    names = dict.fromkeys([*plan.measures, *_HEADLINE])
    for parameter in plan.space.parameters:
        table.add_column(parameter.name, overflow="fold")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("verified", justify="right")
    for judged in machines:
        fields = [setting.text for setting in judged.machine.settings]
        values = [judged.value(name) for name in names]
        shown = ["" if value is None else plain(value) for value in values]
        table.add_row(*fields, *shown, _verdict(judged))
    return table


def _verdict(judged: EvaluatedMachine) -> str:
    checked = [outcome.row.get("verified") for outcome in judged.outcomes]
    return "yes" if all(checked) else "not checked"


def found_lines(found: ExplorationResult, folder: Path) -> Iterator[str]:
    """What was looked at, what was not, and where results are."""
    plan = found.exploration
    yield (
        f"{len(found.front)} machines on the front, of {found.looked} looked at in a space of "
        f"{plan.space.size}; {len(found.full)} were run in full"
    )
    unknown = [o.measure for o in plan.objectives if not is_estimable(o.measure)]
    if plan.asked.screen.keep < 1 and is_blind(plan.objectives):
        yield "nothing was screened: estimates know none of the objectives"
    elif plan.asked.screen.keep < 1 and unknown:
        yield f"the screening did not know {', '.join(unknown)}: they are not estimated"
    if found.errors:
        low, high = min(found.errors), max(found.errors)
        yield f"simulated time is {low:.2f} to {high:.2f} times the estimate"
    if not found.front:
        yield "no machine that was run keeps to the constraints"
    yield from _refused(found.full)
    forbidden = list(found.forbidden.items())
    for text, why in forbidden[:_SHOWN]:
        yield f"no machine: {text}: {why}"
    if len(forbidden) > _SHOWN:
        yield f"and {len(forbidden) - _SHOWN} more combinations that are no machines"
    yield f"machines are in {folder / FRONT}, results and plots in {folder}"


def _refused(full: tuple[EvaluatedMachine, ...]) -> Iterator[str]:
    refused = [judged for judged in full if not judged.answered]
    for judged in refused[:_SHOWN]:
        yield f"{judged.machine.arch.name}: {shortened(judged.reason)}"
    if len(refused) > _SHOWN:
        yield f"and {len(refused) - _SHOWN} more machines without results"


def answer_lines(answer: Answer, folder: Path) -> Iterator[str]:
    """What the answer is, and how sure."""
    asked = ", ".join(constraint.text for constraint in answer.constraints)
    name = None if answer.machine is None else answer.machine.machine.arch.name
    size = answer.smallest.measure
    if name is None:
        yield f"none of {answer.machines} machines keeps to {asked}"
    else:
        yield f"of {answer.machines} machines, {name} has the least {size} that keeps to {asked}"
    tried = f"{len(answer.full)} machines were run in full"
    margin = answer.exploration.asked.screen.margin
    if answer.spared:
        tried += (
            f"; {answer.spared} were not, as their estimates miss by more than {margin:g} times"
        )
    yield f"{tried} (--exact runs them too)" if answer.spared else tried
    yield from _refused(answer.full)
    if name is not None:
        yield f"the machine is {folder / TARGET / name}.yaml, results and plots are in {folder}"

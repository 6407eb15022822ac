"""`archgen explore`, `sensitivity`, `calibrate`: the best of a space of machines, or the smallest
for a target; what each field of one machine is worth; which values meet measured times."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import Any

import click
import yaml

from archgen.api import load_model, prepared_for, request_for
from archgen.cli.options import FILE, EveryMistake, parsed
from archgen.cli.running import OUT, lint_notes, running, running_options, save_page, with_progress
from archgen.cli.summary import next_command, shortened
from archgen.cli.terminal import PlainTable, plain_table, show
from archgen.exploration import saving
from archgen.exploration.calibrate import Measurement, read_measurements
from archgen.exploration.calibrate import calibrate as fitted
from archgen.exploration.evaluate import EvaluatedMachine, EvaluationTools
from archgen.exploration.plan import (
    AREA,
    Exploration,
    is_estimable,
    load_exploration,
    load_sensitivity_plan,
)
from archgen.exploration.search import Answer, ExplorationResult, is_blind, search, smallest
from archgen.exploration.sensitivity import Sensitivities, sensitivities
from archgen.models.errors import ModelError
from archgen.models.mapping import following
from archgen.outcomes.answer import answer as answered
from archgen.outcomes.frame import records
from archgen.process.files import unwritable, write_text
from archgen.process.steps import step
from archgen.report import REPORT
from archgen.report.sheet import plain
from archgen.scheduling import choice
from archgen.schema.load import load_files
from archgen.schema.tree import ArchError, files_of
from archgen.schema.tree import plain as plain_tree
from archgen.schema.variants import as_node, factor_of, overlaid, table_of
from archgen.toolchain import STANDARD
from compiler.api import TreeError
from simmodel.arch.assumed import place_of, value_at
from simmodel.arch.record import Arch
from simmodel.program.program import Program

_SHOWN = 4
_HEADLINE = ("latency_ms", "throughput_ips", "area_mm2")
_INTERESTING = 0.02
"""Interactions below this share of the metric are not told."""
_study = click.argument("study", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.command(cls=EveryMistake)
@_study
@click.option(
    "--trials", type=click.IntRange(1), help="Machines to look at.  [default: the file's]"
)
@click.option(
    "--target", metavar="CONSTRAINTS",
    help="Find the smallest machine that does this instead: 'throughput_ips >= 30'.",
)  # fmt: skip
@click.option(
    "--smallest", "by", default=AREA, show_default=True, metavar="COLUMN",
    help="What the smallest machine has least of.",
)  # fmt: skip
@click.option("--exact", is_flag=True, help="Run also machines that estimates speak against.")
@running_options
def explore(
    study: Path, trials: int | None, target: str | None, by: str, exact: bool, out: Path | None,
    **given: Any,
) -> None:  # fmt: skip
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
    plan = load_exploration(study, trials)
    if exact and target is None:
        raise click.UsageError("--exact belongs to --target")
    folder = out or OUT / plan.design.name
    means, wanted = EvaluationTools(running(folder, **given)), given["plots"]
    found: Answer | ExplorationResult
    best: tuple[EvaluatedMachine, ...]
    if target is not None:
        found = answer = with_progress(
            lambda seen: smallest(plan, target, replace(means, observe=seen), by, exact), folder
        )
        saving.save_answer(answer, folder)
        best = () if answer.machine is None else (answer.machine,)
        lines = answer_lines(answer, folder)
    else:
        found = front = with_progress(
            lambda seen: search(plan, replace(means, observe=seen)), folder
        )
        saving.save_found(front, folder, wanted)
        best, lines = front.front, found_lines(front, folder)
    save_page(found.study, folder, wanted, REPORT if target is None else saving.TARGET_REPORT)
    tables = [machines_table(plan, best)] if best or target is None else []
    frame = found.study.frame
    if target is not None:
        frame = frame[frame["arch"].isin([each.machine.arch.name for each in best])]
    said = [*lines, *answered(frame, found.study.by_name), *lint_notes(plan.design, found.study)]
    show(tables, [*said, *next_command(frame, found.study, folder)])
    sys.exit(0 if best else 1)


def machines_table(plan: Exploration, machines: tuple[EvaluatedMachine, ...]) -> PlainTable:
    """A row for each machine: its fields and figures."""
    names = list(dict.fromkeys([*plan.measures, *_HEADLINE]))
    fields = (parameter.name for parameter in plan.space.parameters)
    table = plain_table(*fields, *(f">{name}" for name in names), ">verified")
    for judged in machines:
        values = [judged.value(name) for name in names]
        checked = all(outcome.row.get("verified") for outcome in judged.outcomes)
        table.add_row(
            *(setting.text for setting in judged.machine.settings),
            *("" if value is None else plain(value) for value in values),
            "yes" if checked else "not checked",
        )
    return table


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
    forbidden = [f"no machine: {text}: {why}" for text, why in found.forbidden.items()]
    yield from _first_few(forbidden, "combinations that are no machines")
    yield f"machines are in {folder / saving.FRONT}, results and plots in {folder}"


def _refused(full: tuple[EvaluatedMachine, ...]) -> Iterator[str]:
    said = [f"{j.machine.arch.name}: {shortened(j.reason)}" for j in full if not j.answered]
    return _first_few(said, "machines without results")


def _first_few(lines: list[str], what: str) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"and {len(lines) - _SHOWN} more {what}"


def answer_lines(answer: Answer, folder: Path) -> Iterator[str]:
    """What the answer is, and how sure."""
    asked = ", ".join(constraint.text for constraint in answer.constraints)
    name = None if answer.machine is None else answer.machine.machine.arch.name
    size = answer.smallest.measure
    if name is None:
        yield f"none of {answer.machines} machines keeps to {asked}"
    else:
        yield f"of {answer.machines} machines, {name} has the least {size} that keeps to {asked}"
    margin = answer.exploration.asked.screen.margin
    spared = (
        f"; {answer.spared} were not, as their estimates miss by more than {margin:g} times "
        "(--exact runs them too)"
    )
    yield f"{len(answer.full)} machines were run in full{spared if answer.spared else ''}"
    yield from _refused(answer.full)
    if name is not None:
        file = folder / saving.TARGET / f"{name}.yaml"
        yield f"the machine is {file}, results and plots are in {folder}"


@click.command(cls=EveryMistake)
@_study
@click.option(
    "--by", callback=parsed(factor_of), metavar="STEP",
    help="How much larger and smaller a field becomes that the file lists no values of: 10%, 1.5x. "
    " [default: what the file says, else 2x]",
)  # fmt: skip
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
    found = with_progress(lambda seen: sensitivities(asked, replace(means, observe=seen)), folder)
    saving.save_sensitivities(found, folder, given["plots"])
    save_page(found.study, folder, given["plots"])
    lines = [*sensitivity_lines(found, folder), *lint_notes(asked.design, found.study)]
    show([tornado_table(found)], lines)
    sys.exit(0 if found.study.good else 1)


def tornado_table(found: Sensitivities) -> PlainTable:
    """A row for each field, the one that matters most on top."""
    measure = found.asked.metric.measure
    table = plain_table(
        "field", ">lower", f">{measure}", ">own", ">higher", f">{measure}", ">elasticity",
        ">per mm2", ">per GB/s", ">enough", spare=("per GB/s", "per mm2", "enough"),
    )  # fmt: skip
    for row in sorted(
        records(found.tornado), key=lambda row: -max(map(_magnitude, (row["low"], row["high"])))
    ):
        table.add_row(
            str(row["parameter"]), _text(row["low_value"]), _percent(row["low"]),
            _text(row["own_value"]), _text(row["high_value"]), _percent(row["high"]),
            _shown(row["elasticity"], "z.2f"), _shown(row["gain_per_mm2"], ".3g"),
            _shown(row["gain_per_gb_per_s"], ".3g"), _text(row["enough"]),
        )  # fmt: skip
    return table


def sensitivity_lines(found: Sensitivities, folder: Path) -> Iterator[str]:
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
            names = ("together", "first_alone", "second_alone")
            together, first, second = (_percent(row[name]) for name in names)
            yield (
                f"{row['first']} {row['first_value']} with {row['second']} {row['second_value']}: "
                f"{together} together, alone {first} and {second}"
            )
    for row in records(found.ladders):
        if row["reason"]:
            yield f"{row['parameter']} {row['value']}: {str(row['reason']).splitlines()[0]}"
    yield f"every step is in {folder / 'ladders.csv'}, pairs in {folder / 'pairs.csv'}"


def _magnitude(value: float) -> float:
    return 0.0 if math.isnan(value) else abs(value)


def _shown(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:+.1f} %"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@click.command(cls=EveryMistake)
@click.argument("arch", metavar="ARCH")
@click.argument("measured", metavar="POINTS", type=FILE)
@click.option("--effort", type=click.IntRange(0, 3), default=1, show_default=True,
              help="How long the compiler may search for each program.")  # fmt: skip
@click.option("-o", "--out", type=FILE, help="Default: NAME-calibrated.yaml.")
def calibrate(arch: str, measured: Path, effort: int, out: Path | None) -> None:
    """Fit what a machine's file assumes to measured times.

    ARCH states ranges of fields under `assumed`. POINTS is a CSV file with the columns model (a
    network of the zoo with its options, or an .onnx file) and ms, and if wanted batch, tree (a file
    with the schedule that was measured) and kind. Each network is compiled once and simulated with
    other times; the machine that comes nearest is written as a file that extends ARCH.
    """
    loaded, mistakes = load_files([arch])
    if mistakes:
        raise ArchError(mistakes)
    if len(loaded) != 1:
        raise click.UsageError(f"{arch} stands for {len(loaded)} machines, expected one")
    machine, base = loaded[0].arch, loaded[0].path
    target = out or Path(f"{machine.name}-calibrated.yaml")
    points, unread = read_measurements(measured)
    wrong = [*unwritable("--out", target), *unread, *_unopened(points)]
    wrong += [
        f"--out {target}: is what is read; name another file"
        for given in (
            measured,
            *map(Path, files_of(loaded[0].tree)),
            *(Path(p.tree) for p in points),
        )
        if given.is_file() and target.exists() and target.samefile(given)
    ]
    if not machine.assumed:
        wrong.append(
            f"{arch} assumes nothing to fit; state a range of each field that was not measured, as "
            "assumed: {memories.dram.latency: 60 ns .. 200 ns}"
        )
    if wrong:
        raise click.UsageError("\n".join(wrong))
    found = fitted(machine, points, lambda point: _program(machine, point, effort))
    for field, span in machine.assumed.items():
        value, before = found.fields[field], place_of(machine, field)
        moved = [place for place in (0.0, 1.0) if place != before]
        ended = value in [value_at(machine, field, place) for place in moved]
        said = "; the end of it: a wider range, or another field, may fit better" * ended
        if field in found.unseen:
            said = "; no time depends on it, so it stays assumed"
        click.echo(f"{field}: {value} (assumed {span}{said})")
    for kind in dict.fromkeys(point.kind for point in found.points):
        click.echo(f"{kind}: {found.sentence(kind)}")
    for doubt in found.doubts():
        click.echo(f"warning: {doubt}", err=True)
    held = {"extends": relpath(base, target.parent), "name": f"{machine.name}-calibrated"}
    fields = {f: as_node(value) for f, value in found.fields.items() if f not in found.unseen}
    text = yaml.safe_dump(plain_tree(overlaid(table_of(held), fields)), sort_keys=False)
    write_text(target, f"# fitted to {measured.name}: {found.sentence()}\n{text}")
    click.echo(f"{target} has the fitted machine: {found.sentence()}")


def _unopened(points: Iterable[Measurement]) -> Iterator[str]:
    """Why networks of `points` cannot be opened, each with its line."""
    for point in points:
        try:
            load_model(point.model, batch=point.batch)
        except ModelError as wrong:
            yield f"{point.line}: {wrong}"


def _program(arch: Arch, point: Measurement, effort: int) -> Program:
    scheduling = choice(effort=effort)
    network = load_model(point.model, batch=point.batch)
    prepared, dtype = prepared_for(network, arch, scheduling=scheduling)
    request = request_for(prepared, dtype, arch, True, scheduling)
    try:
        if point.tree:
            text = Path(point.tree).read_text("utf-8")
            request, _ = following(request, prepared.edge.proto, text)
        with step(f"compiling {point.model}"):
            return STANDARD.compile(request).program
    except TreeError as wrong:
        raise TreeError(f"{point.line}: {point.tree}: {said}" for said in wrong.mistakes) from None

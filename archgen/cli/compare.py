"""`archgen compare`: what got better or worse between studies, by how much and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import click
import pandas as pd

from archgen.cli.gates import judged_case, junit_option, write_junit
from archgen.cli.options import FILE, EveryMistake, names_of, parsed
from archgen.cli.results import plain_rows
from archgen.cli.terminal import ExitCode, PlainTable, plain_table, show
from archgen.comparison.comparison import (
    Against,
    Judgement,
    StudyComparison,
    disjoint_columns,
    gates_of,
    judged,
    share_of,
    side_of,
)
from archgen.comparison.comparison import compare as compared
from archgen.comparison.differences import AREA, Pair
from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.frame import Record, dimensions, size_heading
from archgen.outcomes.points import DIMENSION
from archgen.report.sheet import counted, plain
from archgen.studies.query import all_or_mistakes
from archgen.studies.store import writing

_FIGURES = {
    "latency_ms": "latency", "interval_ms": "interval", "energy_mj": "energy", AREA: "area",
    "dram_bytes": "DRAM bytes",
    "peak_shared_bytes": "peak shared", "peak_local_bytes": "peak local",
}  # fmt: skip
_USUAL = ("arch", "model", "batch")
"""Columns by which points are called."""
_IDLE = "nothing compared"
_STYLES = {"better": "green", "gained": "green", "worse": "red", "lost": "red", "mixed": "yellow"}
_MOST = 5
"""Points without a partner that are named."""


@click.command(cls=EveryMistake)
@click.argument("studies", nargs=-1, required=True, metavar="STUDY...")
@click.option(
    "--on", callback=parsed(names_of), metavar="COLUMNS",
    help="Columns by which points are the same; model,batch compares machines.  "
    "[default: all that identify a point, but for options of passes that differ between studies]",
)  # fmt: skip
@click.option(
    "--threshold", callback=parsed(share_of), metavar="SHARE", default="1%", show_default=True,
    help="Relative changes up to this are none.",
)  # fmt: skip
@click.option(
    "--fail-if-worse", "worse", multiple=True, metavar="FIGURE[:SHARE],...",
    help="Fail where a figure got worse by more than this, such as latency:2%,energy:5%, and where "
    "nothing could be compared; usual: latency, energy and interval (--in-flight), by the "
    "threshold.",
)  # fmt: skip
@click.option("--csv", type=FILE, metavar="FILE", help="Also write the pairs as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the pairs as JSON.")
@junit_option
def compare(
    studies: tuple[str, ...], on: tuple[str, ...] | None, threshold: float,
    worse: tuple[str, ...], csv: Path | None, as_json: bool, junit: Path | None,
) -> None:  # fmt: skip
    """Compare the points of studies with those of the first: before and after a change, or several
    candidates.

    STUDY is a study's folder, or machines of one: out:edge, out:edge* or out:edge,server. Where
    each names one machine, machines are compared network by network.

    Ratios are those of each study to the first; below 1 is better. Below the table stand, for
    each pair whose latency changed, the causes: time spent computing, and stalls by cause, which
    add up to the change; and the layers behind it. Worse is a longer latency or interval
    (--in-flight), more energy, or a result that is lost.

    \b
    archgen compare before after
    archgen compare out:edge out:edge-wide out:server
    archgen compare monday tuesday wednesday --on model,batch
    archgen compare main branch --fail-if-worse latency:2%,dram:10%

    Exit code 0: compared, and nothing that fails. 2: wrong input. 3: worse than --fail-if-worse
    allows. 5: a study has no point of the first, or a gate no figure to compare.
    """
    sides = all_or_mistakes(lambda named: side_of(named[1], named[0]), enumerate(studies, 1))
    found = compared(*sides, on=on, threshold=threshold)
    said = _judged(found, worse, threshold)
    if csv is not None:
        with writing(csv):
            found.frame.to_csv(csv, index=False)
    if as_json:
        click.echo(json.dumps(_as_plain(found), indent=1))
    else:
        show([pairs_table(found)] if found.pairs else [], comparison_lines(found))
    for line in gate_lines(found, said):
        click.echo(line, err=True)
    write_junit(list(_cases(found, said)), junit)
    apart = any(not each.pairs for each in found.against)
    failed = {ExitCode.WORSE: said.stopped, ExitCode.NOTHING_JUDGED: said.idle or apart}
    sys.exit(min((code for code, why in failed.items() if why), default=ExitCode.GOOD))


def _judged(found: StudyComparison, words: Sequence[str], threshold: float) -> Judgement:
    """What the gates of the command line say; nothing where there are none."""
    parts = [part.strip() for word in words for part in word.split(",")]
    columns = {name for pair in found.pairs for row in (pair.before, pair.after) for name in row}
    gates = gates_of(parts, threshold, sorted(columns or {known.name for known in COLUMNS}))
    return judged(found, gates) if gates else Judgement()


# How a comparison is told: a table of pairs, reasons, and what stops a pipeline.


def gate_lines(found: StudyComparison, said: Judgement) -> list[str]:
    """What stops a pipeline, a line for each."""
    told = _distinguishing(found.on, found.against)
    stopped = []
    for item in said.stopped:
        pair, study = item.pair, f"{item.study}: " if len(found.against) > 1 else ""
        lent = f"; {pair.lent}" if pair.lent and pair.verdict != "lost" else ""
        why = f"{item.gate.regression_text(pair)}{lent}"
        stopped.append(f"worse: {study}{_point_name(pair.key, told)}: {why}")
    return [*stopped, *(f"{_IDLE}: {why}" for why in said.idle)]


def _cases(found: StudyComparison, said: Judgement) -> Iterator[Element]:
    """What was compared: pairs, points without a partner, and where nothing could be judged."""
    for each in found.against:
        suite = f"{each.name} beside {found.baseline}"
        told = _distinguishing(found.on, [each], every=True)
        for pair in each.pairs:
            stopped = [i.gate.regression_text(pair) for i in said.stopped if i.pair is pair]
            how = ("failure", "; ".join([*stopped, pair.why]), "got worse") if stopped else ()
            yield judged_case(suite, _point_name(pair.key, told), *how)
        for keys, where in ((each.only_before, found.baseline), (each.only_after, each.name)):
            for key in keys:
                yield judged_case(suite, _point_name(key, told), "skipped", f"only in {where}")
    for why in said.idle:
        yield judged_case("gates", "something to judge", "error", why, _IDLE)


def _as_plain(found: StudyComparison) -> dict[str, Any]:
    """The comparison as JSON holds it."""
    return {
        "baseline": found.baseline,
        "pairs": plain_rows(found.frame),
        "against": {
            each.name: {
                "geometric_means": each.means,
                "options_apart": found.options_apart(each),
                "only_baseline": plain_rows(pd.DataFrame(each.only_before)),
                "only_here": plain_rows(pd.DataFrame(each.only_after)),
            }
            for each in found.against
        },
    }


def pairs_table(found: StudyComparison) -> PlainTable:
    """One row for each pair, and the geometric means of each study."""
    told, many = _distinguishing(found.on, found.against), len(found.against) > 1
    batches = {str(pair.key.get("batch")) for pair in found.pairs}
    alike = ("batch",) if len(batches) == 1 and told[0] != "batch" else ()
    means = {each.name: each.means for each in found.against}
    known = {name for each in means.values() for name in each}
    if all(each.get(AREA, 1.0) == 1.0 for each in means.values()):
        known -= {AREA}
    shown = {figure: heading for figure, heading in _FIGURES.items() if figure in known}
    table = plain_table(
        *map(size_heading, told), *(["study"] if many else []), ">ms", ">-> ms",
        *(f">{heading}" for heading in shown.values()), "verdict",
        spare=("peak shared", "peak local", "DRAM bytes", *alike, "energy", "area"),
    )  # fmt: skip
    for name, pair in _by_point(found):
        latency = pair.figures.get("latency_ms")
        cells = [_cell_text(pair.key[column]) for column in told] + ([name] if many else [])
        cells += [plain(latency.before), plain(latency.after)] if latency else ["", ""]
        changes = map(pair.figures.get, shown)
        cells += ["" if change is None else _times(change.ratio) for change in changes]
        table.add_row(*cells, pair.verdict, style=_STYLES.get(pair.verdict))
    table.add_section()
    for name, ratios in means.items():
        cells = ["geometric mean", *[""] * (len(told) - 1), *([name] if many else []), "", ""]
        cells += [_times(ratios[figure]) if figure in ratios else "" for figure in shown]
        if ratios:
            table.add_row(*cells, "")
    return table


def _times(ratio: float) -> str:
    return f"x {ratio:.3f}"


def _by_point(found: StudyComparison) -> list[tuple[str, Pair]]:
    """Study and pair: point by point, each in all studies."""
    pairs = [(each.name, pair) for each in found.against for pair in each.pairs]
    order = list(dict.fromkeys(str(pair.key) for _, pair in pairs))
    places = {key: place for place, key in enumerate(order)}
    return sorted(pairs, key=lambda item: places[str(item[1].key)])


def _distinguishing(
    on: Sequence[str], against: Sequence[Against], every: bool = False
) -> list[str]:
    """The columns of the key that tell pairs apart, and the first of them in any case; `every`:
    those that tell apart also points that are no pairs."""
    keys = [pair.key for each in against for pair in each.pairs]
    for each in against if every else ():
        keys += [*each.only_before, *each.only_after]
    lengths = dimensions(keys)
    named = [name for name in on if name in lengths or not name.startswith(DIMENSION)]
    differ = [name for name in named if len({str(key[name]) for key in keys}) > 1]
    return [name for name in named if name in (*_USUAL, *differ)] or [on[0]]


def comparison_lines(found: StudyComparison) -> list[str]:
    """Why pairs changed, how many did, and which points have no partner."""
    told = _distinguishing(found.on, found.against) if found.pairs else []
    many = len(found.against) > 1
    said = [
        f"{_point_name(pair.key, told)}{f' in {name}' if many else ''}: {pair.why}"
        for name, pair in _by_point(found)
        if pair.why
    ]
    for each in found.against:
        every = _distinguishing(found.on, [each], every=True)
        missing = f"{found.baseline}, not in {each.name}" if many else found.baseline
        for keys, where in ((each.only_before, missing), (each.only_after, each.name)):
            names = ", ".join(_point_name(key, every) for key in keys[:_MOST])
            more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
            said += [f"only in {where}: {names}{more}"] if keys else []
        start = f"{each.name}: " if many else ""
        said += [f"{start}{apart}" for apart in found.options_apart(each)]
        said.append(f"{start}{_counted(each) if each.pairs else _no_overlap_line(found, each)}")
    if any(pair.verdict == "mixed" for pair in found.pairs):
        said.append("mixed: of latency, energy and interval one is better and one is worse")
    return said


def _no_overlap_line(found: StudyComparison, each: Against) -> str:
    """Why nothing was compared, and by which columns there would be something."""
    sides = (each.only_before, each.only_after)
    parting = disjoint_columns(*sides)
    columns = [name for name in _USUAL if name in found.on and name not in parting]
    joined = [{tuple(map(_cell_text, map(key.get, columns))) for key in keys} for keys in sides]
    helps = parting and columns and joined[0] & joined[1]
    hint = f" (--on {','.join(columns)} compares them all the same)" if helps else ""
    return f"no point is in both studies: {found.no_overlap_reason(each)}{hint}"


def _counted(each: Against) -> str:
    counts = {v: sum(p.verdict == v for p in each.pairs) for v in (*_STYLES, "same", "neither")}
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{counted(len(each.pairs), 'pair')}: {shown}"


def _point_name(key: Record, told: Sequence[str]) -> str:
    """`edge resnet50 batch 4 sequence 128`."""
    words = {name: _cell_text(key[name]) for name in told}
    return " ".join(
        f"{name.removeprefix(DIMENSION)} {word}"
        if name == "batch" or name.startswith(DIMENSION)
        else word
        for name, word in words.items()
        if word
    )


def _cell_text(value: object) -> str:
    return "" if value is None or value is pd.NA else str(value)

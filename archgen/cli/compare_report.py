"""How a comparison of studies is told: a table of pairs, reasons, and what stops a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from archgen.cli.gates import GateFinding
from archgen.cli.results import plain_rows
from archgen.cli.terminal import PlainTable, plain_table
from archgen.comparison.comparison import Against, StudyComparison, separating
from archgen.comparison.differences import AREA, Change, Pair
from archgen.comparison.gates import Judgement
from archgen.comparison.inputs import place_of
from archgen.outcomes.frame import Record, dimensions, size_heading
from archgen.outcomes.points import DIMENSION
from archgen.report.sheet import plain
from archgen.schema.tree import FilePosition
from archgen.studies.results import Study

_FIGURES = (
    ("latency_ms", "latency"),
    ("energy_mj", "energy"),
    (AREA, "area"),
    ("dram_bytes", "DRAM bytes"),
    ("peak_shared_bytes", "peak shared"),
    ("peak_local_bytes", "peak local"),
)
_USUAL = ("arch", "model", "batch")
"""Columns by which points are called."""
_IDLE = "nothing compared"
_STYLES = {"better": "green", "gained": "green", "worse": "red", "lost": "red", "mixed": "yellow"}


def gate_lines(found: StudyComparison, said: Judgement) -> list[str]:
    """What stops a pipeline, a line for each."""
    told = _telling(found.on, found.against)
    many = len(found.against) > 1
    stopped = [
        f"worse: {f'{item.study}: ' if many else ''}{_point_name(item.pair.key, told)}: "
        f"{item.gate.regression_text(item.pair)}{_lent(item.pair)}"
        for item in said.stopped
    ]
    return [*stopped, *(f"{_IDLE}: {why}" for why in said.idle)]


def _lent(pair: Pair) -> str:
    """A word on schedules that are those of other machines, where the pair's reason is not told."""
    return f"; {pair.lent}" if pair.lent and pair.verdict != "lost" else ""


def gate_findings(
    found: StudyComparison, said: Judgement, studies: Sequence[Study]
) -> list[GateFinding]:
    """What was compared: pairs, points without a partner, and where nothing could be judged; of
    `studies`, the baseline first."""
    before, *others = studies
    return [
        *(
            finding
            for each, after in zip(found.against, others, strict=True)
            for finding in _findings(
                found, each, said, partial(place_of, before=before, after=after)
            )
        ),
        *(GateFinding("gates", "something to judge", "error", why, _IDLE) for why in said.idle),
    ]


def _findings(
    found: StudyComparison,
    each: Against,
    said: Judgement,
    place: Callable[[Pair], FilePosition | None],
) -> Iterator[GateFinding]:
    suite, told = f"{each.name} beside {found.baseline}", _telling(found.on, [each], every=True)
    for pair in each.pairs:
        stopped = [item.gate.regression_text(pair) for item in said.stopped if item.pair is pair]
        name = _point_name(pair.key, told)
        if stopped:
            why, at = "; ".join([*stopped, pair.why]), place(pair) or FilePosition("")
            yield GateFinding(suite, name, "failed", why, "got worse", at.file, at.line)
        else:
            yield GateFinding(suite, name, "passed")
    for keys, where in ((each.only_before, found.baseline), (each.only_after, each.name)):
        yield from (
            GateFinding(suite, _point_name(k, told), "skipped", f"only in {where}") for k in keys
        )


def as_plain(found: StudyComparison) -> dict[str, Any]:
    """The comparison as JSON holds it."""
    return {
        "baseline": found.baseline,
        "pairs": plain_rows(found.frame),
        "against": {
            each.name: {
                "geometric_means": each.means,
                "only_baseline": plain_rows(pd.DataFrame(each.only_before)),
                "only_here": plain_rows(pd.DataFrame(each.only_after)),
                "renamed": dict(each.renamed),
            }
            for each in found.against
        },
    }


def pairs_table(found: StudyComparison) -> PlainTable:
    """One row for each pair, and the geometric means of each study."""
    table = plain_table()
    told = _telling(found.on, found.against)
    batches = {str(pair.key.get("batch")) for _, pair in _by_point(found)}
    alike = ["batch"] if len(batches) == 1 and told[0] != "batch" else []
    table.spare = (
        "peak shared",
        "peak local",
        "DRAM bytes",
        *alike,
        "energy",
        "area",
        "schedule from",
    )
    many = len(found.against) > 1
    for name in told:
        table.add_column(size_heading(name), overflow="fold")
    if many:
        table.add_column("study", overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("-> ms", justify="right")
    means = {each.name: each.means for each in found.against}
    same = {AREA} if all(each.get(AREA, 1.0) == 1.0 for each in means.values()) else set()
    known = {name for each in means.values() for name in each} - same
    shown = [pair for pair in _FIGURES if pair[0] in known]
    for _, heading in shown:
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    lent = any(pair.lent for pair in found.pairs)
    if lent:
        table.add_column("schedule from", overflow="fold")
    for name, pair in _by_point(found):
        latency = pair.figures.get("latency_ms")
        cells = [_cell(pair.key[column]) for column in told] + ([name] if many else [])
        cells += [plain(latency.before), plain(latency.after)] if latency else ["", ""]
        cells += [_ratio(pair.figures.get(figure)) for figure, _ in shown]
        lenders = [_lenders(pair)] if lent else []
        table.add_row(*cells, pair.verdict, *lenders, style=_STYLES.get(pair.verdict))
    table.add_section()
    for name, held in means.items():
        empty = [""] * (len(told) - 1)
        ratios = [_times(held[figure]) if figure in held else "" for figure, _ in shown]
        cells = ["geometric mean", *empty, *([name] if many else []), "", "", *ratios]
        if held:
            table.add_row(*cells, "")
    return table


def _lenders(pair: Pair) -> str:
    """`edge`, or `own -> edge` where only one side runs the schedule of another machine."""
    before, after = (name or "own" for name in pair.lenders)
    return "" if not pair.lent else before if before == after else f"{before} -> {after}"


def _by_point(found: StudyComparison) -> list[tuple[str, Pair]]:
    """Study and pair: point by point, each in all studies."""
    order: dict[str, int] = {}
    pairs = [(each.name, pair) for each in found.against for pair in each.pairs]
    for _, pair in pairs:
        order.setdefault(str(pair.key), len(order))
    return sorted(pairs, key=lambda item: order[str(item[1].key)])


def _cell(value: object) -> str:
    return "" if value is None or value is pd.NA else str(value)


def _telling(on: Sequence[str], against: Sequence[Against], every: bool = False) -> list[str]:
    """The columns of the key that tell pairs apart, and the first of them in any case; `every`:
    those that tell apart also points that are no pairs."""
    keys = [pair.key for each in against for pair in each.pairs]
    alone = [key for each in against for key in (*each.only_before, *each.only_after)]
    keys += alone if every else []
    lengths = dimensions(keys)
    named = [name for name in on if name in lengths or not name.startswith(DIMENSION)]
    usual = [name for name in _USUAL if name in on]
    differ = [name for name in named if len({str(key[name]) for key in keys}) > 1]
    return [name for name in named if name in usual or name in differ] or [on[0]]


def _times(ratio: float) -> str:
    return f"x {ratio:.3f}"


def _ratio(change: Change | None) -> str:
    return _times(change.ratio) if change is not None else ""


def lines(found: StudyComparison) -> list[str]:
    """Why pairs changed, how many did, and which points have no partner."""
    told = _telling(found.on, found.against) if found.pairs else []
    many = len(found.against) > 1
    said = [
        f"{_point_name(pair.key, told)}{f' in {name}' if many else ''}: {pair.why}"
        for name, pair in _by_point(found)
        if pair.why
    ]
    for each in found.against:
        every = _telling(found.on, [each], every=True)
        said += [
            f"{each.name}: {new} is {old} under another name" for new, old in each.renamed.items()
        ]
        missing = f"{found.baseline}, not in {each.name}" if many else found.baseline
        said += _unmatched_lines(each.only_before, every, missing)
        said += _unmatched_lines(each.only_after, every, each.name)
        start = f"{each.name}: " if many else ""
        said.append(f"{start}{_counted(each) if each.pairs else _no_overlap_line(found, each)}")
    if any(pair.verdict == "mixed" for pair in found.pairs):
        said.append("mixed: of latency and energy one is better and one is worse")
    return said


def _no_overlap_line(found: StudyComparison, each: Against) -> str:
    """Why nothing was compared, and by which columns there would be something."""
    sides = (each.only_before, each.only_after)
    parting = separating(*sides)
    columns = [name for name in _USUAL if name in found.on and name not in parting]
    joined = [{tuple(map(_cell, map(key.get, columns))) for key in keys} for keys in sides]
    helps = parting and columns and joined[0] & joined[1]
    hint = f" (--on {','.join(columns)} compares them all the same)" if helps else ""
    return f"no point is in both studies: {found.no_overlap_reason(each)}{hint}"


def _counted(each: Against) -> str:
    counts = {v: sum(p.verdict == v for p in each.pairs) for v in (*_STYLES, "same", "neither")}
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{len(each.pairs)} pairs: {shown}"


def _point_name(key: Record, told: Sequence[str]) -> str:
    return " ".join(_key_text(n, key[n]) for n in told if _cell(key[n]))


def _key_text(column: str, value: object) -> str:
    if column == "batch":
        return f"batch {value}"
    dim = column.removeprefix(DIMENSION)
    return str(value) if dim == column else f"{dim} {value}"


def _unmatched_lines(
    keys: Sequence[Record], told: Sequence[str], where: str, most: int = 5
) -> list[str]:
    if not keys:
        return []
    names = [_point_name(key, told) for key in keys[:most]]
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return [f"only in {where}: {', '.join(names)}{more}"]

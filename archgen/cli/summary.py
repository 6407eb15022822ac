"""What a study prints: the columns that answer "which one?", and sentences for the rest."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from archgen.cli.terminal import PlainTable, plain_table
from archgen.lint import as_argument
from archgen.outcomes import frame as frames
from archgen.outcomes.answer import answer, compared_machines, provenance, smaller_machine
from archgen.outcomes.bottleneck import flat_notes
from archgen.outcomes.columns import LIMITS
from archgen.outcomes.estimated import ESTIMATED, has_figures, is_estimated
from archgen.outcomes.frame import Record, is_wrong, number, records
from archgen.outcomes.points import BUCKET, DIMENSION, Outcome, Point
from archgen.report.sheet import counted, plain
from archgen.scheduling import DEFAULT
from archgen.studies.results import Study
from archgen.studies.store import Store
from simmodel.arch.record import Arch

_KIB = 1024
_SPARE = (
    "host ops", "write MB", "local KiB", "matrix use", "of roofline", "DRAM read MB", "range ms",
    "interval ms", "samples/s", "schedule from", "of bound", "fusion", "halo", "objective",
    "effort", "held by", "chosen as", "status",
)  # fmt: skip
"""Columns that a narrow terminal may leave out, those that are missed least first."""
_LINES, _LONGEST_LINE = 4, 180
_SCREEN = 20
"""Points that a table shows without being asked for all."""
_ALL = "--all prints every one"
_REASONS = 3
"""Reasons that are said for operators on the host."""
_HOST_REASONS = "`archgen compile --report` and report.html"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


_CELLS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("latency_ms", "ms", plain),
    ("latency_range", "range ms", str),
    ("estimated_ms", "estimated ms", plain),
    ("chosen_as", "chosen as", str),
    ("interval_ms", "interval ms", plain),
    ("throughput_ips", "samples/s", plain),
    ("matrix_utilization", "matrix use", _percent),
    ("efficiency", "of roofline", _percent),
    ("of_bound", "of bound", _percent),
    ("held_by", "held by", lambda cause: LIMITS[cause].words if cause in LIMITS else cause),
    ("dram_read_bytes", "DRAM read MB", lambda v: f"{v / 1e6:.2f}"),
    ("dram_write_bytes", "write MB", lambda v: f"{v / 1e6:.2f}"),
    ("peak_local_bytes", "local KiB", lambda v: f"{v / _KIB:.0f}"),
    ("host_ops", "host ops", str),
)


def screenful(
    frame: pd.DataFrame, everything: bool, ordered: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """The points of `Study.frame` that a table shows, and a sentence where these are not all: of
    more than a screen the quickest of each network, or the first where they are `ordered`."""
    if everything or len(frame) <= _SCREEN:
        return frame, []
    if ordered:
        return frame.head(_SCREEN), [f"the first {_SCREEN} of {len(frame)} points ({_ALL})"]
    networks = {name: at for at, name in enumerate(frame["model"].unique())}
    quickest = frame.sort_values("latency_ms", kind="stable").groupby("model", sort=False)
    shown = quickest.head(max(1, _SCREEN // len(networks)))
    shown = shown.sort_values("model", key=lambda held: held.map(networks), kind="stable")
    return shown, [f"the quickest {len(shown)} of {len(frame)} points ({_ALL})"]


def results_table(frame: pd.DataFrame) -> PlainTable:
    """One row for each point; figures are missing where there is no result."""
    frame = frame.assign(latency_range=[*map(_latency_range, records(frame))])
    rows = records(frame)
    headings, names = _distinguishing(rows, "status")
    cells = [c for c in _CELLS if c[0] in frame and (c is _CELLS[0] or frame[c[0]].notna().any())]
    same = [name for name in ("dtype", "batch", "status") if frame[name].nunique() == 1]
    more = [">verified"] if frame["status"].ne(ESTIMATED).any() else []
    more += ["schedule from"] if frame["schedule_from"].notna().any() else []
    shown = (f">{heading}" for _, heading, _ in cells)
    table = plain_table(*headings, *shown, *more, spare=(*same, *_SPARE))
    for row in rows:
        texts: list[str] = [
            "" if pd.isna(row[name]) else show(row[name]) for name, _, show in cells
        ]
        lender: str = "" if pd.isna(row["schedule_from"]) else str(row["schedule_from"])
        texts += [_verdict(row) if heading == ">verified" else lender for heading in more]
        style = "red" if row["status"] == "failed" or is_wrong(row) else None
        table.add_row(*_row_cells(row, names), *texts, style=style)
    return table


def _latency_range(row: Record) -> str | float:
    """From the shortest to the longest latency by what the machine's file assumes."""
    low, high = number(row, "latency_low_ms"), number(row, "latency_high_ms")
    return f"{plain(low)} to {plain(high)}" if low < high else math.nan


def points_table(points: Sequence[Point], folder: Path) -> tuple[Table, int]:
    """One row for each point with what the study varies, and how many are finished in `folder`."""
    store = Store(folder)
    found = [store.load(point.label, point.key) for point in points]
    statuses = [outcome.status if outcome is not None else "" for outcome in found]
    identities = zip(points, statuses, strict=True)
    rows: list[Record] = [{**point.identity(), "finished": status} for point, status in identities]
    headings, names = _distinguishing(rows, "finished")
    table = plain_table(*headings, rows=(_row_cells(row, names) for row in rows))
    return table, sum(map(bool, statuses))


def _distinguishing(rows: Sequence[Record], last: str) -> tuple[list[str], list[str]]:
    """The columns that tell points apart, up to the `last`: their headings and names."""
    dims, chosen = frames.dimensions(rows), _varying_columns(rows)
    sizes, rest = map(frames.size_heading, dims), ["batch", "dtype", *chosen, last]
    return ["architecture", "model", *sizes, *rest], ["arch", "model", *dims, *rest]


def _varying_columns(rows: Sequence[Record]) -> list[str]:
    """What tells `rows` apart but for sizes, which say the ranges that they are of."""
    return [name for name in frames.varying_schedule_columns(rows) if not name.startswith(BUCKET)]


def _row_cells(row: Record, names: Sequence[str]) -> list[str]:
    """The cells of these columns, empty where a row has no such thing."""
    within = frames.length_ranges(row)
    named = {**row, "model": str(row["model"]).rsplit("/", 1)[-1]}
    cells = ((named.get(name), within.get(name.removeprefix(DIMENSION))) for name in names)
    return ["" if pd.isna(cell) else f"{cell}{_range_suffix(span)}" for cell, span in cells]


def summary_lines(study: Study, out: Path, plots: bool = True) -> Iterator[str]:
    """Reasons, wrong outputs and notes once each, then what was reused and where results are, and
    whether `plots` are among them."""
    frame, reused = study.frame, study.reused
    yield from reasons(frame, study.by_name)
    total = len(frame)
    yield from provenance(frame, study.about)
    yield from answer(frame, study.by_name)
    again = f", {reused} of them taken from an earlier run (--fresh runs them again)"
    what = "results and plots" if plots else "results"
    yield f"{counted(total, 'point')}{again if reused else ''}; {what} are in {out}"
    yield from next_command(frame, study, out)


_UNTOLD = {"--role", "--calibration", "--extension", "--no-host"}
"""Options that decide a program and that no row tells."""
_APART = frozenset("*?[,: ")
"""What names of machines may not hold where `archgen compare` picks them out of a folder."""


def next_command(frame: pd.DataFrame, study: Study, folder: Path) -> Iterator[str]:
    """What to type to know more about what the answer names: a run of what was estimated, the two
    machines side by side, or every decision of the only one's program on its longest network."""
    found, about = compared_machines(frame), study.about
    typed, words = shlex.split(about.command), []
    if found and is_estimated(frame):
        words = [*typed, "--best", "5"] if "--estimate" in typed and "--best" not in typed else []
    elif len(found) > 1:
        names = [(smaller_machine(found)[0] or found[1]).name, found[0].name]
        apart = not any(_APART & set(name) for name in names)
        words = ["archgen", "compare", *(f"{folder}:{name}" for name in names)] if apart else []
    elif found and about.command and not (about.source or _UNTOLD & set(typed)):
        row = max(found[0].best.values(), key=lambda row: number(row, "latency_ms"))
        file, arch = about.files.get(found[0].name), study.by_name[found[0].name]
        words = _compile_words(row, file, arch) if file and not frames.length_ranges(row) else []
    if words:
        yield f"Next: {shlex.join(words)}"


def _compile_words(row: Record, file: str, arch: Arch) -> list[str]:
    """The command that makes the program of `row` once more and explains it."""
    given = {
        "batch": (row["batch"], 1), "dtype": (row["dtype"], arch.types[0]),
        **{name: (row[name], usual) for name, usual in DEFAULT.columns.items()},
    }  # fmt: skip
    words = ["archgen", "compile", as_argument(file), "-m", str(row["model"])]
    for name, (value, usual) in given.items():
        words += [f"--{name}", str(value)] if value != usual else []
    for name, size in frames.sizes(row).items():
        words += ["--dim", f"{name}={size}"]
    for name in (name for name in row if name.startswith("pass.") and not pd.isna(row[name])):
        words += ["--pass", f"{name.removeprefix('pass.')}={row[name]}"]
    return [*words, "--report"]


def host_lines(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Which operators are the host's and why: what most points have first."""
    points: dict[str, set[str]] = {}
    operators: dict[str, set[str]] = {}
    for outcome in outcomes:
        for each in outcome.details.get("report", {}).get("host", ()):
            points.setdefault(each["reason"], set()).add(outcome.key)
            operators.setdefault(each["reason"], set()).add(each["operator"])
    ranked = sorted(points, key=lambda reason: -len(points[reason]))
    for reason in ranked[:_REASONS]:
        count = len(points[reason])
        said = f"{counted(count, 'point')}: {', '.join(sorted(operators[reason]))}"
        yield f"host ops: {said}: {shortened(reason, _HOST_REASONS)}"
    if len(ranked) > _REASONS:
        yield f"host ops: {len(ranked) - _REASONS} more reasons (in full: {_HOST_REASONS})"


def reasons(frame: pd.DataFrame, archs: Mapping[str, Arch]) -> Iterator[str]:
    """Why points have no result, which outputs are wrong, notes once each, and what was swept in
    vain; `archs` are machines by name."""
    rows = records(frame)
    chosen = _varying_columns(rows)
    said_of: dict[str, set[str]] = {}
    for row in rows:
        said = "" if has_figures(row) else f"{row['status']} {row['reason']}"
        said_of.setdefault(_program(row, chosen), set()).add(said)
    whole = {name for name, said in said_of.items() if len(said) == 1}  # at any length
    refused = (row for row in rows if not has_figures(row))
    yield from dict.fromkeys(
        f"{program if (program := _program(row, chosen)) in whole else _point_label(row, chosen)}: "
        f"{row['status']}: {shortened(str(row['reason']))}"
        for row in refused
    )
    for row in filter(is_wrong, rows):
        yield f"{_point_label(row, chosen)}: outputs are wrong{_error(row)}"
    notes = (row["note"] for row in rows if not is_wrong(row) and not pd.isna(row["note"]))
    for note in dict.fromkeys([*notes, *flat_notes(frame, archs)]):
        yield f"note: {note}"


def _verdict(row: Record) -> str:
    if pd.isna(row["verified"]):
        return "" if pd.isna(row.get("compared")) else "not checked"
    if is_wrong(row):
        return "NO"
    some = row.get("executed")
    return "yes" if pd.isna(some) else f"yes, {some} executed"


def shortened(text: str, where: str = "`reason` in results.csv") -> str:
    """The first lines of `text`, none of them too long, and `where` the rest is."""
    lines = text.splitlines()
    shown = [textwrap.shorten(line, _LONGEST_LINE, placeholder=" ...") for line in lines[:_LINES]]
    left = len(lines) - _LINES
    if left > 0 or max(map(len, lines), default=0) > _LONGEST_LINE:
        more = f"{left} more lines, " if left > 0 else ""
        shown.append(f"... {more}in full: {where}")
    return "\n    ".join(shown)


def _error(row: Record) -> str:
    """How far a wrong point is off, where that is a number, and what its note says of it."""
    share, note = row["operator_error"], row["note"]
    by = f" by {share:.3g} times what {row['dtype']} excuses" if share > 1 else ""  # not for NaN
    return by if pd.isna(note) else f"{by}: {shortened(str(note), '`note` in results.csv')}"


def _point_label(row: Record, chosen: list[str]) -> str:
    within = frames.length_ranges(row)
    given = {**frames.sizes(row), "batch": row["batch"]}
    return _label(
        row, (f"{n} {size}{_range_suffix(within.get(n))}" for n, size in given.items()), chosen
    )


def _program(row: Record, chosen: list[str]) -> str:
    """What the rows of one program have in common; where it is for ranges, the batch may follow
    from lengths."""
    within = frames.length_ranges(row)
    if not within:
        return _point_label(row, chosen)
    given = {**frames.sizes(row), **within}
    return _label(row, (f"{name} {size}" for name, size in given.items()), chosen)


def _label(row: Record, said: Iterable[str], chosen: list[str]) -> str:
    words = [row["arch"], row["model"], *said, row["dtype"], *(row[name] for name in chosen)]
    return " ".join(map(str, words))


def _range_suffix(span: str | None) -> str:
    return "" if span is None else f" of {span}"

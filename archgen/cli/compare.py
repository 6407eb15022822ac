"""`archgen compare`: what got better or worse between two studies, by how much and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
from rich.table import Table

from archgen.cli.options import Words
from archgen.cli.results import plain_rows
from archgen.cli.terminal import plain_table, show
from archgen.outcomes.frame import Record
from archgen.outcomes.point import DIMENSION
from archgen.studies.comparison import StudyComparison
from archgen.studies.comparison import compare as compared
from archgen.studies.differences import Change
from archgen.studies.store import writing

_FIGURES = (
    ("latency_ms", "latency"),
    ("energy_mj", "energy"),
    ("dram_bytes", "DRAM bytes"),
    ("peak_shared_bytes", "peak shared"),
    ("peak_local_bytes", "peak local"),
)
_STYLES = {"better": "green", "gained": "green", "worse": "red", "lost": "red", "mixed": "yellow"}


class Share(click.ParamType[float]):
    """`1%`, `1 %` or `0.01`."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The fraction."""
        text = str(value).strip()
        try:
            found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"{value!r}: expected a share such as 1% or 0.01", param, ctx)
        if not 0 <= found < 1:
            self.fail(f"{value!r}: expected a share of at least 0 and less than 100%", param, ctx)
        return found


@click.command()
@click.argument("before", type=click.Path(path_type=Path), metavar="DIR")
@click.argument("after", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--on",
    type=Words(),
    metavar="COLUMNS",
    help="Columns by which points are the same; model,batch compares machines.  "
    "[default: all that identify a point]",
)
@click.option(
    "--threshold",
    type=Share(),
    default="1%",
    show_default=True,
    help="Relative changes up to this are none.",
)
@click.option("--fail-if-worse", is_flag=True, help="Exit with 1 when a point got worse.")
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the pairs as CSV.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the pairs as JSON.")
def compare(
    before: Path,
    after: Path,
    on: tuple[str, ...] | None,
    threshold: float,
    fail_if_worse: bool,
    csv: Path | None,
    as_json: bool,
) -> None:
    """Compare the points of two studies: before and after a change, or two machines.

    Ratios are those of the second study to the first; below 1 is better. Below the table stand, for
    each pair whose latency changed, the causes: time spent computing, and stalls by cause, which
    add up to the change; and the layers behind it. Worse is a longer latency, more energy, or a
    result that is lost.

    \b
    archgen compare before after
    archgen compare out/edge out/server --on model,batch
    archgen compare main branch --threshold 2% --fail-if-worse
    """
    found = compared(before, after, on, threshold)
    if csv is not None:
        with writing(csv):
            found.frame.to_csv(csv, index=False)
    if as_json:
        click.echo(json.dumps(as_plain(found), indent=1))
    else:
        show([pairs_table(found)] if found.pairs else [], lines(found, before, after))
    sys.exit(1 if fail_if_worse and found.worse else 0)


def as_plain(found: StudyComparison) -> dict[str, Any]:
    """The comparison as JSON holds it."""
    only = {"before": found.only_before, "after": found.only_after}
    return {
        "pairs": plain_rows(found.frame),
        "geometric_means": found.means,
        "only": {which: plain_rows(pd.DataFrame(keys)) for which, keys in only.items()},
    }


def pairs_table(found: StudyComparison) -> Table:
    """One row for each pair, and the geometric means."""
    table = plain_table(show_footer=bool(found.means))
    told = _telling(found)
    for index, name in enumerate(told):
        heading = name.removeprefix(DIMENSION)
        table.add_column(heading, footer="" if index else "geometric mean", overflow="fold")
    table.add_column("ms", justify="right")
    table.add_column("-> ms", justify="right")
    means = found.means
    shown = [(name, heading) for name, heading in _FIGURES if name in means]
    for name, heading in shown:
        table.add_column(heading, footer=_times(means[name]), justify="right")
    table.add_column("verdict")
    for pair in found.pairs:
        latency = pair.figures.get("latency_ms")
        cells = [_cell(pair.key[name]) for name in told]
        cells += [_plain(latency.before), _plain(latency.after)] if latency else ["", ""]
        cells += [_ratio(pair.figures.get(name)) for name, _ in shown]
        table.add_row(*cells, pair.verdict, style=_STYLES.get(pair.verdict))
    return table


def _cell(value: object) -> str:
    return "" if value is None or value is pd.NA else str(value)


def _telling(found: StudyComparison, every: bool = False) -> list[str]:
    """The columns of the key that tell pairs apart, and the first of them in any case; `every`:
    those that tell apart also points that are no pairs."""
    keys = [pair.key for pair in found.pairs]
    keys += [*found.only_before, *found.only_after] if every else []
    usual = [name for name in ("arch", "model", "batch") if name in found.on]
    differ = [name for name in found.on if len({str(key[name]) for key in keys}) > 1]
    return [name for name in found.on if name in usual or name in differ] or [found.on[0]]


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _times(ratio: float) -> str:
    return f"x {ratio:.3f}"


def _ratio(change: Change | None) -> str:
    return _times(change.ratio) if change is not None else ""


def lines(found: StudyComparison, before: Path, after: Path) -> list[str]:
    """Why pairs changed, how many did, and which points have no partner."""
    told = _telling(found) if found.pairs else []
    said = [f"{_name(pair.key, told)}: {pair.why}" for pair in found.pairs if pair.why]
    for keys, folder in ((found.only_before, before), (found.only_after, after)):
        said += _alone(keys, _telling(found, every=True), folder)
    if not found.pairs:
        hint = "" if "arch" not in found.on else "; --on model,batch compares different machines"
        return [*said, f"no point is in both studies{hint}"]
    counts = {v: sum(p.verdict == v for p in found.pairs) for v in (*_STYLES, "same", "neither")}
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return [*said, f"{len(found.pairs)} pairs: {shown}"]


def _name(key: Record, told: Sequence[str]) -> str:
    return " ".join(_word(n, key[n]) for n in told if _cell(key[n]))


def _word(column: str, value: object) -> str:
    if column == "batch":
        return f"batch {value}"
    dim = column.removeprefix(DIMENSION)
    return str(value) if dim == column else f"{dim} {value}"


def _alone(keys: Sequence[Record], told: Sequence[str], folder: Path, most: int = 5) -> list[str]:
    if not keys:
        return []
    names = [_name(key, told) for key in keys[:most]]
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return [f"only in {folder}: {', '.join(names)}{more}"]

"""`archgen compare`: what got better or worse between studies, by how much and why."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from archgen.cli.codes import ExitCode, first_of
from archgen.cli.compare_report import as_plain, gate_findings, gate_lines, lines, pairs_table
from archgen.cli.gates import pipeline_options, publish
from archgen.cli.options import NamesParam
from archgen.cli.terminal import NARROW, show
from archgen.comparison.comparison import StudyComparison
from archgen.comparison.comparison import compare as compared
from archgen.comparison.gates import Judgement, gates_of, judged, usual_gates
from archgen.comparison.inputs import ComparedStudy, side_of
from archgen.outcomes.columns import COLUMNS
from archgen.outcomes.figures import SHORT, is_figure
from archgen.studies.design import StudyError
from archgen.studies.store import writing

_OPTION, _USUAL = "--fail-if-worse", "usual"
_COLUMNS = [known.name for known in COLUMNS]
_GATES = re.compile(r"[A-Za-z]\w*(:[^,:/\\]*)?(,[A-Za-z]\w*(:[^,:/\\]*)?)*")


class ShareParam(click.ParamType[float]):
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


class WithGates(click.Command):
    """A command whose `--fail-if-worse` may stand alone, also in front of a folder."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`args`, with what the option says where it stands alone."""
        filled: list[str] = []
        for index, word in enumerate(args):
            following = args[index + 1 : index + 2]
            bare = word == _OPTION and not any(map(_is_gates, following))
            filled += [f"{_OPTION}={_USUAL}"] if bare else [word]
        return super().parse_args(ctx, filled)


def _is_gates(word: str) -> bool:
    """Whether `word` says gates rather than a study."""
    if _GATES.fullmatch(word) is None or Path(word).exists():
        return False
    return ":" in word or all(part in SHORT or is_figure(part) for part in word.lower().split(","))


@click.command(cls=WithGates)
@click.argument("studies", nargs=-1, required=True, metavar="STUDY...")
@click.option(
    "--on",
    type=NamesParam(),
    metavar="COLUMNS",
    help="Columns by which points are the same; model,batch compares machines.  "
    "[default: all that identify a point]",
)
@click.option(
    "--threshold",
    type=ShareParam(),
    default="1%",
    show_default=True,
    help="Relative changes up to this are none.",
)
@click.option(
    _OPTION,
    "worse",
    multiple=True,
    metavar="[FIGURE[:SHARE],...]",
    help="Fail where a figure got worse by more than this, such as latency:2%,energy:5%, and where "
    "nothing could be compared.  [alone: latency and energy, by the threshold]",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the pairs as CSV.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the pairs as JSON.")
@pipeline_options
def compare(
    studies: tuple[str, ...],
    on: tuple[str, ...] | None,
    threshold: float,
    worse: tuple[str, ...],
    csv: Path | None,
    as_json: bool,
    junit: Path | None,
    annotate: str,
) -> None:
    """Compare the points of studies with those of the first: before and after a change, or several
    candidates.

    STUDY is a study's folder, or machines of one: out:edge, out:edge* or out:edge,server. Where
    each names one machine, machines are compared network by network.

    Ratios are those of each study to the first; below 1 is better. Below the table stand, for
    each pair whose latency changed, the causes: time spent computing, and stalls by cause, which
    add up to the change; and the layers behind it. Worse is a longer latency, more energy, or a
    result that is lost.

    \b
    archgen compare before after
    archgen compare out:edge out:edge-wide out:server
    archgen compare monday tuesday wednesday --on model,batch
    archgen compare main branch --fail-if-worse latency:2%,dram:10%

    Exit code 0: compared, and nothing that fails. 2: wrong input. 3: worse than --fail-if-worse
    allows. 5: a study has no point of the first, or a gate no figure to compare.
    """
    sides = _sides(studies)
    found = compared(*sides, on=on, threshold=threshold)
    said = _judged(found, worse, threshold)
    if csv is not None:
        with writing(csv):
            found.frame.to_csv(csv, index=False)
    if as_json:
        click.echo(json.dumps(as_plain(found), indent=1))
    else:
        show([pairs_table(found)] if found.pairs else [], lines(found), pipe=NARROW)
    for line in gate_lines(found, said):
        click.echo(line, err=True)
    publish(gate_findings(found, said, [side.study for side in sides]), junit, annotate)
    apart = any(not each.pairs for each in found.against)
    failed = {ExitCode.WORSE: said.stopped, ExitCode.NOTHING_JUDGED: said.idle or apart}
    sys.exit(first_of([code for code, why in failed.items() if why]))


def _sides(texts: Sequence[str]) -> list[ComparedStudy]:
    """The studies that `texts` name. Raises StudyError with what is wrong with any of them."""
    found: list[ComparedStudy] = []
    wrong: list[str] = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(side_of(text, number))
        except StudyError as mistake:
            wrong += mistake.mistakes
    if wrong:
        raise StudyError(dict.fromkeys(wrong))
    return found


def _judged(found: StudyComparison, words: Sequence[str], threshold: float) -> Judgement:
    """What the gates of the command line say; nothing where there are none."""
    if not words:
        return Judgement((), ())
    named = [part for word in words for part in word.split(",") if part != _USUAL]
    columns = {name for pair in found.pairs for row in (pair.before, pair.after) for name in row}
    gates = gates_of(named, threshold, sorted(columns or _COLUMNS))
    if len(named) < sum(len(word.split(",")) for word in words):
        gates = tuple(dict.fromkeys([*gates, *usual_gates(threshold)]))
    return judged(found, gates, all_needed=bool(named))

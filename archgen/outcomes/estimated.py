"""Points that were estimated, beside points that were run.

The one idea: estimates are off mostly one way, so an estimate is compared with estimates. Where a
study has any, comparisons are of what was estimated of every point, also of those that were run
since; what these runs gave stands beside it (`ran.latency_ms`). Where estimates are equal, runs
decide: a point that ran comes before one that did not, and of two that ran the better run. Which
points of a study by estimates are run, these have said too (`SelectedPoint`, `chosen_words`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from archgen.outcomes.figures import is_figure
from archgen.outcomes.frame import Frame, Record, number
from archgen.outcomes.fronts import FASTEST, FRONT, NEXT
from archgen.outcomes.points import Row

ESTIMATED = "estimated"
"""Status of an outcome that no run has made."""
GUESS = "estimated_ms"
"""Column of what was estimated of a point that was run since."""
CHOSEN = "chosen_as"
"""Column of why it was run."""
OFF = 0.05
"""By how much estimates are off in the median (docs/studies.md): times that differ by less are as
good as equal."""
COSTS = ("latency_ms", "area_mm2")
"""What estimates are chosen by: less is better."""
_RAN = "ran."
TIMES = ("latency_ms", "latency_cycles", "latency_area")
"""What grows with the time of a point."""
RATES = ("throughput_ips", "throughput_per_mm2", "throughput_low_per_mm2",
         "throughput_high_per_mm2")  # fmt: skip
"""What falls with it."""
_DIGITS = 12


@dataclass(frozen=True)
class SelectedPoint:
    """A point that is run because of its estimate."""

    expected: float
    """Milliseconds."""
    why: str
    """FASTEST, FRONT or NEXT; empty where an older study does not say."""

    @property
    def row(self) -> Row:
        """What a point that was run says of it."""
        return {GUESS: self.expected} | ({CHOSEN: self.why} if self.why else {})


def chosen_words(rows: Sequence[Record]) -> str:
    """`6 of 60 points were run: the fastest, 5 along the estimated front of latency and area`;
    empty where estimates have chosen none."""
    counts = Counter(row.get(CHOSEN) for row in rows)
    first, along, rest = (counts[why] for why in (FASTEST, FRONT, NEXT))
    if not first:
        return ""
    ways = ["the fastest" if first == 1 else f"{first} fastest for their network"]
    ways += [f"{along} along the estimated front of latency and area"] if along else []
    ways += [f"{rest} next to {'it' if first + along == 1 else 'these'}"] if rest else []
    run = first + along + rest
    return f"{run} of {len(rows)} points {'was' if run == 1 else 'were'} run: {', '.join(ways)}"


def has_figures(row: Record) -> bool:
    """Whether a point was run, or estimated."""
    return row["status"] in ("ok", ESTIMATED)


def is_estimated(frame: Frame) -> bool:
    """Whether some point of a study was estimated and not run."""
    return bool((frame["status"] == ESTIMATED).any())


def runs(frame: Frame) -> Frame:
    """The points that were not just estimated."""
    return frame[frame["status"] != ESTIMATED] if is_estimated(frame) else frame


def runs_first(frame: Frame) -> Frame:
    """`frame` with what was only estimated after all else."""
    return frame.sort_values("status", key=lambda held: held.eq(ESTIMATED), kind="stable")


def like_with_like(frame: Frame) -> Frame:
    """`frame` as its points are compared: where some are estimated, with the estimate of every
    point, and without figures that runs alone have. `run_of` says what a run gave."""
    guessed = frame["status"] == ESTIMATED
    if not guessed.any():
        return frame
    unknown = frame[guessed].isna().all()
    made = frame.drop(columns=[n for n in map(str, frame) if unknown[n] and is_figure(n)])
    if GUESS not in frame:
        return made
    ran = frame["status"].eq("ok") & frame[GUESS].notna()
    longer = (frame["latency_ms"] / frame[GUESS]).where(ran, 1.0)
    for name in (name for name in (*TIMES, *RATES, "of_bound") if name in made):
        given = frame[name].astype("float64")
        made[f"{_RAN}{name}"] = given.where(ran)
        scaled = given / longer if name in TIMES else given * longer
        # To as many digits as a quotient of estimates keeps, so that equal ones stay equal.
        made[name] = scaled.map(lambda value: float(f"{value:.{_DIGITS}g}"))
    return made


def by_merit(frame: Frame, name: str, rising: bool = True) -> Frame:
    """The rows of a frame of `like_with_like` in order of a column; where that is equal those that
    ran first, by what their runs gave."""
    keys = frame[["status", name]].set_axis(["status", "value"], axis=1)
    keys["run"] = frame.get(f"{_RAN}{name}")
    keys["guess"] = keys["status"].eq(ESTIMATED)
    order = keys.sort_values(
        ["value", "guess", "run"], ascending=[rising, True, rising], kind="stable"
    )
    return frame.loc[order.index]


def run_of(row: Record) -> Record | None:
    """A row of `like_with_like` with the figures of its run; None where it was only estimated, or
    nothing was."""
    own = {n.removeprefix(_RAN): row[n] for n in row if n.startswith(_RAN) and number(row, n) >= 0}
    return row | own if own else None

"""Points that were estimated, beside points that were run.

The one idea: estimates are off mostly one way, so an estimate is compared with estimates. Where a
study has any, comparisons are of what was estimated of every point, also of those that were run
since; what these runs gave stands beside it (`ran.latency_ms`). Where estimates are equal, runs
decide: a point that ran comes before one that did not, and of two that ran the better run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archgen.outcomes.figures import is_figure
from archgen.outcomes.frame import Frame, Record, missing, number
from archgen.outcomes.fronts import FASTEST, FRONT, NEXT

ESTIMATED = "estimated"
"""Status of an outcome that no run has made."""
GUESS, ENERGY_GUESS = "estimated_ms", "estimated_mj"
"""Columns of what was estimated of a point that was run since."""
CHOSEN = "chosen_as"
"""Column of why it was run."""
OFF = 0.05
"""By how much estimates are off in the median (docs/studies.md): times that differ by less are as
good as equal."""
COSTS = ("latency_ms", "area_mm2")
"""What estimates are chosen by: less is better."""
_RAN = "ran."
_GROWTH: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("latency_ms", "latency_cycles", "latency_area"), (1, 0)),
    **dict.fromkeys(("throughput_ips", "throughput_per_mm2", "throughput_low_per_mm2",
                     "throughput_high_per_mm2", "tops_per_mm2", "of_bound"), (-1, 0)),
    **dict.fromkeys(("tops_per_w", "throughput_per_watt"), (0, -1)),
    "average_w": (-1, 1),
}  # fmt: skip
_DIGITS = 12


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


def growth(name: str) -> tuple[int, int]:
    """The powers of time and of energy with which a figure grows; estimates know those that do."""
    is_energy = name.startswith("energy_") and name.endswith("_mj")
    return (0, 1) if is_energy else _GROWTH.get(name, (0, 0))


@dataclass(frozen=True)
class EstimateError:
    """How many times their estimates runs took, the least and the most."""

    time: tuple[float, float] = (0.77, 1.39)
    energy: tuple[float, float] | None = (0.82, 2.90)
    """None: not known."""
    whose: str = "runs on shipped machines"
    """Unless a study has runs of its own, those of docs/studies.md."""

    @classmethod
    def of(cls, rows: Sequence[Record]) -> EstimateError:
        """Of the points in `rows` that were both estimated and run; of none the documented one."""
        both = [row for row in rows if number(row, "latency_ms") > 0 and number(row, GUESS) > 0]
        time = [number(row, "latency_ms") / number(row, GUESS) for row in both]
        energy = [
            number(row, "energy_mj") / number(row, ENERGY_GUESS)
            for row in both if number(row, ENERGY_GUESS) > 0
        ]  # fmt: skip
        if not time:
            return cls()
        whose = f"{len(both)} of these points {'was' if len(both) == 1 else 'were'} run and"
        return cls((min(time), max(time)), (min(energy), max(energy)) if energy else None, whose)

    @property
    def percent(self) -> str:
        """Of a time, beside it: `-9 to +31 % when run`."""
        ends = " to ".join(dict.fromkeys(f"{100 * (end - 1):+.0f}" for end in self.time))
        return f"{ends} % {'on shipped machines' if self == EstimateError() else 'when run'}"

    @property
    def sentence(self) -> str:
        """`2 of these points were run and took 1.02 to 1.15 times the estimated time`."""
        spans = {"time": self.time, "energy": self.energy}
        took = [
            f"{' to '.join(dict.fromkeys(f'{end:.2f}' for end in ends))} times the estimated {what}"
            for what, ends in spans.items() if ends is not None
        ]  # fmt: skip
        return f"{self.whose} took {' and '.join(took)}"


def has_figures(row: Record) -> bool:
    """Whether a point was run, or estimated."""
    return row["status"] in ("ok", ESTIMATED)


def is_estimated(frame: Frame) -> bool:
    """Whether some point of a study was estimated and not run."""
    return bool((frame["status"] == ESTIMATED).any())


def simulated(frame: Frame) -> Frame:
    """The points that were not just estimated."""
    return frame[frame["status"] != ESTIMATED] if is_estimated(frame) else frame


def comparable(frame: Frame) -> Frame:
    """`frame` as its points are compared: where some are estimated, with the estimate of every
    point, and without figures that runs alone have. `run_figures` says what a run gave."""
    guessed = frame["status"] == ESTIMATED
    if not guessed.any():
        return frame
    unknown = frame[guessed].isna().all()
    made = frame.drop(columns=[n for n in map(str, frame) if unknown[n] and is_figure(n)])
    if GUESS not in frame:
        return made
    # A sum of what grows with the time and what grows with the energy, which nobody keeps apart.
    made = made.drop(columns="usd_per_million", errors="ignore")
    pairs = ("latency_ms", GUESS), ("energy_mj", ENERGY_GUESS)
    known = frame.reindex(columns=[*pairs[0], *pairs[1]]).astype("float64")
    ran = frame["status"].eq("ok") & known[GUESS].notna()
    longer, more = ((known[run] / known[guess]).where(ran, 1.0) for run, guess in pairs)
    for name in map(str, [*made]):
        in_time, in_energy = growth(name)
        if not (in_time or in_energy):
            continue
        given = made[name].astype("float64")
        made[f"{_RAN}{name}"] = given.where(ran)
        scaled = given / longer**in_time / more**in_energy
        # To as many digits as a quotient of estimates keeps, so that equal ones stay equal.
        made[name] = scaled.map(lambda value: float(f"{value:.{_DIGITS}g}"))
    return made


def ranked_by(frame: Frame, name: str, rising: bool = True) -> Frame:
    """The rows of a frame of `comparable` in order of a column; where that is equal those that
    ran first, by what their runs gave."""
    keys = frame[["status", name]].set_axis(["status", "value"], axis=1)
    keys["run"] = frame.get(f"{_RAN}{name}")
    keys["guess"] = keys["status"].eq(ESTIMATED)
    order = keys.sort_values(
        ["value", "guess", "run"], ascending=[rising, True, rising], kind="stable"
    )
    return frame.loc[order.index]


def run_figures(row: Record) -> Record | None:
    """A row of `comparable` with the figures of its run; None where it was only estimated, or
    nothing was."""
    if missing(row.get(f"{_RAN}latency_ms")):
        return None
    own = {n.removeprefix(_RAN): row[n] for n in row if n.startswith(_RAN) and number(row, n) >= 0}
    return row | own if own else None

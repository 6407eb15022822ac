"""The points of a study with names, anchors and their machine.

The one idea: points are compared within a *workload* (model, batch, and element type where a
machine has several); what else a machine's points differ in (schedules, swept fields) is its
*choice*, and a machine is judged by the best choice that it has for a workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from matplotlib.figure import Figure

from archgen.outcomes import frame as frames
from archgen.outcomes.axes import workload
from archgen.outcomes.estimated import ESTIMATED, comparable, has_figures
from archgen.outcomes.frame import Frame, Record, missing, number, records
from archgen.outcomes.points import Outcome, StudyMetadata
from archgen.plots.panels import several_types
from simmodel.arch.record import Arch

# What a report is about: the part of a study that it reads.


class ReportSubject(Protocol):
    """A study (`archgen.studies.results.Study`): its finished points and machines, what it was made
    of, one row for each point, its machines by their names, and figures that compare points."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]: ...
    @property
    def about(self) -> StudyMetadata: ...
    @property
    def frame(self) -> Frame: ...
    @property
    def by_name(self) -> dict[str, Arch]: ...
    @property
    def overviews(self) -> dict[str, Figure]: ...


@dataclass(frozen=True)
class PointView:
    """One point."""

    index: int
    """Its place in the study."""
    row: Record = field(repr=False)
    arch: Arch = field(repr=False)
    workload: str
    choice: str
    """What tells it from other points of its machine and workload; may be empty."""
    compared: Record = field(default_factory=dict, repr=False)
    """The row as points are compared, where that is another (`archgen.outcomes.estimated`)."""

    @property
    def anchor(self) -> str:
        """Id of its section in the page."""
        return f"point-{self.index + 1}"

    @property
    def machine(self) -> str:
        return self.arch.name

    @property
    def label(self) -> str:
        """`edge: resnet50, batch 4 (fusion none)`."""
        chosen = f" ({self.choice})" if self.choice else ""
        return f"{self.machine}: {self.workload}{chosen}"

    @property
    def done(self) -> bool:
        """Whether there is a result that may be compared: of some work, and not wrong."""
        idle = frames.does_nothing(self.row)
        return has_figures(self.row) and self.time > 0 and not (self.wrong or idle)

    @property
    def time(self) -> float:
        """Milliseconds that comparisons go by."""
        return number(self.compared or self.row, "latency_ms")

    @property
    def has_run(self) -> bool:
        """Whether it was simulated."""
        return str(self.row["status"]) == "ok" and self.get("latency_ms") > 0

    @property
    def is_guess(self) -> bool:
        """Whether it was estimated and not run."""
        return str(self.row["status"]) == ESTIMATED

    @property
    def wrong(self) -> bool:
        """Whether its outputs were compared and found wrong."""
        return frames.is_wrong(self.row)

    def get(self, column: str, missing: float = math.nan) -> float:
        """The value of a column of numbers, `missing` where it has none."""
        return number(self.row, column, missing)

    def text(self, column: str) -> str:
        """The value of a column of text, empty where it is missing."""
        value = self.row.get(column)
        return "" if missing(value) else str(value)

    @property
    def per_sample_mj(self) -> float:
        return self.get("energy_mj") / self.get("batch")

    @property
    def per_mm2(self) -> float:
        """Samples per second and square millimetre that comparisons go by."""
        return number(self.compared or self.row, "throughput_per_mm2")


def point_views(study: ReportSubject) -> list[PointView]:
    """Every point of `study`, in its order."""
    archs = study.by_name
    rows, compared = records(study.frame), records(comparable(study.frame))
    chosen = frames.varying_schedule_columns(rows)
    types = several_types(rows)
    made = []
    for index, (row, like) in enumerate(zip(rows, compared, strict=True)):
        load = f"{workload(row)}, {row['dtype']}" if types else workload(row)
        choice = ", ".join(f"{name.removeprefix('pass.')} {row[name]}" for name in chosen)
        made.append(PointView(index, row, archs[str(row["arch"])], load, choice, like))
    return made


def best_by_workload(points: Iterable[PointView]) -> dict[str, PointView]:
    """The fastest result of each workload that has any; of equal estimates the best that ran."""
    done = frames.grouped((point for point in points if point.done), lambda point: point.workload)
    return {
        load: min(own, key=lambda each: (each.time, each.is_guess, each.get("latency_ms")))
        for load, own in done.items()
    }

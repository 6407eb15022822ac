"""What a study is told beside its machines and networks, as two records.

The one idea: `StudyOptions` decides what the points are, so all of it is part of their keys;
`Running` decides how and where they are run, and nothing of it changes a result. Calls take the
records, or their fields by name, or both: `study(archs, models, running=usual, fresh=True)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, TypeAlias, TypeVar

from archgen.models.extents import Extents
from archgen.outcomes.points import Execute
from archgen.scheduling import DEFAULT, Settings
from archgen.schema.tree import guess

Item = TypeVar("Item")
Several: TypeAlias = Item | Sequence[Item]
"""Values, or the only one."""
Named = str | PathLike[str]


@dataclass(frozen=True)
class StudyOptions:
    """What is compared beside machines and networks, and what every point is."""

    fusion: Several[str] = (DEFAULT.fusion,)
    """How layers are partitioned into groups. This and the three below are choices of
    `archgen.scheduling`; a point for each combination."""
    halo: Several[str] = (DEFAULT.halo,)
    """What neighbouring tiles share."""
    objective: Several[str] = (DEFAULT.objective,)
    """What schedules are compared by."""
    effort: Several[int] = (DEFAULT.effort,)
    """How long the compiler may search: 0 (fast) to 3 (wide)."""
    passes: Sequence[Settings] = ((),)
    """Settings of options of passes (`archgen.scheduling`), each a tuple of (option, value)."""
    verify: bool = True
    """Whether all outputs are compared with ONNX Runtime's."""
    host: bool = True
    """Whether operators may be left to the host processor."""
    dims: Mapping[str, str | Several[int] | Extents] | None = None
    """Sizes of free input dimensions, as for `archgen.load_model`; a point for each combination.
    Of a range "1..512" one program runs at its ends and the powers of two between."""
    roles: Mapping[str, str] | None = None
    """What inputs are, as for `archgen.load_model`."""
    calibration: Named | None = None
    """.npz file with samples for quantization, one array for each input."""
    isolated: bool = False
    """Whether no point takes the schedule of a machine with less, however quick it is."""
    execute: Execute = "distinct"
    """What of a program is executed to check it: `distinct`, of equal layers the first, the second
    and the last, or `all`."""
    in_flight: int = 1
    """Inferences that follow each other in one program: of several, `throughput_ips` is what came
    out."""
    extensions: Several[Named] = ()
    """Files that register operators and the like (docs/extending.md)."""


@dataclass(frozen=True)
class Running:
    """How and where a study is run; nothing of it changes a result."""

    jobs: int = 1
    """Worker processes; more than 1 needs `if __name__ == "__main__":` in a script."""
    out: Named | None = None
    """Folder for stored points, frames and plots; None stores nothing."""
    fresh: bool = False
    """Whether points are run again that `out` already has."""
    timeout: float | None = None
    """Seconds that a point may take; None: what the study file says, else no run of the model may
    take more than ten minutes."""
    memory: int | None = None
    """Bytes that a worker process may take; None: its share of the machine's."""
    executor: str | Executor = "local"
    """`local`, `here` (in this process, without bounds), or an executor of processes that have this
    version of archgen, which is given `jobs` points at a time: that of a cluster, say."""
    command: str = ""
    """What was typed, for the record."""
    trace: bool = False
    """Whether each run is also kept as a file that the Perfetto viewer opens, `*.pftrace.gz`."""
    plots: bool = True
    """Whether plots are drawn in the end: it takes seconds, however short the points are."""
    levers: bool | None = None
    """Whether changes of a machine are tried on each run, for the report to say what they bring,
    and in a small study compiled for; None: where plots are drawn."""

    @property
    def tries(self) -> bool:
        """Whether changes of machines are tried."""
        return self.plots if self.levers is None else self.levers


def with_fields(given: Mapping[str, Any], *records: Any) -> Iterator[Any]:
    """The records with the fields of `given` in their places. Raises TypeError for a field that
    none of them has."""
    names = [{field.name for field in fields(record)} for record in records]
    known = {"batches"}.union(*names)
    for name in given:
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}{guess(name, sorted(known))}")
    for record, own in zip(records, names, strict=True):
        yield replace(record, **{name: given[name] for name in own & given.keys()})

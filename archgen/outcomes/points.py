"""One point of a study, and what became of it.

The one idea: a point is small and picklable (a model travels as a name or path, never as weights),
and an outcome is plain data: rows of numbers and text that JSON can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from archgen.extensions import Extension
from archgen.models.extents import Ranges
from archgen.scheduling import DEFAULT, Scheduling
from simmodel.arch.record import Arch

Scalar = str | int | float | bool | None
Row = dict[str, Scalar]
Execute = Literal["distinct", "all"]
"""What of a program is executed: of equal layers the first, second and last, or everything."""
BUCKET = "bucket."
"""What columns of ranges of such sizes start with."""
DIMENSION = "dim."
"""What columns of sizes of free input dimensions start with."""
FIELD = "arch."
"""What columns of fields of the architecture start with."""
OPTION = "model."
"""What columns of options of networks of the zoo start with."""
SWITCH = "pass."
"""What columns of options of compiler passes start with."""


@dataclass(frozen=True)
class Point:
    """One architecture, model, batch and element type."""

    key: str
    """SHA-256 (hex) of all that decides the result."""
    arch: Arch
    model: str
    """Name in the zoo (with options), or path of an ONNX file."""
    batch: int
    dtype: str
    dims: tuple[tuple[str, int], ...] = ()
    """Sizes of free input dimensions, by name."""
    ranges: Ranges = ()
    """Dimensions that are known only when the program runs: it is made for all of a range."""
    roles: tuple[tuple[str, str], ...] = ()
    """What a user says of inputs, by name."""
    calibration: str | None = None
    """Path of an .npz file with one array for each input."""
    verify: bool = True
    host: bool = True
    """Whether operators may be left to the host processor."""
    extensions: tuple[Extension, ...] = ()
    """Files that register what it is compiled with, beside what is shipped."""
    scheduling: Scheduling = DEFAULT
    settings: tuple[tuple[str, Scalar], ...] = ()
    """Fields of the architecture that a sweep has set, with their values."""
    family: str = ""
    """The machine that `arch` is a variant of; empty: of none but itself."""
    network: str = ""
    """SHA-256 (hex) of the network's content; `key` has it too."""
    schedule_from: Arch | None = None
    """The machine that it is compiled for; None: `arch` itself, as for all points that are asked
    for (`archgen.studies.schedule_transfer`)."""
    execute: Execute = "distinct"
    in_flight: int = 1
    """Inferences that follow each other in one program, for `throughput_ips`."""
    trace: bool = False
    """Whether its run is also wanted as a file for a viewer; this is no part of `key`."""

    @property
    def label(self) -> str:
        """`edge resnet50 b1 int8`, sizes, and choices of the schedule that are not the usual."""
        usual = DEFAULT.columns
        chosen = (f" {k}={v}" for k, v in self.scheduling.columns.items() if v != usual.get(k))
        sizes = "".join(f" {name}={size}" for name, size in self.dims)
        sizes += "".join(f" of {name}={span}" for name, span in self.ranges)
        lent = f" from {self.schedule_from.name}" if self.schedule_from is not None else ""
        point = f"{self.arch.name} {self.model} b{self.batch} {self.dtype}"
        return f"{point}{sizes}{''.join(chosen)}{lent}"

    @property
    def lengths(self) -> dict[str, int]:
        """Sizes of the dimensions that are known only when the program runs."""
        ranges = dict(self.ranges)
        return {name: size for name, size in self.dims if name in ranges}

    @property
    def range_point(self) -> Point | None:
        """What points at sizes of the same ranges have in common: one program for all; None where
        there are no ranges."""
        if not self.ranges:
            return None
        ranges = dict(self.ranges)
        dims = tuple((name, size) for name, size in self.dims if name not in ranges)
        return replace(self, key="", batch=0, dims=dims, trace=False)

    def identity(self) -> Row:
        """The columns that say which point it is."""
        return {
            "arch": self.arch.name,
            "family": self.family or self.arch.name,
            "model": self.model,
            "batch": self.batch,
            "dtype": self.dtype,
            **{f"{DIMENSION}{name}": size for name, size in self.dims},
            **{f"{BUCKET}{name}": str(span) for name, span in self.ranges},
            **self.scheduling.columns,
            **{f"{FIELD}{field}": value for field, value in self.settings},
        }


@dataclass(frozen=True)
class Outcome:
    """What became of a point: its row of the frame, its layers and further details."""

    key: str
    label: str
    row: Row
    layers: list[Row] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    """JSON-ready: metrics in full, the compiler's report, a traceback after a failure."""
    tables: dict[str, bytes | Path] = field(default_factory=dict, repr=False)
    """Parquet, or where it is stored: `spans` and `levels` of the run, where there was one; and
    `trace`, for a viewer, where that is wanted."""
    network: str = ""
    """Hash of the model's content; empty in files of older versions."""
    reused: bool = False
    """Whether it was read from an earlier run."""

    @property
    def status(self) -> str:
        """ok, does_not_fit, unsupported or failed."""
        return str(self.row["status"])

    @property
    def good(self) -> bool:
        """Whether nothing went wrong: an answer was found and not disproved."""
        return self.status != "failed" and self.row.get("verified") is not False


# What a study was made of, for whoever finds its folder or reads its report.


@dataclass(frozen=True)
class StudyMetadata:
    """What a study was made of, beside its points."""

    name: str = ""
    description: str = ""
    command: str = ""
    """What was typed, where that is known."""
    source: str = field(default="", repr=False)
    """Text of the study file, where there was one."""
    code: str = ""
    """Hash of the sources that computed it."""
    version: str = ""
    started: str = ""
    """Local time, as ISO 8601 writes it."""
    git: str = ""
    """Revision of the repository that it was started in; `+`: with changes."""
    total: int = 0
    """Points that it consists of, finished or not."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Of its machines, by name: the file that describes them, or that they extend, as it was named
    where the study was started."""
    isolated: bool = False
    """Whether no machine runs another's schedule."""

"""Study files: which machines, networks and options are to be compared, as YAML.

The one idea: the records below are the format. Messages, the JSON Schema for editors and the page
of the documentation follow from their fields; `archgen.studies.design` makes points of what was
read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from archgen.models.extents import extents
from archgen.outcomes.points import Execute
from archgen.schema.json_schema import view_of
from archgen.schema.record import RecordReader, distinct, existing
from archgen.schema.source import STUDY, read_tree
from archgen.schema.tree import Mistake, Table, plain, without
from simmodel.arch.base import ElementType, FrozenModel

# The sections `explore` and `sensitivity` of study files.

Share = Annotated[float, Field(gt=0, le=1)]
AboveOne = Annotated[float, Field(gt=1)]
Quantity = str | int | float
Direction = dict[str, Literal["min", "max"]]


class ValueRange(FrozenModel):
    """Values between two, both included: `{from: 128 KiB, to: 2 MiB}`."""

    from_: Quantity = Field(alias="from")
    to: Quantity
    scale: Literal["powers of two", "linear", "log"] = "powers of two"
    steps: Annotated[int, Field(ge=2, le=1000)] | None = None
    """How many values, of the scales linear (default 5) and log (default: each twice as large)."""


class Screen(FrozenModel):
    """What the cost model decides before anything is run in full."""

    keep: Share = 0.4
    """Share of the machines proposed at a time that are run in full; 1: all, none is screened."""
    margin: AboveOne = 1.5
    """A target is given up where the estimate misses it by more than this factor."""


class Explore(FrozenModel):
    """Which machines to look at, and what is asked of them."""

    parameters: Annotated[dict[str, list[Any] | ValueRange], Field(min_length=1)]
    """Field -> values to choose among, or a range: `memories.local.size: [256 KiB, 1 MiB]`."""
    objectives: Annotated[tuple[str | Direction, ...], Field(min_length=1)] = (
        "latency_ms",
        "area_mm2",
    )
    """Numeric columns of the results; `{throughput_ips: max}` says which way is better."""
    constraints: tuple[str, ...] = ()
    """`latency_ms <= 5`, `peak_local_bytes <= 512 KiB`."""
    trials: PositiveInt = 50
    """Machines to look at, of those that the space has."""
    batch: PositiveInt = 16
    """Machines that are proposed at a time."""
    seed: int = 0
    sampler: Literal["tpe", "nsga2", "random"] = "tpe"
    """Who proposes: Optuna's TPE or NSGA-II, or chance."""
    screen: Screen = Screen()


class Sensitivity(FrozenModel):
    """Which fields to change around a machine."""

    parameters: Annotated[dict[str, AboveOne | list[Any] | ValueRange | None], Field(min_length=1)]
    """Field -> factor (null: the usual one), values or a range; the machine's own is added."""
    factor: AboveOne = 2.0
    """How much smaller and larger a field becomes in a step."""
    steps: PositiveInt = 1
    """Steps in each direction."""
    metric: str = "latency_ms"
    pairs: bool = True
    """Whether fields are changed two at a time as well."""
    worth: Share = 0.02
    """Relative gain below which a step no longer helps."""


Item = TypeVar("Item")
_ROUNDS = 4
"""In which what is wrong with a file is left out: more where one part depends on another."""


class _Several:
    """Marks a tuple that a file may write as one value where there is but one."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_listed, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


Several = Annotated[tuple[Item, ...], Field(min_length=1), _Several()]


def _checked_ranges(given: str) -> str:
    extents(given, ranges=True)
    return given


Fusion = Literal["none", "line", "branch", "branchx", "optimal"]
Halo = Literal["auto", "rolling", "recompute"]
Objective = Literal["latency", "throughput", "memory", "energy-proxy"]
Effort = Annotated[int, Field(ge=0, le=3)]
Values = dict[str, Any]
Spans = Annotated[str, AfterValidator(_checked_ranges)]
"""Ranges of sizes, of which each has one program: `1..128, 129..512`."""
Sizes = dict[str, Several[NonNegativeInt] | Spans]


class Machines(FrozenModel):
    """A family of machines: a file, some of its fields set, others swept."""

    extends: str
    """File or shipped name."""
    name: str | None = None
    """Of the machines; `{cores}` stands for a field's value, by the field's last word."""
    set: Values = Field(default_factory=dict)
    """Fields that all of them have otherwise: `memories.dram.bandwidth: 32 GB/s`."""
    sweep: dict[str, list[Any]] = Field(default_factory=dict)
    """Fields with the values to try; every combination is a machine."""
    cases: list[Values] = Field(default_factory=list)
    """Values that belong together; each case is a machine, for each combination of the sweep."""


class StudyNetwork(FrozenModel):
    """A network with what holds for it alone."""

    model: str
    """Zoo name with options, or an ONNX file."""
    batches: Several[PositiveInt] | None = None
    dims: Sizes = Field(default_factory=dict)
    """Sizes of free input dimensions; of several each is a point."""
    roles: dict[str, str] = Field(default_factory=dict)
    """What inputs are, where evidence misleads: `{cache: state, x: batch:1}`."""
    calibration: str | None = None
    """.npz file with samples for quantization."""


class Compiler(FrozenModel):
    """How networks are compiled; of several values each is tried with each of the others."""

    fusion: Several[Fusion] = ("optimal",)
    halo: Several[Halo] = ("auto",)
    objective: Several[Objective] = ("latency",)
    effort: Several[Effort] = (1,)
    passes: Values = Field(default_factory=dict)
    """Any option of any pass: `keep.share: [0.5, 0.75]`. `archgen explain passes` lists them."""


class StudyFile(FrozenModel):
    """What stands in a study file."""

    name: str = ""
    description: str = ""
    archs: Several[str | Machines]
    """Files, patterns and shipped names, or families with sweeps."""
    models: Several[str | StudyNetwork]
    batches: Several[PositiveInt] = ()
    """Samples in one inference; default: what each model's file fixes, else 1."""
    dtypes: Several[ElementType] | None = None
    """Element types of the networks; default: each machine's first."""
    compiler: Compiler = Compiler()
    only: list[dict[str, Any]] = Field(default_factory=list)
    """Points to keep: those that agree with one of these in every column it names."""
    skip: list[dict[str, Any]] = Field(default_factory=list)
    """Points to leave out, likewise: `{arch: "tpu*", batch: [4, 16]}`."""
    verify: bool = True
    host: bool = True
    isolated: bool = False
    """Whether every point keeps its own schedule, however quick that of a machine with less is."""
    execute: Execute = "distinct"
    """What of a program is executed to check it: `distinct`, of equal layers the first, the second
    and the last, or `all`."""
    in_flight: PositiveInt = 1
    """Inferences that follow each other in one program: of several, `throughput_ips` is what came
    out."""
    dims: Sizes = Field(default_factory=dict)
    """Sizes of free input dimensions of all networks; of several each is a point."""
    calibration: str | None = None
    extensions: Several[str] | None = None
    """Python files that register operators, functions or passes (docs/extending.md)."""
    timeout: PositiveFloat | None = None
    """Seconds that a point may take before it is given up."""
    explore: Explore | None = None
    """What `archgen explore` looks for around the only machine of `archs`."""
    sensitivity: Sensitivity | None = None
    """What `archgen sensitivity` changes about it."""


def study_schema() -> dict[str, Any]:
    """JSON Schema of study files, for editors."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **view_of(StudyFile).root, "title": "archgen study"}


_COMMAND = "the command says it: archgen study FILE --{}"
_MEANT = {
    "options": "those of the compiler stand in 'compiler', of passes in 'compiler: {passes: ...}', "
    "of a network in its name (resnet50:image=160)",
    "space": "fields and their values stand in 'explore: {parameters: ...}', or in 'archs: "
    "[{extends: ..., sweep: ...}]' where all are run",
    "networks": "did you mean 'models'?",
    "machines": "did you mean 'archs'?",
    **{name: _COMMAND.format(name) for name in ("out", "jobs", "memory", "executor", "budget")},
    "plots": _COMMAND.format("no-plots"),
}
"""What stands elsewhere in a study, or not in its file."""


_READER = RecordReader(StudyFile, STUDY.root, _MEANT)


class _Rest(StudyFile):
    """A study file less what is wrong with it, so that machines and networks may be gone."""

    archs: Several[str | Machines] = ()
    models: Several[str | StudyNetwork] = ()


def read_study(path: Path, shown: str) -> tuple[StudyFile | None, Table | None, list[Mistake]]:
    """The study in the file `path`, less everything that is wrong with it, its tree, and what that
    is; no study where nothing can be read."""
    tree, mistakes = read_tree(path, shown, STUDY)
    if tree is None:
        return None, None, mistakes
    found, more = checked(tree)
    return found, tree, mistakes + more


def checked(tree: Table) -> tuple[StudyFile, list[Mistake]]:
    """The study in `tree`, less everything that is wrong with it, and what that is."""
    found, errors = _READER.attempt(plain(tree))
    if found is not None:
        return found, []
    said = _READER.to_mistakes(tree, errors)
    rest, left = RecordReader(_Rest, STUDY.root), tree
    for _ in range(_ROUNDS):
        for error in distinct(left, errors):
            kept = without(left, existing(left, error["loc"]), into_lists=True)
            assert isinstance(kept, Table)
            left = kept
        found, errors = rest.attempt(plain(left))
        if found is not None:
            return found, said
    return _Rest(), said


def is_study(path: Path) -> bool:
    """Whether the file holds a study rather than an architecture: it says which models."""
    try:
        tree, _ = read_tree(path, str(path), STUDY)
    except OSError:
        return False
    return tree is not None and not STUDY.telling.isdisjoint(tree.entries)

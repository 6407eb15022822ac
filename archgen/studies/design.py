"""What a study consists of: machines, networks and options as values, and the points they make.

The one idea: arguments of a call, options of the command line and study files all become a
`Design`, and everything that is wrong with any of them is found before anything runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

from archgen.extensions import Extension, ExtensionError, active_extensions, checked, extension
from archgen.models.constants import file_and_values
from archgen.models.extents import Bound, Extents, Ranges, Shape, extents, shapes
from archgen.models.load import NAMED_NETWORK, BatchError, ModelError, load_calibration, open_model
from archgen.outcomes.axes import rows_with_fields
from archgen.outcomes.points import BUCKET, DIMENSION, FIELD, Execute, Point, Row
from archgen.process.files import code_version, content_hash
from archgen.process.guard import ResourceLimits, guarded
from archgen.process.steps import step
from archgen.scheduling import DEFAULT, Scheduling, choices
from archgen.schema.load import NAMED_MACHINE, LoadedArch, load_files
from archgen.schema.tree import attempted, guess, in_order, listed
from archgen.schema.variants import Variant
from archgen.studies.options import Item, Named, Several, StudyOptions
from simmodel.arch.record import Arch
from simmodel.errors import SeveralMistakes, expect, whole_number

Pattern = Mapping[str, Any]
"""Column -> value, pattern such as `tpu*`, or a list of them; all columns have to agree."""


_SHOWN = 8
"""Values of a column that a message lists."""
_KEYED = ("model", "batch", "dtype", "ranges", "verify", "host", "network", "execute", "in_flight")
"""Fields of a point that its key has as they are."""


class StudyError(SeveralMistakes):
    """A study that cannot start; `mistakes` holds everything that is wrong with its inputs."""


@dataclass(frozen=True)
class Workload:
    """A network of one shape at some batch sizes."""

    model: str
    """Zoo name with options, or path of an ONNX file."""
    batches: tuple[int, ...] = ()
    """None: the batch that its file fixes, else 1."""
    dims: Bound = ()
    """Sizes of free input dimensions, by name."""
    roles: tuple[tuple[str, str], ...] = ()
    """What inputs are, by name: `state`, `batch:1`."""
    calibration: str | None = None
    """Path of an .npz file with one array for each input."""
    ranges: Ranges = ()
    """Dimensions that are known only when the program runs."""
    place: str = field(default="", compare=False)
    """Where it is asked for: `study.yaml:4:5: study.models[0]`; empty: in a call or command."""
    samples_place: str = field(default="", compare=False)
    """Where its calibration is, likewise."""

    def wrong(self, mistake: object) -> str:
        """What is wrong with it, and where."""
        return f"{self.place}: {mistake}" if self.place else str(mistake)


@dataclass(frozen=True)
class Design:
    """Everything that decides which points a study has."""

    machines: tuple[Variant, ...]
    workloads: tuple[Workload, ...]
    dtypes: tuple[str, ...] = ()
    """Element types; none: each machine's first."""
    ways: tuple[Scheduling, ...] = (DEFAULT,)
    verify: bool = True
    host: bool = True
    isolated: bool = False
    """Whether every point keeps the schedule that is made for its own machine."""
    execute: Execute = "distinct"
    """Whether all of a program is executed, or three of equal layers."""
    in_flight: int = 1
    """Inferences that follow each other in one program."""
    extensions: tuple[Extension, ...] = ()
    only: tuple[Pattern, ...] = ()
    skip: tuple[Pattern, ...] = ()
    timeout: float | None = None
    """Seconds that a point may take."""
    name: str = ""
    description: str = ""
    source: str = field(default="", repr=False)
    """Text of the study file, where there was one."""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where things stand in that file: `dtypes`, `skip`, `skip[0]`, `skip[0].arch`."""
    overridden: bool = field(default=False, compare=False)
    """Whether some of it was replaced since, so that filters may be about what is gone."""

    def wrong(self, what: str, mistake: str) -> str:
        """What is wrong with `what`, and where."""
        return f"{self.places[what]}: {mistake}" if what in self.places else mistake

    @property
    def archs(self) -> tuple[Arch, ...]:
        return tuple(machine.arch for machine in self.machines)


def designed(
    archs: Several[Named | Arch | Variant], models: Several[Named | Workload],
    batches: Several[int] | None = None, dtype: Several[str] | None = None,
    options: StudyOptions = StudyOptions(),
) -> Design:  # fmt: skip
    """A design from the arguments of `archgen.study`; StudyError with every mistake in them."""
    archs, models = _listed(archs), _listed(models)
    for arch in archs:
        expect("archs", arch, (str, PathLike, Arch, Variant), f"{NAMED_MACHINE}, or one as loaded")
    for model in models:
        expect("models", model, (str, PathLike, Workload), NAMED_NETWORK)
    sampled = None if batches is None else [whole_number("batches", n) for n in _listed(batches)]
    files, wrong = loaded_extensions(_listed(options.extensions))
    with active_extensions(files):
        machines, mistakes = _machines(archs)
    for what, given in (("architecture", archs), ("model", models), ("batch size", sampled)):
        if given is not None and not given:
            mistakes.append(f"no {what} given")
    wrong_sizes = [size for size in sampled or () if size < 1]
    mistakes += [f"batch {size}: must be a positive whole number" for size in wrong_sizes]
    if options.in_flight < 1:
        mistakes.append(f"in_flight {options.in_flight}: must be a positive whole number")
    if options.execute not in get_args(Execute):
        mistakes.append(f"execute {options.execute}: must be {' or '.join(get_args(Execute))}")
    ways, unknown = choices(
        _listed(options.fusion), _listed(options.halo), _listed(options.objective),
        _listed(options.effort), options.passes,
    )  # fmt: skip
    mistakes += unknown
    samples = fspath(options.calibration) if options.calibration else None
    sizes, unclear = _shapes(options.dims or {})
    said = tuple(sorted((options.roles or {}).items()))
    good = tuple(size for size in dict.fromkeys(sampled or ()) if size > 0)
    workloads: list[Workload] = []
    for spec in dict.fromkeys(models):
        if isinstance(spec, Workload):
            workloads.append(spec)
        else:
            forms = ((shape.dims, said, samples, shape.ranges) for shape in sizes)
            workloads += [Workload(fspath(spec), good, *form) for form in forms]
    dtypes = tuple(dict.fromkeys([dtype] if isinstance(dtype, str) else dtype or ()))
    mistakes += [*unclear, *_no_dtypes(machines, dtypes), *_no_samples(workloads), *wrong]
    if mistakes:
        _, unopened = _contents(workloads, None)
        raise StudyError([*mistakes, *unopened])
    return Design(
        tuple(machines), tuple(workloads), dtypes, tuple(ways), options.verify, options.host,
        options.isolated, options.execute, options.in_flight, files,
    )  # fmt: skip


def _shapes(dims: Mapping[str, str | Several[int] | Extents]) -> tuple[list[Shape], list[str]]:
    """Every combination of sizes, and what is wrong with those that are none."""
    found: dict[str, Extents] = {}
    mistakes: list[str] = []
    for name, sizes in dims.items():
        try:
            found[name] = extents(sizes, ranges=True)
        except ValueError as mistake:
            mistakes.append(f"dims[{name!r}]: {mistake}")
    return list(shapes(found)), mistakes


def loaded_extensions(paths: Iterable[Named]) -> tuple[tuple[Extension, ...], list[str]]:
    """The extensions in these files, and what is wrong with those that are none."""
    found, mistakes = attempted(extension, paths, ExtensionError)
    return tuple(found), mistakes


def _listed(given: Several[Item]) -> Sequence[Item]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return given
    return (given,)


def _machines(given: Sequence[Named | Arch | Variant]) -> tuple[list[Variant], list[str]]:
    ready = [m for m in given if isinstance(m, Variant)]
    ready += [Variant(arch, arch.name) for arch in given if isinstance(arch, Arch)]
    read, mistakes = load_files([name for name in given if isinstance(name, str | PathLike)])
    machines = [*ready, *map(as_variant, read)]
    return machines, [*map(str, mistakes), *duplicate_names(machines)]


def as_variant(loaded: LoadedArch) -> Variant:
    """The machine of a file, with no field changed."""
    return Variant(loaded.arch, loaded.arch.name, file=str(loaded.path))


def duplicate_names(machines: Sequence[Variant], known: Iterable[Variant] = ()) -> list[str]:
    """What is wrong with the names of machines: two that are the same, and not so in `known`."""
    times = Counter(machine.arch.name for machine in machines)
    before = Counter(machine.arch.name for machine in known)
    repeated = sorted(name for name, count in times.items() if count > 1 and before[name] < 2)
    said = [f"two architectures are called {name!r}" for name in repeated[:3]]
    more = len(repeated) - len(said)
    return [*said[:-1], f"{said[-1]}, and so with {more} more names"] if more else said


def _no_dtypes(machines: Sequence[Variant], dtypes: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(name for machine in machines for name in machine.arch.types))
    return [
        f"dtype {dtype}: none of these architectures has it; known: {', '.join(known)}"
        for dtype in dtypes
        if machines and dtype not in known
    ]


def _no_samples(workloads: Sequence[Workload]) -> list[str]:
    found: dict[str, None] = {}
    for workload in workloads:
        try:
            load_calibration(workload.calibration)
        except ModelError as mistake:
            place = workload.samples_place
            found[f"{place}: {mistake}" if place else str(mistake)] = None
    return list(found)


@dataclass(frozen=True)
class Content:
    """A network that has been opened."""

    key: str
    """Of its content."""
    batch: int
    """The batch that was asked for, else its own."""


Contents = Mapping[tuple[Workload, int | None], Content]
"""What each network is at each batch; at None: at its own."""


def contents_of(design: Design) -> Contents:
    """What the networks of a design are; StudyError with what is wrong with them and machines."""
    contents, mistakes = _contents(design.workloads, design.timeout)
    dtypes = [design.wrong("dtypes", said) for said in _no_dtypes(design.machines, design.dtypes)]
    mistakes = [*dtypes, *_no_samples(design.workloads), *mistakes]
    mistakes += checked(design.extensions, design.timeout)
    if mistakes:
        raise StudyError(mistakes)
    return contents


def other_mistakes(design: Design) -> list[str]:
    """What is wrong with networks and options of a design whose machines or schedules are not
    what was asked for: what only those could tell is not said."""
    _, mistakes = _contents(design.workloads, design.timeout)
    doubtful = (FIELD, "pass.", DIMENSION, BUCKET)
    asked = {name: name.startswith(doubtful) for _, pattern in _filters(design) for name in pattern}
    known = _point_columns(design) | {name for name, doubted in asked.items() if doubted}
    return [*_no_samples(design.workloads), *mistakes, *_unknown_columns(design, known)]


def points(design: Design, contents: Contents | None = None) -> list[Point]:
    """The points of a design: networks outermost, so that what they share is made once.

    Raises StudyError with what is wrong with machines, networks or filters, all of it. `contents`:
    those of the networks, where they are known already.
    """
    unknown = _unknown_columns(design, _point_columns(design))
    try:
        contents = contents_of(design) if contents is None else contents
    except StudyError as mistake:
        unknown = in_order([*mistake.mistakes, *unknown])
    if unknown or contents is None:
        raise StudyError(unknown)
    found = [
        _point(design, machine, workload, contents[workload, batch], dtype, way)
        for workload in design.workloads
        for batch in workload.batches or (None,)
        for machine in design.machines
        for dtype in design.dtypes or (machine.arch.types[0],)
        for way in design.ways
    ]
    rows = rows_with_fields([point.identity() for point in found], design.archs)
    kept = [point for point, row in zip(found, rows, strict=True) if _wanted(row, design)]
    idle = [] if design.overridden else [*_idle_filters(design, rows)]
    if not kept and not idle:
        said = f"the filters leave none of {len(found)} points"
        idle.append(design.wrong("only" if design.only else "skip", said))
    if idle:
        raise StudyError(idle)
    return list({point.key: point for point in kept}.values())


# Filters.


def _filters(design: Design) -> Iterator[tuple[str, Pattern]]:
    """Each pattern by its name among the places of the design."""
    for which, patterns in (("only", design.only), ("skip", design.skip)):
        for index, pattern in enumerate(patterns):
            yield f"{which}[{index}]", pattern


def _point_columns(design: Design) -> set[str]:
    swept = {f"{FIELD}{s.field}" for machine in design.machines for s in machine.settings}
    ways = {name for way in (DEFAULT, *design.ways) for name in way.columns}
    dims = {f"{DIMENSION}{name}" for load in design.workloads for name, _ in load.dims}
    buckets = {f"{BUCKET}{name}" for load in design.workloads for name, _ in load.ranges}
    return {"arch", "family", "model", "batch", "dtype", *dims, *buckets, *ways, *swept}


def _unknown_columns(design: Design, columns: set[str]) -> list[str]:
    """Filters by columns that no point has."""
    wrong = [
        (name, f"{place}.{name}")
        for place, pattern in _filters(design)
        for name in pattern
        if name not in columns
    ]
    known = f"; known: {listed(sorted(columns), 'and')}"
    return [
        design.wrong(place, f"filter {name!r}: no such column{guess(name, columns) or known}")
        for name, place in sorted(wrong)
    ]


def _idle_filters(design: Design, rows: Sequence[Row]) -> Iterator[str]:
    """What is wrong with filters that no point agrees with: something in them is misspelt."""
    for place, pattern in _filters(design):
        if any(matches_pattern(row, pattern) for row in rows):
            continue
        alone = [
            n for n in pattern if not any(matches_pattern(row, {n: pattern[n]}) for row in rows)
        ]
        if not alone:
            yield design.wrong(place, "no point has all of these values at once")
        for name in alone:
            held = list(dict.fromkeys(row[name] for row in rows if name in row))
            near = guess(str(pattern[name]).strip("*"), map(str, held))
            shown = near or f"; there is {', '.join(map(repr, held[:_SHOWN]))}"
            said = f"no point has the {name} {pattern[name]!r}{shown}"
            yield design.wrong(f"{place}.{name}", said)


def _contents(
    workloads: Sequence[Workload], timeout: float | None
) -> tuple[dict[tuple[Workload, int | None], Content], list[str]]:
    """What each network is at each batch, and what is wrong with those that cannot be opened."""
    found: dict[tuple[Workload, int | None], Content] = {}
    mistakes: dict[str, None] = {}
    for workload in workloads:
        for batch in workload.batches or (None,):
            try:
                found[workload, batch] = _content(workload, batch, timeout)
            except ModelError as mistake:
                mistakes |= dict.fromkeys(map(workload.wrong, mistake.mistakes))
    return found, list(mistakes)


def _content(workload: Workload, batch: int | None, timeout: float | None) -> Content:
    """What a network is; by its file alone where opening it takes too much or ends in an error of
    archgen's own, which will be said of each of its points. Raises ModelError."""
    path = Path(file_and_values(workload.model)[0])
    if not path.is_file():
        return _open_workload(workload, batch)
    try:
        return guarded(lambda: _open_workload(workload, batch), ResourceLimits(timeout))
    except ModelError:
        raise
    except Exception:  # Exceeded, or what the points will fail with, each with a report
        return Content(hashlib.sha256(path.read_bytes()).hexdigest(), batch or 1)


def _open_workload(workload: Workload, batch: int | None) -> Content:
    """A network at a batch. Where only the batch is refused it is the network as it is: the points
    there say why, and the others go on."""
    dims, roles, ranges = dict(workload.dims), dict(workload.roles), dict(workload.ranges)
    with step(f"opening {workload.model}"):
        try:
            model = open_model(workload.model, batch, dims, roles=roles, ranges=ranges)
        except BatchError:
            model = open_model(workload.model, None, dims, roles=roles, ranges=ranges)
        return Content(model.content_key, model.batch if batch is None else batch)


def _point(
    design: Design, machine: Variant, workload: Workload, content: Content, dtype: str,
    way: Scheduling,
) -> Point:  # fmt: skip
    point = Point(
        "", machine.arch, workload.model, content.batch, dtype, workload.dims, workload.ranges,
        workload.roles, workload.calibration, design.verify, design.host, design.extensions, way,
        tuple((s.field, s.value) for s in machine.settings), machine.family, content.key,
        execute=design.execute, in_flight=design.in_flight,
    )  # fmt: skip
    samples = Path(workload.calibration) if workload.calibration else None
    parts = {name: getattr(point, name) for name in _KEYED} | {
        "code": code_version(),
        "arch": machine.arch.model_dump(mode="json", by_alias=True),
        "dims": dict(workload.dims),
        "roles": dict(workload.roles),
        "extensions": [each.content for each in design.extensions],
        "scheduling": way.columns,
        "calibration": hashlib.sha256(samples.read_bytes()).hexdigest() if samples else None,
    }
    return replace(point, key=content_hash(parts))


def _wanted(row: Row, design: Design) -> bool:
    only = not design.only or any(matches_pattern(row, pattern) for pattern in design.only)
    return only and not any(matches_pattern(row, pattern) for pattern in design.skip)


def matches_pattern(row: Mapping[str, Any], pattern: Pattern) -> bool:
    """Whether a row has the values that `pattern` names, in all its columns."""
    return all(name in row and _matches(row[name], wanted) for name, wanted in pattern.items())


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return any(_matches(value, option) for option in wanted)
    if isinstance(wanted, str) and isinstance(value, str):
        return fnmatchcase(value, wanted)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)

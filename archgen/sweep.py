"""The study: every architecture by every model and batch, as points that are never lost.

The one idea: inputs are checked completely before anything runs, each point is stored as soon as
it is finished, and a later study with the same folder takes stored points instead of running them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path

import pandas as pd

from archgen.cache import Store, code_version, content_hash
from archgen.frame import layers_frame, levels_frame, results_frame, save_frame, spans_frame
from archgen.models import ModelError, open_model
from archgen.plots import save_plots
from archgen.point import Outcome, Point
from archgen.pool import run_points
from archgen.run import load_calibration
from archgen.scheduling import DEFAULT, Scheduling, choices
from archgen.schema import load_all
from archgen.standard import STANDARD
from archgen.toolchain import Toolchain
from simmodel.arch import Arch

Named = str | PathLike[str]
Observer = Callable[[Outcome, int, int], None]
"""Called after each point with its outcome, how many are finished, and of how many."""


class StudyError(ValueError):
    """A study that cannot start; `mistakes` holds everything that is wrong with its inputs."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = list(mistakes)
        super().__init__("\n".join(self.mistakes))


@dataclass(frozen=True)
class Options:
    """What holds for all points of a study."""

    dtype: str | None = None
    """Element type; default: each architecture's first."""
    verify: bool = True
    host: bool = True
    dims: Mapping[str, int] = field(default_factory=dict)
    calibration: Path | None = None
    fusion: Sequence[str] = (DEFAULT.fusion,)
    halo: Sequence[str] = (DEFAULT.halo,)
    objective: Sequence[str] = (DEFAULT.objective,)
    effort: Sequence[int] = (DEFAULT.effort,)


@dataclass(frozen=True)
class Study:
    """Finished points of a study, in the order of models, batches, architectures and schedules."""

    outcomes: tuple[Outcome, ...]
    archs: tuple[Arch, ...]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each point; `archgen explain columns` lists columns and units."""
        return results_frame(self.outcomes)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """One row for each node of each point, cycles and bytes."""
        return layers_frame(self.outcomes)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """When each engine worked for which node, in cycles of each point."""
        return spans_frame(self.outcomes)

    @cached_property
    def levels(self) -> pd.DataFrame:
        """Memory taken, bytes moved and engines busy over time, in bins of each point."""
        return levels_frame(self.outcomes)

    @property
    def reused(self) -> int:
        """Points that were taken from an earlier run."""
        return sum(outcome.reused for outcome in self.outcomes)

    @property
    def good(self) -> bool:
        """Whether no point failed unexpectedly and no output was wrong."""
        return all(outcome.good for outcome in self.outcomes)

    def save(self, folder: Named) -> None:
        """Write `results.parquet`, `results.csv` and the plots into `folder`."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        save_frame(self.frame, target)
        save_plots(self.frame, {arch.name: arch for arch in self.archs}, target)


def study(
    archs: Sequence[Named | Arch],
    models: Sequence[Named],
    batches: Sequence[int] = (1,),
    dtype: str | None = None,
    *,
    jobs: int = 1,
    verify: bool = True,
    host: bool = True,
    dims: Mapping[str, int] | None = None,
    calibration: Named | None = None,
    fusion: Sequence[str] = (DEFAULT.fusion,),
    halo: Sequence[str] = (DEFAULT.halo,),
    objective: Sequence[str] = (DEFAULT.objective,),
    effort: Sequence[int] = (DEFAULT.effort,),
    out: Named | None = None,
    fresh: bool = False,
    observe: Observer | None = None,
    tools: Toolchain = STANDARD,
) -> Study:
    """Compile, check and simulate every model at every batch on every architecture.

    Args:
        archs: architecture files, patterns, shipped names, or loaded `Arch`.
        models: zoo names (`resnet50`, `resnet50:image=160`) or paths of ONNX files.
        batches: batch sizes, in samples.
        dtype: element type of the networks; default: the first type of each architecture.
        jobs: worker processes; 1 runs in this process. A script that asks for more needs
            `if __name__ == "__main__":` around the call, as `multiprocessing` demands.
        verify: execute the instructions and compare all outputs with ONNX Runtime's.
        host: whether operators may be left to the host processor.
        dims: sizes of free input dimensions by name.
        calibration: .npz file with samples for quantization, one array for each input.
        fusion, halo, objective, effort: values of these options of the compiler
            (`archgen.scheduling`); a point for each combination.
        out: folder for stored points, frames and plots; None stores nothing.
        fresh: run points again that `out` already has.
        observe: called after each point.
        tools: compiler and machine to use.

    Raises:
        StudyError: with every mistake in these arguments at once, before anything runs.
    """
    samples = Path(calibration) if calibration else None
    options = Options(dtype, verify, host, dims or {}, samples, fusion, halo, objective, effort)
    loaded, points = plan(archs, models, batches, options)
    store = _store(out)
    finished: dict[str, Outcome] = {}
    try:
        for outcome in _outcomes(points, store, fresh, tools, jobs):
            finished[outcome.key] = outcome
            if observe is not None:
                observe(outcome, len(finished), len(points))
    finally:
        done = tuple(finished[point.key] for point in points if point.key in finished)
        result = Study(done, tuple(loaded))
        if out is not None and done:
            result.save(out)
    return result


def _store(out: Named | None) -> Store | None:
    """The store in `out`; that it cannot be written is found out before the first point is run."""
    if out is None:
        return None
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as mistake:
        raise StudyError([f"{folder}: results cannot be written: {mistake.strerror}"]) from None
    return Store(folder)


def plan(
    archs: Sequence[Named | Arch], models: Sequence[Named], batches: Sequence[int], options: Options
) -> tuple[list[Arch], list[Point]]:
    """The architectures and the points of a study, models outermost so that workers share them.

    Raises StudyError with every mistake of all arguments.
    """
    loaded, mistakes = _load_archs(archs)
    for what, given in (("architecture", archs), ("model", models), ("batch size", batches)):
        if not given:
            mistakes.append(f"no {what} given")
    mistakes += [
        f"batch {batch}: must be a positive whole number" for batch in batches if batch < 1
    ]
    if options.dtype and loaded and not any(options.dtype in arch.types for arch in loaded):
        known = ", ".join(dict.fromkeys(name for arch in loaded for name in arch.types))
        mistakes.append(
            f"dtype {options.dtype}: none of these architectures has it; known: {known}"
        )
    ways, unknown = choices(options.fusion, options.halo, options.objective, options.effort)
    mistakes += unknown
    try:
        load_calibration(options.calibration)
    except ModelError as mistake:
        mistakes.append(str(mistake))
    good_batches = [batch for batch in dict.fromkeys(batches) if batch > 0] or [1]
    keys, wrong = _model_keys(models, good_batches, options)
    if mistakes or wrong:
        raise StudyError([*mistakes, *wrong])
    points = [
        _point(arch, spec, key, batch, options, way)
        for (spec, batch), key in keys.items()
        for arch in loaded
        for way in ways
    ]
    return loaded, points


def _load_archs(given: Sequence[Named | Arch]) -> tuple[list[Arch], list[str]]:
    ready = [arch for arch in given if isinstance(arch, Arch)]
    read, mistakes = load_all([name for name in given if not isinstance(name, Arch)])
    archs = [*ready, *read]
    names = [arch.name for arch in archs]
    twice = sorted({name for name in names if names.count(name) > 1})
    return archs, [*map(str, mistakes), *(f"two architectures are called {n!r}" for n in twice)]


def _model_keys(
    models: Sequence[Named], batches: Sequence[int], options: Options
) -> tuple[dict[tuple[str, int], str], list[str]]:
    """Content key of each model at each batch, and what is wrong with those that have none."""
    keys: dict[tuple[str, int], str] = {}
    mistakes: dict[str, None] = {}
    for spec in dict.fromkeys(fspath(model) for model in models):
        for batch in batches:
            try:
                keys[spec, batch] = open_model(spec, batch, options.dims).content_key
            except ModelError as mistake:
                mistakes[str(mistake)] = None
    return keys, list(mistakes)


def _point(
    arch: Arch, spec: str, model_key: str, batch: int, options: Options, way: Scheduling
) -> Point:
    dtype = options.dtype or arch.types[0]
    samples = options.calibration
    parts = {
        "code": code_version(),
        "arch": arch.model_dump(mode="json", by_alias=True),
        "spec": spec,
        "model": model_key,
        "batch": batch,
        "dtype": dtype,
        "dims": dict(options.dims),
        "verify": options.verify,
        "host": options.host,
        "scheduling": way.columns,
        "calibration": hashlib.sha256(samples.read_bytes()).hexdigest() if samples else None,
    }
    return Point(
        key=content_hash(parts),
        arch=arch,
        model=spec,
        batch=batch,
        dtype=dtype,
        dims=tuple(sorted(options.dims.items())),
        calibration=fspath(samples) if samples else None,
        verify=options.verify,
        host=options.host,
        scheduling=way,
    )


def _outcomes(
    points: Sequence[Point], store: Store | None, fresh: bool, tools: Toolchain, jobs: int
) -> Iterator[Outcome]:
    """Stored points first, then the others as they are finished; each is stored before it is given.

    A failed point is not taken from the store: what failed may have been the surroundings.
    """
    missing = []
    for point in points:
        found = store.load(point.label, point.key) if store and not fresh else None
        if found is not None and found.status != "failed":
            yield found
        else:
            missing.append(point)
    for outcome in run_points(missing, tools, min(jobs, len(missing))):
        if store is not None:
            store.save(outcome)
        yield outcome

"""Finished studies: their frames, what they were made of, and how they are found again.

The one idea: a study's folder says in `study.json` which points it consists of, before the first
of them is run, so a study that was interrupted can be opened, listed and gone on with.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from pydantic import ValidationError

from archgen.outcomes import frame as frames
from archgen.outcomes.axes import with_swept, workload
from archgen.outcomes.columns import LAYER_COLUMNS, LEVEL_COLUMNS, MORE_IS_BETTER, SPAN_COLUMNS
from archgen.outcomes.estimated import ranked_by
from archgen.outcomes.fronts import pareto_front
from archgen.outcomes.points import Outcome, Point, Row, StudyMetadata
from archgen.plots import overview_figures
from archgen.plots.saving import keep_only, save_figures
from archgen.process.files import code_version, read_sealed, revision, write_sealed
from archgen.process.start import DamagedFile
from archgen.report import card_html
from archgen.studies.design import Design, StudyError
from archgen.studies.query import compared_results, known_columns, known_numbers, study_text, where
from archgen.studies.schedule_transfer import ScheduleTransfer, reported_outcomes
from archgen.studies.store import Store, writing
from simmodel.arch.record import Arch

MANIFEST = "study.json"
_FORMAT = 3


@dataclass(frozen=True, repr=False)
class Study:
    """Finished points of a study, in the order of models, batches, architectures and schedules."""

    outcomes: tuple[Outcome, ...]
    archs: tuple[Arch, ...]
    about: StudyMetadata = field(default_factory=StudyMetadata)
    loans: tuple[ScheduleTransfer, ...] = ()
    """Schedules of other machines that its points have run."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row for each point; `archgen explain columns` lists columns and units."""
        return with_swept(frames.results_frame(self.outcomes), self.archs)

    @cached_property
    def overviews(self) -> dict[str, Figure]:
        """The figures that compare its points, by name: of files and of the report alike."""
        return {} if self.frame.empty else dict(overview_figures(self.frame, self.by_name))

    @cached_property
    def layers(self) -> pd.DataFrame:
        """One row for each node of each point, cycles and bytes."""
        return with_swept(frames.layers_frame(self.outcomes), self.archs, LAYER_COLUMNS)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """When each engine worked for which node, in cycles of each point."""
        return with_swept(frames.spans_frame(self.outcomes), self.archs, SPAN_COLUMNS)

    @cached_property
    def levels(self) -> pd.DataFrame:
        """Occupied memory, bandwidth and busy engines over time, of each point."""
        return with_swept(frames.levels_frame(self.outcomes), self.archs, LEVEL_COLUMNS)

    @property
    def reused(self) -> int:
        """Points that were taken from an earlier run."""
        return sum(outcome.reused for outcome in self.outcomes)

    @property
    def good(self) -> bool:
        """Whether no point failed unexpectedly and no output was wrong."""
        return all(outcome.good for outcome in self.outcomes)

    @property
    def by_name(self) -> dict[str, Arch]:
        return {arch.name: arch for arch in self.archs}

    def filter(self, *conditions: str) -> Study:
        """The study of the points that meet all `conditions`: `"latency_ms<=5"`, `"arch=edge*"`,
        `"batch=1,4"`, `"arch.memories.local.size>=512KiB"`. Raises StudyError."""
        kept = where(self.frame.reset_index(drop=True), conditions, self.by_name)
        names = set(kept["arch"]) if len(kept) else set()
        outcomes = tuple(self.outcomes[place] for place in kept.index)
        return replace(
            self, outcomes=outcomes, archs=tuple(arch for arch in self.archs if arch.name in names)
        )

    def best(
        self, by: str = "latency_ms", n: int = 1, ascending: bool | None = None
    ) -> pd.DataFrame:
        """Rows of the best `n` results of each network by a column, the best first: the least, or
        of throughputs and the like the most, or as `ascending` says; of estimates and runs by what
        was estimated, among equals those that ran. Raises StudyError for a column that there is
        not, or that holds no numbers."""
        (name,) = known_numbers(self.frame, [by])
        if n < 1:
            raise StudyError([f"n: expected at least 1, not {n}"])
        rising = name not in MORE_IS_BETTER if ascending is None else ascending
        rows = compared_results(self.frame, [name])
        loads = [workload(row) for row in frames.records(rows)]
        places = {load: place for place, load in enumerate(dict.fromkeys(loads))}
        ordered = ranked_by(rows.assign(_load=[places[load] for load in loads]), name, rising)
        found = ordered.groupby("_load", sort=False).head(n)
        return self.frame.loc[found.sort_values("_load", kind="stable").index]

    def pareto(self, *columns: str) -> pd.DataFrame:
        """Rows of the results of each network that no other beats in one of `columns` (latency_ms
        and area_mm2 where none is named) without losing in another. Raises StudyError."""
        names = known_numbers(self.frame, columns or ("latency_ms", "area_mm2"))
        rows = compared_results(self.frame, names)
        every = frames.records(rows)
        signs = {name: -1.0 if name in MORE_IS_BETTER else 1.0 for name in names}
        costs = [[sign * frames.number(row, name) for name, sign in signs.items()] for row in every]
        networks = frames.grouped(range(len(every)), lambda place: workload(every[place])).values()
        kept = [own[at] for own in networks for at in pareto_front([costs[place] for place in own])]
        return self.frame.loc[rows.index[sorted(kept)]]

    def pivot(self, index: str, columns: str, values: str = "latency_ms") -> pd.DataFrame:
        """`values` as a table over two columns, which may be named by the last words of a swept
        field: `study.pivot("local.size", "dram.bandwidth")`. Where results share a place, the best
        of them; keep one network (`filter`), or have `"model"` for a side. Raises StudyError."""
        names = [*known_columns(self.frame, (index, columns)), *known_numbers(self.frame, [values])]
        if len({*names}) < len(names):
            raise StudyError([f"index, columns and values: three columns, not {', '.join(names)}"])
        how: Literal["max", "min"] = "max" if names[2] in MORE_IS_BETTER else "min"
        rows = compared_results(self.frame, names)
        return rows.pivot_table(index=names[0], columns=names[1], values=names[2], aggfunc=how)

    def __repr__(self) -> str:
        return study_text(self.frame, self.by_name, f"Study {self.about.name}".strip())

    def save(self, folder: str | PathLike[str], plots: bool = True) -> None:
        """Write `results.parquet`, `results.csv` and, unless told not to, plots into `folder`;
        plots that it has no longer are removed."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        frames.save_frame(self.frame, target)
        if plots:
            keep_only(target, save_figures(self.overviews.items(), target))

    def _repr_html_(self) -> str:
        """What a notebook shows: a few sentences and a table."""
        return card_html(self)


def study_metadata(design: Design, points: Sequence[Point], command: str = "") -> StudyMetadata:
    """What the study of `design` is made of, as it starts now."""
    files = {each.arch.name: each.file for each in design.machines if each.file}
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return StudyMetadata(
        design.name, design.description, command, design.source, code_version(), version("archgen"),
        started, revision(Path.cwd()), len(points), files, design.isolated,
    )  # fmt: skip


def write_study(
    study: Study, folder: Path, points: Sequence[Point],
    picks: Mapping[str, Row] = MappingProxyType({}), plots: bool = True,
) -> None:  # fmt: skip
    """Say in `folder` which points the study consists of, what they have borrowed, and what those
    say of their estimates that were run because of them (by key); beside it what is finished of it,
    with `plots`. Raises StoreError."""
    content = {
        "format": _FORMAT,
        "about": asdict(study.about),
        "archs": [arch.model_dump(mode="json", by_alias=True) for arch in study.archs],
        "points": [{"key": point.key, "label": point.label} for point in points],
        "loans": [asdict(loan) for loan in study.loans],
        "estimates": dict(picks),
    }
    with writing(folder):
        write_sealed(folder / MANIFEST, json.dumps(content, indent=1).encode())
        if study.outcomes:
            study.save(folder, plots)


def open_study(folder: str | PathLike[str]) -> Study:
    """The finished points of the study in `folder`, also of one that was interrupted. A machine
    that cannot be read is warned of and left out with its points.

    Raises StudyError where there is no study.
    """
    path = Path(folder)
    content = _manifest(path)
    archs = tuple(_readable(path / MANIFEST, content["archs"]))
    known = {arch.name for arch in archs}
    store = Store(path)
    stored = _load_outcomes(store, {point["key"]: point["label"] for point in content["points"]})
    own = {key: outcome for key, outcome in stored.items() if outcome.row["arch"] in known}
    loans = {loan.key: loan for loan in (ScheduleTransfer(**each) for each in content["loans"])}
    lent = _load_outcomes(store, {key: loan.label for key, loan in loans.items()})
    both = {
        loans[key]: outcome
        for key, outcome in lent.items()
        if {loans[key].lender, loans[key].borrower} <= own.keys()
    }
    taken = with_estimates(reported_outcomes(own, both), content["estimates"])
    return Study(tuple(taken.values()), archs, StudyMetadata(**content["about"]), tuple(both))


def with_estimates(outcomes: Mapping[str, Outcome], picks: Mapping[str, Row]) -> dict[str, Outcome]:
    """`outcomes` by the key of their point, with what was estimated of those that were run."""
    return {
        key: replace(outcome, row=outcome.row | picks.get(key, {}))
        for key, outcome in outcomes.items()
    }


def _readable(path: Path, stored: Iterable[Any]) -> Iterator[Arch]:
    """The machines of the manifest `path`; those that cannot be read are warned of."""
    for content in stored:
        try:
            yield Arch.model_validate_json(json.dumps(content))
        except ValidationError as mistake:
            name = content.get("name") if isinstance(content, dict) else None
            first = mistake.errors(include_url=False)[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            said = f"{path}: machine {name!r} cannot be read and is left out ({why}); run it again"
            warnings.warn(said, DamagedFile, stacklevel=3)


def _load_outcomes(store: Store, labels: Mapping[str, str]) -> dict[str, Outcome]:
    """The finished ones of these points, by key and in their order."""
    found = {key: store.load(label, key) for key, label in labels.items()}
    return {key: outcome for key, outcome in found.items() if outcome is not None}


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if folder.exists() and not folder.is_dir():
        raise StudyError([f"{folder}: is not a folder; give the folder of a study"])
    if not path.exists():
        raise StudyError(
            [f"{folder}: holds no study ({MANIFEST} is missing){_nearby_studies(folder)}"]
        )
    stored = read_sealed(path)
    if stored is None:
        raise StudyError(
            [f"{path}: is damaged, or of another version of archgen; run the study again"]
        )
    content: dict[str, Any] = json.loads(stored)
    if content.get("format") != _FORMAT:
        raise StudyError([f"{path}: is of another version of archgen; run the study again"])
    return content


def _nearby_studies(folder: Path) -> str:
    if not folder.is_dir():
        return "; there is no such folder"
    found = sorted(os.path.relpath(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
    return f"; there are studies in {', '.join(found)}" if found else ""

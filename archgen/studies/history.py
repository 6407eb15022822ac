"""All results of many folders over time, and what each differs in from the one before it.

The one idea: a result knows machine, network and sources by their hashes (`archgen.studies.made`),
so two results of one point in a row say by themselves what has changed. An index in SQLite holds
what was read of each file, which saves reading it again; it can be deleted at any time.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from archgen.files import read_sealed
from archgen.outcomes.axes import field_text
from archgen.outcomes.figures import figure_of
from archgen.outcomes.frame import Record
from archgen.outcomes.point import BUCKET, DIMENSION
from archgen.scheduling import DEFAULT
from archgen.studies.design import StudyError
from archgen.studies.made import changed_leaves, machine_hash
from archgen.studies.results import MANIFEST
from archgen.studies.store import read_run
from simmodel.arch import Arch

TABLE = """
create table if not exists runs (
    file text primary key, folder text, mtime_ns integer, bytes integer,
    made text, version text, code text, git text, source text,
    arch text, machine text, model text, network text, point text,
    status text, latency_ms real, energy_mj real, area_mm2 real, dram_bytes real,
    figures text, fields text
)"""
"""The index: of each run its file, when and of what it was made, which point it is (JSON of the
columns that say so), its usual figures, all columns as JSON, and the machine as JSON."""
_FORMAT = 2
_FIGURES = ("latency_ms", "energy_mj", "area_mm2", "dram_bytes")
_COLUMNS = ("folder", "made", "version", "code", "git", "source", "machine", "network", "point")
CAUSES = ("machine", "network", "archgen")
State: TypeAlias = tuple[str, str, str]
"""Hashes of the three."""


@dataclass(frozen=True)
class Run:
    """A result as it was stored."""

    folder: str
    made: str
    """Local time, as ISO 8601 writes it."""
    version: str
    code: str
    git: str
    machine: str
    network: str
    point: str
    figures: Record
    fields: Mapping[str, Any]
    source: str = ""
    """The last commit of the machine's file, with `+` where it was changed since."""

    @property
    def when(self) -> datetime:
        """The time, with its zone."""
        return datetime.fromisoformat(self.made).astimezone()

    @property
    def state(self) -> State:
        """Hashes of what it was made of."""
        return self.machine, self.network, self.code


@dataclass(frozen=True)
class Step:
    """A result of a point and the one before it, where there is one."""

    run: Run
    before: Run | None
    alone: Mapping[str, float] = field(default_factory=dict)
    """Of several causes at once those whose own share is known, as the latency with it in multiples
    of that without: some other result has only it, or all but it."""

    @property
    def causes(self) -> tuple[str, ...]:
        """machine, network, archgen: what is different; unknown where one of the two does not
        say what it was made of."""
        if self.before is None:
            return ()
        pairs = list(zip(CAUSES, self.before.state, self.run.state, strict=True))
        found = [name for name, old, new in pairs if old != new and old and new]
        return tuple(found) or ("unknown",)

    @property
    def ratio(self) -> float | None:
        """The latency as a multiple of the one before."""
        if self.before is None:
            return None
        return _ratio(self.before, self.run)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the machine that differ: `memories.local.size 64 KiB -> 128 KiB`."""
        if self.before is None or "machine" not in self.causes:
            return ()
        changed = changed_leaves(self.before.fields, self.run.fields)
        return tuple(
            f"{name} {_said(name, old)} -> {_said(name, new)}"
            for name, (old, new) in changed.items()
        )


def _ratio(before: Run, after: Run) -> float | None:
    old, new = (figure_of(run.figures, "latency_ms") for run in (before, after))
    return new / old if old > 0 and new > 0 else None


def steps(runs: Iterable[Run], since: datetime | None = None) -> list[Step]:
    """The results of each point in the order in which they were made; of those made of the same the
    best, when the first was. With `since` only later ones, each beside the last before that."""
    by_point = sorted(runs, key=lambda run: (run.point, run.when))
    found: list[Step] = []
    for _, held in groupby(by_point, key=lambda run: run.point):
        states: dict[State, list[Run]] = {}
        for run in held:
            states.setdefault(run.state, []).append(run)
        best = {state: _best(made) for state, made in states.items()}
        line = [*best.values()]
        found.append(Step(line[0], None))
        found += [Step(new, old, _alone(old, new, best)) for old, new in pairwise(line)]
    late = [step for step in found if since is None or step.run.when >= since]
    return sorted(late, key=lambda step: (step.run.when, step.run.point))


def _alone(old: Run, new: Run, known: Mapping[State, Run]) -> dict[str, float]:
    """What single causes did where several came at once, as far as `known` results say it."""
    differ = [at for at, told in enumerate(new.state) if told != old.state[at]]
    if len(differ) < 2 or not all((*old.state, *new.state)):
        return {}
    found: dict[str, float] = {}
    for index in differ:
        with_it, without = [*old.state], [*new.state]
        with_it[index], without[index] = new.state[index], old.state[index]
        pairs = ((old, known.get(_state(with_it))), (known.get(_state(without)), new))
        ratios = (_ratio(one, other) for one, other in pairs if one and other)
        ratio = next((each for each in ratios if each is not None), None)
        if ratio is not None:
            found[CAUSES[index]] = ratio
    return found


def _state(hashes: Sequence[str]) -> State:
    machine, network, code = hashes
    return machine, network, code


def _best(runs: Sequence[Run]) -> Run:
    """Of results of one state the quickest, which may have borrowed its schedule, as of the first
    of them."""
    first = runs[0]
    good = [run for run in runs if run.figures.get("latency_ms") is not None]
    best = min(good, key=lambda run: figure_of(run.figures, "latency_ms"), default=first)
    return Run(**{**vars(best), "made": first.made})


def runs_of(folders: Sequence[Path], index: Path) -> list[Run]:
    """The results of the studies in `folders` and in folders within them, by way of the `index`.

    Raises StudyError: a folder is none, or has no studies; the index cannot be used.
    """
    studies = _studies(folders)
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(index)) as base, base:
            if base.execute("pragma user_version").fetchone()[0] != _FORMAT:
                base.execute("drop table if exists runs")
                base.execute(f"pragma user_version = {_FORMAT}")
            base.execute(TABLE)
            for study in studies:
                _renew(base, study)
            marks = ",".join("?" * len(studies))
            rows = base.execute(
                f"select {','.join(_COLUMNS)}, figures, fields from runs where folder in ({marks})",
                [str(study) for study in studies],
            ).fetchall()
    except (sqlite3.Error, OSError) as mistake:
        raise StudyError([f"{index}: the index cannot be used: {mistake}"]) from None
    return [
        Run(**dict(zip(_COLUMNS, said, strict=True)), figures=json.loads(row), fields=json.loads(f))
        for *said, row, f in rows
    ]


def _studies(folders: Sequence[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    wrong: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            wrong.append(f"{folder}: there is no such folder")
            continue
        own = sorted(path.parent.resolve() for path in folder.rglob(MANIFEST))
        if not own:
            wrong.append(f"{folder}: holds no study ({MANIFEST} is missing), nor do its folders")
        found |= dict.fromkeys(own)
    if wrong:
        raise StudyError(wrong)
    return list(found)


def _renew(base: sqlite3.Connection, study: Path) -> None:
    """What the index knows of a study becomes what is there."""
    known = {
        file: (mtime, size)
        for file, mtime, size in base.execute(
            "select file, mtime_ns, bytes from runs where folder = ?", [str(study)]
        )
    }
    there = {str(path): path.stat() for path in sorted((study / "runs").glob("*.json"))}
    stale = [name for name in known if name not in there]
    fresh = [n for n, s in there.items() if known.get(n) != (s.st_mtime_ns, s.st_size)]
    base.executemany("delete from runs where file = ?", [[name] for name in stale])
    manifest = _manifest(study) if fresh else {}
    for name in fresh:
        row = _row(Path(name), study, manifest)
        if row is not None:
            marks = ",".join("?" * len(row))
            base.execute(f"insert or replace into runs values ({marks})", row)


def _manifest(study: Path) -> Mapping[str, Any]:
    stored = read_sealed(study / MANIFEST)
    content: Mapping[str, Any] = {} if stored is None else json.loads(stored)
    return content


def _row(path: Path, study: Path, manifest: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What the index holds of a run; None for a file that is not whole, which is said."""
    outcome = read_run(path)
    if outcome is None:
        return None
    stat, row = path.stat(), outcome.row
    made = {**_guessed(outcome.key, str(row["arch"]), manifest, stat.st_mtime), **outcome.made}
    figures: list[object] = [None if (v := figure_of(dict(row), n)) != v else v for n in _FIGURES]
    return (
        str(path), str(study), stat.st_mtime_ns, stat.st_size,
        made["when"], made["version"], made["code"], made["git"], made["file"],
        row["arch"], made["machine"], row["model"], made["network"], _identity(row),
        row["status"], *figures, json.dumps(row), json.dumps(made["arch"]),
    )  # fmt: skip


def _guessed(key: str, name: str, manifest: Mapping[str, Any], written: float) -> dict[str, Any]:
    """What a file of an older version was made of, as far as its study says it."""
    known = {"when": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(written))}
    found: dict[str, Any] = {
        **dict.fromkeys(("version", "code", "git", "file", "machine", "network"), ""), "arch": {},
        **known,
    }  # fmt: skip
    if key not in {point["key"] for point in manifest.get("points", ())}:
        return found
    found |= {name: manifest.get(name, "") for name in ("version", "code")}
    arch = next((each for each in manifest["archs"] if each.get("name") == name), None)
    if arch is not None:
        found |= {"arch": arch, "machine": machine_hash(Arch.model_validate_json(json.dumps(arch)))}
    return found


def _identity(row: Mapping[str, Any]) -> str:
    """The columns that say which point it is, whatever it was made of."""
    names = ("arch", "model", "batch", "dtype", *DEFAULT.columns)
    more = [name for name in row if name.startswith((DIMENSION, BUCKET, "pass."))]
    return json.dumps({name: row.get(name) for name in (*names, *sorted(more))})


def _said(field: str, value: Any) -> str:
    return "none" if value is None else field_text(field, value)

"""Finished points on disk, which any number of studies may write at the same time.

The one idea: files appear whole or not at all, tables first, then the JSON whose presence says that
the point is finished, and which holds the seals of the tables (`archgen.process.files`). A point
that somebody works on is locked (`archgen.process.files`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from archgen.outcomes.frame import layers_frame, table_bytes
from archgen.outcomes.points import Outcome, Point
from archgen.process import files
from simmodel.errors import UserError

_FORMAT = 6
TRACE = "trace"
"""The table of an outcome that is a file for a viewer."""


class StoreError(UserError):
    """Results that cannot be written: the disk is full, or was taken away."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Whatever cannot be written within is told as StoreError."""
    try:
        yield
    except OSError as mistake:
        missing = "" if folder.parent.is_dir() else "there is no such folder"
        said = missing or mistake.strerror or str(mistake)
        raise StoreError(f"{folder}: results cannot be written: {said}") from mistake


class Store:
    """The folder `runs/` of a study: for each point `<label>.<key>.json`, and beside it
    `.layers.parquet`, `.spans.parquet`, `.levels.parquet` and, where wanted, `.pftrace.gz`; after
    an internal error `.error.txt`, for its report."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        self.decisions = folder / "decisions"
        """What the compiler has decided on the way."""
        self._claims = files.Locks(self.folder / files.FOLDER)

    def claim(self, key: str) -> bool:
        """Take the point `key`; False while another process has it. A process that ends, even by
        being killed, has none."""
        with writing(self.folder):
            return self._claims.take(key)

    def release(self, key: str) -> None:
        """Give the point `key` free."""
        self._claims.release(key)

    def close(self) -> None:
        """Give all points free."""
        self._claims.close()

    def _stem(self, label: str, key: str) -> Path:
        plain = re.sub(r"[^A-Za-z0-9._=-]+", "-", label).strip("-")[:120]
        return self.folder / f"{plain}.{key[:16]}"

    def load(self, label: str, key: str) -> Outcome | None:
        """The finished point, or None when it is absent, of another key, or damaged, which is
        warned of."""
        found = _read_outcome(self._stem(label, key))
        return found if found and found.key == key else None

    def finished(self, point: Point) -> Outcome | None:
        """What is stored of `point`, unless it has to be run again: one that failed, because what
        failed may have been the surroundings, or one whose trace is wanted and not there."""
        found = self.load(point.label, point.key)
        if found is None or found.status == "failed":
            return None
        wanting = point.trace and found.status == "ok" and TRACE not in found.tables
        return None if wanting else found

    def everything(self) -> Iterator[Outcome]:
        """Every finished point that is stored, whichever study it belongs to."""
        for path in sorted(self.folder.glob("*.json")):
            found = _read_outcome(path.with_suffix(""))
            if found is not None:
                yield found

    def save(self, outcome: Outcome) -> Outcome:
        """Write all files of `outcome`, the JSON last. Raises StoreError.

        Returns the outcome with the places of its tables for the tables themselves, so that many
        outcomes take little memory.
        """
        stem = self._stem(outcome.label, outcome.key)
        with writing(self.folder):
            outcome = _reported(outcome, stem)
            seals: dict[str, str] = {}
            layers = layers_frame([outcome]) if outcome.layers else None
            own_table = {} if layers is None else {"layers": table_bytes(layers)}
            tables = {**own_table, **outcome.tables}
            for name, table in tables.items():
                path = _table_path(stem, name)
                if isinstance(table, bytes):
                    files.write_bytes(path, table)
                seals[name] = files.seal_of(path, path.read_bytes())
            own = ("key", "label", "row", "details", "network", "layers")
            content = {name: getattr(outcome, name) for name in own}
            stored = {"format": _FORMAT, **content, "tables": seals}
            text = json.dumps(stored, indent=1, allow_nan=False)
            files.write_sealed(Path(f"{stem}.json"), text.encode())
        return replace(outcome, tables={name: _table_path(stem, name) for name in outcome.tables})


def _reported(outcome: Outcome, stem: Path) -> Outcome:
    """With an internal error written to a file of its own, and the reason naming that file."""
    report = outcome.details.get("traceback")
    if not report:
        return outcome
    path = Path(f"{stem}.error.txt")
    files.write_bytes(path, report.encode())
    reason = f"{outcome.row['reason']}; please report it with {path}"
    return replace(outcome, row=outcome.row | {"reason": reason})


def _table_path(stem: Path, name: str) -> Path:
    return Path(f"{stem}.pftrace.gz" if name == TRACE else f"{stem}.{name}.parquet")


def _read_outcome(stem: Path) -> Outcome | None:
    content = files.read_sealed(Path(f"{stem}.json"))
    stored = {} if content is None else json.loads(content)
    if stored.get("format") != _FORMAT:
        return None
    seals = stored.pop("tables")
    if not all(_is_sealed(_table_path(stem, name), seal) for name, seal in seals.items()):
        return None
    del stored["format"]
    tables: dict[str, bytes | Path] = {n: _table_path(stem, n) for n in seals if n != "layers"}
    return Outcome(**stored, tables=tables, reused=True)


def _is_sealed(path: Path, seal: str) -> bool:
    """Whether the table is as it was written; otherwise that is said."""
    try:
        why = "" if files.seal_of(path, path.read_bytes()) == seal else "it is not what was written"
    except OSError as mistake:
        why = mistake.strerror or str(mistake)
    if why:
        files.warn_damaged(path, why)
    return not why


# Decisions of the compiler, for other points of the study and for later runs.

MOST = 5000
"""Files that are kept: those that were written first go first."""
_SPARE = 0.9
"""Share of these that is left when there are too many."""


class StudyScheduleCache:
    """The folder `decisions/` of a study. What is here only saves time, so a file that is damaged
    or gone is made again, and what cannot be written is not. Names say what was decided and by what
    of the machine (`compiler.decisions.cache`)."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self.most = folder, most
        self._written = most
        """At least as many as may have been written since files were counted."""

    def names(self, start: str) -> Sequence[str]:
        """Of the files that begin with `start`."""
        return sorted(path.stem for path in self.folder.glob(f"{start}*.json"))

    def get(self, name: str) -> str | None:
        """The text of a file; None where there is none, or where it is damaged, which is said."""
        content = files.read_sealed(self.folder / f"{name}.json")
        return None if content is None else content.decode()

    def put(self, name: str, text: str) -> None:
        """A file of that text, where it can be written."""
        with suppress(OSError):
            files.write_sealed(self.folder / f"{name}.json", text.encode())
            self._written += 1
            if self._written > self.most // 10:  # files are counted now and then
                self._evict_oldest()

    def _evict_oldest(self) -> None:
        self._written = 0
        ages = {path: path.stat().st_mtime_ns for path in self.folder.glob("*.json")}
        if len(ages) > self.most:
            for path in sorted(ages, key=ages.__getitem__)[: len(ages) - int(_SPARE * self.most)]:
                path.unlink(missing_ok=True)

"""Decisions of the compiler in the folder of a study, for its other points and for later runs.

The one idea: what is here only saves time, so a file that is damaged or gone is made again, and
what cannot be written is not. Names say what was decided and by what of the machine
(`compiler.decisions.cache`); contents are sealed like results (`archgen.process.files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from archgen.process.files import read_sealed, write_sealed

MOST = 5000
"""Files that are kept: those that were written first go first."""
_SPARE = 0.9
"""Share of these that is left when there are too many."""


class StudyScheduleCache:
    """The folder `decisions/` of a study."""

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self.folder, self.most = folder, most
        self._written = most
        """At least as many as may have been written since files were counted."""

    def names(self, start: str) -> Sequence[str]:
        """Of the files that begin with `start`."""
        return sorted(path.stem for path in self.folder.glob(f"{start}*.json"))

    def get(self, name: str) -> str | None:
        """The text of a file; None where there is none, or where it is damaged, which is said."""
        content = read_sealed(self._path(name))
        return None if content is None else content.decode()

    def put(self, name: str, text: str) -> None:
        """A file of that text, where it can be written."""
        with suppress(OSError):
            write_sealed(self._path(name), text.encode())
            self._evict_oldest()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _evict_oldest(self) -> None:
        """Remove the oldest files where there are too many; they are counted now and then."""
        self._written += 1
        if self._written <= self.most // 10:
            return
        self._written = 0
        ages = {path: path.stat().st_mtime_ns for path in self.folder.glob("*.json")}
        if len(ages) > self.most:
            for path in sorted(ages, key=ages.__getitem__)[: len(ages) - int(_SPARE * self.most)]:
                path.unlink(missing_ok=True)

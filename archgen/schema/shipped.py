"""Where architecture files come from: paths, patterns, and the names of the files we ship.

An installed wheel carries them inside the package; an editable install finds the repository's.
"""

from __future__ import annotations

import glob
import os
from difflib import get_close_matches
from pathlib import Path

import archgen
from archgen.schema.mistakes import Mistake, Position, guess

_SUFFIXES = (".yaml", ".yml")


def shipped_folder() -> Path:
    """The folder of the shipped architecture files."""
    package = Path(archgen.__file__).parent
    inside = package / "archs"
    return inside if inside.is_dir() else package.parent / "archs"


def shipped_names() -> list[str]:
    """Names of the shipped architectures, sorted."""
    return sorted(path.stem for path in shipped_folder().glob("*.yaml"))


def expand(pattern: str) -> tuple[list[Path], list[Mistake]]:
    """Files that `pattern` (a path, a glob pattern or a shipped name) stands for."""
    if glob.has_magic(pattern) and not os.path.exists(pattern):
        found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
        files = [path for path in found if path.suffix in _SUFFIXES and path.is_file()]
        if not files:
            return [], [Mistake(Position(pattern), "", "no .yaml file matches this pattern")]
        return files, []
    path, mistake = locate(pattern)
    return ([path], []) if mistake is None else ([], [mistake])


def locate(name: str) -> tuple[Path, Mistake | None]:
    """The file that `name`, a path or a shipped name, stands for, or what is wrong with it."""
    path = Path(name)
    if os.path.isfile(path):
        return path, None
    shipped = shipped_folder() / f"{name}.yaml"
    bare = os.path.basename(name) == name and path.suffix not in _SUFFIXES
    if bare and os.path.isfile(shipped):
        return shipped, None
    at = Position(name)
    if os.path.isdir(path):
        hint = f"write {os.path.join(name, '*.yaml')!r} for all files in it"
        return path, Mistake(at, "", f"is a folder, not a file; {hint}")
    if os.path.exists(path):
        return path, Mistake(at, "", "is not a regular file")
    if bare:
        near = guess(name, shipped_names()) or "; shipped: " + ", ".join(shipped_names())
        return path, Mistake(at, "", f"no such file, and no shipped architecture{near}")
    return path, Mistake(at, "", f"no such file{_near(path)}")


def _near(path: Path) -> str:
    """Which file of the same folder may have been meant."""
    if not os.path.isdir(path.parent):
        return ""
    stems = {near.stem: near for near in path.parent.iterdir() if near.suffix in _SUFFIXES}
    found = get_close_matches(path.stem, stems, n=1)
    return f"; did you mean {str(stems[found[0]])!r}?" if found else ""

"""Pictures of an earlier shape of a study, taken away when it is drawn anew.

The one idea: a study that has one field less would else keep a picture of it, which nobody can tell
from a new one. What archgen has drawn is listed beside it with its content, and is removed only
where it is still that, byte for byte: a picture of somebody else's, and one that somebody has
changed, stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from archgen.files import read_sealed, write_sealed

DRAWN = "plots.json"
"""In the folder of a study: the pictures that archgen has drawn there, with their SHA-256."""
STUDY, EXPLORE = "pictures", "explore"
"""Who has drawn them: a study may stand in the folder of a search, and each keeps its own."""


def keep_only(folder: Path, made: Iterable[Path], whose: str = STUDY) -> list[Path]:
    """Remove what was drawn into `folder` before, by the same verb, and is not among `made`; gives
    what went."""
    now = {path.name: _digest(path) for path in made}
    drawn = _drawn(folder)
    stale = [
        folder / name
        for name, digest in drawn.get(whose, {}).items()
        if name not in now and _digest(folder / name) == digest
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    write_sealed(folder / DRAWN, json.dumps(drawn | {whose: now}, indent=1).encode())
    return stale


def _drawn(folder: Path) -> dict[str, dict[str, str]]:
    """What the list says; nothing where there is none, or none that can be trusted."""
    content = read_sealed(folder / DRAWN)
    return {} if content is None else dict(json.loads(content))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""

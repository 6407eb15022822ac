"""What a study was made of, for whoever finds its folder or reads its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class About:
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

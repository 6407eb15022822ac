"""What a study was made of, for whoever finds its folder or reads its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from archgen.cache import code_version
from archgen.design import Design
from archgen.point import Point


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
    total: int = 0
    """Points that it consists of, finished or not."""


def about(design: Design, points: Sequence[Point], command: str = "") -> About:
    """What the study of `design` is made of, as it starts now."""
    return About(
        design.name,
        design.description,
        command,
        design.source,
        code_version(),
        version("archgen"),
        time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        len(points),
    )

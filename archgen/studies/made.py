"""When and of what a stored result was made, so that a later one can say what is different.

The one idea: machine, network and sources each have a hash; what two results of one point differ in
is then known without running anything. The machine is kept whole, so that its fields can be named.
"""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from archgen.cache import code_version, content_hash
from archgen.outcomes.point import Point
from archgen.process.git import revision
from simmodel.arch import Arch


def made_of(point: Point) -> dict[str, Any]:
    """What a result of `point` is made of, now."""
    return {
        # Finer than a second: of two runs within one, the later one must be known.
        "when": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "version": version("archgen"),
        "code": code_version(),
        "git": revision(Path.cwd()),
        "machine": machine_hash(point.arch),
        "network": point.network,
        "arch": point.arch.model_dump(mode="json", by_alias=True),
    }


def machine_hash(arch: Arch) -> str:
    """A hash of all of a machine but how it is called."""
    return content_hash(
        arch.model_dump(mode="json", by_alias=True, exclude={"name", "description"})
    )

"""A binding: which engine runs a nest, and how a sum of products gets from sums to its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Binding:
    """How one nest runs on a machine."""

    engine: Literal["matrix", "vector", "copy"]
    """copy: a pure move between memories."""
    direct: bool = True
    """Matrix engine: the result is finished on write-back; else the vector engine finishes it."""
    sums: str = "local"
    """Memory role of partial sums."""

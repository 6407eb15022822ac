"""A binding: which engine runs a nest, and how a sum of products gets from sums to its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Binding:
    """How one nest runs on a machine."""

    engine: Literal["matrix", "vector", "scalar", "copy"]
    """copy: a pure move between memories."""
    direct: bool = True
    """Matrix engine: the result is finished on write-back; else the vector engine finishes it.
    Vector engine: not so where it adds up products over channels, and finishes these sums."""
    sums: str = "local"
    """Memory role of partial sums."""

    @property
    def product(self) -> bool:
        """Whether it is a sum of products with tiles and sums of its own, finished later or on
        write-back."""
        return self.engine == "matrix" or not self.direct

    @property
    def finisher(self) -> str:
        """The engine that writes the result; what else a copy would do stays on chip with the
        vector engine."""
        if self.engine in ("copy", "matrix"):
            return "matrix" if self.engine == "matrix" and self.direct else "vector"
        return self.engine

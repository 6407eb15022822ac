"""Series of the frame `Study.levels`, and what each of them can be at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archgen.outcomes.frame import Frame
from simmodel.arch import Arch

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A level over time: constant in each bin."""

    edges: Values
    """Cycles, one more than values."""
    values: Values

    @property
    def mean(self) -> float:
        """The mean over time."""
        lengths = np.diff(self.edges)
        return float((self.values * lengths).sum() / lengths.sum())


def series(levels: Frame, kind: str) -> dict[str, Series]:
    """All levels of `kind` of one point, by name in order of appearance."""
    own = levels[levels["kind"] == kind]
    found = {}
    for name, rows in own.groupby("name", sort=False):
        ordered = rows.sort_values("cycle")
        starts = ordered["cycle"].to_numpy(np.float64)
        width = starts[-1] - starts[-2] if len(starts) > 1 else 1.0
        values = ordered["value"].fillna(0).to_numpy(np.float64)
        found[str(name)] = Series(np.append(starts, starts[-1] + width), values)
    return found


def total(parts: Sequence[Series]) -> Series:
    """The sum of series with the same bins."""
    return Series(parts[0].edges, np.sum([part.values for part in parts], axis=0))


def link_peak(arch: Arch, name: str) -> float:
    """Bytes per cycle of all instances of a link, in both directions where it has two."""
    link = arch.links[name]
    both = link.duplex and not set(link.from_).isdisjoint(link.to)
    instances = {"chip": 1, "cluster": arch.clusters, "core": arch.core_count}[link.scope]
    return link.bandwidth.at(arch.clock) * instances * (2 if both else 1)

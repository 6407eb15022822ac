"""What a report is about: the part of a study that it reads.

The one idea: a study shows itself as a report, so the report knows a study by its shape alone.
"""

from __future__ import annotations

from typing import Protocol

from archgen.outcomes.about import About
from archgen.outcomes.frame import Frame
from archgen.outcomes.point import Outcome
from simmodel.arch import Arch


class Subject(Protocol):
    """A study (`archgen.studies.results.Study`)."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Its finished points."""

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Its machines."""

    @property
    def about(self) -> About:
        """What it was made of."""

    @property
    def frame(self) -> Frame:
        """One row for each point."""

    @property
    def by_name(self) -> dict[str, Arch]:
        """Its machines by their names."""

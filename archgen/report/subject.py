"""What a report is about: the part of a study that it reads.

The one idea: a study shows itself as a report, so the report knows a study by its shape alone.
"""

from __future__ import annotations

from typing import Protocol

from archgen.frame import Frame
from archgen.point import Outcome
from simmodel.arch import Arch


class Facts(Protocol):
    """What a study was made of, beside its points (`archgen.results.About`)."""

    @property
    def name(self) -> str:
        """Of the study."""

    @property
    def description(self) -> str:
        """In its author's words."""

    @property
    def command(self) -> str:
        """What was typed, where that is known."""

    @property
    def source(self) -> str:
        """Text of the study file, where there was one."""

    @property
    def code(self) -> str:
        """Hash of the sources that computed it."""

    @property
    def version(self) -> str:
        """Of archgen."""

    @property
    def started(self) -> str:
        """Local time, as ISO 8601 writes it."""

    @property
    def total(self) -> int:
        """Points that it consists of, finished or not."""


class Subject(Protocol):
    """A study (`archgen.results.Study`)."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Its finished points."""

    @property
    def archs(self) -> tuple[Arch, ...]:
        """Its machines."""

    @property
    def about(self) -> Facts:
        """What it was made of."""

    @property
    def frame(self) -> Frame:
        """One row for each point."""

    @property
    def by_name(self) -> dict[str, Arch]:
        """Its machines by their names."""

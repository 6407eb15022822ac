"""Points without a result: the sum that does not fit, and what would make it fit.

The one idea: what several points have in common is said once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archgen.outcomes.estimated import has_figures
from archgen.report.points import PointView

_TRY = "; try: "
_WORDS = {"does_not_fit": "does not fit", "unsupported": "not supported", "failed": "failed"}


@dataclass(frozen=True)
class Refusal:
    """A reason, and the points that it holds for."""

    status: str
    labels: tuple[str, ...]
    reason: tuple[str, ...]
    """Lines; the sum that does not fit."""
    levers: tuple[str, ...]


def refusals(points: Sequence[PointView]) -> list[Refusal]:
    """Every reason for which points have no result, in their order."""
    found: dict[tuple[str, str], list[str]] = {}
    for point in points:
        if not has_figures(point.row):
            status = str(point.row["status"])
            found.setdefault((status, point.text("reason")), []).append(point.label)
    return [
        Refusal(_WORDS.get(status, status), tuple(labels), *split_reason(reason))
        for (status, reason), labels in found.items()
    ]


def split_reason(reason: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines of a reason without its levers, and the levers."""
    lines, levers = [], []
    for line in reason.splitlines():
        said, _, tried = line.partition(_TRY)
        lines.append(said)
        levers += [lever.strip() for lever in tried.split(", or ") if lever.strip()]
    return tuple(lines), tuple(dict.fromkeys(levers))

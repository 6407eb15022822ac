"""Time left: by what points have taken that were run, worked out by hand."""

from __future__ import annotations

from itertools import accumulate

import pytest
from rich.console import Console

from archgen.cli import running
from archgen.outcomes.points import Outcome


def paced(monkeypatch: pytest.MonkeyPatch, *points: tuple[float, int, int, bool]) -> str:
    """The pace after points: their seconds, how many are done, of how many, whether stored."""
    times = accumulate([0.0, *(seconds for seconds, *_ in points)])
    monkeypatch.setattr(running.time, "monotonic", lambda: next(times))
    followed = running.Progress(Console(quiet=True))
    monkeypatch.setattr(followed.bar, "update", lambda *_, **__: None)
    for _, done, total, reused in points:
        followed.observe(Outcome("key", "label", {"status": "ok"}, reused=reused), done, total)
    return followed.pace()


def test_what_is_left_takes_what_points_have_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    points = ((2.0, 1, 20, False), (40.0, 2, 20, False))
    assert paced(monkeypatch, *points) == "2.86 points/min, 6 min left"


def test_stored_points_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = ((1.0, 1, 4, True), (1.0, 2, 4, True))
    assert paced(monkeypatch, *stored) == ""
    assert paced(monkeypatch, *stored, (10.0, 3, 4, False)) == "6 points/min, 10 s left"


def test_runs_behind_estimates_have_a_pace_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four estimates of a second each, then a run of 40 s: two more runs are 80 s."""
    estimates = ((1.0, done, 4, False) for done in range(1, 5))
    assert paced(monkeypatch, *estimates, (40.0, 1, 3, False)) == "1.5 points/min, 80 s left"

"""Time left: by what points of each network have taken, worked out by hand."""

from __future__ import annotations

from itertools import accumulate

import pytest
from rich.console import Console

from archgen.cli import running
from archgen.cli.running import ProgressRate
from archgen.outcomes.points import Outcome


def point(model: str, status: str = "ok", reused: bool = False) -> Outcome:
    return Outcome("key", "label", {"model": model, "status": status}, reused=reused)


def test_each_network_takes_what_its_points_have_taken() -> None:
    """Of two times ten points one of each is done: nine at 2 s and nine at 40 s are left."""
    pace = ProgressRate({"small": 10, "large": 10})
    pace.add(point("small"), 2.0)
    pace.add(point("large"), 40.0)
    assert pace.left(18) == 9 * 2 + 9 * 40
    assert pace.rate_text(42.0, 18) == "2.86 points/min, 6 min left"


def test_a_network_without_a_point_is_taken_for_the_mean() -> None:
    pace = ProgressRate({"small": 3, "unknown": 2})
    pace.add(point("small"), 2.0)
    pace.add(point("small"), 4.0)
    assert pace.left(3) == 1 * 3 + 2 * 3


def test_stored_points_cost_nothing_and_are_not_left() -> None:
    pace = ProgressRate({"small": 3, "large": 3})
    for _ in range(3):
        pace.add(point("small", reused=True), 0.0)
    assert pace.rate_text(1.0, 3) == ""
    pace.add(point("large"), 10.0)
    assert pace.left(2) == 20


def test_runs_behind_estimates_have_a_pace_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four estimates of a second each, then a run of 40 s: two more runs are 80 s."""
    times = accumulate([0.0, 1, 1, 1, 1, 40, 0])
    monkeypatch.setattr(running.time, "monotonic", lambda: next(times))
    followed = running.Progress(Console(quiet=True), ProgressRate({"net": 4}))
    monkeypatch.setattr(followed, "pace", lambda: "")
    for done in range(1, 5):
        followed.observe(point("net", "estimated"), done, 4)
    monkeypatch.undo()
    monkeypatch.setattr(running.time, "monotonic", lambda: 44.0)
    followed.observe(point("net"), 1, 3)
    assert followed.pace() == "1.5 points/min, 80 s left"

"""Workers: points that hang, eat memory or die are rows, and nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
from host_only import HOST_ONLY, small_model

from archgen.process.guard import Exceeded, guarded, resident
from archgen.studies import workers
from archgen.studies.design import designed, points
from archgen.studies.options import Running
from archgen.studies.sweep import run_study

ARCH = "ascend-310-like"
GIB = 1 << 30


pytestmark = pytest.mark.usefixtures("own_cache")


def frame(folder: Path, names: list[str], running: Running) -> pd.DataFrame:
    """The rows of models with these names, whose first letters say what goes wrong."""
    models = [small_model(folder / f"{name}.onnx") for name in names]
    return run_study(designed([ARCH], models), running, tools=HOST_ONLY).frame


def processes(folder: Path) -> list[str]:
    """The process of each compilation, in order."""
    return [line.split()[-1] for line in (folder / "log").read_text().splitlines()]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_worker_ignores_interrupts_where_its_parent_does(ignored: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with nullcontext() if ignored else pytest.raises(Exceeded, match="the process died"):
            assert guarded(lambda: os.kill(os.getpid(), signal.SIGINT)) is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_point_that_hangs_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    started = time.monotonic()
    found = frame(tmp_path, ["one", "hang", "two", "three"], Running(2, timeout=6))
    assert time.monotonic() - started < 60
    assert found["status"].tolist() == ["ok", "failed", "ok", "ok"]
    assert found["reason"][1].startswith("no result after 6 s (--timeout)")


def test_one_worker_is_enough_to_give_points_up(tmp_path: Path) -> None:
    found = frame(tmp_path, ["hang", "one"], Running(1, timeout=6))
    assert found["status"].tolist() == ["failed", "ok"]


@pytest.mark.skipif(resident(1) is None, reason="the system does not bound memory of data")
def test_a_point_that_eats_memory_is_a_failed_row_with_levers(tmp_path: Path) -> None:
    found = frame(tmp_path, ["one", "eat", "two"], Running(2, memory=GIB))
    assert found["status"].tolist() == ["ok", "failed", "ok"]
    reason = found["reason"][1]
    assert reason.startswith("a batch of 1 takes more memory than the 1 GiB that a worker process")
    assert "--memory" in reason
    assert "--jobs" in reason


@pytest.mark.skipif(resident(1) is None, reason="the system does not say what a process has")
def test_a_worker_that_keeps_too_much_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"leak{n}" for n in range(8)]
    calm = Running(1, memory=8 * GIB)
    assert set(frame(tmp_path, names, calm)["status"]) == {"ok"}
    assert len(set(processes(tmp_path))) == 1
    (tmp_path / "log").unlink()
    monkeypatch.setattr(workers, "_FULL", (resident_of_a_worker(tmp_path) + 4 * 64e6) / (8 * GIB))
    (tmp_path / "log").unlink()
    assert set(frame(tmp_path, names, calm)["status"]) == {"ok"}
    assert 2 <= len(set(processes(tmp_path))) <= 4


def resident_of_a_worker(folder: Path) -> float:
    """Bytes that a worker has after one point."""
    local = workers.LocalProcesses(HOST_ONLY, 1)
    point = points(designed([ARCH], [small_model(folder / "one.onnx")]))[0]
    local.submit(point).result()
    size = resident(int(processes(folder)[-1]))
    local.close()
    assert size is not None
    return size


def test_too_little_memory_for_any_worker_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(
        workers.WorkersGone, match=r"1 MiB for each worker .*: a worker process takes 512"
    ):
        frame(tmp_path, ["one"], Running(2, memory=1 << 20))


def test_an_executor_of_the_users_runs_points_until_it_is_gone(tmp_path: Path) -> None:
    names = ["one", "two", "three"]
    with ProcessPoolExecutor(2) as pool:
        there = frame(tmp_path, names, Running(2, executor=pool))
    here = frame(tmp_path, names, Running(1, executor="here"))
    times = ["compile_s", "verify_s", "simulate_s"]
    pd.testing.assert_frame_equal(there.drop(columns=times), here.drop(columns=times))
    with pytest.raises(workers.WorkersGone, match=r"takes no more points: .* after shutdown"):
        frame(tmp_path, names, Running(2, executor=pool))

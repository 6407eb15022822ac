"""A study on a Dask cluster of processes on this machine, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from host_only import LOG, small_model
from killed import SLOW, many, quiet

from archgen.outcomes.points import Outcome
from archgen.studies.design import StudyError, designed
from archgen.studies.executors import cluster
from archgen.studies.sweep import run_study

distributed = pytest.importorskip("distributed")
HERE = Path(__file__).parent
TIMES = ["compile_s", "verify_s", "simulate_s"]
POINTS = 30


def started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process of the cluster, which can import what stands in this folder."""
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.fixture
def machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Address of a scheduler and its two workers."""
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    local = ("--host", "127.0.0.1")
    scheduler = started("dask_scheduler", *local, "--port", str(port), "--no-dashboard")
    own = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path))
    workers = [started("dask_worker", address, *local, *own) for _ in range(2)]
    try:
        with distributed.Client(address, timeout=60) as client:
            client.wait_for_workers(2, timeout=100)
        yield address, workers
    finally:
        for process in (*workers, scheduler):
            process.kill()
            process.wait()


def test_a_study_outlives_a_worker_of_its_cluster(
    tmp_path: Path, machines: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    address, workers = machines
    design = many(small_model(tmp_path / "small.onnx"), POINTS)

    def observe(outcome: Outcome, done: int, total: int) -> None:
        if done == POINTS // 3:
            workers[0].send_signal(signal.SIGKILL)

    there = run_study(design, quiet(tmp_path / "a", executor=f"dask:{address}"), observe, SLOW)
    here = run_study(design, quiet(tmp_path / "b"), tools=SLOW)
    assert workers[0].wait(10) == -signal.SIGKILL
    pd.testing.assert_frame_equal(there.frame.drop(columns=TIMES), here.frame.drop(columns=TIMES))
    pd.testing.assert_frame_equal(there.layers, here.layers)
    pd.testing.assert_frame_equal(there.spans, here.spans)


def test_a_point_that_hangs_on_a_cluster_is_given_up(
    tmp_path: Path, machines: tuple[str, list[subprocess.Popen[bytes]]]
) -> None:
    address, _ = machines
    models = [small_model(tmp_path / f"{name}.onnx") for name in ("one", "hang", "two")]
    design = designed(["ascend-310-like"], models)
    running = quiet(tmp_path / "a", executor=f"dask:{address}", timeout=15)
    assert run_study(design, running, tools=SLOW).frame["status"].tolist() == ["ok", "failed", "ok"]


def test_a_scheduler_that_does_not_answer_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("archgen.studies.executors._START", 1)
    began = time.monotonic()
    with pytest.raises(StudyError, match=r"executor dask:tcp://127\.0\.0\.1:9: no scheduler"):
        cluster("dask:tcp://127.0.0.1:9", SLOW)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("size", ["0", "-1", "many"])
def test_a_cluster_of_its_own_has_workers(size: str) -> None:
    with pytest.raises(StudyError, match=f"^executor dask:local:{size}: expected"):
        cluster(f"dask:local:{size}", SLOW)

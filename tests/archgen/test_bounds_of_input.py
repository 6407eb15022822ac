"""Models without end, or beyond any memory: a refused point each, by default, and nothing else."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from endless_models import doubling, endless, huge
from host_only import HOST_ONLY, invoke, small_model

from archgen.cli import models
from archgen.process import guard, steps
from archgen.process.guard import (
    Exceeded,
    ResourceLimits,
    fork_context,
    guarded,
    machine_memory,
    memory_share,
)
from archgen.process.steps import step
from archgen.studies.options import Running
from archgen.studies.sweep import study

pytestmark = [
    pytest.mark.usefixtures("own_cache"),
    pytest.mark.skipif(fork_context() is None, reason="the system forks no process safely"),
]
SMALL = "mcu-npu"
"""A machine with 32 MiB of DRAM."""
FLOATS = "stcp920"
GIB = 1 << 30


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps may take a second, not ten minutes."""
    monkeypatch.setattr(steps, "STEP_SECONDS", 1.0)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (endless, "running endless in ONNX Runtime took more than 1 s; a larger --timeout allows"),
        (doubling, "doubling.onnx took more than 1 s"),  # while its functions are opened
    ],
)
def test_what_never_ends_is_given_up_by_default_and_the_study_goes_on(
    tmp_path: Path, make: Callable[[Path], Path], said: str
) -> None:
    models = [make(tmp_path / f"{make.__name__}.onnx"), small_model(tmp_path / "small.onnx")]
    found = study([FLOATS], models, tools=HOST_ONLY).frame
    assert found["status"].tolist() == ["failed", "ok"]
    assert said in found["reason"][0]


@pytest.mark.usefixtures("hurried")
def test_a_loop_without_end_is_given_up_while_it_is_quantized(tmp_path: Path) -> None:
    found = study([SMALL], [endless(tmp_path / "endless.onnx")]).frame
    assert found["reason"][0].startswith("quantizing endless took more than 1 s")


def test_a_value_larger_than_dram_is_refused_before_it_is_made(tmp_path: Path) -> None:
    started = time.monotonic()
    found = study([SMALL], [huge(tmp_path / "huge.onnx", 1 << 27, known=True)]).frame
    assert found["status"][0] == "does_not_fit"
    assert found["reason"][0].startswith("huge: DRAM needs 1 GiB, has 32 MiB: Range r 1 GiB")
    assert time.monotonic() - started < 60


def test_a_value_of_a_size_that_nobody_could_know_ends_at_the_bound(tmp_path: Path) -> None:
    models = [huge(tmp_path / "huge.onnx", GIB, known=False), small_model(tmp_path / "small.onnx")]
    found = study([SMALL], models, memory=2 * GIB, tools=HOST_ONLY).frame
    assert found["status"].tolist() == ["failed", "ok"]
    assert "than the 2 GiB that a worker process may have" in found["reason"][0]
    assert "--memory" in found["reason"][0]
    assert "at quantizing huge" in found["reason"][0]


def test_a_timeout_says_what_the_point_was_at(tmp_path: Path) -> None:
    found = study([FLOATS], [endless(tmp_path / "e.onnx")], timeout=3, tools=HOST_ONLY).frame
    said = "no result after 3 s (--timeout), at running e in ONNX Runtime"
    assert found["reason"][0] == said


def test_a_study_may_run_here_where_nothing_is_bounded(tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    study([SMALL], [model], executor="here", tools=HOST_ONLY)
    study([SMALL], [model], tools=HOST_ONLY)
    here, worker = (int(line.split()[-1]) for line in (tmp_path / "log").read_text().splitlines())
    assert here == os.getpid() != worker


def test_every_worker_has_its_share_of_the_machine() -> None:
    there = machine_memory()
    assert there is not None
    shares = [memory_share(None, jobs) or 0 for jobs in (1, 2)]
    assert 0.7 * there < sum(shares) / 1.5 < 0.8 * there
    assert memory_share(GIB, 4) == GIB
    assert Running().memory is None


def compiled(*arguments: str) -> Result:
    return invoke("compile", SMALL, "--effort", "0", *arguments)


@pytest.mark.usefixtures("hurried")
def test_compile_gives_up_too(tmp_path: Path) -> None:
    result = compiled("-m", str(endless(tmp_path / "endless.onnx")))
    assert result.exit_code == 1
    assert "no result: quantizing endless took more than 1 s" in result.stderr


def test_compile_keeps_to_its_memory(tmp_path: Path) -> None:
    path = huge(tmp_path / "huge.onnx", GIB, known=False)
    result = compiled("-m", str(path), "--memory", "2GiB")
    assert result.exit_code == 1
    said = "no result: quantizing huge takes more than 2 GiB of memory; a larger --memory"
    assert said in result.stderr


def test_work_elsewhere_gives_and_raises_what_it_would_here() -> None:
    assert guarded(lambda: [1, 2]) == [1, 2]
    with pytest.raises(KeyError, match="no"):
        guarded(lambda: {}["no"])
    with pytest.raises(RuntimeError, match="OnlyHere"):
        guarded(lambda: raising(type("OnlyHere", (Exception,), {})()))


def test_work_that_hangs_before_its_first_step_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STEP_SECONDS", 0.3)
    with pytest.raises(Exceeded, match=r"no result after 0\.3 s"):
        guarded(lambda: time.sleep(60))


def test_a_bound_of_the_user_stays() -> None:
    resource = pytest.importorskip("resource")

    def bound() -> int:
        found: int = resource.getrlimit(resource.RLIMIT_DATA)[1]
        return found

    def bounded() -> tuple[int, int]:
        own = 2 * GIB + (
            guard.resident("self", guard._DATA) or 0
        )  # beside what this process of tests has
        resource.setrlimit(resource.RLIMIT_DATA, (own, own))
        return own, guarded(bound)

    own, found = guarded(bounded)
    assert found == own


def raising(mistake: Exception) -> None:
    raise mistake


def test_work_that_dies_is_told_with_its_step() -> None:
    def dies() -> None:
        with step("dying"):
            os._exit(9)

    with pytest.raises(Exceeded, match="the process died at dying: out of memory, or a crash"):
        guarded(dies)


def test_a_fork_leaves_alone_what_its_parent_dropped() -> None:
    """A session of ONNX Runtime would wait for its threads, which a fork does not have."""
    here = os.getpid()

    class Session:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if os.getpid() != here:
                os._exit(1)

    gc.disable()
    try:
        Session()
        assert guarded(gc.collect) >= 0
    finally:
        gc.enable()


def test_work_that_takes_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_LOOK", 0.05)
    with pytest.raises(Exceeded, match=r"no result after 0.2 s \(--timeout\)"):
        guarded(lambda: time.sleep(60), ResourceLimits(timeout=0.2))


@pytest.mark.usefixtures("hurried")
def test_a_file_that_takes_too_long_to_open_is_a_point_that_failed(tmp_path: Path) -> None:
    """At another batch its shapes are inferred when it is opened, before there are points."""
    model = doubling(tmp_path / "doubling.onnx")
    found = study([FLOATS], [model], [2], timeout=2, tools=HOST_ONLY).frame
    assert found["status"].tolist() == ["failed"]
    assert "no result after 2 s (--timeout), at opening" in found["reason"][0]


def test_models_gives_up_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*given: object) -> None:
        time.sleep(600)

    monkeypatch.setattr(models, "roles_of", endless)
    result = invoke("models", "net.onnx", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "no result after 0.5 s (--timeout), at opening net.onnx" in result.stderr

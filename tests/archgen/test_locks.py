"""Work that several processes need is done by one of them, and who is gone has no lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from archgen.process.files import Locks
from archgen.process.guard import fork_context

CODE = """
import sys, time
from pathlib import Path
from archgen.process.files import alone
folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with alone(folder / "made"):
    if not (folder / "made").exists():
        with (folder / "log").open("a") as log:
            log.write("made\\n")
        time.sleep(0.3)
        (folder / "made").touch()
"""


def started(folder: Path, code: str = CODE, first: str | None = "ready\n") -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    assert process.stdout is not None
    assert first is None or process.stdout.readline() == first
    return process


def test_one_process_makes_and_the_others_take(tmp_path: Path) -> None:
    processes = [started(tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(30) for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


HOLDER = """
import sys, time
from pathlib import Path
from archgen.process.files import Locks
locks = Locks(Path(sys.argv[1]))
print(locks.take("one"), locks.take("one"), locks.take("two"), flush=True)
locks.release("two")
print("released", flush=True)
time.sleep(60)
"""


def test_a_name_is_held_by_one_process_until_that_releases_it_or_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    process = started(folder, HOLDER, "True True True\n")
    locks = Locks(folder)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "released\n"
        assert (locks.take("one"), locks.take("two"), locks.take("three")) == (False, True, True)
    finally:
        process.kill()
        process.wait(30)
    assert locks.take("one")
    other = Locks(folder)
    assert not other.take("one")
    locks.close()
    assert other.take("one")
    other.close()


FORKED = """
import os, sys, time
from pathlib import Path
from archgen.process.files import Locks
locks = Locks(Path(sys.argv[1]))
locks.take("one")
if not os.fork():  # only now has the child let go of what its parent held
    print(os.getpid(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(fork_context() is None, reason="this system does not fork safely")
def test_a_fork_that_outlives_its_killed_study_holds_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, FORKED, None)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait(30)
    try:
        os.kill(child, 0)
        assert Locks(tmp_path).take("one")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_that_is_killed_leaves_the_work_to_others(tmp_path: Path) -> None:
    killed, other = started(tmp_path), started(tmp_path)
    for process in (killed, other):
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        if process is killed:
            while not (tmp_path / "log").exists():
                assert process.poll() is None
    killed.kill()
    assert other.wait(30) == 0
    assert (tmp_path / "made").exists()

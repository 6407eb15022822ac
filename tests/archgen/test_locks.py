"""Work that several processes need is done by one of them, and who is gone has no lock."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from host_only import go_on, prints, python

from archgen.process.files import Locks
from archgen.process.guard import fork_context

CODE = """
import sys, time
from pathlib import Path
from archgen.process.files import exclusive
folder = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with exclusive(folder / "made"):
    if not (folder / "made").exists():
        with (folder / "log").open("a") as log:
            log.write("made\\n")
        time.sleep(0.3)
        (folder / "made").touch()
"""


def started(folder: Path) -> subprocess.Popen[str]:
    process = python("-c", CODE, folder)
    assert prints(process) == "ready\n"
    return process


def test_one_process_makes_and_the_others_take(tmp_path: Path) -> None:
    processes = [started(tmp_path) for _ in range(3)]
    go_on(*processes)
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
    process, locks = python("-c", HOLDER, folder), Locks(folder)
    try:
        assert [prints(process), prints(process)] == ["True True True\n", "released\n"]
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
    process = python("-c", FORKED, tmp_path)
    child = int(prints(process))
    process.kill()
    process.wait(30)
    try:
        os.kill(child, 0)
        assert Locks(tmp_path).take("one")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_that_is_killed_leaves_the_work_to_others(tmp_path: Path) -> None:
    killed, other = started(tmp_path), started(tmp_path)
    go_on(killed)
    while not (tmp_path / "log").exists():
        assert killed.poll() is None
    go_on(other)
    killed.kill()
    assert other.wait(30) == 0
    assert (tmp_path / "made").exists()

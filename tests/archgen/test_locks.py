"""Work that several processes need is done by one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys, time
from pathlib import Path
from archgen.process.locks import alone
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


def started(folder: Path) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_one_process_makes_and_the_others_take(tmp_path: Path) -> None:
    processes = [started(tmp_path) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(30) for process in processes] == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "made\n"


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

"""Finished points survive what happens to studies: kills, rivals, full disks, damaged files; what
several processes need one of them makes, and who is gone has no lock."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from host_only import HOST_ONLY, go_on, prints, python, small_model
from killed import MACHINES, SLOW, many, quiet
from role_nets import conv_net

from archgen.process import files
from archgen.process.files import Locks, read_sealed, write_sealed
from archgen.process.guard import fork_context
from archgen.process.start import DamagedFile
from archgen.schema.load import load_arch
from archgen.schema.rewritten import changed
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study
from archgen.studies.store import Store, StoreError, StudyScheduleCache
from archgen.studies.sweep import run_study, study
from simmodel.arch.record import Arch
from simmodel.machine.run import traced

ARCH = "ascend-310-like"
TIMES = ["compile_s", "verify_s", "simulate_s"]


pytestmark = pytest.mark.usefixtures("own_cache")


def compiled(folder: Path) -> list[str]:
    """Machines that were compiled for, in order."""
    log = folder / "log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("jobs", "kills"), [(1, 46), (2, 6)])
def test_killed_anywhere_nothing_finished_is_lost_or_done_twice(
    tmp_path: Path, jobs: int, kills: int
) -> None:
    small_model(tmp_path / "small.onnx")
    process = python(Path(__file__).with_name("killed.py"), tmp_path, kills, jobs, 7)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    seen: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    assert sum(one["killed"] for one in seen) == kills
    before: set[str] = set()
    for one in seen:
        stored = set(one["stored"])
        assert one["broken"] == 0
        assert one["survivors"] == 0
        assert before <= stored, "a finished point is lost"
        assert not before & set(one["compiled"]), "a finished point was run again"
        assert len(stored - before) <= len(one["compiled"]) <= len(stored - before) + jobs
        if not one["killed"]:
            assert len(stored) == MACHINES
        before = stored if one["killed"] else set()
    assert any(0 < len(one["stored"]) < MACHINES for one in seen), "no kill hit a study at work"


RIVAL = """
import sys
from pathlib import Path
from killed import SLOW, many, quiet
from archgen.studies.sweep import run_study
model, out, frame = sys.argv[1:]
design = many(Path(model), 24)
print("ready", flush=True)
sys.stdin.readline()
run_study(design, quiet(out), tools=SLOW).frame.to_pickle(frame)
"""


def test_two_studies_in_one_folder_share_the_work(tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    frames = [tmp_path / "a", tmp_path / "b"]
    both = [python("-c", RIVAL, model, tmp_path / "out", file) for file in frames]
    assert list(map(prints, both)) == ["ready\n"] * 2
    go_on(*both)
    for process in both:
        process.communicate(timeout=100)
        assert process.returncode == 0
    assert sorted(compiled(tmp_path)) == sorted(f"machine-{n}" for n in range(24))
    first, second = (pd.read_pickle(path) for path in frames)
    assert len(first) == 24
    pd.testing.assert_frame_equal(first, second)


def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, out = many(small_model(tmp_path / "small.onnx"), 5), tmp_path / "out"
    real, written = files.write_bytes, []

    def full(path: Path, content: bytes) -> None:
        finished = path.suffix == ".json" and path.parent.name == "runs"
        if finished and len(written) == 3:
            path.with_name("half.part").write_bytes(b"half")
            raise OSError(28, "No space left on device")
        written.extend([path] if finished else [])
        real(path, content)

    monkeypatch.setattr(files, "write_bytes", full)
    with pytest.raises(StoreError, match="No space left on device; 3 of 5 points") as caught:
        run_study(design, quiet(out), tools=SLOW)
    assert str(out) in str(caught.value)
    assert len(open_study(out).outcomes) == 3
    monkeypatch.setattr(files, "write_bytes", real)
    again = run_study(design, quiet(out), tools=SLOW)
    assert (again.reused, len(again.frame)) == (3, 5)


def test_what_killed_studies_left_is_removed_when_it_is_old(tmp_path: Path) -> None:
    model, runs = small_model(tmp_path / "small.onnx"), tmp_path / "out" / "runs"
    runs.mkdir(parents=True)
    old, new = runs / "a.123.part", runs / "b.123.part"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 2 * 3600,) * 2)
    study([ARCH], [model], out=tmp_path / "out", plots=False, tools=HOST_ONLY)
    assert not old.exists()
    assert new.exists(), "somebody may be writing it"


def test_links_and_pipes_stay_what_they_are_and_the_text_goes_through_them(tmp_path: Path) -> None:
    link, target, pipe = (tmp_path / name for name in ("link", "target", "pipe"))
    link.symlink_to(target)
    files.write_text(link, "behind a link")
    assert link.is_symlink() and target.read_text() == "behind a link"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    try:
        files.write_text(pipe, "through a pipe")
        assert pipe.is_fifo() and os.read(end, 99) == b"through a pipe"
    finally:
        os.close(end)
    assert {path.name for path in tmp_path.iterdir()} == {"link", "target", "pipe"}


def test_outcomes_of_a_stored_study_leave_their_tables_on_disk(tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    stored = study([ARCH], [model], out=tmp_path / "out", plots=False, tools=SLOW).outcomes[0]
    assert stored.tables
    assert all(isinstance(table, Path) for table in stored.tables.values())


def test_a_file_system_without_locks_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files.FileLock, "acquire", none)
    assert Store(tmp_path).claim("a" * 64)


# What the compiler has decided stays in a study's folder, and never changes what a study says.


def machines() -> list[Arch]:
    """Two that decide alike, and two with other memories."""
    base = load_arch("soma-edge")
    fields = {"deeper": ("front_end.queue_depth", 20)}
    fields |= {f"size-{size}": ("memories.local.size", size) for size in (8192, 16384)}
    others = [(name, changed(base, {field: value})) for name, (field, value) in fields.items()]
    return [base, *(arch.model_copy(update={"name": name}) for name, arch in others if arch)]


def frame(archs: Sequence[Arch], net: Path, **options: object) -> pd.DataFrame:
    """The study's answers by machine, without the times that it took."""
    made = study(archs, [net], executor="here", plots=False, effort=0, **options)  # type: ignore[arg-type]
    return made.frame.drop(columns=TIMES).set_index("arch").sort_index()


def test_answers_depend_neither_on_order_nor_on_interruption_nor_on_damage(tmp_path: Path) -> None:
    net, archs, out = conv_net(tmp_path / "net.onnx"), machines(), tmp_path / "out"
    cold = pd.concat([frame([arch], net) for arch in archs]).sort_index()
    alone = frame(archs, net, out=out, isolated=True)
    pd.testing.assert_frame_equal(alone, cold, check_like=True)
    made = frame(archs, net, out=out)
    decided = sorted((out / "decisions").glob("*.json"))
    assert len(decided) > 2
    pd.testing.assert_frame_equal(frame(archs[::-1], net), made, check_like=True)
    shutil.rmtree(out / "runs")  # as if interrupted before the first point was stored
    pd.testing.assert_frame_equal(frame(archs, net, out=out), made, check_like=True)
    shutil.rmtree(out / "runs")
    for path in decided:
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(DamagedFile):
        again = frame(archs, net, out=out)
    pd.testing.assert_frame_equal(again, made, check_like=True)
    shelf = StudyScheduleCache(out / "decisions")
    assert all(shelf.get(path.stem) for path in decided), "a damaged file is made again"


def test_a_shelf_is_bounded_and_does_without_a_folder(tmp_path: Path) -> None:
    shelf = StudyScheduleCache(tmp_path / "decisions", most=20)
    for number in range(50):
        shelf.put(f"a.b.{number}", '{\n "text": 1\n}')
    assert len(shelf.names("a.")) <= 22
    assert shelf.get("a.b.49") is not None
    assert shelf.names("b.") == []
    (tmp_path / "file").write_text("")
    nowhere = StudyScheduleCache(tmp_path / "file" / "decisions")
    nowhere.put("a.b.c", '{\n "text": 1\n}')
    assert nowhere.get("a.b.c") is None


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


# Files that are kept to save work: one that is not what was written is made again, and said so.

SMALLEST = "mcu-npu"
TRACED = replace(HOST_ONLY, simulate=traced)
MUTATIONS = 400


def run(folder: Path) -> Study:
    """A study of one int8 model, in this process, so that its warnings can be seen."""
    model = folder / "small.onnx"
    return study(
        [SMALLEST], [model], out=folder / "out", plots=False, executor="here", tools=TRACED
    )


def result_of(study: Study) -> pd.DataFrame:
    return study.frame.drop(columns=TIMES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished study in `out`, and its cache in `cache`."""
    monkeypatch.setenv("ARCHGEN_CACHE", str(tmp_path / "cache"))
    small_model(tmp_path / "small.onnx")
    run(tmp_path)
    return tmp_path


def first(folder: Path, pattern: str) -> Path:
    return min(folder.glob(pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        "out/runs/*.json",
        "out/runs/*.layers.parquet",
        "out/runs/*.spans.parquet",
        "out/runs/*.levels.parquet",
        "cache/int8-*.onnx",
        "cache/reference-*.npz",
    ],
)
def test_a_flipped_byte_is_found_said_and_made_good(folder: Path, pattern: str) -> None:
    before = result_of(run(folder))
    path = first(folder, pattern)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)
    if pattern.startswith("cache"):
        shutil.rmtree(folder / "out")
    with pytest.warns(DamagedFile, match=f"{path.name}.* is damaged and is not used") as said:
        again = run(folder)
    assert len(said) == 1 or not pattern.startswith("cache")
    assert again.reused == 0
    pd.testing.assert_frame_equal(result_of(again), before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(folder).reused == 1


def test_a_result_under_the_name_of_another_is_not_taken(folder: Path) -> None:
    path = first(folder, "cache/int8-*.onnx")
    other = path.with_name("int8-0.onnx")
    shutil.copy(path, other)
    with pytest.warns(DamagedFile, match="int8-0"):
        assert read_sealed(other) is None


def test_a_damaged_list_of_points_is_an_error_in_words(folder: Path) -> None:
    path = folder / "out" / "study.json"
    path.write_bytes(path.read_bytes().replace(b"small", b"smell"))
    with (
        pytest.warns(DamagedFile),
        pytest.raises(StudyError, match="is damaged, or of another version of archgen; run the"),
    ):
        open_study(folder / "out")


@pytest.mark.parametrize("name", ["a.json", "a.npz"])
def test_what_is_sealed_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    content = b'{\n "a": 1\n}'
    write_sealed(tmp_path / name, content)
    assert read_sealed(tmp_path / name) == content
    assert read_sealed(tmp_path / f"no-{name}") is None


def flipped(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def without(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + content[at + chance.randint(1, 40) :]


def twice(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    return content[:at] + content[at - 20 : at + 20] + content[at:]


def zeroed(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content))
    length = min(chance.choice([1, 16, 512]), len(content) - at)
    return content[:at] + bytes(length) + content[at + length :]


def longer(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.randint(1, 99))


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flipped, cut, without, twice, zeroed, longer,
)  # fmt: skip


def stored(folder: Path) -> Any:
    """What the store has of the only point."""
    outcomes = list(Store(folder / "out").everything())
    return [(outcome.row, outcome.layers) for outcome in outcomes]


def test_no_damage_is_taken_for_a_result_or_raises(folder: Path) -> None:
    chance = random.Random(9)
    kept = sorted([*(folder / "out" / "runs").glob("*.*"), *(folder / "cache").glob("*.*")])
    paths = [path for path in kept if not path.name.startswith(".")]
    assert len(paths) == 7, "four of the point; int8, and two references, of it and in fp32"
    whole = {path: path.read_bytes() for path in paths}
    found = stored(folder)
    for number in range(MUTATIONS):
        path = paths[number % len(paths)]
        damaged = chance.choice(DAMAGE)(whole[path], chance)
        path.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            usable = read_sealed(path) if path.parent.name == "cache" else stored(folder)
        path.write_bytes(whole[path])
        if damaged != whole[path]:
            assert not usable, f"mutation {number} of {path.name} was used"
            assert [each.category for each in said] == [DamagedFile]
    assert stored(folder) == found

"""Files that are kept to save work: one that is not what was written is made again, and said so."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from host_only import HOST_ONLY, small_model

from archgen.process.files import read_sealed, write_sealed
from archgen.process.start import DamagedFile
from archgen.studies.design import StudyError
from archgen.studies.results import Study, open_study
from archgen.studies.store import Store
from archgen.studies.sweep import study
from simmodel.machine.run import traced

ARCH = "mcu-npu"
TRACED = replace(HOST_ONLY, simulate=traced)
MUTATIONS = 400
TIMES = ["compile_s", "verify_s", "simulate_s"]


def run(folder: Path) -> Study:
    """A study of one int8 model, in this process, so that its warnings can be seen."""
    model = folder / "small.onnx"
    return study([ARCH], [model], out=folder / "out", plots=False, executor="here", tools=TRACED)


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
    with pytest.warns(DamagedFile, match=f"{path.name}.* is damaged and is not used"):
        again = run(folder)
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

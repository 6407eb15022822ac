"""What the compiler has decided stays in a study's folder, and never changes what a study says."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from conv_net import conv_net

from archgen.process.files import DamagedFile
from archgen.schema.load import load_arch
from archgen.studies.store import StudyScheduleCache
from archgen.studies.sweep import study
from simmodel.arch.record import Arch

pytestmark = pytest.mark.usefixtures("own_cache")

TIMES = ["compile_s", "verify_s", "simulate_s"]


def machines() -> list[Arch]:
    """Two that decide alike, and two with other memories."""
    base = load_arch("soma-edge")
    local, dram, front = base.memories.local, base.memories.dram, base.front_end

    def with_size(size: int) -> Arch:
        memories = base.memories.model_copy(
            update={"local": local.model_copy(update={"size": size}), "dram": dram}
        )
        return base.model_copy(update={"name": f"size-{size}", "memories": memories})

    deeper = base.model_copy(
        update={"name": "deeper", "front_end": front.model_copy(update={"queue_depth": 20})}
    )
    return [base, deeper, with_size(8192), with_size(16384)]


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

"""What a search leaves in its folder: machines to go on with, tables and pictures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from test_exploration import BASE, asked, means, names

from archgen.exploration.plan import load_exploration
from archgen.exploration.saving import save_found
from archgen.exploration.search import search
from archgen.schema import load_arch


def test_machines_of_the_front_are_files_to_go_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out"
    study = asked(tmp_path, trials=100)
    study["archs"] = {"extends": BASE, "set": {"memories.dram.bandwidth": "20 GB/s"}}
    result = search(load_exploration(study), means(out))
    (out / "front").mkdir(parents=True)
    (out / "front" / "old.yaml").write_text("name: old")
    save_found(result, out)
    files = {path.stem: load_arch(path) for path in (out / "front").glob("*.yaml")}
    assert set(files) == names(result)
    for judged in result.front:
        arch = judged.machine.arch
        assert files[arch.name].model_copy(update={"description": arch.description}) == arch
    frame = pd.read_csv(out / "front.csv")
    assert list(frame["arch"]) == [judged.machine.arch.name for judged in result.front]
    assert list(frame["latency_ms"]) == sorted(frame["latency_ms"])
    assert (out / "pareto.png").stat().st_size > 1000
    study["explore"]["objectives"] = ["latency_ms", "area_mm2", "peak_local_bytes"]
    save_found(search(load_exploration(study), means(out)), out)
    drawn = {path.name for path in out.glob("pareto*.png")}
    assert len(drawn) == 3 and "pareto.png" not in drawn

"""The two frames of a run over time: worked out by hand, and against the run's own sums."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from role_nets import conv_net
from small_run import machine, two_layers

from archgen.outcomes.columns import LEVEL_COLUMNS, SPAN_COLUMNS, ordered
from archgen.outcomes.timeline import levels_table, spans_table, spread
from archgen.studies.sweep import Study, study
from simmodel.machine.run import traced


def level(frame: pd.DataFrame, kind: str, name: str) -> list[float]:
    chosen = frame[(frame["kind"] == kind) & (frame["name"] == name)]
    assert chosen["cycle"].tolist() == sorted(chosen["cycle"].tolist())
    return chosen["value"].tolist()


def test_spans_by_hand() -> None:
    made = two_layers()
    frame = spans_table(traced(made, machine()), made)
    assert list(frame.itertuples(index=False, name=None)) == [
        (0, "load", 0, "conv", 0, 10, 1),
        (0, "matrix", 0, "conv", 10, 12, 1),
        (0, "vector", 1, "act", 12, 16, 1),
        (0, "store", 1, "act", 16, 20, 1),
    ]


def test_levels_by_hand() -> None:
    made, arch = two_layers(), machine()
    # 20 cycles are fewer than 400 bins, so a bin is a cycle.
    frame = levels_table(traced(made, arch), made, arch)
    assert level(frame, "bandwidth", "dram.read") == [16.0] * 10 + [0.0] * 10
    assert level(frame, "bandwidth", "dram.write") == [0.0] * 16 + [16.0] * 4
    assert level(frame, "busy", "core0.vector") == [0.0] * 12 + [1.0] * 4 + [0.0] * 4
    assert level(frame, "occupancy", "local") == [160.0] * 12 + [120.0] * 8
    assert level(frame, "occupancy", "dram") == [0.0] * 20
    assert not any(name.startswith("local.bank") for name in frame["name"])


def test_amounts_are_spread_over_bins() -> None:
    start, end, amount = (np.array(v) for v in ([0, 8, 3, 29], [10, 28, 3, 30], [100, 60, 7, 5]))
    # 10 a cycle up to 10, 3 a cycle from 8 to 28, nothing without length, 5 in the last cycle.
    means = spread(start, end, amount, 30, 10)
    assert means.tolist() == pytest.approx([10.6, 3.0, 2.9])
    assert means.sum() * 10 == pytest.approx(165)
    assert spread(start, end, amount, 30, 7).sum() * 7 == pytest.approx(165)


pytestmark = pytest.mark.usefixtures("own_cache")


ARCHS = ("soma-edge", "gemmini-16", "stream-32x32-4c")
POINT = ["arch", "kind", "name"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A network of four convolutions on machines of one and of many cores."""
    folder = tmp_path_factory.mktemp("study")
    return study(ARCHS, [conv_net(folder / "net.onnx", odd=True)], verify=False)


def test_frames_have_the_columns_that_are_explained(run: Study) -> None:
    for frame, columns in ((run.spans, SPAN_COLUMNS), (run.levels, LEVEL_COLUMNS)):
        assert frame.columns.tolist() == ordered([], columns)
        assert frame["arch"].unique().tolist() == list(ARCHS)
    assert run.spans["start_cycle"].dtype == "Int64"
    assert set(run.spans["engine"]) >= {"matrix", "load", "store", "host"}
    assert run.spans[run.spans["engine"] == "host"]["core"].unique().tolist() == [-1]


def test_bins_add_up_to_bytes_and_busy_cycles(run: Study) -> None:
    for outcome in run.outcomes:
        levels = run.levels[run.levels["arch"] == outcome.row["arch"]]
        length = levels["cycle"].drop_duplicates().diff().iloc[1]
        total = levels.groupby(["kind", "name"])["value"].sum() * length
        for key, moved in outcome.details["traffic"].items():
            assert total["bandwidth", key] == pytest.approx(moved)
        for engine in ("matrix", "vector", "load", "store"):
            busy = sum(layer.get(f"busy_{engine}_cycles", 0) for layer in outcome.layers)
            own = [key for key in total.index if key[1].endswith(f".{engine}")]
            assert busy > 0
            assert total[own].sum() == pytest.approx(busy)


def test_the_highest_level_is_the_peak(run: Study) -> None:
    highest = run.levels.groupby(POINT)["value"].max()
    for row in run.frame.to_dict("records"):
        for role in ("dram", "local", "accumulators", "shared"):
            if (row["arch"], "occupancy", role) in highest.index:
                assert highest[row["arch"], "occupancy", role] == row[f"peak_{role}_bytes"]
        assert highest[row["arch"], "occupancy", "local"] > 0


def test_spans_reach_from_the_first_cycle_to_the_last(run: Study) -> None:
    ends = run.spans.groupby("arch")["end_cycle"].max()
    assert ends.to_dict() == run.frame.set_index("arch")["latency_cycles"].to_dict()
    assert set(run.spans["node"]) == set(run.layers["node"])
    rows = run.spans.groupby("arch").size()
    assert rows.max() < 20_000


def test_stored_tables_are_read_when_asked_for(tmp_path: Path) -> None:
    model, out = conv_net(tmp_path / "net.onnx"), tmp_path / "out"
    fresh = study(["soma-edge"], [model], verify=False, out=out, plots=False)
    again = study(["soma-edge"], [model], verify=False, out=out, plots=False)
    assert again.reused == 1
    stored = again.outcomes[0].tables
    assert {name: isinstance(table, Path) for name, table in stored.items()} == {
        "spans": True, "levels": True,
    }  # fmt: skip
    pd.testing.assert_frame_equal(again.spans, fresh.spans)
    pd.testing.assert_frame_equal(again.levels, fresh.levels)
    assert len(pickle.dumps(fresh.outcomes[0])) < 100_000


def test_a_point_without_its_tables_is_run_again(tmp_path: Path) -> None:
    model, out = conv_net(tmp_path / "net.onnx"), tmp_path / "out"
    study(["soma-edge"], [model], verify=False, out=out, plots=False)
    next((out / "runs").glob("*.levels.parquet")).unlink()
    assert study(["soma-edge"], [model], verify=False, out=out, plots=False).reused == 0

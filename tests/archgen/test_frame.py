"""Columns and frames: names, order and types."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from archgen.outcomes.columns import COLUMNS, STALLS, column, ordered
from archgen.outcomes.frame import save_frame, typed_frame
from simmodel.trace import CAUSES


def test_names_are_unique_and_described() -> None:
    names = [known.name for known in COLUMNS]
    assert len(set(names)) == len(names)
    assert all(
        known.meaning and known.kind in ("text", "whole", "real", "truth", "any")
        for known in COLUMNS
    )


def test_families_match_their_members_alone() -> None:
    found = column("stall_front_end")
    assert found is not None
    assert found.name == "stall_<cause>"
    assert column("peak_local_bytes") is not column("stall_data")
    assert column("nonsense") is None


def test_columns_come_in_the_order_of_their_definitions() -> None:
    names = ordered(["stall_store", "stall_data", "arch"])
    assert names[0] == "arch"
    assert names.index("stall_data") == names.index("stall_store") + 1
    assert "latency_cycles" in names
    assert "peak_<memory>_bytes" not in names
    with pytest.raises(KeyError, match="nonsense"):
        ordered(["nonsense"])


def test_missing_values_keep_types(tmp_path: Path) -> None:
    rows = [{"arch": "a", "latency_cycles": 2**53 + 1, "verified": True}, {"arch": "b"}]
    frame = typed_frame(rows, COLUMNS)
    assert frame["latency_cycles"][0] == 2**53 + 1
    assert frame["latency_cycles"].isna().tolist() == [False, True]
    save_frame(frame, tmp_path)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "results.parquet"), frame)


def test_every_cause_of_stalls_is_explained() -> None:
    assert tuple(STALLS) == CAUSES

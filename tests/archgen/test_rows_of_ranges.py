"""Rows of points whose programs are for ranges: what is printed names the range, and says once what
holds for all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from archgen.cli.summary import reasons
from archgen.outcomes.frame import results_frame
from archgen.outcomes.points import Outcome, Row
from archgen.studies.sweep import study
from archgen.toolchain import STANDARD, Compiled, Request

pytestmark = pytest.mark.usefixtures("own_cache")


def row(size: int, status: str, **more: object) -> Row:
    return {
        "arch": "edge", "family": "edge", "model": "net", "batch": 1, "dtype": "fp16",
        "dim.rows": size, "bucket.rows": "1..4", "status": status,
        "verified": None, "note": None, "schedule_from": None, **more,
    }  # fmt: skip


def frame_of(rows: list[Row]) -> pd.DataFrame:
    return results_frame(
        [Outcome(str(number), str(number), row) for number, row in enumerate(rows)]
    )


def said(rows: list[Row]) -> list[str]:
    return list(reasons(frame_of(rows), {}))


def test_what_refuses_some_lengths_names_them() -> None:
    assert said([row(1, "ok"), row(2, "failed", reason="lost"), row(4, "ok")]) == [
        "edge net rows 2 of 1..4 batch 1 fp16: failed: lost"
    ]
    both = [row(1, "failed", reason="lost"), row(4, "failed", reason="found")]
    assert [line.split(" fp16")[0] for line in said(both)] == [
        "edge net rows 1 of 1..4 batch 1",
        "edge net rows 4 of 1..4 batch 1",
    ]


def windows_over_time(path: Path) -> Path:
    """Windows in three dimensions that a border shortens: no program for a range has them."""
    pool = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[3, 2, 2], pads=[1, 0, 0, 1, 0, 0]
    )
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, "time", *sizes])
        for name, sizes in (("x", (3, 3)), ("y", (2, 2)))
    ]
    graph = helper.make_graph([pool], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_a_range_that_is_refused_is_tried_once_and_says_what_to_do(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def compiled(request: Request) -> Compiled:
        with tries.open("a") as log:
            log.write("x")
        return STANDARD.compile(request)

    net = windows_over_time(tmp_path / "net.onnx")
    found = study(
        "stcp920", net, dims={"time": "1..4"}, effort=0, plots=False, out=tmp_path / "out",
        tools=replace(STANDARD, compile=compiled),
    )  # fmt: skip
    (line,) = reasons(found.frame, found.by_name)
    assert found.frame["status"].tolist() == ["unsupported"] * 3
    assert "net.onnx time 1..4 fp16: unsupported: net: not one program for time=1..4; " in line
    assert "compile each length by itself (--dim time=4):\n    node 'AveragePool_0'" in line
    assert tries.read_text() == "x"

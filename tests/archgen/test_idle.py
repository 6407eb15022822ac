"""Where a program for a range leaves cores without work, it says so once, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import archgen
from archgen.outcomes.idle import idle_note
from archgen.scheduling import DEFAULT, Scheduling, Settings

pytestmark = pytest.mark.usefixtures("own_cache")
ROWS = "at rows=1 7 of the 8 cores that share a layer have no work, as the program for rows=1..64"
LEVERS = "one for short inputs (--dim rows=1..8), or --pass tile.short_inputs=1, may be quicker"


def product(path: Path) -> Path:
    """`y = x w`, of so few columns that cores share rows."""
    weight = numpy_helper.from_array(np.eye(8, dtype="f4"), "w")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 8]) for n in "xy"]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def note_of(path: Path, arch: str, low: int, high: int, passes: Settings = ()) -> str:
    machine, way = archgen.load_arch(arch), Scheduling(effort=0, passes=passes)
    family = archgen.load_family(product(path / "net.onnx"), dims={"rows": (low, high)})
    return idle_note(archgen.compile_model(family, machine, effort=0), machine, way)


def test_a_row_leaves_all_cores_but_one_idle(tmp_path: Path) -> None:
    note = note_of(tmp_path, "stcp920", 1, 64)
    assert note.startswith(f"stcp920 net: {ROWS}")
    assert LEVERS in note


def test_what_is_done_already_is_no_advice(tmp_path: Path) -> None:
    note = note_of(tmp_path, "stcp920", 1, 64, (("tile.short_inputs", 1.0),))
    assert note.endswith("one for short inputs (--dim rows=1..8) may be quicker there")
    assert LEVERS in note_of(tmp_path, "stcp920", 1, 64, (("tile.short_inputs", 0.5),))


def test_nothing_is_said_where_cores_have_work(tmp_path: Path) -> None:
    assert not note_of(tmp_path, "stcp920", 33, 64)
    assert not note_of(tmp_path, "mcu-npu", 1, 64)
    arch = archgen.load_arch("stcp920")
    fixed = archgen.load_model(product(tmp_path / "net.onnx"), dims={"rows": 1})
    assert not idle_note(archgen.compile_model(fixed, arch, effort=0), arch, DEFAULT)

"""Dimensions that a file calls by what they follow from, and sizes that cannot be together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import archgen
from archgen.models.binding import derived
from archgen.models.errors import ModelError
from archgen.models.extents import SizeRange
from archgen.models.load import open_model
from archgen.models.source_family import open_family


def growing(path: Path) -> Path:
    """A cache of `past` rows and `seq` new ones, and a mask over all."""
    nodes = [
        helper.make_node("Concat", ["cache", "x"], ["all"], axis=0),
        helper.make_node("Mul", ["all", "mask"], ["y"]),
    ]
    shapes = {"x": ["seq", 8], "cache": ["past", 8], "mask": ["past + seq", 1]}
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["past + seq", 8])
    graph = helper.make_graph(nodes, "g", ports, [made])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def mistakes(path: Path, **dims: int) -> list[str]:
    with pytest.raises(ModelError) as wrong:
        open_model(path, dims={name.replace("__", ":"): size for name, size in dims.items()})
    return [line.replace(str(path), "net") for line in wrong.value.mistakes]


def test_expressions_are_computed_and_names_are_not() -> None:
    sizes = {"past": 5, "seq": 2}
    known = {"past + seq": 7, "2*seq": 4, "(past - 1) // seq": 2, "past+1": 6}
    names = ["seq", "past + other", "past seq", "past ** seq", "past // 0", "a-b", "(" * 500, ""]
    assert derived([*known, *names], sizes) == known


def test_what_follows_need_not_be_said(tmp_path: Path) -> None:
    net = growing(tmp_path / "net.onnx")
    mask = open_model(net, dims={"past": 3, "seq": 2}).proto.graph.input[2]
    assert mask.type.tensor_type.shape.dim[0].dim_value == 5
    (said,) = mistakes(net, seq=2)
    assert said.endswith("here: --dim past=<size>") and "mask" not in said


def test_a_program_for_ranges_has_what_follows_from_them(tmp_path: Path) -> None:
    arch = archgen.load_arch("stcp920")
    family = archgen.load_family(growing(tmp_path / "net.onnx"), dims={"past": (1, 9), "seq": 2})
    program = archgen.compile_model(family, arch, effort=0)
    x, cache, mask = np.ones((2, 8), "f4"), np.ones((3, 8), "f4"), np.arange(5, dtype="f4")
    given = {"x": x, "cache": cache, "mask": mask[:, None]}
    found = archgen.execute(program, given, arch)["y"]
    np.testing.assert_array_equal(found, np.repeat(mask[:, None], 8, axis=1))


def test_sizes_that_contradict_each_other_are_said_all_at_once(tmp_path: Path) -> None:
    net = growing(tmp_path / "net.onnx")
    assert mistakes(net, seq=2, past=3, x__0=4, mask__0=7) == [
        "--dim seq=2 and --dim x:0=4: net has one dimension there, 'seq'; give it one size",
        "--dim mask:0=7: in net it follows from seq=2, past=3, which make it 5; leave it out",
    ]
    assert open_model(net, dims={"seq": 2, "past": 3, "mask:0": 5})


def test_what_follows_from_ranges_is_no_range_of_its_own(tmp_path: Path) -> None:
    ranges = {name: SizeRange(1, 2) for name in ("seq", "past")} | {"mask:0": SizeRange(2, 4)}
    with pytest.raises(
        ModelError, match=r"mask:0=2\.\.4: .* follows from seq=1\.\.2, past=1\.\.2;"
    ):
        open_family(growing(tmp_path / "net.onnx"), None, {}, ranges, {})

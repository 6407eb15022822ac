"""Tails whose sizes are known when they run: the host's, behind the program, with what it finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from machines import machine
from networks import feeds_of
from onnx import parser

from archgen.check.reference import run_node, run_reference
from archgen.outcomes.points import Point
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD
from compiler.api import CompileOptions, compile_model
from compiler.errors import Undecided
from compiler.frontend.importer import load
from simmodel.execute import run
from simmodel.program.assembly import constant_data, print_program
from simmodel.program.assembly_reader import parse_program

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
NONZERO = """
chosen (float[2, 3, 4] x) => (int64[3, k] places, float[m] values, float[2, 3, 4] y)
{ y = Relu (x)
  places = NonZero (y)
  rows = Transpose <perm = [1, 0]> (places)
  values = GatherND (y, rows) }
"""
"""y has places of its own, in the program; how many places are not 0 is known when it ran."""
BOXES = """
boxes (float[1, 6, 4] b, float[1, 2, 6] s) => (int64[k, 3] picked)
<int64[1] most = {2}, float[1] overlap = {0.5}, float[1] least = {0.6}>
{ boxes = Abs (b)
  scores = Sigmoid (s)
  picked = NonMaxSuppression (boxes, scores, most, overlap, least) }
"""
COMPRESSED = """
compressed (float[3, 4] x, bool[3] which) => (float[k, 4] y, float[1] total)
<int64[1] axes = {0}>
{ more = Add (x, x)
  y = Compress <axis = 0> (more, which)
  sums = ReduceSum <keepdims = 0> (y, axes)
  total = ReduceMax <axes = [0]> (sums) }
"""
BACK = """
back (float[3, 4] x) => (float[k, 5] y)
<float[2, 5] w>
{ more = Add (x, x)
  places = NonZero (more)
  rows = Transpose <perm = [1, 0]> (places)
  real = Cast <to = 1> (rows)
  y = MatMul (real, w) }
"""
AGAIN = """
again (float[3, 4] x) => (int64[2, k] y)
{ more = Add (x, x)
  places = NonZero (more)
  rows = Transpose <perm = [1, 0]> (places)
  y = NonZero (rows) }
"""


def proto(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("text", [NONZERO, BOXES, COMPRESSED])
def test_results_have_the_size_that_they_turn_out_to_have(text: str, share: float) -> None:
    model, arch = proto(text), machine(types=("fp32",))
    made = compile_model(model, arch, CompileOptions(dtype="fp32"))
    feeds = {name: values + np.float32(4 * share - 2) for name, values in feeds_of(model).items()}
    if "which" in feeds:
        feeds["which"] = np.arange(3) < round(3 * share)
    wanted = run_reference(model, feeds)
    again = parse_program(print_program(made.program), constant_data(made.program))
    for program in (made.program, again):
        found = run(program, feeds, arch, run_node).outputs
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)


def test_the_host_is_reckoned_with_the_most_there_can_be() -> None:
    (call,) = compile_model(proto(BOXES), machine(types=("fp32",)), CompileOptions("fp32")).host
    assert call.kind == "Tail"
    assert call.reason.startswith("sizes behind NonMaxSuppression 'NonMaxSuppression_2'")
    assert call.reason.endswith("reckoned with the most there can be: picked [4, 3]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BACK,
         "node 'MatMul_4' (ai.onnx.MatMul) behind it would need what has no size on the engines"),
        (AGAIN,
         "how large what follows may become is not known: sizes behind it depend on data again, at "
         "node 'NonZero_3' (ai.onnx.NonZero)"),
        ("alone (float[2, 3] x) => (int64[2, k] y) { y = NonZero (x) }",
         "nothing stands before it that engines could do"),
    ],
)  # fmt: skip
def test_what_would_have_to_come_back_is_refused(text: str, why: str) -> None:
    model = parser.parse_model(HEAD + text)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = onnx.numpy_helper.from_array(np.ones(shape, np.float32), value.name)
        model.graph.initializer.append(weights)
    with pytest.raises(Undecided) as refused:
        load(model, "net")
    assert "NonZero" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(("arch", "dtype"), [("ascend-310-like", "fp16"), ("soma-edge", "int8")])
def test_a_study_verifies_what_leads_to_the_tail(arch: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "boxes.onnx"
    onnx.save(proto(BOXES), path)
    row = Workbench(STANDARD).run(Point("key", load_arch(arch), str(path), 1, dtype)).row
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 1), row

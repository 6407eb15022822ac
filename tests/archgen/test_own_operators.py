"""Operators of a user's own: compiled, verified against their references, refused in words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from archgen.check.reference import run_reference
from archgen.extensions import activate, extension
from archgen.studies.sweep import study

pytestmark = pytest.mark.usefixtures("own_cache")
MACHINE = "tpu-v3-like"
GELU = """
from archgen.op import rewrite

@rewrite("my.domain", "MyGelu"{more})
def my_gelu({parameters}):
    return {result}
"""
PLAIN = "b, x, *, alpha=1.702"
BODY = "x * b.Sigmoid(x * alpha)"


NETWORK = """<ir_version: 9, opset_import: ["" : 17, "my.domain" : 1]>
  net (float[1, 64] x) => (float[1, 64] z) {
    r = Relu (x)
    [g] y = my.domain.MyGelu <alpha = 2.0> (r)
    n = Neg (y)
    z = Exp (n) }"""


def network(folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(NETWORK), path)
    return path


def written(
    folder: Path, parameters: str = PLAIN, result: str = BODY, more: str = "", before: str = ""
) -> Path:
    path = folder / "ops.py"
    text = GELU.format(parameters=parameters, result=result, more=more)
    path.write_text(before + text)
    return path


def found(model: Path, path: Path) -> dict[str, object]:
    """The row of a study of one point."""
    made = study([MACHINE], [model], effort=[0], plots=False, extensions=[path], jobs=1)
    return dict(made.frame.iloc[0])


def test_a_rewrite_is_compiled_and_compared_with_its_body(tmp_path: Path) -> None:
    row = found(network(tmp_path), written(tmp_path))
    assert (row["status"], row["verified"], row["host_ops"]) == ("ok", True, 0)
    assert row["compared"] == 4  # what the operator reads and makes is among them


def test_the_reference_is_the_body_with_the_attributes_of_the_node(tmp_path: Path) -> None:
    activate((extension(written(tmp_path)),))
    x = np.linspace(-2, 2, 64, dtype=np.float32).reshape(1, 64)
    made = run_reference(onnx.load(network(tmp_path)), {"x": x}, ["y"])
    r = np.maximum(x, 0)
    assert np.allclose(made["y"], r / (1 + np.exp(-2 * r)), atol=1e-6)
    assert np.allclose(made["z"], np.exp(-made["y"]))
    activate(())


RIGHT = "lambda x, alpha: x / (1 + np.exp(-alpha * x))"


@pytest.mark.parametrize(
    ("reference", "verified"), [(RIGHT, True), ("lambda x, alpha: x * np.float64(0.9)", False)]
)
def test_a_reference_in_numpy_is_what_results_are_compared_with(
    tmp_path: Path, reference: str, *, verified: bool
) -> None:
    more = f", reference={reference}"
    row = found(network(tmp_path), written(tmp_path, more=more, before="import numpy as np\n"))
    assert (row["status"], row["verified"]) == ("ok", verified)


@pytest.mark.parametrize(
    ("parameters", "result", "more", "said"),
    [
        ("b, x, *, beta=1.0", "x", "", r"\(my.domain.MyGelu\): has no attribute 'alpha'; its "
         r"attributes: beta \(defined at .*ops.py:4\)"),
        ("b, x, y, *, alpha=1.0", "x", "", r"takes 2 inputs, the node has 1"),
        ("b, x, *, alpha='none'", "x", "", r"attribute 'alpha' is 2.0, expected one like 'none'"),
        ("b, x, *, alpha, beta", "x", "", r"attribute 'beta' is missing, which has to be given"),
        (PLAIN, "alpha", "", r"its function gives 'float', expected what the builder made"),
        (PLAIN, "()", "", r"its function gives 0 of 1 outputs"),
        (PLAIN, "b.Sigmoid(x, x)", "", r"ops.py:6, in my_gelu, failed on node 'g' "
         r"\(my.domain.MyGelu\): ValueError: Sigmoid takes 1 inputs, here are 2"),
        (PLAIN, "b.Sigmiod(x)", "", "ONNX has no operator 'Sigmiod'"),
        (PLAIN, "b.sigmoid(x)", "", "a builder has no 'sigmoid'; operators are spelled as in ONNX"),
        (PLAIN, "b.MatMul(x, x)", "", "failed on node 'g'.*Incompatible dimensions"),
        (PLAIN, "{}[x]", "", "ops.py:6, in my_gelu, failed on node 'g'.*KeyError"),
        (PLAIN, BODY, ", reference=lambda x, alpha: x[0]",
         r"the reference gives \[64\], the body \[1, 64\]"),
        (PLAIN, BODY, ", reference=lambda x: x", "its reference failed: TypeError: .* 'alpha'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_operator_is_said_in_words(
    tmp_path: Path, parameters: str, result: str, more: str, said: str
) -> None:
    row = found(network(tmp_path), written(tmp_path, parameters, result, more))
    assert row["status"] in ("failed", "unsupported")
    assert re.search(said, str(row["reason"])), row["reason"]

"""Inputs of a file that are given a value: constants before any shape is asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser

from archgen.cli.main import cli
from archgen.models.constants import file_and_values, with_values
from archgen.models.load import open_model
from archgen.studies.plan import load_study
from archgen.studies.results import open_study

pytestmark = pytest.mark.usefixtures("own_cache")
NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1, 4] x, float rate, int64[2] size, bool on) => (float[a, b] y)
<float zero = {0}>
{ many = Range (zero, rate, rate)
  z = Reshape (x, size)
  r = Relu (z)
  y = Add (r, many) }
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    proto = parser.parse_model(NET)
    onnx.save(proto, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_a_value_is_a_constant_of_the_network(net: str) -> None:
    made = open_model(f"{net}:rate=0.25,size=[2,2],on=true")
    assert made.name == "net"
    assert [port.name for port in made.proto.graph.input] == ["x"]
    held = {t.name: numpy_helper.to_array(t) for t in made.proto.graph.initializer}
    assert held["rate"] == np.float32(0.25) and held["rate"].dtype == np.float32
    assert held["size"].tolist() == [2, 2] and held["size"].dtype == np.int64
    assert held["on"].dtype == np.bool_
    other = open_model(f"{net}:rate=0.5,size=[2,2],on=true")
    assert made.content_key != other.content_key
    assert numpy_helper.to_array(open_model(f"{net}:size=2").proto.graph.initializer[-1]).size == 2


def test_values_stand_behind_the_path() -> None:
    assert with_values("a.onnx", ["x=1", "y=2"]) == "a.onnx:x=1,y=2"
    assert with_values("a.onnx:x=1", ["y=2"]) == "a.onnx:x=1,y=2"
    assert with_values("resnet50:image=64", ["y=2"]) == "resnet50:image=64,y=2"
    assert file_and_values("C:/a.onnx:x=1") == ("C:/a.onnx", "x=1")
    assert file_and_values("C:/a.onnx") == ("C:/a.onnx", "")


def test_study_and_compile_take_values(net: str, tmp_path: Path) -> None:
    given = ["-m", net, "--set", "rate=0.25", "--set", "size=[2,2]", "--set", "on=true"]
    refused = CliRunner().invoke(cli, ["compile", "tpu-v3-like", *given[:4], "--effort", "0"])
    assert refused.exit_code != 0
    ran = CliRunner().invoke(cli, ["compile", "tpu-v3-like", *given, "--effort", "0"])
    assert ran.exit_code == 0, ran.output
    out = tmp_path / "out"
    asked = ["study", "tpu-v3-like", *given, "--effort", "0", "--no-plots", "--out", str(out)]
    assert CliRunner().invoke(cli, [*asked, "--jobs", "1"]).exit_code == 0
    [row] = open_study(out).frame.to_dict("records")
    assert (row["model"], row["status"]) == (f"{net}:rate=0.25,size=[2,2],on=true", "ok")
    assert row["verified"]


def test_a_study_file_names_values_behind_its_file(net: str, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text('archs: mcu-npu\nmodels: ["net.onnx:rate=0.25,size=[2,2],on=true"]\n')
    [load] = load_study(file).workloads
    assert load.model == f"{net}:rate=0.25,size=[2,2],on=true"
    wrong = CliRunner().invoke(cli, ["study", str(file), "--set", "rate=1"])
    assert "--set goes with -m" in str(wrong.exception)

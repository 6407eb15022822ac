"""Small networks: of nodes, or as text of ONNX's own syntax, in the folder `nets`; and what a study
says of one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from networks import model
from numpy.typing import ArrayLike
from onnx import helper, numpy_helper, parser

from archgen.outcomes.points import Point, Row
from archgen.scheduling import Scheduling
from archgen.schema import load_arch
from archgen.studies.run import Workbench
from archgen.toolchain import STANDARD, Toolchain

NETS = Path(__file__).with_name("nets")


def net(text: str, opset: int = 17, **constants: ArrayLike) -> onnx.ModelProto:
    """The model of a graph in text; what is declared without a value are random weights."""
    head = f'<ir_version: {8 if opset < 21 else 10}, opset_import: ["" : {opset}]>\n'
    proto = parser.parse_model(head + text)
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()
    )
    made = np.random.default_rng(0)
    for value in proto.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        weights = made.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(weights, value.name))
    del proto.graph.value_info[:]
    return proto


def saved(proto: onnx.ModelProto, folder: Path, name: str = "net") -> Path:
    """`proto` as a file in `folder`."""
    path = folder / f"{name}.onnx"
    onnx.save(proto, path)
    return path


def text(name: str) -> str:
    """A network of the folder."""
    return (NETS / f"{name}.txt").read_text(encoding="utf-8")


STREAMING, GRAPH_NET, SPEECH, LEFT_OVER, PICTURE, DECODER = map(
    text, ("streaming", "graph_net", "speech", "left_over", "picture", "decoder")
)
"""Networks whose inputs are of every kind."""

LAYERS = ("first", "second", "third", "fourth")
"""Names of the convolutions; `sum` adds what `second` and `fourth` make."""


def conv_net(path: Path, *, odd: bool = False) -> Path:
    """A file: image (1, 8, 32, 32), four 3x3 convolutions to 8 channels, a sum.

    With `odd` a Det of the sum follows, which only the host runs.
    """
    rng = np.random.default_rng(0)
    nodes, weights, value = [], {}, "image"
    for name in LAYERS:
        weights[f"{name}.w"] = 0.1 * rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
        made = f"{name}.y"
        nodes.append(helper.make_node("Conv", [value, f"{name}.w"], [made], name, pads=[1] * 4))
        value = made
    nodes.append(helper.make_node("Add", ["second.y", "fourth.y"], ["sum"], "sum"))
    shape = [1, 8, 32, 32]
    if odd:
        nodes.append(helper.make_node("Det", ["sum"], ["odd"], "odd"))
    outputs = {"odd": shape[:2]} if odd else {"sum": shape}
    onnx.save(model(nodes, {"image": shape}, outputs, weights, name="conv_net"), path)
    return path


def depth_net(path: Path) -> Path:
    """A file: x (1, 16, 16, 16), each channel by a 3x3 window of its own."""
    rng = np.random.default_rng(0)
    weights = (0.3 * rng.standard_normal((16, 1, 3, 3))).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "depthwise", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Sigmoid", ["c"], ["s"], "sigmoid"),
        helper.make_node("Add", ["s", "x"], ["y"], "sum"),
    ]
    shape = [1, 16, 16, 16]
    onnx.save(model(nodes, {"x": shape}, {"y": shape}, {"w": weights}, name="depth_net"), path)
    return path


_arch = cache(load_arch)


def row_of(path: Path | str, arch: str, dtype: str, tools: Toolchain = STANDARD) -> Row:
    """What a study says of a network at the batch of its file, at the least effort."""
    batch = onnx.load(path).graph.input[0].type.tensor_type.shape.dim[0].dim_value
    point = Point("key", _arch(arch), str(path), batch, dtype, scheduling=Scheduling(effort=0))
    return Workbench(replace(tools, tries=False)).run(point).row

"""Small networks as text of ONNX's own syntax, in the folder `nets`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

NETS = Path(__file__).with_name("nets")
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def net(text: str) -> onnx.ModelProto:
    """The model of a graph in text; what is declared without a value are random weights."""
    proto = parser.parse_model(_HEAD + text)
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

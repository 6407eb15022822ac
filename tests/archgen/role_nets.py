"""Small networks: of nodes, or as text of ONNX's own syntax, in the folder `nets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper, parser

NETS = Path(__file__).with_name("nets")
Shapes = Mapping[str, Sequence[int | str | None] | None]


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Shapes, outputs: Shapes,
    constants: Mapping[str, ArrayLike] | None = None, *,
    opset: int = 17, domain: str = "", kind: int = TensorProto.FLOAT, name: str = "g",
) -> onnx.ModelProto:  # fmt: skip
    """The network of `nodes` between ports of these shapes, all of one element type."""
    given, results = (
        [helper.make_tensor_value_info(port, kind, shape) for port, shape in ports.items()]
        for ports in (inputs, outputs)
    )
    data = [numpy_helper.from_array(np.asarray(v), key) for key, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, name, given, results, data)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 21 else 10)


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

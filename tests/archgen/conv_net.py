"""A small network for tests: four convolutions in a row, the last two around an addition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS = ("first", "second", "third", "fourth")
"""Names of the convolutions; `sum` adds what `second` and `fourth` make."""


def conv_net(path: Path, *, odd: bool = False) -> Path:
    """A file: image (1, 8, 32, 32), four 3x3 convolutions to 8 channels, a sum.

    With `odd` a Det of the sum follows, which only the host runs.
    """
    rng = np.random.default_rng(0)
    nodes, weights, value = [], [], "image"
    for name in LAYERS:
        data = 0.1 * rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(data, f"{name}.w"))
        made = f"{name}.y"
        nodes.append(
            helper.make_node("Conv", [value, f"{name}.w"], [made], name, pads=[1, 1, 1, 1])
        )
        value = made
    nodes.append(helper.make_node("Add", ["second.y", "fourth.y"], ["sum"], "sum"))
    shape = [1, 8, 32, 32]
    outputs = [helper.make_tensor_value_info("sum", TensorProto.FLOAT, shape)]
    if odd:
        nodes.append(helper.make_node("Det", ["sum"], ["odd"], "odd"))
        outputs = [helper.make_tensor_value_info("odd", TensorProto.FLOAT, shape[:2])]
    graph = helper.make_graph(
        nodes, "conv_net", [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        outputs, weights,
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path

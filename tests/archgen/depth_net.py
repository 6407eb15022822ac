"""A small network for tests: a depthwise convolution, a sigmoid, and a sum with what came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def depth_net(path: Path) -> Path:
    """A file: x (1, 16, 16, 16), each channel by a 3x3 window of its own."""
    rng = np.random.default_rng(0)
    weights = (0.3 * rng.standard_normal((16, 1, 3, 3))).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "depthwise", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Sigmoid", ["c"], ["s"], "sigmoid"),
        helper.make_node("Add", ["s", "x"], ["y"], "sum"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16, 16, 16]) for n in "xy"]
    graph = helper.make_graph(
        nodes, "depth_net", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")]
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path

"""Small networks: four convolutions in a row, the last two around an addition; and one that is
depthwise, with a sigmoid and a sum with what came in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from role_nets import model

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
        nodes.append(
            helper.make_node("Conv", [value, f"{name}.w"], [made], name, pads=[1, 1, 1, 1])
        )
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

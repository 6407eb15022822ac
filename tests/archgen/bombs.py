"""Models that never end, or grow beyond any memory, for test_bounds.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = helper.make_opsetid("", 17)
_OWN = helper.make_opsetid("own", 1)
_X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])
_Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])


def endless(path: Path) -> Path:
    """y = Relu(Relu(Relu(... x))), without end; its shape is known."""
    nodes = [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Relu", ["v"], ["v2"])]
    return _saved(path, _looped(nodes), {})


def _looped(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """y = x after rounds of `nodes`, which make v2 of v, and of c whether there is another one."""
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "v": TensorProto.FLOAT}
    dims: dict[str, list[int]] = {"i": [], "c": [], "v": [1, 8]}
    inputs = [helper.make_tensor_value_info(n, kind, dims[n]) for n, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info(f"{n}2", kinds[n], dims[n]) for n in ("c", "v")]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    loop = helper.make_node("Loop", ["", "true", "x"], ["z"], body=body)
    return [loop, helper.make_node("Reshape", ["z", "shape"], ["y"])]


def doubling(path: Path, levels: int = 40) -> Path:
    """Functions of which each calls the one before it twice: 2 to the power of `levels` nodes."""
    nodes = [[helper.make_node("Relu", ["x"], ["y"])]]
    for level in range(1, levels):
        below = f"f{level - 1}"
        nodes.append(
            [
                helper.make_node(below, ["x"], ["t"], domain="own"),
                helper.make_node(below, ["t"], ["y"], domain="own"),
            ]
        )
    functions = [
        helper.make_function("own", f"f{level}", ["x"], ["y"], each, [_OPSET, _OWN])
        for level, each in enumerate(nodes)
    ]
    top = helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="own")
    return _saved(path, [top], {}, functions)


def huge(path: Path, size: int, known: bool) -> Path:
    """y = x + the largest of `size` numbers that a Range makes, whose number is `known` from the
    file, or depends on x in a round of a loop: the shapes of the network itself are known."""
    value, end = ("x", "last") if known else ("v", "end")
    nodes = [
        helper.make_node("Range", ["first", end, "step"], ["r"]),
        helper.make_node("ReduceMax", ["r"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", [value, "f"], ["y" if known else "v2"]),
    ]
    before = [
        helper.make_node("ReduceMax", ["v"], ["a"], keepdims=0),
        helper.make_node("Mul", ["a", "zero"], ["b"]),
        helper.make_node("Cast", ["b"], ["d"], to=TensorProto.INT64),
        helper.make_node("Add", ["d", "last"], ["end"]),
    ]
    once = helper.make_node("Less", ["m", "first"], ["c2"])
    data = {"first": np.array(0), "last": np.array(size), "step": np.array(1)}
    data["zero"] = np.array(0, np.float32)
    return _saved(path, nodes if known else _looped([*before, *nodes, once]), data)


def _saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    data: Mapping[str, np.ndarray],
    functions: Sequence[onnx.FunctionProto] = (),
) -> Path:
    data = {"true": np.array(True), "shape": np.array([1, 8], np.int64), **data}
    given = [numpy_helper.from_array(array, name) for name, array in data.items()]
    graph = helper.make_graph(nodes, "bomb", [_X], [_Y], given)
    opsets = [_OPSET, _OWN] if functions else [_OPSET]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    onnx.save(model, path)
    return path

"""Values of a network that follow from its constants and shapes alone, without the rest of it.

The one idea: what such a value depends on is a small network of its own, which folds to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from compiler.errors import CompilerError
from compiler.frontend.importer import load
from compiler.frontend.rewrite import const

Array = NDArray[Any]
Data = Callable[[str], onnx.TensorProto | None]
"""An initializer with its numbers, by name."""
Compute = Callable[[onnx.ModelProto], Array | None]
"""The output of a small network, which depends on no number of an input; None where nobody can
compute it."""


def constant_values(
    proto: onnx.ModelProto, names: Collection[str], data: Data, compute: Compute | None = None
) -> dict[str, Array]:
    """Values with these `names`, without those that are no constants.

    Args:
        proto: a network of fixed input shapes, whose initializers need no numbers.
        names: of its values, also of initializers.
        data: for initializers without numbers.
        compute: says them to the last bit, where that is not what the compiler folds.
    """
    makers = {output: node for node in proto.graph.node for output in node.output}
    found: dict[str, Array] = {}
    for name in names:
        part = _needed_subgraph(proto, name, makers, data)
        values = None if part is None else _evaluate_model(part, name)
        if part is not None and part.graph.node and values is not None and compute is not None:
            values = compute(part)
        if values is not None:
            found[name] = values
    return found


def _evaluate_model(part: onnx.ModelProto, name: str) -> Array | None:
    if not part.graph.node:
        held = {tensor.name: tensor for tensor in part.graph.initializer}
        return numpy_helper.to_array(held[name]) if name in held else None
    try:
        (output,) = load(part, name).graph.outputs
    except CompilerError:
        return None
    return const(output)


def _needed_subgraph(
    proto: onnx.ModelProto, name: str, makers: dict[str, onnx.NodeProto], data: Data
) -> onnx.ModelProto | None:
    """The network of just what a value depends on; None where a number is unknown."""
    needed, waiting = {name}, [name]
    while waiting:
        node = makers.get(waiting.pop())
        for given in node.input if node is not None else ():
            if given not in needed:
                needed.add(given)
                waiting.append(given)
    made = onnx.ModelProto(ir_version=proto.ir_version)
    made.opset_import.extend(proto.opset_import)
    made.functions.extend(proto.functions)
    graph = made.graph
    graph.name = name
    graph.node.extend(n for n in proto.graph.node if not needed.isdisjoint(n.output))
    graph.input.extend(value for value in proto.graph.input if value.name in needed)
    graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    for tensor in proto.graph.initializer:
        if tensor.name not in needed:
            continue
        full = tensor if _has_numbers(tensor) else data(tensor.name)
        if full is None:
            return None
        graph.initializer.append(full)
    return made


def _has_numbers(tensor: onnx.TensorProto) -> bool:
    values = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    return not math.prod(tensor.dims) or any(getattr(tensor, field) for field in values)

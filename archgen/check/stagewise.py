"""What a network computes from values that a program had: every operator judged by itself.

The one idea: the model is cut at the program's own intermediate values. Each becomes an output of
the cut model, and whoever reads it reads a new input instead. One run then says what ONNX Runtime
makes of the very inputs of each stretch between cuts, so differences cannot add up on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from archgen.check.reference import detached, run_detached
from compiler.api import Recipe

Array = NDArray[Any]
OWN = "__own"
"""Ending of the inputs that stand for cut values."""


def as_named(recipe: Recipe, proto: onnx.ModelProto) -> Recipe:
    """`recipe` with the names that `proto` has. At one length of a range a network may lack an
    operator of the upper edge, whose nests the program has: a mask that hides nothing from a
    single token. What they make is then like what lies inside of a Softmax: as wide as it was made
    until the next name, whatever the program rounds it to on the way."""
    names = {name for node in proto.graph.node for name in node.output}
    names |= {value.name for value in proto.graph.input}
    known = {
        tensor: [value for value in values if value.name in names]
        for tensor, values in recipe.known.items()
    }
    return replace(recipe, known=known)


def feedable(values: Mapping[str, Array]) -> dict[str, Array]:
    """Those of `values` whose element type can be handed to ONNX Runtime."""
    return {name: array for name, array in values.items() if array.dtype.kind in "biuf"}


def cut(proto: onnx.ModelProto, own: Mapping[str, Array]) -> onnx.ModelProto:
    """`proto` cut at the values named in `own`: their readers read inputs named `NAME__own`.

    For `run_cut` only: larger initializers stay in `proto`.
    """
    light = detached(proto)
    graph = light.graph
    renamed = {name: name + OWN for name in own}
    _rename_reads(graph.node, renamed)
    outputs = {value.name for value in graph.output}
    for name, array in own.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(renamed[name], kind, array.shape))
        if name not in outputs:
            graph.output.append(onnx.ValueInfoProto(name=name))
    return light


def _rename_reads(nodes: Iterable[onnx.NodeProto], renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in renamed:
                node.input[index] = renamed[name]
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                own = {value.name for value in graph.input}
                own |= {name for inner in graph.node for name in inner.output}
                seen = {old: new for old, new in renamed.items() if old not in own}
                _rename_reads(graph.node, seen)


def run_cut(
    model: onnx.ModelProto,
    proto: onnx.ModelProto,
    inputs: Mapping[str, Array],
    own: Mapping[str, Array],
) -> dict[str, Array]:
    """All outputs of `model`, which `cut` made of `proto`, by name.

    Raises ModelError when ONNX Runtime refuses the model or the values.
    """
    return run_detached(
        model, proto, {**inputs, **{name + OWN: array for name, array in own.items()}}
    )

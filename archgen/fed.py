"""What a network computes from values that a program had: every operator judged by itself.

The one idea: the model is cut at the program's own intermediate values. Each becomes an output of
the cut model, and whoever reads it reads a new input instead. One run then says what ONNX Runtime
makes of the very inputs of each stretch between cuts, so differences cannot add up on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from archgen.models import ModelError
from archgen.reference import ORT_ERRORS, session_options
from archgen.zoo.shapes import without_initializers

Array = NDArray[Any]
FED = "__fed"
"""Ending of the inputs that stand for cut values."""
_SMALL = 1024


def feedable(values: Mapping[str, Array]) -> dict[str, Array]:
    """Those of `values` whose element type can be handed to ONNX Runtime."""
    return {name: array for name, array in values.items() if array.dtype.kind in "biuf"}


def cut(proto: onnx.ModelProto, fed: Mapping[str, Array]) -> onnx.ModelProto:
    """`proto` cut at the values named in `fed`: their readers read inputs named `NAME__fed`.

    Larger initializers are not copied: they refer to data that `run_cut` provides.
    """
    light = without_initializers(proto)
    graph = light.graph
    renamed = {name: name + FED for name in fed}
    _rename_reads(graph.node, renamed)
    outputs = {value.name for value in graph.output}
    for name, array in fed.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(renamed[name], kind, array.shape))
        if name not in outputs:
            graph.output.append(onnx.ValueInfoProto(name=name))
    for tensor in proto.graph.initializer:
        if not tensor.raw_data or math.prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
            continue
        outside = graph.initializer.add(
            name=tensor.name,
            dims=tensor.dims,
            data_type=tensor.data_type,
            data_location=TensorProto.EXTERNAL,
        )
        outside.external_data.add(key="location", value="given")
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
    fed: Mapping[str, Array],
) -> dict[str, Array]:
    """All outputs of `model`, which `cut` made of `proto`, by name.

    Raises ModelError when ONNX Runtime refuses the model or the values.
    """
    options = session_options()
    options.add_session_config_entry("session.disable_prepacking", "1")  # one run: no use
    outside = {t.name for t in model.graph.initializer if t.data_location == TensorProto.EXTERNAL}
    weights = {
        tensor.name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.ascontiguousarray(numpy_helper.to_array(tensor)), tensor.data_type
        )
        for tensor in proto.graph.initializer
        if tensor.name in outside
    }
    feeds = {**inputs, **{name + FED: array for name, array in fed.items()}}
    names = [value.name for value in model.graph.output]
    try:
        options.add_external_initializers(list(weights), list(weights.values()))
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        results = session.run(names, feeds)
    except (*ORT_ERRORS, ValueError) as mistake:
        raise ModelError(f"ONNX Runtime cannot run {proto.graph.name!r}: {mistake}") from mistake
    return dict(zip(names, results, strict=True))

"""A network as ONNX Runtime's quantizer takes it: folded, nodes with names, biases in rows.

The one idea: whatever is rewritten before quantization is rewritten here, and at any length of a
network alike, so that a value has the same name at each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, version_converter

from archgen.check.quantized_parts import has_quantized_parts, unpack_weights
from compiler.api import Load, hides_products, in_standard_operators

_PER_CHANNEL_OPSET = 13
_FREE_INITIALIZERS = 4
"""The first IR version whose initializers need not be inputs."""
_FATAL = 4
"""Severity of what ONNX Runtime logs: errors alone."""


@dataclass(frozen=True)
class Folded:
    """A network to be quantized, and whether operators that hide products are written out."""

    proto: onnx.ModelProto
    written_out: bool


def folded(name: str, proto: onnx.ModelProto, load: Load, directory: Path) -> Folded:
    """``proto``, called ``name``, before quantization; files go to ``directory``. What hides
    products is written out by ``load``, unless parts are quantized already."""
    given = _without_given_weights(proto)
    written_out = None
    if hides_products(proto) and not has_quantized_parts(proto):
        written_out = in_standard_operators(given, name, load)
    made = _named(_rewritten(written_out or _modern(given), directory))
    unpack_weights(made)
    _flatten_biases(made)
    return Folded(made, written_out is not None)


def _without_given_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` without initializers among its inputs, where old files list them: what can be
    computed from such an input is no constant to ONNX Runtime."""
    initialized = {tensor.name for tensor in proto.graph.initializer}
    if not any(value.name in initialized for value in proto.graph.input):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    free = [value for value in proto.graph.input if value.name not in initialized]
    del copy.graph.input[:]
    copy.graph.input.extend(free)
    copy.ir_version = max(copy.ir_version, _FREE_INITIALIZERS)
    return copy


def _modern(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` in an operator set that has quantization by channel."""
    opsets = [opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx")]
    if opsets and opsets[0] < _PER_CHANNEL_OPSET:
        given = onnx.ModelProto()
        given.CopyFrom(proto)
        given.ir_version = max(given.ir_version, _FREE_INITIALIZERS)  # or it takes inputs alone
        return version_converter.convert_version(given, _PER_CHANNEL_OPSET)
    return proto


def _rewritten(proto: onnx.ModelProto, directory: Path) -> onnx.ModelProto:
    """``proto`` after ONNX Runtime's basic rewriting: BatchNormalization folded into Conv, shape
    arithmetic computed. MatMul and Add stay apart, as in the source, and it quantizes nothing in a
    way of its own."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(directory / "folded.onnx")
    options.log_severity_level = _FATAL
    options.intra_op_num_threads = 1
    onnxruntime.InferenceSession(
        proto.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["MatMulAddFusion", "WeightBiasQuantization"],
    )
    folded = onnx.load_model(options.optimized_model_filepath)
    used = {node.domain for node in folded.graph.node} | {""}
    kept = [opset for opset in folded.opset_import if opset.domain in used]
    del folded.opset_import[:]
    folded.opset_import.extend(kept)
    return folded


def _named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Gives every node a name of its own: exclusion from quantization goes by name."""
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.name or node.op_type}_{index}"
        seen.add(node.name)
    return proto


def _flatten_biases(proto: onnx.ModelProto) -> None:
    """Gives every constant bias of a Gemm one number per column, in place: the quantizer takes
    no other shape."""
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        wide = node.op_type == "Gemm" and len(node.input) == 3
        if not wide or not {*node.input[1:]} <= constants.keys():
            continue
        bias = numpy_helper.to_array(constants[node.input[2]])
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        columns = constants[node.input[1]].dims[0 if transposed else 1]
        if bias.shape == (columns,) or bias.size != (bias.shape or (1,))[-1]:
            continue
        row = np.ascontiguousarray(np.broadcast_to(bias.reshape(-1), (columns,)))
        name = f"{node.name}_bias_per_column"
        proto.graph.initializer.append(numpy_helper.from_array(row, name))
        node.input[2] = name

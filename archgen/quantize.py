"""Float network -> int8 network, by ONNX Runtime's static quantization.

The one idea: the result is in QDQ form, signed 8-bit activations and signed symmetric weights by
output channel, with quantization where it saves work (matrix operators, what lies between them,
residual sums, pooling) and float where accuracy would suffer (Softmax, LayerNormalization, GELU).
Products keep their accumulator's precision until bias and reshaping are done: a MatMul's output is
not quantized, the next operand made from it is.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto, version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)

from archgen.files import write_bytes
from archgen.locks import alone
from archgen.memory import is_refusal
from archgen.models import ModelError, SourceModel
from archgen.reference import ORT_ERRORS, content_key, sample_inputs
from archgen.zoo.shapes import known_shapes

Array = NDArray[Any]

# Changes when the recipe below does, so that cached models of an older one are not used.
_RECIPE = 1
_SEEDED_SAMPLES = 4
_PER_CHANNEL_OPSET = 13
_FREE_INITIALIZERS = 4
"""The first IR version whose initializers need not be inputs."""

_ARITHMETIC = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Mul")
_POOLING = ("MaxPool", "AveragePool", "GlobalAveragePool", "Clip", "Relu")
_MOVEMENT = (
    *("Concat", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Split", "Slice"),
    *("Pad", "Resize", "DepthToSpace"),
)
_HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger"}


@dataclass(frozen=True)
class Quantized:
    """An int8 model in QDQ form, and a sentence on how it came to be."""

    proto: onnx.ModelProto = field(repr=False)
    note: str


def quantize(
    source: SourceModel, calibration: Mapping[str, Array] | None, cache_dir: Path
) -> Quantized:
    """Quantizes ``source``, or reads what an earlier call stored in ``cache_dir``.

    ``calibration`` maps each input to samples: of the input's shape, with one more leading axis,
    or with a multiple of its first extent. Without it, seeded inputs stand in. A model that is
    quantized already is returned as it is. Raises ``ModelError`` for samples that do not fit and
    for models that ONNX Runtime cannot quantize.
    """
    graph = source.proto.graph
    if any(_is_quantized(node) for node in graph.node):
        return Quantized(source.proto, "quantized already; used as it is")
    if any(tensor.data_type in _HALF for tensor in graph.initializer):
        raise ModelError(f"{source.name} has 16-bit weights; int8 is made from a float32 export")
    if calibration is None:
        samples = [sample_inputs(source.proto, seed) for seed in range(_SEEDED_SAMPLES)]
        origin = f"{len(samples)} seeded random samples, not real data"
    else:
        samples = _split(source.proto, calibration)
        origin = f"{len(samples)} given samples"
    note = f"int8 by ONNX Runtime (QDQ, weights by channel), calibrated on {origin}"
    path = cache_dir / f"int8-{_cache_key(source, samples)}.onnx"
    stored = _stored(path)
    if stored is not None:
        return Quantized(stored, note)
    with alone(path):
        proto = _stored(path)
        if proto is None:
            proto = _quantized(source, samples)
            write_bytes(path, proto.SerializeToString())
    return Quantized(proto, note)


def _is_quantized(node: onnx.NodeProto) -> bool:
    return node.op_type in _QUANTIZED or node.op_type.startswith("QLinear")


def _cache_key(source: SourceModel, samples: list[dict[str, Array]]) -> str:
    digest = hashlib.sha256(f"{_RECIPE} {onnxruntime.__version__} {source.content_key}".encode())
    for sample in samples:
        digest.update(content_key(sample).encode())
    return digest.hexdigest()[:32]


def _stored(path: Path) -> onnx.ModelProto | None:
    if not path.exists():
        return None
    try:
        return onnx.load_model_from_string(path.read_bytes())
    except DecodeError:
        return None  # damaged on disk: quantized and written again


# Calibration.


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """Hands samples to ONNX Runtime one by one."""

    def __init__(self, samples: list[dict[str, Array]]) -> None:
        self._left: Iterator[dict[str, Array]] = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._left, None)


def _split(proto: onnx.ModelProto, calibration: Mapping[str, Array]) -> list[dict[str, Array]]:
    """Calibration arrays -> one mapping per sample."""
    templates = sample_inputs(proto)
    unknown, missing = set(calibration) - set(templates), set(templates) - set(calibration)
    if unknown or missing:
        given = f"missing {sorted(missing)}" if missing else f"unknown {sorted(unknown)}"
        raise ModelError(f"calibration samples: {given}; the inputs are {sorted(templates)}")
    parts = {name: _parts(name, calibration[name], like) for name, like in templates.items()}
    counts = {name: len(samples) for name, samples in parts.items()}
    if len(set(counts.values())) > 1:
        raise ModelError(f"calibration samples: inputs differ in number of samples: {counts}")
    if 0 in counts.values():
        raise ModelError("calibration samples: there are none")
    return [dict(zip(parts, sample, strict=True)) for sample in zip(*parts.values(), strict=True)]


def _parts(name: str, array: Array, like: Array) -> Array:
    """``array`` as (samples, *shape of ``like``)."""
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f") != (like.dtype.kind == "f"):
        raise ModelError(f"calibration samples: {name!r} is {array.dtype}, not {like.dtype}")
    if not np.isfinite(array).all():
        raise ModelError(f"calibration samples: {name!r} has values that are not finite")
    if array.shape[1:] == like.shape:
        return array.astype(like.dtype)
    same = like.ndim > 0 and array.ndim == like.ndim and array.shape[1:] == like.shape[1:]
    if array.shape == like.shape or (same and array.shape[0] % like.shape[0] == 0):
        return array.astype(like.dtype).reshape(-1, *like.shape)
    raise ModelError(
        f"calibration samples: {name!r} has shape {list(array.shape)}, which is no number of "
        f"samples of {list(like.shape)}"
    )


# The recipe.


def _quantized(source: SourceModel, samples: list[dict[str, Array]]) -> onnx.ModelProto:
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # ONNX Runtime's quantizer advises on the root logger
    try:
        with tempfile.TemporaryDirectory() as directory:
            return _run_recipe(source.proto, samples, Path(directory))
    except (*ORT_ERRORS, ValueError, RuntimeError, NotImplementedError) as mistake:
        if is_refusal(mistake):
            raise MemoryError(str(mistake)) from mistake
        raise ModelError(f"{source.name} cannot be quantized: {mistake}") from mistake
    finally:
        root.setLevel(level)


def _run_recipe(
    proto: onnx.ModelProto, samples: list[dict[str, Array]], directory: Path
) -> onnx.ModelProto:
    folded = _named(_folded(_modern(_without_given_weights(proto)), directory))
    target = directory / "int8.onnx"
    quantize_static(
        folded,
        str(target),
        _Samples(samples),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=[*_ARITHMETIC, *_POOLING, *_MOVEMENT],
        nodes_to_exclude=_kept_float(folded),
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={
            "WeightSymmetric": True,
            "OpTypesToExcludeOutputQuantization": ["MatMul"],
        },
    )
    return onnx.load_model(str(target))


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
        return version_converter.convert_version(proto, _PER_CHANNEL_OPSET)
    return proto


def _folded(proto: onnx.ModelProto, directory: Path) -> onnx.ModelProto:
    """``proto`` after ONNX Runtime's basic rewriting: BatchNormalization folded into Conv, shape
    arithmetic computed. MatMul and Add stay apart, as in the source."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(directory / "folded.onnx")
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    onnxruntime.InferenceSession(
        proto.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["MatMulAddFusion"],
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


def _kept_float(proto: onnx.ModelProto) -> list[str]:
    """Names of the sums and products that stay float: biases, masks on scores, GELU and the like.

    What remains is a sum of two activations (a residual) and a product of two images (a gate).
    """
    shapes = known_shapes(proto)
    constants = {tensor.name for tensor in proto.graph.initializer}
    readers: dict[str, list[str]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    kept = []
    for node in proto.graph.node:
        if node.op_type not in ("Add", "Mul"):
            continue
        activations = not constants.intersection(node.input)
        image = len(shapes.get(node.output[0], ())) == 4
        scores = readers.get(node.output[0]) == ["Softmax"]
        if not activations or scores or (node.op_type == "Mul" and not image):
            kept.append(node.name)
    return kept

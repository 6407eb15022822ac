"""The recipe for int8 networks, by ONNX Runtime's static quantization.

The one idea: the result is in QDQ form, signed 8-bit activations and signed symmetric weights by
output channel, with quantization where it saves work (matrix operators, what lies between them,
residual sums, pooling) and float where accuracy would suffer (Softmax, LayerNormalization, GELU).
Products keep their accumulator's precision until bias and reshaping are done: a MatMul's output is
not quantized, the next operand made from it is. What is quantized already stays so, and an operator
that ONNX Runtime cannot quantize stays float: the search below finds it.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import shape_inference, version_converter
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
from onnxruntime.quantization.quant_utils import add_infer_metadata

from archgen.check import quantizer_input
from archgen.check.calibration import Ranges, give_states_one_scale, observed, touched
from archgen.check.linear_quantizer import LinearQuantizer
from archgen.models.load import ModelError
from archgen.process.guard import is_refusal
from archgen.zoo.shapes import attribute, copied, known_shapes, without_data
from compiler.api import RUNTIME_ERRORS, Load
from simmodel.arch.dtype import Array

Sample = dict[str, Array]
Calibrated: TypeAlias = tuple[onnx.ModelProto, Sequence[Sample]]
"""A network at some length, and the samples that it is calibrated on."""

_SUMS = ("Add", "Mul")
_POOLING = ("MaxPool", "AveragePool", "GlobalAveragePool", "Clip", "Relu")
_TYPES = (*quantizer_input.PRODUCTS, *_SUMS, *_POOLING, *quantizer_input.MOVEMENT)
_WARNING, _FATAL = 2, 4
"""Severities of what ONNX Runtime logs: its default, and errors alone."""
_MOST_LEFT_OUT = 8
"""So many operators may defeat ONNX Runtime before the whole network is refused."""
_UNSCALED = "not finite, or so large that no scale fits them"
_UNUSED_SCALE = {"scale": np.array(1, np.float32), "zero_point": np.array(0, np.int8)}
"""Keeps the quantizer from computing one, which it does also for what it shall leave alone."""
_QUANTIZER_ERRORS = (
    *(*RUNTIME_ERRORS, version_converter.ConvertError, ValueError, RuntimeError),
    *(AssertionError, LookupError, TypeError, AttributeError),
)
"""What ONNX Runtime's quantizer is known to end in; the latter where it meets its own bugs."""


@dataclass(frozen=True)
class LeftOut:
    """An operator that stays float because it cannot be quantized."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} {self.node!r} ({self.reason})"


def quantized_model(
    name: str, proto: onnx.ModelProto, samples: Sequence[Sample], load: Load,
    beside: Iterable[Calibrated] = (),
) -> tuple[onnx.ModelProto, list[LeftOut]]:  # fmt: skip
    """``proto``, called ``name``, in int8, calibrated on ``samples``, and what it had to leave
    out. What hides products is written out by ``load``. Ranges are as wide as at other lengths
    ``beside`` it. Raises ``ModelError`` where nothing can be quantized."""
    with _refusing(name), _quietly(), tempfile.TemporaryDirectory() as folder:
        mixed = quantizer_input.has_quantized_parts(proto)
        before, written_out = quantizer_input.folded(name, proto, load, Path(folder))
        if not written_out:  # else it was loaded before
            load.apply(before, name)  # refuses what has no static shape before it is calibrated
        names = {node.name for node in before.graph.node}
        kept = _kept_float(before)
        if written_out:
            # Gates and states of a cell, positions and scores stay as precise as they were.
            own = {name for node in proto.graph.node for name in node.output}
            kinds = (*_SUMS, "Split", "Concat")
            inside = (node for node in before.graph.node if node.op_type in kinds)
            kept += [node.name for node in inside if node.output[0] not in own]
        if mixed:
            kept += quantizer_input.between_quantizations(before)

        ranges = observed(before, _TYPES, samples)
        for other, given in beside:
            with _refusing(other.graph.name):
                there, _ = quantizer_input.folded(other.graph.name, other, load, Path(folder))
                ranges = ranges.widened_by(observed(there, _TYPES, given))
        left_out = _unscaled_operators(before, kept, ranges.unscaled)
        kept += [each.node for each in left_out]
        made, failed = _without_failures(before, ranges, kept)
        if mixed:
            quantizer_input.without_second_rounding(made, names)
        give_states_one_scale(made, proto)
        return made, [*left_out, *failed]


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """What ONNX Runtime's quantizer does not take is a ModelError about the network ``name``."""
    try:
        yield
    except _QUANTIZER_ERRORS as mistake:
        raise_refusals(mistake)
        raise ModelError(f"{name} cannot be quantized: {_error_line(mistake)}") from mistake


@contextmanager
def _quietly() -> Iterator[None]:
    """No advice from ONNX Runtime's quantizer, which it gives on the root logger, in sessions with
    default options and as warnings of numpy."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(_FATAL)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        onnxruntime.set_default_logger_severity(_WARNING)
        root.setLevel(level)


def raise_refusals(mistake: BaseException) -> None:
    """Raises MemoryError where ``mistake`` says that there was no memory."""
    if is_refusal(mistake):
        raise MemoryError(str(mistake)) from mistake


def _error_line(mistake: BaseException) -> str:
    """The first line of an error, with its kind where that says more."""
    line = next(iter(str(mistake).strip().splitlines()), "no reason given")
    spoken = isinstance(mistake, (*RUNTIME_ERRORS, ValueError, RuntimeError))
    return line if spoken else f"{type(mistake).__name__}: {line}"


def _unscaled_operators(
    proto: onnx.ModelProto, kept: Collection[str], unscaled: Collection[str]
) -> list[LeftOut]:
    """Operators, but for those of ``kept``, that read or make one of ``unscaled``."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    found = []
    for node in proto.graph.node:
        values = [name for name in touched(node) if name in unscaled]
        if node.op_type in _TYPES and node.name not in kept and values:
            which = f"its constant {values[0]!r}" if values[0] in constants else repr(values[0])
            reason = f"{which} has values that are {_UNSCALED}"
            found.append(LeftOut(node.name, node.op_type, reason))
    return found


def _quantize_static(proto: onnx.ModelProto, ranges: Ranges, excluded: Set[str]) -> onnx.ModelProto:
    wanted = [n for n in proto.graph.node if n.op_type in _TYPES and n.name not in excluded]
    read = {name for node in wanted for name in (*node.input, *node.output)}
    quantizer = LinearQuantizer(
        _with_shapes(proto),
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(
            CalibrationMethod.MinMax, {n: r for n, r in ranges.found.items() if n in read}
        ),
        nodes_to_quantize=[],
        nodes_to_exclude=excluded,
        op_types_to_quantize=_TYPES,
        extra_options={
            "WeightSymmetric": True,
            "OpTypesToExcludeOutputQuantization": ["MatMul"],
            "TensorQuantOverrides": {
                **{name: [_UNUSED_SCALE] for name in ranges.unscaled},
                **{name: [{"axis": axis}] for name, axis in _channels_of_products(proto).items()},
                **{name: [{"symmetric": True}] for name in _by_tensor(proto)},
            },
        },
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    made: onnx.ModelProto = quantizer.model.model
    return made


def _with_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy, since the quantizer changes what it is given, that knows all shapes and says so: else
    the quantizer writes all weights to a file for that, and reads them again."""
    known = shape_inference.infer_shapes(without_data(proto)).graph
    made = copied(proto, value_info=known.value_info, output=known.output)
    add_infer_metadata(made)
    return made


def _by_tensor(proto: onnx.ModelProto) -> list[str]:
    """Weights that get one scale for all channels: those of a ConvTranspose in groups have the
    channels of one group on their axis, which ONNX Runtime fits to no bias."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    grouped = (
        node
        for node in proto.graph.node
        if node.op_type == "ConvTranspose" and attribute(node, "group", 1) > 1
    )
    return [node.input[1] for node in grouped if len(node.input) > 2 and node.input[1] in constants]


def _channels_of_products(proto: onnx.ModelProto) -> dict[str, int]:
    """Constants of a MatMul whose outputs are not on axis 1, which ONNX Runtime takes, and the axis
    that they are on: stacks of weights, and weights on the left. Scales along the axis that is
    summed up would leave no integer product."""
    ranks = {tensor.name: len(tensor.dims) for tensor in proto.graph.initializer}
    axes: dict[str, int] = {}
    for node in proto.graph.node:
        for name, back in zip(node.input, (2, 1), strict=False):
            axis = ranks.get(name, 0) - back
            if node.op_type == "MatMul" and axis >= 0 and axis != 1:
                axes[name] = axis
    return axes


# Operators that the quantizer fails on.


def _without_failures(
    proto: onnx.ModelProto, ranges: Ranges, kept: Sequence[str]
) -> tuple[onnx.ModelProto, list[LeftOut]]:
    """Quantizes all that can be. Raises what the quantizer raised where that is nothing, or where
    too much would have to be left out."""
    left_out: list[LeftOut] = []
    while True:
        done = {*kept, *(each.node for each in left_out)}
        try:
            return _quantize_static(proto, ranges, done), left_out
        except _QUANTIZER_ERRORS as mistake:
            raise_refusals(mistake)
            culprit = _first_failing(proto, ranges, done)
            if culprit is None or len(left_out) >= _MOST_LEFT_OUT:
                raise
            left_out.append(LeftOut(culprit.name, culprit.op_type, _error_line(mistake)))


def _first_failing(proto: onnx.ModelProto, ranges: Ranges, done: Set[str]) -> onnx.NodeProto | None:
    """The last of the fewest first operators, but for those ``done``, that cannot be quantized
    together; None where it is not for any of them that the quantizer fails."""
    nodes: list[onnx.NodeProto] = [
        node for node in proto.graph.node if node.op_type in _TYPES and node.name not in done
    ]

    def works(count: int) -> bool:
        try:
            _quantize_static(proto, ranges, {*done, *(node.name for node in nodes[count:])})
        except _QUANTIZER_ERRORS as mistake:
            raise_refusals(mistake)
            return False
        return True

    if works(len(nodes)) or not works(0):
        return None
    return nodes[bisect_left(range(1, len(nodes)), True, key=lambda count: not works(count))]


# What stays float.


def _kept_float(proto: onnx.ModelProto) -> list[str]:
    """Names of the sums and products that stay float: biases, masks on scores, GELU and the like,
    and of scatters that add up or change anything but an input.

    What remains is a sum of two activations (a residual), a product of two images (a gate) and new
    rows of a cache.
    """
    shapes = known_shapes(proto)
    constants = quantizer_input.constant_numbers(proto)
    readers: dict[str, list[str]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.op_type)
    given = {value.name for value in proto.graph.input} - constants
    kept = []
    for node in proto.graph.node:
        if node.op_type in ("ScatterND", "ScatterElements"):
            adds_up = attribute(node, "reduction", b"none") != b"none"
            kept += [node.name] if adds_up or node.input[0] not in given else []
        if node.op_type not in _SUMS:
            continue
        activations = not constants.intersection(node.input)
        image = len(shapes.get(node.output[0], ())) == 4
        scores = readers.get(node.output[0]) == ["Softmax"]
        if not activations or scores or (node.op_type == "Mul" and not image):
            kept.append(node.name)
    return kept

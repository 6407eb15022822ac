"""ONNX Runtime's quantizer, in time that grows with the number of nodes and not with its square.

The one idea: it looks for constants and readers by name through whole lists, again for each value,
and rounds weights channel by channel. Here the network that it works on has an index of both, kept
as it adds to them, and the channels of a weight are rounded at once; what it decides is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime.quantization import QDQQuantizer, base_quantizer, qdq_quantizer
from onnxruntime.quantization.onnx_model import ONNXModel

_LARGEST = 127
"""Of a symmetric int8 weight."""
_SEARCHING = (base_quantizer, qdq_quantizer)
"""Modules of ONNX Runtime with a function that searches a list for a name."""
_AVERAGING = ("Resize", "AveragePool")
_FOLLOWING = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "MaxPool", "Slice"),
    *(*_AVERAGING, "Relu", "Clip"),
)
"""Operators that ONNX Runtime quantizes where their input is quantized already."""


class LinearQuantizer(QDQQuantizer):  # type: ignore[misc]
    """`QDQQuantizer` on a network with an index."""

    @property
    def model(self) -> _Indexed:
        """The network."""
        return self._model

    @model.setter
    def model(self, plain: ONNXModel) -> None:
        self._model = _Indexed(plain.model)

    def quantize_model(self) -> onnx.ModelProto:
        with _looking_up():
            for name in self._averaged():
                self.quantize_activation_tensor(name)
            made: onnx.ModelProto = super().quantize_model()
            return made

    def _averaged(self) -> list[str]:
        """What is averaged into numbers that are quantized by all that read them: averages of
        integers, also where nothing in front of them is quantized."""
        found: list[str] = []
        floats = {value.name for value in self.model.graph().output}
        for node in reversed(self.model.nodes()):
            if self.should_quantize_node(node) and floats.isdisjoint(node.output):
                found += [node.input[0]] if node.op_type in _AVERAGING else []
            elif node.op_type in _FOLLOWING or not self.should_quantize_node(node):
                floats.update(node.input)
        return found

    def quantize_weight_tensor_per_channel(self, tensor_name: str, axis: int) -> None:
        """Weights that are computed are quantized as activations are."""
        if self.model.get_initializer(tensor_name) is None:
            self.quantize_activation_tensor(tensor_name)
        else:
            super().quantize_weight_tensor_per_channel(tensor_name, axis)

    def _calc_initializer_quant_params(self) -> Any:
        told = self.tensor_quant_overrides
        for name, info in self.tensors_to_quantize.items():
            held = self.model.get_initializer(name)
            axis = told.get(name, [{}])[0].get("axis", info.axis)
            if held is not None and axis is not None and not told.overrides_scale_zp(name):
                scales = _channel_scales(numpy_helper.to_array(held), axis)
                zero = np.int8(0)
                told[name] = [{"axis": axis, "scale": s, "zero_point": zero} for s in scales]
        return super()._calc_initializer_quant_params()


def _channel_scales(weights: NDArray[Any], axis: int) -> NDArray[Any]:
    """The scale of each channel as ONNX Runtime has it, which is 1 where all is 0."""
    others = tuple(dim for dim in range(weights.ndim) if dim != axis % weights.ndim)
    most = np.maximum(weights.max(others, initial=0), -weights.min(others, initial=0))
    scales = most.astype(np.float64) / _LARGEST
    return np.where(scales < np.finfo(weights.dtype).tiny, 1, scales).astype(weights.dtype)


def _rounded(
    weight: onnx.TensorProto, kind: int, zero: NDArray[Any], scale: NDArray[Any],
    axis: int | None = None, **options: Any,
) -> onnx.TensorProto:  # fmt: skip
    """`quantize_onnx_initializer` of ONNX Runtime, with all channels at once."""
    if axis is None or kind != onnx.TensorProto.INT8:
        made: onnx.TensorProto = _ROUNDED_BY_CHANNEL(weight, kind, zero, scale, axis, **options)
        return made
    values = numpy_helper.to_array(weight)
    shape = [-1 if dim == axis else 1 for dim in range(values.ndim)]
    codes = (values.astype(np.float32) / scale.reshape(shape)).round()
    np.clip(codes, -_LARGEST - 1, _LARGEST, out=codes)
    return numpy_helper.from_array(codes.astype(np.int8), f"{weight.name}_quantized")


_ROUNDED_BY_CHANNEL = qdq_quantizer.quantize_onnx_initializer


@contextmanager
def _looking_up() -> Iterator[None]:
    """Lets ONNX Runtime look names up where a list has an index, and round all channels at once."""
    searching = {module: module.find_by_name for module in _SEARCHING}

    def find_by_name(name: str, items: Iterable[Any]) -> Any:
        if isinstance(items, _Constants):
            return items.by_name.get(name)
        return next((item for item in items if item.name == name), None)

    try:
        for module in searching:
            module.find_by_name = find_by_name
        qdq_quantizer.quantize_onnx_initializer = _rounded
        yield
    finally:
        qdq_quantizer.quantize_onnx_initializer = _ROUNDED_BY_CHANNEL
        for module, before in searching.items():
            module.find_by_name = before


class _Constants:
    """The constants of a graph, which can be looked up."""

    def __init__(self, held: Sequence[onnx.TensorProto]) -> None:
        self._held = held
        self.by_name = {tensor.name: tensor for tensor in held}

    def __iter__(self) -> Iterator[onnx.TensorProto]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class _Indexed(ONNXModel):  # type: ignore[misc]
    """A network whose constants and readers are found by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        self._constants = _Constants(model.graph.initializer)
        self._readers: dict[str, list[onnx.NodeProto]] = super().input_name_to_nodes()

    def initializer(self) -> _Constants:
        return self._constants

    def get_initializer(self, name: str) -> onnx.TensorProto | None:
        """The constant called ``name``."""
        return self._constants.by_name.get(name)

    def add_initializer(self, tensor: onnx.TensorProto) -> None:
        """Adds a constant unless there is one of that name."""
        if tensor.name not in self._constants.by_name:
            self.initializer_extend([tensor])

    def initializer_extend(self, inits: Sequence[onnx.TensorProto]) -> None:
        """Adds constants."""
        for tensor in inits:
            held = self.model.graph.initializer.add()
            held.CopyFrom(tensor)
            self._constants.by_name.setdefault(tensor.name, held)

    def add_node(self, node: onnx.NodeProto) -> None:
        super().add_node(node)
        held = self.model.graph.node[-1]
        for name in held.input:
            self._readers.setdefault(name, []).append(held)

    def input_name_to_nodes(self) -> dict[str, list[onnx.NodeProto]]:
        """The readers of each value."""
        return self._readers

    def replace_input_of_all_nodes(self, old_input_name: str, new_input_name: str) -> None:
        """Lets all readers of one value read another one."""
        moved = self._readers.pop(old_input_name, [])
        for node in moved:
            self.replace_node_input(node, old_input_name, new_input_name)
        self._readers.setdefault(new_input_name, []).extend(moved)

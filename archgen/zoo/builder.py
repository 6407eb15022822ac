"""Builds ONNX networks layer by layer, with weights that keep activations well scaled.

The one idea: every tensor carries the expected mean and variance of each of its channels beside
its shape. A convolution's output moments follow from its input's and from the weights that were
drawn, so biases centre, weights scale, and BatchNormalization gets the running statistics that
training would have recorded, all without running the network once.

With ``weights=False`` the parameters have shapes but no data: such a model can be counted and
shape-inferred, not run, and building the largest network takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from archgen.zoo.moments import Moments, Values

OPSET = 17
IR_VERSION = 10

FloatArray = NDArray[np.float32]


def _sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))


def _hard_sigmoid(x: Values) -> Values:
    return np.clip(x / 6 + 0.5, 0, 1)


ACTIVATIONS: dict[str, Callable[[Values], Values]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": _sigmoid,
    "Swish": lambda x: x * _sigmoid(x),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x: x * _hard_sigmoid(x),
}


class ZooError(ValueError):
    """A network of the zoo was asked for with a name, option or size that cannot be built."""


@dataclass(frozen=True)
class ZooTensor:
    """A value of the graph under construction: its name, shape, and moments by channel.

    The channel axis is 1 for images (rank 4) and what 1-D convolutions read, else the last one.
    """

    name: str
    shape: tuple[int, ...]
    moments: Moments


class NetworkBuilder:
    """Appends nodes and initializers to one ``ModelProto``; ``finish`` returns it checked."""

    def __init__(self, name: str, seed: int = 0, weights: bool = True) -> None:
        self.model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="archgen")
        self.model.opset_import.append(helper.make_opsetid("", OPSET))
        self.graph = self.model.graph
        self.graph.name = name
        self.weights = weights
        self.random = np.random.Generator(np.random.SFC64(seed))
        self._unread: dict[str, onnx.TensorProto] = {}
        self._names: dict[str, str] = {}

    # Graph ends

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> ZooTensor:
        """Declares a graph input; floating-point ones are expected to be standard normal."""
        self.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
        channels = shape[1] if len(shape) == 4 else shape[-1]
        return ZooTensor(name, tuple(shape), Moments.standard(channels))

    def signal(self, name: str, channels: int, length: int, batch: int) -> ZooTensor:
        """Declares a graph input (batch, channels, length) that 1-D convolutions read."""
        x = self.input(name, (batch, channels, length))
        return ZooTensor(name, x.shape, Moments.standard(channels))

    def output(self, name: str, value: ZooTensor) -> None:
        """Declares ``value`` as graph output ``name`` by renaming what its node writes."""
        node = next(n for n in reversed(self.graph.node) if value.name in n.output)
        node.output[list(node.output).index(value.name)] = name
        for other in self.graph.node:
            for position, used in enumerate(other.input):
                if used == value.name:
                    other.input[position] = name
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        self.graph.output.append(info)

    def finish(self) -> onnx.ModelProto:
        """The model built so far."""
        return self.model

    # Parameters and constants

    def normal(self, shape: Sequence[int], std: float = 1.0, mean: float = 0.0) -> FloatArray:
        """Seeded normal values; without weights, zeros that occupy no memory."""
        if not self.weights:
            return np.broadcast_to(np.float32(0), shape)
        values = self.random.standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        if mean:
            values += np.float32(mean)
        return values

    def uniform(self, size: int, low: float, high: float) -> FloatArray:
        """Seeded uniform values of shape (size,), never affected by ``weights=False``."""
        return self.random.uniform(low, high, size).astype(np.float32)

    def parameter(self, name: str, values: NDArray[Any]) -> str:
        """Adds a trained parameter; its data is left out when the builder has no weights."""
        tensor = self.graph.initializer.add(name=name, dims=values.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
        if self.weights:
            tensor.raw_data = values.tobytes()
        return name

    def constant(self, values: NDArray[Any]) -> str:
        """Adds a structural constant (shape, index, scalar); what is returned stands for it among
        the inputs of nodes, several where they share it.

        It is named after the first node that reads it, and not shared because it equals another:
        at each length of a network its nodes read constants of the same names.
        """
        stands = f"constant {len(self._names) + len(self._unread)}"
        self._unread[stands] = self.graph.initializer.add()
        self._unread[stands].CopyFrom(onnx.numpy_helper.from_array(np.asarray(values)))
        return stands

    def scalar(self, value: float) -> str:
        """A float32 constant of rank 0."""
        return self.constant(np.array(value, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        """An int64 constant of rank 1: a shape, axes or indices."""
        return self.constant(np.array(values, np.int64))

    # Nodes

    def node(
        self, kind: str, name: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Appends one node and returns the names of what it writes."""
        written = [name] if outputs == 1 else [f"{name}.{index}" for index in range(outputs)]
        read = [self._input_name(given, f"{name}.input{at}") for at, given in enumerate(inputs)]
        self.graph.node.append(helper.make_node(kind, read, written, name, **attributes))
        return written

    def _input_name(self, given: str, name: str) -> str:
        """The name of an input; a constant that nothing has read is now called `name`."""
        if given in self._unread:
            self._unread.pop(given).name = self._names[given] = name
        return self._names.get(given, given)

    def convolution(
        self,
        name: str,
        x: ZooTensor,
        channels: int,
        kernel: int,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        bias: bool = True,
    ) -> ZooTensor:
        """Conv over (N, C, H, W) or (N, C, L). With a bias its output is centred with unit
        variance; without, it expects BatchNormalization to do that. ``padding`` defaults to
        kernel // 2.
        """
        padding = kernel // 2 if padding is None else padding
        batch, given = x.shape[:2]
        rank = len(x.shape) - 2
        weight = self._filters((channels, given // groups, *[kernel] * rank))
        moments = x.moments.through(weight, groups) if self.weights else Moments.standard(channels)
        scale = float(1 / np.sqrt(moments.variance.mean())) if bias else 1 / np.sqrt(weight[0].size)
        if self.weights:
            weight *= np.float32(scale)
        moments = moments.scaled(scale)
        inputs = [x.name, self.parameter(f"{name}.weight", weight)]
        if bias:
            inputs.append(self._centring_bias(f"{name}.bias", moments))
            moments = moments.centred()
        self.node(
            "Conv",
            name,
            inputs,
            kernel_shape=[kernel] * rank,
            strides=[stride] * rank,
            pads=[padding] * 2 * rank,
            group=groups,
            dilations=[1] * rank,
        )
        spatial = self._extents(name, x, kernel, stride, padding, False)
        return ZooTensor(name, (batch, channels, *spatial), moments)

    def batch_norm(self, name: str, x: ZooTensor, gain: float = 1.0) -> ZooTensor:
        """BatchNormalization with running statistics near ``x``'s expected moments; each
        channel comes out with a deviation around ``gain`` and a small mean.
        """
        channels = x.shape[1]
        scale = self.uniform(channels, 0.8 * gain, 1.2 * gain)
        shift = self.uniform(channels, -0.3 * gain, 0.3 * gain)
        spread = self.uniform(channels, 0.9, 1.1)
        values = {
            "weight": scale,
            "bias": shift,
            "running_mean": x.moments.mean.astype(np.float32),
            "running_var": (x.moments.variance * spread).astype(np.float32),
        }
        inputs = [self.parameter(f"{name}.{part}", array) for part, array in values.items()]
        self.node("BatchNormalization", name, [x.name, *inputs], epsilon=1e-5, momentum=0.9)
        return ZooTensor(name, x.shape, Moments(shift.astype(float), scale.astype(float) ** 2))

    def gemm(self, name: str, x: ZooTensor, features: int) -> ZooTensor:
        """Gemm on (N, K) with a transposed weight (features, K) and a bias; centred and scaled
        to unit variance, so that logits differ among inputs and classes."""
        weight = self._filters((features, x.shape[1]))
        moments = x.moments.through(weight) if self.weights else Moments.standard(features)
        scale = float(1 / np.sqrt(moments.variance.mean()))
        if self.weights:
            weight *= np.float32(scale)
        moments = moments.scaled(scale)
        inputs = [x.name, self.parameter(f"{name}.weight", weight)]
        inputs.append(self._centring_bias(f"{name}.bias", moments))
        self.node("Gemm", name, inputs, transB=1)
        return ZooTensor(name, (x.shape[0], features), moments.centred())

    def relu(self, x: ZooTensor, six: bool = False) -> ZooTensor:
        """Relu, or Clip to 0..6 as exporters write ReLU6."""
        name = f"{x.name}.relu"
        if six:
            self.node("Clip", name, [x.name, self.scalar(0.0), self.scalar(6.0)])
        else:
            self.node("Relu", name, [x.name])
        return ZooTensor(name, x.shape, x.moments.rectified())

    def activated(self, kind: str, x: ZooTensor) -> ZooTensor:
        """One of ``ACTIVATIONS`` as exporters write it: an operator, or Swish as x * Sigmoid."""
        name = f"{x.name}.{kind.lower()}"
        if kind == "Swish":
            (gate,) = self.node("Sigmoid", f"{x.name}.sigmoid", [x.name])
            self.node("Mul", name, [x.name, gate])
        else:
            attributes: dict[str, Any] = {"alpha": 1 / 6} if kind == "HardSigmoid" else {}
            self.node(kind, name, [x.name], **attributes)
        return ZooTensor(name, x.shape, x.moments.mapped(ACTIVATIONS[kind]))

    def multiply(self, name: str, left: ZooTensor, right: ZooTensor) -> ZooTensor:
        """Elementwise product, where ``right`` may have one value per channel of ``left``."""
        self.node("Mul", name, [left.name, right.name])
        return ZooTensor(name, left.shape, left.moments.times(right.moments))

    def max_pool(
        self,
        name: str,
        x: ZooTensor,
        kernel: int,
        stride: int,
        padding: int = 0,
        ceil: bool = False,
    ) -> ZooTensor:
        """MaxPool over (N, C, H, W) with a square window."""
        self.node("MaxPool", name, [x.name], **_window(kernel, stride, padding, ceil))
        spatial = self._extents(name, x, kernel, stride, padding, ceil)
        return ZooTensor(name, (*x.shape[:2], *spatial), x.moments.maximum(kernel * kernel))

    def average_pool(self, name: str, x: ZooTensor, kernel: int, stride: int) -> ZooTensor:
        """AveragePool over (N, C, H, W) with a square window and no padding."""
        self.node("AveragePool", name, [x.name], **_window(kernel, stride, 0, False))
        spatial = self._extents(name, x, kernel, stride, 0, False)
        return ZooTensor(name, (*x.shape[:2], *spatial), x.moments.averaged(kernel * kernel))

    def global_average_pool(self, name: str, x: ZooTensor) -> ZooTensor:
        """GlobalAveragePool and Flatten: (N, C, H, W) -> (N, C)."""
        averaged = self.averaged(name, x)
        self.node("Flatten", f"{name}.flatten", [name], axis=1)
        return ZooTensor(f"{name}.flatten", x.shape[:2], averaged.moments)

    def averaged(self, name: str, x: ZooTensor) -> ZooTensor:
        """GlobalAveragePool: (N, C, H, W) -> (N, C, 1, 1)."""
        batch, channels, height, width = x.shape
        self.node("GlobalAveragePool", name, [x.name])
        averaged = x.moments.averaged(height * width)
        return ZooTensor(name, (batch, channels, 1, 1), averaged)

    def flatten(self, name: str, x: ZooTensor) -> ZooTensor:
        """(N, C, H, W) -> (N, C * H * W)."""
        batch, channels, height, width = x.shape
        self.node("Flatten", name, [x.name], axis=1)
        shape = (batch, channels * height * width)
        return ZooTensor(name, shape, x.moments.repeated(height * width))

    def add(self, name: str, left: ZooTensor, right: ZooTensor) -> ZooTensor:
        """Elementwise sum of two tensors of one shape."""
        self.node("Add", name, [left.name, right.name])
        return ZooTensor(name, left.shape, left.moments.plus(right.moments))

    def concatenate(self, name: str, parts: Sequence[ZooTensor]) -> ZooTensor:
        """Concat along the channels of (N, C, H, W)."""
        self.node("Concat", name, [part.name for part in parts], axis=1)
        channels = sum(part.shape[1] for part in parts)
        shape = (parts[0].shape[0], channels, *parts[0].shape[2:])
        return ZooTensor(name, shape, Moments.concatenated([part.moments for part in parts]))

    def split(self, name: str, x: ZooTensor, parts: int) -> list[ZooTensor]:
        """Split of the channels of (N, C, H, W) into equal parts."""
        channels = x.shape[1] // parts
        names = self.node("Split", name, [x.name, self.integers([channels] * parts)], parts, axis=1)
        shape = (x.shape[0], channels, *x.shape[2:])
        moments = x.moments.split(parts)
        return [ZooTensor(*part) for part in zip(names, [shape] * parts, moments, strict=True)]

    def _filters(self, shape: tuple[int, ...]) -> FloatArray:
        """Normal weights (outputs, inputs, ...), of zero sum over each output's inputs: what
        rectified inputs have in common, which grows with depth, then passes no layer."""
        weight = self.normal(shape)
        if self.weights and shape[1] > 1:
            weight -= weight.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        return weight

    def _centring_bias(self, name: str, moments: Moments) -> str:
        noise = self.uniform(len(moments.mean), -0.1, 0.1)
        return self.parameter(name, (noise - moments.mean).astype(np.float32))

    def _extents(
        self, name: str, x: ZooTensor, kernel: int, stride: int, padding: int, ceil: bool
    ) -> tuple[int, ...]:
        extents = tuple(_extent(size, kernel, stride, padding, ceil) for size in x.shape[2:])
        if min(extents) < 1:
            window = "x".join([str(kernel)] * len(extents))
            raise ZooError(
                f"{self.graph.name}: the input is too small: {name!r} would slide a "
                f"{window} window over {'x'.join(map(str, x.shape[2:]))}"
            )
        return extents


def scaled_channels(channels: int, width: float, divisor: int = 8) -> int:
    """``channels * width`` rounded to a multiple of ``divisor``, losing at most a tenth."""
    if width == 1:
        return channels
    wanted = channels * width
    rounded = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wanted else rounded


def _window(kernel: int, stride: int, padding: int, ceil: bool) -> dict[str, Any]:
    return {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [padding] * 4,
        "ceil_mode": int(ceil),
    }


def _extent(size: int, kernel: int, stride: int, padding: int, ceil: bool) -> int:
    reach = size + 2 * padding - kernel
    if not ceil:
        return reach // stride + 1
    count = -(-reach // stride) + 1
    # A window that would start in the right padding is dropped, as PyTorch does.
    return count - 1 if (count - 1) * stride >= size + padding else count

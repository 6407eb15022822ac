"""Builds ONNX networks layer by layer, with weights that keep activations well scaled.

The one idea: every tensor carries the expected mean and variance of each of its channels beside
its shape. A convolution's output moments follow from its input's and from the weights that were
drawn, so biases centre, weights scale, and BatchNormalization gets the running statistics that
training would have recorded, all without running the network once.

With ``weights=False`` the parameters have shapes but no data: such a model can be counted and
shape-inferred, not run, and building the largest network takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from archgen.zoo.shapes import weights_in_blocks
from compiler import api

# Mean and variance of each channel, and how layers change them. With weights of random sign, the
# variance of a weighted sum is, in expectation, the sum of squared weights times the variances,
# whatever the correlation between the terms: moments follow from the weights alone.

# Neighbouring pixels are alike: averaging n of them lowers the variance like n**0.5 independent
# ones (measured on the networks of this zoo, fed with noise).
_INDEPENDENCE = 0.5

Values = NDArray[np.float64]
# Places and weights by which functions of a standard normal variable are averaged.
_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(33)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()


@dataclass(frozen=True)
class Moments:
    """``mean`` and ``variance``, each of shape (channels,)."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @staticmethod
    def standard(channels: int) -> Moments:
        """Zero mean and unit variance."""
        return Moments(np.zeros(channels), np.ones(channels))

    @staticmethod
    def concatenated(parts: Sequence[Moments]) -> Moments:
        """Channels of all ``parts`` one after another."""
        return Moments(
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.variance for part in parts]),
        )

    def split(self, parts: int) -> list[Moments]:
        """Of equal ``parts`` of the channels, the inverse of ``concatenated``."""
        pairs = zip(np.split(self.mean, parts), np.split(self.variance, parts), strict=True)
        return [Moments(mean, variance) for mean, variance in pairs]

    def through(self, weight: NDArray[np.float32], groups: int = 1) -> Moments:
        """After a weighted sum with ``weight`` of shape (outputs, inputs / groups, ...)."""
        outputs, inputs = weight.shape[:2]
        flat = weight.reshape(groups, outputs // groups, inputs, -1)
        first = flat.sum(axis=3, dtype=np.float32)
        second = np.einsum("goik,goik->goi", flat, flat)
        mean = np.einsum("goi,gi->go", first, self.mean.reshape(groups, inputs))
        variance = np.einsum("goi,gi->go", second, self.variance.reshape(groups, inputs))
        return Moments(mean.reshape(outputs), variance.reshape(outputs))

    def scaled(self, factor: float) -> Moments:
        """After multiplication by ``factor``."""
        return Moments(self.mean * factor, self.variance * factor**2)

    def centred(self) -> Moments:
        """After subtraction of the mean."""
        return Moments(np.zeros_like(self.mean), self.variance)

    def plus(self, other: Moments) -> Moments:
        """Of a sum of two independent tensors."""
        return Moments(self.mean + other.mean, self.variance + other.variance)

    def rectified(self) -> Moments:
        """After Relu of a normal distribution."""
        deviation = np.sqrt(self.variance)
        ratio = self.mean / deviation
        density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(r / math.sqrt(2))) for r in ratio])
        mean = self.mean * below + deviation * density
        square = (self.mean**2 + self.variance) * below + self.mean * deviation * density
        return Moments(mean, np.maximum(square - mean**2, 1e-3 * self.variance))

    def mapped(self, function: Callable[[Values], Values]) -> Moments:
        """After ``function`` of a normal distribution, by Gauss-Hermite quadrature."""
        places = self.mean[:, np.newaxis] + np.sqrt(self.variance)[:, np.newaxis] * _NODES
        values = function(places)
        mean = values @ _WEIGHTS
        square = values**2 @ _WEIGHTS
        return Moments(mean, np.maximum(square - mean**2, 1e-3 * self.variance))

    def times(self, other: Moments) -> Moments:
        """Of a product of two independent tensors."""
        mean = self.mean * other.mean
        square = (self.variance + self.mean**2) * (other.variance + other.mean**2)
        return Moments(mean, square - mean**2)

    def maximum(self, count: int) -> Moments:
        """Of the largest among ``count`` rectified neighbours, whose long tail keeps its spread."""
        rise = math.sqrt(2 * math.log(count)) * 0.6
        return Moments(self.mean + rise * np.sqrt(self.variance), self.variance)

    def averaged(self, count: int) -> Moments:
        """Of the average of ``count`` neighbours."""
        return Moments(self.mean, self.variance / count**_INDEPENDENCE)

    def repeated(self, count: int) -> Moments:
        """With each channel spread over ``count`` consecutive features."""
        return Moments(np.repeat(self.mean, count), np.repeat(self.variance, count))


# The network, layer by layer.

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


LARGE = 1 << 16
"""Elements of a parameter from which on its values are made when somebody asks for them."""


class ZooError(ValueError):
    """A network of the zoo was asked for with a name, option or size that cannot be built."""


class NetworkBuilder:
    """Appends nodes and initializers to `model`."""

    def __init__(self, name: str, seed: int = 0, weights: bool = True) -> None:
        self.model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="archgen")
        self.model.opset_import.append(helper.make_opsetid("", OPSET))
        self.graph = self.model.graph
        self.graph.name = name
        self.weights = weights
        self.seed = seed
        self.random = np.random.Generator(np.random.SFC64(seed))

    def refuse(self, wrong: bool, why: str) -> None:
        """Raises ZooError where sizes are `wrong`."""
        if wrong:
            raise ZooError(f"{self.graph.name}: {why}")

    def input(
        self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT,
        channel_axis: int | None = None,
    ) -> ZooTensor:  # fmt: skip
        """Declares a graph input; floating-point ones are expected to be standard normal."""
        self.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
        axis = channel_axis or (1 if len(shape) == 4 else -1)
        return ZooTensor(self, name, tuple(shape), Moments.standard(shape[axis]))

    def tensor(self, name: str, shape: Sequence[int], gain: float = 1.0) -> ZooTensor:
        """The value `name`, of this standard deviation in each channel of its last axis."""
        return ZooTensor(self, name, tuple(shape), Moments.standard(shape[-1]).scaled(gain))

    def normal(self, shape: Sequence[int], std: float = 1.0) -> FloatArray:
        """Seeded normal values; without weights, zeros that occupy no memory."""
        if not self.weights:
            return np.broadcast_to(np.float32(0), shape)
        values = self.random.standard_normal(shape, dtype=np.float32)
        values *= np.float32(std)
        return values

    def filters(self, shape: tuple[int, ...]) -> FloatArray:
        """Normal weights (outputs, inputs, ...), of zero sum over each output's inputs: what
        rectified inputs have in common, which grows with depth, then passes no layer."""
        weight = self.normal(shape)
        if self.weights and shape[1] > 1:
            weight -= weight.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        return weight

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

    def drawn(self, name: str, shape: Sequence[int], std: float = 1.0) -> str:
        """Adds a parameter of normal values, which follow from its name and the seed alone."""
        tensor = self.graph.initializer.add(name=name)
        api.set_normal(tensor, shape, self.seed, std)
        if self.weights and math.prod(shape) < LARGE:
            tensor.CopyFrom(numpy_helper.from_array(api.numbers_in(tensor), name))
        return name

    def centring_bias(self, name: str, moments: Moments) -> str:
        """A parameter that takes the mean away, up to some noise."""
        noise = self.uniform(len(moments.mean), -0.1, 0.1)
        return self.parameter(name, (noise - moments.mean).astype(np.float32))

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Adds a structural constant that several nodes share or that has to come early; others
        stand among the inputs of `node`."""
        self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name

    def prune(self, kept: int) -> None:
        """Leave the largest of each four weights along the reduction of products and convolutions,
        where these are whole fours."""
        for tensor, axis in weights_in_blocks(self.graph, 4):
            rows = np.moveaxis(api.numbers_in(tensor), axis, -1)
            fours = rows.reshape(-1, 4).copy()
            np.put_along_axis(fours, np.argsort(abs(fours), -1)[:, : 4 - kept], 0, -1)
            rows = np.moveaxis(fours.reshape(rows.shape), -1, axis)
            tensor.CopyFrom(numpy_helper.from_array(rows, tensor.name))

    def nodes(
        self, kind: str, names: Sequence[str], *inputs: Operand, domain: str = "", **attributes: Any
    ) -> list[str]:
        """Appends one node, called after what it writes first (`a.0`: `a`); returns `names`.

        Among its inputs a number is a float32 constant of rank 0, and whole numbers in a row are
        one of rank 1: a shape, axes, indices. Constants are called after the node that reads them,
        and not shared where they are equal: at each length of a network its nodes read constants of
        the same names.
        """
        label = names[0].removesuffix(".0") if len(names) > 1 else names[0]
        read = [self._input_name(given, f"{label}.input{at}") for at, given in enumerate(inputs)]
        node = helper.make_node(kind, read, names, label, domain=domain or None, **attributes)
        self.graph.node.append(node)
        return list(names)

    def node(self, kind: str, name: str, *inputs: Operand, **attributes: Any) -> str:
        """Appends a node with one output, which is called like it; inputs as of `nodes`."""
        return self.nodes(kind, [name], *inputs, **attributes)[0]

    def _input_name(self, given: Operand, name: str) -> str:
        if isinstance(given, str):
            return given
        if isinstance(given, ZooTensor):
            return given.name
        kind = np.float32 if isinstance(given, float) else None
        return self.constant(name, np.asarray(given, kind))


@dataclass(frozen=True)
class ZooTensor:
    """A value of the graph under construction: its name, shape, and moments by channel. Methods
    append the node that reads it, called `name` where they take one, and return what it writes.

    The channel axis is 1 for images (rank 4) and what 1-D convolutions read, else the last one.
    """

    net: NetworkBuilder
    name: str
    shape: tuple[int, ...]
    moments: Moments

    def apply(
        self, kind: str, name: str, *others: Operand, shape: tuple[int, ...] | None = None,
        moments: Moments | None = None, **attributes: Any,
    ) -> ZooTensor:  # fmt: skip
        """A node with one output, of this tensor's shape and moments unless others are given."""
        self.net.node(kind, name, self, *others, **attributes)
        return ZooTensor(self.net, name, shape or self.shape, moments or self.moments)

    def output(self, name: str) -> None:
        """Declares this value as graph output ``name`` by renaming what its node writes."""
        graph = self.net.graph
        for node in graph.node:
            for names in (node.input, node.output):
                for position, used in enumerate(names):
                    if used == self.name:
                        names[position] = name
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape)
        graph.output.append(info)

    def conv(
        self, name: str, channels: int, kernel: int, stride: int = 1, padding: int | None = None,
        groups: int = 1, bias: bool = True,
    ) -> ZooTensor:  # fmt: skip
        """Conv over (N, C, H, W) or (N, C, L). With a bias its output is centred with unit
        variance; without, it expects BatchNormalization to do that. ``padding`` defaults to
        kernel // 2.
        """
        padding = kernel // 2 if padding is None else padding
        rank = len(self.shape) - 2
        parameters, moments = self._weighted(
            name, (channels, self.shape[1] // groups, *[kernel] * rank), groups, bias
        )
        spatial = self._extents(name, kernel, stride, padding, False)
        return self.apply(
            "Conv", name, *parameters, shape=(self.shape[0], channels, *spatial), moments=moments,
            kernel_shape=[kernel] * rank, strides=[stride] * rank, pads=[padding] * 2 * rank,
            group=groups, dilations=[1] * rank,
        )  # fmt: skip

    def conv_bn(
        self, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1,
        norm: str = "", gain: float = 1.0,
    ) -> ZooTensor:  # fmt: skip
        """A convolution and the BatchNormalization `norm` (default: `.bn` of its name)."""
        y = self.conv(name, channels, kernel, stride, groups=groups, bias=False)
        return y.batch_norm(norm or f"{name}.bn", gain)

    def gemm(self, name: str, features: int) -> ZooTensor:
        """Gemm on (N, K) with a transposed weight (features, K) and a bias; centred and scaled
        to unit variance, so that logits differ among inputs and classes."""
        parameters, moments = self._weighted(name, (features, self.shape[1]))
        shape = (self.shape[0], features)
        return self.apply("Gemm", name, *parameters, shape=shape, moments=moments, transB=1)

    def _weighted(
        self, name: str, shape: tuple[int, ...], groups: int = 1, bias: bool = True
    ) -> tuple[list[str], Moments]:
        """Parameters of a weighted sum, and the moments of what it gives."""
        net, weight = self.net, self.net.filters(shape)
        moments = (
            self.moments.through(weight, groups) if net.weights else Moments.standard(shape[0])
        )
        scale = float(1 / np.sqrt(moments.variance.mean() if bias else weight[0].size))
        if net.weights:
            weight *= np.float32(scale)
        moments = moments.scaled(scale)
        weights = net.parameter(f"{name}.weight", weight)
        if not bias:
            return [weights], moments
        return [weights, net.centring_bias(f"{name}.bias", moments)], moments.centred()

    def batch_norm(self, name: str, gain: float = 1.0) -> ZooTensor:
        """BatchNormalization with running statistics near the expected moments; each channel
        comes out with a deviation around ``gain`` and a small mean.
        """
        net, channels = self.net, self.shape[1]
        scale = net.uniform(channels, 0.8 * gain, 1.2 * gain)
        shift = net.uniform(channels, -0.3 * gain, 0.3 * gain)
        spread = net.uniform(channels, 0.9, 1.1)
        values = {
            "weight": scale,
            "bias": shift,
            "running_mean": self.moments.mean.astype(np.float32),
            "running_var": (self.moments.variance * spread).astype(np.float32),
        }
        inputs = [net.parameter(f"{name}.{part}", array) for part, array in values.items()]
        moments = Moments(shift.astype(float), scale.astype(float) ** 2)
        return self.apply(
            "BatchNormalization", name, *inputs, moments=moments, epsilon=1e-5, momentum=0.9
        )

    def relu(self) -> ZooTensor:
        return self.apply("Relu", f"{self.name}.relu", moments=self.moments.rectified())

    def activated(self, kind: str) -> ZooTensor:
        """One of ``ACTIVATIONS`` as exporters write it: an operator, Swish as x * Sigmoid, or
        Relu6 as Clip to 0..6."""
        if kind == "Relu6":
            moments = self.moments.rectified()
            return self.apply("Clip", f"{self.name}.relu", 0.0, 6.0, moments=moments)
        name = f"{self.name}.{kind.lower()}"
        moments = self.moments.mapped(ACTIVATIONS[kind])
        if kind == "Swish":
            gate = self.net.node("Sigmoid", f"{self.name}.sigmoid", self)
            return self.apply("Mul", name, gate, moments=moments)
        attributes: dict[str, Any] = {"alpha": 1 / 6} if kind == "HardSigmoid" else {}
        return self.apply(kind, name, moments=moments, **attributes)

    def times(self, name: str, other: ZooTensor) -> ZooTensor:
        """Elementwise product, where ``other`` may have one value per channel."""
        return self.apply("Mul", name, other, moments=self.moments.times(other.moments))

    def plus(self, name: str, other: ZooTensor) -> ZooTensor:
        """Elementwise sum of two tensors of one shape."""
        return self.apply("Add", name, other, moments=self.moments.plus(other.moments))

    def pool(
        self, name: str, kernel: int, stride: int, padding: int = 0, ceil: bool = False,
        kind: str = "MaxPool",
    ) -> ZooTensor:  # fmt: skip
        """MaxPool or AveragePool over (N, C, H, W) with a square window."""
        combined = self.moments.maximum if kind == "MaxPool" else self.moments.averaged
        spatial = self._extents(name, kernel, stride, padding, ceil)
        return self.apply(
            kind, name, shape=(*self.shape[:2], *spatial), moments=combined(kernel * kernel),
            kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4,
            ceil_mode=int(ceil),
        )  # fmt: skip

    def averaged(self, name: str) -> ZooTensor:
        """GlobalAveragePool: (N, C, H, W) -> (N, C, 1, 1)."""
        batch, channels, height, width = self.shape
        moments = self.moments.averaged(height * width)
        return self.apply("GlobalAveragePool", name, shape=(batch, channels, 1, 1), moments=moments)

    def flat_average(self) -> ZooTensor:
        """GlobalAveragePool and Flatten: (N, C, H, W) -> (N, C)."""
        return self.averaged("avgpool").flatten("avgpool.flatten")

    def flatten(self, name: str) -> ZooTensor:
        """(N, C, H, W) -> (N, C * H * W)."""
        batch, channels, height, width = self.shape
        shape, moments = (batch, channels * height * width), self.moments.repeated(height * width)
        return self.apply("Flatten", name, shape=shape, moments=moments, axis=1)

    def swapped(self, name: str) -> ZooTensor:
        """(batch, channels, time) -> (batch, time, channels), and back."""
        batch, first, second = self.shape
        return self.apply("Transpose", name, shape=(batch, second, first), perm=[0, 2, 1])

    def split(self, name: str, parts: int) -> list[ZooTensor]:
        """Split of the channels of (N, C, ...) into equal parts."""
        channels = self.shape[1] // parts
        names = [f"{name}.{index}" for index in range(parts)]
        self.net.nodes("Split", names, self, [channels] * parts, axis=1)
        shape = (self.shape[0], channels, *self.shape[2:])
        split = zip(names, self.moments.split(parts), strict=True)
        return [ZooTensor(self.net, each, shape, moments) for each, moments in split]

    def _extents(
        self, name: str, kernel: int, stride: int, padding: int, ceil: bool
    ) -> tuple[int, ...]:
        image = self.shape[2:]
        extents = tuple(_extent(size, kernel, stride, padding, ceil) for size in image)
        window = "x".join([str(kernel)] * len(extents))
        self.net.refuse(
            min(extents) < 1,
            f"the input is too small: {name!r} would slide a {window} window over "
            f"{'x'.join(map(str, image))}",
        )
        return extents


Operand = str | ZooTensor | float | Sequence[int] | NDArray[Any]
"""An input of a node: a value by its name, a tensor, or a constant."""


def concatenated(name: str, parts: Sequence[ZooTensor]) -> ZooTensor:
    """Concat along the channels of (N, C, ...)."""
    first, *others = parts
    shape = (first.shape[0], sum(part.shape[1] for part in parts), *first.shape[2:])
    moments = Moments.concatenated([part.moments for part in parts])
    return first.apply("Concat", name, *others, shape=shape, moments=moments, axis=1)


def scaled_channels(channels: int, width: float) -> int:
    """``channels * width`` rounded to a multiple of 8, losing at most a tenth."""
    if width == 1:
        return channels
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def _extent(size: int, kernel: int, stride: int, padding: int, ceil: bool) -> int:
    reach = size + 2 * padding - kernel
    if not ceil:
        return reach // stride + 1
    count = -(-reach // stride) + 1
    # A window that would start in the right padding is dropped, as PyTorch does.
    return count - 1 if (count - 1) * stride >= size + padding else count

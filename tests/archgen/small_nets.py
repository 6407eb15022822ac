"""Networks of one operator, or of the few that belong together, in two shapes each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from networks import model as net_of
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
Made = tuple[list[onnx.NodeProto], dict[str, Array], tuple[int, ...]]
"""Nodes from x to y, constants, shape of x."""

SHAPES = ((1, 8, 6, 6), (1, 24, 5, 7))
_LOWEST = float(np.finfo(np.float32).min)


def weights(*shape: int, seed: int = 0) -> Array:
    """Random weights that keep the size of what they are multiplied with."""
    random = np.random.default_rng(seed)
    size = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1.0
    return (random.standard_normal(shape) / size).astype(np.float32)


def node(kind: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def _alone(kind: str, **attributes: Any) -> Callable[[tuple[int, ...]], Made]:
    return lambda shape: ([node(kind, "x", **attributes)], {}, shape)


def _positive(kind: str) -> Callable[[tuple[int, ...]], Made]:
    """Of x squared and a bit."""
    bit = {"bit": np.array(0.1, np.float32)}
    nodes = [node("Mul", "x x", "square"), node("Add", "square bit", "more"), node(kind, "more")]
    return lambda shape: (nodes, bit, shape)


def _with(kind: str, *, first: bool = False) -> Callable[[tuple[int, ...]], Made]:
    """With a constant for each channel."""
    operands = "c x" if first else "x c"
    return lambda shape: (
        [node(kind, operands)], {"c": np.abs(weights(1, shape[1], 1, 1)) + np.float32(0.5)}, shape,
    )  # fmt: skip


def _reduced(kind: str, axes: tuple[int, ...]) -> Callable[[tuple[int, ...]], Made]:
    given = {"axes": np.array(axes, np.int64)}
    return lambda shape: ([node(kind, "x axes", keepdims=1)], given, shape)


def _normalized(kind: str) -> Callable[[tuple[int, ...]], Made]:
    def made(shape: tuple[int, ...]) -> Made:
        extent = shape[-1] if kind == "LayerNormalization" else shape[1]
        scale, bias = weights(extent, seed=1) + np.float32(1), weights(extent, seed=2)
        return [node(kind, "x s b")], {"s": scale, "b": bias}, shape

    return made


def _batch_norm(shape: tuple[int, ...]) -> Made:
    per = {name: weights(shape[1], seed=i) for i, name in enumerate("sbm")}
    per["v"] = np.abs(weights(shape[1], seed=4)) + np.float32(0.5)
    return [node("BatchNormalization", "x s b m v")], per, shape


def _conv(groups: str = "", **attributes: Any) -> Callable[[tuple[int, ...]], Made]:
    def made(shape: tuple[int, ...]) -> Made:
        channels = shape[1]
        deep = bool(groups)
        w = weights(channels if deep else 12, 1 if deep else channels, 3, 3)
        b = weights(len(w), seed=5)
        more = {"group": channels} if deep else {}
        return [node("Conv", "x w b", pads=[1] * 4, **more, **attributes)], {"w": w, "b": b}, shape

    return made


def _transposed(shape: tuple[int, ...]) -> Made:
    return [node("ConvTranspose", "x w", strides=[2, 2])], {"w": weights(shape[1], 6, 2, 2)}, shape


def _matmul(shape: tuple[int, ...]) -> Made:
    return [node("MatMul", "x w")], {"w": weights(40, 12).T.copy().T}, (2, shape[1], 40)


def _gemm(shape: tuple[int, ...]) -> Made:
    w = {"w": weights(10, 64), "b": weights(10, seed=3)}
    return [node("Gemm", "x w b", transB=1)], w, (shape[1], 64)


def _masked(value: float) -> Callable[[tuple[int, ...]], Made]:
    """Scores with a causal mask, and their Softmax."""

    def made(shape: tuple[int, ...]) -> Made:
        mask = np.triu(np.full((shape[1], shape[1]), value, np.float32), 1)
        mask[np.tril_indices(shape[1])] = 0
        nodes = [node("Add", "x mask", "scores"), node("Softmax", "scores", axis=-1)]
        return nodes, {"mask": mask}, (1, 2, shape[1], shape[1])

    return made


def _resized(mode: str) -> Callable[[tuple[int, ...]], Made]:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)]
    given = {"scales": np.array([1, 1, 2, 1.5], np.float32)}
    return lambda shape: (nodes, given, shape)


def _epsilon(shape: tuple[int, ...]) -> Made:
    """A constant that fp16 cannot hold."""
    return [node("Add", "x tiny")], {"tiny": np.array(1e-12, np.float32)}, shape


def _overflow(shape: tuple[int, ...]) -> Made:
    """Values around 1e6, made by a factor that fp16 can hold."""
    large = {"large": np.array(6e4, np.float32)}
    return [node("Mul", "x large", "more"), node("Mul", "more large")], large, shape


def _classified(shape: tuple[int, ...]) -> Made:
    """The number of the largest of eight results of a convolution, at each place."""
    given = {"w": weights(8, shape[1], 1, 1)}
    return [node("Conv", "x w", "l"), node("ArgMax", "l", axis=1, keepdims=0)], given, shape


def _ranked(shape: tuple[int, ...]) -> Made:
    """The numbers of the three largest."""
    classes, given, _ = _classified(shape)
    ranked = helper.make_node("TopK", ["l", "k"], ["v", "y"], axis=1)
    return [classes[0], ranked], {**given, "k": np.array([3])}, shape


def _recurrent(kind: str, gates: int) -> Callable[[tuple[int, ...]], Made]:
    def made(shape: tuple[int, ...]) -> Made:
        hidden, extent = 6, shape[1]
        given = {"w": weights(1, gates * hidden, extent), "r": weights(1, gates * hidden, hidden)}
        return [node(kind, "x w r", hidden_size=hidden)], given, (4, 1, extent)

    return made


NETS: Mapping[str, Callable[[tuple[int, ...]], Made]] = {
    **{
        kind: _alone(kind)
        for kind in (
            "Relu", "LeakyRelu", "Sigmoid", "Tanh", "Exp", "Erf", "HardSwish", "HardSigmoid",
            "Softplus", "Elu", "Selu", "Mish", "Neg", "Abs", "Sin", "Cos", "Floor", "Ceil", "Round",
            "Sign", "GlobalAveragePool", "GlobalMaxPool",
        )
    },
    **{kind: _positive(kind) for kind in ("Log", "Sqrt", "Reciprocal")},
    **{kind: _with(kind) for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu")},
    "Div-by": _with("Div", first=True),
    "Gelu": _alone("Gelu"),
    "Gelu-tanh": _alone("Gelu", approximate="tanh"),
    **{f"{kind}-last": _alone(kind, axis=-1) for kind in ("Softmax", "LogSoftmax")},
    "Softmax-channels": _alone("Softmax", axis=1),
    **{
        kind: _reduced(kind, axes)
        for kind, axes in (
            ("ReduceMean", (2, 3)), ("ReduceSum", (1,)), ("ReduceMax", (3,)), ("ReduceMin", (1, 2)),
            ("ReduceL1", (1,)), ("ReduceL2", (2, 3)), ("ReduceSumSquare", (3,)),
            ("ReduceLogSumExp", (1,)),
        )
    },
    "LayerNormalization": _normalized("LayerNormalization"),
    "InstanceNormalization": _normalized("InstanceNormalization"),
    "BatchNormalization": _batch_norm,
    "MaxPool": _alone("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "AveragePool": _alone("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "Conv": _conv(),
    "Conv-strided": _conv(strides=[2, 2]),
    "Conv-depthwise": _conv("each"),
    "ConvTranspose": _transposed,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "masked-1e9": _masked(-1e9),
    "masked-lowest": _masked(_LOWEST),
    "masked-inf": _masked(-np.inf),
    "Resize-linear": _resized("linear"),
    "Resize-nearest": _resized("nearest"),
    "Conv-ArgMax": _classified,
    "Conv-TopK": _ranked,
    "epsilon": _epsilon,
    "overflow": _overflow,
    "GRU": _recurrent("GRU", 3),
    "LSTM": _recurrent("LSTM", 4),
}  # fmt: skip


def model(name: str, shape: tuple[int, ...]) -> onnx.ModelProto:
    """One of `NETS`, with inputs of a shape that follows from `shape`."""
    nodes, constants, given = NETS[name](shape)
    made = net_of(nodes, {"x": given}, {}, constants, opset=20, name=name)
    made.graph.output.append(onnx.ValueInfoProto(name="y"))
    return onnx.shape_inference.infer_shapes(made)


def saved(folder: Path, name: str, shape: tuple[int, ...]) -> str:
    """Path of a file with `model(name, shape)`."""
    path = folder / f"{name}.onnx"
    onnx.save(model(name, shape), path)
    return str(path)

"""ONNX Runtime, the nests and the executed program agree, for every operator on every machine.

Each network is compiled for each machine of `machines.NAMED`; programs are proved by the verifier
and simulated to their end. A refusal would be a failure here: all of these fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from blocks import attention
from machines import NAMED, crossed, machine
from networks import Net, check
from one_node import executed

from archgen.backend import DEFAULT
from archgen.check.reference import run_reference
from archgen.schema import load_arch
from compiler.api import CompileOptions

Grow = Callable[[Net], str]


def conv(shape: tuple[int, ...], weights: tuple[int, ...], bias: bool = True, **more: Any) -> Grow:
    def grow(net: Net) -> str:
        inputs = [net.input(*shape), net.weight(*weights)]
        if bias:
            inputs.append(net.vector(weights[0]))
        return net.op("Conv", *inputs, **more)

    return grow


def one(kind: str, *shape: int, **more: Any) -> Grow:
    return lambda net: net.op(kind, net.input(*shape), **more)


def matmul(left: tuple[int, ...], right: tuple[int, ...], computed: bool = False) -> Grow:
    return lambda net: net.op(
        "MatMul", net.input(*left), net.input(*right) if computed else net.weight(*right)
    )


def residual(net: Net) -> str:
    x = net.input(1, 8, 9, 7)
    a = net.op("Relu", net.op("Conv", x, net.weight(8, 8, 3, 3), pads=[1] * 4))
    b = net.op("Conv", a, net.weight(8, 8, 1, 1))
    return net.op("Relu", net.op("Add", b, x))


def branches(net: Net) -> str:
    x = net.input(1, 5, 8, 6)
    a = net.op("Conv", x, net.weight(7, 5, 1, 1))
    b = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
    joined = net.op("Concat", a, b, x, axis=1)
    return net.op("Conv", joined, net.weight(13, 17, 3, 3), strides=[2, 1])


def attends(net: Net) -> str:
    x = net.input(1, 5, 12)
    return net.op("Add", attention(net, x, 3), x)


def layer_norm(net: Net) -> str:
    x = net.input(2, 5, 13)
    y = net.op("LayerNormalization", x, net.weight(13), net.weight(13), axis=-1)
    return net.op("Gelu", net.op("Add", net.op("MatMul", y, net.weight(13, 16)), net.weight(16)))


def sliced(net: Net) -> str:
    x = net.input(2, 9, 7, 4)
    ends = [net.const([n], "i8") for n in (1, 8, 1, 3)]
    part = net.op("Slice", x, *ends)
    return net.op("Transpose", net.op("Sub", part, net.weight(1, 3, 1, 4)), perm=[3, 0, 2, 1])


def bordered(net: Net) -> str:
    """Some tiles lie in the border altogether."""
    sides = net.const([0, 5, 1, 2, 0, 4, 0, 1], "i8")
    padded = net.op("Pad", net.input(1, 4, 8, 8), sides, net.const(0.5, "f4"))
    return net.op("Relu", net.op("Mul", padded, net.weight(1, 13, 1, 11)))


def transposed_conv(net: Net) -> str:
    x = net.op("Conv", net.input(1, 5, 6, 4), net.weight(6, 5, 1, 1))
    up = net.op("ConvTranspose", x, net.weight(6, 7, 3, 2), strides=[1, 3], pads=[1, 0, 0, 1])
    return net.op("Relu", up)


def transposed_dilated(net: Net) -> str:
    x = net.op("Conv", net.input(1, 5, 6, 4), net.weight(6, 5, 1, 1))
    return net.op("ConvTranspose", x, net.weight(6, 7, 3, 2), strides=[2, 2], dilations=[3, 2])


def transposed_volume(net: Net) -> str:
    x = net.op("Relu", net.input(1, 3, 3, 4, 2))
    w = net.weight(3, 4, 3, 2, 2)
    return net.op("ConvTranspose", x, w, strides=[2, 2, 1], pads=[1, 0, 0, 0, 1, 0])


def resized(net: Net) -> str:
    scales = net.const([1, 1, 2, 2], "f4")
    up = net.op(
        "Resize", net.input(1, 5, 4, 3), "", scales, mode="nearest",
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    return net.op("Conv", up, net.weight(4, 5, 3, 3), pads=[1] * 4)


def cropped(net: Net) -> str:
    """A crop that reaches over the end, where another value stands."""
    x = net.op("Relu", net.input(1, 3, 7, 6))
    roi, sizes = net.const([0.2, 0.1, 0.7, 1.3], "f4"), net.const([5, 8], "i8")
    return net.op(
        "Resize", x, roi, "", sizes, axes=[2, 3], mode="cubic", extrapolation_value=2.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip


def own_transpose(net: Net) -> str:
    """Both operands of the product are one tensor."""
    x = net.input(2, 5, 7)
    return net.op("MatMul", x, net.op("Transpose", x, perm=[0, 2, 1]))


def own_input(net: Net) -> str:
    """The tail reads what the product reads."""
    x = net.input(1, 6, 8)
    return net.op("Mul", net.op("MatMul", x, net.weight(8, 8)), x)


def squared(net: Net) -> str:
    x = net.input(2, 7, 7)
    return net.op("MatMul", x, x)


def own_weights(net: Net) -> str:
    """The tail reads the product's computed right operand."""
    x, w = net.input(1, 8, 8), net.input(1, 8, 8)
    return net.op("Add", net.op("MatMul", x, w), w)


def constant_twice(net: Net) -> str:
    """The tail reads the product's constant right operand, and so does another product."""
    x, w = net.input(13, 13), net.weight(13, 13)
    return net.op("MatMul", net.op("Add", net.op("MatMul", x, w), w), w)


def running(net: Net) -> str:
    """Sums up to each token, and from each on."""
    x = net.op("Relu", net.input(2, 11, 5))
    sums = net.op("CumSum", x, net.const(1, "i8"))
    return net.op("Mul", sums, net.op("CumSum", x, net.const(1, "i8"), reverse=1, exclusive=1))


def classes(net: Net) -> str:
    """The best class of each token chooses a row of weights."""
    x = net.op("MatMul", net.input(3, 8), net.weight(8, 6))
    return net.op("MatMul", net.op("Hardmax", x, axis=-1), net.weight(6, 7))


def scattered(net: Net) -> str:
    x = net.op("Relu", net.input(3, 7))
    places = net.const([[0, 3, 6], [5, 1, 2], [4, 4, 0]], "i8")
    y = net.op("ScatterElements", x, places, net.input(3, 3), axis=1, reduction="add")
    return net.op("MatMul", y, net.weight(7, 5))


NETWORKS: dict[str, Grow] = {
    "conv": conv((1, 5, 9, 8), (7, 5, 3, 3), pads=[1] * 4),
    "conv-odd": conv((2, 3, 11, 7), (13, 3, 5, 2), strides=[3, 2], pads=[2, 0, 1, 1]),
    "conv-dilated": conv((1, 4, 12, 9), (6, 4, 3, 3), dilations=[2, 3], bias=False),
    "conv-strided-point": conv((1, 6, 9, 9), (5, 6, 1, 1), strides=[2, 2]),
    "conv-grouped": conv((1, 8, 6, 6), (12, 2, 3, 3), group=4, pads=[1] * 4),
    "conv-depthwise": conv((2, 13, 8, 7), (13, 1, 3, 3), group=13, pads=[1, 1, 1, 1]),
    "conv-depthwise-point": conv((1, 5, 7, 11), (5, 1, 1, 1), group=5, bias=False),
    "conv-depthwise-strided": conv((1, 6, 9, 9), (6, 1, 3, 3), group=6, strides=[2, 2]),
    "conv-1d": conv((2, 4, 17), (9, 4, 3), pads=[1, 1], strides=[2]),
    "conv-transposed": transposed_conv,
    "conv-large-prime": conv((1, 31, 5, 5), (127, 31, 1, 1)),
    "max-pool": one("MaxPool", 1, 7, 9, 8, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    "average-pool": one("AveragePool", 1, 5, 9, 8, kernel_shape=[3, 3], pads=[1, 1, 0, 1]),
    "average-pool-inner": one(
        "AveragePool", 2, 5, 8, 8, kernel_shape=[2, 2], strides=[2, 2], count_include_pad=1
    ),
    "average-pool-3d": one(
        "AveragePool", 1, 3, 5, 6, 7, kernel_shape=[2, 3, 3], pads=[1, 1, 0, 0, 1, 1]
    ),
    "lp-pool": one("LpPool", 1, 5, 9, 8, kernel_shape=[3, 3], pads=[1, 1, 0, 1]),
    "conv-3d": conv((2, 3, 5, 6, 5), (4, 3, 3, 3, 2), pads=[1, 1, 0, 1, 1, 1], strides=[2, 1, 1]),
    "conv-transposed-3d": transposed_volume,
    "conv-transposed-dilated": transposed_dilated,
    "global-average": one("GlobalAveragePool", 2, 13, 7, 5),
    "global-max": one("GlobalMaxPool", 1, 5, 6, 7),
    "matmul": matmul((3, 7, 19), (19, 13)),
    "matmul-batched": matmul((2, 3, 5, 6), (2, 3, 6, 4), computed=True),
    "matmul-broadcast": matmul((4, 1, 5, 6), (3, 6, 7), computed=True),
    "matmul-broadcast-left": matmul((1, 5, 6), (4, 6, 7)),
    "matmul-vector": matmul((5, 6), (6,)),
    "softmax": one("Softmax", 2, 5, 13, axis=-1),
    "softmax-channels": one("Softmax", 1, 7, 4, 5, axis=1),
    "transpose": one("Transpose", 2, 5, 7, 3, perm=[3, 1, 0, 2]),
    "layer-norm": layer_norm,
    "attention": attends,
    "residual": residual,
    "branches": branches,
    "sliced": sliced,
    "resized": resized,
    "bordered": bordered,
    "cropped": cropped,
    "running": running,
    "scattered": scattered,
    "classes": classes,
    "own-transpose": own_transpose,
    "own-input": own_input,
    "own-weights": own_weights,
    "squared": squared,
    "constant-twice": constant_twice,
}  # fmt: skip
QUANTIZED = (
    "conv", "conv-odd", "conv-grouped", "conv-depthwise", "conv-1d", "conv-transposed",
    "conv-3d", "conv-transposed-dilated",
    "max-pool", "average-pool", "global-average", "matmul", "residual", "branches", "softmax",
    "own-transpose", "bordered",
)  # fmt: skip


@pytest.mark.parametrize(("name", "arch"), crossed(NETWORKS))
def test_float_networks(name: str, arch: Any) -> None:
    net = Net()
    check(net.model(NETWORKS[name](net)), arch, "fp32")


@pytest.mark.parametrize(("name", "arch"), crossed(QUANTIZED))
def test_quantized_networks(name: str, arch: Any) -> None:
    net = Net(quantized=True)
    check(net.model(NETWORKS[name](net)), arch, "int8")


@pytest.mark.parametrize("name", ["conv", "residual", "attention", "layer-norm"])
def test_half_precision_networks(name: str) -> None:
    net = Net()
    check(net.model(NETWORKS[name](net)), NAMED["interlocked"], "fp16")


@pytest.mark.parametrize("extents", [(), (1,), (16,)])
@pytest.mark.parametrize("engine", ["stcp920", "tpu-v3-like", str(DEFAULT)])
def test_one_bias_for_all_columns(engine: str, extents: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 32), (32, 16)))
    net = Net()
    biased = net.op("Add", net.op("MatMul", net.input(6, 32), net.const(w)),
                    net.const(random.standard_normal(extents).astype(np.float32)))  # fmt: skip
    model = net.model(biased)
    arch = load_arch(engine)  # the default's matrix engine adds a bias of real values itself
    _, got = executed(model, {"x0": x}, arch, CompileOptions(arch.types[0]))
    (expected,) = run_reference(model, {"x0": x}).values()
    np.testing.assert_allclose(got[biased], expected, 0.1, 0.2)


CUBE = {"kind": "cube", "rows": 4, "cols": 16, "depth": 16, "im2col": False, "depthwise": True}


@pytest.mark.parametrize(
    ("banks", "turned"),
    [
        (1, True),  # four times 1024 reads of 16 B at 16 B/cycle are 4096 cycles
        (8, False),  # 512
    ],
)
def test_planes_are_read_as_they_are_where_that_takes_less(banks: int, turned: bool) -> None:
    """The array takes 16 of 64 columns at a time, and all pixels for each. With channels last, a
    load of 1024 elements is as many pieces; by planes it is 2048 B, 128 cycles."""
    net = Net()
    x = net.input(1, 16, 8, 8)
    model = net.model(net.op("Conv", x, net.weight(64, 16, 1, 1)))
    arch = machine(
        types=("fp16",), matrix=CUBE, vector={"lanes": 1},
        local={"size": 1 << 16, "banks": banks, "bank_width": 16, "mapping": "interleaved"},
    )  # fmt: skip
    made = check(model, arch, "fp16")
    (load,) = (e.busy for e in made.trace.engines if e.engine == "load")
    assert (load >= 1024) == turned

"""Sums of products: convolutions and matrix products, real and quantized.

    conv     y[n, o, h, w] = sum c, i, j: x[n, c, h*s+i*d-p, w*s+j*d-p] * k[o, c, i, j]   (+ bias)
    matmul   y[..., m, n]  = sum k:       a[..., m, k] * b[..., k, n]                      (+ bias)

Quantized ones add up (raw - zero) products exactly and turn them into output steps with one
factor per channel. Groups become a dimension of their own, through views that move no data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from compiler.frontend.quantization.narrow_constants import narrow_of
from compiler.lowering.microscaling import in_blocks
from compiler.lowering.node import Lowering, Node, NoNest, nest_shape, uncertain
from compiler.tensor_ir.build import reshaped
from compiler.tensor_ir.nest import ZERO, Access, Affine, Array, Dim, Nest, Tensor, at
from simmodel.arch.element_types import is_float, per_block
from simmodel.arch.lazy_array import AnyArray, transformed


class WindowSide(NamedTuple):
    """What slides along one dimension, and the padding before and behind."""

    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0
    behind: int = 0


Window = tuple[WindowSide, ...]
"""By spatial dimension, what slides along it."""


def window_of(node: Node, kernel: Sequence[int]) -> Window:
    """From a node's attributes; of three dimensions of which nothing slides along the first, the
    other two."""
    count, ones = len(kernel), (1,) * len(kernel)
    strides, dilations = (node.attribute(name) or ones for name in ("strides", "dilations"))
    pads = node.attribute("pads") or (0,) * 2 * count
    sides = tuple(map(WindowSide, kernel, strides, dilations, pads[:count], pads[count:]))
    planes = count > 2 and sides[0]._replace(dilation=1) == WindowSide()
    return sides[1:] if planes else sides


def padded(window: Window) -> bool:
    """Whether anything outside the input is read."""
    return any(side.before or side.behind for side in window)


def tap_dims(window: Window) -> tuple[Dim, ...]:
    """Loops over kernel positions."""
    return tuple(Dim(name, side.kernel) for name, side in zip("ij", window, strict=False))


def tap_positions(window: Window, first_out: int, first_tap: int) -> tuple[Affine, ...]:
    """Input positions: out * stride + tap * dilation - pad."""
    return tuple(
        Affine(((first_out + a, side.stride), (first_tap + a, side.dilation)), -side.before)
        for a, side in enumerate(window)
    )


def conv(node: Node) -> None:
    """Convolution in one or two spatial dimensions, or in the planes of three, with groups; of
    integers with requantization."""
    codes, blocks = codes_of(node), in_blocks(node, 1)
    x = node.tensor(0) if blocks is None else blocks[0]
    data = node.numbers(1)
    weights = node.tensor(1) if data is None else (str(node.value(1).name), data)
    weights = weights if blocks is None else blocks[1]
    window = window_of(node, nest_shape(node.value(1))[2:])
    if len(window) not in (1, 2):
        raise NoNest(f"{node.op} in {len(window)} dimensions")
    out = node.build.create(
        node.out, node.shape(), codes.get("dtype", node.dtype()), channels_last(len(x.shape))
    )
    x, window = _subsampled(node, x, window)
    windows(node, x, out, weights, window, codes)


def channels_last(rank: int) -> tuple[int, ...]:
    """Order of the axes of an image tensor in memory."""
    return (0, *range(2, rank), 1)


def windows(
    node: Node, x: Tensor, out: Tensor, weights: Tensor | tuple[str, AnyArray], window: Window,
    codes: dict[str, Any],
) -> None:  # fmt: skip
    """Append out = windows of x times weights [out channel, channel of the group, taps...], which
    are computed or constant."""
    given = weights.shape if isinstance(weights, Tensor) else weights[1].shape
    groups = int(node.attribute("group", 1))
    channels, width = x.shape[1] // groups, out.shape[1] // groups
    depthwise = groups > 1 and channels * per_block(x.dtype) == width == 1
    lead = 1 if groups > 1 and not depthwise else 0
    taps = given[len(given) - len(window) :]
    form, shape = ".planes" * (len(given) > 2 + len(window)), (*given[:2], *taps)
    if depthwise:
        form, shape = f"{form}.depthwise", (given[0], *taps)
    elif groups > 1:
        x = node.split_axis(x, 1, groups, f"{out.name}.groups")
        out = node.split_axis(out, 1, groups, f"{out.name}.grouped")
        form, shape = f"{form}.{groups}groups", (groups, width, channels, *taps)
    if isinstance(weights, Tensor):
        w = node.build.view(f"{out.name}.weights", weights, reshaped(*shape)) if form else weights
    else:
        name, kernel = weights
        kernel = transformed(kernel, partial(np.reshape, shape=shape)) if form else kernel
        narrow = None if groups > 1 or per_block(x.dtype) > 1 else narrow_of(node.value(1))
        # Of any weight of a convolution.
        error = float(np.max(uncertain(node.value(1))))
        w = node.build.constant(f"{name}{form}", kernel, None, error, narrow)
    rank, first = len(out.shape), len(out.shape) - len(window)
    tap = rank if depthwise else rank + 1
    spread = tuple(at(tap + axis) for axis in range(len(window)))
    slid = (*map(at, range(2 + lead, first)), *tap_positions(window, first, tap))
    inner = [] if depthwise else [Dim("c", channels)]
    if depthwise:
        left, right = (at(0), at(1), *slid), (at(1), *spread)
    else:
        group = (at(1),) * lead
        left, right = (at(0), *group, at(rank), *slid), (*group, at(1 + lead), at(rank), *spread)
    reads = (
        Access(x.name, left, 0.0 if padded(window) else None, None, codes.get("a_zero", 0)),
        Access(w.name, right),
    )
    dims = [*_out_dims(out.shape), *inner, *tap_dims(window)]
    _finish(node, out, dims, reads, codes, tuple(range(1, 2 + lead)))


def _subsampled(node: Node, x: Tensor, window: Window) -> tuple[Tensor, Window]:
    """A strided 1x1 convolution is a dense one over a view that skips rows and columns."""
    strides = [side.stride for side in window]
    if padded(window) or max(side.kernel for side in window) > 1 or max(strides) == 1:
        return x, window
    cut = (..., *(slice(None, None, stride) for stride in strides))
    view = node.build.view(f"{node.out}.sampled", x, itemgetter(cut))
    return view, (WindowSide(),) * len(window)


def _out_dims(shape: tuple[int, ...]) -> tuple[Dim, ...]:
    names = {3: "nol", 4: "nohw", 5: "ngohw"}.get(len(shape), "")
    return tuple(
        Dim(names[axis] if names else f"d{axis}", extent) for axis, extent in enumerate(shape)
    )


def matmul(node: Node) -> None:
    """Batched matrix product with numpy's broadcasting; of integers with requantization."""
    codes, blocks = codes_of(node), in_blocks(node, -2)
    if blocks is None:
        a, b = node.tensor(0), node.tensor(1)
    else:
        a, b = blocks[0], node.build.constant(*blocks[1])
    if len(a.shape) == 1:
        a = node.build.view(f"{node.out}.row", a, reshaped(1, *a.shape))
    if len(b.shape) == 1:
        b = node.build.view(f"{node.out}.column", b, reshaped(*b.shape, 1))
    dtype = codes.get("dtype", node.dtype())
    if not codes and not is_float(dtype):
        raise NoNest("MatMul of integers without their zero points")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    vectors, rank = shape != node.shape(), len(shape)
    out = node.build.create(f"{node.out}.matrix" if vectors else node.out, shape, dtype)
    if a.shape[-1] == 0:
        filled(node, out, codes, rank - 1)
    else:
        batch = [Dim(f"b{axis}", extent) for axis, extent in enumerate(lead)]
        dims = [*batch, Dim("m", shape[-2]), Dim("n", shape[-1]), Dim("k", a.shape[-1])]
        left = _batched(a, shape, (at(rank - 2), at(rank)))
        left = replace(left, zero=codes.get("a_zero", 0))
        right = _batched(b, shape, (at(rank), at(rank - 1)))
        _finish(node, out, dims, (left, right), codes, (rank - 1,))
    if vectors:
        node.build.view(node.out, out, reshaped(*node.shape()))


def _batched(t: Tensor, shape: tuple[int, ...], inner: tuple[Affine, Affine]) -> Access:
    skip = len(shape) - len(t.shape)
    lead = tuple(
        ZERO if t.shape[axis] == 1 != shape[skip + axis] else at(skip + axis)
        for axis in range(len(t.shape) - 2)
    )
    return Access(t.name, (*lead, *inner))


def codes_of(node: Node) -> dict[str, Any]:
    """Of a product of integers zero points, the output's type, and the factors from sums to output
    steps; else nothing."""
    if not node.op.startswith("Q"):
        return {}
    left, right = ("a", "b") if node.op == "QMatMul" else ("x", "w")
    kind = str(node.attribute("y_type", "int8"))
    a_scale = float(node.attribute(f"{left}_scale"))
    b_scale = np.asarray(node.attribute(f"{right}_scale"), np.float64)
    b_zero = np.unique(np.asarray(node.attribute(f"{right}_zero", (0,)), np.int64))
    if b_zero.size != 1:
        raise NoNest("weights with a zero point per channel")
    real = kind == "float32"
    codes: dict[str, Any] = {
        "a_zero": int(np.asarray(node.attribute(f"{left}_zero", 0)).reshape(-1)[0]),
        "b_zero": int(b_zero[0]),
        "dtype": node.build.real if real else kind,
        "accumulator": "int32",
    }
    if kind == "int32":
        return codes
    y_scale = 1.0 if real else float(node.attribute("y_scale"))
    codes["factor"] = (a_scale * b_scale / y_scale).astype(np.float32)
    if not real:
        zero = int(node.attribute("y_zero", 0))
        codes["zero"] = zero
        info = np.iinfo(kind)
        low = int(node.attribute("clip_lo", info.min))
        high = int(node.attribute("clip_hi", info.max))
        codes["low"] = float(low - zero) if low > info.min else -math.inf
        codes["high"] = float(high - zero) if high < info.max else math.inf
    return codes


def _finish(
    node: Node, out: Tensor, dims: list[Dim], operands: tuple[Access, Access],
    codes: dict[str, Any], channel: tuple[int, ...],
) -> None:  # fmt: skip
    """Append the nest; `channel` are the output dims that bias and factors run over."""
    left, right = operands
    extents = tuple(out.shape[axis] for axis in channel)

    def per_channel(name: str, data: Array, dtype: str, error: float = 0.0) -> Access:
        full = np.broadcast_to(data.reshape(-1), (math.prod(extents),)).reshape(extents)
        constant = node.build.constant(name, np.ascontiguousarray(full), dtype, error)
        return Access(constant.name, tuple(map(at, channel)))

    factor = codes.get("factor")
    added = None
    if node.has(2):
        name = f"{node.value(2).name}.bias{'x'.join(map(str, extents))}"
        error = float(np.max(uncertain(node.value(2))))
        added = per_channel(name, node.constant(2), codes.get("accumulator", "fp32"), error)
    node.build.add(
        Nest(
            out.name, tuple(dims), len(out.shape), "mul",
            (left, replace(right, zero=codes.get("b_zero", 0))), "sum", bias=added,
            multiplier=None
            if factor is None
            else per_channel(f"{node.out}.factor", factor, "fp32"),
            low=codes.get("low", -math.inf),
            high=codes.get("high", math.inf),
            zero=codes.get("zero", 0),
            block=per_block(node.build.tensors[left.tensor].dtype),
        )
    )  # fmt: skip


def filled(node: Node, view: Tensor, codes: dict[str, Any], channel: int) -> None:
    """Output positions that are empty sums: the bias, which varies along the axis `channel`."""
    bias = node.constant(2) if node.has(2) else np.zeros(1, np.float32)
    if codes:
        bias = bias.astype(np.float32) * codes["factor"]
    if codes and not is_float(codes["dtype"]):
        info = np.iinfo(codes["dtype"])
        whole = np.clip(np.rint(bias), codes["low"], codes["high"]) + codes["zero"]
        bias = np.clip(whole, info.min, info.max).astype(info.dtype)
    column = bias.reshape(-1, *(1,) * (len(view.shape) - 1 - channel))
    node.build.copied(view, node.build.constant(f"{node.out}.untouched", column))


# Transposed convolution as ordinary ones, one per phase of its stride.


@dataclass(frozen=True)
class _Phase:
    """Along one axis: the outputs first, first + stride, ... and the taps that they read."""

    first: int
    count: int
    taps: tuple[int, ...]
    """Positions in the kernel, in the order in which a window over the input reads them."""
    apart: int
    """Distance between these in the input."""
    pads: tuple[int, int]


def _phase(
    phase: int, stride: int, kernel: tuple[int, int], pad: int, extents: tuple[int, int]
) -> _Phase:
    """The phase of one axis; `kernel` is its extent and dilation, `extents` what is given and made.

    Tap k takes input i to output i * stride + k * dilation - pad: taps of one phase reach the same
    outputs, and of the inputs behind one output the later belong to the earlier taps.
    """
    (size, dilation), (given, made) = kernel, extents
    first = (phase - pad) % stride
    taps = tuple(k for k in reversed(range(size)) if (k * dilation - phase) % stride == 0)
    apart = dilation // math.gcd(dilation, stride)
    start = (first + pad - (taps[0] * dilation if taps else phase)) // stride
    count = max(0, -(-(made - first) // stride))
    end = start + count - 1 + (len(taps) - 1) * apart
    return _Phase(first, count, taps, apart, (-start, end - given + 1))


def conv_transpose(node: Node) -> None:
    """Transposed convolution in one or two spatial dimensions, with groups; of integers with
    requantization."""
    codes, x, kernel = codes_of(node), node.tensor(0), node.constant(1)
    spatial = len(x.shape) - 2
    dilations = node.attribute("dilations") or (1,) * spatial
    if spatial not in (1, 2):
        raise NoNest(f"ConvTranspose in {spatial} dimensions")
    strides = tuple(node.attribute("strides") or (1,) * spatial)
    pads = tuple(node.attribute("pads") or (0,) * 2 * spatial)
    shape = node.shape()
    dtype = codes.get("dtype", node.dtype())
    out = node.build.create(node.out, shape, dtype, channels_last(len(shape)))
    node.compose()
    # [in, out / groups, taps] -> [out, in / groups, taps], as convolutions have it
    groups, (inputs, width, *taps) = int(node.attribute("group", 1)), kernel.shape
    split = np.swapaxes(kernel.reshape(groups, inputs // groups, width, *taps), 1, 2)
    kernel = split.reshape(groups * width, inputs // groups, *taps)
    for phases in itertools.product(*(range(s) for s in strides)):
        axes = [
            _phase(phase, strides[a], (kernel.shape[2 + a], dilations[a]), pads[a], extents)
            for a, phase in enumerate(phases)
            for extents in [(x.shape[2 + a], shape[2 + a])]
        ]
        if all(axis.count for axis in axes):
            _lower_phase(node, x, out, kernel, axes, strides, codes)


def _lower_phase(
    node: Node, x: Tensor, out: Tensor, kernel: Array, axes: list[_Phase],
    strides: tuple[int, ...], codes: dict[str, Any],
) -> None:  # fmt: skip
    name = ".".join([out.name, "phase", *(str(axis.first) for axis in axes)])
    cut = (slice(a.first, a.first + a.count * s, s) for a, s in zip(axes, strides, strict=True))
    view = node.build.view(name, out, itemgetter((..., *cut)))
    taps = kernel[np.ix_(*map(range, kernel.shape[:2]), *(axis.taps for axis in axes))]
    if taps.size == 0:
        filled(node, view, codes, 1)
        return
    weight = f"{node.value(1).name}.{'.'.join('_'.join(map(str, a.taps)) for a in axes)}"
    window = tuple(WindowSide(len(a.taps), 1, a.apart, *a.pads) for a in axes)
    windows(node, x, view, (weight, taps), window, codes)


TABLE: dict[str, Lowering] = {
    "Conv": conv, "QConv": conv, "MatMul": matmul, "QMatMul": matmul,
    "ConvTranspose": conv_transpose, "QConvTranspose": conv_transpose,
}  # fmt: skip

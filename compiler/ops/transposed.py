"""Transposed convolution as ordinary ones, one per phase of its stride.

    y[q * s + phase] = sum j: x[q - j] * k[j * s + phase]

Output positions of one phase see the same taps, so each phase is a small dense convolution that
writes every s-th row and column of the result: no zeros are inserted and none are multiplied.
Dilated kernels are the same, with taps further apart.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.nest.ir import Array, Tensor
from compiler.ops.contraction import channels_last, codes_of, filled, windows
from compiler.ops.geometry import Geometry
from compiler.ops.node import Lowering, Node, NoNest


@dataclass(frozen=True)
class _Phase:
    """Along one axis: the outputs first, first + stride, ... and the taps that they see."""

    first: int
    count: int
    taps: tuple[int, ...]
    """Positions in the kernel, in the order in which a window over the input meets them."""
    apart: int
    """How far these are from each other in the input."""
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
    """Transposed convolution in one or two spatial dimensions, with groups."""
    _transposed(node, {})


def quantized_conv_transpose(node: Node) -> None:
    """Transposed convolution of integers with requantization."""
    _transposed(node, codes_of(node, "x", "w"))


def _transposed(node: Node, codes: dict[str, Any]) -> None:
    x, kernel = node.tensor(0), node.constant(1)
    spatial = len(x.shape) - 2
    dilations = node.attribute("dilations") or (1,) * spatial
    if spatial not in (1, 2):
        raise NoNest(f"ConvTranspose in {spatial} dimensions")
    strides = tuple(node.attribute("strides") or (1,) * spatial)
    pads = tuple(node.attribute("pads") or (0,) * 2 * spatial)
    shape = node.shape()
    dtype = codes.get("dtype", node.dtype())
    out = node.build.create(node.out, shape, dtype, channels_last(len(shape)))
    node.build.composite = node.build.composite or node.out
    kernel = _outputs_first(kernel, int(node.attribute("group", 1)))
    for phases in itertools.product(*(range(s) for s in strides)):
        axes = [
            _phase(phase, strides[a], (kernel.shape[2 + a], dilations[a]), pads[a], extents)
            for a, phase in enumerate(phases)
            for extents in [(x.shape[2 + a], shape[2 + a])]
        ]
        if all(axis.count for axis in axes):
            _lower_phase(node, x, out, kernel, axes, strides, codes)


def _outputs_first(kernel: Array, groups: int) -> Array:
    """[in, out / groups, taps] -> [out, in / groups, taps], as convolutions have it."""
    inputs, width = kernel.shape[:2]
    split = kernel.reshape(groups, inputs // groups, width, *kernel.shape[2:])
    return np.swapaxes(split, 1, 2).reshape(groups * width, inputs // groups, *kernel.shape[2:])


def _lower_phase(
    node: Node,
    x: Tensor,
    out: Tensor,
    kernel: Array,
    axes: list[_Phase],
    strides: tuple[int, ...],
    codes: dict[str, Any],
) -> None:
    steps = out.storage.strides
    name = ".".join([out.name, "phase", *(str(axis.first) for axis in axes)])
    offset = sum(axis.first * step for axis, step in zip(axes, steps[2:], strict=True))
    moved = (*steps[:2], *(step * s for step, s in zip(steps[2:], strides, strict=True)))
    shape = (*out.shape[:2], *(axis.count for axis in axes))
    view = node.build.view(name, shape, replace(out.storage, offset=offset, strides=moved), out)
    taps = kernel[np.ix_(*map(range, kernel.shape[:2]), *(axis.taps for axis in axes))]
    if taps.size == 0:
        filled(node, view, codes, 1)
        return
    pads = (*(axis.pads[0] for axis in axes), *(axis.pads[1] for axis in axes))
    weight = f"{node.value(1).name}.{'.'.join('_'.join(map(str, a.taps)) for a in axes)}"
    apart = tuple(axis.apart for axis in axes)
    windows(node, x, view, (weight, taps), Geometry(taps.shape[2:], None, pads, apart), codes, 2)


TABLE: dict[str, Lowering] = {
    "ConvTranspose": conv_transpose,
    "QConvTranspose": quantized_conv_transpose,
}

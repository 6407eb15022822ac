"""Fourier transforms as products with constant waves, columns that overlap as convolutions.

    y[k] = sum n: x[n] * exp(-2 pi i k n / N)

A complex number is two elements side by side, so the waves are a matrix [n, part, k, part] of
cosines and sines: real input has one part, and a one-sided transform fewer k. A short-time
transform is a convolution by the waves, times the window, with the step between frames as stride.
Columns that are added up to images are a transposed convolution by kernels of a single one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.rewrite import (
    Array,
    Rewriter,
    const,
    input_of,
    int_attr,
    ints_attr,
    is_op,
    required,
    scalar,
    static_shape,
)
from compiler.options import Count


@dataclass(frozen=True)
class DecomposeTransforms(GraphPass):
    """DFT and STFT of constant lengths, and Col2Im.

       y = DFT (x, 4, 1)                                  # x of [2, 4, 1]
    =>
       a = Reshape(x, [2, 4]); b = MatMul(a, waves); y = Reshape(b, [2, 4, 2])
    """

    largest: Count = 1 << 22
    """Elements of the waves, at most; with more the operator is left as it is."""

    def rewrite(self, node: ir.Node) -> bool:
        """Expand one transform whose lengths are constants."""
        made = None
        if is_op(node, "DFT"):
            made = self._dft(node)
        elif is_op(node, "STFT"):
            made = self._stft(node)
        elif is_op(node, "Col2Im"):
            made = _col2im(node)
        return made is not None

    def _dft(self, node: ir.Node) -> ir.Value | None:
        x, shape = required(node, 0), static_shape(required(node, 0))
        axis = scalar(input_of(node, 2)) if input_of(node, 2) is not None else -2
        if axis is None or (input_of(node, 1) is not None and scalar(input_of(node, 1)) is None):
            return None
        place, made = int(axis) % len(shape), static_shape(node.outputs[0])
        waves = _waves_of(node, shape[place], shape[-1], (made[place], made[-1]))
        if waves.size > self.largest:
            return None
        make = Rewriter(node, composite=node.name)
        others = [a for a in range(len(shape) - 1) if a != place]
        order = [*others, place, len(shape) - 1]
        moved = make.op("Transpose", [x], {"perm": order})
        rows = make.op("Reshape", [moved, make.axes([-1, shape[place] * shape[-1]])])
        matrix = make.like(
            waves.reshape(shape[place] * shape[-1], -1), x, _rounded(waves, len(waves))
        )
        product = make.op("MatMul", [rows, matrix])
        apart = make.op("Reshape", [product, make.axes([made[a] for a in order])])
        back = [int(a) for a in np.argsort(order)]
        result = make.op("Transpose", [apart], {"perm": back})
        make.replace(result)
        return result

    def _stft(self, node: ir.Node) -> ir.Value | None:
        signal, step, window = required(node, 0), scalar(input_of(node, 1)), input_of(node, 2)
        shape, made = static_shape(signal), static_shape(node.outputs[0])
        if step is None or (window is not None and const(window) is None):
            return None
        length = scalar(input_of(node, 3)) or (static_shape(window)[0] if window else shape[1])
        parts = shape[2] if len(shape) == 3 else 1
        waves = _waves(int(length), parts, made[2], 2, inverse=False)
        if waves.size > self.largest:
            return None
        if window is not None:
            waves = waves * np.asarray(const(window)).reshape(-1, 1, 1, 1)
        make = Rewriter(node, composite=node.name)
        lines = make.op("Reshape", [signal, make.axes([*shape[:2], parts])])
        channels = make.op("Transpose", [lines], {"perm": [0, 2, 1]})
        kernel = waves.transpose(2, 3, 1, 0).reshape(-1, parts, int(length))
        attributes = {"kernel_shape": [int(length)], "strides": [int(step)]}
        frames = make.op(
            "Conv", [channels, make.like(kernel, signal, _rounded(kernel, int(length)))], attributes
        )
        turned = make.op("Transpose", [frames], {"perm": [0, 2, 1]})
        result = make.op("Reshape", [turned, make.axes(made)])
        make.replace(result)
        return result


def _col2im(node: ir.Node) -> ir.Value | None:
    """Each column has the pixels of a block, one channel after another."""
    x, image, block = required(node, 0), const(required(node, 1)), const(required(node, 2))
    if image is None or block is None:
        return None
    rank, taps = len(block), int(np.prod(block))
    strides, dilations, pads = (
        ints_attr(node, name, default) or []
        for name, default in (
            ("strides", [1] * rank), ("dilations", [1] * rank), ("pads", [0] * 2 * rank),
        )
    )  # fmt: skip
    reach = [(int(k) - 1) * d + 1 for k, d in zip(block, dilations, strict=True)]
    around = [int(n) + a + b for n, a, b in zip(image, pads[:rank], pads[rank:], strict=True)]
    counts = [(n - r) // s + 1 for n, r, s in zip(around, reach, strides, strict=True)]
    over = [(n - r) % s for n, r, s in zip(around, reach, strides, strict=True)]
    batch, channels, _ = static_shape(x)
    make = Rewriter(node, composite=node.name)
    images = make.op("Reshape", [x, make.axes([batch, channels, *counts])])
    single = np.tile(np.eye(taps).reshape(taps, 1, *block), (channels // taps, *(1,) * (rank + 1)))
    result = make.op("ConvTranspose", [images, make.like(single, x)], {
        "kernel_shape": [int(k) for k in block], "strides": strides, "dilations": dilations,
        "pads": pads, "output_padding": over, "group": channels // taps,
    })  # fmt: skip
    make.replace(result)
    return result


def _rounded(waves: Array, length: int) -> float:
    """Magnitude of which the waves of a transform may be off by roundings, see `terms_of`.

    A fast transform multiplies by its waves one after another. ONNX Runtime turns a length that is
    no power of two into a convolution with a chirp, whose angles grow with the square of a place.
    """
    angles = 1 if length & (length - 1) == 0 else length
    return angles * float(np.abs(waves).max(initial=0.0))


def _waves_of(node: ir.Node, given: int, parts: int, made: tuple[int, int]) -> Array:
    """The waves of a DFT from `given` elements of so many `parts` to `made` of such; behind the
    length of the transform nothing is read, and what lacks of it is zero."""
    inverse, onesided = int_attr(node, "inverse", 0), int_attr(node, "onesided", 0)
    length = scalar(input_of(node, 1))
    if inverse and onesided:
        whole = made[0]
        return _halves(given, whole)
    whole = given if length is None else int(length)
    waves = _waves(whole, parts, made[0], 2, inverse=bool(inverse))
    kept = waves[:given]
    return np.concatenate([kept, np.zeros((max(0, given - whole), *waves.shape[1:]))])


def _waves(length: int, parts: int, made: int, results: int, inverse: bool) -> Array:
    """[n, part of x, k, part of y] of a transform of `length`."""
    turns = np.outer(np.arange(length), np.arange(made)) % length / length
    cos, sin = np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)
    if inverse:
        cos, sin = cos / length, -sin / length
    # (re + i im) * (cos - i sin)
    matrix = np.array([[cos, -sin], [sin, cos]])[:parts, :results]
    return matrix.transpose(2, 0, 3, 1)


def _halves(given: int, length: int) -> Array:
    """[k, part of x, n, 1]: `length` real numbers from the first half of their transform, whose
    other half mirrors it."""
    count = length // 2 + 1
    waves = _waves(length, 2, count, 1, inverse=True).transpose(2, 1, 0, 3)
    twice = np.full(count, 2.0)
    twice[0] = 1
    if length % 2 == 0:
        twice[-1] = 1
    waves = waves * twice[:, None, None, None]
    kept = waves[:given]
    return np.concatenate([kept, np.zeros((max(0, given - count), *waves.shape[1:]))])

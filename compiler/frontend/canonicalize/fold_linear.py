"""Absorbing a factor and offset per channel into the Conv, ConvTranspose or Gemm before them, and
padding into the window operator behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.frontend.canonicalize.fold_constants import value_where
from compiler.frontend.quantization.move_quantize import VIEWS
from compiler.frontend.rewrite import (
    ARCHGEN,
    ORIGIN,
    Array,
    GraphPass,
    Rewriter,
    const,
    forget_names,
    input_of,
    ints_attr,
    is_const,
    is_op,
    origin_of,
    required,
    scalar,
    set_attrs,
    sole_consumer,
    static_shape,
    terms_of,
)
from compiler.passes import Omittable

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


def absorbing_producer(value: ir.Value) -> ir.Node | None:
    """The linear operator with constant weights that makes `value` for one reader alone."""
    node = value.producer()
    if node is None or not is_op(node, "Conv", "ConvTranspose", "Gemm"):
        return None
    bias = input_of(node, 2)
    if not is_const(input_of(node, 1)) or (bias is not None and not is_const(bias)):
        return None
    if node.op_type == "Gemm" and {
        node.attributes.get_float(n, 1.0) for n in ("alpha", "beta")
    } != {1.0}:
        return None
    return node if sole_consumer(value) is not None else None


def absorb(
    linear: ir.Node, factor: Floats, shift: Floats, source: ir.Node, terms: float = 0.0
) -> None:
    """Make `linear` compute what `source`, y * factor + shift per channel, made of its result.

    `factor` and `shift` have one element per output channel. The readers of `source` then read
    `linear`, and `source` is removed. `terms`: magnitude of what `shift` was added up from.
    """
    make = Rewriter(linear, (linear, source))
    weight, bias = required(linear, 1), input_of(linear, 2)
    numbers, offsets = const(weight), const(bias)
    if numbers is None:
        raise ValueError(f"{linear.name}: weights are not constant")
    scaled = _scaled(linear, numbers.astype(np.float32, copy=False), factor)
    old = np.zeros(factor.shape) if offsets is None else offsets.astype(np.float64)
    moved = old * factor + shift
    if bool((factor != 1).any()):
        linear.replace_input_with(1, make.like(scaled, weight))
    linear.resize_inputs(3)
    terms += float(np.abs(old * factor).max(initial=0.0) + np.abs(shift).max(initial=0.0))
    terms += float(np.max(terms_of(bias)) * np.abs(factor).max(initial=0.0))
    linear.replace_input_with(2, make.like(moved, weight, terms))
    linear.metadata_props[ORIGIN] = origin_of(linear, source)
    forget_names(linear.outputs[0])
    after = Rewriter(source, (linear, source))
    after.replace(linear.outputs[0])


def _scaled(linear: ir.Node, weight: Array, factor: Floats) -> Array:
    """`weight` with each output channel multiplied by its factor."""
    scale: Array = factor.astype(np.float32)
    groups, tail = linear.attributes.get_int("group", 1), (1,) * (weight.ndim - 2)
    if linear.op_type == "Gemm":
        return weight * (scale[:, None] if linear.attributes.get_int("transB", 0) else scale)
    if linear.op_type == "Conv":
        return weight * scale.reshape(-1, 1, *tail)
    product: Array = weight.reshape(groups, -1, *weight.shape[1:])
    return (product * scale.reshape(groups, 1, -1, *tail)).reshape(weight.shape)


@dataclass(frozen=True)
class FoldAffine(GraphPass, Omittable):
    """Fold Add, Sub, Mul and Div by a constant per channel into the operator before it.

    c = Conv(x, w)
    y = Add(c, k)      # k is [1, C, 1, 1]      =>     y = Conv(x, w, k)

    Where both sides of a MatMul are multiplied by a number first, as queries and keys are by the
    root of a scale, the smaller side is by both.
    """

    def rewrite(self, node: ir.Node) -> bool:
        if is_op(node, "MatMul"):
            return _scale_smaller_side(node)
        if not is_op(node, "Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
            return False
        for position in (0,) if node.op_type == "Div" else (0, 1):
            data, other = required(node, position), node.inputs[1 - position]
            linear = absorbing_producer(data)
            operand = None if linear is None else _per_channel(linear, other)
            same = static_shape(node.outputs[0]) == static_shape(data)
            if linear is not None and operand is not None and same:
                absorb(linear, *_affine_of_operand(node.op_type, operand, position), source=node)
                return True
        return False


def _scale_smaller_side(node: ir.Node) -> bool:
    (left, first), (right, second) = (_factor(required(node, side)) for side in (0, 1))
    sizes = prod(static_shape(left)), prod(static_shape(right))
    if first is None or second is None or sizes[0] == sizes[1]:
        return False
    make = Rewriter(node)
    both = make.like(np.asarray(first * second), left)
    if sizes[0] < sizes[1]:
        left = make.op("Mul", [left, both])
    else:
        right = make.op("Mul", [right, both])
    make.replace(make.op("MatMul", [left, right]))
    return True


def _factor(value: ir.Value) -> tuple[ir.Value, float | None]:
    """What is multiplied by a number to make `value` for one reader alone, and that number."""
    node = value.producer()
    if node is not None and is_op(node, "Mul") and sole_consumer(value) is not None:
        for data, other in (node.inputs, node.inputs[::-1]):
            if data is not None and data.shape == value.shape and scalar(other) is not None:
                return data, scalar(other)
    return value, None


def _per_channel(linear: ir.Node, value: ir.Value | None) -> Floats | None:
    """`value` as one number per output channel, None where it varies otherwise."""
    numbers = const(value)
    if numbers is None:
        return None
    _, channels, *rest = static_shape(linear.outputs[0])
    rank = len(rest) + 2
    shape = (1,) * (rank - numbers.ndim) + numbers.shape
    if len(shape) != rank or any(n != 1 for i, n in enumerate(shape) if i != 1):
        return None
    return np.broadcast_to(numbers.reshape(-1), (channels,)).astype(np.float64)


def _affine_of_operand(op_type: str, operand: Floats, position: int) -> tuple[Floats, Floats]:
    one, zero = np.ones_like(operand), np.zeros_like(operand)
    if op_type in ("Mul", "Div"):
        return operand if op_type == "Mul" else 1 / operand, zero
    reverse = op_type == "Sub" and position
    return -one if reverse else one, operand if op_type == "Add" or reverse else -operand


@dataclass(frozen=True)
class FoldBatchNorm(GraphPass):
    """Fold into the linear operator before it, else leave one Mul and one Add.

        c = Conv(x, w, b)                        y = Conv(x, w * f, b * f + s)
        y = BatchNormalization(c, ...)     =>

        y = BatchNormalization(x, ...)     =>    m = Mul(x, f); y = Add(m, s)

    with f = scale / sqrt(var + epsilon) and s = bias - mean * f, per channel.
    """

    absorb: bool = True
    """False: always a Mul and an Add (which `fold-affine` may still take in)."""

    def rewrite(self, node: ir.Node) -> bool:
        if not is_op(node, "BatchNormalization") or node.attributes.get_int("training_mode", False):
            return False
        affine = _affine_of_statistics(node)
        if affine is None or any(output.uses() for output in node.outputs[1:]):
            return False
        (factor, shift, terms), data = affine, required(node, 0)
        linear = absorbing_producer(data) if self.absorb else None
        if linear is not None:
            absorb(linear, factor, shift, node, terms)
            return True
        make, shape = Rewriter(node), (-1, *(1,) * (len(static_shape(data)) - 2))
        by = make.like(factor.reshape(shape), data)
        added = make.like(shift.reshape(shape), data, terms)
        make.replace(make.op("Add", [make.op("Mul", [data, by]), added]))
        return True


def _affine_of_statistics(node: ir.Node) -> tuple[Floats, Floats, float] | None:
    """Factor and shift per channel, and the magnitude of what the shift was added up from."""
    arrays = [const(value) for value in node.inputs[1:5]]
    present = [array.astype(np.float64) for array in arrays if array is not None]
    if len(present) != 4:
        return None
    scale, bias, mean, variance = present
    factor = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    moved = mean * factor
    terms = float(np.abs(bias).max(initial=0.0) + np.abs(moved).max(initial=0.0))
    return factor, bias - moved, terms


NON_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Softmax", "Abs")


@dataclass(frozen=True)
class FoldPad(GraphPass, Omittable):
    """A constant Pad of the spatial dimensions moves into the operator that reads it.

        p = Pad <mode="constant"> (x, [0, 0, 1, 1, 0, 0, 1, 1], 0)
        y = Conv <pads=[0, 0, 0, 0]> (p, w)
     =>
        y = Conv <pads=[1, 1, 1, 1]> (x, w)

    Legal for Conv with zero, for QConv with its zero point, for AveragePool with zero if padding
    is counted, for MaxPool with -inf, or with zero if no input is negative and no window lies in
    the padding alone.
    """

    def rewrite(self, node: ir.Node) -> bool:
        pads_once = len(node.outputs) == 1 and not node.attributes.get_int("ceil_mode", 0)
        windows = is_op(node, "Conv", "AveragePool", "MaxPool") and pads_once
        explicit = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
        if not (windows and explicit) and not is_op(node, "QConv", domain=ARCHGEN):
            return False
        pad = required(node, 0).producer()
        if pad is None or not is_op(pad, "Pad"):
            return False
        if pad.attributes.get_string("mode", "constant") != "constant":
            return False
        spatial = _spatial_pads(pad)
        if spatial is None or not _legal(node, pad, spatial):
            return False
        own = ints_attr(node, "pads", [0] * len(spatial)) or [0] * len(spatial)
        set_attrs(node, {"pads": [a + b for a, b in zip(own, spatial, strict=True)]})
        if is_op(node, "AveragePool"):  # what was a zero of the input is still one of the mean
            set_attrs(node, {"count_include_pad": 1})
        node.metadata_props[ORIGIN] = origin_of(pad, node)
        node.replace_input_with(0, required(pad, 0))
        return True


def _spatial_pads(pad: ir.Node) -> list[int] | None:
    """Begins, then ends, of the spatial dimensions; None where the Pad does anything else."""
    amounts, axes = const(input_of(pad, 1)), const(input_of(pad, 3))
    if amounts is None or (input_of(pad, 3) is not None and axes is None):
        return None
    pads = np.zeros((2, len(static_shape(required(pad, 0)))), np.int64)
    pads[:, ... if axes is None else axes] = amounts.reshape(2, -1)
    # Windows have no pads in batch and channels, and negative ones would crop.
    spatial: list[int] = pads[:, 2:].ravel().tolist()
    return None if pads[:, :2].any() or (pads < 0).any() else spatial


def _legal(node: ir.Node, pad: ir.Node, pads: list[int]) -> bool:
    value = 0.0 if input_of(pad, 2) is None else scalar(input_of(pad, 2))
    if value is None:
        return False
    if is_op(node, "QConv", domain=ARCHGEN):
        return value == node.attributes.get_int("x_zero", 0)
    own = ints_attr(node, "pads") or []
    if is_op(node, "AveragePool"):
        counted = bool(node.attributes.get_int("count_include_pad", 0))
        return value == 0 and (counted or not any(own))
    if not is_op(node, "MaxPool"):
        return value == 0
    dtype = required(pad, 0).dtype
    if any(own) or dtype is None or not dtype.is_floating_point():
        return False
    if value == -np.inf or value <= float(np.finfo(dtype.numpy()).min):
        return True
    # A zero changes no maximum of what is not negative, unless a window sees zeros alone.
    kernel = ints_attr(node, "kernel_shape") or []
    smaller = all(max(pads[i], pads[i + len(kernel)]) < n for i, n in enumerate(kernel))
    source = required(pad, 0).producer()
    return value == 0 and smaller and is_op(source, *NON_NEGATIVE)


_PARTS = ("Concat", "Gather", "Slice", "Split", "SpaceToDepth")


@dataclass(frozen=True)
class FoldSpaceToDepth(GraphPass, Omittable):
    """A convolution of blocks of pixels side by side as channels is one of the pixels.

        a = Slice(x, steps [2, 2]); ... d = Slice(x, steps [2, 2])
        c = Concat <axis=1> (a, b, c, d)
        y = Conv <kernel_shape=[3, 3]> (c, w)
     =>
        y = Conv <kernel_shape=[6, 6], strides=[2, 2]> (x, v)

    Of SpaceToDepth, of Reshape and Transpose that do the same or shuffle channels, and of QConv
    too. The kernel's places and channels are the same numbers in another order.
    """

    def rewrite(self, node: ir.Node) -> bool:
        if not (is_op(node, "Conv") or is_op(node, "QConv", domain=ARCHGEN)):
            return False
        weights = required(node, 1)
        blocks, numbers = required(node, 0), const(weights)
        dilations = {*(ints_attr(node, "dilations") or ())}
        plain = node.attributes.get_int("group", 1) == 1 and dilations <= {1}
        found = _blocks(blocks) if numbers is not None and numbers.ndim == 4 and plain else None
        if found is None or numbers is None:
            return False
        image, steps, places = found

        def spread(parts: Array) -> Array:
            """Numbers by output, part, row and column as those by output, channel, row, column."""
            made, count, rows, columns = parts.shape
            wide = np.empty(
                (made, count // prod(steps), rows, steps[0], columns, steps[1]), parts.dtype
            )
            channel, row, column = places.T
            wide[:, channel, :, row, :, column] = np.moveaxis(parts, 1, 0)
            return wide.reshape(made, -1, rows * steps[0], columns * steps[1])

        terms = terms_of(weights)
        more = spread(terms) if isinstance(terms, np.ndarray) and terms.ndim == 4 else terms
        made = Rewriter(node).like(spread(numbers), weights, more)
        node.replace_input_with(0, image)
        node.replace_input_with(1, made)
        set_attrs(node, {"kernel_shape": static_shape(made)[2:]})
        for name in ("strides", "pads"):
            own = ints_attr(node, name) or [1, 1]
            set_attrs(node, {name: [n * steps[i % 2] for i, n in enumerate(own)]})
        node.metadata_props[ORIGIN] = origin_of(blocks.producer() or node, node)
        return True


def _blocks(last: ir.Value) -> tuple[ir.Value, list[int], Array] | None:
    """The image whose pixels stand side by side as channels of `last`, rows and columns of a block,
    and for each channel of `last` the image's channel and pixel of the block: each once. None of
    another value; where pixels go is what the operators in front make of their numbers."""
    return next((found for image in _images(last) if (found := _blocks_of(image, last))), None)


def _images(last: ir.Value) -> Iterator[ir.Value]:
    """Values that `last` may have the pixels of: of parts that are joined, the one that they are
    taken from, and whatever is seen in other shapes or orders of axes."""
    waiting, found = [last], set()
    while waiting:
        value = waiting.pop()
        maker = value.producer()
        if maker is not None and is_op(maker, *_PARTS):
            waiting += [each for each in maker.inputs if each is not None and not is_const(each)]
        else:
            found.add(value)
    value = found.pop()
    if found:
        return
    yield value
    while (maker := value.producer()) is not None and is_op(maker, *VIEWS, "Transpose"):
        value = required(maker, 0)
        yield value


def _blocks_of(image: ir.Value, last: ir.Value) -> tuple[ir.Value, list[int], Array] | None:
    shape, deep = static_shape(last), static_shape(image)
    if image is last or len(deep) != 4 or len(shape) != 4 or prod(deep) != prod(shape):
        return None
    steps = [n // max(m, 1) for n, m in zip(deep[2:], shape[2:], strict=True)]
    if prod(steps) < 1 or deep[1] * prod(steps) != shape[1] or deep[0] != shape[0]:
        return None
    pixels = np.arange(prod(deep)).reshape(deep)
    numbers = value_where(last, {image: pixels})
    if numbers is None:
        return None
    places = np.stack(np.unravel_index(numbers[0, :, 0, 0], deep[1:]), 1)
    if len(np.unique(places, axis=0)) < len(places) or (places[:, 1:].max(0) >= steps).any():
        return None
    channel, row, column = places.T
    blocks = pixels.reshape(*deep[:2], shape[2], steps[0], shape[3], steps[1])
    same = np.array_equal(blocks[:, channel, :, row, :, column], np.moveaxis(numbers, 1, 0))
    return (image, steps, places) if same else None

"""How a tensor is quantized, and data movement on integers: QuantizeLinear moves above what only
rearranges elements, DequantizeLinear below.

Both are functions of single elements, per tensor wherever elements go, per channel where the axis
of the channels is still an axis behind the operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.frontend.rewrite import (
    AttrValue,
    GraphPass,
    Rewriter,
    const,
    input_of,
    ints_attr,
    is_op,
    replace_value,
    required,
    scalar,
    sole_consumer,
    static_shape,
)
from compiler.passes import Omittable

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
"""The element types of weights that integer operators multiply."""
CODES = (*BYTES, ir.DataType.INT16, ir.DataType.UINT16)
"""The element types of activations that integer operators multiply by these."""


@dataclass(frozen=True)
class Quantization:
    """real = (integer - zeros) * scales, of one element each or of one per index of `axis`."""

    scales: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.int64]
    dtype: ir.DataType
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one zero point serve the whole tensor."""
        return self.scales.size == 1

    @property
    def scale(self) -> float:
        """The scale of a tensor quantized as a whole."""
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """The zero point of a tensor quantized as a whole."""
        return int(self.zeros[0])

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and largest integer of the element type."""
        return int(self.dtype.min), int(self.dtype.max)

    def quantize(self, real: float) -> int:
        """The integer that stands for `real`, in a tensor quantized as a whole."""
        lo, hi = self.bounds
        steps = float(np.clip(np.float64(real) / self.scale, -1e9, 1e9))
        return int(np.clip(np.rint(steps) + self.zero, lo, hi))

    def same_as(self, other: Quantization) -> bool:
        """Whether the same integers stand for the same numbers in both."""
        return (
            self.dtype == other.dtype
            and np.array_equal(self.scales, other.scales)
            and np.array_equal(self.zeros, other.zeros)
            and (self.per_tensor or self.axis == other.axis)
        )


def quantization_of(node: ir.Node | None) -> Quantization | None:
    """The constant parameters of a QuantizeLinear or DequantizeLinear on float32 numbers.

    None for another node, computed parameters, and blocked quantization.
    """
    if node is None or not is_op(node, "QuantizeLinear", "DequantizeLinear"):
        return None
    integers, real = required(node, 0), node.outputs[0]
    if node.op_type == "QuantizeLinear":
        integers, real = real, integers
    scales, zeros = const(input_of(node, 1)), const(input_of(node, 2))
    if scales is None or (input_of(node, 2) is not None and zeros is None):
        return None
    if real.dtype != ir.DataType.FLOAT or integers.dtype is None or integers.shape is None:
        return None
    if scales.ndim > 1 or node.attributes.get_int("block_size", False):
        return None
    axis = node.attributes.get_int("axis", 1) % max(1, len(integers.shape))
    points = np.zeros(scales.size) if zeros is None else zeros.reshape(-1)
    numbers = scales.reshape(-1).astype(np.float32), points.astype(np.int64)
    return Quantization(*numbers, integers.dtype, axis)


def dequantized(value: ir.Value | None) -> tuple[ir.Value, Quantization] | None:
    """The integers that `value` is dequantized from and how; None where it is not."""
    node = None if value is None else value.producer()
    how = quantization_of(node) if is_op(node, "DequantizeLinear") else None
    return None if node is None or how is None else (required(node, 0), how)


# Operators that only move elements.

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
MOVERS = frozenset(
    {*VIEWS, "Transpose", "Slice", "Gather", "Expand", "MaxPool", "DepthToSpace", "SpaceToDepth",
     "Tile", "Pad", "Resize", "Concat", "Split", "GatherElements", "GatherND", "TensorScatter",
     "ScatterND", "ScatterElements"}
)  # fmt: skip
"""Operators whose results are elements of their first input (of all inputs, for Concat; of what
is written into it too, for scatters).

MaxPool is one of them because quantization and dequantization are monotonic."""


def data_inputs(node: ir.Node) -> tuple[int, ...]:
    """Which inputs of a mover are data."""
    if is_op(node, "Concat"):
        return tuple(range(len(node.inputs)))
    return {"TensorScatter": (0, 1), "ScatterND": (0, 2), "ScatterElements": (0, 2)}.get(
        node.op_type, (0,)
    )


def works_on_integers(node: ir.Node, how: Quantization) -> bool:
    """Whether mover `node` takes integers quantized as `how` and then moves the same elements."""
    if how.dtype not in CODES:
        return False
    if is_op(node, "MaxPool"):  # ONNX has none of 16 bits
        return len(node.outputs) == 1 and how.dtype in BYTES
    if is_op(node, "ScatterND", "ScatterElements"):
        return node.attributes.get_string("reduction", "none") == "none"
    if is_op(node, "Resize"):
        crops = (
            node.attributes.get_string("coordinate_transformation_mode", "") == "tf_crop_and_resize"
        )
        return node.attributes.get_string("mode", "nearest") == "nearest" and not crops
    if is_op(node, "Pad"):
        value = input_of(node, 2)
        return not _pads_a_constant(node) or value is None or scalar(value) == 0
    return True


def _pads_a_constant(node: ir.Node) -> bool:
    """Whether a Pad has a border of one value, not of its input's own elements."""
    return is_op(node, "Pad") and node.attributes.get_string("mode", "constant") == "constant"


def moved_axis(node: ir.Node, axis: int, back: bool = False) -> int | None:
    """Where `axis` of a mover's data is in its results, `back`: where one of its results is in its
    data; None where it is moved in parts."""
    shapes = static_shape(required(node, 0)), static_shape(node.outputs[0])
    if is_op(node, "Transpose"):
        perm = ints_attr(node, "perm") or list(reversed(range(len(shapes[0]))))
        return perm[axis] if back else perm.index(axis)
    if is_op(node, *VIEWS):  # the axis of as many elements, and as many before it
        source, target = shapes[::-1] if back else shapes
        before, prod = math.prod(source[:axis]), math.prod
        same = (i for i, n in enumerate(target) if n == source[axis] and prod(target[:i]) == before)
        return next(same, None)
    if not is_op(node, "Concat", "Split"):
        return None
    return None if node.attributes.get_int("axis", 0) % len(shapes[0]) == axis else axis


def _on_integers(make: Rewriter, data: list[ir.Value], zero: int) -> ir.Node:
    """The mover that `make` stands at, of integers among which `zero` stands for 0."""
    inputs = list(make.anchor.inputs)
    for i, value in zip(data_inputs(make.anchor), data, strict=True):
        inputs[i] = value
    if _pads_a_constant(make.anchor):
        inputs[2:3] = [make.like(np.asarray(zero), data[0])]
    return make.again(inputs)


# Conversions that change places with them.


@dataclass(frozen=True)
class HoistQuantize(GraphPass, Omittable):
    """Move QuantizeLinear above data movement, to the operator that makes the numbers.

        b = Reshape(a)                        q = QuantizeLinear(a, s, z)
        c = Transpose(b)               =>     r = Reshape(q)
        y = QuantizeLinear(c, s, z)           y = Transpose(r)

    A byte is moved instead of a float, and an operator whose result is quantized at once need not
    write floats at all. That holds where every reader wants the same integers: for one that wants
    floats, these are moved anyway. What takes a few elements out of a tensor also has to be its
    only reader, because all of it is quantized then. Parts of a Concat are quantized one by one,
    and a tensor that several operators rearrange is quantized once.
    """

    backwards: ClassVar[bool] = True

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one operator whose results are all quantized alike."""
        readers = _quantizers(node) if is_op(node, *MOVERS) else []
        wanted = quantization_of(readers[0]) if readers and _worth_it(node) else None
        if wanted is None or not works_on_integers(node, wanted):
            return False
        if not wanted.per_tensor:
            axis = moved_axis(node, wanted.axis, back=True)
            wanted = None if axis is None else replace(wanted, axis=axis)
        if wanted is not None:
            _hoist(node, readers, wanted)
        return wanted is not None


def _quantizers(node: ir.Node) -> list[ir.Node]:
    """The readers of the results of `node`, if all of them quantize alike; none otherwise."""
    readers = [use.node for out in node.outputs for use in out.uses()]
    kinds = [
        quantization_of(reader)
        for reader in readers
        if is_op(reader, "QuantizeLinear") and reader.graph is node.graph
    ]
    first = kinds[0] if kinds else None
    if first is None or len(kinds) < len(readers):
        return []
    alike = all(how is not None and how.same_as(first) for how in kinds)
    return readers if alike and not any(out.is_graph_output() for out in node.outputs) else []


def _worth_it(node: ir.Node) -> bool:
    """Whether no more is quantized above `node` than below, or it needs no floats any more."""
    data = (required(node, i) for i in data_inputs(node))
    made = (value for value in node.outputs if value.uses())
    above, below = (sum(math.prod(static_shape(v)) for v in values) for values in (data, made))
    source = required(node, 0)
    return below >= above or (source.producer() is not None and sole_consumer(source) is node)


def _hoist(node: ir.Node, readers: list[ir.Node], wanted: Quantization) -> None:
    make = Rewriter(node, (node, *readers))
    floats = [required(node, i) for i in data_inputs(node)]
    for value in dict.fromkeys(floats):
        _quantize(make, value, readers[0], wanted)
    # Asked when all are there: one QuantizeLinear may have taken another's place.
    data = [_source(v, wanted) or next(_twins(v, wanted)).outputs[0] for v in floats]
    moved = _on_integers(make, data, wanted.zero)
    for old, new in zip(node.outputs, moved.outputs, strict=True):
        for reader in [use.node for use in old.uses()]:
            _replace(reader, new, make)
    make.graph.remove(node, safe=True)


def _replace(reader: ir.Node, new: ir.Value, make: Rewriter) -> None:
    replace_value(reader.outputs[0], new, reader, make.props)
    make.graph.remove(reader, safe=True)


def _quantize(make: Rewriter, value: ir.Value, like: ir.Node, wanted: Quantization) -> None:
    """One QuantizeLinear right behind the operator that makes `value`, or first, in place of others
    like it; none where `value` comes from such integers."""
    if _source(value, wanted) is not None:
        return
    twins = list(_twins(value, wanted))
    attributes: dict[str, AttrValue] = {k: attr.value for k, attr in like.attributes.items()}
    if not wanted.per_tensor:
        attributes["axis"] = wanted.axis
    made = make.node("QuantizeLinear", [value, *like.inputs[1:]], attributes)
    make.graph.remove(made)
    if (producer := value.producer()) is not None:
        make.graph.insert_after(producer, made)
    else:
        make.graph.insert_before(make.graph[0], made)
    for twin in twins:
        _replace(twin, made.outputs[0], make)


def _source(value: ir.Value, wanted: Quantization) -> ir.Value | None:
    source = dequantized(value)
    return source[0] if source is not None and source[1].same_as(wanted) else None


def _twins(value: ir.Value, wanted: Quantization) -> Iterator[ir.Node]:
    for use in value.uses():
        how = quantization_of(use.node) if is_op(use.node, "QuantizeLinear") else None
        inside = use.node.graph is value.graph and not use.node.outputs[0].is_graph_output()
        if how is not None and how.same_as(wanted) and inside:
            yield use.node


# Data movement on integers: DequantizeLinear moves below what only rearranges elements.


@dataclass(frozen=True)
class SinkDequantize(GraphPass, Omittable):
    """Move DequantizeLinear towards the QuantizeLinear that undoes it, and cancel the two.

        a = DequantizeLinear(x, s, z)
        b = Transpose(a)               =>     y = Transpose(x)
        y = QuantizeLinear(b, s, z)

    What is quantized per channel moves as far as its axis remains one.
    Relu behind a DequantizeLinear whose zero point is the smallest integer does nothing and goes.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one operator that reads dequantized data."""
        if is_op(node, *MOVERS):
            return _sink(node)
        source = dequantized(input_of(node, 0)) if is_op(node, "QuantizeLinear", "Relu") else None
        if source is None:
            return False
        value, how = source
        if is_op(node, "Relu") and np.all(how.zeros == how.bounds[0]):
            Rewriter(node).replace(required(node, 0))
            return True
        undone = quantization_of(node)
        if undone is None or not how.same_as(undone):
            return False
        Rewriter(node).replace(value)
        return True


def _sink(node: ir.Node) -> bool:
    given = [dequantized(node.inputs[i]) for i in data_inputs(node)]
    pairs = [pair for pair in given if pair is not None]
    if len(pairs) < len(given) or not pairs or not works_on_integers(node, pairs[0][1]):
        return False
    how, convert = pairs[0][1], required(node, 0).producer()
    if convert is None or not all(p[1].same_as(how) for p in pairs):
        return False
    axis = how.axis if how.per_tensor else moved_axis(node, how.axis)
    if axis is None:
        return False
    make = Rewriter(node)
    inner = _on_integers(make, [value for value, _ in pairs], how.zero)
    parameters = convert.inputs[1:]
    make.replace(
        *(make.op("DequantizeLinear", [out, *parameters], {"axis": axis}) for out in inner.outputs)
    )
    return True

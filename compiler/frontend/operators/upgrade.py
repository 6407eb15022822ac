"""Old forms of standard operators, rewritten to the form that opset 21 gives them.

What was an attribute becomes a constant input (axes of Squeeze, Unsqueeze and every Reduce*,
bounds of Slice and Clip, pads, split sizes, k of TopK), Upsample becomes Resize, Softmax over a
flattened matrix becomes Reshape, Softmax over the last axis, Reshape, and inference-time Dropout,
like a Cast to the same type, becomes nothing. Operators are rewritten one at a time while the
loader walks the graph, so the shapes of their inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.frontend.rewrite import (
    ARCHGEN,
    Rewriter,
    const,
    float_attr,
    input_of,
    int_attr,
    ints_attr,
    required,
    scalar,
    static_shape,
    str_attr,
)

TARGET_OPSET = 21
"""The oldest opset whose forms later passes meet; a newer model keeps its own version."""

OLDEST_OPSET = 7

Upgrade = Callable[[ir.Node, int], None]

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _set_inputs(node: ir.Node, inputs: Sequence[ir.Value | None]) -> None:
    node.resize_inputs(len(inputs))
    for index, value in enumerate(inputs):
        node.replace_input_with(index, value)


def _attribute_to_input(node: ir.Node, name: str, index: int) -> None:
    """Move the integer or list attribute `name` to constant input `index`."""
    attr = node.attributes.pop(name, None)
    if attr is None or input_of(node, index) is not None:
        return
    value = attr.value
    numbers = [value] if isinstance(value, int) else list(value)
    inputs = list(node.inputs) + [None] * (index - len(node.inputs))
    _set_inputs(node, [*inputs[:index], Rewriter(node).axes(numbers), *inputs[index + 1 :]])


def _axes_input(node: ir.Node, _: int) -> None:
    _attribute_to_input(node, "axes", 1)


def _slice(node: ir.Node, _: int) -> None:
    count = len(ints_attr(node, "starts", []) or [])
    if "axes" not in node.attributes:
        node.attributes["axes"] = ir.AttrInt64s("axes", range(count))
    for index, name in enumerate(("starts", "ends", "axes")):
        _attribute_to_input(node, name, index + 1)


def _clip(node: ir.Node, _: int) -> None:
    make = Rewriter(node)
    data = required(node, 0)
    bounds: list[ir.Value | None] = [
        make.like(np.float32(node.attributes.pop(name).as_float()), data)
        if name in node.attributes
        else None
        for name in ("min", "max")
    ]
    _set_inputs(node, [data, *bounds])


def _pad(node: ir.Node, _: int) -> None:
    make = Rewriter(node)
    data = required(node, 0)
    pads = ints_attr(node, "pads", []) or []
    value = float_attr(node, "value", 0.0)
    node.attributes.pop("pads", None)
    node.attributes.pop("value", None)
    _set_inputs(node, [data, make.axes(pads), make.like(np.float32(value), data)])


def _upgrade_split(node: ir.Node, version: int) -> None:
    _attribute_to_input(node, "split", 1)
    if input_of(node, 1) is None and "num_outputs" not in node.attributes and version < 18:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


def _topk(node: ir.Node, _: int) -> None:
    _attribute_to_input(node, "k", 1)


def _softmax(node: ir.Node, _: int) -> None:
    data = required(node, 0)
    shape = static_shape(data)
    axis = int_attr(node, "axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(shape) - 1:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
        return
    make = Rewriter(node)
    flat = make.op("Reshape", [data, make.axes([prod(shape[:axis]), prod(shape[axis:])])])
    rows = make.op(node.op_type, [flat], {"axis": -1})
    make.replace(make.op("Reshape", [rows, make.axes(shape)]))


def _upsample(node: ir.Node, _: int) -> None:
    make = Rewriter(node)
    data = required(node, 0)
    scales = input_of(node, 1)
    if scales is None:
        factors = node.attributes["scales"].as_floats()
        scales = make.constant(np.asarray(factors, dtype=np.float32))
    _replace_by_old_resize(make, data, scales)


def _resize(node: ir.Node, _: int) -> None:
    _replace_by_old_resize(Rewriter(node), required(node, 0), required(node, 1))


def _replace_by_old_resize(make: Rewriter, data: ir.Value, scales: ir.Value) -> None:
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode = str_attr(make.anchor, "mode", "nearest")
    make.replace(make.op("Resize", [data, None, scales], {"mode": mode, **how}))


def _batch_norm(node: ir.Node, _: int) -> None:
    """Statistics that training leaves, which nobody reads in inference, are no results."""
    if not any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        node.resize_outputs(1)
    if not int_attr(node, "spatial", 1):
        raise ValueError("BatchNormalization with spatial=0 is not supported")
    node.attributes.pop("spatial", None)


def _dropout(node: ir.Node, version: int) -> None:
    """Nothing is dropped in inference, nor at a ratio of zero."""
    training, ratio = input_of(node, 2), scalar(input_of(node, 1))
    if training is not None and ratio != 0:
        chosen = const(training)
        if chosen is None:
            raise ValueError("training_mode is known at run time only; make it a constant")
        if chosen.any():
            raise ValueError("training mode drops other values in each run; export for inference")
    make = Rewriter(node)
    data = required(node, 0)
    if len(node.outputs) < 2:
        make.replace(data)
        return
    kind = ir.DataType.BOOL if version >= 10 else data.dtype
    make.replace(data, make.constant(np.ones(static_shape(data)), kind))


def _dft(node: ir.Node, _: int) -> None:
    """Since opset 20 the axis is an input, a scalar, and by default the last one of the signal."""
    axis = int_attr(node, "axis", 1)
    node.attributes.pop("axis", None)
    number = Rewriter(node).constant(np.asarray(axis, np.int64))
    _set_inputs(node, [required(node, 0), input_of(node, 1), number])


def _stft(node: ir.Node, _: int) -> None:
    """ONNX's shape inference does not know the default of `onesided`."""
    node.attributes["onesided"] = ir.AttrInt64("onesided", int_attr(node, "onesided", 1))


def _scatter(node: ir.Node, _: int) -> None:
    node.op_type = "ScatterElements"


def _grid_sample(node: ir.Node, _: int) -> None:
    mode = str_attr(node, "mode", "bilinear")
    renamed = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    node.attributes["mode"] = ir.AttrString("mode", renamed)


def _group_norm(node: ir.Node, _: int) -> None:
    """Before opset 21 scale and bias counted groups; since then they count channels."""
    channels = static_shape(required(node, 0))[1]
    groups = node.attributes["num_groups"].as_int()
    make = Rewriter(node)
    for index in (1, 2):
        value = required(node, index)
        column = make.op("Reshape", [value, make.axes([groups, 1])])
        wide = make.op("Expand", [column, make.axes([groups, channels // groups])])
        node.replace_input_with(index, make.op("Reshape", [wide, make.axes([channels])]))


def _cast(node: ir.Node, _: int) -> None:
    """Cast and CastLike: to a type by name, and gone where the data has it already."""
    data = required(node, 0)
    if node.op_type == "CastLike":
        wanted = required(node, 1).dtype
    else:
        wanted = ir.DataType(node.attributes["to"].as_int())
    make = Rewriter(node)
    if wanted is not None and wanted == data.dtype:
        make.replace(data)
    elif wanted is not None and node.op_type == "CastLike":
        kept = {name: attr.value for name, attr in node.attributes.items()}
        make.replace(make.op("Cast", [data], {**kept, "to": int(wanted)}))


def _bit_cast(node: ir.Node, _: int) -> None:
    """A conversion keeps the bits of whole numbers, signed or not; other bits are the host's."""
    data, wanted = required(node, 0), ir.DataType(node.attributes["to"].as_int())
    if data.dtype is None or data.dtype == wanted:
        Rewriter(node).replace(data)
    elif wanted.is_integer() and (data.dtype.is_integer() or data.dtype == ir.DataType.BOOL):
        node.op_type = "Cast"


def _swish(node: ir.Node, _: int) -> None:
    make = Rewriter(node)
    data, alpha = required(node, 0), float_attr(node, "alpha", 1.0)
    if alpha == 1.0:
        make.replace(make.op("Silu", [data], domain=ARCHGEN))
        return
    gate = make.op("Sigmoid", [make.op("Mul", [data, make.like(np.asarray(alpha), data)])])
    make.replace(make.op("Mul", [data, gate]))


def _range(node: ir.Node, _: int) -> None:
    """Lists of one number are taken for the number, as ONNX Runtime does."""
    make = Rewriter(node)
    for index in range(3):
        value = required(node, index)
        if value.shape is None or value.shape.dims != (1,):
            continue
        number = const(value)
        known = None if number is None else make.like(number.reshape(()), value)
        node.replace_input_with(index, known or make.op("Reshape", [value, make.axes([])]))


def _quantize(node: ir.Node, _: int) -> None:
    """ONNX Runtime had 16-bit ones before ONNX, which now has the same."""
    node.domain = ""


NEWEST = 99
UPGRADES: dict[tuple[str, str], tuple[int, Upgrade]] = {
    ("", "BatchNormalization"): (NEWEST, _batch_norm),
    ("", "BitCast"): (NEWEST, _bit_cast),
    ("", "Cast"): (NEWEST, _cast),
    ("", "CastLike"): (NEWEST, _cast),
    ("", "Clip"): (11, _clip),
    ("", "DFT"): (20, _dft),
    ("", "Hardmax"): (13, _softmax),
    ("", "Dropout"): (NEWEST, _dropout),
    ("", "GridSample"): (20, _grid_sample),
    ("", "GroupNormalization"): (21, _group_norm),
    ("", "LogSoftmax"): (13, _softmax),
    ("", "Pad"): (11, _pad),
    ("", "Range"): (NEWEST, _range),
    ("", "Resize"): (11, _resize),
    ("", "Scatter"): (NEWEST, _scatter),
    ("", "STFT"): (NEWEST, _stft),
    ("", "Slice"): (10, _slice),
    ("", "Softmax"): (13, _softmax),
    ("", "Split"): (NEWEST, _upgrade_split),
    ("", "Squeeze"): (NEWEST, _axes_input),
    ("", "Swish"): (NEWEST, _swish),
    ("", "TopK"): (10, _topk),
    ("", "Unsqueeze"): (NEWEST, _axes_input),
    ("", "Upsample"): (NEWEST, _upsample),
    ("com.microsoft", "DequantizeLinear"): (NEWEST, _quantize),
    ("com.microsoft", "QuantizeLinear"): (NEWEST, _quantize),
    **{("", op_type): (NEWEST, _axes_input) for op_type in REDUCTIONS},
}
"""By domain and operator: the operator set that has the new form, `NEWEST` where every form may
need it, and what brings an older one there."""


def upgrade(node: ir.Node, version: int) -> None:
    """Rewrite `node` from the form of opset `version` to that of `TARGET_OPSET`, in its graph."""
    since, rewrite = UPGRADES.get((node.domain, node.op_type), (0, None))
    if rewrite is not None and version < since:
        rewrite(node, version)

"""Old forms of standard operators, rewritten to the form that opset 21 gives them.

What was an attribute becomes a constant input (axes of Squeeze, Unsqueeze and every Reduce*,
bounds of Slice and Clip, pads, split sizes, k of TopK), Upsample becomes Resize, Softmax over a
flattened matrix becomes Reshape, Softmax over the last axis, Reshape, and inference-time Dropout,
like a Cast to the same type, becomes nothing. Operators are rewritten one at a time while the
loader walks the graph, so the shapes of their inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.frontend.rewrite import (
    MICROSOFT,
    Rewriter,
    const,
    input_of,
    required,
    scalar,
    static_shape,
)

TARGET_OPSET = 21
"""The oldest opset whose forms later passes meet; a newer model keeps its own version."""

OLDEST_OPSET = 7

Upgrade = Callable[[ir.Node, int], None]

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _to_inputs(*names: str) -> Upgrade:
    """Attributes become constant inputs behind the first; reals are of the type of the data."""

    def move(node: ir.Node, _: int) -> None:
        make, data = Rewriter(node), required(node, 0)
        for index, name in enumerate(names, 1):
            attr = node.attributes.pop(name, None)
            if attr is None or input_of(node, index) is not None:
                continue
            if isinstance(attr.value, float):
                value = make.like(np.float32(attr.value), data)
            else:
                value = make.axes(np.atleast_1d(attr.value).tolist())
            node.resize_inputs(max(index + 1, len(node.inputs)))
            node.replace_input_with(index, value)

    return move


def _upgrade_split(node: ir.Node, version: int) -> None:
    _to_inputs("split")(node, version)
    if input_of(node, 1) is None and "num_outputs" not in node.attributes and version < 18:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))


def _softmax(node: ir.Node, _: int) -> None:
    data = required(node, 0)
    shape = static_shape(data)
    axis = node.attributes.get_int("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    if axis == len(shape) - 1:
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
        return
    make = Rewriter(node)
    flat = make.op("Reshape", [data, make.axes([prod(shape[:axis]), prod(shape[axis:])])])
    rows = make.op(node.op_type, [flat], {"axis": -1})
    make.replace(make.op("Reshape", [rows, make.axes(shape)]))


def _resize(node: ir.Node, _: int) -> None:
    """Resize of opset 10, and Upsample, whose scales may be an attribute."""
    make, scales = Rewriter(node), input_of(node, 1)
    if scales is None:
        scales = make.constant(np.asarray(node.attributes["scales"].as_floats(), np.float32))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    how["mode"] = node.attributes.get_string("mode", "nearest")
    make.replace(make.op("Resize", [required(node, 0), None, scales], how))


def _batch_norm(node: ir.Node, _: int) -> None:
    """Statistics that training leaves, which nobody reads in inference, are no results."""
    if not any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        node.resize_outputs(1)
    if not node.attributes.get_int("spatial", 1):
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
    make, data, mask = Rewriter(node), required(node, 0), None
    if len(node.outputs) > 1:
        kind = ir.DataType.BOOL if version >= 10 else data.dtype
        mask = make.constant(np.ones(static_shape(data)), kind)
    make.replace(data, mask)


def _dft(node: ir.Node, _: int) -> None:
    """Since opset 20 the axis is an input, a scalar, and by default the last one of the signal."""
    number = Rewriter(node).constant(np.asarray(node.attributes.get_int("axis", 1), np.int64))
    node.attributes.pop("axis", None)
    node.resize_inputs(3)
    node.replace_input_with(2, number)


def _stft(node: ir.Node, _: int) -> None:
    """ONNX's shape inference does not know the default of `onesided`."""
    node.attributes["onesided"] = ir.AttrInt64("onesided", node.attributes.get_int("onesided", 1))


def _grid_sample(node: ir.Node, _: int) -> None:
    mode = node.attributes.get_string("mode", "bilinear")
    renamed = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    node.attributes["mode"] = ir.AttrString("mode", renamed)


def _group_norm(node: ir.Node, _: int) -> None:
    """Before opset 21 scale and bias counted groups; since then they count channels."""
    channels = static_shape(required(node, 0))[1]
    groups = node.attributes["num_groups"].as_int()
    make = Rewriter(node)
    for index in (1, 2):
        column = make.op("Reshape", [required(node, index), make.axes([groups, 1])])
        wide = make.op("Expand", [column, make.axes([groups, channels // groups])])
        node.replace_input_with(index, make.op("Reshape", [wide, make.axes([channels])]))


def _cast(node: ir.Node, _: int) -> None:
    """Cast and CastLike: to a type by name, and gone where the data has it already."""
    data, like = required(node, 0), node.op_type == "CastLike"
    wanted = required(node, 1).dtype if like else ir.DataType(node.attributes["to"].as_int())
    if wanted is None:
        return
    if wanted == data.dtype:
        Rewriter(node).replace(data)
    elif like:
        node.op_type = "Cast"
        node.attributes["to"] = ir.AttrInt64("to", int(wanted))
        node.resize_inputs(1)


def _bit_cast(node: ir.Node, _: int) -> None:
    """A conversion keeps the bits of whole numbers, signed or not; other bits are the host's."""
    data, wanted = required(node, 0), ir.DataType(node.attributes["to"].as_int())
    if data.dtype is None or data.dtype == wanted:
        Rewriter(node).replace(data)
    elif wanted.is_integer() and (data.dtype.is_integer() or data.dtype == ir.DataType.BOOL):
        node.op_type = "Cast"


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


RENAMED = {
    ("", "Scatter"): ("", "ScatterElements"),
    (MICROSOFT, "DequantizeLinear"): ("", "DequantizeLinear"),  # of 16 bits, before ONNX had these
    (MICROSOFT, "QuantizeLinear"): ("", "QuantizeLinear"),
}
NEWEST = 99
UPGRADES: dict[tuple[str, str], tuple[int, Upgrade]] = {
    ("", "BatchNormalization"): (NEWEST, _batch_norm),
    ("", "BitCast"): (NEWEST, _bit_cast),
    **dict.fromkeys((("", "Cast"), ("", "CastLike")), (NEWEST, _cast)),
    ("", "Clip"): (11, _to_inputs("min", "max")),
    ("", "DFT"): (20, _dft),
    ("", "Dropout"): (NEWEST, _dropout),
    ("", "GridSample"): (20, _grid_sample),
    ("", "GroupNormalization"): (21, _group_norm),
    ("", "Pad"): (11, _to_inputs("pads", "value")),
    ("", "Range"): (NEWEST, _range),
    ("", "Resize"): (11, _resize),
    ("", "STFT"): (NEWEST, _stft),
    ("", "Slice"): (10, _to_inputs("starts", "ends", "axes")),
    **dict.fromkeys((("", "Hardmax"), ("", "LogSoftmax"), ("", "Softmax")), (13, _softmax)),
    ("", "Split"): (NEWEST, _upgrade_split),
    ("", "TopK"): (10, _to_inputs("k")),
    ("", "Upsample"): (NEWEST, _resize),
    **{("", op): (NEWEST, _to_inputs("axes")) for op in ("Squeeze", "Unsqueeze", *REDUCTIONS)},
}
"""By domain and operator: the operator set that has the new form, `NEWEST` where every form may
need it, and what brings an older one there."""


def upgrade(node: ir.Node, version: int) -> None:
    """Rewrite `node` from the form of opset `version` to that of `TARGET_OPSET`, in its graph."""
    name = node.domain, node.op_type
    node.domain, node.op_type = RENAMED.get(name, name)
    since, rewrite = UPGRADES.get((node.domain, node.op_type), (0, None))
    if rewrite is not None and version < since:
        rewrite(node, version)

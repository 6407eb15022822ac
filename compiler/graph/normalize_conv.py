"""Every window operator with all its attributes written out."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from compiler.graph.base import GraphPass
from compiler.graph.open_axes import open_of
from compiler.graph.rewrite import (
    int_attr,
    ints_attr,
    is_op,
    required,
    set_attrs,
    static_shape,
    str_attr,
)


@dataclass(frozen=True)
class NormalizeConv(GraphPass):
    """Explicit kernel_shape, strides, pads, dilations, group; no auto_pad, no output_shape.

        Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (x, w)
     =>
        Conv <kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], dilations=[1, 1], group=1>

    Pools get count_include_pad and ceil_mode too; ceil_mode=1 becomes the end padding that it
    stands for, except where an average would count that padding, or has another one at each length
    of an open axis.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Normalize one Conv, ConvInteger, ConvTranspose or pool of any rank."""
        if is_op(node, "Conv", "ConvInteger"):
            return _normalize(node, _kernel_of(node), {"group": int_attr(node, "group", 1)})
        if is_op(node, "ConvTranspose"):
            return _normalize_transpose(node)
        if is_op(node, "MaxPool", "AveragePool", "LpPool"):
            return _normalize_pool(node)
        return False


def _kernel_of(node: ir.Node) -> list[int]:
    return list(static_shape(required(node, 1))[2:])


def _extents(kernel: list[int], dilations: list[int]) -> list[int]:
    """The window's extent in the input, per dimension."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]


def _split_padding(total: list[int], upper: bool) -> list[int]:
    """`total` padding per dimension as begins, then ends; the odd one last if `upper`."""
    less = [max(0, t) // 2 for t in total]
    more = [max(0, t) - n for t, n in zip(total, less, strict=True)]
    return [*less, *more] if upper else [*more, *less]


def _same_pads(node: ir.Node, windows: list[int], strides: list[int], upper: bool) -> list[int]:
    """Padding that makes the output ceil(input / stride) wide."""
    extents = static_shape(required(node, 0))[2:]
    total = [
        (-(-n // s) - 1) * s + w - n for n, s, w in zip(extents, strides, windows, strict=True)
    ]
    return _split_padding(total, upper)


def _normalize(node: ir.Node, kernel: list[int], more: dict[str, int]) -> bool:
    rank = len(kernel)
    strides = ints_attr(node, "strides", [1] * rank) or []
    dilations = ints_attr(node, "dilations", [1] * rank) or []
    auto_pad = str_attr(node, "auto_pad", "NOTSET")
    if auto_pad.startswith("SAME"):
        windows = _extents(kernel, dilations)
        pads = _same_pads(node, windows, strides, auto_pad == "SAME_UPPER")
    else:
        pads = (ints_attr(node, "pads") if auto_pad == "NOTSET" else None) or [0] * (2 * rank)
    had = node.attributes.pop("auto_pad", None) is not None
    changed = set_attrs(
        node,
        {
            "kernel_shape": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            **more,
        },
    )
    return changed or had


def _normalize_pool(node: ir.Node) -> bool:
    kernel = ints_attr(node, "kernel_shape") or []
    more = {"ceil_mode": int_attr(node, "ceil_mode", 0)}
    if node.op_type == "AveragePool":
        more["count_include_pad"] = int_attr(node, "count_include_pad", 0)
    if node.op_type == "MaxPool":
        more["storage_order"] = int_attr(node, "storage_order", 0)
    changed = _normalize(node, kernel, more)
    if not more["ceil_mode"] or more.get("count_include_pad") or _by_length(node):
        return changed
    strides, pads = ints_attr(node, "strides") or [], ints_attr(node, "pads") or []
    windows = _extents(kernel, ints_attr(node, "dilations") or [])
    extents = static_shape(required(node, 0))[2:]
    outputs = static_shape(node.outputs[0])[2:]
    rank = len(kernel)
    for i in range(rank):
        reach = (outputs[i] - 1) * strides[i] + windows[i] - extents[i] - pads[i]
        pads[rank + i] = max(pads[rank + i], reach)
    set_attrs(node, {"pads": pads, "ceil_mode": 0})
    return True


def _by_length(node: ir.Node) -> bool:
    """Whether the padding of `ceil_mode` is another one at each length. What LpPool becomes counts
    all of it."""
    return node.op_type != "LpPool" and any(axis > 1 for axis in open_of(required(node, 0)))


def _normalize_transpose(node: ir.Node) -> bool:
    kernel = _kernel_of(node)
    rank = len(kernel)
    strides = ints_attr(node, "strides", [1] * rank) or []
    dilations = ints_attr(node, "dilations", [1] * rank) or []
    extra = ints_attr(node, "output_padding", [0] * rank) or []
    auto_pad = str_attr(node, "auto_pad", "NOTSET")
    wanted = ints_attr(node, "output_shape")
    extents = static_shape(required(node, 0))[2:]
    if wanted is not None or auto_pad.startswith("SAME"):
        target = (wanted or [n * s for n, s in zip(extents, strides, strict=True)])[-rank:]
        windows = _extents(kernel, dilations)
        total = [
            strides[i] * (extents[i] - 1) + extra[i] + windows[i] - target[i] for i in range(rank)
        ]
        pads = _split_padding(total, auto_pad == "SAME_UPPER")
        extra = [n + max(0, -t) for n, t in zip(extra, total, strict=True)]
    else:
        pads = (ints_attr(node, "pads") if auto_pad == "NOTSET" else None) or [0] * (2 * rank)
    had = [node.attributes.pop(name, None) for name in ("auto_pad", "output_shape")]
    changed = set_attrs(
        node,
        {
            "kernel_shape": kernel,
            "strides": strides,
            "pads": pads,
            "dilations": dilations,
            "group": int_attr(node, "group", 1),
            "output_padding": extra,
        },
    )
    return changed or any(attr is not None for attr in had)

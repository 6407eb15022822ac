"""Sequences of known length: whoever takes a tensor from one reads what was put in.

    s = SplitToSequence(x, [4, 4], axis=1)     a, b = Split(x, [4, 4], axis=1)
    y = SequenceAt(s, 1)                       y = b

The one idea: a sequence exists while the graph is written only. What splits a tensor into one
becomes a Split whose parts SequenceConstruct bundles, and readers look through the bundle.
"""

from __future__ import annotations

import onnx_ir as ir

from compiler.graph.rewrite import (
    Array,
    Rewriter,
    const,
    input_of,
    int_attr,
    is_op,
    replace_value,
    required,
    scalar,
    static_shape,
)


def resolve_sequence(node: ir.Node) -> bool:
    """Takes `node` out of the graph where its sequence is of known length; whether it did.

    Every value that `node` reads has a static shape. SequenceConstruct is left for readers to look
    through, and is dead behind the last of them.
    """
    if is_op(node, "SplitToSequence"):
        return _bundle_parts(node)
    if is_op(node, "SequenceAt"):
        return _take_element(node)
    return False


def _bundle_parts(node: ir.Node) -> bool:
    """SplitToSequence by constant lengths as a Split and a bundle of its parts."""
    x, split = required(node, 0), input_of(node, 1)
    axis = int_attr(node, "axis", 0)
    extent = static_shape(x)[axis]
    lengths = _lengths(extent, None if split is None else const(split), split is None)
    if lengths is None or node.graph is None:
        return False
    make = Rewriter(node)
    parts: list[ir.Value] = list(
        make.node("Split", [x, make.axes(lengths)], {"axis": axis}, "", len(lengths), None).outputs
    )
    if split is None and not int_attr(node, "keepdims", 1):
        parts = [make.op("Squeeze", [part, make.axes([axis])]) for part in parts]
    bundle = make.op("SequenceConstruct", parts)
    replace_value(node.outputs[0], bundle, node, node.metadata_props)
    node.graph.remove(node, safe=True)
    return True


def _lengths(extent: int, given: Array | None, absent: bool) -> list[int] | None:
    """How long the parts are; None where that is computed."""
    if absent:
        return [1] * extent
    if given is None:
        return None
    if given.ndim:
        return [int(length) for length in given]
    size = int(given)
    return [min(size, extent - start) for start in range(0, extent, size)]


def _take_element(node: ir.Node) -> bool:
    """SequenceAt a constant position of a bundle: the element itself."""
    bundle, position = required(node, 0).producer(), scalar(input_of(node, 1))
    if bundle is None or not is_op(bundle, "SequenceConstruct") or position is None:
        return False
    if node.graph is None or not -len(bundle.inputs) <= position < len(bundle.inputs):
        return False
    element = required(bundle, int(position) % len(bundle.inputs))
    replace_value(node.outputs[0], element, node, node.metadata_props)
    node.graph.remove(node, safe=True)
    return True

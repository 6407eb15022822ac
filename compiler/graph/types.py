"""Types, shapes and small numbers of values, as ONNX writes them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

SMALL = 4096
"""Constants with at most this many elements take part in inference by value (shapes, axes)."""


def type_proto(value: ir.Value | None) -> onnx.TypeProto | None:
    """Type and shape of `value`; None where even the type is unknown."""
    if value is None or value.type is None:
        return None
    proto = onnx.TypeProto()
    ir.serde.serialize_type_into(proto, value.type)
    if value.shape is not None:
        ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def small_constant(value: ir.Value) -> onnx.TensorProto | None:
    """The numbers of a constant of at most `SMALL` elements; None for every other value."""
    tensor = value.const_value
    if tensor is None or value.is_graph_input() or tensor.size > SMALL:
        return None
    return ir.serde.serialize_tensor(tensor)


Dims = tuple[int | None, ...] | None
"""Extents, None where one is not known; None: not even the rank is."""
DECLARED = "archgen.declared"
"""Key, in the metadata of a value, of the extents that the model's file states."""


def declared(value: ir.Value) -> Dims:
    """The extents of `value` that the file states, which may be of other inputs."""
    found: Dims = value.meta.get(DECLARED)
    return found

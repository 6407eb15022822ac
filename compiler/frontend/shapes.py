"""Element types and shapes of one node's outputs, from those of its inputs.

Standard operators ask ONNX's own inference, node by node, with the numbers of small constant
inputs at hand: walking a graph once in topological order then gives what repeated whole-graph
inference gives, in linear time and without serializing weights. Operators of other domains have
their rules here, or are asked about where they would run: in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import onnx
import onnx_ir as ir

from compiler.frontend.reference_types import (
    DECLARED,
    Dims,
    infer_by_runtime,
    small_constant,
    type_proto,
)
from simmodel.arch.element_types import MX_BITS

Rule = Callable[[ir.Node], list[tuple[int, ...]]]
"""The shapes of an operator's results, all of its first input's element type."""


@cache
def schema_of(op_type: str, domain: str, version: int) -> onnx.defs.OpSchema | None:
    """ONNX's definition of an operator at an opset version, None where it has none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _standard(node: ir.Node, schema: onnx.defs.OpSchema, opsets: Mapping[str, int]) -> None:
    given = {value.name: value for value in node.inputs if value is not None and value.name}
    types = {name: proto for name, v in given.items() if (proto := type_proto(v)) is not None}
    data = {name: number for name, v in given.items() if (number := small_constant(v)) is not None}
    imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    inferred = onnx.shape_inference.infer_node_outputs(
        schema, ir.serde.serialize_node(node), types, data, {}, imports, 10
    )
    for value in node.outputs:
        result = inferred.get(value.name or "")
        if result is not None:
            _take(value, result)
    if node.op_type in POOLS:
        _without_windows_of_border(node)


POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))


def _without_windows_of_border(node: ir.Node) -> None:
    """Pools that round up have no window that begins behind the input, in the border at its end:
    ONNX's operators say so, its inference counts them."""
    source, given = node.inputs[0], node.attributes
    if source is None or source.shape is None or not given.get_int("ceil_mode", 0):
        return
    if given.get_string("auto_pad", "").startswith("SAME"):
        return
    sizes = source.shape.dims[2:]
    pads = given.get_ints("pads", [0] * 2 * len(sizes))
    steps = given.get_ints("strides", [1] * len(sizes))
    for value in node.outputs:
        if value.shape is None or len(value.shape) != len(source.shape):
            continue
        made = list(value.shape.dims)
        for axis, (size, step, pad) in enumerate(zip(sizes, steps, pads, strict=False), 2):
            windows = made[axis]
            if isinstance(size, int) and isinstance(windows, int):
                made[axis] = windows - ((windows - 1) * step >= size + pad)
        value.shape = ir.Shape(made)


def _take(value: ir.Value, proto: onnx.TypeProto) -> None:
    value.type = ir.serde.deserialize_type_proto_for_type(proto) or value.type
    shape = ir.serde.deserialize_type_proto_for_shape(proto)
    value.shape = value.shape if shape is None else shape


def _shape(node: ir.Node, index: int) -> tuple[int, ...]:
    value = node.inputs[index]
    if value is None or value.shape is None:
        raise ValueError(f"{node.op_type} {node.name}: shape of input {index} is unknown")
    return value.shape.numpy()


def _grouped_attention(node: ir.Node) -> list[tuple[int, ...]]:
    """GroupQueryAttention: its result, and caches as long as what they hold, or as their room."""
    batch, tokens, hidden = _shape(node, 0)
    heads, groups = (node.attributes[name].as_int() for name in ("num_heads", "kv_num_heads"))
    if node.inputs[1] is None:  # queries, keys and values lie side by side
        hidden = hidden * heads // (heads + 2 * groups)
    past = 0 if node.inputs[3] is None else _shape(node, 3)[2]
    total = small_constant(node.inputs[6]) if node.inputs[6] is not None else None
    if total is not None:
        room = max(past, int(onnx.numpy_helper.to_array(total).max()))
    else:
        stated: list[Dims] = [value.meta.get(DECLARED) for value in node.outputs[1:3]]
        shown = (dims[2] for dims in stated if dims is not None and len(dims) == 4)
        room = next(filter(None, shown), past or tokens)
    cache = (batch, groups, room, hidden // heads)
    return [(batch, tokens, hidden), cache, cache]


def _as_first(node: ir.Node) -> list[tuple[int, ...]]:
    return [_shape(node, 0)]


STANDARD_RULES: dict[str, Rule] = dict.fromkeys(
    ("GroupNormalization", "MeanVarianceNormalization", "SimplifiedLayerNormalization"), _as_first
)
"""Standard operators without a rule in ONNX, and those that ONNX Runtime alone defines."""
RULES: dict[str, dict[str, Rule]] = {
    "": STANDARD_RULES,
    "archgen": dict.fromkeys(("Silu", *MX_BITS), _as_first),
    "com.microsoft": {"GroupQueryAttention": _grouped_attention},
}
"""Rules by domain and operator, of those whose shapes nobody else says."""


def infer_node(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set type and shape of the outputs of `node` as far as its inputs determine them.

    Raises ValueError where the inputs contradict the operator's definition.
    """
    rule = RULES.get(node.domain, {}).get(node.op_type)
    if rule is not None:
        given = node.inputs[0]
        if given is None or given.dtype is None:
            raise ValueError(f"{node.op_type} {node.name}: type of input 0 is unknown")
        for value, shape in zip(node.outputs, rule(node), strict=False):
            value.dtype, value.shape = given.dtype, ir.Shape(shape)
        return
    domain = "" if node.domain == "ai.onnx" else node.domain
    schema = schema_of(node.op_type, domain, opsets.get(domain, 1))
    if schema is not None:
        try:
            _standard(node, schema, opsets)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            raise ValueError(str(error)) from error
        _check_channels(node)
    named = (value for value in node.outputs if value.name)
    told = all(v.dtype is not None and v.shape is not None and v.shape.is_static() for v in named)
    if schema is None or (domain and not told):
        infer_by_runtime(node, opsets)


def _check_channels(node: ir.Node) -> None:
    """Raise ValueError where weights do not take the channels that a convolution is given, which
    ONNX's inference does not ask."""
    if node.domain or node.op_type not in ("Conv", "ConvTranspose"):
        return
    known = [value.shape for value in node.inputs[:2] if value is not None and value.shape]
    if len(known) < 2 or not all(shape.is_static() for shape in known):
        return
    data, weights = (shape.numpy() for shape in known)
    groups = node.attributes.get_int("group", 1)
    taken = weights[0] if node.op_type == "ConvTranspose" else weights[1] * groups
    if data[1] != taken or groups < 1 or weights[0] % groups:
        raise ValueError(
            f"weights {list(weights)} in {groups} groups take {taken} channels; "
            f"the input {list(data)} has {data[1]}"
        )

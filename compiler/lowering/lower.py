"""Lowering: every node of the prepared graph becomes nests, by the table of its operator.

A node without a nest becomes a host node whose payload is a small model of its own, so executing
the program needs nothing else. `TABLE` joins the tables of the operator families.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from compiler.errors import UnsupportedModel, at_node, on, operator_name
from compiler.frontend.host_tail import SIZED
from compiler.frontend.operators.definitions import REASON
from compiler.frontend.operators.functions import expression_in
from compiler.frontend.rewrite import origin_of
from compiler.lowering import contraction, elementwise, microscaling, movement, reduce, resize, rows
from compiler.lowering.elementwise import ROUNDED
from compiler.lowering.expression import lower_expression
from compiler.lowering.host import operations, payload_of
from compiler.lowering.node import (
    Lowering,
    LoweringLimits,
    Node,
    NoNest,
    nest_shape,
    numbers_of,
    numpy_type,
    port_type,
    uncertain,
)
from compiler.tensor_ir.build import NestGraphBuilder
from compiler.tensor_ir.nest import HostNode, NestGraph
from simmodel.arch.base import Registry
from simmodel.arch.dtype import NAMES
from simmodel.arch.element_types import WIDER
from simmodel.arch.lazy_array import cast

TABLE: dict[str, Lowering] = Registry(
    "operator",
    elementwise.TABLE
    | contraction.TABLE
    | reduce.TABLE
    | movement.TABLE
    | resize.TABLE
    | microscaling.TABLE,
)
"""Operator type -> its lowering to nests."""


@dataclass(frozen=True)
class Lower(LoweringLimits):
    """Nests of every node of a graph; what has none becomes a call to the host."""

    def apply(self, model: ir.Model, real: str) -> NestGraph:
        return lower(model, real, self)


def lower(model: ir.Model, real: str, limits: LoweringLimits | None = None) -> NestGraph:
    """Nests of every node of `model`, which the graph passes have prepared; `real` is the element
    type that floating-point values have in memory.

    Raises UnsupportedModel for operators that have neither a nest nor a meaning outside this
    compiler, and for values of types that no machine stores.
    """
    graph, limits = model.graph, limits or LoweringLimits()
    build = NestGraphBuilder(str(graph.name or "model"), real)
    try:
        for value in graph.inputs:
            build.create(str(value.name), nest_shape(value), _memory_type(value, build))
        for node in graph:
            with on(at_node(node.name, operator_name(node.op_type, node.domain))):
                _lower_node(node, build, model, limits)
        for value in graph.outputs:
            data = numbers_of(value)
            if str(value.name) not in build.tensors and data is not None:
                numbers = cast(data, numpy_type(value))
                build.constant(str(value.name), numbers, uncertain=uncertain(value))
        ports = {str(v.name): port_type(v) for v in (*graph.inputs, *graph.outputs)}
    except NoNest as why:
        where = at_node(build.origin, build.kind) if build.origin else build.name
        raise UnsupportedModel(f"{where}: {why}") from why
    inputs, outputs = (
        tuple(str(v.name) for v in values) for values in (graph.inputs, graph.outputs)
    )
    return replace(build.graph(inputs, outputs, ports), sized=model.meta.get(SIZED, {}))


def _lowering(node: ir.Node) -> Lowering | None:
    if expression_in(node) is not None:
        return lower_expression
    return TABLE.get(node.op_type) if node.domain in ("", "archgen") else None


def _memory_type(value: ir.Value, build: NestGraphBuilder) -> str:
    """Element type in memory; double precision that only the host touches is kept."""
    nodes = [value.producer(), *(use.node for use in value.uses())]
    dtype = numpy_type(value)
    touched = any(node is not None and _lowering(node) is not None for node in nodes)
    return build.stored(dtype) if touched or NAMES[dtype] != "fp64" else "fp64"


def _lower_node(
    node: ir.Node, build: NestGraphBuilder, model: ir.Model, limits: LoweringLimits
) -> None:
    build.origin = origin_of(node)
    build.kind = node.op_type
    build.composite = node.metadata_props.get("composite")
    known = _lowering(node)
    before = len(build.steps), len(build.tensors)
    try:
        if known is None:
            declined = node.metadata_props.get(REASON)
            raise NoNest(declined or f"no nest for {operator_name(node.op_type, node.domain)}")
        _refuse_rounding(node)
        known(Node(node, build, limits))
    except NoNest as why:
        del build.steps[before[0] :]
        for name in list(build.tensors)[before[1] :]:
            if build.tensors[name].data is None:
                del build.tensors[name]
                build.buffers.pop(name, None)
        host = host_node(node, build, model, str(why), limits)
        if host.outputs:
            build.steps.append(host)


def _refuse_rounding(node: ir.Node) -> None:
    """Refuse results that must be rounded to a type that memory only stores: no engine rounds to
    it."""
    given = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    for value in node.outputs:
        kind = port_type(value) if value.name and value.dtype != given else ""
        rounds = node.op_type in ("Cast", "QuantizeLinear") and kind in ROUNDED
        if kind in WIDER and not rounds:
            raise NoNest(f"no engine rounds to {kind}")


def host_node(
    node: ir.Node, build: NestGraphBuilder, model: ir.Model, reason: str, limits: LoweringLimits
) -> HostNode:
    """`node` as a host call, with its constants in the payload, without its empty results."""
    named = [output for output in node.outputs if output.name]
    for output in named:
        if str(output.name) not in build.tensors:
            build.create(str(output.name), nest_shape(output), _memory_type(output, build))
    results = [output for output in named if build.tensors[str(output.name)].elements]
    payload, inputs = payload_of([node], model, results)
    known = Node(node, build, limits)
    put = rows.put_of(known)
    return HostNode(
        inputs=inputs,
        outputs=tuple(str(o.name) for o in results),
        payload=payload,
        origin=build.origin,
        kind=operator_name(node.op_type, node.domain),
        reason=reason,
        operations=operations(node),
        pick=rows.pick_of(known) or put,
        otherwise=rows.gather_by_comparison(known) or rows.scatter_by_comparison(known, put),
    )

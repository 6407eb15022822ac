"""Host calls: from nests back to the model's nodes.

A nest may be a part of a node (one phase of a transposed convolution) or stand for several (a
quantized sum). The host runs whole nodes, so nests that share tensors without a name in the model
go to the host together; the payload is the nodes between their inputs and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import NodeProto, helper, numpy_helper

from compiler.errors import operator_name
from compiler.frontend.control_flow import reads
from compiler.frontend.host_tail import TAIL, written_tail
from compiler.frontend.microscaling import microscaling
from compiler.frontend.operators.body import Body, PassBody, Tensor
from compiler.frontend.operators.definitions import Table, build, defines
from compiler.frontend.operators.functions import expression_in
from compiler.frontend.quantization.integer_operators import WINDOW
from compiler.frontend.reference_types import single_node_model
from compiler.frontend.rewrite import ARCHGEN, Array, has_body, replace_outputs
from compiler.lowering.expression import written_expression
from compiler.lowering.node import nest_shape
from compiler.tensor_ir.nest import HostNode, Nest, NestGraph, at
from compiler.tensor_ir.registers import payload_of_any
from compiler.tensor_ir.rewrite import reads_of, writes_of
from simmodel.arch.dtype import NUMPY, limits
from simmodel.arch.element_types import MX_BITS

# This compiler's own operators said in ONNX's, for a host that knows only those.

OWN: Table = {}


@defines(OWN, "Silu", domain=ARCHGEN)
def silu(b: Body, x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * b.one("Sigmoid", x)


@defines(OWN, "QConv", "QConvTranspose", "QMatMul", domain=ARCHGEN)
def integer_product(
    b: Body, x: Tensor, w: Tensor, bias: Tensor | None = None, *, y_type: str = "int8", **said: Any
) -> Tensor:
    """A product of integers as one of real numbers between conversions."""
    kind = b.node.op_type.removeprefix("Q")
    columns = {"Conv": 0, "ConvTranspose": 1}.get(kind, len(w.shape) - 1)
    sides = ("a", "b") if kind == "MatMul" else ("x", "w")
    scales = [np.array(said.get(f"{side}_scale", 1.0), np.float32, ndmin=1) for side in sides]
    zeros = [np.array(said.get(f"{side}_zero", 0), ndmin=1) for side in sides]
    operands = [
        _dequantized(b, *each) for each in zip((x, w), scales, zeros, (1, columns), strict=True)
    ]
    if bias is not None:  # an int32 one counts in units of the products
        unit = np.broadcast_to(scales[0] * scales[1], bias.shape[-1:])
        operands.append(b.cast(bias, np.float32) * np.ascontiguousarray(unit))
    if kind == "MatMul":
        made = reduce(add, operands[2:], operands[0] @ operands[1])
    else:
        made = b.one(kind, *operands, **{name: said[name] for name in WINDOW if name in said})
    if y_type == "float32":
        return made
    if y_type == "int32":
        return b.cast(b.one("Round", made), np.int32)
    zero, step = said.get("y_zero", 0), np.float32(said["y_scale"])
    ends = zip(("clip_lo", "clip_hi"), limits(y_type), strict=True)
    bounds = tuple(said.get(name, end) for name, end in ends)
    if bounds != limits(y_type):  # as real numbers: of 16-bit integers there is no kernel
        reals = (b.constant(step * np.float32(bound - zero)) for bound in bounds)
        made = b.one("Clip", made, *reals)
    return b.one("QuantizeLinear", made, b.constant(step), b.constant(zero, NUMPY[y_type]))


def _dequantized(b: Body, x: Tensor, scale: Array, zero: Array, axis: int) -> Tensor:
    """Real numbers of an operand, whose zero points have its own element type. Weights of groups
    that share an axis share what stands on it."""
    pair = np.broadcast_arrays(*(numbers[: x.shape[axis]] for numbers in (scale, zero)))
    shape = () if pair[0].size == 1 else (-1,)
    factor, point = (numbers.reshape(shape) for numbers in pair)
    return b.one("DequantizeLinear", x, factor, b.constant(point, x.dtype), axis=axis)


def standard(
    node: ir.Node, opsets: Mapping[str, int]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """`node` as nodes of ONNX's own operators, and the constants that these read."""
    definition = expression_in(node)
    expression = definition is not None and not onnx.defs.has(node.op_type, node.domain)
    if not expression and node.domain != ARCHGEN:
        return [ir.to_proto(node)], []
    if node.op_type == TAIL:
        return written_tail(node)
    if node.op_type in MX_BITS:
        return [ir.to_proto(node)], []
    graph = ir.from_proto(single_node_model(node, opsets)).graph
    given, alone = {*graph.initializers}, graph[0]
    alone.name = f"{alone.outputs[0].name}.host"
    body = PassBody(alone, grouped=False)
    made: list[Tensor | None]
    if expression and definition is not None:
        made = [written_expression(body, node, definition)]
    else:
        made = build(alone, OWN[operator_name(node.op_type, node.domain)], body)
    replace_outputs(alone, [each.ir for each in made if each is not None])
    new = (value for name, value in graph.initializers.items() if name not in given)
    return [ir.to_proto(each) for each in graph], [
        ir.to_proto(value.const_value) for value in new if value.const_value is not None
    ]


# Payloads: nodes of a model cut out as a small model of their own, for the host to run.


def payload_of(
    nodes: Sequence[ir.Node], model: ir.Model, outputs: Sequence[ir.Value]
) -> tuple[bytes, tuple[str, ...]]:
    """A serialized model of `nodes`, which are in an order in which they can run, with these
    `outputs`, and the names of its inputs in order."""
    made = {str(o.name) for node in nodes for o in node.outputs}
    inputs: dict[str, ir.Value] = {}
    constants: dict[str, ir.Value] = {}
    for value in (v for node in nodes for v in reads(node) if str(v.name) not in made):
        computed = value.const_value is None and 0 not in nest_shape(value)
        target = inputs if computed else constants
        target[str(value.name)] = value
    initializers = [_initializer(value) for value in constants.values()]
    protos: list[onnx.NodeProto] = []
    versions = {domain: v for domain, v in model.opset_imports.items() if domain != ARCHGEN}
    for node in nodes:
        found, more = standard(node, versions)
        protos += found
        initializers += more
    if len(nodes) == 1 and has_body(nodes[0]):  # a body keeps the opset of the file
        versions[""] = nodes[0].version or versions[""]
    ports, read = _ports(inputs.values(), given=True)
    results, written = _ports(outputs, given=False)
    own = {each.op_type for each in protos if each.domain == ARCHGEN}
    versions |= dict.fromkeys([ARCHGEN] if own else [], 1)
    proto = helper.make_model(
        helper.make_graph([*read, *protos, *written], "payload", ports, results),
        functions=[microscaling(kind, versions[""]) for kind in sorted(own)],
        opset_imports=[helper.make_opsetid(*each) for each in versions.items()], ir_version=10,
    )  # fmt: skip
    proto.graph.initializer.extend(initializers)  # which may be large: `make_model` copies them
    return proto.SerializeToString(), tuple(inputs)


def _ports(
    values: Iterable[ir.Value], *, given: bool
) -> tuple[list[onnx.ValueInfoProto], list[NodeProto]]:
    """Values that cross the border of a payload, as the host sees them, and conversions of those
    of which numpy has no type: to FLOAT, which represents all their numbers."""
    ports, casts = [], []
    for value in values:
        inner, kind = str(value.name), value.dtype or ir.DataType.UNDEFINED
        foreign = value.dtype is not None and kind.numpy().isbuiltin != 1
        outer, seen = (f"{inner}.float", ir.DataType.FLOAT) if foreign else (inner, kind)
        ports.append(helper.make_tensor_value_info(outer, seen.value, nest_shape(value)))
        if foreign:
            source, target = (outer, inner) if given else (inner, outer)
            to = kind.value if given else ir.DataType.FLOAT.value
            casts.append(helper.make_node("Cast", [source], [target], to=to))
    return ports, casts


def _initializer(value: ir.Value) -> onnx.TensorProto:
    """Constant data of `value`; an empty tensor is constant whoever computes it."""
    data, kind = value.const_value, value.dtype
    assert kind is not None
    array = np.zeros(nest_shape(value), kind.numpy()) if data is None else data.numpy()
    return numpy_helper.from_array(array, str(value.name))


def operations(node: ir.Node) -> int:
    """Arithmetic operations of a node: two per multiply-accumulate, else one per element."""
    made = sum(math.prod(nest_shape(output)) for output in node.outputs if output.name)
    values = [value for value in node.inputs if value is not None and value.shape is not None]
    shapes, kind = [nest_shape(value) for value in values], node.op_type.removeprefix("Q")
    if kind in ("LSTM", "GRU", "RNN"):
        x, *weights = shapes[:3]
        return 2 * math.prod(x[:2]) * sum(map(math.prod, weights))
    if kind in ("Conv", "ConvInteger", "ConvTranspose"):
        pixels = math.prod(shapes[0]) if kind == "ConvTranspose" else made
        return 2 * pixels * math.prod(shapes[1][1:])
    if kind in ("MatMul", "MatMulInteger", "Gemm"):
        transposed = kind == "Gemm" and node.attributes.get_int("transA", False)
        return 2 * made * shapes[0][0 if transposed else -1]
    pairs = zip(values, shapes, strict=True)
    return max([made, *(math.prod(shape) for value, shape in pairs if value.const_value is None)])


class Fallback:
    """Makes host nodes for the nests of one graph, which was lowered from `model`."""

    def __init__(self, model: ir.Model, graph: NestGraph) -> None:
        self.model = model
        self.graph = graph
        self.values = {str(o.name): o for node in model.graph for o in node.outputs if o.name}
        self.values |= {str(value.name): value for value in model.graph.inputs}
        self.order = {node: position for position, node in enumerate(model.graph)}
        self.named: dict[str, list[str]] = {}
        """Buffer -> the model's values in it, in order of computation."""
        for name, tensor in graph.tensors.items():
            if name in self.values and tensor.data is None:
                self.named.setdefault(tensor.storage.buffer, []).append(name)

    def host_node(self, nest: Nest) -> tuple[HostNode, tuple[Nest, ...]] | None:
        """A host node and the nests that it replaces, including `nest`; None: there is none."""
        nests = self._connected_nests(nest)
        outputs, buffer_of = self._outputs(nests), self.graph.buffer_of
        read = {buffer_of(access.tensor) for n in nests for access in n.reads}
        outside = read - {buffer_of(n.tensor) for n in nests}
        stop = {name for buffer in outside for name in self.named.get(buffer, ())}
        host = self._call(outputs, stop, (nest.origin, nest.kind, "")) if outputs else None
        if host is not None and len(nests) == 1 and self._each_by_itself(nest, host):
            host = replace(host, of_boxes=payload_of_any(host.payload))
        return None if host is None else (host, nests)

    def _each_by_itself(self, nest: Nest, host: HostNode) -> bool:
        """Whether each element of the result is made of the one at its place in the only input."""
        place = tuple(map(at, range(nest.rank)))
        given = [a for a in nest.reads if self.graph.tensors[a.tensor].elements != 1]
        ports = nest.elementwise and len(given) == len(host.inputs) == len(host.outputs) == 1
        return ports and given[0].index == place and given[0].tensor == host.inputs[0]

    def _call(
        self, outputs: tuple[str, ...], stop: Iterable[str], said: tuple[str, str, str]
    ) -> HostNode | None:
        """A call of the nodes that compute `outputs` from values among `stop`, with origin, kind
        and reason; None if they need others."""
        found: dict[ir.Node, None] = {}
        given = set(stop)
        wanted = list(outputs)
        while wanted:
            value = self.values.get(wanted.pop())
            node = None if value is None else value.producer()
            if node is None:
                return None
            if node in found:
                continue
            found[node] = None
            free = (v for v in reads(node) if v.const_value is None)
            wanted += [str(v.name) for v in free if str(v.name) not in given]
        nodes = sorted(found, key=self.order.__getitem__)
        data, inputs = payload_of(nodes, self.model, [self.values[name] for name in outputs])
        return HostNode(inputs, outputs, data, *said, sum(map(operations, nodes)))

    def merged(
        self, nodes: tuple[HostNode, ...], outputs: tuple[str, ...], given: tuple[str, ...]
    ) -> HostNode | None:
        """`nodes` as one call that reads what is `given`; None: there is none."""
        origin, kind, reason = (
            separator.join(dict.fromkeys(getattr(node, field) for node in nodes))
            for field, separator in (("origin", "+"), ("kind", "+"), ("reason", "; "))
        )
        return self._call(outputs, given, (origin, kind, reason))

    def _connected_nests(self, nest: Nest) -> tuple[Nest, ...]:
        """`nest` and all nests that share unnamed tensors with it, in order."""
        nests = [step for step in self.graph.steps if isinstance(step, Nest)]
        members = {nest.tensor}
        while True:
            inside = [step for step in nests if step.tensor in members]
            shared = {buffer for step in inside for buffer in self._unnamed_reads(step)}
            shared |= set(map(self.graph.buffer_of, members - self.values.keys()))
            more = {
                step.tensor
                for step in nests
                if self.graph.buffer_of(step.tensor) in shared
                or not shared.isdisjoint(self._unnamed_reads(step))
            }
            if more <= members:
                return tuple(inside)
            members |= more

    def _unnamed_reads(self, step: Nest) -> Iterator[str]:
        """Buffers that `step` reads and that hold no value of the model."""
        for name in reads_of(step):
            buffer = self.graph.buffer_of(name)
            if self.graph.tensors[name].data is None and not self.named.get(buffer):
                yield buffer

    def _outputs(self, nests: tuple[Nest, ...]) -> tuple[str, ...]:
        """The model's values of `nests` that others read."""
        inside = {nest.tensor for nest in nests}
        others = [step for step in self.graph.steps if not inside.issuperset(writes_of(step))]
        names = [*self.graph.outputs, *(name for step in others for name in reads_of(step))]
        seen = set(map(self.graph.buffer_of, names))
        found, tensors = dict[str, None](), self.graph.tensors
        for nest in nests:
            buffer = self.graph.buffer_of(nest.tensor)
            own = [nest.tensor] if nest.tensor in self.values else self.named.get(buffer, [])
            size = self.graph.buffers[buffer]
            covering = [n for n in own if n == nest.tensor or tensors[n].elements == size]
            if buffer in seen and covering:
                found[covering[0]] = None
        return tuple(found)

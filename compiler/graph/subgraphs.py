"""Types and shapes of what an If, a Loop or a Scan makes, through its body.

The one idea: a body is walked like a graph, with the shapes that it is given from outside. A Loop
hands its states to its next round: where one round leaves their shapes as they are, every round
does; where it does not, the rounds are counted, or what they change is not known. What stays open
is taken from the file, which may declare it, and otherwise the reason is kept for the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import onnx_ir as ir

from compiler.graph.fold import folded
from compiler.graph.infer import infer_node
from compiler.graph.rewrite import const, input_of, int_attr, ints_attr, is_op
from compiler.graph.types import DECLARED, Dims, declared

Opsets = Mapping[str, int]

_WHY = "archgen.why_open"
_ROUNDS = 64
"""Rounds of a Loop that are walked one by one where each changes the shapes of the next."""


def forget_shapes(node: ir.Node) -> None:
    """Drop the shapes of what `node` makes, which may be of other input extents; those of a node
    with a body, and of results, are remembered as declared."""
    for value in node.outputs:
        if has_body(node) or value.is_graph_output():
            value.meta[DECLARED] = _dims(value)
        value.shape = None


def has_body(node: ir.Node) -> bool:
    """Whether `node` has a graph of its own among its attributes."""
    return any(True for _ in bodies(node))


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs among the attributes of `node`."""
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        elif attr.type == ir.AttributeType.GRAPHS:
            yield from attr.as_graphs()


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Values of its graph that `node` reads, also from inside its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from _captured(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                yield from _captured(graph)


def _captured(graph: ir.Graph) -> Iterator[ir.Value]:
    """Values that `graph` takes from around it."""
    own = {*graph.inputs, *graph.initializers.values()}
    own |= {output for node in graph for output in node.outputs}
    read = [value for node in graph for value in reads(node)]
    yield from (value for value in (*read, *graph.outputs) if value not in own)


def why_open(value: ir.Value) -> str:
    """Why the shape of a result of `infer_body` is not known; empty where that was not told."""
    return str(value.meta.get(_WHY, ""))


def infer_body(node: ir.Node, opsets: Opsets) -> bool:
    """Set types and shapes of the outputs of `node` as far as its bodies tell; whether it is one
    of the operators that are known here. The bodies stay as they were.

    `opsets` are those of the bodies. Raises ValueError where a body contradicts an operator.
    """
    rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        return False
    with _as_before(*bodies(node)):
        rule(node, opsets)
    return True


@contextmanager
def _as_before(*graphs: ir.Graph) -> Iterator[None]:
    """What is found of the values of `graphs` is gone afterwards."""
    values = [value for graph in graphs for value in _values(graph)]
    kept = [(value, value.shape, value.const_value) for value in values]
    try:
        yield
    finally:
        for value, shape, constant in kept:
            value.shape, value.const_value = shape, constant


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _walk(graph: ir.Graph, opsets: Opsets) -> None:
    """Shapes and constants of all values of a body, from those of its inputs."""
    for node in graph:
        for value in node.outputs:
            value.shape = value.const_value = None
        if is_op(node, "Constant"):
            _take_constant(node)
            continue
        try:
            if not infer_body(node, opsets):
                infer_node(node, opsets)
        except ValueError:
            if all(value is None or _is_known(value) for value in node.inputs):
                raise  # of operands that are known
        for value, known in zip(node.outputs, folded(node, opsets) or (), strict=False):
            value.const_value = ir.tensor(known.values)
            value.shape = ir.Shape(known.values.shape)


def _take_constant(node: ir.Node) -> None:
    attr = node.attributes.get("value")
    if attr is None:
        name, attr = next(iter(node.attributes.items()))
        kind = ir.DataType.FLOAT if "float" in name else ir.DataType.INT64
        tensor: ir.TensorProtocol = ir.tensor(attr.value, dtype=kind)
    else:
        tensor = attr.as_tensor()
    value = node.outputs[0]
    value.const_value, value.dtype = tensor, tensor.dtype
    value.shape = ir.Shape(tensor.shape.numpy())


def _is_known(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()


def _dims(value: ir.Value | None) -> Dims:
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape.dims)


def _common(one: Dims, other: Dims) -> Dims:
    """What two shapes have in common."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _filled(found: Dims, declared: Dims) -> Dims:
    """`found`, and where it is open what is declared."""
    if found is None or declared is None or len(found) != len(declared):
        return declared if found is None else found
    return tuple(b if a is None else a for a, b in zip(found, declared, strict=True))


def _give(value: ir.Value, dims: Dims) -> None:
    value.shape = None if dims is None else ir.Shape(dims)


def _type(values: Sequence[ir.Value], outer: Sequence[ir.Value | None]) -> None:
    """Let inputs of a body of which the file says no type have that of what they are given."""
    for value, given in zip(values, outer, strict=False):
        if value.type is None and given is not None:
            value.type = given.type


def _take(value: ir.Value, made: ir.Value, dims: Dims, why: str) -> None:
    """Let a result of the node be of the type of `made`, of the body, and of the shape `dims`."""
    value.type = made.type or value.type
    _give(value, _filled(dims, declared(value)))
    if not _is_known(value):
        value.meta[_WHY] = why


# If.


def _if(node: ir.Node, opsets: Opsets) -> None:
    results = []
    for name in ("then_branch", "else_branch"):
        branch = node.attributes[name].as_graph()
        _walk(branch, opsets)
        results.append(branch.outputs)
    for value, one, other in zip(node.outputs, *results, strict=True):
        _take(value, one, _common(_dims(one), _dims(other)), "its branches differ in it")


def branches_agree(node: ir.Node, opsets: Opsets) -> bool:
    """Whether both branches of an If make tensors of the same known shapes and types."""
    both = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    with _as_before(*both):
        for branch in both:
            _walk(branch, opsets)
        return all(
            _is_known(one) and _dims(one) == _dims(other) and one.type == other.type
            for one, other in zip(*(branch.outputs for branch in both), strict=True)
        )


# Loop.


def _loop(node: ir.Node, opsets: Opsets) -> None:
    body = node.attributes["body"].as_graph()
    for value in body.inputs[:2]:
        value.shape = value.shape or ir.Shape(())
    for value, kind in zip(body.inputs, (ir.DataType.INT64, ir.DataType.BOOL), strict=False):
        value.dtype = value.dtype or kind
    _type(body.inputs[2:], node.inputs[2:])
    given = [_dims(value) for value in node.inputs[2:]]
    rounds = rounds_of(node, body)
    states, elements = _settled(body, given, rounds, opsets)
    made = body.outputs[1:]
    count = len(states)
    changed = "its rounds change it, and how many there are depends on data"
    for value, inner, dims in zip(node.outputs, made, states, strict=False):
        _take(value, inner, dims, changed if dims is None or None in dims else "")
    often = "how many rounds there are depends on data"
    for value, inner, dims in zip(node.outputs[count:], made[count:], elements, strict=False):
        _take(value, inner, None if dims is None else (rounds, *dims), often)


def _settled(
    body: ir.Graph, given: Sequence[Dims], rounds: int | None, opsets: Opsets
) -> tuple[list[Dims], list[Dims]]:
    """Shapes of the states after all rounds, and of what one round adds to the other results."""
    states = list(given)
    declared = _declared(body, given)
    counted = rounds if rounds is not None and rounds <= _ROUNDS else None
    turn = 0
    while True:
        for value, dims in zip(body.inputs[2:], states, strict=True):
            _give(value, dims)
        _walk(body, opsets)
        found = [_filled(_dims(v), d) for v, d in zip(body.outputs[1:], declared, strict=True)]
        made, elements = found[: len(states)], found[len(states) :]
        if made == states or turn == counted:
            return states, elements
        turn += 1
        if counted is None:
            made = [_common(before, after) for before, after in zip(states, made, strict=True)]
            if made == states:
                return states, elements
        states = made


def _declared(body: ir.Graph, given: Sequence[Dims]) -> list[Dims]:
    """What the file says of the results of a round; nothing where it says of the states what
    they are not given: then it is about other extents."""
    stated = [_dims(value) for value in body.inputs[2:]]
    fits = all(said is None or _filled(said, dims) == dims
               for said, dims in zip(stated, given, strict=True))  # fmt: skip
    return [_dims(value) if fits else None for value in body.outputs[1:]]


def rounds_of(node: ir.Node, body: ir.Graph) -> int | None:
    """How many rounds a Loop has, where that does not depend on data."""
    limit, asked = const(input_of(node, 0)), input_of(node, 1)
    begins = const(asked)
    if begins is not None and not begins.any():
        return 0
    if limit is None or (asked is not None and begins is None) or not _goes_on(body):
        return None
    return max(int(limit.reshape(-1)[0]), 0)


def _goes_on(body: ir.Graph) -> bool:
    """Whether the condition of a Loop that has begun stays true."""
    value: ir.Value | None = body.outputs[0]
    while value is not None and value is not body.inputs[1]:
        node = value.producer()
        if is_op(node, "Constant") and node is not None and "value" in node.attributes:
            return bool(node.attributes["value"].as_tensor().numpy().all())
        if not is_op(node, "Identity", "Cast"):
            constant = const(value)
            return constant is not None and bool(constant.all())
        value = None if node is None else node.inputs[0]
    return value is not None


# Scan.


def _scan(node: ir.Node, opsets: Opsets) -> None:
    """Before opset 9 lengths come first, and each value has an axis of samples in front."""
    batched = opsets.get("", 9) < 9
    given = node.inputs[1:] if batched else node.inputs
    samples = (_dims(given[0]) or (None,))[:1] if batched else ()
    body = node.attributes["body"].as_graph()
    scanned = int_attr(node, "num_scan_inputs", 0)
    count = len(given) - scanned
    axes = ints_attr(node, "scan_input_axes", [0] * scanned) or []
    rounds: int | None = None
    _type(body.inputs, given)
    for index, (value, outer) in enumerate(zip(body.inputs, given, strict=True)):
        dims = _dims(outer)
        dims = None if dims is None else dims[len(samples) :]
        if index >= count and dims is not None:
            axis = axes[index - count] % len(dims)
            rounds, dims = dims[axis], dims[:axis] + dims[axis + 1 :]
        _give(value, dims)
    _walk(body, opsets)
    for value, outer, inner in zip(node.outputs, given[:count], body.outputs, strict=False):
        _take(value, inner, _dims(outer), "")
    to = ints_attr(node, "scan_output_axes", [0] * (len(node.outputs) - count)) or []
    for value, inner, axis in zip(node.outputs[count:], body.outputs[count:], to, strict=True):
        dims = _dims(inner)
        if dims is not None:
            axis = axis % (len(dims) + 1)
            dims = (*samples, *dims[:axis], rounds, *dims[axis:])
        _take(value, inner, dims, "")


_RULES: dict[str, Callable[[ir.Node, Opsets], None]] = {"If": _if, "Loop": _loop, "Scan": _scan}

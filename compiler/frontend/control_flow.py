"""Types and shapes of what an If, a Loop or a Scan makes, through its body.

The one idea: a body is walked like a graph, with the shapes that it is given from outside. A Loop
hands its states to its next round: where one round leaves their shapes as they are, every round
does; where it does not, the rounds are counted, or what they change is not known. What stays open
is taken from the file, which may declare it, and otherwise the reason is kept for the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.fold_constants import constant_tensor, folded
from compiler.frontend.operators.body import Declined, NodesBehind, Unfolding
from compiler.frontend.operators.definitions import REASON
from compiler.frontend.reference_types import DECLARED, Dims
from compiler.frontend.rewrite import (
    ORIGIN,
    AttrValue,
    Rewriter,
    bodies,
    const,
    fresh_name,
    has_body,
    input_of,
    ints_attr,
    is_op,
    is_static,
    replace_outputs,
    required,
    scalar,
    static_shape,
)
from compiler.frontend.shapes import infer_node

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


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """Values of its graph that `node` reads, also from inside its subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for graph in bodies(node):
        own = {*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs)}
        read = [value for inner in graph for value in reads(inner)]
        yield from (value for value in (*read, *graph.outputs) if value not in own)


def why_open(value: ir.Value) -> str:
    """Why the shape of a result of `infer_body` is not known; empty where that was not told."""
    return str(value.meta.get(_WHY, ""))


def infer_body(node: ir.Node, opsets: Opsets) -> bool:
    """Set types and shapes of the outputs of `node` as far as its bodies tell; whether it is one
    of the operators that are known here. The bodies stay as they were.

    `opsets` are those of the bodies. Raises ValueError where a body contradicts an operator.
    """
    if not is_op(node, *_RULES):
        return False
    with _as_before(*bodies(node)):
        _RULES[node.op_type](node, opsets)
    return True


@contextmanager
def _as_before(*graphs: ir.Graph) -> Iterator[None]:
    """What is found of the values of `graphs` is gone afterwards."""
    values = [v for g in graphs for v in (*g.inputs, *(out for n in g for out in n.outputs))]
    kept = [(value, value.shape, value.const_value) for value in values]
    try:
        yield
    finally:
        for value, shape, constant in kept:
            value.shape, value.const_value = shape, constant


def _infer_body_values(graph: ir.Graph, opsets: Opsets) -> Sequence[ir.Value]:
    """Shapes and constants of all values of a body, from those of its inputs; its results."""
    for node in graph:
        for value in node.outputs:
            value.shape = value.const_value = None
        if is_op(node, "Constant"):
            (value,), tensor = node.outputs, constant_tensor(node)
            value.const_value, value.dtype = tensor, tensor.dtype
            value.shape = ir.Shape(tensor.shape.numpy())
            continue
        try:
            if not infer_body(node, opsets):
                infer_node(node, opsets)
        except ValueError:
            if all(value is None or is_static(value) for value in node.inputs):
                raise  # of operands that are known
        for value, known in zip(node.outputs, folded(node, opsets) or (), strict=False):
            value.const_value = ir.tensor(known.values)
            value.shape = ir.Shape(known.values.shape)
    return graph.outputs


def _dims(value: ir.Value | None) -> Dims:
    if value is None or value.shape is None:
        return None
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape.dims)


def _common(one: Dims, other: Dims) -> Dims:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _filled(found: Dims, declared: Dims) -> Dims:
    """`found`, and where it is open what is declared."""
    if found is None or declared is None or len(found) != len(declared):
        return declared if found is None else found
    return tuple(b if a is None else a for a, b in zip(found, declared, strict=True))


def _give(value: ir.Value, dims: Dims, given: ir.Value | None = None) -> None:
    """Let a value be of the shape `dims`, and of the type of what is `given` where the file says
    none."""
    value.shape = None if dims is None else ir.Shape(dims)
    if value.type is None and given is not None:
        value.type = given.type


def _take(value: ir.Value, made: ir.Value, dims: Dims, why: str) -> None:
    """Let a result of the node be of the type of `made`, of the body, and of the shape `dims`."""
    value.type = made.type or value.type
    _give(value, _filled(dims, value.meta.get(DECLARED)))
    if not is_static(value):
        value.meta[_WHY] = why


def _branches(node: ir.Node) -> list[ir.Graph]:
    return [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]


def _infer_if(node: ir.Node, opsets: Opsets) -> None:
    results = (_infer_body_values(branch, opsets) for branch in _branches(node))
    for value, one, other in zip(node.outputs, *results, strict=True):
        _take(value, one, _common(_dims(one), _dims(other)), "its branches differ in it")


def _infer_loop(node: ir.Node, opsets: Opsets) -> None:
    body = node.attributes["body"].as_graph()
    for value, kind in zip(body.inputs, (ir.DataType.INT64, ir.DataType.BOOL), strict=False):
        value.dtype, value.shape = value.dtype or kind, value.shape or ir.Shape(())
    rounds = rounds_of(node, body)
    states, elements = _settled(body, node.inputs[2:], rounds, opsets)
    changed = "its rounds change it, and how many there are depends on data"
    often = "how many rounds there are depends on data"
    shapes = [
        *((dims, changed if dims is None or None in dims else "") for dims in states),
        *((None if dims is None else (rounds, *dims), often) for dims in elements),
    ]
    for value, inner, (dims, why) in zip(node.outputs, body.outputs[1:], shapes, strict=False):
        _take(value, inner, dims, why)


def _settled(
    body: ir.Graph, given: Sequence[ir.Value | None], rounds: int | None, opsets: Opsets
) -> tuple[list[Dims], list[Dims]]:
    """Shapes of the states after all rounds, and of what one round adds to the other results."""
    states = [_dims(value) for value in given]
    declared = _declared(body, states)
    counted = rounds if rounds is not None and rounds <= _ROUNDS else None
    for turn in count():
        for each in zip(body.inputs[2:], states, given, strict=True):
            _give(*each)
        _, *results = _infer_body_values(body, opsets)
        found = [_filled(_dims(v), d) for v, d in zip(results, declared, strict=True)]
        made, elements = found[: len(states)], found[len(states) :]
        if counted is None:
            made = [_common(before, after) for before, after in zip(states, made, strict=True)]
        if made == states or turn == counted:
            break
        states = made
    return states, elements


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
    value = body.outputs[0]
    while value is not body.inputs[1]:
        node = value.producer()
        if node is not None and is_op(node, "Constant"):
            return bool(constant_tensor(node).numpy().all())
        if node is None or not is_op(node, "Identity", "Cast"):
            constant = const(value)
            return constant is not None and bool(constant.all())
        value = required(node, 0)
    return True


def _infer_scan(node: ir.Node, opsets: Opsets) -> None:
    """Before opset 9 lengths come first, and each value has an axis of samples in front."""
    batched = opsets.get("", 9) < 9
    given = node.inputs[1:] if batched else node.inputs
    samples = (_dims(given[0]) or (None,))[:1] if batched else ()
    body = node.attributes["body"].as_graph()
    scanned = node.attributes.get_int("num_scan_inputs", 0)
    count = len(given) - scanned
    axes = _each(node, "scan_input_axes", scanned)
    rounds: int | None = None
    for index, (value, outer) in enumerate(zip(body.inputs, given, strict=True)):
        dims = _dims(outer)
        dims = None if dims is None else dims[len(samples) :]
        if index >= count and dims is not None:
            axis = axes[index - count] % len(dims)
            rounds, dims = dims[axis], dims[:axis] + dims[axis + 1 :]
        _give(value, dims, outer)
    _infer_body_values(body, opsets)
    for value, outer, inner in zip(node.outputs, given[:count], body.outputs, strict=False):
        _take(value, inner, _dims(outer), "")
    to = _each(node, "scan_output_axes", len(node.outputs) - count)
    for value, inner, axis in zip(node.outputs[count:], body.outputs[count:], to, strict=True):
        dims = _dims(inner)
        if dims is not None:
            axis = axis % (len(dims) + 1)
            dims = (*samples, *dims[:axis], rounds, *dims[axis:])
        _take(value, inner, dims, "")


_RULES: dict[str, Callable[[ir.Node, Opsets], None]] = {
    "If": _infer_if,
    "Loop": _infer_loop,
    "Scan": _infer_scan,
}


# Control flow that is known before the network runs, as plain nodes: rounds one after another,
# the branch that is taken, or both branches of a choice.

MOST_SELECTED = 32
"""Operators of an If beyond which its branches are not both computed."""


def unfold(node: ir.Node, version: int, unfolding: Unfolding) -> bool:
    """Put what `node` does behind it, as plain nodes, and remove it; whether that can be.

    Types and shapes of its inputs are known; `version` is the operator set of its bodies.
    """
    rules = {"Loop": _unfold_loop, "Scan": _unfold_scan, "If": _unfold_if}
    if not is_op(node, *rules):
        return False
    made = GraphCopies(node, version)
    try:
        results = rules[node.op_type](made, unfolding)
    except Declined as why:
        node.metadata_props[REASON] = str(why)
        return False
    replace_outputs(node, results, lambda result: made.op("Identity", [result]))
    for body in bodies(node):
        _read_no_more(body)
    return True


def _read_no_more(body: ir.Graph) -> None:
    """Let the nodes of a body that is gone no longer count as readers of what is around it."""
    for inner in body:
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)
        for graph in bodies(inner):
            _read_no_more(graph)


class GraphCopies(NodesBehind):
    """The nodes of graphs behind the one that stands for them; `version`: operator set of these."""

    def __init__(self, node: ir.Node, version: int) -> None:
        super().__init__(node)
        self.version, self.origin = version, self.props[ORIGIN]

    def copied(self, body: ir.Graph, given: Sequence[ir.Value | None]) -> list[ir.Value]:
        """The nodes of `body`, reading what is `given` in the place of its inputs; its results."""
        self._share_constants(body)
        copy = body.clone(allow_outer_scope_values=True)
        results, inputs = list(copy.outputs), dict(zip(copy.inputs, given, strict=True))
        copy.outputs.clear()
        for value, outer in inputs.items():
            for use in list(value.uses()):
                use.node.replace_input_with(use.idx, outer)
        moved = list(copy)
        copy.remove(moved)
        for inner in moved:
            self._insert_after(inner)
        taken = [inputs.get(result, result) for result in results]
        return [value for value in taken if value is not None]

    def _share_constants(self, body: ir.Graph) -> None:
        """Let constants of `body` be those of the graph around it."""
        for index, value in enumerate(body.outputs):
            maker = value.producer()
            if value not in body.inputs and (maker is None or is_op(maker, "Constant")):
                own = ir.node("Identity", [value])
                own.outputs[0].name = f"{value.name}_own"
                own.outputs[0].type, own.outputs[0].shape = value.type, value.shape
                body.append(own)
                body.outputs[index] = own.outputs[0]
        for value in list(body.initializers.values()):
            del body.initializers[str(value.name)]
            value.name = fresh_name(self.graph, str(value.name))
            self.graph.register_initializer(value)
        for inner in [inner for inner in body if is_op(inner, "Constant")]:
            body.remove(inner)
            self._insert_after(inner)

    def _adopt(self, inner: ir.Node) -> None:
        """Give `inner`, and all in it, names that nothing else has."""
        inner.name = fresh_name(self.graph, f"{self.stem}_{inner.op_type}")
        inner.metadata_props[ORIGIN] = self.origin or inner.metadata_props.get(ORIGIN, inner.name)
        forget_shapes(inner)
        for value in inner.outputs:
            if value.name:
                value.name = fresh_name(self.graph, str(value.name))
        for graph in bodies(inner):
            for value in (*graph.inputs, *graph.initializers.values()):
                value.name = fresh_name(self.graph, str(value.name))
            for each in graph:
                self._adopt(each)

    def _insert_after(self, inner: ir.Node) -> None:
        self._adopt(inner)
        self.insert(inner)
        inner.version = self.version

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, AttrValue] | None = None, **more: Any,
    ) -> ir.Value:  # fmt: skip
        """Another node, whose shapes are found where the loader's walk meets it."""
        inner = ir.node(op_type, inputs, attributes=dict(attributes or {}))
        inner.outputs[0].name = f"{self.stem}_{op_type}"
        self._insert_after(inner)
        inner.version = self.graph.opset_imports[""]
        return inner.outputs[0]

    def repeated(
        self, body: ir.Graph, rounds: int, states: Sequence[ir.Value | None],
        given: Callable[[int, Sequence[ir.Value | None]], Sequence[ir.Value | None]], first: int,
    ) -> tuple[list[ir.Value], list[Sequence[ir.Value]]]:  # fmt: skip
        """The last states, and of each other result what all rounds make, from result `first` on;
        `given`: what a round reads, from its number and the states."""
        columns = []
        for number in range(rounds):
            results = self.copied(body, given(number, states))[first:]
            states = results[: len(states)]
            columns.append(results[len(states) :])
        return [s for s in states if s is not None], list(zip(*columns, strict=True))

    def stacked(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Results of all rounds along a new axis."""
        wide = [self.op("Unsqueeze", [value, self.axes([axis])]) for value in values]
        return wide[0] if len(wide) == 1 else self.op("Concat", wide, {"axis": axis})


def _unfold_loop(made: GraphCopies, unfolding: Unfolding) -> list[ir.Value]:
    node, body = made.anchor, made.anchor.attributes["body"].as_graph()
    rounds = rounds_of(node, body)
    if rounds is None:
        raise Declined("how many rounds it has depends on data")
    if not rounds:
        raise Declined("it has no rounds")
    unfolding.take(rounds, rounds * _node_count(body))
    goes_on = made.constant(np.bool_(True))
    states, columns = made.repeated(
        body, rounds, node.inputs[2:],
        lambda number, now: [made.constant(np.int64(number)), goes_on, *now], 1,
    )  # fmt: skip
    return [*states, *(made.stacked(column, 0) for column in columns)]


def _unfold_scan(made: GraphCopies, unfolding: Unfolding) -> list[ir.Value]:
    node, body = made.anchor, made.anchor.attributes["body"].as_graph()
    if made.version < 9:
        raise Declined("before opset 9 a Scan goes over a batch as well")
    scanned = node.attributes.get_int("num_scan_inputs", 0)
    count = len(node.inputs) - scanned
    over = [value for value in node.inputs[count:] if value is not None]
    shapes = [value.shape or () for value in over]
    axes = _each(node, "scan_input_axes", scanned)
    extents = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    steps = extents.pop() if len(extents) == 1 else 0
    if not isinstance(steps, int) or not steps:
        raise Declined("how many rounds it has is not known")
    unfolding.take(steps, steps * _node_count(body))
    axes = [axis % len(shape) for axis, shape in zip(axes, shapes, strict=True)]
    backwards = _each(node, "scan_input_directions", scanned)

    def round_inputs(step: int, states: Sequence[ir.Value | None]) -> list[ir.Value | None]:
        steps_of = (made.constant(np.int64(steps - 1 - step if b else step)) for b in backwards)
        elements = [
            made.op("Gather", [value, at], {"axis": axis})
            for value, at, axis in zip(over, steps_of, axes, strict=True)
        ]
        return [*states, *elements]

    results, columns = made.repeated(body, steps, node.inputs[:count], round_inputs, 0)
    names = ("scan_output_axes", "scan_output_directions")
    where = zip(*(_each(node, name, len(node.outputs) - count) for name in names), strict=True)
    for column, (axis, back) in zip(columns, where, strict=True):
        results.append(made.stacked(column[::-1] if back else column, axis))
    return results


def _each(node: ir.Node, name: str, count: int) -> Sequence[int]:
    return ints_attr(node, name) or [0] * count


def _unfold_if(made: GraphCopies, _: Unfolding) -> list[ir.Value]:
    node, condition = made.anchor, required(made.anchor, 0)
    both, known = _branches(node), const(condition)
    if known is not None:
        made.origin = ""  # what is taken is what it was
        return made.copied(both[0 if known.any() else 1], [])
    size = sum(map(_node_count, both))
    if size > MOST_SELECTED:
        raise Declined(
            f"its branches have {size} operators; of at most {MOST_SELECTED} both are computed"
        )
    with _as_before(*both):
        opsets = {**made.graph.opset_imports, "": made.version}
        one, other = (
            [(value.type, _dims(value)) for value in _infer_body_values(branch, opsets)]
            for branch in both
        )
    if one != other or any(dims is None or None in dims for _, dims in one):
        raise Declined("its branches make tensors of different shapes or types")
    scalar = made.op("Reshape", [condition, made.axes([])])
    pairs = zip(*(made.copied(branch, []) for branch in both), strict=True)
    return [made.op("Where", [scalar, *pair]) for pair in pairs]


def _node_count(graph: ir.Graph) -> int:
    """How many nodes a graph and those inside of it have, but for constants."""
    return sum(
        (not is_op(node, "Constant")) + sum(map(_node_count, bodies(node))) for node in graph
    )


# Sequences of known length: whoever takes a tensor from one reads what was put in.


def resolve_sequence(node: ir.Node) -> bool:
    """Takes `node` out of the graph where its sequence is of known length; whether it did.

    Every value that `node` reads has a static shape. SequenceConstruct is left for readers to look
    through, and is dead behind the last of them.
    """
    if is_op(node, "SplitToSequence"):
        made = _bundle_of_parts(node)
    elif is_op(node, *_READERS) and (bundle := required(node, 0).producer()) is not None:
        known = is_op(bundle, "SequenceConstruct", "SequenceEmpty")
        made = _read_of_bundle(node, [*filter(None, bundle.inputs)]) if known else None
    else:
        made = None
    if made is not None:
        replace_outputs(node, [made])
    return made is not None


_READERS = (
    "SequenceAt", "SequenceInsert", "SequenceErase", "SequenceLength", "ConcatFromSequence",
)  # fmt: skip


def _read_of_bundle(node: ir.Node, items: list[ir.Value]) -> ir.Value | None:
    """What `node` makes of a sequence of `items`; None where its place in it is computed, or there
    is none."""
    make, axis = Rewriter(node), node.attributes.get_int("axis", 0)
    if is_op(node, "SequenceLength"):
        return make.constant(np.int64(len(items)))
    if is_op(node, "ConcatFromSequence"):
        if node.attributes.get_int("new_axis", 0):
            items = [make.op("Unsqueeze", [item, make.axes([axis])]) for item in items]
        return make.op("Concat", items, {"axis": axis}) if items else None
    added = [required(node, 1)] if is_op(node, "SequenceInsert") else []
    said, count = input_of(node, 1 + len(added)), len(items)
    place = scalar(said) if said is not None else count if added else -1
    if place is None or not -count <= place < count + len(added):
        return None
    place = int(place) + count * (place < 0)
    if is_op(node, "SequenceAt"):
        return items[place]
    left = [*items[:place], *added, *items[place + 1 - len(added) :]]
    return make.op("SequenceConstruct", left) if left else None


def _bundle_of_parts(node: ir.Node) -> ir.Value | None:
    """SplitToSequence by constant lengths as a Split and a bundle of its parts."""
    x, split = required(node, 0), input_of(node, 1)
    axis = node.attributes.get_int("axis", 0)
    extent, given = static_shape(x)[axis], np.array(1) if split is None else const(split)
    if given is None:
        return None
    steps = [int(given)] * -(-extent // int(given)) if given.ndim == 0 else given.tolist()
    lengths = [min(step, extent - sum(steps[:number])) for number, step in enumerate(steps)]
    make = Rewriter(node)
    split_up = make.node("Split", [x, make.axes(lengths)], {"axis": axis}, "", len(lengths))
    parts = [*split_up.outputs]
    if split is None and not node.attributes.get_int("keepdims", 1):
        parts = [make.op("Squeeze", [part, make.axes([axis])]) for part in parts]
    return make.op("SequenceConstruct", parts)

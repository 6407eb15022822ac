"""Control flow that is known before the network runs, as plain nodes: rounds one after another, and
both branches of a choice.

    s, y = Scan(s0, x) body       s1, y1 = body(s0, x[0]);  s2, y2 = body(s1, x[1]);  y = [y1, y2]
    y = If(c) a, b                y = Where(c, a, b)        where both are short

The one idea: a body becomes nodes of the graph around it, behind the node that it belongs to, where
the walk of the loader meets them like any others; so what a round knows (its number, the shapes
that it is given) is known to everything inside of it. What no round changes is not made anew:
constants of a body move out once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph.body import Declined, Unfolding
from compiler.graph.operators import REASON
from compiler.graph.rewrite import ORIGIN, fresh_name, int_attr, ints_attr, is_op, replace_value
from compiler.graph.subgraphs import bodies, branches_agree, forget_shapes, rounds_of

MOST_SELECTED = 32
"""Operators of an If beyond which its branches are not both computed."""


def unfold(node: ir.Node, version: int, unfolding: Unfolding) -> bool:
    """Put what `node` does behind it, as plain nodes, and remove it; whether that can be.

    Args:
        node: in a graph; types and shapes of its inputs are known.
        version: operator set of its bodies.
        unfolding: operators that its rounds may have.
    """
    rule = {"Loop": _loop, "Scan": _scan, "If": _if}.get(node.op_type)
    if rule is None or node.domain not in ("", "ai.onnx") or node.graph is None:
        return False
    made = _Rounds(node, version)
    try:
        results = rule(made, unfolding)
    except Declined as why:
        node.metadata_props[REASON] = str(why)
        return False
    for output, result in zip(node.outputs, results, strict=True):
        if output.is_graph_output() and (result.is_graph_input() or result.is_graph_output()):
            result = made.one("Identity", result)
        if output.name:
            replace_value(output, result, node, node.metadata_props)
    for body in bodies(node):
        _read_no_more(body)
    node.graph.remove(node, safe=True)
    return True


def _read_no_more(body: ir.Graph) -> None:
    """Let the nodes of a body that is gone no longer count as readers of what is around it."""
    for inner in body:
        for index in range(len(inner.inputs)):
            inner.replace_input_with(index, None)
        for graph in bodies(inner):
            _read_no_more(graph)


class _Rounds:
    """Nodes behind one that has bodies."""

    def __init__(self, node: ir.Node, version: int) -> None:
        assert node.graph is not None
        self.node, self.graph, self.version = node, node.graph, version
        self._last = node
        self.body = next(bodies(node))

    def copied(self, body: ir.Graph, given: Sequence[ir.Value | None]) -> list[ir.Value]:
        """The nodes of `body`, reading what is `given` in the place of its inputs; its results."""
        self._share_constants(body)
        copy = body.clone(allow_outer_scope_values=True)
        results, inputs = list(copy.outputs), dict(zip(copy.inputs, given, strict=True))
        copy.outputs.clear()
        for value, outer in inputs.items():
            if outer is not None:
                value.replace_all_uses_with(outer)
        moved = list(copy)
        copy.remove(moved)
        for inner in moved:
            self._adopt(inner)
            self._behind(inner, self.version)
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
            self._adopt(inner)
            self._behind(inner, self.version)

    def _adopt(self, inner: ir.Node) -> None:
        """Give `inner`, and all in it, names that nothing else has."""
        inner.name = fresh_name(self.graph, f"{self.node.name}_{inner.op_type}")
        inner.metadata_props[ORIGIN] = self.node.metadata_props.get(ORIGIN, str(self.node.name))
        forget_shapes(inner)
        for value in inner.outputs:
            if value.name:
                value.name = fresh_name(self.graph, str(value.name))
        for graph in bodies(inner):
            for value in (*graph.inputs, *graph.initializers.values()):
                value.name = fresh_name(self.graph, str(value.name))
            for each in graph:
                self._adopt(each)

    def _behind(self, inner: ir.Node, version: int) -> None:
        inner.version = version
        self.graph.insert_after(self._last, inner)
        self._last = inner

    def one(self, op_type: str, *inputs: ir.Value | None, **attributes: int) -> ir.Value:
        """The result of another node, in the loader's own form."""
        inner = ir.node(op_type, inputs, attributes=attributes)
        inner.name = fresh_name(self.graph, f"{self.node.name}_{op_type}")
        inner.metadata_props[ORIGIN] = self.node.metadata_props.get(ORIGIN, str(self.node.name))
        inner.outputs[0].name = fresh_name(self.graph, f"{self.node.name}_{op_type}")
        self._behind(inner, self.graph.opset_imports[""])
        return inner.outputs[0]

    def constant(self, numbers: object, dtype: type[np.generic] = np.int64) -> ir.Value:
        """Numbers as a value."""
        tensor = ir.tensor(np.asarray(numbers, dtype))
        value = ir.val(fresh_name(self.graph, f"{self.node.name}_const"), const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def stacked(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Results of all rounds along a new axis."""
        wide = [self.one("Unsqueeze", value, self.constant([axis])) for value in values]
        return wide[0] if len(wide) == 1 else self.one("Concat", *wide, axis=axis)


def _loop(made: _Rounds, unfolding: Unfolding) -> list[ir.Value]:
    node, body = made.node, made.body
    rounds = rounds_of(node, body)
    if rounds is None:
        raise Declined("how many rounds it has depends on data")
    if not rounds:
        raise Declined("it has no rounds")
    unfolding.take(rounds, rounds * _size(body))
    states: list[ir.Value | None] = list(node.inputs[2:])
    goes_on = made.constant(True, np.bool_)
    columns: list[list[ir.Value]] = []
    for number in range(rounds):
        _, *results = made.copied(body, [made.constant(number), goes_on, *states])
        states = [*results[: len(states)]]
        columns.append(results[len(states) :])
    stacked = [made.stacked(column, 0) for column in zip(*columns, strict=True)]
    return [*(state for state in states if state is not None), *stacked]


def _scan(made: _Rounds, unfolding: Unfolding) -> list[ir.Value]:
    node, body = made.node, made.body
    if made.version < 9:
        raise Declined("before opset 9 a Scan goes over a batch as well")
    scanned = int_attr(node, "num_scan_inputs", 0)
    count = len(node.inputs) - scanned
    over = [value for value in node.inputs[count:] if value is not None]
    ranks = [len(value.shape or ()) for value in over]
    axes = [axis % rank for axis, rank in zip(_all(node, "scan_input_axes", scanned), ranks,
                                              strict=True)]  # fmt: skip
    extents = {(value.shape or ())[axis] for value, axis in zip(over, axes, strict=True)}
    steps = extents.pop() if len(extents) == 1 else 0
    if not isinstance(steps, int) or not steps:
        raise Declined("how many rounds it has is not known")
    unfolding.take(steps, steps * _size(body))
    backwards = _all(node, "scan_input_directions", scanned)
    states: list[ir.Value | None] = list(node.inputs[:count])
    columns: list[list[ir.Value]] = []
    for step in range(steps):
        elements = [
            made.one("Gather", value, made.constant(steps - 1 - step if back else step), axis=axis)
            for value, axis, back in zip(over, axes, backwards, strict=True)
        ]
        results = made.copied(body, [*states, *elements])
        states = [*results[:count]]
        columns.append(results[count:])
    results = [state for state in states if state is not None]
    outputs = len(node.outputs) - count
    to = _all(node, "scan_output_axes", outputs)
    back_to_front = _all(node, "scan_output_directions", outputs)
    for column, axis, back in zip(zip(*columns, strict=True), to, back_to_front, strict=True):
        results.append(made.stacked(column[::-1] if back else column, axis))
    return results


def _all(node: ir.Node, name: str, count: int) -> Sequence[int]:
    """A list of numbers, one for each input or output, zeros where it is not given."""
    return ints_attr(node, name, [0] * count) or [0] * count


def _if(made: _Rounds, unfolding: Unfolding) -> list[ir.Value]:
    del unfolding
    node = made.node
    both = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    size = sum(map(_size, both))
    if size > MOST_SELECTED:
        raise Declined(
            f"its branches have {size} operators; of at most {MOST_SELECTED} both are computed"
        )
    if not branches_agree(node, {**made.graph.opset_imports, "": made.version}):
        raise Declined("its branches make tensors of different shapes or types")
    condition = node.inputs[0]
    assert condition is not None
    scalar = made.one("Reshape", condition, made.constant([]))
    one, other = (made.copied(branch, []) for branch in both)
    return [made.one("Where", scalar, a, b) for a, b in zip(one, other, strict=True)]


def _size(graph: ir.Graph) -> int:
    """How many nodes a graph and those inside of it have, but for constants."""
    return sum((not is_op(node, "Constant")) + sum(map(_size, bodies(node))) for node in graph)

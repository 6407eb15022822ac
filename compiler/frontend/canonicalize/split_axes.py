"""Axes that are open stay axes of their own, where a network makes one of several.

The one idea: a Reshape that merges open axes moves down through whatever computes for each position
of the merged axis alone, until the Reshape that splits it again: both together merge nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from compiler.frontend.canonicalize.fold_constants import POINTWISE
from compiler.frontend.canonicalize.normalize import product_of
from compiler.frontend.canonicalize.symbolic_axes import (
    Pieces,
    extents,
    merged,
    open_of,
    pieces_of,
    say_open,
)
from compiler.frontend.operators.upgrade import REDUCTIONS
from compiler.frontend.quantization.move_quantize import VIEWS
from compiler.frontend.rewrite import (
    MICROSOFT,
    AttrValue,
    GraphPass,
    Rewriter,
    const,
    hand_names,
    input_of,
    ints_attr,
    is_const,
    is_op,
    required,
    static_shape,
)

# Operators on values whose merged axes are kept apart: one rule for each kind of them.

Axes = tuple[Pieces, ...]
"""What each axis of a value is made of."""


@dataclass(frozen=True)
class UnmergedOperand:
    """An input of an operator: `value` has an axis for each piece of `axes`."""

    value: ir.Value
    axes: Axes

    def places(self, axis: int) -> range:
        """Which axes of `value` one axis is made of."""
        first = sum(map(len, self.axes[:axis]))
        return range(first, first + len(self.axes[axis]))

    def at(self, axis: int) -> int | None:
        """Where an axis is in `value`; None where it is merged."""
        found = self.places(axis % len(self.axes))
        return None if len(found) > 1 else found[0]


@dataclass(frozen=True)
class UnmergedNode:
    """A node that reads merged axes, and what it reads."""

    make: Rewriter
    operands: Sequence[UnmergedOperand | None]
    """By position; None for an input that is absent."""

    @property
    def node(self) -> ir.Node:
        return self.make.anchor

    @property
    def first(self) -> UnmergedOperand:
        """The first operand, which is never absent."""
        found = self.operands[0]
        assert found is not None
        return found

    def again(self, inputs: Sequence[ir.Value | None], **changed: AttrValue) -> Sequence[ir.Value]:
        """The outputs of the same operator on other inputs, with some attributes changed."""
        return self.make.again(inputs, **changed).outputs

    def beside(self, count: int = 1) -> list[ir.Value | None] | None:
        """The inputs behind the first `count` as they are; None where one has merged axes."""
        merged = any(each and _merges(each.axes) for each in self.operands[count:])
        return None if merged else [*self.node.inputs[count:]]


Results = list[tuple[ir.Value, Axes]]
"""Outputs of an operator, and what each axis that they had is made of. Of an axis that is not
merged the extent is that of the value."""
Rule = Callable[[UnmergedNode], Results | None]
"""None: the operator cannot be computed apart."""


def _with_axes_of_first(
    step: UnmergedNode, parameters: Sequence[ir.Value | None], **changed: AttrValue
) -> Results:
    """Results of the axes of the first operand, of that and these other inputs."""
    made = step.again([step.first.value, *parameters], **changed)
    return [(value, step.first.axes) for value in made]


# Operands that are broadcast, or alike.


def _broadcast(operands: Sequence[Axes]) -> Axes:
    """What each axis is made of where `operands` are broadcast, or are no operands at all."""
    found: list[Pieces] = []
    for back in range(max(map(len, operands)), 0, -1):
        along = [axes[-back] for axes in operands if len(axes) >= back]
        moving = [pieces for pieces in along if prod(extents([pieces])) > 1]
        found.append(max(moving or along, key=len))
    return tuple(found)


def _fitting(operand: UnmergedOperand, axes: Axes, own: int = 0) -> tuple[int, ...] | None:
    """The shape in which `operand` is broadcast to `axes`, its last `own` axes aside; None where a
    computed value would have to be split."""
    shape: list[int] = []
    count = len(operand.axes) - own
    for pieces, wanted in zip(operand.axes[:count], axes[len(axes) - count :], strict=True):
        given = extents([pieces])
        if prod(given) == 1:
            shape += [1] * len(wanted)
        elif given == extents([wanted]) or is_const(operand.value):
            shape += extents([wanted])
        else:
            return None
    return (*shape, *extents(operand.axes[count:]))


def _all_shaped(
    make: Rewriter, values: Sequence[ir.Value], shapes: Sequence[tuple[int, ...]]
) -> list[ir.Value]:
    """Values in shapes that broadcast as those beside them do: one of them has all axes."""
    made = [_shaped(make, *each) for each in zip(values, shapes, strict=True)]
    longest = max(range(len(shapes)), key=lambda number: len(shapes[number]))
    if max(len(static_shape(value)) for value in made) < len(shapes[longest]):
        made[longest] = _reshaped(make, values[longest], shapes[longest])
    return made


def _shaped(make: Rewriter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """`value` in a shape that broadcasts as `shape` does."""
    own = static_shape(value)
    more = len(shape) - len(own)
    return value if more >= 0 and shape == (1,) * more + own else _reshaped(make, value, shape)


def _reshaped(make: Rewriter, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    return value if shape == static_shape(value) else make.op("Reshape", [value, make.axes(shape)])


# Functions of single elements.


def _pointwise(step: UnmergedNode) -> Results | None:
    present = [each for each in step.operands if each is not None]
    axes = _broadcast([each.axes for each in present])
    shapes = [shape for each in present if (shape := _fitting(each, axes)) is not None]
    if len(shapes) < len(present):
        return None
    made = iter(_all_shaped(step.make, [each.value for each in present], shapes))
    inputs = [None if each is None else next(made) for each in step.operands]
    return [(step.again(inputs)[0], axes)]


def _quantization(step: UnmergedNode) -> Results | None:
    """Per tensor, or per position of an axis that is not merged."""
    parameters, scale = step.beside(), static_shape(required(step.node, 1))
    axis = 0 if prod(scale) == 1 else step.first.at(step.node.attributes.get_int("axis", 1))
    if parameters is None or axis is None or step.node.attributes.get_int("block_size", False):
        return None
    return _with_axes_of_first(step, parameters, axis=axis)


# Products.


def _matmul(step: UnmergedNode) -> Results | None:
    """Rows of the first operand may be merged, and matrices of both."""
    left, right, *_ = step.operands
    parameters = step.beside(2)
    if left is None or right is None or parameters is None:
        return None
    if min(len(left.axes), len(right.axes)) < 2:
        return None
    *_, rows, inner = left.axes
    if max(map(len, (inner, *right.axes[-2:]))) > 1:
        return None
    axes = _broadcast([left.axes[:-2], right.axes[:-2]])
    matrices, others = _fitting(left, axes, own=2), _fitting(right, axes, own=2)
    if matrices is None or others is None:
        return None
    if len(others) > 2:  # rows that are several axes are matrices themselves
        others = (*others[:-2], *[1] * (len(rows) - 1), *others[-2:])
    inputs = _all_shaped(step.make, [left.value, right.value], [matrices, others])
    return [(step.again([*inputs, *parameters])[0], (*axes, rows, right.axes[-1]))]


def _gemm(step: UnmergedNode) -> Results | None:
    """The first operand's rows may be merged."""
    bias, others = input_of(step.node, 2), step.beside()
    if step.first.at(1) is None or others is None or step.node.attributes.get_int("transA", False):
        return None
    if bias is not None and len(static_shape(bias)) > 1 and static_shape(bias)[-2] > 1:
        return None
    return [(product_of(step.make, step.first.value), step.first.axes)]


def _vectors(step: UnmergedNode) -> Results | None:
    """Vectors of the first operand, each multiplied by what comes behind it."""
    others = step.beside()
    if step.first.at(-1) is None or others is None:
        return None
    return _with_axes_of_first(step, others)


# What works along some axes.


def _along(default: int, count: int = 1) -> Rule:
    """Along one axis of the first `count` inputs, 0 for all of them, which are alike otherwise."""

    def rule(step: UnmergedNode) -> Results | None:
        rank = len(step.first.axes)
        axis = step.node.attributes.get_int("axis", default) % rank
        data = [each for each in step.operands[: count or None] if each is not None]
        others = step.beside(len(data))
        if others is None or any(each.at(axis) is None for each in data):
            return None
        axes = _broadcast([each.axes for each in data])
        inputs = []
        for each in data:
            shape = _fitting(each, (*axes[:axis], each.axes[axis], *axes[axis + 1 :]))
            if shape is None:
                return None
            inputs.append(_reshaped(step.make, each.value, shape))
        made = step.again([*inputs, *others], axis=sum(map(len, axes[:axis])))
        if len(static_shape(step.node.outputs[0])) < rank:  # of ArgMax without it
            axes = (*axes[:axis], *axes[axis + 1 :])
        return [(value, axes) for value in made]

    return rule


def _trailing(step: UnmergedNode) -> Results | None:
    """Over all axes from one on."""
    axis = step.node.attributes.get_int("axis", -1) % len(step.first.axes)
    return None if _merges(step.first.axes[axis:]) else _along(-1)(step)


def _reduction(step: UnmergedNode) -> Results | None:
    """Along all that a chosen axis is made of."""
    chosen = const(input_of(step.node, 1))
    if chosen is None or not chosen.size:
        return None
    rank = len(step.first.axes)
    axes = {int(axis) % rank for axis in chosen.reshape(-1)}
    at = [place for axis in sorted(axes) for place in step.first.places(axis)]
    made = step.again([step.first.value, step.make.axes(at)])
    keep = step.node.attributes.get_int("keepdims", 1)
    left = (
        pieces_of([1] * len(pieces), ()) if axis in axes else pieces
        for axis, pieces in enumerate(step.first.axes)
        if keep or axis not in axes
    )
    return [(made[0], tuple(left))]


def _windows(step: UnmergedNode) -> Results | None:
    """Images that are of two axes: windows in one dimension more, along which nothing slides.

    Conv of [(batch, seq), c, h, w]    =>    Conv of [batch, c, seq, h, w], a kernel of 1 along seq
    """
    others, rank = step.beside(), len(step.first.axes)
    if others is None or len(step.first.places(0)) != 2 or rank > 4:
        return None
    if _merges(step.first.axes[1:]) or len(step.node.outputs) > 1:
        return None
    make, order = step.make, (0, 2, 1, *range(3, rank + 1))
    x = _turned(make, step.first.value, order)
    if step.node.op_type == "Conv":
        others[0] = make.op("Unsqueeze", [required(step.node, 1), make.axes([2])])
    sides = {n: ints_attr(step.node, n) for n in ("kernel_shape", "strides", "dilations", "pads")}
    upright: dict[str, AttrValue] = {n: (1, *each) for n, each in sides.items() if each is not None}
    if (pads := sides["pads"]) is not None:  # nothing slides along the dimension in front
        upright["pads"] = (0, *pads[: len(pads) // 2], 0, *pads[len(pads) // 2 :])
    again = step.again([x, *others], **upright)
    return [(make.op("Transpose", [again[0]], {"perm": order}), step.first.axes)]


def _turned(make: Rewriter, value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    """`value` with two axes exchanged, which may be how it was before."""
    maker = value.producer()
    back = maker is not None and is_op(maker, "Transpose") and ints_attr(maker, "perm") == [*order]
    made = required(maker, 0) if back and maker else make.op("Transpose", [value], {"perm": order})
    say_open(made, {order.index(axis) for axis in open_of(value)})
    return made


def _global(reduction: str) -> Rule:
    """What each channel of images that may be merged comes to."""

    def rule(step: UnmergedNode) -> Results | None:
        if _merges(step.first.axes[1:]):
            return None
        rank, kept = len(static_shape(step.first.value)), {"keepdims": 1}
        behind = range(rank - len(step.first.axes) + 2, rank)
        made = step.make.op(reduction, [step.first.value, step.make.axes(behind)], kept)
        return [(made, step.first.axes)]

    return rule


def _running(step: UnmergedNode) -> Results | None:
    """Along all that an axis is made of: what there is so far along the fastest of them, and what
    there is in all before that.

        CumSum(x, (batch, seq))  =  CumSum(x, seq) + CumSum <exclusive=1> (ReduceSum(x, seq), batch)
    """
    chosen, make = const(input_of(step.node, 1)), step.make
    if chosen is None:
        return None
    axis = int(chosen.reshape(-1)[0]) % len(step.first.axes)

    def along(value: ir.Value, place: int, exclusive: int) -> ir.Value:
        inputs = [value, make.constant(np.asarray(place, np.int64))]
        return step.again(inputs, exclusive=exclusive)[0]

    *slower, place = step.first.places(axis)
    value = step.first.value
    result = along(value, place, step.node.attributes.get_int("exclusive", 0))
    for outer in reversed(slower):
        left = open_of(value) - {place}
        value = make.op("ReduceSum", [value, make.axes([place])], {"keepdims": 1})
        say_open(value, left)
        result = make.op("Add", [result, along(value, outer, 1)])
        place = outer
    return [(result, step.first.axes)]


def _slice(step: UnmergedNode) -> Results | None:
    starts, chosen = const(input_of(step.node, 1)), const(input_of(step.node, 3))
    others = step.beside()
    if starts is None or others is None:
        return None
    axes = range(starts.size) if chosen is None else [int(axis) for axis in chosen.reshape(-1)]
    at = [place for axis in axes if (place := step.first.at(axis)) is not None]
    if len(at) < len(axes) or (len(others) > 2 and others[2] is not None and chosen is None):
        return None
    return _with_axes_of_first(step, [*others[:2], step.make.axes(at), *others[3:]])


def _gather(step: UnmergedNode) -> Results | None:
    """Data or indices may have merged axes."""
    indices = step.operands[1]
    axis = step.node.attributes.get_int("axis", 0) % len(step.first.axes)
    at = step.first.at(axis)
    if at is None or indices is None:
        return None
    made = step.again([step.first.value, indices.value], axis=at)
    axes = (*step.first.axes[:axis], *indices.axes, *step.first.axes[axis + 1 :])
    return [(made[0], axes)]


def _transpose(step: UnmergedNode) -> Results | None:
    axes = step.first.axes
    perm = ints_attr(step.node, "perm") or list(reversed(range(len(axes))))
    places = [place for axis in perm for place in step.first.places(axis)]
    made = step.again([step.first.value], perm=places)
    return [(made[0], tuple(axes[axis] for axis in perm))]


def _expand(step: UnmergedNode) -> Results | None:
    shape = const(input_of(step.node, 1))
    if shape is None:
        return None
    axes = _broadcast([step.first.axes, tuple((p,) for p in pieces_of(shape.tolist(), ()))])
    wanted = _broadcast([axes, step.first.axes])
    given = _fitting(step.first, wanted)
    if given is None:
        return None
    inputs = [_shaped(step.make, step.first.value, given), step.make.axes(extents(wanted))]
    return [(step.again(inputs)[0], wanted)]


_RULES: Mapping[tuple[str, ...], Rule] = {
    (*POINTWISE, "Sum", "Mean", "Swish"): _pointwise,
    REDUCTIONS: _reduction,
    ("Softmax", "LogSoftmax", "Hardmax", "TopK", "LpNormalization"): _along(-1),
    ("Split", "ArgMax", "ArgMin"): _along(0),
    ("Concat",): _along(0, 0),
    ("GatherElements",): _along(0, 2),
    ("ScatterElements",): _along(0, 3),
    ("QuantizeLinear", "DequantizeLinear"): _quantization,
    ("MatMul", "MatMulInteger"): _matmul,
    ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"): _trailing,
    ("Gemm",): _gemm,
    ("CumSum",): _running,
    ("Conv", "MaxPool", "AveragePool", "BatchNormalization"): _windows,
    ("GlobalAveragePool",): _global("ReduceMean"),
    ("GlobalMaxPool",): _global("ReduceMax"),
    ("Slice",): _slice,
    ("Gather",): _gather,
    ("Transpose",): _transpose,
    ("Expand",): _expand,
}
RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): rule for names, rule in _RULES.items() for name in names},
    **{(MICROSOFT, name): _pointwise for name in ("Gelu", "QuickGelu", "FastGelu", "BiasGelu")},
    (MICROSOFT, "MatMulNBits"): _vectors,
}
"""By domain and operator."""


@dataclass(frozen=True)
class KeepAxesApart(GraphPass):
    """Operators between a Reshape that merges open axes and one that splits them do without both.

       m = Reshape(x, [256, 16])            # x of [batch=4, seq=64, 16]
       p = MatMul(m, w)
       y = Reshape(p, [4, 64, 2, 6])
    =>
       p = MatMul(x, w)
       y = Reshape(p, [4, 64, 2, 6])

    Which axes are open is known of networks for ranges of lengths (`open_axes`); one of fixed sizes
    has none. What combines positions of a merged axis, or gives it to the outside,
    keeps its Reshape.
    """

    def rewrite(self, node: ir.Node) -> bool:
        if is_op(node, *VIEWS):
            return _view(node)
        operands = [None if value is None else _unmerged_operand(value) for value in node.inputs]
        if not any(each and _merges(each.axes) for each in operands):
            return False
        return compute_apart(node, operands) is not None


def compute_apart(
    node: ir.Node, operands: Sequence[UnmergedOperand | None]
) -> list[tuple[ir.Value, UnmergedOperand]] | None:
    """Let `node` compute on `operands`: what takes the place of each output, and what that is made
    of; None, and nothing is changed, where it cannot."""
    rule, make = RULES.get((node.domain, node.op_type)), Rewriter(node)
    results = None if rule is None else rule(UnmergedNode(make, operands))
    if results is None:
        return None
    again = []
    for old, (value, axes) in zip(node.outputs, results, strict=True):
        _say_apart(value, old, axes)
        again.append(_restore_shape(make, old, value, axes))
    make.replace(*again)
    for new, (value, axes) in zip(again, results, strict=True):
        if new is not value and not new.is_graph_output():
            hand_names(new, value, [len(pieces) for pieces in axes])
    return [(new, UnmergedOperand(*each)) for new, each in zip(again, results, strict=True)]


def _view(node: ir.Node) -> bool:
    """Let a Reshape, and another one before it that merges, merge as little as they can, and
    nothing else."""
    source, old = required(node, 0), node.outputs[0]
    inner = _unmerged_operand(source)
    axes = merged(_axis_pieces(inner.value), _axis_pieces(old))
    if axes is None:
        return False
    kept = extents(axes)
    done = kept in (static_shape(inner.value), static_shape(old))
    if done and not _merges(inner.axes):
        return False
    make = Rewriter(node)
    value = inner.value
    if kept != static_shape(value):
        value = make.op("Reshape", [value, make.axes(kept)])
        _say_apart(value, old, axes)
    make.replace(_restore_shape(make, old, value, axes))
    return True


def _unmerged_operand(value: ir.Value) -> UnmergedOperand:
    """`value` apart, where it is made by a Reshape that merges open axes and does nothing else."""
    node = value.producer()
    if node is not None and is_op(node, *VIEWS):
        source = required(node, 0)
        axes = merged(_axis_pieces(source), _axis_pieces(value))
        if axes is not None and extents(axes) == static_shape(source) and _merges(axes):
            return UnmergedOperand(source, axes)
    return whole_operand(value)


def whole_operand(value: ir.Value) -> UnmergedOperand:
    """`value` with the axes that it has."""
    return UnmergedOperand(value, tuple((piece,) for piece in _axis_pieces(value)))


def _merges(axes: Axes) -> bool:
    """Whether several axes are one to an operator."""
    return any(len(pieces) > 1 for pieces in axes)


def _axis_pieces(value: ir.Value) -> Pieces:
    return pieces_of(static_shape(value), open_of(value))


def _say_apart(value: ir.Value, old: ir.Value, axes: Axes) -> None:
    """Say which axes of `value` are open, of which those of `old` are made."""
    ours = open_of(old)
    flat = (
        piece.open if len(pieces) > 1 else axis in ours
        for axis, pieces in enumerate(axes)
        for piece in pieces
    )
    say_open(value, (axis for axis, is_open in enumerate(flat) if is_open))


def _restore_shape(make: Rewriter, old: ir.Value, value: ir.Value, axes: Axes) -> ir.Value:
    """`value` in the shape of `old`, each of whose axes is made of some of its own."""
    if not _merges(axes):
        return value
    made = make.op("Reshape", [value, make.axes(static_shape(old))])
    say_open(made, open_of(old))
    return made

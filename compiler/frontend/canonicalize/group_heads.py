"""Heads of attention that share keys and values: products read these once.

The one idea: where several query heads share a key head, exporters write the key head out for each
of them. The product of one head's keys with the rows of all its queries is the same numbers, and
nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from compiler.frontend.canonicalize.split_axes import (
    RULES,
    UnmergedOperand,
    compute_apart,
    whole_operand,
)
from compiler.frontend.canonicalize.symbolic_axes import pieces_of
from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    ints_attr,
    is_op,
    required,
    sole_consumer,
    static_shape,
)


@dataclass(frozen=True)
class GroupHeads(GraphPass):
    """A product with repeated matrices becomes one with each of them once.

       e = Expand(k, [1, 2, 4, 9, 16]); r = Reshape(e, [1, 8, 9, 16])    # k of [1, 2, 1, 9, 16]
       y = MatMul(q, Transpose(r))                                       # q of [1, 8, 1, 16]
    =>
       p = MatMul(Reshape(q, [1, 2, 4, 16]), Transpose(Reshape(k, [1, 2, 9, 16])))
       y = Reshape(p, [1, 8, 1, 9])

    Several rows of a head stay a dimension of their own, so that their number may be one that is
    known only when a program runs: q becomes [1, 2, 4, rows, 16] and k [1, 2, 1, 9, 16]. Groups
    then stay an axis of whatever computes for each head alone, as a softmax does, up to another
    product: the Reshape of y moves behind it.

    Where there are more rows than each matrix has columns, scores weigh more than what is repeated:
    then heads stay apart, but in front of another such product.
    """

    def rewrite(self, node: ir.Node) -> bool:
        if not _is_product(node):
            return False
        left, right = required(node, 0), required(node, 1)
        across, perm = right.producer(), None
        if across is not None and is_op(across, "Transpose"):
            perm, right = ints_attr(across, "perm"), required(across, 0)
        found = _repeated_heads(right)
        shape, made = static_shape(left), static_shape(node.outputs[0])
        if found is None or len(shape) != 4 or perm not in (None, [0, 1, 2, 3], [0, 1, 3, 2]):
            return False
        batch, groups, times, *matrix = found[1]
        if shape[:2] != (batch, groups * times):
            return False
        heads = (times,) if shape[2] == 1 else (times, shape[2])
        grouped = (batch, groups, *heads, shape[3])
        rows = _made_of(left, grouped)
        if rows is None and shape[2] > matrix[-1] and not _leads_to_product(node):
            return False
        make = Rewriter(node)
        rows = _reshaped(make, left, grouped) if rows is None else rows
        one = _reshaped(make, found[0], (batch, groups, *[1] * (len(heads) - 1), *matrix))
        if perm == [0, 1, 3, 2]:
            lead = len(heads) + 1
            one = make.op("Transpose", [one], {"perm": [*range(lead), lead + 1, lead]})
        product = make.op(
            node.op_type, [rows, one, *node.inputs[2:]],
            {name: attribute.value for name, attribute in node.attributes.items()},
            domain=node.domain,
            out=(node.outputs[0].dtype or ir.DataType.UNDEFINED, (batch, groups, *heads, made[3])),
        )  # fmt: skip
        joined = _reshaped(make, product, made)
        make.replace(joined)
        if shape[2] > 1:
            _sink(joined, product)
        return True


def _is_product(node: ir.Node) -> bool:
    return is_op(node, "MatMul") or is_op(node, "QMatMul", domain=ARCHGEN)


def _reshaped(make: Rewriter, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    return make.op("Reshape", [x, make.axes(shape)])


def _made_of(value: ir.Value, shape: tuple[int, ...]) -> ir.Value | None:
    """What a Reshape makes `value` of, where that has this shape."""
    node = value.producer()
    if node is None or not is_op(node, "Reshape"):
        return None
    source = required(node, 0)
    return source if static_shape(source) == shape else None


def _leads_to_product(node: ir.Node) -> bool:
    """Whether what `node` makes becomes, element by element or along its rows, the first operand of
    another product with repeated matrices."""
    value = node.outputs[0]
    while (user := sole_consumer(value)) is not None:
        if _is_product(user):
            return user.inputs[0] is value and _repeated_heads(required(user, 1)) is not None
        if (user.domain, user.op_type) not in RULES or len(user.outputs) > 1:
            return False
        if static_shape(user.outputs[0]) != static_shape(value):
            return False
        value = user.outputs[0]
    return False


def _sink(joined: ir.Value, product: ir.Value) -> None:
    """Move the Reshape that makes `joined` of a grouped `product` behind all that computes for each
    head alone, up to another product."""
    batch, groups, *rest = pieces_of(static_shape(product), ())
    apart = UnmergedOperand(product, ((batch,), (groups, rest[0]), *((each,) for each in rest[1:])))
    while (user := sole_consumer(joined)) is not None and not _is_product(user):
        if is_op(user, "Reshape"):
            shape = Rewriter(user).axes(static_shape(user.outputs[0]))
            for place, value in enumerate((apart.value, shape)):  # a 0 would mean another axis
                user.replace_input_with(place, value)
            return
        operands = [
            None if value is None else apart if value is joined else whole_operand(value)
            for value in user.inputs
        ]
        made = compute_apart(user, operands)
        if made is None:
            return
        ((joined, apart),) = made


def _repeated_heads(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]] | None:
    """What `value` repeats along its second axis, with an axis of extent 1 where it is repeated,
    and the shape before both axes are joined: (batch, groups, times, rows, columns)."""
    joined = value.producer()
    expanded = joined and is_op(joined, "Reshape") and required(joined, 0).producer()
    if not expanded or not is_op(expanded, "Expand"):
        return None
    source, shape = required(expanded, 0), static_shape(expanded.outputs[0])
    if len(shape) != 5 or static_shape(source) != (*shape[:2], 1, *shape[3:]):
        return None
    merged = (shape[0], shape[1] * shape[2], *shape[3:])
    return (source, shape) if static_shape(value) == merged else None

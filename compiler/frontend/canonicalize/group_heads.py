"""Products whose second operand repeats each of its matrices: the first one's rows side by side.

The one idea: where several query heads share a key head, exporters write the key head out for each
of them. The product of one head's keys with the rows of all its queries is the same numbers, and
nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from compiler.frontend.rewrite import (
    ARCHGEN,
    GraphPass,
    Rewriter,
    ints_attr,
    is_op,
    required,
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
    known only when a program runs: q becomes [1, 2, 4, rows, 16] and k [1, 2, 1, 9, 16].

    Where there are more rows than each matrix has columns, scores weigh more than what is repeated,
    and heads stay apart.
    """

    def rewrite(self, node: ir.Node) -> bool:
        """Rewrite one product."""
        if not is_op(node, "MatMul") and not is_op(node, "QMatMul", domain=ARCHGEN):
            return False
        left, right = required(node, 0), required(node, 1)
        perm = None
        if is_op(right.producer(), "Transpose"):
            across = right.producer()
            assert across is not None
            perm = ints_attr(across, "perm")
            right = required(across, 0)
        found = _repeated_heads(right)
        shape, made = static_shape(left), static_shape(node.outputs[0])
        if found is None or len(shape) != 4 or perm not in (None, [0, 1, 2, 3], [0, 1, 3, 2]):
            return False
        batch, groups, times, *matrix = found[1]
        if shape[:2] != (batch, groups * times) or shape[2] > matrix[-1]:
            return False
        make = Rewriter(node)
        one_row = shape[2] == 1
        heads = (times,) if one_row else (times, shape[2])
        between = () if one_row else (1,)
        one = _reshape(make, found[0], (batch, groups, *between, *matrix))
        if perm == [0, 1, 3, 2]:
            lead = range(len(heads) + 1)
            one = make.op("Transpose", [one], {"perm": [*lead, len(lead) + 1, len(lead)]})
        rows = _reshape(make, left, (batch, groups, *heads, shape[3]))
        product = make.op(
            node.op_type, [rows, one, *node.inputs[2:]],
            {name: attribute.value for name, attribute in node.attributes.items()},
            domain=node.domain,
            out=(node.outputs[0].dtype or ir.DataType.UNDEFINED, (batch, groups, *heads, made[3])),
        )  # fmt: skip
        make.replace(_reshape(make, product, made))
        return True


def _reshape(make: Rewriter, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    return make.op("Reshape", [x, make.axes(shape)])


def _repeated_heads(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]] | None:
    """What `value` repeats along its second axis, with an axis of extent 1 where it is repeated,
    and the shape before both axes are joined: (batch, groups, times, rows, columns)."""
    joined = value.producer()
    if not is_op(joined, "Reshape"):
        return None
    assert joined is not None
    expanded = required(joined, 0).producer()
    if not is_op(expanded, "Expand"):
        return None
    assert expanded is not None
    source, shape = required(expanded, 0), static_shape(expanded.outputs[0])
    if len(shape) != 5 or static_shape(source) != (*shape[:2], 1, *shape[3:]):
        return None
    merged = (shape[0], shape[1] * shape[2], *shape[3:])
    return (source, shape) if static_shape(value) == merged else None

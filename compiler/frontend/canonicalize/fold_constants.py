"""The value of one node whose inputs are constants, by ONNX's reference implementation.

Results share memory with their inputs where they can: ConstantOfShape and Expand give broadcast
views, Transpose and Reshape give views, so that folding a weight costs no copy of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Annotated, NamedTuple

import numpy as np
import onnx_ir as ir
from onnx.reference.ops import load_op

from compiler.frontend.quantization.move_quantize import MOVERS
from compiler.frontend.quantization.narrow_constants import NARROW, narrow_result
from compiler.frontend.reference_types import NOT_A_FUNCTION
from compiler.frontend.rewrite import (
    Array,
    GraphPass,
    Rewriter,
    const,
    has_body,
    ints_attr,
    is_const,
    is_op,
    is_static,
    static_shape,
    terms_of,
)
from compiler.frontend.shapes import schema_of
from compiler.passes import within
from simmodel.arch.element_types import EPSILON
from simmodel.arch.lazy_array import AnyArray, LazyArray

FOLD_LIMIT = 64 << 20
"""The usual limit: what a fold makes is no larger, in bytes, unless its inputs are as large."""
Bytes = Annotated[int, within(1 << 12)]
"""Such a limit; shapes, and what they are computed from, have to be folded."""

_EXACT_POINTWISE = frozenset(
    {"Identity", "Cast", "Neg", "Abs", "Relu", "Min", "Max", "Clip", "Where", "Sign", "Floor",
     "Ceil", "Round", "Add", "Sub", "Mul", "Div", "Sqrt", "Not", "And", "Or", "Xor", "Equal",
     "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"}
)  # fmt: skip
EXACT = _EXACT_POINTWISE | {
    "CastLike", "Constant", "ConstantOfShape", "Range", "Trilu", "OneHot", "EyeLike",
    "QuantizeLinear", "DequantizeLinear", "GatherElements", "GatherND", "ScatterElements",
    "ScatterND", "ReverseSequence", "TopK",
}  # fmt: skip
"""Operators whose result is the same in every library: at most one rounding, to nearest."""

POINTWISE = _EXACT_POINTWISE | frozenset(
    {"Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh",
     "Acosh", "Atanh", "Sigmoid", "Erf", "Gelu", "Softplus", "Softsign", "Elu", "Selu", "Celu",
     "Mish", "HardSwish", "HardSigmoid", "LeakyRelu", "PRelu", "ThresholdedRelu", "Reciprocal",
     "Pow", "Mod"}
)  # fmt: skip
"""Operators each of whose results is a function of single elements."""

KEPT = frozenset({"DequantizeLinear"})
"""Operators on constants that a pass wants to see before they are folded."""


def _constant_of_shape(node: ir.Node, inputs: list[Array]) -> Array:
    attr = node.attributes.get("value")
    fill = np.zeros(1, np.float32) if attr is None else attr.as_tensor().numpy()
    return np.broadcast_to(fill.reshape(()), _ints(inputs[0]))


DIRECT: dict[str, Callable[[ir.Node, list[Array]], Array]] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": lambda _, given: np.broadcast_to(
        given[0], np.broadcast_shapes(given[0].shape, _ints(given[1]))
    ),
    "Transpose": lambda node, given: np.transpose(given[0], ints_attr(node, "perm")),
    "Unsqueeze": lambda _, given: np.expand_dims(given[0], _ints(given[1])),
    "Gather": lambda node, given: np.take(
        given[0], given[1].astype(np.int64), axis=node.attributes.get_int("axis", 0)
    ),
    "Concat": lambda node, given: np.concatenate(given, axis=node.attributes.get_int("axis", 0)),
}
"""Operators whose results share memory with their inputs, or are made at once."""


def constant_tensor(node: ir.Node) -> ir.TensorProtocol:
    """What a Constant gives; raises ValueError for text and the like."""
    name, attr = next(iter(node.attributes.items()))
    if name == "value":
        return attr.as_tensor()
    if name not in ("value_float", "value_floats", "value_int", "value_ints"):
        raise ValueError(f"Constant {node.name}: {name} is not supported")
    return ir.tensor(attr.value, dtype=ir.DataType.FLOAT if "float" in name else ir.DataType.INT64)


def _ints(array: Array) -> tuple[int, ...]:
    return tuple(int(n) for n in array.reshape(-1))


@cache
def _implementation(op_type: str, domain: str, version: int) -> type | None:
    try:
        found: type = load_op(domain, op_type, version)
    except (ImportError, NotImplementedError, RuntimeError, ValueError):
        return None
    return found


def evaluate_node(
    node: ir.Node, inputs: Sequence[Array | None], opsets: Mapping[str, int]
) -> tuple[Array, ...] | None:
    """The outputs of a standard operator on `inputs`; None where nothing here evaluates it."""
    evaluate = _evaluation(node, opsets)
    return None if evaluate is None else evaluate(inputs)


def _evaluation(
    node: ir.Node, opsets: Mapping[str, int]
) -> Callable[[Sequence[Array | None]], tuple[Array, ...]] | None:
    """What makes the outputs of `node` of its inputs, whatever becomes of the node meanwhile."""
    direct = DIRECT.get(node.op_type)
    if direct is not None and all(value is not None for value in node.inputs):
        return lambda inputs: (direct(node, [each for each in inputs if each is not None]),)
    implementation = _implementation(node.op_type, "", opsets[""])
    if implementation is None:
        return None
    context = {
        "log": lambda *_: None, "opsets": dict(opsets), "verbose": 0, "new_ops": None,
        "existing_functions": {}, "evaluator_cls": None,
    }  # fmt: skip
    proto = ir.serde.serialize_node(node)

    def evaluate(inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return tuple(map(np.asarray, implementation(proto, context).run(*inputs)))

    return evaluate


def value_where(value: ir.Value, known: Mapping[ir.Value, Array]) -> Array | None:
    """What `value` is where others are `known`, real constants as doubles; None where nothing here
    evaluates it."""
    if value in known:
        return known[value]
    numbers, node = const(value), value.producer()
    if numbers is not None:
        real = value.dtype is not None and value.dtype.is_floating_point()
        return numbers.astype(np.float64) if real else numbers
    if node is None or node.graph is None:
        return None
    inputs = [None if each is None else value_where(each, known) for each in node.inputs]
    made = evaluate_node(node, inputs, node.graph.opset_imports)
    return None if made is None else made[node.outputs.index(value)]


def _zeros_like(value: ir.Value | None) -> Array | None:
    if value is None:
        return None
    kind = np.float32 if value.dtype is None else value.dtype.numpy()
    return np.broadcast_to(np.zeros((), kind), static_shape(value))


class FoldedValue(NamedTuple):
    """One result of a node whose inputs are constants, and its terms as of `terms_of`."""

    values: AnyArray
    terms: Array | float


def folded(
    node: ir.Node, opsets: Mapping[str, int], kept: frozenset[str] = KEPT, limit: int = FOLD_LIMIT
) -> tuple[FoldedValue, ...] | None:
    """The constant outputs of `node`, or None where it has inputs that are not constant, gives
    another value each time, is one of `kept`, or makes more than `limit` bytes. Raises ValueError
    where the operator has no result for them."""
    if node.domain not in ("", "ai.onnx") or node.op_type in NOT_A_FUNCTION | kept:
        return None
    if not node.inputs or has_body(node) or schema_of(node.op_type, "", opsets[""]) is None:
        return None
    outlines = is_op(node, "Shape", "Size", "EyeLike")  # only the shapes of its inputs matter
    known = is_static if outlines else is_const
    if not all(value is None or known(value) for value in node.inputs):
        return None
    if node.op_type not in DIRECT and _too_large(node, limit):
        return None
    if (made := _made_when_asked(node, opsets)) is not None:
        return (made,)
    inputs = [_zeros_like(value) if outlines else const(value) for value in node.inputs]
    if any(a is not None and a.dtype.kind in "OSU" for a in inputs):
        return None  # text
    try:
        results = evaluate_node(node, inputs, opsets)
    except (ArithmeticError, IndexError, ValueError) as error:
        raise ValueError(f"it has no result for its constant inputs: {error}") from error
    return None if results is None else _with_terms(node, inputs, results, opsets)


def _too_large(node: ir.Node, limit: int) -> bool:
    made, given = (
        sum(
            prod(value.shape.numpy()) * value.dtype.numpy().itemsize
            for value in values
            if value is not None and value.dtype is not None and value.shape is not None
            if value.shape.is_static()
        )
        for values in (node.outputs, node.inputs)
    )
    return made > max(limit, given)


_LARGE = 1 << 20
"""Elements from which on a result is made when somebody asks for it, and not kept."""


def _made_when_asked(node: ir.Node, opsets: Mapping[str, int]) -> FoldedValue | None:
    """A large result that every library has alike, such as weights in another type or order."""
    (output, *more), evaluate = node.outputs, _evaluation(node, opsets)
    if more or evaluate is None or not _alike_everywhere(node) or output.dtype is None:
        return None
    if not is_static(output) or prod(static_shape(output)) < _LARGE:
        return None
    if any(np.any(terms_of(value)) for value in node.inputs):
        return None
    tensors = [None if value is None else value.const_value for value in node.inputs]
    kind = output.dtype.numpy()

    def result() -> Array:
        (values,) = evaluate([None if each is None else each.numpy() for each in tensors])
        return values.astype(kind, copy=False)

    return FoldedValue(LazyArray(static_shape(output), kind, result), 0.0)


def _with_terms(
    node: ir.Node, inputs: list[Array | None], results: Sequence[Array], opsets: Mapping[str, int]
) -> tuple[FoldedValue, ...]:
    """Results, which another library may make others, and which move with what the inputs may be
    off by."""
    given = [terms_of(value) for value in node.inputs]
    own = [_own_terms(node, result) for result in results]
    if not any(np.any(terms) for terms in given):
        return tuple(map(FoldedValue, results, own))
    unit = EPSILON["fp32"]
    for sign in (-unit, unit):
        ends = [
            None if array is None else (array + sign * np.asarray(terms)).astype(array.dtype)
            for array, terms in zip(inputs, given, strict=True)
        ]
        moved = evaluate_node(node, ends, opsets) or ()
        for position, (end, result) in enumerate(zip(moved, results, strict=False)):
            if end.shape == result.shape and np.issubdtype(result.dtype, np.floating):
                with np.errstate(invalid="ignore"):
                    change = np.abs(end.astype(np.float64) - result) / unit
                own[position] = np.maximum(own[position], np.nan_to_num(change, posinf=0.0))
    return tuple(map(FoldedValue, results, own))


def _alike_everywhere(node: ir.Node) -> bool:
    """Whether all libraries make the same result, to the last bit."""
    return is_op(node, *EXACT) or (is_op(node, *MOVERS) and not is_op(node, "Resize"))


def _own_terms(node: ir.Node, result: Array) -> Array | float:
    """Of what an operator computes from exact constants: a few roundings of each value, and of the
    largest where values are added up."""
    if _alike_everywhere(node) or not np.issubdtype(result.dtype, np.floating):
        return 0.0
    sizes = np.where(np.isfinite(result), np.abs(result.astype(np.float64)), 0.0)
    if is_op(node, *POINTWISE):
        return 4 * sizes
    terms: Array = 8 * (sizes + sizes.max(initial=0.0))
    return terms


@dataclass(frozen=True)
class FoldConstants(GraphPass):
    """Evaluate nodes whose inputs are constants.

    t = Transpose(w)                    =>    y = MatMul(x, t)     # t is an initializer
    y = MatMul(x, t)
    """

    keep: tuple[str, ...] = ()
    """Operators to leave as they are, for a later pass to see."""
    limit: Bytes = FOLD_LIMIT
    """Bytes of new arrays that one node may become; more only where its inputs are as large."""

    def rewrite(self, node: ir.Node) -> bool:
        if node.graph is None or is_op(node, "Identity"):
            return False
        values = folded(node, node.graph.opset_imports, frozenset(self.keep), self.limit)
        if values is None:
            return False
        make, narrow = Rewriter(node), narrow_result(node)
        made = [
            make.like(value.values, output, value.terms)
            for output, value in zip(node.outputs, values, strict=False)
        ]
        if narrow is not None:
            made[0].meta[NARROW] = narrow
        make.replace(*made)
        return True

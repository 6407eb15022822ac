"""All operators that a function defines, by name; users add theirs.

@rewrite("my.domain", "MyGelu")
def my_gelu(b, x, *, alpha=1.702):
    return x * b.Sigmoid(x * alpha)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from compiler.errors import at_node, operator_name
from compiler.frontend.control_flow import GraphCopies
from compiler.frontend.operators.body import Declined
from compiler.frontend.operators.composites import COMPOSITES
from compiler.frontend.operators.definitions import (
    REASON,
    Decompose,
    Expressed,
    OperatorFailed,
    Rewrite,
    Shaped,
    Signature,
    Table,
    attributes_of,
    expand,
    expressed,
    infer_expressed,
    without_absent_end,
)
from compiler.frontend.operators.expression import TEMPLATES, evaluate
from compiler.frontend.operators.microsoft import FUSED
from compiler.frontend.operators.places import PLACES
from compiler.frontend.operators.recurrent import RECURRENT
from compiler.frontend.operators.upgrade import TARGET_OPSET
from compiler.frontend.reference_types import kernels_of_runtime, type_proto
from compiler.frontend.rewrite import ORIGIN, Array, is_const, replace_outputs, static_shape
from compiler.frontend.shapes import schema_of
from simmodel.arch.base import Registry


def einsum(*operands: Shaped, equation: str) -> str:
    """`bij,bjk->bik` as `y[b, i, k] = sum(j, operands0[b, i, j] * operands1[b, j, k])`."""
    given, arrow, result = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in equation:
        raise Declined("its equation has an ellipsis")
    if not all(each.real for each in operands):
        raise Declined("it is of integers")
    if any(len(set(term)) < len(term) for term in terms) or len(terms) != len(operands):
        raise Declined("its equation takes a diagonal")
    counts = Counter("".join(terms))
    pairs = [*zip(operands, terms, strict=True)]
    if len({each for x, term in pairs for each in zip(term, x.shape, strict=False)}) > len(counts):
        raise Declined("it repeats an extent of 1")
    if not arrow:
        result = "".join(sorted(index for index, count in counts.items() if count == 1))
    if not result:
        raise Declined("its result is a single number")
    product = " * ".join(f"{x.name}[{', '.join(term)}]" for x, term in pairs)
    over = [index for index in counts if index not in result]
    value = f"sum(({', '.join(over)},), {product})" if over else product
    return f"y[{', '.join(result)}] = {value}"


_EINSUM = Expressed("", "Einsum", einsum, Signature.of(einsum, 0))
DEFINED: Table = Registry("defined operator", {**FUSED, **RECURRENT, _EINSUM.name: _EINSUM})
"""By name: `MyGelu` of domain my.domain is "my.domain.MyGelu"."""

Function = Callable[..., Any]


def rewrite(
    domain: str, op_type: str, *, reference: Function | None = None, replace: bool = False
) -> Callable[[Function], Function]:
    """Decorator: register a function of a builder as the operator `op_type` of `domain`.

    Args:
        domain: as in the model; "" is ONNX's own.
        op_type: its name there.
        reference: the same in numpy, a function of the inputs as arrays and the attributes by name,
            which results are compared with; default: the body, run by ONNX Runtime.
        replace: take the place of a definition that is there.

    The function gets a builder (`Body`), the inputs as `Tensor`, optional ones as None, and the
    attributes by keyword; it gives one result or a tuple of them. Raises ValueError where the name
    is taken, or where it can be no operator's function.
    """

    def register(function: Function) -> Function:
        enter(Rewrite(domain, op_type, function, Signature.of(function, 1), reference), replace)
        return function

    return register


def expression(
    domain: str, op_type: str, *, template: str | None = None, reference: Function | None = None,
    replace: bool = False,
) -> Callable[[Function], Function]:  # fmt: skip
    """Decorator: register a function that gives the text of a tensor expression as an operator.

    Args:
        domain, op_type, replace: as of `rewrite`.
        template: the kind of schedule that it has to suit (contraction, window, reduction,
            movement, elementwise); default: whichever follows.
        reference: as of `rewrite`; default: the expression, evaluated in numpy.

    The function gets the inputs, of which it may ask the `shape`, and the attributes by keyword; in
    its text, inputs are called like its parameters. Raises ValueError as `rewrite`.
    """
    if template not in (None, *TEMPLATES):
        raise ValueError(f"template {template!r}, expected one of {', '.join(TEMPLATES)}")

    def register(function: Function) -> Function:
        made = Signature.of(function, 0)
        enter(Expressed(domain, op_type, function, made, reference, template=template), replace)
        return function

    return register


def enter(made: Rewrite, replace: bool) -> None:
    """Put a definition into the table; raises ValueError where its name is taken."""
    if not made.op_type.isidentifier():
        raise ValueError(f"operator {made.op_type!r}: its name has to be an identifier")
    before = DEFINED.get(made.name)
    if before is not None and not replace:
        raise ValueError(
            f"operator {made.name} is defined already, at {before.place}; 'replace=True' takes "
            "its place"
        )
    DEFINED[made.name] = made


def definition_of(node: ir.Node) -> Rewrite | None:
    """What defines the operator of `node`, None where no function does."""
    return DEFINED.get(operator_name(node.op_type, node.domain))


def expression_in(node: ir.Node) -> Expressed | None:
    """The definition of `node` as a tensor expression, which has not declined it."""
    found = definition_of(node)
    return found if isinstance(found, Expressed) and REASON not in node.metadata_props else None


@dataclass(frozen=True)
class DecomposeOperators(Decompose):
    """Operators that are a few simpler ones: normalizations, Softmax, global pools, places, ranks.

        y = Softmax <axis=-1> (x)
     =>
        m = ReduceMax(x, [-1]); d = Sub(x, m); e = Exp(d)
        s = ReduceSum(e, [-1]); r = Reciprocal(s); y = Mul(e, r)

    Flatten, Squeeze and Unsqueeze become Reshape to a constant shape.
    """

    table: ClassVar[Table] = {**COMPOSITES, **PLACES}
    leaves_none_of: ClassVar[frozenset[str]] = frozenset(
        {"Softmax", "LogSoftmax", "GlobalAveragePool", "GlobalMaxPool", "Flatten", "Squeeze",
         "Unsqueeze", "LayerNormalization", "InstanceNormalization", "Sum", "Mean",
         "DynamicQuantizeLinear", "ArgMax", "ArgMin", "Hardmax"}
    )  # fmt: skip


# A standard operator that is a dataflow graph in itself, replaced by that graph.

BY_DEFINITION = frozenset(
    {"Attention", "CausalConvWithState", "Celu", "CenterCropPad", "LinearAttention",
     "MeanVarianceNormalization", "RotaryEmbedding", "Shrink", "SwiGLU", "ThresholdedRelu",
     "ai.onnx.preview.FlexAttention"}
)  # fmt: skip
"""Operators that are compiled as what defines them; of ONNX's other domains with these."""

SIZED = frozenset({"CenterCropPad"})
"""Those whose definition has static shapes only where the second input is a constant."""


_SINGLE = onnx.defs.OpSchema.FormalParameterOption.Single
"""An input that cannot be left out."""


def inline(node: ir.Node, version: int) -> bool:
    """Put the definition of `node` behind it and remove it; whether there is one.

    Types and shapes of its inputs are known; `version` is the operator set of the model. Raises
    ValueError where the definition needs an input that `node` leaves out.
    """
    graph = node.graph
    domain = "" if node.domain == "ai.onnx" else node.domain
    if operator_name(node.op_type, domain) not in BY_DEFINITION or graph is None:
        return False
    if node.op_type in SIZED and not is_const(node.inputs[1]):
        return False
    own = graph.opset_imports.get(domain, version) if domain else version
    proto = _completed(node, domain, own)
    found = _definition(node, domain, own, proto)
    if found is None:
        return False
    # A body that the node has, and that stands in this one, may read a value around the node.
    inside = {"", *found.input}.union(*(inner.output for inner in found.node))
    if not all(inside.issuperset(inner.input) for inner in found.node):
        return False
    _resolve_attributes(found, {attr.name: attr for attr in proto.attribute})
    inner = {name for each in found.node for name in each.output}
    pairs = [pair for pair in zip(node.outputs, found.output, strict=False) if pair[1] in inner]
    found.output[:] = [name for _, name in pairs]
    function = ir.serde.deserialize_function(found)
    given = dict(zip_longest(function.inputs, node.inputs[: len(function.inputs)]))
    for parameter, value in given.items():
        for use in parameter.uses() if value is None else ():
            schema = schema_of(use.node.op_type, use.node.domain, version)
            taken = None if schema is None else schema.inputs[min(use.idx, len(schema.inputs) - 1)]
            if taken is not None and taken.option == _SINGLE:
                raise ValueError(f"input {parameter.name!r} is missing, which has to be given")
    made = GraphCopies(node, function.opset_imports.get("", version))
    copied = made.copied(function.graph, [*given.values()])
    results = dict(zip((output for output, _ in pairs), copied, strict=True))
    replace_outputs(node, [results.get(output) for output in node.outputs])
    return True


def _completed(node: ir.Node, domain: str, version: int) -> onnx.NodeProto:
    """`node` with the attributes that it leaves to their defaults, without absent last inputs."""
    proto = ir.serde.serialize_node(node)
    schema = schema_of(node.op_type, domain, version)
    given = {attribute.name for attribute in proto.attribute}
    every = [] if schema is None else schema.attributes.values()
    defaults = [attribute.default_value for attribute in every if attribute.name not in given]
    proto.attribute.extend(default for default in defaults if default.name)
    return proto


def _definition(
    node: ir.Node, domain: str, version: int, proto: onnx.NodeProto
) -> onnx.FunctionProto | None:
    """The function that ONNX defines `node` by, in the newest operator set up to `version`."""
    schema: Any = schema_of(node.op_type, domain, version)  # onnx types less than it offers
    if schema is None:
        return None
    by_types = schema.context_dependent_function_opset_versions
    versions: list[int] = by_types or schema.function_opset_versions
    if not versions:
        return None
    newest = max((v for v in versions if v <= version), default=min(versions))
    types = [(type_proto(each) or onnx.TypeProto()).SerializeToString() for each in node.inputs]
    data = (
        schema.get_context_dependent_function_with_opset_version(
            newest, proto.SerializeToString(), types
        )
        if by_types
        else schema.get_function_with_opset_version(newest)
    )
    return onnx.FunctionProto.FromString(data) if data else None


def _resolve_attributes(
    function: onnx.FunctionProto, given: dict[str, onnx.AttributeProto]
) -> None:
    """Attributes that stand for one of the function's get its value, or go; a real number in a list
    of one gets out of it, which would give a value without axes one."""
    for node in function.node:
        attributes = list(node.attribute)
        del node.attribute[:]
        for attribute in attributes:
            name = attribute.ref_attr_name
            if not name or name in given:
                value = node.attribute.add()
                value.CopyFrom(given[name] if name else attribute)
                value.name = attribute.name
                if value.t.data_type == onnx.TensorProto.FLOAT and value.t.dims == [1]:
                    del value.t.dims[:]


# What an operator of a user's should compute, from the numbers that it reads: with these every
# shape is known, so the body is built for one node and handed to ONNX Runtime as a model of its
# own; a reference in numpy takes its place, and then has to agree with it about shapes.

Run = Callable[[bytes, Sequence[Array]], Sequence[Array]]
"""Runs a serialized model on arrays in the order of its inputs."""


def is_own(node: onnx.NodeProto) -> bool:
    """Whether ONNX Runtime is not asked what `node` computes: it has a reference of its own, or
    nobody but the function that defines it can compute it."""
    found = DEFINED.get(operator_name(node.op_type, node.domain))
    if found is None:
        return False
    known = kernels_of_runtime().get("" if node.domain == "ai.onnx" else node.domain, ())
    return found.reference is not None or node.op_type not in known


def compute_own(
    node: onnx.NodeProto, inputs: Sequence[Array | None], constant: Collection[str], run: Run
) -> list[Array]:
    """Results of `node`, which `is_own`, from its inputs, None where one is left out.

    `constant`: names of those that are constants of the model. `run` runs the body where there is
    no reference. Raises OperatorFailed where a function of the operator fails, or its reference
    gives other shapes than its body.
    """
    model, feeds = _single_node_model(node, inputs, constant)
    definition, first = DEFINED[operator_name(node.op_type, node.domain)], model.graph.node(0)
    if isinstance(definition, Expressed):
        infer_expressed(first, definition)
        if definition.reference is None:
            given = zip(definition.signature.names(len(inputs)), inputs, strict=True)
            tensors = {name: array for name, array in given if array is not None}
            return [_converted(evaluate(expressed(first, definition), tensors), first.outputs[0])]
    if definition.reference is None:
        _expand_all(model)
        return list(run(ir.to_proto(model).SerializeToString(), feeds))
    made = _called(definition, definition.reference, first, inputs)
    _expand_all(model)
    return [_suiting(definition, a, v) for a, v in zip(made, model.graph.outputs, strict=False)]


def _converted(made: Array, value: ir.Value) -> Array:
    assert value.dtype is not None
    return made.astype(value.dtype.numpy())


def _single_node_model(
    node: onnx.NodeProto, inputs: Sequence[Array | None], constant: Collection[str]
) -> tuple[ir.Model, list[Array]]:
    """`node` as a model, and what its inputs are fed with."""
    given = {n: a for n, a in zip(node.input, inputs, strict=True) if n and a is not None}
    free = {name: array for name, array in given.items() if name not in constant}
    graph = helper.make_graph(
        [node],
        "own",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in free.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [numpy_helper.from_array(a, n) for n, a in given.items() if n in constant],
    )
    opsets = {"": TARGET_OPSET, **({node.domain: 1} if node.domain else {})}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = ir.from_proto(helper.make_model(graph, opset_imports=imports, ir_version=10))
    first = model.graph.node(0)
    first.name = first.name or node.op_type
    first.metadata_props[ORIGIN] = first.name
    return model, list(free.values())


def _expand_all(model: ir.Model) -> None:
    """Bodies in place of all nodes that functions define and ONNX Runtime does not know."""
    for node in model.graph:
        definition = definition_of(node)
        if isinstance(definition, Expressed) or not is_own(ir.to_proto(node)):
            continue
        assert definition is not None
        expand(node, definition)


def _called(
    definition: Rewrite, reference: Callable[..., Any], node: ir.Node,
    inputs: Sequence[Array | None],
) -> list[Array]:  # fmt: skip
    attributes = definition.signature.bound(attributes_of(node))
    try:
        with np.errstate(all="ignore"):
            made = reference(*without_absent_end(inputs), **attributes)
    except Exception as mistake:  # whatever a user's function does
        raise OperatorFailed(
            f"{at_node(node.name, definition.name)}: its reference failed: "
            f"{type(mistake).__name__}: {mistake}"
        ) from mistake
    return [np.asarray(each) for each in (made if isinstance(made, list | tuple) else [made])]


def _suiting(definition: Rewrite, made: Array, value: ir.Value) -> Array:
    """A result of the reference in the element type of the body, whose shape it must have."""
    if made.shape != static_shape(value):
        raise OperatorFailed(
            f"{definition.name}, defined at {definition.place}: the reference gives "
            f"{list(made.shape)}, the body {list(static_shape(value))}"
        )
    return _converted(made, value)

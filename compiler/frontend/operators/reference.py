"""What an operator of a user's should compute, from the numbers that it reads.

The one idea: with the numbers at hand every shape is known, so the body can be built for this one
node and handed to ONNX Runtime as a model of its own; a reference in numpy takes its place, and
then has to agree with it about shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from compiler.errors import at_node, operator_name
from compiler.frontend.operators.definitions import (
    Expressed,
    OperatorFailed,
    Rewrite,
    attributes_of,
    expand,
    expressed,
    infer_expressed,
    without_absent_end,
)
from compiler.frontend.operators.expression import evaluate
from compiler.frontend.operators.functions import DEFINED, definition_of
from compiler.frontend.operators.upgrade import TARGET_OPSET
from compiler.frontend.reference_types import kernels_of_runtime
from compiler.frontend.rewrite import ORIGIN, Array, static_shape

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
    definition: Rewrite,
    reference: Callable[..., Any],
    node: ir.Node,
    inputs: Sequence[Array | None],
) -> list[Array]:
    """What the reference makes of `inputs`."""
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

"""Operators that ONNX does not define: run by ONNX Runtime where it has them, else refused in words
that name node, operator, reason and remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from one_node import reference
from onnx import TensorProto, helper

from archgen.check.reference import run_node
from archgen.models.load import SourceModel
from archgen.schema import load_arch
from archgen.studies.prepare import prepare
from compiler.api import CompileOptions, compile_model
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.options import stages_for
from simmodel.execute import run
from simmodel.verify import verify

FLOAT, INT32, UINT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT8
Port = tuple[str, int, list[int]]


def network(
    nodes: list[onnx.NodeProto],
    inputs: list[Port],
    outputs: list[str],
    *constants: onnx.TensorProto,
) -> onnx.ModelProto:
    """Its outputs have no type: whoever opens it finds out."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        list(constants),
    )
    domains = sorted({node.domain for node in nodes} | {"", "com.microsoft"})
    opsets = [helper.make_opsetid(domain, 1 if domain else 21) for domain in domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def microsoft(
    op: str, inputs: list[str], outputs: list[str], **attributes: object
) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, op, domain="com.microsoft", **attributes)


def numbers(name: str, shape: list[int], kind: int = FLOAT) -> onnx.TensorProto:
    random = np.random.default_rng(len(name))
    values = random.standard_normal(shape) if kind == FLOAT else random.integers(0, 256, shape)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return onnx.numpy_helper.from_array(values.astype(dtype), name)


X = ("x", FLOAT, [1, 4, 32])
FOREIGN = {
    "Inverse": network(
        [microsoft("Inverse", ["x"], ["y"])], [("x", FLOAT, [1, 3, 3])], ["y"],
    ),
    "MultiHeadAttention": network(  # keys by head
        [microsoft("MultiHeadAttention", ["x", "k", "v"], ["y"], num_heads=2)],
        [X, ("k", FLOAT, [1, 2, 3, 16]), ("v", FLOAT, [1, 2, 3, 16])], ["y"],
    ),
    "GroupQueryAttention": network(
        [microsoft(
            "GroupQueryAttention", ["q", "k", "v", "past", "past2", "last", "total"],
            ["y", "present", "present2"], num_heads=4, kv_num_heads=2, smooth_softmax=1,
        )],
        [("q", FLOAT, [1, 1, 32]), ("k", FLOAT, [1, 1, 16]), ("v", FLOAT, [1, 1, 16]),
         ("past", FLOAT, [1, 2, 5, 8]), ("past2", FLOAT, [1, 2, 5, 8])],
        ["y", "present", "present2"],
        helper.make_tensor("last", INT32, [1], [5]), helper.make_tensor("total", INT32, [1], [6]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_of_onnx_runtime_run_on_the_host(name: str) -> None:
    """Between two that the machine runs, so that their shapes must be known."""
    proto = FOREIGN[name]
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="z"))
    arch = load_arch("soma-edge")
    made = compile_model(proto, arch, CompileOptions("int8", stages=stages_for(0)))
    verify(made.program, arch)
    assert [node.kind for node in made.host] == [f"com.microsoft.{name}"]
    inputs = {
        value.name: onnx.numpy_helper.to_array(
            numbers(value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim])
        )
        for value in proto.graph.input
    }
    got = run(made.program, inputs, arch, run_node).outputs
    for output, want in zip(proto.graph.output, reference(proto, inputs), strict=True):
        np.testing.assert_allclose(got[output.name], want, rtol=1e-5, atol=1e-5)


def refused(proto: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        compile_model(load(proto, "net"), load_arch("soma-edge"))
    return str(caught.value)


def test_quantizations_of_onnx_runtime_are_those_of_onnx() -> None:
    """As its quantizer writes them for 16-bit activations in old operator sets."""
    nodes = [
        microsoft("DequantizeLinear", ["w", "s", "z"], ["wide"]),
        helper.make_node("MatMul", ["x", "wide"], ["m"]),
        microsoft("QuantizeLinear", ["m", "t", "v"], ["y"]),
    ]
    constants = numbers("w", [32, 4], onnx.TensorProto.INT8), numbers("s", []), numbers("t", [])
    zeros = (
        helper.make_tensor("z", onnx.TensorProto.INT8, [], [0]),
        helper.make_tensor("v", onnx.TensorProto.UINT8, [], [0]),
    )
    made = load(network(nodes, [X], ["y"], *constants, *zeros), "net")
    assert {node.domain for node in made.graph} == {""}


def test_an_unknown_domain_is_refused_with_all_its_nodes() -> None:
    """Also what stands behind them is not reached: nothing is known of it."""
    strange = helper.make_node("Frobnicate", ["x"], ["a"], "foo", domain="com.acme")
    more = helper.make_node("Defrobnicate", ["b"], ["y"], "bar", domain="com.acme")
    relu = helper.make_node("Relu", ["a"], ["b"], "relu")
    said = refused(network([strange, relu, more], [X], ["y"]))
    places = "node 'foo' (com.acme.Frobnicate), node 'bar' (com.acme.Defrobnicate)"
    assert f"{places}: the domain is unknown here" in said
    assert "register it (docs/extending.md)" in said
    with pytest.raises(UnsupportedModel, match="node 'foo'"):  # before ONNX Runtime quantizes
        prepare(SourceModel("net", network([strange, relu, more], [X], ["y"])), "int8")


def test_an_unknown_operator_inside_a_branch_or_a_function_is_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "own" : 1, "com.acme" : 1]>
      net (float[2] x, bool c) => (float[2] y) {
        a = own.known (x)
        y = If (c) <then_branch = t () => (float[2] p) { p = com.acme.Inner (a) },
                    else_branch = e () => (float[2] q) { q = Neg (a) }>
      }
      <domain: "own", opset_import: ["" : 21, "com.acme" : 1]>
      known (a) => (b) { [deep] b = com.acme.Deep (a) }"""
    said = refused(onnx.parser.parse_model(text))
    assert "(com.acme.Inner)" in said and "node 'deep' (com.acme.Deep)" in said
    assert "own.known" not in said


OUTSIDE = {
    "a tree": (
        """g (float[1,8] x) => (float[1,1] y) {
        [forest] y = ai.onnx.ml.TreeEnsembleRegressor <n_targets=1> (x)
        }""",
        "node 'forest' (ai.onnx.ml.TreeEnsembleRegressor): classical machine learning and ",
    ),
    "chance": (
        "g (float[4] x) => (float[4] y) { [n] r = RandomNormalLike (x)  y = Add (x, r) }",
        "node 'n' (ai.onnx.RandomNormalLike): it makes other values in each run, ",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_no_accelerator_is_given_is_refused_before_it_is_quantized(name: str) -> None:
    text, said = OUTSIDE[name]
    given = f'<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]> {text}'
    with pytest.raises(UnsupportedModel) as caught:
        prepare(SourceModel("net", onnx.parser.parse_model(given)), "int8")
    assert str(caught.value).startswith(f"net: {said}")


def test_an_operator_without_a_kernel_is_refused_before_it_runs() -> None:
    """ONNX Runtime has this one for other processors alone."""
    added = microsoft("BiasAdd", ["x", "b", "x"], ["y"])
    said = refused(network([added], [("x", FLOAT, [1, 4, 320])], ["y"], numbers("b", [320])))
    assert "node 'BiasAdd' (com.microsoft.BiasAdd): Could not find an implementation" in said

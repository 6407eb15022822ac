"""Operators that ONNX does not define: run by ONNX Runtime where it has them, else refused in words
that name node, operator, reason and remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from one_node import reference
from onnx import helper

from archgen.check.reference import run_node, sample_inputs
from archgen.models.load import SourceModel
from archgen.schema import load_arch
from archgen.studies.prepare import prepare
from compiler.api import CompileOptions, compile_model
from compiler.errors import UnsupportedModel
from compiler.frontend.importer import load
from compiler.options import stages_for
from simmodel.execute import run
from simmodel.verify import verify


def network(text: str, *domains: str) -> onnx.ModelProto:
    """Its outputs have no type: whoever opens it finds out."""
    more = "".join(f', "{domain}" : 1' for domain in ("com.microsoft", *domains))
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21{more}]> net {text}')
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


FOREIGN = {
    "Inverse": "(float[1,3,3] x) => (float[1,3,3] y) { y = com.microsoft.Inverse (x) }",
    "MultiHeadAttention": """(float[1,4,32] x, float[1,2,3,16] k, float[1,2,3,16] v)
      => (float[1,4,32] y) { y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, k, v) }""",
    "GroupQueryAttention": """(float[1,1,32] q, float[1,1,16] k, float[1,1,16] v,
      float[1,2,5,8] p, float[1,2,5,8] r) => (float[1,1,32] y, float[1,2,6,8] a, float[1,2,6,8] b)
      <int32[1] last = {5}, int32[1] total = {6}> { y, a, b = com.microsoft.GroupQueryAttention
        <num_heads = 4, kv_num_heads = 2, smooth_softmax = 1> (q, k, v, p, r, last, total) }""",
}
"""The second with keys by head."""


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_of_onnx_runtime_run_on_the_host(name: str) -> None:
    """Between two that the machine runs, so that their shapes must be known."""
    proto = network(FOREIGN[name])
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output.append(onnx.ValueInfoProto(name="z"))
    arch = load_arch("soma-edge")
    made = compile_model(proto, arch, CompileOptions("int8", stages=stages_for(0)))
    verify(made.program, arch)
    assert [node.kind for node in made.host] == [f"com.microsoft.{name}"]
    inputs = sample_inputs(proto)
    got = run(made.program, inputs, arch, run_node).outputs
    for output, want in zip(proto.graph.output, reference(proto, inputs), strict=True):
        np.testing.assert_allclose(got[output.name], want, rtol=1e-5, atol=1e-5)


def refused(proto: onnx.ModelProto) -> str:
    with pytest.raises(UnsupportedModel) as caught:
        compile_model(load(proto, "net"), load_arch("soma-edge"))
    return str(caught.value)


def test_quantizations_of_onnx_runtime_are_those_of_onnx() -> None:
    """As its quantizer writes them for 16-bit activations in old operator sets."""
    text = """(float[1,4,32] x, int8[32,4] w, float s, float t) => (uint8[1,4,4] y)
      <int8 z = {0}, uint8 v = {0}> {
        wide = com.microsoft.DequantizeLinear (w, s, z)
        m = MatMul (x, wide)
        y = com.microsoft.QuantizeLinear (m, t, v) }"""
    made = load(network(text), "net")
    assert {node.domain for node in made.graph} == {""}


def test_an_unknown_domain_is_refused_with_all_its_nodes() -> None:
    """Also what stands behind them is not reached: nothing is known of it."""
    text = """(float[1,4,32] x) => (float[1,4,32] y) { [foo] a = com.acme.Frobnicate (x)
      b = Relu (a) [bar] y = com.acme.Defrobnicate (b) }"""
    said = refused(network(text, "com.acme"))
    places = "node 'foo' (com.acme.Frobnicate), node 'bar' (com.acme.Defrobnicate)"
    assert f"{places}: the domain is unknown here" in said
    assert "register it (docs/extending.md)" in said
    with pytest.raises(UnsupportedModel, match="node 'foo'"):  # before ONNX Runtime quantizes
        prepare(SourceModel("net", network(text, "com.acme")), "int8")


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
    said = refused(
        network("""(float[1,4,320] x, float[320] b) => (float[1,4,320] y)
      { [BiasAdd] y = com.microsoft.BiasAdd (x, b, x) }""")
    )
    assert "node 'BiasAdd' (com.microsoft.BiasAdd): Could not find an implementation" in said

"""Operators that ONNX does not define: run by ONNX Runtime where it has them, else refused in words
that name node, operator, reason and remedy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from one_node import reference

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

DOMAINS = '"" : 21, "com.microsoft" : 1, "com.acme" : 1'


def network(text: str) -> onnx.ModelProto:
    """A graph in text, whose outputs have no type: whoever opens it finds out."""
    return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{DOMAINS}]> net {text}")


FOREIGN = {
    "Inverse": "(float[1,3,3] x) => (z) { y = com.microsoft.Inverse (x)",
    "MultiHeadAttention":  # keys by head
        """(float[1,4,32] x, float[1,2,3,16] k, float[1,2,3,16] v) => (z) {
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, k, v)""",
    "GroupQueryAttention":
        """(float[1,1,32] q, float[1,1,16] k, float[1,1,16] v, float[1,2,5,8] past,
            float[1,2,5,8] past2) => (present, present2, z)
        <int32[1] last = {5}, int32[1] total = {6}> {
        y, present, present2 = com.microsoft.GroupQueryAttention
            <num_heads = 4, kv_num_heads = 2, smooth_softmax = 1>
            (q, k, v, past, past2, last, total)""",
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_of_onnx_runtime_run_on_the_host(name: str) -> None:
    """Between two that the machine runs, so that their shapes must be known."""
    proto = network(f"{FOREIGN[name]} z = Relu (y) }}")
    arch = load_arch("soma-edge")
    made = compile_model(proto, arch, CompileOptions("int8", stages=stages_for(0)))
    verify(made.program, arch)
    assert [node.kind for node in made.host] == [f"com.microsoft.{name}"]
    random = np.random.default_rng(0)
    inputs = {
        port.name: random.standard_normal(
            [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for port in proto.graph.input
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
    proto = network("""(float[1, 4, 32] x) => (y) <int8[32, 4] w, float s = {0.5}, float t = {0.1},
      int8 z = {0}, uint8 v = {0}> {
        wide = com.microsoft.DequantizeLinear (w, s, z)
        m = MatMul (x, wide)
        y = com.microsoft.QuantizeLinear (m, t, v) }""")
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.arange(128, dtype=np.int8).reshape(32, 4), "w")
    )
    del proto.graph.value_info[:]
    made = load(proto, "net")
    assert {node.domain for node in made.graph} == {""}


def test_an_unknown_domain_is_refused_with_all_its_nodes() -> None:
    """Also what stands behind them is not reached: nothing is known of it."""
    proto = network("""(float[1, 4, 32] x) => (y) {
      [foo] a = com.acme.Frobnicate (x)
      b = Relu (a)
      [bar] y = com.acme.Defrobnicate (b) }""")
    said = refused(proto)
    places = "node 'foo' (com.acme.Frobnicate), node 'bar' (com.acme.Defrobnicate)"
    assert f"{places}: the domain is unknown here" in said
    assert "register it (docs/extending.md)" in said
    with pytest.raises(UnsupportedModel, match="node 'foo'"):  # before ONNX Runtime quantizes
        prepare(SourceModel("net", proto), "int8")


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
    added = "[BiasAdd] y = com.microsoft.BiasAdd (x, b, x)"
    said = refused(network(f"(float[1, 4, 320] x, float[320] b) => (y) {{ {added} }}"))
    assert "node 'BiasAdd' (com.microsoft.BiasAdd): Could not find an implementation" in said
